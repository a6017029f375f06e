/* SPDX-License-Identifier: MIT */
/* bench_mesh: which mesh suits this model and number of GPUs, how long is its step, and how far off is that prediction?
 *
 * A planner: formulas over a table of rates (docs/planner.md, docs/formulas.md), and a search of all meshes with every strategy,
 * schedule, micro-batch and recomputation. Nothing runs on a device. `published` predicts runs that others published, and says by how
 * much it is off; `measured` does so with steps that other benches measured on this machine; `schedule` shows one schedule of a
 * pipeline.
 * Limits: `measured` needs the rows of the benches that run such steps; see docs/planner.md. */
#include <stdio.h>

#include "bench/mesh/machine.h"
#include "bench/model/context.h"
#include "common/core/text.h"

static const option_spec option_table[] = {
    {"variant", OPTION_CHOICE, OPTION_LIST, "best,lacking,published,schedule", .help = "what to answer"},
    {"model", OPTION_TEXT, OPTION_LIST, "llama3-8b,llama3-70b,llama3-405b", .help = "one of " PLANNER_MODELS},
    {"layers", OPTION_INT, OPTION_PARAM, "0", .help = "layers of the model", .max = 1022, .unset = "0: its own"},
    {"gpus", OPTION_INT, OPTION_LIST, "1:16384:*2", .help = "GPUs to share the step", .min = 1, .max = 65536},
    {"host", OPTION_INT, OPTION_PARAM, "8", .help = "GPUs of a host, joined by a fast link", .min = 1, .max = 256},
    {"memory", OPTION_BYTES, OPTION_PARAM, "0", .help = "bytes that a step may hold on a GPU", .max = 1e15,
     .unit = "bytes", .unset = "0: 90 % of the GPU's"},
    {"global-batch", OPTION_INT, OPTION_LIST, "2048", .help = "sequences of a step, of all GPUs", .min = 1, .max = 1e9},
    {"seq", OPTION_INT, OPTION_LIST, "8192", .help = "tokens of a sequence", .min = 1, .max = 16777216,
     .unit = "tokens"},
    {"precision", OPTION_CHOICE, OPTION_LIST, "bf16", .help = "precision of the products in blocks",
     .choices = PLANNER_PRECISIONS},
    {"grad-dtype", OPTION_CHOICE, OPTION_LIST, "fp32",
     .help = "dtype of gradients and their sums: fp32, or as the precision says", .choices = "policy|fp32"},
    {"overlap", OPTION_FLAG, OPTION_LIST, "1",
     .help = "hide messages of tensor and context parallelism behind compute; 0: wait for each message"},
    {"rates", OPTION_CHOICE, OPTION_LIST, "h100",
     .help = "what GPUs and links reach: from a table, or as measured by other benches on this machine",
     .choices = PLANNER_RATES},
    {"mesh", OPTION_TEXT, OPTION_LIST, "any", .help = "search within this mesh, such as pp2+tp2"},
    {"error", OPTION_REAL, OPTION_PARAM, "8", .help = "error of predictions: closer meshes are a tie", .max = 100,
     .unit = "%"},
    {"rank", OPTION_INT, OPTION_LIST, "1:3",
     .help = "best, lacking: places to list; 1 is the fastest mesh, or the one that lacks least", .min = 1,
     .max = MESH_FOUND},
    {"run", OPTION_INT, OPTION_LIST, "1:47", .help = "published: line of results/published/mesh.csv", .min = 1,
     .max = 1000},
    {"way", OPTION_CHOICE, OPTION_LIST, "all", .help = "measured: a way for all GPUs to share the step",
     .choices = PLANNER_WAYS},
    {"recomputed", OPTION_CHOICE, OPTION_LIST, "none", .help = "measured: what its backward recomputes",
     .choices = "none|block"},
    {"schedule", OPTION_CHOICE, OPTION_LIST, "all", .help = "schedule: which one", .choices = PIPELINE_SCHEDULE_NAMES},
    {"stages", OPTION_INT, OPTION_LIST, "4", .help = "schedule: ranks of the pipeline", .min = 1, .max = 256},
    {"micro-batches", OPTION_INT, OPTION_LIST, "8", .help = "schedule: micro-batches of a step", .min = 1, .max = 4096},
    {"chunks", OPTION_INT, OPTION_LIST, "2",
     .help = "schedule: chunks of layers on a rank, where the schedule has some", .min = 1, .max = 64},
    {"backward", OPTION_REAL, OPTION_PARAM, "1", .help = "schedule: time of dx, in forwards", .min = 0.01, .max = 100},
    {"weights", OPTION_REAL, OPTION_PARAM, "0.92", .help = "schedule: time of dw, in forwards", .min = 0.01,
     .max = 100},
    {"hop", OPTION_REAL, OPTION_PARAM, "0.02", .help = "schedule: time from a stage to the next, in forwards",
     .max = 100},
    {0}};

static const variant_spec variant_table[] = {
    {"best", "the fastest meshes that fit, and which of them are a tie"},
    {"lacking", "meshes that do not fit however they are run, with the bytes they lack"},
    {"published", "predictions of what others measured"},
    {"measured", "predictions of what other benches measured on this machine, and which way is best"},
    {"schedule", "one schedule of a pipeline: its bubble, and its actions as a file"},
    {0}};

static const column_spec column_table[] = {
    {"plan_mesh", COLUMN_TEXT, false, "axes larger than 1"},
    {"pp", COLUMN_INT, false, "ranks along the layers"},
    {"dp_replicate", COLUMN_INT, false, "copies of what is sharded"},
    {"dp_shard", COLUMN_INT, false, "ranks whose tokens differ and that share parameters or state"},
    {"cp", COLUMN_INT, false, "ranks along a sequence"},
    {"tp", COLUMN_INT, false, "ranks of a layer"},
    {"strategy", COLUMN_TEXT, false, "strategy of data parallelism"},
    {"plan_schedule", COLUMN_TEXT, false, "schedule of the pipeline"},
    {"plan_chunks", COLUMN_INT, false, "chunks of layers on a rank"},
    {"micro_batch", COLUMN_INT, false, "sequences of a micro-batch, on a rank of data parallelism"},
    {"recompute", COLUMN_TEXT, false, "what the backward recomputes"},
    {"plan_micro_batches", COLUMN_INT, false, "micro-batches of a step, on a rank"},
    {"step_tokens", COLUMN_INT, false, "tokens of a step, of all GPUs"},
    {"model_flops", COLUMN_REAL, false, "operations of a step, of all GPUs, causal"},
    {"peak_flops", COLUMN_REAL, false, "FLOP/s of 16-bit products of a GPU by its data sheet"},
    {"predicted_ms", COLUMN_REAL, true, "a step"},
    {"tokens_per_s_gpu", COLUMN_REAL, false, "tokens per second and GPU"},
    {"mfu_pct", COLUMN_REAL, true, "model_flops over the 16-bit peak of all GPUs"},
    {"products_pct", COLUMN_REAL, false, "share of the step: matrix products"},
    {"attention_pct", COLUMN_REAL, false, "attention"},
    {"passes_pct", COLUMN_REAL, false, "norms, pointwise ops, additions"},
    {"tp_pct", COLUMN_REAL, false, "exposed communication of tensor parallelism"},
    {"cp_pct", COLUMN_REAL, false, "exposed communication of context parallelism"},
    {"bubble_pct", COLUMN_REAL, false, "ranks of the pipeline that wait or send"},
    {"data_pct", COLUMN_REAL, false, "exposed communication of data parallelism"},
    {"update_pct", COLUMN_REAL, false, "AdamW"},
    {"param_bytes", COLUMN_REAL, false, "held by the rank that holds most: parameters"},
    {"grad_bytes", COLUMN_REAL, false, "gradients"},
    {"state_bytes", COLUMN_REAL, false, "master weights and moments"},
    {"activation_bytes", COLUMN_REAL, false, "activations of all micro-batches in flight"},
    {"gathered_bytes", COLUMN_REAL, false, "parameters gathered, gradients not yet reduced"},
    {"logit_bytes", COLUMN_REAL, false, "logits, in whose place their gradients are"},
    {"total_bytes", COLUMN_REAL, false, "all of it"},
    {"memory_bytes", COLUMN_REAL, false, "best, lacking: what it may be"},
    {"lacks_bytes", COLUMN_REAL, false, "lacking: total_bytes beyond that"},
    {"plans", COLUMN_INT, false, "best, lacking: ways that were tried"},
    {"plans_with_room", COLUMN_INT, false, "those that fit"},
    {"ties", COLUMN_INT, false, "meshes that --error does not tell from the best; 16: or more"},
    {"tie", COLUMN_INT, false, "best, measured: this is one of them"},
    {"behind_pct", COLUMN_REAL, false, "best: slower than the best by"},
    {"measured_ms", COLUMN_REAL, false, "measured: the step of the newest row of its bench"},
    {"planned_bytes", COLUMN_REAL, false,
     "best, measured: what the step takes on the rank that needs most, by the plan of this device; measured: and "
     "communicators"},
    {"driver_bytes", COLUMN_REAL, false, "measured: what the driver gave out for it; on CPUs what the step took"},
    {"bytes_err_pct", COLUMN_REAL, true, "measured: planned_bytes above driver_bytes"},
    {"place_predicted", COLUMN_INT, false,
     "measured: its place among the measured ways by predicted_ms; 1 is the fastest"},
    {"place_measured", COLUMN_INT, false, "measured: the same by measured_ms"},
    {"judged", COLUMN_INT, false, "measured: ways of this case that were measured"},
    {"best_behind_pct", COLUMN_REAL, false,
     "measured: the way with the shortest prediction is slower than the fastest by"},
    {"source", COLUMN_TEXT, false, "published: who measured it, and where it is printed"},
    {"verified", COLUMN_INT, false, "published: the number was read in its source, not in a copy"},
    {"fitted", COLUMN_INT, false, "published: the machine's share of the peak was fitted to this run"},
    {"published_model", COLUMN_TEXT, false, "published: the model"},
    {"published_gpus", COLUMN_INT, false, "published: GPUs"},
    {"published_machine", COLUMN_TEXT, false, "published: which rates"},
    {"published_unit", COLUMN_TEXT, false, "published: of the two numbers below"},
    {"reported", COLUMN_REAL, false, "published: what the source reports"},
    {"predicted", COLUMN_REAL, false, "published: what the planner says"},
    {"err_pct", COLUMN_REAL, true, "published, measured: faster than reported or measured by; negative: slower"},
    {"median_err_pct", COLUMN_REAL, false,
     "published: median error of runs that were not fitted, with cp below 4; measured: of this case's ways"},
    {"worst_err_pct", COLUMN_REAL, false, "published, measured: the largest of these"},
    {"stages_of_all", COLUMN_INT, false, "schedule: stages, of all ranks"},
    {"makespan", COLUMN_REAL, false, "schedule: from the first forward to the last action, in forwards"},
    {"longest", COLUMN_REAL, false, "schedule: the same for the rank that takes longest"},
    {"busy", COLUMN_REAL, false, "schedule: mean compute of a rank"},
    {"schedule_bubble_pct", COLUMN_REAL, false, "schedule: 1 - busy / longest"},
    {"in_flight", COLUMN_REAL, false, "schedule: most micro-batches that a rank holds"},
    {"actions", COLUMN_TEXT, false, "schedule: file of the actions, in the folder pipeline/ next to the rows"},
    {"answer", COLUMN_TEXT, true, "the result in words"},
    {0}};

/* The variants, and the options that mean something to each. */
#define SEARCH_OPTIONS                                                                                                 \
    "model layers gpus host memory global-batch seq precision grad-dtype overlap rates mesh error rank"
static const struct {
    const char *variant, *options;
    void (*run)(session *s, const bench_case *c, row *w);
} questions[] = {{"best", SEARCH_OPTIONS, planner_run_best},
                 {"lacking", SEARCH_OPTIONS, planner_run_lacking},
                 {"published", "run", planner_run_published},
                 {"measured", "model layers gpus host global-batch seq precision grad-dtype error way recomputed",
                  planner_run_measured},
                 {"schedule", "schedule stages micro-batches chunks backward weights hop", planner_run_schedule}};
enum { QUESTIONS = sizeof questions / sizeof *questions };

static bool applies(const char *option, const char *variant)
{
    bool named = false; /* by any variant; a common option is not, and applies to all */
    for (size_t i = 0; i < QUESTIONS; i++) {
        const bool uses = text_has_word(questions[i].options, option);
        if (text_is(questions[i].variant, variant) && uses)
            return true;
        named = named || uses;
    }
    return !named;
}

/* False with the sentence of the first case that asks for a mesh if none of them can have it. */
static bool some_mesh(const options *o, char *msg, size_t msg_bytes)
{
    bool possible = false;
    char why[256] = "";
    *msg = '\0';
    for (size_t i = 0; i < cases_count(o) && !possible; i++) {
        mesh_question q;
        bench_case *c = case_at(o, i);
        possible = applies("mesh", case_variant(c)) && planner_question(c, &q, why, sizeof why);
        if (!*msg)
            snprintf(msg, msg_bytes, "%s", why);
        case_free(c);
    }
    return possible || !*msg;
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    mesh_job job;
    if (!options_untimed(o, msg, msg_bytes))
        return false;
    for (size_t i = 0; i < option_count(o, "model"); i++)
        if (!planner_model(option_text_at(o, "model", i), &job)) {
            snprintf(msg, msg_bytes, "--model %s is not one of %s", option_text_at(o, "model", i), PLANNER_MODELS);
            return false;
        }
    return some_mesh(o, msg, msg_bytes);
}

static const bench_run run_table[] = {
    {RUN_QUICK | RUN_DEFAULT, 1, 9, ""},
    {RUN_DEFAULT, 1, 8, "--variant best --model 2.7b,8b --gpus 1,2,4,8 --seq 2048 --global-batch 32 --rates measured"},
    {RUN_DEFAULT, 2, 1,
     "--variant measured --model 2.7b --gpus 2 --seq 2048 --global-batch 4 --precision bf16-pure --grad-dtype policy"},
    {RUN_FULL, 2, 1,
     "--variant measured --model 2.7b --gpus {gpus} --seq 1024 --global-batch 8 --precision bf16-pure --grad-dtype "
     "policy"},
    {RUN_FULL, 2, 1,
     "--variant measured --model 8b --gpus 2 --seq 4096 --global-batch 4 --precision bf16-pure --grad-dtype policy "
     "--recomputed block"},
    {RUN_FULL, 4, 1,
     "--variant measured --model 2.7b --gpus {gpus} --seq 2048 --global-batch {gpus} --precision bf16-pure "
     "--grad-dtype policy"},
    {RUN_FULL, 4, 1,
     "--variant measured --model 8b --gpus {gpus} --seq 4096 --global-batch {gpus} --precision bf16-pure --grad-dtype "
     "policy --recomputed block"},
    {RUN_CPU, 0, 8, ""},
    {0}};

static const bench_info info = {
    .name = "bench_mesh",
    .summary = "Which mesh suits this model and number of GPUs, how long is its step, and how far off is that "
               "prediction?",
    .notes =
        "A row of best or lacking is a mesh with the best of its plans: strategy, schedule, chunks, micro-batch and\n"
        "recomputation. --help names the variants that use an option. Nothing runs on a device. docs/planner.md\n"
        "says how to read the rows, docs/mesh.md what the five axes cost; docs/formulas.md has the formulas.",
    .examples = "./bench_mesh --model llama3-70b --gpus 256\n"
                "./bench_mesh --model 8b --gpus 2 --seq 4096 --global-batch 8 --rates h200 --rank 1:8\n"
                "./bench_mesh --variant lacking --model llama3-405b --gpus 64\n"
                "./bench_mesh --variant published\n"
                "./bench_mesh --variant measured --model 2.7b --gpus 2 --seq 2048 --global-batch 4\n"
                "./bench_mesh --variant schedule --schedule 1f1b,zb-v --stages 4 --micro-batches 8",
    BENCH_TABLES,
    .validate = validate,
    .applies = applies,
    .order = 135,
    .small = "--model llama3-8b,llama3-70b --gpus 1,8,64,512 --rank 1,2",
    .section = "mesh",
    .untimed = true,
    .figures = (const char *const[]){"mesh_best", "mesh_error", "pp_timeline", NULL},
};

static void run(session *s, const bench_case *c, row *w)
{
    for (size_t i = 0; i < QUESTIONS; i++)
        if (text_is(questions[i].variant, case_variant(c)))
            questions[i].run(s, c, w);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {.start = model_start, .run = run, .finish = planner_finish};
    return session_main(&info, &hooks, argc, argv);
}
