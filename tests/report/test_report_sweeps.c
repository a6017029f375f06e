/* SPDX-License-Identifier: MIT */
/* Feature by feature, one dimension at a time, shares of the peak, and numbers of ranks: which rows stand in these tables
 * and figures, and what is said of planted numbers, from both sides. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"

static char rows[1 << 15]; /* of the file that a test plants */

static void begin(const char *header)
{
    snprintf(rows, sizeof rows, "%s", header);
}

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t used = strlen(rows);
    assert_true((size_t)vsnprintf(rows + used, sizeof rows - used, format, args) < sizeof rows - used);
    va_end(args);
}

/* report.md of the folder `box` with the rows as its only file; caller frees. */
static char *report_of(const char *folder, const char *file)
{
    char *dir = folder_path(folder, "box"), *csv = folder_path(dir, file);
    mkdir(dir, 0777);
    file_write(csv, rows);
    char *text = report_text(dir);
    assert_int_equal(unlink(csv), 0);
    free(csv);
    free(dir);
    return text;
}

static void expect(const char *text, const char *wanted, bool there)
{
    const char *begin_at = strstr(text, "## Feature");
    if (!strstr(text, wanted) == there)
        fail_msg("'%s' is %s:\n%.6000s", wanted, there ? "not in the report" : "in the report",
                 begin_at ? begin_at : text);
}

/* ---- feature by feature ---- */

#define STEP_HEADER                                                                                                    \
    "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,attention,recompute,moments,offload,"     \
    "layers,d_"                                                                                                        \
    "model,"                                                                                                           \
    "heads,"                                                                                                           \
    "heads_kv,vocab,warmup,step_ms,tokens_per_s,tflops,mfu_causal_pct,mfu_full_pct,hfu_pct,peak_bytes,init_bytes,"     \
    "params,"                                                                                                          \
    "run_id,campaign,machine,gpu,device,sm_mhz,throttle,commit,dirty,utc\n"

static const char *moments = "policy", *offload = "none";

typedef struct step {
    const char *variant, *size, *precision, *attention, *recompute;
    int batch, seq, layers, d_model, heads, heads_kv, vocab;
    double ms, mfu, peak_gib;
    const char *campaign;
} step;

static const step plain = {"graph", "xl", "bf16", "flash", "none", 4, 512, 0, 0, 0, 0, 0, 10, 40, 2, "run-a"};

static void add_step(step s, const char *status, const char *reason)
{
    const bool ok = strcmp(status, "ok") == 0;
    add("2,1,bench_transformer,%s,%s,%s,%s,%d,%d,%s,train-step,%s,%s,%s,%s,%d,%d,%d,%d,%d,5,", s.variant, status,
        reason, s.size, s.batch, s.seq, s.precision, s.attention, s.recompute, moments, offload, s.layers, s.d_model,
        s.heads, s.heads_kv, s.vocab);
    if (ok)
        add("%g,%g,%g,%g,%g,%g,%.0f,%.0f,%d,", s.ms, 1e3 * s.batch * s.seq / s.ms, 10 * s.mfu, s.mfu, s.mfu + 5,
            s.mfu + 2, s.peak_gib * 0x1p30, 0x1p30, 1000000 * (s.heads_kv + 100));
    else
        add("nan,nan,nan,nan,nan,nan,nan,nan,nan,");
    add("run-1,%s,box,G,cuda,1980,,abc,0,2026-11-21T10:00:00Z\n", s.campaign);
}

/* The lines of the ladder; `unfused_fits`: whether the first two do. */
static void plant_ladder(bool unfused_fits, const char *campaign)
{
    begin(STEP_HEADER);
    step s = plain;
    s.attention = "unfused", s.variant = "none", s.precision = "fp32", s.ms = 100, s.peak_gib = 40;
    const char *status = unfused_fits ? "ok" : "oom", *reason = unfused_fits ? "" : "logits need 1 GiB; 0 are free";
    add_step(s, status, reason);
    s.precision = "bf16", s.ms = 50, s.peak_gib = 30;
    add_step(s, status, reason);
    s.attention = "flash", s.ms = 40, s.peak_gib = 25;
    add_step(s, "ok", "");
    s.variant = "kernels", s.ms = 25, s.peak_gib = 24, s.campaign = campaign;
    add_step(s, "ok", "");
    s.variant = "graph", s.ms = 20, s.campaign = "run-a";
    add_step(s, "ok", "");
    s.recompute = "block", s.ms = 25, s.peak_gib = 14;
    add_step(s, "ok", "");
    moments = "bf16", s.recompute = "none", s.ms = 19, s.peak_gib = 18;
    add_step(s, "ok", "");
    moments = "policy", offload = "block", s.ms = 30, s.peak_gib = 12;
    add_step(s, "ok", "");
    offload = "none", s.seq = 1024, s.ms = 77; /* no line: another context */
    add_step(s, "ok", "");
}

static void each_feature_is_a_line(void **state)
{
    plant_ladder(true, "run-a");
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "### One GPU: xl, S 512, batch 4", true);
    expect(text, "(xl, S 512, batch 4): 100 ms and 40.0 GiB with \"fp32, an eager", true);
    expect(text, "20.0 ms and 24.0 GiB with all up to \"+ one CUDA graph\", 5.00 times as fast.", true);
    expect(text, "| fp32, an eager framework's ops, unfused attention | 1.00 | 40.0 | 100 | - |", true);
    expect(text, "| + bf16, master weights in fp32 | 1.00 | 30.0 | 50.0 | 2.00 |", true);
    expect(text, "| + flash attention | 1.00 | 25.0 | 40.0 | 1.25 |", true);
    expect(text, "| + one CUDA graph | 1.00 | 24.0 | 20.0 | 1.25 |", true);
    expect(text, "the step becomes 5.00 times as fast, and its peak 16.0 GiB smaller", true);
    expect(text, "The largest part is \"+ bf16, master weights in fp32\": 2.00 times.", true);
    expect(text, "\"with whole blocks computed again\": 25.0 % more time, 10.0 GiB less at the peak.", true);
    expect(text, "\"with moments in bf16\": 5.00 % less time, 6.00 GiB less at the peak.", true);
    expect(text, "\"with blocks' activations in the host's memory\": 50.0 % more time, 12.0 GiB less at", true);
    expect(text, "half computed again", false); /* was not measured */
    expect(text, "S 1024, batch 4", false);
    free(text);
}

static void what_does_not_fit_is_a_line(void **state)
{
    plant_ladder(false, "run-a");
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "| fp32, an eager framework's ops, unfused attention | - | - | oom |", true);
    expect(text, "- \"+ bf16, master weights in fp32\": logits need 1 GiB", true);
    expect(text, "| + flash attention | 1.00 | 25.0 | 40.0 | - |", true);
    expect(text, "From \"+ flash attention\" to \"+ one CUDA graph\" the step becomes 2.00 times as fast", true);
    free(text);
}

static void lines_of_two_runs_give_no_factor(void **state)
{
    plant_ladder(true, "run-b");
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "| + fused kernels | 1.00 | 24.0 | 25.0 | - |", true);
    expect(text, "| + one CUDA graph | 1.00 | 24.0 | 20.0 | - |", true);
    free(text);
}

static void three_lines_are_no_ladder(void **state)
{
    begin(STEP_HEADER);
    step s = plain;
    add_step(s, "ok", "");
    s.variant = "kernels";
    add_step(s, "ok", "");
    s.variant = "none";
    add_step(s, "ok", "");
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "Feature by feature", false);
    expect(text, "One dimension at a time", false);
    expect(text, "Shares of the peak", false);
    free(text);
}

/* ---- one dimension at a time ---- */

static void depth_is_a_line(void **state)
{
    begin(STEP_HEADER);
    step s = plain;
    for (s.layers = 2; s.layers <= 8; s.layers *= 2) {
        s.ms = 3 + 2 * s.layers, s.peak_gib = 1 + 0.5 * s.layers;
        add_step(s, "ok", "");
    }
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "### Depth (size xl, batch 4, seq 512, precision bf16", true);
    expect(text, "A block more takes 2.00 ms and 0.500 GiB", true);
    expect(text, "takes 3.00 ms and 1.00 GiB.", true);
    expect(text, "### Width", false);
    free(text);
}

static void contexts_say_what_fits(void **state)
{
    begin(STEP_HEADER);
    step s = plain;
    s.batch = 1;
    for (s.seq = 1024; s.seq <= 32768; s.seq *= 2) {
        s.recompute = "none", s.ms = s.seq / 100.0, s.peak_gib = s.seq / 256.0, s.mfu = 30 + s.seq / 1024.0;
        add_step(s, s.seq < 32768 ? "ok" : "oom", "");
        s.recompute = "block", s.ms *= 1.25, s.peak_gib /= 4;
        add_step(s, "ok", "");
    }
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "From S 1024 to S 16384 (16.0 times) a step takes 16.0 times as long", true);
    expect(text, "MFU goes from 31.0 % to 46.0 %", true);
    expect(text, "computing blocks again takes 0.250 of the memory and 1.25 times as long", true);
    expect(text, "up to S 32768, fit only where blocks are computed again", true);
    expect(text, "| 32768 | none | oom |", true);
    free(text);
}

static void plant_widths(double bad_tflops)
{
    begin(STEP_HEADER);
    step s = plain;
    s.layers = 4;
    for (s.d_model = 512; s.d_model <= 2048; s.d_model *= 2) {
        s.mfu = s.d_model / 51.2; /* 100, 200 and 400 TFLOP/s */
        add_step(s, "ok", "");
    }
    s.d_model = 1448, s.heads = 8, s.mfu = bad_tflops / 10; /* 300 is on the line */
    add_step(s, "ok", "");
}

static void a_width_is_held_against_its_neighbours(void **state)
{
    plant_widths(240);
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "From width 512 to width 2048 a step does 100 TFLOP/s and then 400", true);
    expect(text, "1448: 20.0 % slower.", true);
    free(text);
    plant_widths(330);
    text = report_of(*state, "bench_transformer.csv");
    expect(text, "% faster.", true);
    expect(text, "slower", false);
    free(text);
}

static void heads_and_batches(void **state)
{
    begin(STEP_HEADER);
    step s = plain;
    for (s.heads_kv = 25; s.heads_kv; s.heads_kv /= 5) {
        s.ms = 10 + s.heads_kv / 5.0, s.peak_gib = 2 + s.heads_kv * 0.08;
        add_step(s, "ok", "");
    }
    s = plain;
    for (s.batch = 1; s.batch <= 16; s.batch *= 4) {
        s.ms = 4 + s.batch;
        add_step(s, "ok", "");
    }
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "1 key and value heads instead of 25: parameters -19.2 %, time -32.0 %, memory -48.0 %.", true);
    expect(text, "Batch 16 instead of 1 makes 4.00 times as many tokens/s", true);
    free(text);
}

static void a_padded_vocabulary_is_held_against_the_other(void **state)
{
    for (int better = 0; better < 2; better++) {
        begin(STEP_HEADER);
        step s = plain;
        s.vocab = 50257;
        add_step(s, "ok", "");
        s.vocab = 50304, s.ms = better ? 8 : 11;
        add_step(s, "ok", "");
        char *text = report_of(*state, "bench_transformer.csv");
        expect(text, "50304 words instead of 50257: a step takes 20.0 % less time.", better);
        expect(text, "50304 words instead of 50257: a step takes 10.0 % more time.", !better);
        free(text);
    }
}

static void shares_of_the_peak_pair_rows(void **state)
{
    begin(STEP_HEADER);
    step s = plain;
    for (s.layers = 4; s.layers <= 8; s.layers += 4)
        for (s.heads_kv = 8; s.heads_kv <= 32; s.heads_kv += 24) {
            s.recompute = "none", s.mfu = 40 + s.layers;
            add_step(s, "ok", "");
            s.recompute = "block", s.mfu = 30 + s.layers + s.heads_kv / 8;
            add_step(s, "ok", "");
        }
    char *text = report_of(*state, "bench_transformer.csv");
    expect(text, "## Shares of the peak", true);
    expect(text, "Blocks from 4 to 8: MFU by 4.00 to 4.00 points, HFU by 4.00 to 4.00 (4 pairs).", true);
    expect(text, "Recomputation from none to block: MFU by -9.00 to -6.00 points", true);
    expect(text, "Key and value heads from 8 to 32: MFU by 0 to 3.00 points", true);
    expect(text, "S from", false);
    expect(text, "Attention from", false);
    free(text);
}

/* ---- numbers of ranks ---- */

#define RANKS_HEADER                                                                                                   \
    "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,attention,recompute,grad_dtype,ranks,"    \
    "bucket_mb,prefetch,gather,free_every,bucket_bytes,step_ms,global_batch,wire_dtype,tokens_per_s,exposed_ms,"       \
    "mfu_causal_pct,peak_bytes,param_bytes,state_bytes,run_id,campaign,machine,gpu,device,sm_mhz,throttle,commit,"     \
    "dirty,utc\n"

static const char *gather = "nccl"; /* of rows that gather */

static void add_ranks(const char *variant, const char *precision, int ranks, int batch, double ms, double peak_gib)
{
    const bool units = strcmp(variant, "ddp") != 0 && strcmp(variant, "zero1") != 0, fp32 = precision[0] == 'f';
    add("2,1,bench_fsdp,%s,%s,,xl,%d,512,%s,train-step,flash,none,%s,%d,%s,%s,%s,%s,1,", variant, ms > 0 ? "ok" : "oom",
        batch, precision, fp32 ? "policy" : "fp32", ranks, units ? "" : "25", units ? "1" : "", units ? gather : "",
        strcmp(variant, "fsdp") ? "" : "1");
    if (ms > 0)
        add("%g,%d,fp32,%g,1,40,%.0f,%.0f,%.0f,", ms, batch * ranks, 1e3 * batch * ranks * 512 / ms, peak_gib * 0x1p30,
            0x1p30, 3 * 0x1p30);
    else
        add("nan,nan,,nan,nan,nan,nan,nan,nan,");
    add("run-1,run-a,box,G,cuda,1980,,abc,0,2026-11-21T10:00:00Z\n");
}

static void plant_ranks(void)
{
    begin(RANKS_HEADER);
    add_ranks("fsdp", "bf16", 1, 4, 0, 0); /* does not fit */
    add_ranks("fsdp", "bf16", 2, 4, 20, 30);
    add_ranks("fsdp", "bf16", 4, 4, 25, 20);
    add_ranks("ddp", "bf16", 1, 8, 40, 30);
    add_ranks("ddp", "bf16", 2, 4, 25, 20);
    add_ranks("ddp", "bf16", 4, 2, 12.5, 15);
}

static void weak_and_strong_scaling(void **state)
{
    plant_ranks();
    char *text = report_of(*state, "bench_fsdp.csv");
    expect(text, "## Weak and strong scaling", true);
    expect(text,
           "- fsdp, xl bf16, batch per rank 4: from 2 to 4 ranks a step of 20.0 ms becomes one of 25.0 ms, 80.0 % of "
           "linear; the memory of a rank goes from 30.0 GiB to "
           "20.0 GiB.",
           true);
    expect(text, "| fsdp | xl | bf16 |  | 512 | 1 | 4 | 4 | oom |", true);
    expect(text,
           "ddp, xl bf16, batch of all ranks 8: from 1 to 4 ranks a step of 40.0 ms becomes one of 12.5 ms, 80.0 %",
           true);
    expect(text, "ddp, xl bf16, batch per rank", false); /* no two rows have the same */
    free(text);
}

static void plant_slices(void)
{
    begin(RANKS_HEADER);
    gather = "copy"; /* not what the others are held against */
    add_ranks("fsdp", "bf16", 2, 4, 54, 20);
    gather = "nccl";
    for (int ranks = 1; ranks <= 2; ranks++) {
        add_ranks("ddp", "fp32", ranks, 4, 100, 40);
        add_ranks("ddp", "bf16", ranks, 4, 50, 30);
        add_ranks("zero1", "bf16", ranks, 4, 48, 25);
        add_ranks("fsdp", "bf16", ranks, 4, 60, 20);
        add_ranks("fsdp-keep", "bf16", ranks, 4, 54, 22);
    }
}

static void slices_are_lines(void **state)
{
    plant_slices();
    char *text = report_of(*state, "bench_fsdp.csv");
    expect(text, "### Several ranks: xl, S 512, batch 4 on each of 2 ranks", true);
    expect(text, "on each of 1 ranks", false);
    expect(text, "with gradients sent in bf16", false); /* those files have no such option */
    expect(text, "with gains of norms on every rank", false);
    expect(text, "| + bf16, gradients in fp32 | 4.00 | 30.0 | 50.0 | 2.00 |", true);
    expect(text, "| + parameters in slices (FSDP) | 4.00 | 20.0 | 60.0 | 0.800 |", true);
    expect(text, "\"with parameters kept after the forward\": 10.0 % less time, 2.00 GiB more at the peak.", true);
    expect(text, "\"with gathers by copy engines\": 10.0 % less time, as much at the peak.", true);
    expect(text, "with updates beside the backward", false);
    free(text);
}

/* ---- figures ---- */

/* Whether plots/draw.sh, of a bench that names one figure, makes a file of this name. */
static bool drawn(const char *folder, const char *file, const char *figure, const char *name)
{
    char *bench = folder_path(folder, "bench_x"), *out = folder_path(folder, "out"), *build = build_folder();
    char *dir = folder_path(folder, "box"), *csv = folder_path(dir, file);
    char *script = xasprintf("#!/bin/sh\n[ \"$1\" = --list-runs ] && printf 'order\\t1\\nfigure\\t%s\\n'\n", figure);
    mkdir(dir, 0777);
    file_write(csv, rows);
    file_write(bench, script);
    assert_int_equal(chmod(bench, 0777), 0);
    char *command = xasprintf("rm -rf '%s' && BENCHES='%s' REPORT='%s/report' sh plots/draw.sh '%s' '%s' >&2", out,
                              folder, build, dir, out);
    assert_int_equal(system(command), 0);
    char *svg = xasprintf("%s/%s.svg", out, name);
    const bool is = access(svg, F_OK) == 0;
    unlink(csv);
    free(svg);
    free(command);
    free(script);
    free(csv);
    free(dir);
    free(build);
    free(out);
    free(bench);
    return is;
}

/* Three numbers of heads, and four precisions of another shape, which has no number of its own. */
static void plant_heads(void)
{
    begin(STEP_HEADER);
    step s = plain;
    for (s.heads_kv = 25; s.heads_kv; s.heads_kv /= 5)
        add_step(s, "ok", "");
    static const char *const precisions[] = {"fp32", "tf32", "bf16", "bf16-pure"};
    s = plain, s.seq = 1024;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        s.precision = precisions[i];
        add_step(s, "ok", "");
    }
}

static void figures_are_drawn(void **state)
{
    if (system("command -v gnuplot >/dev/null 2>&1") != 0)
        skip();
    plant_ladder(true, "run-a");
    assert_true(drawn(*state, "bench_transformer.csv", "ladder", "ladder_xl_512"));
    plant_ladder(false, "run-a"); /* without the first line there is none */
    assert_false(drawn(*state, "bench_transformer.csv", "ladder", "ladder_xl_512"));
    plant_widths(240);
    assert_true(drawn(*state, "bench_transformer.csv", "width", "width"));
    plant_heads();
    assert_true(drawn(*state, "bench_transformer.csv", "scaling", "scaling_heads"));
    plant_ranks();
    assert_true(drawn(*state, "bench_fsdp.csv", "ranks_scaling", "ranks_scaling_xl_512_bf16_fp32"));
    plant_slices();
    assert_true(drawn(*state, "bench_fsdp.csv", "ladder", "ladder_ranks_xl_2"));
    plant_slices();
    assert_true(drawn(*state, "bench_fsdp.csv", "fsdp", "fsdp"));
    char *path = folder_path(*state, "out/fsdp.svg"), *svg = file_text(path);
    const char *first = strstr(svg, ">fsdp<");
    assert_true(first && strstr(svg, ">ddp<") && strstr(svg, ">zero1<"));
    assert_null(strstr(first + 1, ">fsdp<")); /* the one with the usual options alone */
    free(svg);
    free(path);
    begin(RANKS_HEADER);
    add_ranks("fsdp", "bf16", 2, 4, 20, 30);
    assert_false(drawn(*state, "bench_fsdp.csv", "ranks_scaling", "ranks_scaling_xl_512_bf16_fp32"));
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {in_folder(each_feature_is_a_line),
                                       in_folder(what_does_not_fit_is_a_line),
                                       in_folder(lines_of_two_runs_give_no_factor),
                                       in_folder(three_lines_are_no_ladder),
                                       in_folder(depth_is_a_line),
                                       in_folder(contexts_say_what_fits),
                                       in_folder(a_width_is_held_against_its_neighbours),
                                       in_folder(heads_and_batches),
                                       in_folder(a_padded_vocabulary_is_held_against_the_other),
                                       in_folder(shares_of_the_peak_pair_rows),
                                       in_folder(weak_and_strong_scaling),
                                       in_folder(slices_are_lines),
                                       in_folder(figures_are_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
