/* SPDX-License-Identifier: MIT */
/* bench_roofline: what is the most this machine can do? The measured ceilings of which other benches report
 * their share: matrix products by dtype and size, copies inside memory and between GPUs, the cost of a launch.
 *
 * One row is one thing measured; only the parameters that apply to its variant have a value. time_us is the
 * median of one product, copy or launch. tflops = 2 m n k / time. gb_s of copy and copy_kernel counts bytes read plus
 * bytes written, of p2p the bytes that arrived, of p2p_both those of both directions.
 * Expect: a large bf16 GEMM reaches 70 to 85 % of a GPU's data sheet, a large copy 85 to 93 %.
 * Limits: GEMMs of random numbers; a GPU's power limit may lower them, then `throttle` says so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/roofline/roofline.h"
#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/core/text.h"

static option_spec option_table[] = {
    {"dtype", OPTION_CHOICE, OPTION_LIST, "bf16,fp16,tf32,fp32", .help = "gemm: precisions", .def_cpu = "fp32",
     .choices = "bf16|fp16|tf32|fp32"},
    {"size", OPTION_INT, OPTION_LIST, "1024,2048,4096,8192", .help = "n of gemm's n x n matrices, a multiple of 16",
     .def_cpu = "256,512,1024", .min = 16, .max = 65536},
    {"mnk", OPTION_TEXT, OPTION_LIST, "2048x2048x8192,4096x4096x4096,4096x4096x8192,8192x8192x8192",
     .help = "gemm_best: shapes MxNxK of A (m, k) and B (n, k), multiples of 16", .def_cpu = "256x256x512,512x512x512"},
    {"bytes", OPTION_BYTES, OPTION_LIST, "64M,256M,1G", .help = "size of a copy, a multiple of 16",
     .def_cpu = "64M,256M", .min = 16, .max = 1e12, .unit = "bytes"},
    {"pair", OPTION_TEXT, OPTION_LIST, "0-1", .help = "p2p: GPUs as from-to; default: every pair"},
    SESSION_SUSTAIN,
    {0}};

static const variant_spec variant_table[] = {
    {"gemm", "C = A B^T by the vendor's library"},
    {"gemm_best", "the same by the fastest of the library's algorithms, also on a GPU that has rested"},
    {"copy", "the device's own memory copy"},
    {"copy_kernel", "a kernel that loads and stores"},
    {"launch", "an empty kernel launched by the host, back to back: time of each"},
    {"launch_sync", "an empty kernel launched and waited for, as the host sees it"},
    {"launch_graph", "an empty kernel inside a CUDA graph of 100: time of each"},
    {"p2p", "a copy from one GPU to another"},
    {"p2p_both", "copies both ways between two GPUs at once"},
    {0}};

static const column_spec column_table[] = {
    {"time_us", COLUMN_REAL, true, "one product, copy or launch, median"},
    {"time_p10_us", COLUMN_REAL, false, "10th percentile"},
    {"time_p90_us", COLUMN_REAL, false, "90th percentile"},
    {"tflops", COLUMN_REAL, true, "2 m n k over the median time"},
    {"burst_tflops", COLUMN_REAL, true, "gemm_best: the same in the first 20 calls after half a second of rest"},
    {"gb_s", COLUMN_REAL, true,
     "copies: bytes read + written; p2p: bytes that arrived, in p2p_both in both directions together"},
    {"energy_j", COLUMN_REAL, false, "energy of one product or copy; nan where sampling takes less than about 0.6 s"},
    {"tflop_per_j", COLUMN_REAL, false, "products: 2 m n k / energy_j, in 10^12"},
    {"sustain_s", COLUMN_REAL, false, "--sustain; the columns below cover its second half"},
    {"sustained_us", COLUMN_REAL, false, "time_us in the steady state"},
    {"sustained_tflops", COLUMN_REAL, false, "products: 2 m n k / sustained_us"},
    {"sustained_gb_s", COLUMN_REAL, false, "copies: bytes / sustained_us"},
    {"sustained_sm_mhz", COLUMN_REAL, false, "SM clock, median"},
    {"sustained_power_w", COLUMN_REAL, false, "power, median"},
    {"sustained_j", COLUMN_REAL, false, "energy of one product or copy"},
    {"sustained_tflop_per_j", COLUMN_REAL, false, "products: 2 m n k / sustained_j, in 10^12"},
    {"sustained_drift_pct", COLUMN_REAL, false,
     "by how much the last quarter of --sustain was slower than the one before: near 0 when the GPU has settled"},
    {"n_samples", COLUMN_INT, false, "samples"},
    {"timer", COLUMN_TEXT, false, "how it was timed: event, graph or host"},
    {"algorithm", COLUMN_TEXT, false, "gemm_best: tile, stages and split that were chosen"},
    {"peer_access", COLUMN_INT, false, "p2p: 1 directly, 0 through host memory"},
    {"err_rel", COLUMN_REAL, true, "products: relative L2 error of the checked elements against fp64"},
    {0}};

static bool applies(const char *option, const char *variant)
{
    bool gemm = strcmp(variant, "gemm") == 0, best = strcmp(variant, "gemm_best") == 0;
    bool p2p = strncmp(variant, "p2p", 3) == 0, copies = p2p || strncmp(variant, "copy", 4) == 0;
    if (strcmp(option, "dtype") == 0)
        return gemm || best;
    if (strcmp(option, "size") == 0 || strcmp(option, "mnk") == 0)
        return strcmp(option, "size") == 0 ? gemm : best;
    return strcmp(option, "bytes") == 0 ? copies : p2p;
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    for (size_t i = 0; i < option_count(o, "pair"); i++)
        if (!roofline_pair_parse(option_text_at(o, "pair", i), NULL, NULL)) {
            snprintf(msg, msg_bytes, "--pair %s is not a pair; write two different GPUs as from-to, such as 0-1",
                     option_text_at(o, "pair", i));
            return false;
        }
    roofline_shape shape;
    for (size_t i = 0; i < option_count(o, "mnk"); i++)
        if (!roofline_shape_parse(option_text_at(o, "mnk", i), &shape)) {
            snprintf(msg, msg_bytes,
                     "--mnk %s is not a shape; write it as MxNxK, multiples of 16, such as 2048x2048x8192",
                     option_text_at(o, "mnk", i));
            return false;
        }
    for (int which = 0; which < 2; which++) {
        const char *name = which ? "bytes" : "size";
        for (size_t i = 0; i < option_count(o, name); i++)
            if (option_int_at(o, name, i) % 16 != 0) {
                snprintf(msg, msg_bytes, "--%s %lld is not a multiple of 16", name,
                         (long long)option_int_at(o, name, i));
                return false;
            }
    }
    return true;
}

static const bench_run run_table[] = {
    {RUN_QUICK | RUN_DEFAULT, 1, 12, "--variant gemm,copy,copy_kernel,launch,launch_sync,launch_graph,p2p,p2p_both"},
    {RUN_DEFAULT, 1, 10, "--variant gemm_best --dtype bf16,tf32"},
    {RUN_FULL, 1, 130, "--variant gemm_best,copy_kernel --dtype bf16 --mnk 4096x2560x20480 --bytes 1G --sustain 60"},
    /* The products of a step of xl, 2.7b and small, forward and backward, for the table of a profile. */
    {RUN_FULL, 1, 45,
     "--variant gemm_best --dtype bf16 --mnk "
     "4096x4800x1600,4096x1600x1600,4096x12800x1600,4096x1600x6400,4096x1600x4800,4096x1600x12800,4096x6400x1600,"
     "4800x1600x4096,1600x1600x4096,12800x1600x4096,1600x6400x4096,"
     "4096x7680x2560,4096x2560x2560,4096x20480x2560,4096x2560x10240,4096x2560x7680,4096x2560x20480,4096x10240x2560,"
     "7680x2560x4096,2560x2560x4096,20480x2560x4096,2560x10240x4096,"
     "2048x2304x768,2048x768x768,2048x6144x768,2048x768x3072,512x2304x768,512x768x768,512x6144x768,512x768x3072"},
    {RUN_HEADLINE, 1, 5, "--variant gemm_best,copy_kernel --dtype bf16 --mnk 4096x2560x20480 --bytes 1G"},
    {RUN_CPU, 0, 8, ""},
    {0}};

static const bench_info info = {
    .name = "bench_roofline",
    .summary =
        "What is the most this machine can do: matrix products, copies, kernel launches, and transfers between GPUs?",
    .notes =
        "One row is one thing measured; an option that does not apply to a variant is empty in its rows. --dtype\n"
        "and --size are for gemm, --mnk for gemm_best, --bytes for copies, --pair for p2p. Products are compared\n"
        "with fp64 on sampled rows and columns, and copies byte by byte, before anything is timed.\n"
        "Other benches read this file: their ceiling is the best product of the dtype here, bursts included, so that\n"
        "nothing exceeds it.",
    .examples = "./bench_roofline\n"
                "./bench_roofline --variant gemm --dtype bf16,fp16 --size 4096:16384:*2\n"
                "./bench_roofline --variant gemm --dtype bf16 --size 8192 --sustain 10\n"
                "./bench_roofline --variant p2p,p2p_both --bytes 1M:1G:*4 --pair 0-1,1-0",
    BENCH_TABLES,
    .validate = validate,
    .applies = applies,
    .order = 10,
    .small = "--size 256 --mnk 256x128x512 --bytes 1M --iters 3 --warmup 1",
    .section = "roofline",
    .figures = (const char *const[]){"roofline", NULL},
};

/* ---- the bench ---- */

static void start(session *s)
{
    roofline *r = xcalloc(1, sizeof *r);
    roofline_start(r, s);
    s->user = r;
}

static void finish(session *s)
{
    roofline_finish(s->user);
    free(s->user);
}

static void roofline_run(session *s, const bench_case *c, row *w)
{
    roofline *r = s->user;
    const char *variant = case_variant(c);
    const uint64_t seed = rng_hash((uint64_t)option_int(s->opt, "seed"), case_key(c));
    double ms;
    r->w = w;
    if (strcmp(variant, "gemm_best") == 0) {
        roofline_shape shape;
        roofline_shape_parse(case_text(c, "mnk"), &shape);
        roofline_gemm_best_time(r, case_text(c, "dtype"), shape, seed, &ms);
    } else if (strcmp(variant, "gemm") == 0) {
        roofline_gemm_time(r, case_text(c, "dtype"), (int)case_int(c, "size"), seed, &ms);
    } else if (text_starts(variant, "copy")) {
        roofline_copy_time(r, strcmp(variant, "copy_kernel") == 0, (size_t)case_int(c, "bytes"), seed, &ms);
    } else if (text_starts(variant, "launch")) {
        roofline_launch_time(r,
                             strcmp(variant, "launch_sync") == 0    ? LAUNCH_WAITED_FOR
                             : strcmp(variant, "launch_graph") == 0 ? LAUNCH_IN_GRAPH
                                                                    : LAUNCH_QUEUED,
                             &ms);
    } else {
        int from, to;
        bool direct;
        roofline_pair_parse(case_text(c, "pair"), &from, &to);
        if (roofline_p2p_time(r, from, to, strcmp(variant, "p2p_both") == 0, (size_t)case_int(c, "bytes"), seed, &ms,
                              &direct))
            row_int(w, "peer_access", direct);
    }
}

static double estimate_bytes(const options *o, const bench_case *c)
{
    const bool best = strcmp(case_variant(c), "gemm_best") == 0;
    (void)o;
    if (!best && strcmp(case_variant(c), "gemm") != 0)
        return 2 * (double)case_int(c, "bytes");
    roofline_shape shape = {0};
    if (best)
        roofline_shape_parse(case_text(c, "mnk"), &shape);
    else
        shape.m = shape.n = shape.k = (int)case_int(c, "size");
    return roofline_gemm_bytes(case_text(c, "dtype"), shape);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {start, roofline_run, finish, estimate_bytes};
    OWNED char *pairs = roofline_every_pair(device_visible_gpus());
    for (option_spec *o = option_table; o->name; o++)
        if (strcmp(o->name, "pair") == 0)
            o->def = pairs;
    int code = session_main(&info, &hooks, argc, argv);
    return code;
}
