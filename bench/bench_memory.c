/* SPDX-License-Identifier: MIT */
/* bench_memory: where does every byte of a forward and of a whole training step go?
 *
 * The `memory_profiling` problem of Stanford's CS336, assignment 2: the 2.7b model at contexts 128, 256 and 512,
 * forward alone and a whole step, fp32 and bf16: the timeline of what is held, the peak, the size of a tensor of the
 * residual stream, the largest allocations and who made them; and what a block keeps for its backward.
 *
 * One row is one model, shape, policy and mode. A step's memory is planned before it runs, so the timeline is exact and
 * not sampled: every tensor's allocation and release, in <results>/memory/<case>.csv, or with --snapshot for PyTorch's
 * memory viewer. Two steps really run. predicted_* is a closed form that knows the shapes alone; driver_* is what the
 * device's driver says.
 * Expect: a forward alone holds the parameters and one block; a step is a hump on top of parameters, moments and
 * gradients. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/memory/row.h"
#include "bench/model/case.h"
#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/session/measure.h"
#include "common/session/profile.h"
#include "common/session/watchdog.h"
#include "common/arena/snapshot.h"

static const option_spec option_table[] = {
    MODEL_OPTIONS("2.7b", "tiny", "128,256,512", "16,32", "fp32,bf16", "forward,train-step"),
    {"share-grads", OPTION_FLAG, OPTION_LIST, "1",
     .help = "activations may use the memory of gradients that are not written yet"},
    {"variant", OPTION_CHOICE, OPTION_LIST, "graph", .help = "fusion level; --list says what each is",
     .def_cpu = "kernels", .choices = FUSION_CHOICES},
    {"events", OPTION_TEXT, 0, "auto",
     .help =
         "folder for the timelines, one CSV file per case; auto: memory/ next to the rows; none: do not write them"},
    {"snapshot", OPTION_TEXT, 0, "none",
     .help = "file for PyTorch's memory viewer (pytorch.org/memory_viz), for a single case; none: do not write it"},
    {"top", OPTION_INT, 0, "0", .help = "print this many of the largest allocations of each case", .max = 1000},
    {"max-error-pct", OPTION_REAL, OPTION_SETTING, "1",
     .help = "exit with 4 if the closed form misses a phase's peak by more than this", .max = 1e9, .unit = "%"},
    {0}};

static const variant_spec variant_table[] = {
    {"none", "an eager framework's ops: one pass over memory each, launched from the host"},
    {"kernels", "fused kernels, launched from the host"},
    {"graph", "fused kernels, the step replayed as one CUDA graph"},
    {0}};

/* clang-format off */
#define KIND_COLUMNS                                                                                                   \
    {"param_bytes", COLUMN_INT, false, "at the peak: parameters as the products read them"},                           \
    {"master_bytes", COLUMN_INT, false, "at the peak: what makes a 16-bit parameter fp32"},                            \
    {"moment1_bytes", COLUMN_INT, false, "at the peak: AdamW's mean of gradients"},                                    \
    {"moment2_bytes", COLUMN_INT, false, "at the peak: AdamW's mean of squares"},                                      \
    {"grad_bytes", COLUMN_INT, true, "at the peak: gradients written so far"},                                         \
    {"activation_bytes", COLUMN_INT, true, "at the peak: kept for backward"},                                          \
    {"temporary_bytes", COLUMN_INT, false, "at the peak: gradients of activations, and pieces of ops"},                \
    {"workspace_bytes", COLUMN_INT, false, "at the peak: scratch of ops"},                                             \
    {"other_bytes", COLUMN_INT, false, "at the peak: tokens, losses, tables, the optimizer's record"}
/* clang-format on */

static const column_spec column_table[] = {
    {"peak_bytes", COLUMN_INT, true, "most held at once: parameters, moments, gradients, activations, scratch"},
    {"predicted_bytes", COLUMN_INT, true, "the same by the closed form"},
    {"offloaded_bytes", COLUMN_INT, false, "bytes that go to the host's memory in a step and come back"},
    {"err_pct", COLUMN_REAL, true, "worst phase: |predicted - held| as a share of what was held"},
    {"err_kinds_pct", COLUMN_REAL, false, "worst kind at the peak: |predicted - held| as a share of the peak"},
    {"forward_peak_bytes", COLUMN_INT, false, "most held in forward"},
    {"backward_peak_bytes", COLUMN_INT, false, "most held in backward"},
    {"optimizer_peak_bytes", COLUMN_INT, false, "most held during the part of AdamW that runs after the backward"},
    {"predicted_forward_peak_bytes", COLUMN_INT, false, "the closed form of forward's"},
    {"predicted_backward_peak_bytes", COLUMN_INT, false, "the closed form of backward's"},
    {"predicted_optimizer_peak_bytes", COLUMN_INT, false, "the closed form of the optimizer's"},
    KIND_COLUMNS,
    {"peak_phase", COLUMN_TEXT, false, "the phase of the peak"},
    {"peak_op", COLUMN_INT, false, "ops of the step before the peak"},
    {"allocated_bytes", COLUMN_INT, false, "taken from the device: the arena and what lies outside it"},
    {"driver_bytes", COLUMN_INT, false, "memory taken by setting up the step, according to the driver"},
    {"driver_over_counted_bytes", COLUMN_INT, true, "driver_bytes - allocated_bytes: streams, rounding"},
    {"residual_bytes", COLUMN_INT, true, "one tensor of the residual stream: batch seq d_model elements"},
    {"saved_per_block_bytes", COLUMN_INT, true, "activations of the first block when forward ends"},
    {"saved_per_token_bytes", COLUMN_REAL, false, "saved_per_block_bytes / (batch seq)"},
    {"largest_bytes", COLUMN_INT, true, "the largest allocation of the step itself"},
    {"largest", COLUMN_TEXT, true, "its name"},
    {"largest_kind", COLUMN_TEXT, false, "what it is for"},
    {"largest_block", COLUMN_INT, false, "the first block to make it; -1: outside the blocks"},
    {"largest_count", COLUMN_INT, false, "how often the step makes it"},
    {"loss", COLUMN_REAL, false, "loss of the second step"},
    {"events", COLUMN_TEXT, false, "file of the timeline, in the folder memory/ next to the rows or that of --events"},
    {0}};

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    if (strcmp(option_text(o, "snapshot"), "none") != 0 && cases_count(o) != 1) {
        snprintf(msg, msg_bytes, "--snapshot takes a single case, and there are %zu; --dry-run lists them",
                 cases_count(o));
        return false;
    }
    return options_untimed(o, msg, msg_bytes) && model_options_validate(o, msg, msg_bytes);
}

static const bench_run run_table[] = {
    {RUN_QUICK | RUN_DEFAULT, 1, 10, ""},
    {RUN_DEFAULT, 1, 10, "--size xl-2026 --seq 128,2048"},
    /* As a student has it: eager ops, the score matrix in memory. */
    {RUN_FULL, 1, 20, "--size 2.7b --seq 128,256,512 --attention unfused --variant none"},
    {RUN_FULL, 1, 20, "--size xl-2026 --seq 128,2048 --batch 2 --attention unfused --variant none"},
    {RUN_DEFAULT, 1, 10,
     "--size xl-2026 --seq 512 --precision bf16 --recompute block --recompute-every 1,2,4,8 --mode train-step"},
    {RUN_CPU, 0, 5, ""},
    {0}};

static const bench_info info = {
    .name = "bench_memory",
    .summary = "Where does every byte of a forward and of a whole training step go?",
    .notes = "One row is one model, shape, precision, mode and fusion level. The timeline of a step is the plan that\n"
             "it runs by: exact, tensor by tensor. Two steps run, and what they take and drop is compared with the\n"
             "plan. The closed form (formulas/memory.h) knows shapes, flags and the ops' workspaces; it does not see\n"
             "the plan. The memory of the CUDA context and of libraries is in no column.",
    .examples = "./bench_memory --size 2.7b --seq 512 --top 5\n"
                "./bench_memory --size xl --seq 512 --recompute none,selective,attn,mlp,block --mode train-step\n"
                "./bench_memory --size 2.7b --seq 128 --precision bf16 --mode train-step --snapshot step.pickle",
    BENCH_TABLES,
    .validate = validate,
    .order = 60,
    .small = "--size tiny --seq 16",
    .section = "memory",
    .figures = (const char *const[]){"memory_peak", "memory_timeline", NULL},
};

static bool bound_missed; /* --max-error-pct, by any case */

/* ---- files ---- */

/* The folder for timelines, or NULL. Caller frees. */
static char *events_folder(const session *s)
{
    const char *asked = option_text(s->opt, "events");
    if (strcmp(asked, "none") == 0 || (strcmp(asked, "auto") == 0 && !s->csv_path))
        return NULL;
    const char *slash = s->csv_path ? strrchr(s->csv_path, '/') : NULL;
    char *folder = strcmp(asked, "auto") != 0 ? xstrdup(asked)
                   : slash                    ? xasprintf("%.*s/memory", (int)(slash - s->csv_path), s->csv_path)
                                              : xstrdup("memory");
    struct stat is;
    mkdir(folder, 0777);
    if (stat(folder, &is) != 0 || !S_ISDIR(is.st_mode))
        die(EXIT_CODE_FAILURE, "can't make the folder %s for timelines; choose another with --events", folder);
    return folder;
}

static void start(session *s)
{
    model_start(s);
    ((model_bench *)s->user)->more = events_folder(s);
}

static void finish(session *s)
{
    free(((model_bench *)s->user)->more);
    model_finish(s);
}

static const option_spec *spec_of_column(const char *column)
{
    const option_spec *spec = option_table;
    for (; spec->name; spec++) {
        size_t i = 0;
        while (spec->name[i] && (spec->name[i] == '-' ? '_' : spec->name[i]) == column[i])
            i++;
        if (!spec->name[i] && !column[i])
            break;
    }
    return spec;
}

/* "2.7b_4_512_bf16_train-step_graph": the first five parameters, then what is not its default. Caller frees. */
static char *short_name(const options *o, const bench_case *c)
{
    enum { ALWAYS = 5 };
    char *name = xstrdup("");
    for (size_t i = 0; i < options_param_count(o); i++) {
        const char *column = options_param_name(o, i), *value = case_param(c, i), *def = spec_of_column(column)->def;
        if (i >= ALWAYS && def && strcmp(value, def) == 0)
            continue;
        char *longer =
            i < ALWAYS ? xasprintf("%s%s%s", name, i ? "_" : "", value) : xasprintf("%s_%s-%s", name, column, value);
        free(name);
        name = longer;
    }
    char *whole = xasprintf("%s_%s", name, case_variant(c));
    free(name);
    return whole;
}

static void write_files(session *s, const bench_case *c, row *w, const timeline *x, const char *name)
{
    const char *folder = ((model_bench *)s->user)->more, *snapshot = option_text(s->opt, "snapshot");
    if (folder) {
        OWNED char *path = xasprintf("%s/%s.csv", folder, name);
        if (!timeline_write(x, path, case_key(c)))
            die(EXIT_CODE_FAILURE, "%s: %s", path, strerror(errno));
        row_text(w, "events", strrchr(path, '/') + 1);
    }
    if (strcmp(snapshot, "none") != 0 && !snapshot_write(snapshot, x->events, x->count, x->arena_bytes))
        die(EXIT_CODE_FAILURE, "%s: %s", snapshot, strerror(errno));
}

/* Two steps: the first op by op, the second by its graph where there is one. */
static bool steps_run(session *s, row *w, trainer *t)
{
    for (int i = 0; i < 2; i++) {
        if (!trainer_step(t)) {
            row_status_set(w, ROW_FAIL, "%s", sb_last_message());
            return false;
        }
        const double loss = trainer_loss(t);
        row_real(w, "loss", loss);
        if (!isfinite(loss)) {
            row_status_set(w, ROW_FAIL, "the loss of step %d is not finite", i + 1);
            return false;
        }
        watchdog_beat();
    }
    device_state_note(s->dev);
    return true;
}

static bool step_once(void *arg)
{
    return trainer_step(arg);
}

static void memory_run(session *s, const bench_case *c, row *w)
{
    const model_bench *b = s->user;
    step_options o;
    char why[512] = "";
    if (!model_case_options(c, &o, why, sizeof why)) {
        row_status_set(w, ROW_SKIP, "%s", why);
        return;
    }
    if (o.precision->float8) {
        row_status_set(w, ROW_SKIP, "the closed form of a step's memory does not count copies in float8");
        return;
    }
    o.fusion = fusion_parse(case_variant(c));
    o.share_grad_memory = case_int(c, "share-grads") != 0;
    if (o.fusion == FUSION_GRAPH && device_kind_of(s->dev) == DEVICE_CPU) {
        row_status_set(w, ROW_SKIP, "the CPU has no graphs; --variant kernels is the same there");
        return;
    }
    const bool driver = device_kind_of(s->dev) == DEVICE_CUDA; /* a host's free memory changes on its own */
    const double free_before = (double)device_free_bytes(s->dev);
    trainer *t = trainer_create(s->dev, s->mem, b->kernels, b->ctx, &o, why, sizeof why);
    if (!t) {
        row_status_set(w, ROW_SKIP, "%s", why); /* the session says oom instead where memory was what lacked */
        return;
    }
    if (session_profiling(s)) {
        if (steps_run(s, w, t))
            measure_again(s, "steps", step_once, t);
        trainer_free(t);
        return;
    }
    device_sync(s->dev);
    const double free_created = (double)device_free_bytes(s->dev);
    timeline x = timeline_of(t);
    if (!timeline_valid(&x, why, sizeof why)) {
        row_status_set(w, ROW_FAIL, "bug of the planner: %s", why);
    } else if (steps_run(s, w, t) && trainer_options_of(t)->fusion != o.fusion) {
        row_status_set(w, ROW_SKIP, "the step can't be captured as a graph");
    } else if (row_status_get(w) == ROW_OK) {
        OWNED char *name = short_name(s->opt, c);
        const double error = memory_row_fill(s, w, t, &x, name);
        if (error > option_real(s->opt, "max-error-pct")) {
            warn("the closed form misses a phase's peak by %.3g %%: %s", error, case_name(c));
            bound_missed = true;
        }
        write_files(s, c, w, &x, name);
        if (driver) {
            row_int(w, "driver_bytes", (int64_t)(free_before - free_created));
            row_int(w, "driver_over_counted_bytes",
                    (int64_t)(free_before - free_created) - trainer_memory_of(t).allocated);
        }
    }
    timeline_free(&x);
    trainer_free(t);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {start, memory_run, finish, model_case_estimate};
    const int code = session_main(&info, &hooks, argc, argv);
    return code == EXIT_CODE_OK && bound_missed ? EXIT_CODE_GATE : code;
}
