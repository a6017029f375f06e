/* SPDX-License-Identifier: MIT */
/* bench_run: how much of a training run is spent outside its steps, and is its loss right?
 *
 * A run of thousands of steps on tokens of known entropy (common/data/made.h) or of a file, with warm-up, decay, clipping and a
 * log. Variants are a ladder: each adds one thing to the step. Behind the run its loss, tokens, rates and log are checked, and
 * blocks of steps with and without what the rung adds alternate.
 * Expect: data, schedule and log below 1 % of a step; a loss just above its floor. Limits: one file, no evaluation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/context.h"
#include "bench/model/mesh.h"
#include "bench/model/timing.h"
#include "bench/run/dump.h"
#include "bench/run/row.h"
#include "bench/run/save.h"
#include "bench/ddp/time.h"
#include "bench/ddp/verify.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/session/profile.h"

static option_spec option_table[] = {
    LAUNCH_RANKS("1", "1"),
    MODEL_OPTIONS("small", "tiny", "512", "32", "bf16", "train-step"),
    {"micro-batches", OPTION_INT, OPTION_LIST, "1", .help = "micro-batches of a step before its update", .min = 1,
     .max = 65536},
    {"clip", OPTION_REAL, OPTION_LIST, "1",
     .help = "from the variant clip on, scale gradients down to this global L2 norm; 0: never", .max = 1e9},
    {"strategy", OPTION_CHOICE, OPTION_LIST, "ddp", .help = "how ranks share the work; bench_fsdp says what each is",
     .choices = "ddp|zero1|zero2|fsdp|fsdp-keep|hsdp"},
    {"replicas", OPTION_INT, OPTION_LIST, "2",
     .help = "hsdp: groups of ranks, each of which holds the whole model in slices", .min = 2, .max = 65536,
     .unit = "replicas"},
    {"prefetch", OPTION_INT, OPTION_LIST, "1", .help = "units gathered ahead of the one in use", .max = 16,
     .unit = "units"},
    {"update", OPTION_CHOICE, OPTION_LIST, "after", .help = "when AdamW runs", .choices = UPDATE_CHOICES},
    {"update-blocks", OPTION_INT, OPTION_LIST, "0",
     .help = "limit on the thread blocks of AdamW with --update backward", .max = 4096, .unit = "thread blocks",
     .unset = "0: no limit"},
    {"max-ctas", OPTION_INT, OPTION_LIST, "0", .help = "limit on the thread blocks of an NCCL collective", .max = 64,
     .unit = "thread blocks", .unset = "0: NCCL decides"},
    {"bucket-mb", OPTION_REAL, OPTION_LIST, "25", .help = "size of a bucket of gradients", .def_cpu = "0.1",
     .min = 1e-4, .max = 1e6, .unit = "MB of 2^20 bytes"},
    {"fusion", OPTION_CHOICE, OPTION_LIST, "kernels",
     .help = "fused kernels launched by the host, or the whole step with its collectives as one CUDA graph",
     .choices = "kernels|graph"},
    {"data", OPTION_TEXT, OPTION_PARAM, "made",
     .help = "made: generated tokens; else a file of tokens: llm.c's .bin, nanoGPT's uint16 .bin, or .npy"},
    {"steps", OPTION_INT, OPTION_LIST, "1000", .help = "steps of the run", .def_cpu = "60", .min = 2, .max = 10000000,
     .unit = "steps"},
    {"schedule", OPTION_CHOICE, OPTION_LIST, "cosine", .help = "how the learning rate changes after its warm-up",
     .choices = SCHEDULE_CHOICES},
    {"lr", OPTION_REAL, OPTION_LIST, "3e-4", .help = "learning rate after the warm-up", .def_cpu = "3e-3", .min = 0,
     .max = 10},
    {"min-lr", OPTION_REAL, OPTION_LIST, "3e-5", .help = "learning rate at the end", .min = 0, .max = 10},
    {"lr-warmup", OPTION_INT, OPTION_LIST, "20", .help = "steps over which the learning rate grows to --lr",
     .def_cpu = "5", .max = 10000000, .unit = "steps"},
    {"overfit", OPTION_FLAG, OPTION_PARAM, "0",
     .help = "use the first step's batch in every step; after 200 steps its loss must be below 0.05"},
    {"draw", OPTION_INT, OPTION_LIST, "0", .help = "number added to --seed, for other parameters and tokens",
     .max = 1000000},
    {"symbols", OPTION_INT, OPTION_SETTING, "64", .help = "how many different tokens are generated", .def_cpu = "16",
     .min = MADE_SYMBOLS_MIN, .max = MADE_SYMBOLS_MAX},
    {"log-every", OPTION_INT, OPTION_SETTING, "10", .help = "steps between two records of the log", .min = 1,
     .max = 1000000, .unit = "steps"},
    {"save-every", OPTION_INT, OPTION_SETTING, "100", .help = "steps between two saves, with the variant save",
     .def_cpu = "20", .min = 1, .max = 10000000, .unit = "steps"},
    {"folder", OPTION_TEXT, 0, "",
     .help = "where the variant save leaves its checkpoints; without a folder they go below /dev/shm and are "
             "removed"},
    {"way", OPTION_CHOICE, OPTION_SETTING, "async",
     .help = "how checkpoints are saved; bench_checkpoint says what each way costs", .choices = CHECKPOINT_WAYS},
    {"keep", OPTION_INT, 0, "2", .help = "complete checkpoints to keep", .min = 1, .max = 1000},
    {"writers", OPTION_INT, OPTION_SETTING, "8",
     .help = "base number of a rank's threads for a save, which uses up to twice as many", .def_cpu = "2", .min = 1,
     .max = 64, .unit = "threads"},
    {"resume-run", OPTION_TEXT, 0, "",
     .help = "continue from the newest complete checkpoint in this folder, and save there; a bf16 one may continue "
             "in fp8-*, and vice versa; if --folder names the folder, too, a run without a checkpoint begins anew"},
    {"from", OPTION_INT, 0, "0",
     .help = "with --resume-run, continue from the checkpoint of this step, and from no other if it is damaged; where "
             "there are later ones, --folder must name a new folder",
     .max = 10000000, .unset = "0: from the newest"},
    {"dump", OPTION_TEXT, 0, "",
     .help = "a folder for what another program needs to make the same run: start.safetensors, tokens.npy, run.json "
             "(tests/peers/run.py)"},
    {"data-delay", OPTION_REAL, OPTION_SETTING, "0",
     .help = "slow the loader down by this much per batch, to see the wait", .max = 10000, .unit = "ms"},
    {"warmup", OPTION_INT, 0, "10", .help = "first steps, whose times are not counted", .def_cpu = "5", .min = 1,
     .max = 1000000, .unit = "steps"},
    {"iters", OPTION_INT, 0, "40",
     .help = "steps measured after the run with what the variant adds, and as many without it; 0: none", .def_cpu = "8",
     .max = 100000, .unit = "steps"},
    MODEL_PEAK_OPTION("MFU"),
    {"plant-error", OPTION_CHOICE, OPTION_SETTING, "none",
     .help =
         "test the checks: rates one step early; tokens of the next step, of rank 0 on all ranks, or a window twice; "
         "targets not shifted, or seen by the model; a log with sums or maxima for means, without ranks, or with "
         "wrong CRCs; with --resume-run: the data a step too far, updates not counted, moments zero",
     .choices = RUN_FAULT_CHOICES},
    {0}};

static const variant_spec variant_table[] = {
    {"bare", "only the step, with the same tokens and rate"},
    {"data", "adds different tokens for each step"},
    {"schedule", "and a different learning rate for each step"},
    {"clip", "and gradients scaled down to --clip"},
    {"log", "and a log: CSV, JSON lines, TensorBoard"},
    {"save", "and checkpoints, every --save-every steps"},
    {"wait", "as log, but the host waits for each step's loss, as a loop with .item() does"},
    {0}};

static const column_spec column_table[] = {RUN_COLUMNS, {0}};

#define LOSSES                                                                                                         \
    "--steps 1000 --batch 8 --lr 1e-3 --fusion graph --variant log --iters 0 --precision "                             \
    "bf16,fp8-tensorwise,fp8-rowwise,fp8-rowwise-dw16,fp8-block,fp8-block-dw2d,fp8-delayed --draw "

static const bench_run run_table[] = {
    {RUN_QUICK, 1, 12, "--steps 300 --fusion graph --variant bare,log"},
    {RUN_DEFAULT, 1, 21, "--steps 200 --fusion graph --variant bare,data,schedule,clip,log,save"},
    {RUN_FULL, 1, 55, "--size xl --batch 2 --steps 1000 --fusion graph --variant log"},
    {RUN_FULL, 1, 185, "--size xl --batch 1 --steps 5000 --fusion graph --variant log"},
    {RUN_FULL, 1, 20, "--steps 1000 --fusion graph --variant log,wait"},
    {RUN_FULL, 1, 32, "--steps 5000 --fusion graph --variant log"},
    /* What float8 costs in loss and gains in time, seed by seed, beside what other seeds of bf16 do. */
    {RUN_FULL, 1, 155, LOSSES "0,1"},
    {RUN_FULL, 1, 82, LOSSES "2"},
    {RUN_FULL, 2, 60, "--ranks {gpus} --steps 1000 --strategy ddp,zero1,fsdp --variant bare,log"},
    {RUN_CPU, 0, 6, "--variant bare,data,schedule,clip,log,save"},
    {0}};

/* A folder has the checkpoints of one run. */
static const char *folder_problem(const options *o)
{
    size_t cases = 1, saving = 0;
    const char *folder = checkpoint_folder_problem(option_text(o, "folder")),
               *from = checkpoint_folder_problem(option_text(o, "resume-run"));
    if (folder || from)
        return folder ? folder : from;
    for (const option_spec *s = option_table; s->name; s++)
        cases *= s->flags & OPTION_LIST ? option_count(o, s->name) : 1;
    for (size_t i = 0; i < options_variant_count(o); i++)
        saving += text_is(options_variant(o, i), "save");
    if (saving == 0)
        return "--folder and --resume-run are for the variant save, which is not chosen";
    if (*option_text(o, "resume-run") && options_variant_count(o) > 1)
        return "--resume-run continues a single run: choose only --variant save";
    return cases > 1 ? "a folder has the checkpoints of one run: with --folder or --resume-run, give no lists" : NULL;
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    const char *wrong = NULL;
    if (option_real(o, "peak-tflops") > 0 && option_count(o, "precision") > 1)
        wrong = "--peak-tflops is that of one precision, and --precision has more";
    else if (!option_flag(o, "check") && !text_is(option_text(o, "plant-error"), "none"))
        wrong = "--plant-error is for the check, which --check 0 leaves out";
    else if (option_int(o, "from") && !*option_text(o, "resume-run"))
        wrong = "--from says which checkpoint of --resume-run a run continues from: give --resume-run as well";
    else if (*option_text(o, "resume-run") || *option_text(o, "folder"))
        wrong = folder_problem(o);
    else if (strncmp(option_text(o, "plant-error"), "lost-", 5) == 0)
        wrong = "what --plant-error plants here is lost in a resume: give --resume-run as well";
    if (!wrong && *option_text(o, "dump") && cases_count(o) != 1)
        wrong = "--dump writes one run: choose one --variant, and give no lists";
    for (size_t i = 0; i < option_count(o, "steps") && !wrong; i++)
        if (option_int_at(o, "steps", i) <= option_int(o, "warmup"))
            wrong = "--steps must be more than --warmup, whose times do not count";
    if (wrong)
        snprintf(msg, msg_bytes, "%s", wrong);
    return !wrong && model_options_validate(o, msg, msg_bytes) && model_mesh_validate(o, msg, msg_bytes);
}

static const bench_info info = {
    .name = "bench_run",
    .summary = "How much of a training run is spent outside its steps, and is its loss right?",
    .notes =
        "One row is a run of --steps steps. The variants are the rungs of a ladder: each adds one thing to the step.\n"
        "Generated tokens come from a Markov source of order two: given two tokens, the entropy of the next one is\n"
        "1.208 nats (entropy_pair), and floor_loss is the mean loss of a model that knows the source (the first\n"
        "target of a window costs more). A model whose loss stays above entropy_token has not learned to look\n"
        "at two tokens; one whose loss is below the floor sees what it predicts, and the row is fail. After a run its\n"
        "tokens, rates and log are compared with what they should be, and the parameters of all ranks with each\n"
        "other. Then blocks of --iters steps alternate, with and without what the rung adds (bare_ms, fed_ms). The\n"
        "rate follows a table on the device, tokens are staged from pinned memory, and losses are read one interval\n"
        "late: only the variant wait waits for the device.\n"
        "Samples are a function of the step and the global batch, so that any number of ranks sees the same ones.\n"
        "Rungs from log on write run/<variant>-<strategy>-<ranks>-<size>-<seq>-<precision>.csv, .jsonl, and a folder "
        "of\n"
        "that name for TensorBoard, next to the CSV file.",
    .examples =
        "./bench_run --size small --seq 512 --precision bf16 --fusion graph --steps 2000\n"
        "./bench_run --ranks 2 --strategy ddp,zero1,fsdp --variant log --steps 1000\n"
        "./bench_run --variant log --precision bf16,fp8-tensorwise,fp8-block --draw 0,1,2   what float8 costs in loss\n"
        "./bench_run --device cpu --variant log --steps 400\n"
        "./bench_run --device cpu --variant data --overfit --steps 200\n"
        "./bench_run --data tokens.bin --variant log --steps 5000",
    BENCH_TABLES,
    .validate = validate,
    .order = 145,
    .small = "--steps 20 --iters 4 --variant bare,log",
    .section = "run",
    .figures = (const char *const[]){"run_loss", "run_ladder", NULL},
};

static rung rung_of(const char *variant)
{
    int i = 0;
    while (!text_is(variant_table[i].name, variant))
        i++;
    return (rung)i;
}

static bool describe(session *s, const bench_case *c, row *w, run *x)
{
    *x = (run){.rung = rung_of(case_variant(c)), .fault = (run_fault)option_choice(s->opt, "plant-error")};
    if (!ddp_case_of(s, c, w, &x->k))
        return false;
    const int symbols = (int)option_int(s->opt, "symbols"), vocab = x->k.o.config.vocab;
    if (x->rung >= RUNG_DATA && text_is(case_text(c, "data"), "made") && symbols > vocab)
        launch_fail(x->k.l, EXIT_CODE_USAGE, "--symbols %d is too many for tokens that are made: the vocabulary has %d",
                    symbols, vocab);
    if (x->rung < RUNG_CLIP)
        x->k.o.clip_norm = 0;
    x->k.o.lr = case_real(c, "lr");
    x->k.o.seed += (uint64_t)case_int(c, "draw");
    x->overfit = case_int(c, "overfit") != 0;
    x->steps = case_int(c, "steps");
    x->room = x->steps + 2 * s->timing.iters + 32;
    x->warmup = option_int(s->opt, "warmup");
    x->batch = (int64_t)x->k.o.batch * step_micro_batches(&x->k.o);
    x->ranks = x->k.ranks;
    x->schedule =
        (schedule){case_text(c, "schedule"), x->k.o.lr, case_real(c, "min-lr"), case_int(c, "lr-warmup"), x->steps};
    return true;
}

static void go(session *s, const bench_case *c, run *x)
{
    run_result out;
    if (run_open(x)) {
        run_log_open(x);
        run_dump(x, option_text(s->opt, "dump"));
        if (run_all_steps(x) && run_check(x, &out)) {
            run_blocks(x);
            run_fill_row(x, &out);
            profile_note(s, case_key(c), "steps", stats_of(&x->bare).median);
        }
    }
    journal_close(x->log.files, NULL, 0);
}

static void run_case(session *s, const bench_case *c, row *w)
{
    run x;
    const bool profiling = session_profiling(s); /* then the case was verified and timed before */
    if (!describe(s, c, w, &x) || (!profiling && !ddp_verify(&x.k)))
        return;
    phase_set("setup of %s", case_name(c));
    x.r = ddp_replica(&x.k, &x.k.o, &x.k.p);
    if (!x.r)
        return;
    if (x.r->member)
        replica_set_tokens(x.r->t, x.k.o.seed, launch_rank(x.k.l));
    if (profiling) {
        ddp_profile(&x.k, x.r); /* the bare step */
        replica_free(x.r);
        return;
    }
    run_data_open(&x);
    if (run_save_open(&x)) {
        go(s, c, &x);
        run_close(&x);
    }
    run_save_close(&x);
    data_close(x.data);
    replica_free(x.r);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {model_start_gated, run_case, model_finish, ddp_case_estimate};
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* two communicators of a rank at once, as in bench_zero1 */
    for (option_spec *o = option_table; o->name; o++)
        if (text_is(o->name, "overlap")) { /* as in the benches of data parallelism */
            o->def = "none";
            o->choices = "none|gradients";
        }
    return launch_main(&info, &hooks, argc, argv);
}
