/* SPDX-License-Identifier: MIT */
/* bench_cp: how long can a sequence be, and how much does a second GPU help?
 *
 * Attention whose sequence is shared by ranks, forward and backward: context parallelism (within a training step: bench_fsdp
 * --cp). A rank has two chunks of the tokens, one from the head and one from the tail, so that a causal mask gives all ranks
 * the same work (--order contiguous: the same tokens in a row). The ways (common/context) are how queries meet the keys of
 * other ranks.
 *
 * One row is one shape, number of ranks, order and way. Each rank's o, lse, dq, dk and dv are compared with the whole sequence on
 * one rank before anything is timed. Sample i is the slowest rank's.
 * Expect: a gather hides its moves from some thousand tokens a rank on, an all-to-all all but the first heads' way there and the
 * last ones' back.
 * Limits: the check, and so a row, needs the whole sequence in one rank's memory; passes are launched by the host, not as graphs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/cp/case.h"
#include "common/core/text.h"
#include "common/formulas/model.h"
#include "common/session/ceiling.h"
#include "common/session/profile.h"

/* A chunk has at least so many. A query that sees one key has gradients of roundings alone, which two orders of sums make
 * different, and the check of a chunk is relative. */
enum { LEAST_TOKENS = 4 };

static option_spec option_table[] = {
    LAUNCH_RANKS("2", "2,3"),
    {"batch", OPTION_INT, OPTION_LIST, "1", .help = "batch size", .min = 1, .max = 65536, .unit = "sequences"},
    {"heads", OPTION_INT, OPTION_LIST, "16", .help = "query heads", .def_cpu = "6", .min = 1, .max = 4096},
    {"heads-kv", OPTION_INT, OPTION_LIST, "0", .help = "key and value heads, a divisor of --heads", .max = 4096,
     .unset = "0: as many as --heads"},
    {"head-dim", OPTION_INT, OPTION_LIST, "128", .help = "columns of q, k, v and o", .def_cpu = "64", .min = 16,
     .max = 256},
    {"seq", OPTION_INT, OPTION_LIST, "65536",
     .help = "tokens of the whole sequence, a multiple of 2 x ranks, at least 8 x ranks", .def_cpu = "768", .min = 8,
     .max = 16777216, .unit = "tokens"},
    {"causal", OPTION_FLAG, OPTION_LIST, "1", .help = "causal mask: a token sees the ones before it and itself"},
    {"dtype", OPTION_CHOICE, OPTION_LIST, "bf16", .help = "precision", .def_cpu = "fp32", .choices = "bf16|fp16|fp32"},
    {"deterministic", OPTION_FLAG, OPTION_LIST, "0", .help = "the backward gives the same bits on every run"},
    {"order", OPTION_CHOICE, OPTION_LIST, "head-tail",
     .help = "which tokens a rank has: a chunk from the head and one from the tail, or two in a row",
     .choices = "head-tail|contiguous"},
    {"groups", OPTION_INT, OPTION_LIST, "0",
     .help = "groups of key and value heads that are moved one after another; the number divides --heads-kv "
             "or, for all-to-all, a rank's part of them",
     .max = 256, .unit = "groups", .unset = "0: the fewest that are at least 4, or all heads"},
    {"transport", OPTION_CHOICE, OPTION_LIST, "nccl",
     .help = "what moves pieces: NCCL (on the CPU, Gloo), or copy engines (on the CPU, threads) into the other "
             "ranks' memory",
     .choices = "nccl|copy"},
    {"max-ctas", OPTION_INT, OPTION_LIST, "0", .help = "limit on the thread blocks of an NCCL op", .max = 64,
     .unit = "thread blocks", .unset = "0: NCCL decides"},
    {"variant", OPTION_CHOICE, OPTION_LIST, "gather,all-to-all,ring",
     .help = "how queries reach the keys of other ranks", .choices = "gather|all-to-all|ring"},
    {"iters", OPTION_INT, 0, "20", .help = "timed passes of each kind; 0: only the check", .def_cpu = "3",
     .max = 100000, .unit = "samples"},
    {"warmup", OPTION_INT, 0, "3", .help = "warm-up passes before them", .def_cpu = "1", .max = 1000000,
     .unit = "passes"},
    {"max-time", OPTION_REAL, 0, "10", .help = "take fewer samples, at least 3, if they would take longer than this",
     .max = 86400, .unit = "s", .unset = "0: never"},
    {"peak-tflops", OPTION_REAL, OPTION_SETTING, "0",
     .help = "dense peak of a GPU at this dtype, which no row may exceed", .max = 1e9, .unit = "TFLOP/s",
     .unset = "0: from the data sheet, else, on a GPU, the ceiling that bench_roofline measured"},
    {"plant-error", OPTION_CHOICE, OPTION_SETTING, "none",
     .help = "test the check on the last rank: head and tail swapped; its queries placed at the sequence's start; "
             "parts merged without scaling them; dk and dv of its second chunk's queries left out; only its own chunks",
     .choices = CONTEXT_FAULTS},
    {0}};

static const variant_spec variant_table[] = {
    {"gather", "keys and values of all tokens, a group of heads at a time, during attention of the group before"},
    {"all-to-all", "each rank has the whole sequence for an n-th of the heads, a group of them at a time"},
    {"ring", "blocks of keys go round from rank to rank, and parts of attention are merged"},
    {0}};

static const column_spec column_table[] = {
    MEDIAN_COLUMNS("fwd", true, "forward on all ranks, of the slowest one"),
    MEDIAN_COLUMNS("bwd", true, "backward on all ranks, of the slowest one"),
    {"n_samples", COLUMN_INT, false, "samples"},
    {"one_fwd_ms", COLUMN_REAL, false, "forward of the whole sequence on one rank, in the same run"},
    {"one_bwd_ms", COLUMN_REAL, false, "its backward"},
    {"speedup", COLUMN_REAL, true, "(one_fwd_ms + one_bwd_ms) / (fwd_ms + bwd_ms)"},
    {"efficiency_pct", COLUMN_REAL, true, "speedup over ranks"},
    {"compute_ms", COLUMN_REAL, false, "forward and backward without moves, of the slowest rank"},
    {"exposed_ms", COLUMN_REAL, true, "fwd_ms + bwd_ms - compute_ms"},
    {"moves_ms", COLUMN_REAL, false, "the moves of both with nothing else running"},
    {"hidden_pct", COLUMN_REAL, false, "100 (1 - exposed_ms / moves_ms)"},
    {"moved_bytes", COLUMN_REAL, true, "bytes that arrive at the rank that receives most, in forward and backward"},
    {"balance_pct", COLUMN_REAL, true, "pairs of query and key: mean of the ranks over the largest"},
    {"predicted_ms", COLUMN_REAL, true,
     "forward and backward on paper: those of one rank over ranks and balance, and moves_ms that compute can't hide"},
    {"err_pct", COLUMN_REAL, true, "100 (predicted_ms / (fwd_ms + bwd_ms) - 1)"},
    {"rank_fwd_tflops", COLUMN_REAL, true, "2 B H S^2 2 D, halved when causal, over ranks and fwd_ms"},
    {"rank_bwd_tflops", COLUMN_REAL, true, "2.5 times as many over ranks and bwd_ms"},
    {"most_tflops", COLUMN_REAL, false, "what a rank can reach: --peak-tflops, or its data sheet, or bench_roofline"},
    {"peak_bytes", COLUMN_INT, true, "most that a rank holds: its tensors, and what the way needs"},
    {"n_groups", COLUMN_INT, false, "groups of heads that are moved one after another"},
    {"backend", COLUMN_TEXT, false, "the library that moves tensors, and its version"},
    {"hosts", COLUMN_INT, false, "hosts that the ranks of the job are on"},
    {"whole_bits", COLUMN_INT, false, "1: o, lse and dq have the bits of the whole sequence on one rank"},
    {"err_o", COLUMN_REAL, true,
     "relative L2 difference of o from the whole sequence on one rank, over the pieces that are not equal; the worst "
     "rank"},
    {"err_lse", COLUMN_REAL, false, "the same for lse"},
    {"err_dq", COLUMN_REAL, false, "the same for dq"},
    {"err_dk", COLUMN_REAL, false, "the same for dk"},
    {"err_dv", COLUMN_REAL, false, "the same for dv"},
    {0}};

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    for (size_t i = 0; i < option_count(o, "heads"); i++)
        for (size_t j = 0; j < option_count(o, "heads-kv"); j++) {
            const int heads = (int)option_int_at(o, "heads", i), heads_kv = (int)option_int_at(o, "heads-kv", j);
            if (heads_kv && heads % heads_kv) {
                snprintf(msg, msg_bytes, "--heads %d is not a multiple of --heads-kv %d", heads, heads_kv);
                return false;
            }
        }
    for (size_t i = 0; i < option_count(o, "seq"); i++)
        for (size_t j = 0; j < option_count(o, "ranks"); j++) {
            const int seq = (int)option_int_at(o, "seq", i), chunks = 2 * (int)option_int_at(o, "ranks", j);
            if (seq % chunks) {
                snprintf(msg, msg_bytes, "--seq %d is not a multiple of %d, two chunks for each of %d ranks", seq,
                         chunks, chunks / 2);
                return false;
            }
            if (seq / chunks < LEAST_TOKENS) {
                snprintf(msg, msg_bytes, "--seq %d has fewer than %d tokens for each of %d chunks: too few to check",
                         seq, LEAST_TOKENS, chunks);
                return false;
            }
        }
    if (option_given(o, "timer")) {
        snprintf(msg, msg_bytes, "--timer has no effect here: passes of several ranks are timed by events");
        return false;
    }
    if (text_is(option_text(o, "l2"), "cold")) {
        snprintf(msg, msg_bytes, "--l2 cold has no effect here: passes of several ranks follow one another");
        return false;
    }
    return true;
}

static bool applies(const char *option, const char *variant)
{
    return strcmp(option, "groups") != 0 || strcmp(variant, "ring") != 0;
}

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 12, "--ranks {gpus} --seq 32768 --transport copy --iters 10"},
    {RUN_DEFAULT, 2, 31, "--ranks {gpus} --seq 65536 --transport nccl,copy --iters 8"},
    {RUN_DEFAULT, 2, 14, "--ranks {gpus} --heads 32 --heads-kv 8 --seq 32768 --transport copy --iters 10"},
    {RUN_FULL, 2, 14, "--ranks {gpus} --heads 32 --heads-kv 8 --seq 32768 --iters 10"},
    {RUN_FULL, 2, 10, "--ranks {gpus} --seq 16384"},
    {RUN_FULL, 2, 14, "--ranks {gpus} --seq 65536 --variant gather --order contiguous --iters 10"},
    {RUN_FULL, 2, 26, "--ranks {gpus} --seq 131072 --variant all-to-all --transport copy --iters 6"},
    {RUN_FULL, 2, 40, "--ranks {gpus} --seq 131072 --variant gather,all-to-all --iters 6"},
    {RUN_FULL, 2, 50,
     "--ranks {gpus} --seq 65536 --variant gather,all-to-all --transport copy --groups 1,2,8 --iters 10"},
    {RUN_FULL, 2, 16, "--ranks {gpus} --heads 32 --heads-kv 8 --seq 32768 --causal 0"},
    {RUN_FULL, 2, 50, "--ranks {gpus} --head-dim 64 --seq 65536 --deterministic 0,1 --iters 10"},
    {RUN_CPU, 0, 20, "--ranks 2,3,4 --order head-tail,contiguous --seq 768"},
    {RUN_CPU, 0, 6, "--ranks 2,4 --transport copy --seq 768"},
    {0}};

static const bench_info info = {
    .name = "bench_cp",
    .summary = "How long can a sequence be, and how much does a second GPU help?",
    .notes = "One row is one shape, number of ranks, order of tokens and way of sharing a sequence (the variant). "
             "Before it\n"
             "is timed, each rank's o, lse, dq, dk and dv are compared with the whole sequence on one rank (verified "
             "itself\n"
             "against an fp64 oracle), and bit for bit with one rank that computes the same parts in the same order.\n"
             "Samples of three kinds of passes alternate: everything, without moves, and only moves.",
    .examples = "./bench_cp --ranks 2 --seq 65536,131072\n"
                "./bench_cp --ranks 2 --heads 32 --heads-kv 8 --seq 32768 --variant gather --groups 1,2,4,8\n"
                "./bench_cp --device cpu --ranks 2,3,4 --seq 1536",
    BENCH_TABLES,
    .validate = validate,
    .applies = applies,
    .order = 126,
    .small = "--ranks 2 --heads 2 --seq 256 --dtype fp32 --iters 3 --warmup 1",
    .section = "cp",
    .figures = (const char *const[]){"cp", NULL},
};

/* ---- the row ---- */

static void fill_times(cp_case *k, const cp_times *t)
{
    const stats fwd = stats_of(&t->fwd[CP_ALL]), bwd = stats_of(&t->bwd[CP_ALL]);
    const double both = fwd.median + bwd.median;
    const double compute = stats_of(&t->fwd[CP_COMPUTE]).median + stats_of(&t->bwd[CP_COMPUTE]).median;
    const double moves_fwd = stats_of(&t->fwd[CP_MOVES]).median, moves_bwd = stats_of(&t->bwd[CP_MOVES]).median;
    const double speedup = (t->one_fwd + t->one_bwd) / both,
                 balance = context_balance_pct(&k->setup.shape, k->setup.way);
    const context_load load = {
        k->setup.way, k->setup.shape.ranks, k->x->turns, balance / 100, context_first_share(&k->setup.shape),
        t->one_fwd,   t->one_bwd,           moves_fwd,   moves_bwd};
    const double predicted = context_predicted_ms(&load);
    row_real(k->w, "fwd_ms", fwd.median);
    row_real(k->w, "fwd_p10_ms", fwd.p10);
    row_real(k->w, "fwd_p90_ms", fwd.p90);
    row_real(k->w, "bwd_ms", bwd.median);
    row_real(k->w, "bwd_p10_ms", bwd.p10);
    row_real(k->w, "bwd_p90_ms", bwd.p90);
    row_int(k->w, "n_samples", (int64_t)fwd.n);
    row_real(k->w, "one_fwd_ms", t->one_fwd);
    row_real(k->w, "one_bwd_ms", t->one_bwd);
    row_real(k->w, "speedup", speedup);
    row_real(k->w, "efficiency_pct", 100 * speedup / k->setup.shape.ranks);
    row_real(k->w, "compute_ms", compute);
    row_real(k->w, "exposed_ms", both - compute);
    row_real(k->w, "moves_ms", moves_fwd + moves_bwd);
    if (k->setup.shape.ranks > 1) /* one rank has nothing to hide */
        row_real(k->w, "hidden_pct", 100 * (1 - (both - compute) / (moves_fwd + moves_bwd)));
    row_real(k->w, "balance_pct", balance);
    row_real(k->w, "predicted_ms", predicted);
    row_real(k->w, "err_pct", 100 * (predicted / both - 1));
}

/* What arrived is what is needed, no byte more. */
static void fill_moved(cp_case *k, const cp_times *t)
{
    const sb_attention *a = &k->setup.whole;
    const int64_t columns = 2 * (int64_t)a->batch * a->head_dim;
    const context_widths widths = {columns * a->heads, columns * a->heads_kv, (int)k->x->element};
    const double paper = context_moved_bytes(&k->setup.shape, k->setup.way, &widths);
    row_real(k->w, "moved_bytes", t->moved_bytes);
    if (fabs(t->moved_bytes - paper) > 0.5)
        row_status_set(k->w, ROW_FAIL, "%.0f bytes arrived at a rank, on paper %.0f", t->moved_bytes, paper);
}

static void fill_case(cp_case *k, const cp_times *t)
{
    fill_moved(k, t);
    row_int(k->w, "peak_bytes", (int64_t)launch_most(k->l, "peak", (double)k->peak_bytes, k->setup.shape.ranks));
    row_text(k->w, "backend", k->copies ? "copies" : comm_backend(k->comm));
    row_int(k->w, "hosts", launch_hosts(k->l));
}

/* What no rank can exceed; NAN: unknown. A ceiling that was measured on a CPU bounds nothing: another program may have
 * slowed it down. */
static double most_tflops(const cp_case *k)
{
    const char *dtype = case_text(k->c, "dtype");
    const bool cuda = device_kind_of(k->s->dev) == DEVICE_CUDA, parts = strcmp(dtype, "fp32") == 0 && cuda;
    const double given = option_real(k->s->opt, "peak-tflops");
    const double sheet = peak_tflops(device_get_info(k->s->dev)->name, parts ? "fp16x3" : dtype);
    if (given > 0)
        return given;
    return isnan(sheet) && cuda ? ceiling_tflops(k->s, k->s->results_dir, parts ? "fp16x3" : dtype) : sheet;
}

/* A rank that leaves keys out is fast: above what it can reach, the row is wrong. */
static void fill_rates(cp_case *k, const cp_times *t)
{
    const double fwd =
        attention_forward_flops(&k->setup.whole) / k->setup.shape.ranks / stats_of(&t->fwd[CP_ALL]).median * 1e-9;
    const double bwd =
        attention_backward_flops(&k->setup.whole) / k->setup.shape.ranks / stats_of(&t->bwd[CP_ALL]).median * 1e-9;
    const double most = most_tflops(k);
    row_real(k->w, "rank_fwd_tflops", fwd);
    row_real(k->w, "rank_bwd_tflops", bwd);
    row_real(k->w, "most_tflops", most);
    if (fmax(fwd, bwd) > most)
        row_status_set(k->w, ROW_FAIL, "%.4g TFLOP/s on a rank are more than the %.4g that it can reach",
                       fmax(fwd, bwd), most);
}

static void run(session *s, const bench_case *c, row *w)
{
    cp_case k;
    cp_times t;
    const bool check = option_flag(s->opt, "check") && !session_profiling(s);
    const bool ready = cp_prepare(&k, s, c, w);
    if (ready)
        row_int(w, "n_groups", k.x->turns);
    if (ready && (!check || cp_verify(&k)) && s->timing.iters > 0) {
        if (cp_time(&k, &t) && (!check || cp_verify_again(&k))) {
            fill_times(&k, &t);
            fill_case(&k, &t);
            fill_rates(&k, &t);
        }
        cp_times_free(&t);
    }
    cp_finish(&k);
}

/* The whole sequence for the check, and a rank's share; of gather all keys and values of two groups as well. */
static double estimate_bytes(const options *o, const bench_case *c)
{
    (void)o;
    const double elem = strcmp(case_text(c, "dtype"), "fp32") == 0 ? 4 : 2;
    const double row =
        (double)case_int(c, "batch") * (double)case_int(c, "head-dim") * (double)case_int(c, "seq") * elem;
    const double heads = (double)case_int(c, "heads"),
                 heads_kv = case_int(c, "heads-kv") ? (double)case_int(c, "heads-kv") : heads;
    return (2 + 2.0 / (double)case_int(c, "ranks")) * 4 * (heads + heads_kv) * row;
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {attention_start, run, attention_finish, estimate_bytes};
    launch_default_ranks(option_table, "2,4,8");
    return launch_main(&info, &hooks, argc, argv);
}
