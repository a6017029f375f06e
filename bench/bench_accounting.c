/* SPDX-License-Identifier: MIT */
/* bench_accounting: what do memory and communication of parallel training come to on paper, step by step?
 *
 * The `communication_accounting` problem of Stanford's CS336, assignment 2, with every step of its derivation, the
 * closed forms of its edition of 2026, the bucket model of its DDP problems and the memory of ZeRO and FSDP; and the
 * same for your own model and machine. Nothing runs on a device: a row is a calculation, and takes microseconds.
 *
 * Each variant is a question with options of its own; a list sweeps. One case alone prints its derivation (--steps).
 * --measured 1 takes C from bench_roofline and W from bench_allreduce, or from bench_roofline's copies between GPUs.
 * Expect: 44 devices of 80 GB; 38 of 95 GB with FSDP; compute-bound from 25,302 tokens (396 per device) on.
 * Limits: (a) to (d) count feed-forward blocks only, as the handout does; latencies only where an option names one. */
#include <stdio.h>
#include <string.h>

#include "common/core/output.h"
#include "common/core/text.h"
#include "bench/accounting/questions.h"

static const option_spec option_table[] = {
    {"d-model", OPTION_INT, OPTION_LIST, "16384", .help = "d, width of the blocks", .min = 1, .max = 1048576},
    {"d-ff", OPTION_INT, OPTION_LIST, "53248", .help = "F, width inside a block", .min = 1, .max = 16777216},
    {"blocks", OPTION_INT, OPTION_LIST, "126", .help = "feed-forward blocks", .min = 1, .max = 100000},
    {"matrices", OPTION_INT, OPTION_LIST, "2", .help = "matrices per block: 2, or 3 with SwiGLU", .min = 2, .max = 3},
    {"device-memory", OPTION_BYTES, OPTION_LIST, "80GB,95GB",
     .help = "memory, fsdp: memory of a device; 80GB is 80e9 bytes, 80G is 80 GiB", .min = 1e6, .max = 1e15,
     .unit = "bytes"},
    {"tokens", OPTION_INT, OPTION_LIST, "0,1024,2048,4096,8192,16384",
     .help = "memory, fsdp: tokens whose activations are kept; 0: none", .max = 1e12, .unit = "tokens"},
    {"x", OPTION_INT, OPTION_LIST, "16", .help = "X, devices along the FSDP axis", .min = 1, .max = 1048576},
    {"y", OPTION_INT, OPTION_LIST, "4", .help = "Y, devices along the tensor-parallel axis", .min = 1, .max = 1048576},
    {"mesh-x", OPTION_INT, OPTION_LIST, "2", .help = "M_X, mesh axes of FSDP; 1 behind a switch", .min = 1, .max = 16},
    {"mesh-y", OPTION_INT, OPTION_LIST, "1", .help = "M_Y, mesh axes of tensor parallelism", .min = 1, .max = 16},
    {"weight-bits", OPTION_INT, OPTION_LIST, "16", .help = "width of a gathered weight: 8, 16 or 32", .min = 8,
     .max = 32, .unit = "bits"},
    {"batch", OPTION_INT, OPTION_LIST, "0,4096,16384,65536",
     .help = "compute_bound, closed_forms: B, the whole batch; 0: the smallest that is compute-bound", .max = 1e12,
     .unit = "tokens"},
    {"way", OPTION_CHOICE, OPTION_LIST, "all", .help = "batch: a way to lower it", .choices = ACCOUNTING_WAYS},
    {"form", OPTION_CHOICE, OPTION_LIST, "all", .help = "closed_forms: which form", .choices = CLOSED_FORM_NAMES},
    {"model", OPTION_TEXT, OPTION_LIST, "xl",
     .help = "data_parallel, buckets, zero: tiny to 8b as in bench_transformer, or a number of parameters such as 8e9"},
    {"ranks", OPTION_INT, OPTION_LIST, "2,4,8", .help = "n, GPUs of data parallelism", .min = 1, .max = 1048576},
    {"grad-bits", OPTION_INT, OPTION_LIST, "16,32", .help = "width of a gradient as it is sent", .min = 8, .max = 32,
     .unit = "bits"},
    {"overhead", OPTION_REAL, OPTION_LIST, "20", .help = "buckets: o, fixed cost of a call", .min = 0.001, .max = 1e9,
     .unit = "us"},
    {"kappa", OPTION_REAL, OPTION_LIST, "1,0.12,0.05",
     .help = "buckets: share of a collective's time by which it slows down compute that runs meanwhile", .min = 0.0001,
     .max = 1},
    {"grad-rate", OPTION_REAL, OPTION_LIST, "0",
     .help = "buckets: rate at which the backward makes gradients; 0: as fast as they are sent", .max = 1e16,
     .unit = "bytes/s"},
    {"bucket", OPTION_BYTES, OPTION_LIST, "0,1M,2M,5M,10M,25M,50M,100M,250M,500M,1000M",
     .help = "buckets: b, size of a bucket; 0: the best one under contention", .max = 1e15, .unit = "bytes"},
    {"recipe", OPTION_CHOICE, OPTION_LIST, "all",
     .help = "zero: fp32; bf16 over fp32 master weights; the same with fp32 gradients", .choices = ZERO_RECIPE_NAMES},
    {"strategy", OPTION_CHOICE, OPTION_LIST, "all", .help = "zero: which strategy", .choices = ZERO_STAGE_NAMES},
    {"slots", OPTION_INT, OPTION_LIST, "2",
     .help = "zero: blocks that are gathered, or not yet reduced, at the same time", .max = 1000},
    {"flops", OPTION_REAL, OPTION_LIST, "4.6e14", .help = "C, speed of a device of the mesh", .min = 1, .max = 1e21,
     .unit = "FLOP/s"},
    {"bandwidth", OPTION_REAL, OPTION_LIST, "1.8e11",
     .help = "W, bandwidth of a mesh axis; in closed_forms, what a device can send", .min = 1, .max = 1e18,
     .unit = "bytes/s"},
    {"gpu-flops", OPTION_REAL, OPTION_LIST, "6e14", .help = "data_parallel: C, speed of a GPU", .min = 1, .max = 1e21,
     .unit = "FLOP/s"},
    {"busbw", OPTION_REAL, OPTION_LIST, "3.65e11",
     .help = "data_parallel, buckets, zero: W, bus bandwidth of collectives", .min = 1, .max = 1e18, .unit = "bytes/s"},
    {"measured", OPTION_FLAG, OPTION_LIST, "0",
     .help = "take C and W from this machine's results, and from the options above where there are none"},
    {"steps", OPTION_CHOICE, 0, "auto", .help = "print the derivation; auto: if there is only one case",
     .choices = "auto|0|1"},
    {0}};

static const variant_spec variant_table[] = {
    {"memory", "(a) devices that hold weights, gradients and AdamW's state, and what a token leaves for backward"},
    {"fsdp", "(b) devices when state and half of the activations are sharded"},
    {"compute_bound", "(c) the batch from which FSDP and tensor parallelism are bound by compute"},
    {"batch", "(d) ways to a smaller batch, each with its number"},
    {"closed_forms", "2026: devices that data, tensor and 2D parallelism keep bound by compute"},
    {"data_parallel", "tokens per GPU from which the backward hides the all-reduce of all gradients"},
    {"buckets", "overhead of bucketed gradients over backward, and the best bucket"},
    {"zero", "memory by phase, and bytes sent, of DDP, ZeRO and FSDP"},
    {0}};

static const column_spec column_table[] = {
    {"state_bytes", COLUMN_INT, false, "memory, fsdp: weights, gradients and both moments in fp32, 16 P"},
    {"parameters", COLUMN_INT, false, "P"},
    {"saved_per_token_bytes", COLUMN_INT, false, "memory, fsdp: kept for backward"},
    {"devices", COLUMN_INT, false, "memory, fsdp: devices needed; nan if no number is enough"},
    {"devices_exact", COLUMN_REAL, false, "the same, not rounded up"},
    {"tokens_of_a_device", COLUMN_INT, false, "memory: tokens whose activations one more device holds"},
    {"tokens_most", COLUMN_INT, false, "fsdp: most tokens that any number of devices can hold"},
    {"tokens_least", COLUMN_REAL, false, "compute_bound, batch, closed_forms: smallest B that is compute-bound"},
    {"tokens_per_device", COLUMN_REAL, false, "the same over N; in data_parallel, tokens that hide the gradients"},
    {"of_given", COLUMN_REAL, false, "batch: tokens_least over that of the mesh as given"},
    {"what", COLUMN_TEXT, false, "batch: what the way is, and what it costs"},
    {"at_tokens", COLUMN_REAL, false, "B for which the times below hold"},
    {"math_us", COLUMN_REAL, false, "time of the products"},
    {"fsdp_us", COLUMN_REAL, false, "compute_bound: gathering the weights"},
    {"tp_us", COLUMN_REAL, false, "compute_bound: collectives of tensor parallelism"},
    {"comm_us", COLUMN_REAL, false, "time of the collectives"},
    {"alternate_us", COLUMN_REAL, false, "closed_forms: an all-reduce that passes whole buffers round the ring"},
    {"bound_by", COLUMN_TEXT, false, "compute_bound: compute or communication, at that B"},
    {"devices_most", COLUMN_REAL, false, "closed_forms: largest N that is compute-bound"},
    {"algbw_gb_s", COLUMN_REAL, false, "buckets: w, bytes of an all-reduce over its time"},
    {"best_bytes", COLUMN_REAL, false, "buckets: b* of the handout's model, sqrt(s o w)"},
    {"best_contention_bytes", COLUMN_REAL, false, "buckets: sqrt(kappa s o w)"},
    {"best_buckets", COLUMN_REAL, false, "buckets: s / b*"},
    {"bucket_used_bytes", COLUMN_REAL, false, "buckets: b for which the overheads below hold"},
    {"overhead_us", COLUMN_REAL, false, "buckets: over backward, the handout's model: n o + b / w"},
    {"overhead_contention_us", COLUMN_REAL, false, "hidden, but slowing compute: o + b / w + kappa (n o + s / w)"},
    {"init_bytes", COLUMN_INT, false, "zero: held by a rank after set-up"},
    {"before_step_bytes", COLUMN_INT, false, "zero: before the first update, with gradients"},
    {"after_step_bytes", COLUMN_INT, false, "zero: from the first update on, with moments"},
    {"slots_bytes", COLUMN_INT, false, "zero: gathered weights and gradients not yet reduced, in forward and backward"},
    {"wire_bytes", COLUMN_REAL, false, "zero, data_parallel: bytes that a rank sends per step"},
    {"used_flops", COLUMN_REAL, false, "C of the row"},
    {"used_bandwidth", COLUMN_REAL, false, "W of the row"},
    {"answer", COLUMN_TEXT, true, "the result in words"},
    {0}};

/* The variants, and the options that mean something to each. */
static const struct {
    const char *variant, *options;
    void (*run)(const accounting *a);
} questions[] = {
    {"memory", "d-model d-ff blocks matrices device-memory tokens", accounting_run_memory},
    {"fsdp", "d-model d-ff blocks matrices device-memory tokens", accounting_run_fsdp},
    {"compute_bound", "d-model d-ff matrices x y mesh-x mesh-y weight-bits batch flops bandwidth measured",
     accounting_run_compute_bound},
    {"batch", "d-model d-ff blocks matrices x y mesh-x mesh-y weight-bits way flops bandwidth measured",
     accounting_run_batch},
    {"closed_forms", "d-model d-ff x y batch form flops bandwidth measured", accounting_run_closed_forms},
    {"data_parallel", "model ranks grad-bits gpu-flops busbw measured", accounting_run_data_parallel},
    {"buckets", "model ranks grad-bits overhead kappa grad-rate bucket busbw measured", accounting_run_buckets},
    {"zero", "model ranks recipe strategy slots busbw measured", accounting_run_zero},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

static bool applies(const char *option, const char *variant)
{
    bool named = false; /* by any variant; a common option is not, and applies to all */
    for (size_t i = 0; i < QUESTIONS; i++) {
        const bool uses = text_has_word(questions[i].options, option);
        if (strcmp(questions[i].variant, variant) == 0 && uses)
            return true;
        named = named || uses;
    }
    return !named;
}

static bool whole_bytes(const options *o, const char *name, char *msg, size_t msg_bytes)
{
    for (size_t i = 0; i < option_count(o, name); i++)
        if (option_int_at(o, name, i) % 8 != 0) {
            snprintf(msg, msg_bytes, "--%s %s is not a whole number of bytes; allowed are 8, 16, 24 and 32", name,
                     option_text_at(o, name, i));
            return false;
        }
    return true;
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    static const char *const rates[] = {"flops", "bandwidth", "gpu-flops", "busbw"};
    bool measured = false;
    accounting_model m;
    if (!options_untimed(o, msg, msg_bytes))
        return false;
    for (size_t i = 0; i < option_count(o, "measured"); i++)
        measured = measured || option_int_at(o, "measured", i);
    for (size_t i = 0; measured && i < sizeof rates / sizeof *rates; i++)
        if (option_count(o, rates[i]) > 1) {
            snprintf(msg, msg_bytes, "--measured 1 replaces --%s, which cannot be a list then", rates[i]);
            return false;
        }
    for (size_t i = 0; i < option_count(o, "model"); i++)
        if (!accounting_model_parse(option_text_at(o, "model", i), &m)) {
            snprintf(msg, msg_bytes, "--model %s is neither one of %s nor a number of parameters, such as 8e9",
                     option_text_at(o, "model", i), ACCOUNTING_MODELS);
            return false;
        }
    return whole_bytes(o, "weight-bits", msg, msg_bytes) && whole_bytes(o, "grad-bits", msg, msg_bytes);
}

static const bench_run run_table[] = {{RUN_QUICK | RUN_DEFAULT, 1, 3, ""}, {RUN_CPU, 0, 3, ""}, {0}};

static const bench_info info = {
    .name = "bench_accounting",
    .summary = "What do memory and communication of parallel training come to on paper, step by step?",
    .notes =
        "A row is a calculation, and `answer` is its result in words. --help names the variants that use an option.\n"
        "memory, fsdp, compute_bound and batch follow the book \"How to Scale Your Model\": B is the whole batch, W\n"
        "a mesh axis in both directions, M_X and M_Y the axes of FSDP and of tensor parallelism; only the forward\n"
        "is counted. For GPUs behind one switch use --mesh-x 1 --mesh-y 1. In closed_forms a block has SwiGLU's\n"
        "three matrices, and W is what a device can send; in data_parallel, buckets and zero, W is the bus\n"
        "bandwidth of collectives. 1 GB is 1e9 bytes and 1 GiB 2^30 bytes everywhere. docs/formulas.md has the\n"
        "formulas.",
    .examples = "./bench_accounting\n"
                "./bench_accounting --variant memory --device-memory 80GB --tokens 0\n"
                "./bench_accounting --variant compute_bound --batch 0 --x 8 --y 8\n"
                "./bench_accounting --variant buckets --model 8b --ranks 8 --overhead 40 --measured 1\n"
                "./bench_accounting --variant zero --model 8e9 --ranks 1:64:*2 --recipe bf16 --strategy zero1,zero3",
    BENCH_TABLES,
    .validate = validate,
    .applies = applies,
    .order = 130,
    .small = "--tokens 0,1024 --ranks 2 --bucket 0,25M",
    .section = "accounting",
    .untimed = true,
    .figures =
        (const char *const[]){"accounting_fsdp", "accounting_bound", "accounting_buckets", "accounting_zero", NULL},
};

static void run(session *s, const bench_case *c, row *w)
{
    const char *steps = option_text(s->opt, "steps");
    const bool only = cases_count(s->opt) == 1 && !option_flag(s->opt, "quiet");
    const accounting a = {
        .s = s, .c = c, .w = w, .steps = strcmp(steps, "1") == 0 || (strcmp(steps, "auto") == 0 && only)};
    if (a.steps)
        say("%s\n", case_key(c));
    for (size_t i = 0; i < QUESTIONS; i++)
        if (strcmp(questions[i].variant, case_variant(c)) == 0)
            questions[i].run(&a);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {.run = run};
    return session_main(&info, &hooks, argc, argv);
}
