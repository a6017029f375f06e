/* SPDX-License-Identifier: MIT */
/* The course's problems of several ranks in the report: their numbers are those of the rows that a problem asks for, GPUs'
 * before CPUs', and no ratio goes beyond one run. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/error.h"
#include "tests/support/bench_run.h"

static void put(const char *dir, const char *name, const char *text)
{
    char *path = folder_path(dir, name);
    file_write(path, text);
    free(path);
}

/* The answer to a problem in the report of the folder, "" where there is none. Caller frees. */
static char *answer_of(const char *dir, const char *problem)
{
    char *text = report_text(dir), *heading = xasprintf("### %s (2", problem);
    const char *begin = strstr(text, heading), *end = begin ? strstr(begin, "\nFor the rest see") : NULL;
    assert_true(!begin || end);
    char *answer = begin ? xasprintf("%.*s", (int)(end - begin), begin) : xstrdup("");
    free(heading);
    free(text);
    return answer;
}

static void expect(const char *text, const char *wanted, bool there)
{
    if (!strstr(text, wanted) == there)
        fail_msg("'%s' is %s:\n%s", wanted, there ? "missing" : "there", text);
}

static void answers(const char *dir, const char *problem, const char *wanted)
{
    char *text = answer_of(dir, problem);
    expect(text, wanted, true);
    free(text);
}

static void does_not_answer(const char *dir, const char *problem, const char *unwanted)
{
    char *text = answer_of(dir, problem);
    expect(text, unwanted, false);
    free(text);
}

static char *machine_folder(const char *folder)
{
    char *dir = folder_path(folder, "box-x2");
    mkdir(dir, 0777);
    return dir;
}

/* ---- data parallelism ---- */

#define DDP_COLUMNS                                                                                                    \
    "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,grad_dtype,update,bucket_mb,step_ms,"    \
    "wire_dtype,buckets,step_p5_ms,step_p95_ms,exposed_ms,exposed_lo_ms,exposed_hi_ms,tail_ms,contention_ms,"          \
    "comm_alone_ms,err_grad,err_param,o_us,w_gb_s,predicted_ms,predicted_best_mb,after_step_bytes,state_bytes,"        \
    "wire_bytes,campaign,gpu_uuid,device,check,utc\n"

typedef struct line {
    const char *variant, *size, *device, *run;
    double step, exposed, mb, predicted, held; /* mb 0: no buckets; held: GiB, of which half is state, 0: not counted */
} line;

static void write_lines(const char *dir, const char *name, const line *lines, size_t n)
{
    char *path = folder_path(dir, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(DDP_COLUMNS, out);
    for (size_t i = 0; i < n; i++) {
        const line *l = &lines[i];
        const bool after = strstr("naive flat flat-copy", l->variant);
        fprintf(out, "2,2,bench_ddp,%s,ok,,2,%s,2,512,bf16,fp32,%s,", l->variant, l->size, after ? "after" : "buckets");
        if (l->mb > 0)
            fprintf(out, "%g", l->mb);
        fprintf(out, ",%g,fp32,%d,%g,%g,%g,%g,%g,1,%g,40,%g,0.002,", l->step, strncmp(l->variant, "flat", 4) ? 99 : 1,
                l->step - 0.1, l->step + 0.1, l->exposed, l->exposed - 0.2, l->exposed + 0.2, l->exposed - 1,
                1e-3 * (double)(i + 1));
        if (l->predicted > 0)
            fprintf(out, "10,300,%g,30,", l->predicted);
        else
            fprintf(out, "nan,nan,nan,nan,");
        if (l->held > 0)
            fprintf(out, "%.0f,%.0f,%.0f,", l->held * 0x1p30, l->held * 0x1p29, l->held * 0x1p28);
        else
            fprintf(out, "nan,nan,nan,");
        fprintf(out, "%s,GPU-1,%s,1,2026-11-22T10:00:00Z\n", l->run, l->device);
    }
    fclose(out);
    free(path);
}
#define WRITE(dir, name, ...)                                                                                          \
    write_lines(dir, name, (const line[]){__VA_ARGS__}, sizeof((const line[]){__VA_ARGS__}) / sizeof(line))

/* 80 ms of which 20 are communication; flat takes 60, its copies 30 more than that. */
static void strategies_are_compared_within_a_run(void **state)
{
    char *dir = machine_folder(*state);
    static const char flat[] = "minimal_ddp_flat_benchmarking",
                      overlap[] = "ddp_overlap_individual_parameters_benchmarking";
    WRITE(dir, "bench_ddp_naive.csv", {"naive", "xl", "cuda", "run-1", 80, 20, 0, 0, 0});
    WRITE(dir, "bench_ddp_flat.csv", {"flat", "xl", "cuda", "run-1", 60, 10, 0, 0, 0},
          {"flat-copy", "xl", "cuda", "run-1", 90, 11, 0, 0, 0});
    WRITE(dir, "bench_ddp_overlap.csv", {"overlap", "xl", "cuda", "run-1", 50, 5, 0, 0, 0});
    answers(dir, "naive_ddp_benchmarking",
            "of a step of 80.00 ms, 20.00 ms (25.0 %) are communication. Its 99 all-red");
    answers(dir, flat, "99 calls in a step become 1.");
    answers(dir, flat,
            "The step of `flat-copy` is 10.00 ms (12.5 %) longer than that of `naive` (5th to 95th percentiles "
            "don't meet).");
    answers(dir, flat, "The step of `flat-copy` is 30.00 ms (50.0 %) longer than that of `flat`");
    answers(dir, flat, "The step of `flat` is 20.00 ms (25.0 %) shorter than that of `naive`");
    answers(dir, overlap,
            "Of 40.00 ms that the calls take alone, `overlap` exposes 5.000 [4.800, 5.200] ms: 1.000 ms in");
    answers(dir, overlap, "The step of `overlap` is 30.00 ms (37.5 %) shorter than that of `naive`");
    WRITE(dir, "bench_ddp_flat.csv", {"flat", "xl", "cuda", "run-2", 60, 10, 0, 0, 0});
    answers(dir, flat, "`flat` and `naive` are of different runs and are not compared.");
    does_not_answer(dir, flat, "shorter");
    free(dir);
}

static void gpus_stand_before_cpus(void **state)
{
    char *dir = machine_folder(*state);
    const line on_gpu = {"naive", "xl", "cuda", "run-1", 80, 20, 0, 0, 0},
               on_cpu = {"naive", "tiny", "cpu", "run-1", 8, 6, 0, 0, 0},
               on_cpu_too = {"naive-grouped", "tiny", "cpu", "run-1", 9, 6, 0, 0, 0};
    WRITE(dir, "bench_ddp_naive.csv", on_cpu, on_cpu_too, on_gpu);
    answers(dir, "naive_ddp_benchmarking", "of a step of 80.00 ms");
    does_not_answer(dir, "naive_ddp_benchmarking", "8.000");
    answers(dir, "naive_ddp", "1 of 1 cases agree");
    WRITE(dir, "bench_ddp_naive.csv", on_cpu);
    answers(dir, "naive_ddp_benchmarking", "2 ranks, on CPUs: of a step of 8.000 ms");
    answers(dir, "naive_ddp", "1 of 1 cases, on CPUs, agree");
    free(dir);
}

static void bucket_sizes_and_their_model(void **state)
{
    char *dir = machine_folder(*state);
    static const char sizes[] = "ddp_bucketed_benchmarking (a)", model[] = "ddp_bucketed_benchmarking (b)";
    WRITE(dir, "bench_ddp_bucketed.csv", {"bucketed", "xl", "cuda", "run-1", 60, 20, 1, 5, 0},
          {"bucketed", "xl", "cuda", "run-1", 50, 10, 10, 4, 0}, {"bucketed", "xl", "cuda", "run-1", 40, 8, 100, 6, 0});
    WRITE(dir, "bench_ddp_overlap.csv", {"overlap", "xl", "cuda", "run-1", 80, 30, 0, 0, 0});
    answers(dir, sizes,
            "Each larger size makes the step shorter. The step of `bucketed 100 MB` is 20.00 ms (33.3 %) shorter "
            "than that of `bucketed 1 MB`");
    answers(dir, sizes, "The step of `bucketed 100 MB` is 40.00 ms (50.0 %) shorter than that of `overlap`");
    answers(dir, sizes, "No other size's percentiles meet those of the best.");
    answers(dir, model, "so 30.0 MB; of the sizes measured, 10 MB is nearest and 100 MB best.");
    answers(dir, model,
            "its overhead is off by -75.0 to -25.0 %, always too low: it leaves out that collectives slow "
            "down the compute beside them, 7.00 to 19.0 ms here.");
    WRITE(dir, "bench_ddp_bucketed.csv", {"bucketed", "xl", "cuda", "run-1", 60, 20, 1, 25, 0},
          {"bucketed", "xl", "cuda", "run-1", 39.9, 10, 10, 4, 0},
          {"bucketed", "xl", "cuda", "run-1", 40, 8, 100, 6, 0});
    answers(dir, sizes, "The best size lies between the smallest and the largest.");
    answers(dir, sizes, "whose percentiles meet its own: 100 MB.");
    answers(dir, model, "of the sizes measured, the nearest is also the best, 10 MB.");
    does_not_answer(dir, model, "always");
    free(dir);
}

static void sharded_state(void **state)
{
    char *dir = machine_folder(*state);
    static const char memory[] = "optimizer_state_sharding_accounting (a)",
                      step[] = "optimizer_state_sharding_accounting (b)",
                      sent[] = "optimizer_state_sharding_accounting (c)";
    WRITE(dir, "bench_zero1.csv", {"unsharded", "xl", "cuda", "run-1", 50, 5, 25, 0, 20},
          {"zero1", "xl", "cuda", "run-1", 45, 6, 25, 0, 12},
          {"zero1-broadcast", "xl", "cuda", "run-2", 70, 30, 25, 0, 14});
    answers(dir, memory,
            "a rank's state after an update is 6.00 instead of 10.0 GiB, and all it holds 12.0 instead of 20.0 "
            "GiB (40.0 % less)");
    answers(dir, step, "`zero1-broadcast 25 MB` and `unsharded 25 MB` are of different runs and are not compared.");
    answers(dir, step, "The step of `zero1 25 MB` is 5.000 ms (10.0 %) shorter than that of `unsharded 25 MB`");
    answers(dir, sent,
            "it sends 5.00 GiB by `unsharded`, 3.50 GiB by `zero1-broadcast`, 3.00 "
            "GiB by `zero1`");
    free(dir);
}

/* ---- the check ---- */

#define CHECK_COLUMNS                                                                                                  \
    "schema,method,bench,variant,status,reason,ranks,size,batch,precision,step_ms,wire_dtype,err_grad,err_param,"      \
    "device,check,utc\n"
#define CHECKED(batch, status, reason, grad, param, check)                                                             \
    "2,2,bench_fsdp,fsdp," status "," reason ",2,tiny," batch ",bf16,nan,fp32," grad "," param ",cuda," check          \
    ",2026-11-22T10:00:00Z\n"

static void the_worst_error_of_checked_rows(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "bench_fsdp.csv",
        CHECK_COLUMNS CHECKED("1", "ok", "", "0.001", "0.02", "1") CHECKED("2", "ok", "", "0.003", "0.01", "1")
            CHECKED("3", "ok", "", "0.9", "0.9", "0") CHECKED("4", "skip", "no", "nan", "nan", "1"));
    answers(dir, "fsdp", "| fsdp | 2 | bf16 | fp32 | 2 | 0.00300 | 0.0200 |");
    answers(dir, "fsdp", "2 of 2 cases agree with one rank that computes everything.");
    put(dir, "bench_fsdp.csv",
        CHECK_COLUMNS CHECKED("1", "ok", "", "0.001", "0.02", "1")
            CHECKED("2", "fail", "wq is off", "nan", "nan", "1"));
    answers(dir, "fsdp", "1 of 2 cases agree with one rank that computes everything; first to fail: wq is off.");
    free(dir);
}

/* ---- everything in parts ---- */

#define FSDP(variant, prefetch, gpu, step, held, forward, backward)                                                    \
    FSDP_OF("xl", "2e9", variant, prefetch, gpu, step, held, forward, backward)
#define FSDP_OF(size, params, variant, prefetch, gpu, step, held, forward, backward)                                   \
    "2,2,bench_fsdp," variant ",ok,,2," size ",2,512,bf16," prefetch "," step ",fp32,5," params "," held "," forward   \
    "," backward ",1e9,run-1," gpu ",cuda,1,2026-11-22T10:00:00Z\n"
#define FSDP_COLUMNS                                                                                                   \
    "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,prefetch,step_ms,wire_dtype,exposed_ms," \
    "params,after_step_bytes,forward_peak_bytes,backward_peak_bytes,update_peak_bytes,campaign,gpu_uuid,device,check," \
    "utc\n"

/* A row of another option of fsdp is faster and holds less, but the problem does not ask for it. A larger model has
 * nothing beside its fsdp. */
static void fsdp_against_ddp(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "bench_fsdp.csv",
        FSDP_COLUMNS FSDP("ddp", "", "GPU-1", "100", "4e9", "6e9", "8e9")
            FSDP("zero1", "", "GPU-2", "50", "3e9", "4e9", "5e9") FSDP("fsdp", "1", "GPU-1", "120", "1e9", "4e9", "6e9")
                FSDP("fsdp", "0", "GPU-1", "10", "1e8", "1e8", "1e8")
                    FSDP_OF("2.7b", "3e9", "fsdp", "1", "GPU-1", "300", "2e9", "8e9", "9e9"));
    answers(dir, "fsdp_accounting",
            "Against `ddp` it holds 0.250 times as much between steps and 0.750 at the peak, and a "
            "step takes 1.20 times as long.");
    answers(dir, "fsdp_accounting", "`zero1` is of another run and is not compared.");
    free(dir);
}

/* ---- collectives ---- */

#define REDUCED(ranks, bytes, device, backend, ms, run)                                                                \
    "2,2,bench_allreduce,all-reduce,ok,," ranks "," bytes ",fp32,1,eager," ms ",0.01,3," backend "," run               \
    ",GPU-1," device ",2026-11-22T10:00:00Z\n"
#define COLLECTIVES                                                                                                    \
    "schema,method,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_ms,std_ms,busbw_gb_s,backend,"   \
    "campaign,gpu_uuid,device,utc\n"

static void an_all_reduce_grows_within_a_run(void **state)
{
    static const char problem[] = "distributed_communication_single_node";
    char *dir = machine_folder(*state);
    put(dir, "bench_allreduce.csv",
        COLLECTIVES REDUCED("2", "100000000", "cuda", "nccl 2.28", "0.5", "run-1")
            REDUCED("2", "1000000000", "cuda", "nccl 2.28", "4", "run-1")
                REDUCED("4", "100000000", "cuda", "nccl 2.28", "1", "run-1")
                    REDUCED("4", "1000000000", "cuda", "nccl 2.28", "6", "run-1")
                        REDUCED("2", "1000000000", "cpu", "gloo", "400", "run-1")
                            REDUCED("4", "1000000000", "cpu", "gloo", "900", "run-2"));
    answers(dir, problem, "| NCCL, GPUs | 4 | | | 1.00 ± 0.0100, 3.00 | 6.00 ± 0.0100, 3.00 |");
    answers(dir, problem, "NCCL, GPUs: on 4 ranks 1 GB takes 6.00 times as long as 100 MB.");
    answers(dir, problem,
            "For 1 GB 4 ranks take 1.50 times as long as 2, where a ring sends 1.50 times as much per rank.");
    answers(dir, problem, "On 2 ranks Gloo takes 100 times as long as NCCL for 1 GB.");
    does_not_answer(dir, problem, "On 4 ranks Gloo");
    does_not_answer(dir, problem, "2.25 times");
    free(dir);
}

/* ---- on paper ---- */

/* Rows of another mesh are not its answer. A run of a bench replaces the rows of the one before. */
static void paper_answers_for_the_handouts_mesh(void **state)
{
    char *dir = folder_path(*state, "results/test-x1");
    static const char bench[] = "bench_accounting", bound[] = "communication_accounting (c)";
    csv_free(bench_rows(*state, bench, "", "--variant compute_bound --batch 0 --x 8", EXIT_CODE_OK));
    does_not_answer(dir, bound, "per device");
    csv_free(bench_rows(*state, bench, "", "--variant compute_bound --batch 0 --x 8,16", EXIT_CODE_OK));
    answers(dir, bound, "from a batch of 25301.7 tokens on, **395.3 per device**");
    csv_free(bench_rows(*state, bench, "", "--variant memory --device-memory 80GB --tokens 0", EXIT_CODE_OK));
    answers(dir, "communication_accounting (a)", "16 P = 3517.58 GB (3276.0 GiB), or 43.97 devices of 80 GB, so 44.");
    csv_free(bench_rows(*state, bench, "", "--variant closed_forms --batch 0,16384", EXIT_CODE_OK));
    answers(dir, "alternate_ring_all_reduce", "on N = 64 devices that is 1832 ms against 57.3 ms.");
    answers(dir, "data_parallel_calcs", "| N <= 1 + B rho | - | 7.41 | - |");
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(strategies_are_compared_within_a_run, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(gpus_stand_before_cpus, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(bucket_sizes_and_their_model, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(sharded_state, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(the_worst_error_of_checked_rows, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(fsdp_against_ddp, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(an_all_reduce_grows_within_a_run, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(paper_answers_for_the_handouts_mesh, folder_create, folder_remove)};
    return cmocka_run_group_tests_name("problems of several ranks in the report", tests, NULL, NULL);
}
