/* SPDX-License-Identifier: MIT */
/* Data parallelism in the report: strategies from five files in one table, what is said of their order and of bucket
 * sizes, ZeRO-1's memory, PyTorch beside them, and the file that the figures are drawn from. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/csv.h"
#include "common/core/error.h"

#define BEGIN                                                                                                          \
    "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,grad_dtype,update,max_ctas,bucket_mb,"   \
    "global_batch,wire_dtype,buckets,step_ms,step_p5_ms,step_p95_ms,twin_ms,exposed_ms,exposed_lo_ms,exposed_hi_ms,"   \
    "comm_alone_ms,wire_bytes,tokens_per_s,o_us,w_gb_s,predicted_ms,predicted_best_mb,kappa,predicted_contention_ms,"  \
    "param_bytes,grad_bytes,state_bytes,after_init_bytes,before_step_bytes,after_step_bytes,predicted_init_bytes,"     \
    "predicted_before_bytes,predicted_after_bytes,err_pct,machine,gpu,device,commit,utc\n"

/* A row of xl in bf16. */
typedef struct line {
    const char *variant, *status, *time; /* of day: later ones are newer */
    double step, exposed, half;          /* exposed -+ half is the interval */
    double mb, state;                    /* 0: no buckets; GiB, 0: nothing about memory */
    int ranks, ctas;
} line;

static line timed(const char *variant, double step, double exposed, double half)
{
    line l = {.variant = variant, .status = "ok", .time = "10:00:00", .ranks = 2};
    l.step = step, l.exposed = exposed, l.half = half;
    return l;
}

static line bucket(const char *variant, double mb, double step, double exposed, double half)
{
    line l = timed(variant, step, exposed, half);
    l.mb = mb;
    return l;
}

static line sharded(const char *variant, double state, double step)
{
    line l = bucket(variant, 25, step, 2, 0.5);
    l.state = state;
    return l;
}

static line with_ctas(line l, int ctas)
{
    l.ctas = ctas;
    return l;
}

static line on_ranks(line l, int ranks)
{
    l.ranks = ranks;
    return l;
}

static line failed(const char *variant, const char *status, const char *time)
{
    line l = timed(variant, 1, 1, 1);
    l.status = status, l.time = time;
    return l;
}

static void write_line(FILE *out, const line *l)
{
    static const char nothing[] = "nan,nan,nan,nan,nan,nan,nan,nan,nan,nan";
    const double gib = 0x1p30, state = l->state * gib;
    const bool ok = strcmp(l->status, "ok") == 0, after = strstr("naive naive-grouped flat flat-copy", l->variant);
    fprintf(out, "1,1,bench_ddp,%s,%s,,%d,xl,2,512,bf16,policy,%s,%d,", l->variant, l->status, l->ranks,
            after ? "after" : "buckets", l->ctas);
    if (l->mb > 0)
        fprintf(out, "%g", l->mb);
    if (ok)
        fprintf(out, ",%d,bf16,%d,%g,%g,%g,%g,%g,%g,%g,20,1e9,%g,", 2 * l->ranks, l->mb > 0 ? 100 : 435, l->step,
                l->step - 0.2, l->step + 0.2, l->step - l->exposed, l->exposed, l->exposed - l->half,
                l->exposed + l->half, l->ranks * 2 * 512 / l->step * 1e3);
    else
        fprintf(out, ",nan,,nan,nan,nan,nan,nan,nan,nan,nan,nan,nan,nan,");
    if (ok && l->mb > 0 && !(state > 0))
        fprintf(out, "20,330,%g,50,0.25,%s,", 100 / l->mb, l->mb > 1 ? "2" : "nan");
    else
        fprintf(out, "nan,nan,nan,nan,nan,nan,");
    if (state > 0)
        fprintf(out, "%g,%g,%.9g,%g,%g,%.9g,%g,%g,%.9g,0", 3.5 * gib, 3.5 * gib, state, 3.5 * gib, 7 * gib,
                7 * gib + state, 3.5 * gib, 7 * gib, 7 * gib + state);
    else
        fputs(nothing, out);
    fprintf(out, ",box-x2,GPU,cuda,abc,2026-11-21T%sZ\n", l->time);
}

static void write_file(const char *dir, const char *name, const line *lines, size_t n)
{
    char *path = folder_path(dir, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(BEGIN, out);
    for (size_t i = 0; i < n; i++)
        write_line(out, &lines[i]);
    fclose(out);
    free(path);
}
#define WRITE(dir, name, ...)                                                                                          \
    write_file(dir, name, (const line[]){__VA_ARGS__}, sizeof((const line[]){__VA_ARGS__}) / sizeof(line))

static char *machine_folder(const char *folder)
{
    char *results = folder_path(folder, "results"), *dir = folder_path(results, "box-x2");
    mkdir(results, 0777);
    mkdir(dir, 0777);
    free(results);
    return dir;
}

static void has(const char *text, const char *wanted)
{
    if (!strstr(text, wanted))
        fail_msg("the report lacks '%s':\n%s", wanted, text);
}

static line naive(void)
{
    return timed("naive", 120, 21, 1);
}

static line overlap(void)
{
    return timed("overlap", 101, 2, 0.5);
}

static void strategies_stand_in_one_table(void **state)
{
    char *dir = machine_folder(*state);
    WRITE(dir, "bench_ddp_naive.csv", naive(), timed("naive-grouped", 118, 19, 1));
    WRITE(dir, "bench_ddp_flat.csv", timed("flat", 115, 16, 0.5), failed("flat-copy", "oom", "10:00:00"));
    WRITE(dir, "bench_ddp_overlap.csv", overlap(), with_ctas(timed("overlap", 100, 1, 0.1), 8));
    WRITE(dir, "bench_ddp_bucketed.csv", bucket("bucketed", 1, 104, 5, 0.5), bucket("bucketed", 10, 100.5, 1.8, 0.4));
    char *text = report_text(dir);
    has(text, "### xl, batch 2 per rank, S 512, bf16, gradients bf16, 2 ranks");
    has(text, "| naive | 120.0 (- ± -) | 21.00 [20.00, 22.00] | 20.00 |");
    has(text, "| 435 |\n");
    has(text, "| flat-copy | oom | |");
    has(text, "| overlap (8 CTAs) | 100.0");
    const char *table = strstr(text, "\n## Data parallelism\n"); /* other sections show some of its rows */
    assert_non_null(table);
    assert_true(strstr(table, "| naive | 120") < strstr(table, "| naive-grouped |"));
    assert_true(strstr(table, "| overlap (8 CTAs) |") < strstr(table, "| bucketed 1 MB |"));
    has(text, "naive ≥ flat ≥ overlap ≥ bucketed in exposed time **holds** in this run (2 of 3 neighbours told apart");
    has(text, "bucketed 10 MB 0.200 ms less than overlap (intervals meet)");
    has(text, "`bucketed 10 MB` stands for 2 sizes of buckets");
    has(text, "Whole steps (120.0, 115.0, 101.0, 100.5 ms): each takes no longer than the one before.");
    has(text, "(`naive-grouped`) makes a step 2.000 ms shorter than `naive` does (5th to 95th percentiles don't meet)");
    has(text,
        "- **Data parallelism** (xl, batch 2 per rank, S 512, bf16, gradients bf16, 2 ranks): a step of 100.5 ms");
    free(text);
    free(dir);
}

/* Its compute-only step copies as well, so that the copies cancel in its exposed time. */
static void copies_are_counted_in_steps(void **state)
{
    char *dir = machine_folder(*state);
    WRITE(dir, "bench_ddp_flat.csv", timed("flat", 63.8, 22.8, 0.5), timed("flat-copy", 74.1, 23.5, 0.5));
    char *text = report_text(dir);
    has(text, "Copying gradients together and back (`flat-copy`) makes a step 10.30 ms longer than `flat` does (5th to "
              "95th percentiles don't meet).");
    assert_null(strstr(text, "0.700 ms"));
    free(text);
    free(dir);
}

/* Exposed 8 of 20 ms alone is 60 % hidden, although compute ran beside 98 % of what was recorded. */
static void overlapped_stands_beside_hidden(void **state)
{
    char *dir = machine_folder(*state), *path = folder_path(dir, "bench_ddp_overlap.csv");
    file_write(path, "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,wire_dtype,step_ms,"
                     "exposed_ms,comm_alone_ms,hidden_pct,tail_ms,contention_ms,recorded_hidden_pct,utc\n"
                     "1,1,bench_ddp_overlap,overlap,ok,,2,xl,2,512,bf16,fp32,50,8,20,60,1,7,98,2026-11-21T10:00:00Z\n");
    char *text = report_text(dir);
    has(text, "| hidden % | overlapped % | tail ms | contention ms |");
    has(text, "| 20.00 | 60.0 | 98.0 | 1.000 | 7.000 |");
    free(text);
    free(path);
    free(dir);
}

/* A small model's step is shorter, but says less of a machine. */
static void the_largest_model_stands_for_the_machine(void **state)
{
    char *dir = machine_folder(*state), *path = folder_path(dir, "bench_ddp_overlap.csv");
    file_write(path, "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,wire_dtype,step_ms,"
                     "exposed_ms,params,device,utc\n"
                     "1,1,bench_ddp_overlap,overlap,ok,,2,small,2,512,bf16,fp32,5,2,100,cuda,2026-11-21T12:00:00Z\n"
                     "1,1,bench_ddp_overlap,overlap,ok,,2,xl,2,256,bf16,fp32,30,9,2000,cuda,2026-11-21T11:00:00Z\n"
                     "1,1,bench_ddp_overlap,overlap,ok,,2,xl,2,512,bf16,fp32,50,8,2000,cuda,2026-11-21T10:00:00Z\n");
    char *text = report_text(dir);
    has(text, "of a step of 50.00 ms (2 ranks, xl, S 512, overlap) | 0; share is that of the step | 16 % |");
    free(text);
    free(path);
    free(dir);
}

/* ddp is no sharded step, however short it is; FSDP2 stands beside fsdp with the sums that it makes. A larger model of which
 * only sharded steps were measured is not what the sentence is of. */
static void sharded_steps_in_short(void **state)
{
    char *dir = machine_folder(*state), *path = folder_path(dir, "bench_fsdp.csv"),
         *peers = folder_path(dir, "peer_ddp.csv");
    file_write(
        path,
        "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,recompute,wire_dtype,step_ms,"
        "peak_bytes,params,device,utc,run_id,gpu_uuid\n"
        "1,1,bench_fsdp,fsdp,ok,,2,small,2,512,bf16,none,fp32,5,1e9,100,cpu,2026-11-21T10:00:00Z,r,GPU-a\n"
        "1,1,bench_fsdp,ddp,ok,,2,xl,2,512,bf16,none,fp32,40,1e9,2000,cpu,2026-11-21T10:00:00Z,r,GPU-a\n"
        "1,1,bench_fsdp,zero2,ok,,2,xl,2,512,bf16,none,fp32,45,21474836480,2000,cpu,2026-11-21T10:00:00Z,r,GPU-a\n"
        "1,1,bench_fsdp,fsdp,ok,,2,xl,2,512,bf16,none,fp32,47,21474836480,2000,cpu,2026-11-21T10:00:00Z,r,GPU-a\n"
        "1,1,bench_fsdp,fsdp,ok,,2,xl,2,512,bf16,block,bf16,50,16106127360,2000,cpu,2026-11-21T10:00:00Z,r,GPU-a\n"
        "1,1,bench_fsdp,fsdp,ok,,2,2.7b,2,2048,bf16,none,fp32,184,2e10,9000,cpu,2026-11-21T10:00:00Z,r,GPU-a\n");
    file_write(peers,
               "bench,strategy,ranks,size,seq,batch_per_rank,precision,mode,step_ms,gpu_busy_pct,run_id,gpu_uuid\n"
               "ddp,fsdp2,2,xl,512,2,bf16,eager,141,95,r,GPU-a\n"
               "ddp,fsdp2,2,xl,512,2,bf16,compile-blocks,94,95,r,GPU-a\n"
               "ddp,fsdp2,2,xl,512,4,bf16,compile-blocks,60,95,r,GPU-a\n"
               "ddp,zero1,2,xl,512,2,bf16,compile-blocks,50,95,r,GPU-a\n");
    char *text = report_text(dir);
    has(text,
        "**Sharded training** (xl, batch 2 per rank, S 512, bf16, 2 ranks): the shortest step takes 45.00 ms and "
        "20.0 GiB at its peak (zero2, sums in fp32); the one of least memory 50.00 ms and 15.0 GiB at its peak "
        "(fsdp, sums in bf16, recompute block). PyTorch's FSDP2 (compile-blocks, sums in fp32) takes 94.00 ms, 2.00 "
        "times as long as our fsdp with such sums.");
    has(text, "| bf16 | bf16 |  | recompute block |");
    free(text);
    free(peers);
    free(path);
    free(dir);
}

static void an_order_that_does_not_hold_is_said(void **state)
{
    char *dir = machine_folder(*state);
    WRITE(dir, "bench_ddp_naive.csv", naive());
    WRITE(dir, "bench_ddp_flat.csv", timed("flat", 121, 21.5, 1));
    char *text = report_text(dir);
    has(text, "naive ≥ flat in exposed time **holds only within the intervals** (0 of 1 neighbours");
    has(text, "flat takes 1.000 ms (0.833 %) longer than naive, and their 5th to 95th percentiles don't meet.");
    free(text);
    WRITE(dir, "bench_ddp_flat.csv", timed("flat", 125, 26, 1));
    text = report_text(dir);
    has(text, "naive ≥ flat in exposed time **does not hold** in this run (1 of 1 neighbours told apart by their "
              "intervals): flat 5.000 ms more than naive (intervals separate).");
    free(text);
    free(dir);
}

static void a_newer_failure_replaces_a_row(void **state)
{
    char *dir = machine_folder(*state);
    WRITE(dir, "bench_ddp_naive.csv", naive(), failed("naive", "fail", "11:00:00"));
    WRITE(dir, "bench_ddp_flat.csv", timed("flat", 115, 16, 0.5));
    char *text = report_text(dir);
    has(text, "| naive | fail | |");
    assert_null(strstr(text, "| naive | 120"));
    assert_null(strstr(text, "naive ≥ flat"));
    free(text);
    free(dir);
}

static void bucket_sizes_that_tie_are_named(void **state)
{
    char *dir = machine_folder(*state);
    WRITE(dir, "bench_ddp_bucketed.csv", bucket("bucketed", 1, 108, 9, 1), bucket("bucketed", 10, 101, 2, 0.2),
          bucket("bucketed", 100, 101, 2.1, 0.2), bucket("bucketed", 1000, 104, 5, 1));
    char *text = report_text(dir);
    has(text, "| **10** | 100 | - | 101.0 | **2.000 [1.800, 2.200]** | - | - | 10.00 | 2.000 | - | - |");
    has(text, "o 20.0 us and w 330 GB/s");
    has(text, "sqrt(s o w), is 50.0 MB; with contention kappa = 0.250 of the 1 MB row, sqrt(kappa s o w) is 25.0 MB.");
    has(text,
        "Measured best: 10 MB with 2.000 [1.800, 2.200] ms exposed; the intervals of these sizes meet its own: 100 "
        "MB. ");
    has(text,
        "nearest to the predicted one, 100 MB, exposes 0.100 ms more (0.0990 % of the step), and the intervals meet.");
    free(text);
    free(dir);
}

/* From 1 MB, 40 ms alone, 22 waited for: slowdown (26 - 22) / (40 - 22), stretch (26 + 34) / 40. 10 MB: 1.5 x 36 - 34. */
static void another_size_is_predicted(void **state)
{
    char *dir = machine_folder(*state), *path = folder_path(dir, "bench_ddp_bucketed.csv");
    file_write(path,
               "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,update,bucket_mb,"
               "wire_dtype,buckets,step_ms,compute_ms,exposed_ms,comm_alone_ms,tail_ms,fwd_ms,opt_alone_ms,utc\n"
               "1,1,b,bucketed,ok,,2,xl,2,512,bf16,buckets,1,fp32,400,70,44,26,40,22,10,14,2026-11-21T10:00:00Z\n"
               "1,1,b,bucketed,ok,,2,xl,2,512,bf16,buckets,10,fp32,300,60,44,16,36,9,10,14,2026-11-21T10:00:00Z\n");
    char *text = report_text(dir);
    has(text, "| predicted exposed ms | off by % |");
    has(text, "| 20.00 | 25.0 |");
    has(text, "The contention of the 1 MB row predicts the exposed time of 1 other size within 25.0 % (10 MB: 20.00 ms "
              "for 16.00).");
    free(text);
    free(path);
    free(dir);
}

static void sharding_is_compared_with_the_whole_state(void **state)
{
    char *dir = machine_folder(*state);
    WRITE(dir, "bench_zero1.csv", sharded("unsharded", 20, 100), sharded("zero1", 10, 95), sharded("fused", 10, 90),
          with_ctas(sharded("fused", 10, 80), 4));
    char *text = report_text(dir);
    has(text,
        "| xl | 2 | bf16 | bf16 | zero1 | GiB | 3.50 | 3.50 | 10.0 | 3.50 / 3.50 | 7.00 / 7.00 | 17.0 / 17.0 | 0 |");
    has(text,
        "a rank holds 17.0 GiB after an update, unsharded 27.0 (37.0 % less); of which state 10.0, unsharded 20.0");
    has(text, "a step takes 95.00 ms, unsharded 100.0: 5.00 % shorter (5th to 95th percentiles don't meet)");
    has(text, "| 2 | 512 | bf16 | bf16 | zero1 25 MB | 95.00 | 0.950 |");
    has(text, "- **ZeRO-1** (xl");
    has(text,
        "; with sum, update and gather in one kernel (fused) 90.00 ms; the shortest step with slices takes 80.00 ms "
        "(fused 25 MB (4 CTAs)).");
    free(text);
    free(dir);
}

static void memory_of_the_driver_stands_beside_the_plan(void **state)
{
    char *dir = machine_folder(*state), *path = folder_path(dir, "bench_zero1.csv");
    file_write(path, "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,wire_dtype,step_ms,"
                     "exposed_ms,peak_bytes,param_bytes,grad_bytes,state_bytes,after_init_bytes,before_step_bytes,"
                     "after_step_bytes,predicted_init_bytes,predicted_before_bytes,predicted_after_bytes,err_pct,"
                     "comm_bytes,measured_after_step_bytes,err_measured_pct,utc\n"
                     "1,1,b,zero1,ok,,2,xl,2,512,bf16,fp32,50,8,21474836480,1e9,2e9,4e9,1e9,3e9,7e9,1e9,3e9,7e9,0,"
                     "1073741824,21689584844.8,1,2026-11-21T10:00:00Z\n");
    char *text = report_text(dir);
    has(text, "| driver / planned | off by % | communicators |");
    has(text, "| 0 | 20.2 / 20.0 | 1.00 | 1.00 |");
    free(text);
    free(path);
    free(dir);
}

static void figures_are_drawn_from_one_file(void **state)
{
    char *dir = machine_folder(*state), *out = folder_path(*state, "ddp.csv");
    char *arguments = xasprintf("--ddp %s %s", dir, out);
    report_run(arguments);
    assert_int_equal(access(out, F_OK), -1);
    WRITE(dir, "bench_ddp_naive.csv", naive(), on_ranks(timed("naive", 130, 30, 1), 4));
    WRITE(dir, "bench_ddp_overlap.csv", overlap(), with_ctas(timed("overlap", 100, 1, 0.1), 8),
          on_ranks(failed("overlap", "oom", "10:00:00"), 4));
    report_run(arguments);
    csv *c = csv_read(out);
    assert_non_null(c);
    assert_int_equal(c->rows, 4); /* the one without memory is left out */
    static const char *const wanted[][5] = {{"naive", "2", "plain", "1", "1"},
                                            {"overlap", "2", "plain", "2", "1"},
                                            {"overlap (8 CTAs)", "2", "8-CTAs", "3", "0"},
                                            {"naive", "4", "plain", "1", "1"}};
    static const char *const columns[] = {"label", "ranks", "how", "place", "best"};
    for (size_t r = 0; r < c->rows; r++)
        for (size_t k = 0; k < 5; k++)
            assert_string_equal(csv_cell(c, r, columns[k]), wanted[r][k]);
    assert_string_equal(csv_cell(c, 0, "gradients"), "bf16");
    assert_string_equal(csv_cell(c, 0, "compute_ms"), "99"); /* from a CSV whose column had the old name */
    csv_free(c);
    char *text = report_text(dir);
    has(text, "| 512 | bf16 | bf16 | naive | 17067 | 31508 (92.3 %) |");
    free(text);
    free(arguments);
    free(out);
    free(dir);
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {in_folder(strategies_stand_in_one_table),
                                       in_folder(copies_are_counted_in_steps),
                                       in_folder(overlapped_stands_beside_hidden),
                                       in_folder(the_largest_model_stands_for_the_machine),
                                       in_folder(sharded_steps_in_short),
                                       in_folder(an_order_that_does_not_hold_is_said),
                                       in_folder(a_newer_failure_replaces_a_row),
                                       in_folder(bucket_sizes_that_tie_are_named),
                                       in_folder(another_size_is_predicted),
                                       in_folder(sharding_is_compared_with_the_whole_state),
                                       in_folder(memory_of_the_driver_stands_beside_the_plan),
                                       in_folder(figures_are_drawn_from_one_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
