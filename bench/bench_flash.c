/* SPDX-License-Identifier: MIT */
/* bench_flash: how fast is FlashAttention here, compared with unfused attention and with this machine's GEMM ceiling?
 *
 * The `flash_benchmarking` problem of Stanford's CS336, assignment 2 (batch 1, causal, S 128..65536, D 16..128), and
 * any other shape by options: heads, grouped-query heads, Sq != Sk, values of another width, both layouts, sliding windows,
 * packed documents, the deterministic backward.
 *
 * One row is one shape, dtype and variant; times are medians. *_tflops are operations (common/formulas/attention.h) / time.
 * ceiling_tflops is the best product that bench_roofline measured, a third of the bf16 one where three products of 16 bits
 * make one of fp32. speedup_* = time of unfused / time of this row, err_ratio = err_fwd / err_fwd of unfused: of the same
 * case, run and GPU, else nan.
 * Expect: a floor set by launches at short S, then a share of the ceiling that grows with S and levels off. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/attention/case.h"
#include "common/core/csv.h"
#include "common/model/dtypes.h"
#include "common/session/ceiling.h"

static const option_spec option_table[] = {
    {"batch", OPTION_INT, OPTION_LIST, "1", .help = "batch size", .min = 1, .max = 65536, .unit = "sequences"},
    {"heads", OPTION_INT, OPTION_LIST, "1", .help = "query heads", .min = 1, .max = 4096},
    {"heads-kv", OPTION_INT, OPTION_LIST, "0", .help = "key and value heads, a divisor of --heads", .max = 4096,
     .unset = "0: as many as --heads"},
    {"causal", OPTION_FLAG, OPTION_LIST, "1", .help = "causal mask: query i sees keys j <= i + Sk - Sq"},
    {"window", OPTION_INT, OPTION_LIST, "-1", .help = "number of keys before its own position that a query sees",
     .min = -1, .max = 1048576, .unit = "tokens", .unset = "-1: all"},
    {"window-right", OPTION_INT, OPTION_LIST, "-1", .help = "number of keys after its position; none when causal",
     .min = -1, .max = 1048576, .unit = "tokens", .unset = "-1: all"},
    {"documents", OPTION_INT, OPTION_LIST, "0",
     .help = "documents of different lengths that share the batch's tokens, packed without padding", .max = 65536,
     .unset = "0: none"},
    {"lengths", OPTION_CHOICE, OPTION_LIST, "equal",
     .help = "lengths of the documents: equal, or between random borders", .choices = "equal|random"},
    {"layout", OPTION_CHOICE, OPTION_LIST, "bhsd", .help = "order of the tensors in memory", .choices = "bhsd|bshd"},
    {"deterministic", OPTION_FLAG, OPTION_LIST | OPTION_ADJACENT, "0",
     .help = "the backward gives the same bits on every run"},
    {"dtype", OPTION_CHOICE, OPTION_LIST, "bf16,fp32",
     .help = "precision; bf16x3: fp32 with products of bf16 parts, only for flash", .def_cpu = "fp32",
     .choices = "bf16|fp16|tf32|fp32|bf16x3"},
    {"head-dim", OPTION_INT, OPTION_LIST, "16,32,64,128", .help = "columns of q and k", .def_cpu = "16,64", .min = 1,
     .max = 1024},
    {"head-dim-v", OPTION_INT, OPTION_LIST, "0", .help = "columns of v and o", .max = 1024,
     .unset = "0: as many as --head-dim"},
    {"seq", OPTION_INT, OPTION_LIST, "128:65536:*2", .help = "queries per sequence", .def_cpu = "128:512:*2", .min = 1,
     .max = 1048576, .unit = "tokens"},
    {"seq-k", OPTION_INT, OPTION_LIST, "0", .help = "keys per sequence", .max = 1048576, .unit = "tokens",
     .unset = "0: as many as --seq"},
    {"variant", OPTION_CHOICE, OPTION_LIST, "unfused,flash",
     .help = "what to measure; speedups are relative to unfused", .choices = "unfused|fused|flash|flash_portable"},
    {"iters", OPTION_INT, 0, "20", .help = "timed calls of each kind; more where --settle asks for them",
     .def_cpu = "5", .min = 1, .max = 1000000, .unit = "samples"},
    {"warmup", OPTION_INT, 0, "3", .help = "warm-up calls before them", .def_cpu = "1", .max = 1000000,
     .unit = "calls"},
    {"max-time", OPTION_REAL, 0, "1", .help = "end a measurement early after this time", .max = 86400, .unit = "s",
     .unset = "0: never"},
    SESSION_SUSTAIN,
    {0}};

static const variant_spec variant_table[] = {
    {"unfused", "GEMM, scale, mask, softmax, GEMM as separate kernels: what an eager framework does"},
    {"fused", "scale, mask and softmax in one kernel between the GEMMs: what a compiler makes of it"},
    {"flash", "FlashAttention-2: the best kernel for this GPU"},
    {"flash_portable", "FlashAttention-2 on the tensor-core path of every GPU from sm_80 up"},
    {0}};

static const column_spec column_table[] = {
    ATTENTION_TIME_COLUMNS("fwd", "forward"),
    ATTENTION_TIME_COLUMNS("bwd", "backward"),
    ATTENTION_TIME_COLUMNS("fwd_bwd", "forward then backward, timed together"),
    {"fwd_tflops", COLUMN_REAL, true,
     "2 (D + Dv) B H Sq Sk, halved when causal, in a window 2 (D + Dv) B H a pair that is not masked, the sum over "
     "documents, over the median time; Dv is D, or --head-dim-v"},
    {"bwd_tflops", COLUMN_REAL, true,
     "the same with 3 D + 2 Dv in place of D + Dv, so 2.5 times as many where Dv is D, over the median time"},
    {"ceiling_tflops", COLUMN_REAL, false,
     "best product that bench_roofline measured in the same run, of the products that the variant makes"},
    {"fwd_ceiling_pct", COLUMN_REAL, true, "fwd_tflops as a share of ceiling_tflops"},
    {"bwd_ceiling_pct", COLUMN_REAL, true, "bwd_tflops as a share of ceiling_tflops"},
    {"sustain_s", COLUMN_REAL, false,
     "--sustain, of forward and then of backward; the columns below cover its second half"},
    {"sustained_fwd_ms", COLUMN_REAL, false, "fwd_ms in the steady state"},
    {"sustained_fwd_sm_mhz", COLUMN_REAL, false, "SM clock, median"},
    {"sustained_fwd_power_w", COLUMN_REAL, false, "power, median"},
    {"sustained_fwd_drift_pct", COLUMN_REAL, false,
     "by how much the last quarter of --sustain was slower than the one before: near 0 when the GPU has settled"},
    {"sustained_bwd_ms", COLUMN_REAL, false, "bwd_ms in the steady state"},
    {"sustained_bwd_sm_mhz", COLUMN_REAL, false, "SM clock, median"},
    {"sustained_bwd_power_w", COLUMN_REAL, false, "power, median"},
    {"sustained_bwd_drift_pct", COLUMN_REAL, false, "as sustained_fwd_drift_pct"},
    {"speedup_fwd", COLUMN_REAL, true, "forward time of unfused / this one's"},
    {"speedup_bwd", COLUMN_REAL, true, "backward time of unfused / this one's"},
    {"speedup_fwd_bwd", COLUMN_REAL, true, "forward+backward time of unfused / this one's"},
    {"peak_bytes", COLUMN_INT, true, "most held at once during one forward and backward"},
    {"err_fwd", COLUMN_REAL, true, "relative L2 error of o on the checked rows against fp64"},
    {"err_dq", COLUMN_REAL, false, "the same for dq"},
    {"err_dk", COLUMN_REAL, false, "the same for dk"},
    {"err_dv", COLUMN_REAL, false, "the same for dv"},
    {"err_ratio", COLUMN_REAL, false, "err_fwd / err_fwd of unfused"},
    {0}};

/* Packed tokens are counted in int. */
static bool tokens_fit(const options *o, const char *seq, char *msg, size_t msg_bytes)
{
    for (size_t i = 0; i < option_count(o, "batch"); i++)
        for (size_t j = 0; j < option_count(o, seq); j++)
            if (option_int_at(o, "batch", i) * option_int_at(o, seq, j) > 1 << 30) {
                snprintf(msg, msg_bytes, "--documents takes at most 2^30 tokens, --batch times --%s", seq);
                return false;
            }
    return true;
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    for (size_t i = 0; i < option_count(o, "heads"); i++)
        for (size_t j = 0; j < option_count(o, "heads-kv"); j++) {
            int heads = (int)option_int_at(o, "heads", i), heads_kv = (int)option_int_at(o, "heads-kv", j);
            if (heads_kv && heads % heads_kv) {
                snprintf(msg, msg_bytes, "--heads %d is not a multiple of --heads-kv %d", heads, heads_kv);
                return false;
            }
        }
    for (size_t i = 0; i < option_count(o, "causal"); i++)
        for (size_t j = 0; j < option_count(o, "window-right"); j++)
            if (option_int_at(o, "causal", i) && option_int_at(o, "window-right", j) > 0) {
                snprintf(msg, msg_bytes, "--window-right %d needs --causal 0: a causal mask leaves no key on the right",
                         (int)option_int_at(o, "window-right", j));
                return false;
            }
    for (size_t i = 0; i < option_count(o, "documents"); i++)
        if (option_int_at(o, "documents", i) > 0 &&
            !(tokens_fit(o, "seq", msg, msg_bytes) && tokens_fit(o, "seq-k", msg, msg_bytes)))
            return false;
    for (size_t i = 0; i < option_count(o, "documents"); i++)
        for (size_t j = 0; j < option_count(o, "lengths"); j++)
            if (option_int_at(o, "documents", i) == 0 && strcmp(option_text_at(o, "lengths", j), "random") == 0) {
                snprintf(msg, msg_bytes, "--lengths random needs --documents of at least 1");
                return false;
            }
    return true;
}

static const bench_run run_table[] = {
    {RUN_QUICK, 1, 10, "--head-dim 128 --seq 1024,4096,16384"},
    {RUN_DEFAULT, 1, 180, ""},
    {RUN_DEFAULT, 1, 8, "--heads 16 --head-dim 64,128 --seq 16384 --dtype bf16 --variant flash --deterministic 0,1"},
    {RUN_DEFAULT, 1, 8, "--head-dim 64,128 --seq 1024:65536:*4 --dtype bf16x3 --variant flash"},
    {RUN_DEFAULT, 1, 6,
     "--batch 2 --heads 32 --heads-kv 8,32 --head-dim 128 --seq 2048,8192 --dtype bf16 --variant flash"},
    {RUN_DEFAULT, 1, 9, "--heads 16 --head-dim 64,128,256 --seq 16384 --dtype bf16 --variant flash --window 1024,4096"},
    {RUN_DEFAULT, 1, 9,
     "--batch 8 --heads 16 --head-dim 64,128,256 --seq 2048 --dtype bf16 --variant flash --documents 0,8"},
    {RUN_DEFAULT, 1, 4,
     "--batch 8 --heads 16 --head-dim 64,128 --seq 2048 --dtype bf16 --variant flash --documents 8 --lengths random"},
    {RUN_DEFAULT, 1, 9,
     "--heads 16 --head-dim 192,256 --seq 8192 --dtype bf16 --variant flash --causal 0,1 --deterministic 0,1"},
    {RUN_DEFAULT, 1, 6,
     "--heads 16 --head-dim 192 --head-dim-v 128 --seq 8192 --dtype bf16 --variant flash --causal 0,1 --deterministic "
     "0,1"},
    {RUN_FULL, 1, 45, "--head-dim 64,128 --dtype bf16 --deterministic 0,1 --variant flash"},
    {RUN_FULL, 1, 125, "--batch 8 --heads 16 --head-dim 128 --seq 2048 --dtype bf16 --variant flash --sustain 60"},
    {RUN_HEADLINE, 1, 4, "--batch 8 --heads 16 --head-dim 128 --seq 2048 --dtype bf16 --variant flash"},
    {RUN_CPU, 0, 5, ""},
    {0}};

static const bench_info info = {
    .name = "bench_flash",
    .summary = "How fast is FlashAttention here, compared with unfused attention and with this machine's GEMM "
               "ceiling?",
    .notes =
        "One row is one shape, dtype and variant. Inputs are N(0,1) from --seed; outputs are compared with an\n"
        "fp64 oracle before anything is timed. speedup_* are relative to the unfused row of the same case.\n"
        "They, and shares of bench_roofline's ceiling, need rows of the same run (or ./run_all.sh) and GPU; else they\n"
        "are nan. A window (--window, --window-right) leaves a query the keys around its own position; its operations "
        "are\n"
        "counted pair by pair. Documents (--documents, --lengths) divide batch * seq tokens, and a query sees keys of\n"
        "its own document only; operations are the sum of theirs. On CUDA, unfused and fused support neither.\n"
        "head_dim, of queries or values, is a multiple of 8 from 16 to 256; above 128, flash on CUDA takes bf16 and "
        "fp16.\n"
        "Values of another width (--head-dim-v) have a Hopper forward in bf16 and fp16, and a Hopper backward where\n"
        "either width is above 128; else they run the portable kernels.",
    .examples = "./bench_flash --seq 65536 --dtype bf16\n"
                "./bench_flash --batch 1 --heads 16 --seq 16384 --head-dim 128 --dtype bf16 --variant flash\n"
                "./bench_flash --heads 16 --seq 16384 --dtype bf16 --variant flash --window -1,1024,4096\n"
                "./bench_flash --heads 16 --seq 16384 --dtype bf16 --variant flash --documents 8 --lengths random\n"
                "./bench_flash --heads 16 --head-dim 192 --head-dim-v 128 --seq 8192 --dtype bf16 --variant flash\n"
                "./bench_flash --heads 32 --heads-kv 8 --seq 4096 --layout bshd --causal 0,1",
    BENCH_TABLES,
    .validate = validate,
    .order = 30,
    .small = "--head-dim 64 --seq 128,256 --dtype fp32 --iters 3 --warmup 1",
    .section = "flash",
    .figures =
        (const char *const[]){"flash_latency", "flash_tflops", "flash_memory", "flash_speedup", "peers_flash", NULL},
};

/* The unfused row that speedups refer to; one that failed in this run is not replaced by an older one. */
static struct baseline {
    char key[512];
    double fwd_ms, bwd_ms, fwd_bwd_ms, err_fwd;
} baseline;

static void baseline_set(const char *key, double fwd_ms, double bwd_ms, double fwd_bwd_ms, double err_fwd)
{
    baseline = (struct baseline){.fwd_ms = fwd_ms, .bwd_ms = bwd_ms, .fwd_bwd_ms = fwd_bwd_ms, .err_fwd = err_fwd};
    snprintf(baseline.key, sizeof baseline.key, "%s", key);
}

/* When unfused was measured by another program of the same ./run_all.sh, its newest row of the case serves. */
static void baseline_load(const session *s, const bench_case *c, const char *key)
{
    static const char *const no_others[][2] = {{NULL}};
    if (strcmp(baseline.key, key) == 0)
        return;
    baseline_set(key, NAN, NAN, NAN, NAN);
    size_t r;
    OWNED_CSV csv *t = row_beside(s, c, "unfused", no_others, &r);
    if (t)
        baseline_set(key, csv_real(t, r, "fwd_ms"), csv_real(t, r, "bwd_ms"), csv_real(t, r, "fwd_bwd_ms"),
                     csv_real(t, r, "err_fwd"));
}

static attention_problem problem_of(const bench_case *c)
{
    const int heads_kv = (int)case_int(c, "heads-kv"), seq_k = (int)case_int(c, "seq-k");
    sb_attention s = {.batch = (int)case_int(c, "batch"),
                      .heads = (int)case_int(c, "heads"),
                      .seq_q = (int)case_int(c, "seq"),
                      .head_dim = (int)case_int(c, "head-dim"),
                      .head_dim_v = (int)case_int(c, "head-dim-v"),
                      .dtype = dtype_named(case_text(c, "dtype")),
                      .causal = case_int(c, "causal") != 0,
                      .deterministic = case_int(c, "deterministic") != 0,
                      .window_left = (int)case_int(c, "window"),
                      .window_right = (int)case_int(c, "window-right"),
                      .documents = (int)case_int(c, "documents")};
    s.heads_kv = heads_kv ? heads_kv : s.heads;
    s.seq_k = seq_k ? seq_k : s.seq_q;
    if (s.causal && s.window_right == 0)
        s.window_right = -1; /* the same mask, whose operations are counted as those of a causal one */
    s.windowed = s.window_left >= 0 || s.window_right >= 0;
    s.packed = s.documents > 0;
    if (s.packed) /* one sequence of all tokens */
        s.seq_q *= s.batch, s.seq_k *= s.batch, s.batch = 1;
    return (attention_problem){.shape = s,
                               .random_lengths = strcmp(case_text(c, "lengths"), "random") == 0,
                               .seq_first = strcmp(case_text(c, "layout"), "bshd") == 0};
}

static double estimate_bytes(const options *o, const bench_case *c)
{
    (void)o;
    attention_problem p = problem_of(c);
    return attention_estimate_bytes(&p, case_variant(c));
}

/* The dtype of the products that the variant makes on this device. */
static const char *products_of(const session *s, const bench_case *c)
{
    const char *dtype = case_text(c, "dtype"), *variant = case_variant(c);
    if (device_kind_of(s->dev) == DEVICE_CPU || strcmp(dtype, "fp32") != 0 || strncmp(variant, "flash", 5) != 0)
        return dtype;
    return strcmp(variant, "flash") == 0 ? "fp16x3" : "bf16x6";
}

static void flash_run(session *s, const bench_case *c, row *w)
{
    attention_problem p = problem_of(c);
    attention_case ac;
    bool unfused = strcmp(case_variant(c), "unfused") == 0;
    double fwd_ms, bwd_ms, fwd_bwd_ms;
    bool right = attention_prepare(&ac, s, c, w, &p);
    if (unfused)
        baseline_set(ac.key, NAN, NAN, NAN, ac.err_o);
    else
        baseline_load(s, c, ac.key);
    row_real(w, "err_fwd", ac.err_o);
    row_real(w, "err_dq", ac.err_dq);
    row_real(w, "err_dk", ac.err_dk);
    row_real(w, "err_dv", ac.err_dv);
    row_real(w, "err_ratio", ac.err_o / baseline.err_fwd);
    if (!right || !attention_time(&ac, ATTENTION_FORWARD, &fwd_ms) ||
        !attention_time(&ac, ATTENTION_BACKWARD, &bwd_ms) || !attention_time(&ac, ATTENTION_BOTH, &fwd_bwd_ms) ||
        !attention_sustain(&ac, ATTENTION_FORWARD) || !attention_sustain(&ac, ATTENTION_BACKWARD) ||
        !attention_check(&ac))
        return;
    if (unfused)
        baseline_set(ac.key, fwd_ms, bwd_ms, fwd_bwd_ms, ac.err_o);
    double fwd_tflops = attention_forward_flops(&ac.problem.shape) / (fwd_ms * 1e9);
    double bwd_tflops = attention_backward_flops(&ac.problem.shape) / (bwd_ms * 1e9);
    double ceiling = ceiling_tflops(s, s->results_dir, products_of(s, c));
    row_real(w, "fwd_tflops", fwd_tflops);
    row_real(w, "bwd_tflops", bwd_tflops);
    row_real(w, "ceiling_tflops", ceiling);
    row_real(w, "fwd_ceiling_pct", 100 * fwd_tflops / ceiling);
    row_real(w, "bwd_ceiling_pct", 100 * bwd_tflops / ceiling);
    row_real(w, "speedup_fwd", baseline.fwd_ms / fwd_ms);
    row_real(w, "speedup_bwd", baseline.bwd_ms / bwd_ms);
    row_real(w, "speedup_fwd_bwd", baseline.fwd_bwd_ms / fwd_bwd_ms);
    row_int(w, "peak_bytes", (int64_t)ac.peak_bytes);
    row_real(w, "sustain_s", s->sustain_s);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {attention_start, flash_run, attention_finish, estimate_bytes};
    return session_main(&info, &hooks, argc, argv);
}
