/* SPDX-License-Identifier: MIT */
/* bench_allreduce: how long does it take ranks to add up a tensor, and to gather, scatter, exchange or broadcast one?
 *
 * The `distributed_communication_single_node` problem of Stanford's CS336, assignment 2: fp32 tensors of 1 MB to 1
 * GB on 2, 4 and 6 processes, NCCL between GPUs and Gloo between CPUs; and the collectives that parallel training is
 * made of, with a ring of sends and receives. Beside NCCL's stand our own of small tensors, which store into the other
 * GPUs' memory.
 *
 * One row is one op, number of ranks, size and dtype. Sample i is the slowest rank's; the statistics are over
 * samples, algbw and busbw of their median, in the convention of nccl-tests. Inputs are whole numbers, and every
 * element of every rank's result is compared: that of a call before timing, and afterwards that of all calls of a sample,
 * replayed from the graph where one was timed.
 * Expect: NVLink 300 to 370 GB/s of busbw at 100 MiB and more, and in graphs 3 to 6 us for our own up to 256 KiB; Gloo
 * on one host about 1 GB/s.
 * Limits: one communicator and one stream; contention with compute is the business of the ddp benches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/collective/collective.h"
#include "common/core/error.h"

static option_spec option_table[] = {
    LAUNCH_RANKS("2", "2,4"),
    {"bytes", OPTION_BYTES, OPTION_LIST, "1K,64K,256K,1M,4M,8M,10M,64M,100M,1G,1MB,10MB,100MB,1GB",
     .help = "size of the op: what every rank has before an all-reduce, reduce-scatter, reduce or broadcast, after an "
             "all-gather, on both sides of an all-to-all, and the message of a send-recv",
     .def_cpu = "1M,10M", .min = 1, .max = 1e12, .unit = "bytes"},
    {"dtype", OPTION_CHOICE, OPTION_LIST, "fp32,bf16", .help = "dtype of the elements", .def_cpu = "fp32",
     .choices = "fp32|bf16"},
    {"in-place", OPTION_FLAG, OPTION_LIST, "1", .help = "the result replaces the input"},
    {"variant", OPTION_CHOICE, OPTION_LIST, "all-reduce,all-gather,reduce-scatter,broadcast,reduce,one-shot,two-shot",
     .help = "which ops to measure; all-to-all and send-recv need --in-place 0"},
    {"mode", OPTION_CHOICE, OPTION_LIST, "eager,graph",
     .help = "eager: the host launches each call; graph: a CUDA graph of the calls is replayed", .def_cpu = "eager",
     .choices = "eager|graph"},
    {"calls", OPTION_INT, OPTION_SETTING, "0", .help = "collectives back to back per sample", .max = 100,
     .unit = "calls", .unset = "0: enough for a millisecond"},
    {"warmup", OPTION_INT, 0, "5", .help = "unmeasured calls before the samples", .max = 1000000, .unit = "calls"},
    {"iters", OPTION_INT, 0, "20", .help = "samples of each case", .min = 1, .max = 100000, .unit = "samples"},
    {"max-time", OPTION_REAL, 0, "10", .help = "take fewer samples, at least 3, if they would take longer than this",
     .max = 86400, .unit = "s", .unset = "0: never"},
    {0}};

static const variant_spec variant_table[] = {
    {"all-reduce", "the sum of all ranks' tensors, on every rank"},
    {"all-gather", "all ranks' slices, on every rank"},
    {"reduce-scatter", "the sum of all ranks' tensors, a slice on each rank"},
    {"broadcast", "rank 0's tensor, on every rank"},
    {"reduce", "the sum of all ranks' tensors, on rank 0"},
    {"all-to-all", "slice i of every rank's tensor, on rank i"},
    {"send-recv", "each rank's tensor, on the next one"},
    {"one-shot", "our all-reduce: everyone sends everything to everyone"},
    {"two-shot", "our all-reduce: each adds up a slice and sends the sum"},
    {"one-shot-all-gather", "our all-gather: everyone sends its slice to everyone"},
    {"one-shot-reduce-scatter", "our reduce-scatter: each adds up a slice that everyone sends it"},
    {0}};

static const column_spec column_table[] = {
    {"median_ms", COLUMN_REAL, true, "one call; a sample is that of the slowest rank"},
    {"mean_ms", COLUMN_REAL, true, "over the samples"},
    {"min_ms", COLUMN_REAL, false, "fastest sample"},
    {"max_ms", COLUMN_REAL, false, "slowest sample"},
    {"std_ms", COLUMN_REAL, true, "standard deviation of the samples"},
    {"algbw_gb_s", COLUMN_REAL, true, "size / median_ms"},
    {"busbw_gb_s", COLUMN_REAL, true,
     "algbw times 2(n-1)/n (all-reduce), (n-1)/n (all-gather, reduce-scatter, all-to-all) or 1 (broadcast, reduce, "
     "send-recv)"},
    {"size", COLUMN_TEXT, true, "the size with its unit: MiB are 2^20 bytes, MB 10^6"},
    {"rank_mean_ms", COLUMN_TEXT, false, "mean of each rank's own samples, in the order of ranks"},
    {"slowest_rank", COLUMN_INT, false, "the rank with the largest mean"},
    {"n_samples", COLUMN_INT, false, "samples"},
    {"n_calls", COLUMN_INT, false, "calls back to back in each sample"},
    {"backend", COLUMN_TEXT, true, "the library and its version, or our own op"},
    {"hosts", COLUMN_INT, false, "hosts that the ranks of the job are on"},
    {"timer", COLUMN_TEXT, false, "how it was timed: event, graph or host"},
    {"err_elements", COLUMN_INT, false, "elements that differ from the exact result, on all ranks together"},
    {0}};

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    if (option_given(o, "timer")) {
        snprintf(msg, msg_bytes, "--timer has no effect here: --mode decides how calls are made and timed");
        return false;
    }
    return true;
}

static const bench_run run_table[] = {
    {RUN_QUICK, 2, 12, "--ranks {gpus} --bytes 64K,1MB,100MB,1GB --dtype fp32"},
    {RUN_DEFAULT, 2, 38, ""},
    {RUN_DEFAULT, 2, 11, "--bytes 1MB,10MB,100MB,1GB --in-place 0 --mode eager"},
    {RUN_DEFAULT, 2, 10, "--variant all-to-all,send-recv --in-place 0 --bytes 1MB,10MB,100MB,1GB"},
    {RUN_FULL, 2, 12,
     "--variant all-gather,reduce-scatter,one-shot-all-gather,one-shot-reduce-scatter --mode graph "
     "--bytes 1K,1022,64K,99998,256K,1M,4M,8M"},
    {RUN_FULL, 4, 18, "--ranks 3,4 --bytes 64K,1MB,8M,100MB,1GB --dtype fp32 --mode graph"},
    {RUN_FULL, 4, 8, "--ranks 3,4 --variant all-to-all --in-place 0 --bytes 1MB,100MB,1GB --dtype fp32 --mode graph"},
    {RUN_HEADLINE, 2, 8, "--ranks {gpus} --bytes 1K,1G --dtype fp32 --variant all-reduce,one-shot"},
    {RUN_FULL, 2, 65, /* a minute of the headline */
     "--ranks {gpus} --bytes 1G --dtype fp32 --variant all-reduce --mode graph --iters 10000 --max-time 60"},
    {RUN_QUICK, 0, 8, "--ranks 2,6 --bytes 1MB,10MB --variant all-reduce"},
    {RUN_DEFAULT, 0, 32, "--ranks 2,4,6 --bytes 1MB,10MB,100MB,1GB --variant all-reduce --max-time 0.5"},
    {RUN_CPU, 0, 45, "--ranks 2,4,6 --bytes 1MB,10MB,100MB --max-time 1"},
    {0}};

static const bench_info info = {
    .name = "bench_allreduce",
    .summary = "How long does it take ranks to add up a tensor, and to gather, scatter, exchange or broadcast one?",
    .notes =
        "One row is one op (the variant), number of ranks, size, dtype and mode. The largest number of --ranks is\n"
        "started; a case with fewer uses the first ones, while the others sleep. Every sample starts after a\n"
        "barrier. In mode graph, the host launches the measured replay during an unmeasured one after the barrier.\n"
        "Our own ops (one-shot, two-shot) are for GPUs of one host with NVLink and small sizes: one-shot up to 8 MiB,\n"
        "two-shot 4 MiB and the others 8 MiB times the number of ranks; larger ones are skipped.\n"
        "NCCL runs with its defaults and with the NCCL_* variables that are set; machine.csv lists them. Graphs\n"
        "have their own communicator.\n"
        "Results are verified before timing. After it, so is a whole sample from fresh inputs, run by the graph that\n"
        "was timed, if there was one.\n"
        "K, M, G are 1024^n bytes and KB, MB, GB 1000^n; the column `size` names the unit.\n"
        "Started by mpirun, srun or torchrun, each process is a rank: mpirun -np 2 ./bench_allreduce.",
    .examples = "./bench_allreduce --ranks 2,4 --bytes 1K:1G:*2 --variant all-reduce\n"
                "./bench_allreduce --bytes 1MB,10MB,100MB,1GB --dtype fp32 --mode eager\n"
                "./bench_allreduce --device cpu --ranks 2,4,6 --variant all-reduce",
    BENCH_TABLES,
    .validate = validate,
    .order = 70,
    .small = "--ranks 2 --bytes 1K,1M --dtype fp32 --iters 3 --warmup 1",
    .section = "allreduce",
    .figures = (const char *const[]){"allreduce_sizes", NULL},
};

/* ---- the bench ---- */

enum { MAILBOX_MESSAGE_BYTES = 8 << 20 };

typedef struct world { /* a communicator */
    bool tried;
    comm *c; /* NULL: not made, and why */
    char why[512];
} world;

/* What it has is made when it is first wanted. Graphs have a communicator of their own: once a call of one was
 * captured, NCCL adds a wait and an event to each that is not. */
typedef struct group { /* of the first ranks */
    int ranks;
    world eager, graph;
    bool peers_tried;
    peers *p; /* NULL: not made, and why */
    char why_no_peers[512];
} group;

static const struct {
    const char *variant;
    collective_op op;
    bool own; /* not the library's */
    sb_direct_algorithm algorithm;
} ops[] = {{"all-reduce", COLLECTIVE_ALL_REDUCE, false, 0},
           {"all-gather", COLLECTIVE_ALL_GATHER, false, 0},
           {"reduce-scatter", COLLECTIVE_REDUCE_SCATTER, false, 0},
           {"broadcast", COLLECTIVE_BROADCAST, false, 0},
           {"reduce", COLLECTIVE_REDUCE, false, 0},
           {"all-to-all", COLLECTIVE_ALL_TO_ALL, false, 0},
           {"send-recv", COLLECTIVE_SEND_RECV, false, 0},
           {"one-shot", COLLECTIVE_ALL_REDUCE, true, SB_DIRECT_ONE_SHOT},
           {"two-shot", COLLECTIVE_ALL_REDUCE, true, SB_DIRECT_TWO_SHOT},
           {"one-shot-all-gather", COLLECTIVE_ALL_GATHER, true, SB_DIRECT_ALL_GATHER},
           {"one-shot-reduce-scatter", COLLECTIVE_REDUCE_SCATTER, true, SB_DIRECT_REDUCE_SCATTER}};

static size_t op_of(const char *variant)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(variant, ops[i].variant) == 0)
            return i;
    die(EXIT_CODE_FAILURE, "bug: no op '%s'", variant);
}

static void start(session *s)
{
    group *all = xcalloc(option_count(s->opt, "ranks"), sizeof *all);
    for (size_t i = 0; i < option_count(s->opt, "ranks"); i++)
        all[i].ranks = (int)option_int_at(s->opt, "ranks", i);
    s->user = all;
}

static group *group_of(session *s, int ranks)
{
    group *g = s->user;
    while (g->ranks != ranks)
        g++;
    return g;
}

/* NULL on every rank when it can't be made. */
static comm *communicator(session *s, int ranks, world *w, const char *name)
{
    if (!w->tried)
        w->c = comm_create(launch_of(s), s->dev, &(comm_options){.name = name, .ranks = ranks}, w->why, sizeof w->why);
    w->tried = true;
    return w->c;
}

static peers *peers_of(session *s, group *g)
{
    if (!g->peers_tried)
        g->p = peers_open(launch_of(s), s->dev, NULL, g->ranks, MAILBOX_MESSAGE_BYTES, g->why_no_peers,
                          sizeof g->why_no_peers);
    g->peers_tried = true;
    return g->p;
}

static void allreduce_run(session *s, const bench_case *c, row *w)
{
    const size_t op = op_of(case_variant(c));
    const bool graph = strcmp(case_text(c, "mode"), "graph") == 0;
    group *g = group_of(s, (int)case_int(c, "ranks"));
    world *between = graph ? &g->graph : &g->eager;
    comm *all = communicator(s, g->ranks, between, graph ? "graphs" : "world");
    peers *own = ops[op].own && all ? peers_of(s, g) : NULL;
    collective k = {.s = s,
                    .l = launch_of(s),
                    .k = c,
                    .w = w,
                    .c = all,
                    .op = ops[op].op,
                    .p = own,
                    .algorithm = ops[op].algorithm,
                    .t = strcmp(case_text(c, "dtype"), "bf16") == 0 ? COMM_BF16 : COMM_FP32,
                    .in_place = case_int(c, "in-place"),
                    .graph = graph};
    if (all && (own || !ops[op].own))
        collective_run(&k);
    else
        row_status_set(w, ROW_SKIP, "%s", all ? g->why_no_peers : between->why);
}

static void finish(session *s)
{
    OWNED group *all = s->user;
    for (size_t i = option_count(s->opt, "ranks"); i-- > 0;) {
        peers_close(all[i].p);
        comm_destroy(all[i].graph.c);
        comm_destroy(all[i].eager.c);
    }
}

static double estimate_bytes(const options *o, const bench_case *c)
{
    (void)o;
    const bool copy = !case_int(c, "in-place") || ops[op_of(case_variant(c))].op == COLLECTIVE_ALL_REDUCE;
    return (copy ? 2 : 1) * (double)case_int(c, "bytes");
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {start, allreduce_run, finish, estimate_bytes};
    launch_default_ranks(option_table, "2,4,6,8");
    return launch_main(&info, &hooks, argc, argv);
}
