/* SPDX-License-Identifier: MIT */
/* Sentences of the report that compare: they follow the numbers, lead with the least factor, and say where a side was not
 * at its strength. Each from both sides. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"

static void expect(const char *text, const char *wanted, bool there)
{
    if (!strstr(text, wanted) == there)
        fail_msg("'%s' is %s:\n%.3000s", wanted, there ? "not in the report" : "in the report", text);
}

static void put(const char *dir, const char *name, const char *text)
{
    char *path = folder_path(dir, name);
    file_write(path, text);
    free(path);
}

/* ---- all-reduces of our own ---- */

#define COLLECTIVE(variant, size, mode, ms)                                                                            \
    "1,1,bench_allreduce," variant ",ok,,2," size ",bf16,1," mode "," ms ",1,1,0.01," size "B,20,nccl 2.28.3,run-1,"   \
    "box-x2,NVIDIA H200,cuda,1980,,abc,0,2026-11-21T10:00:00Z\n"
static const char collectives[] =
    "schema,method,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_ms,algbw_gb_s,busbw_gb_s,std_ms,"
    "size,n_samples,backend,run_id,machine,gpu,device,sm_mhz,throttle,commit,dirty,utc\n" COLLECTIVE(
        "all-reduce", "1024", "eager", "0.006") COLLECTIVE("one-shot", "1024", "eager", "0.003")
        COLLECTIVE("all-reduce", "4096", "eager", "0.006") COLLECTIVE("one-shot", "4096", "eager", "0.004")
            COLLECTIVE("all-reduce", "1024", "graph", "0.016") COLLECTIVE("one-shot", "1024", "graph", "0.002");

static void a_handicapped_baseline_gives_no_ratio(void **state)
{
    char *dir = folder_path(*state, "box-x2");
    mkdir(dir, 0777);
    put(dir, "bench_allreduce.csv", collectives);
    put(dir, "machine.csv", "run_id,key,value\nrun-1,bench,bench_allreduce\nrun-1,NCCL_LAUNCH_ORDER_IMPLICIT,1\n");
    char *text = report_text(dir);
    expect(text,
           "in 2 of 2 cases: the library takes 1.50 times as long at least (one-shot, 4096B, bf16) and 2.00 at most",
           true);
    expect(text, "1 cases replayed from graphs are not compared: the library's ran with NCCL_LAUNCH_ORDER", true);
    expect(text, "8.00", false);
    free(text);
    put(dir, "machine.csv", "run_id,key,value\nrun-1,bench,bench_allreduce\n");
    text = report_text(dir);
    expect(text, ". Replayed from a graph, the better of them takes less time by the median in 1 of 1 cases", true);
    expect(text, "8.00", true);
    expect(text, "LAUNCH_ORDER", false);
    free(text);
    free(dir);
}

/* ---- burst and steady state ---- */

#define GEMM(size, times)                                                                                              \
    "2,1,bench_roofline,gemm,ok,,bf16," size "," times ",run-1,box-x1,G,cuda,1980,,abc,0,2026-11-21T10:00:00Z\n"

static void the_steady_state_stands_beside_the_burst(void **state)
{
    char *dir = folder_path(*state, "box-x3");
    mkdir(dir, 0777);
    put(dir, "bench_roofline.csv",
        "schema,method,bench,variant,status,reason,dtype,size,time_us,tflops,energy_j,tflop_per_j,sustain_s,"
        "sustained_us,sustained_sm_mhz,sustained_power_w,sustained_j,sustained_tflop_per_j,run_id,machine,gpu,device,"
        "sm_mhz,throttle,commit,dirty,utc\n" GEMM("8192", "1000,800,nan,nan,10,1250,1425,690,0.5,2.2")
            GEMM("4096", "200,800,0.25,4,0,nan,nan,nan,nan,nan") GEMM("1024", "9,300,nan,nan,0,nan,nan,nan,nan,nan"));
    char *text = report_text(dir);
    expect(text, "Burst and steady state", true);
    expect(text, "gemm size=8192 | 1000 | 1250 | 1.25 | 1425 | 690 | 0.500 | 2.20 |", true);
    expect(text, "gemm size=4096 | 200 | 0.250 | 4.00 |", true);
    expect(text, "gemm size=1024 |", false);
    free(text);
    put(dir, "bench_roofline.csv", /* as rows were before */
        "schema,method,bench,variant,status,reason,dtype,size,time_us,tflops,run_id,machine,gpu,device,"
        "sm_mhz,throttle,commit,dirty,utc\n" GEMM("8192", "1000,800"));
    text = report_text(dir);
    expect(text, "steady", false);
    expect(text, "Energy", false);
    free(text);
    free(dir);
}

/* ---- ratios of two rows ---- */

#define LEVEL(variant, ms, campaign, gpu)                                                                              \
    "1,1,bench_transformer," variant ",ok,,xl,4,512,bf16,train-step,5," ms ",1000,40,1,1000000,run-" variant           \
    "," campaign ",box-x1,G," gpu ",cuda,1980,,abc,0,2026-11-21T10:00:00Z\n"
#define LEVELS(campaign, gpu)                                                                                          \
    "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,warmup,step_ms,tokens_per_s,"             \
    "mfu_causal_pct,peak_bytes,params,run_id,campaign,machine,gpu,gpu_uuid,device,sm_mhz,throttle,commit,dirty,"       \
    "utc\n" LEVEL("graph", "20", "run-a", "GPU-1") LEVEL("none", "60", campaign, gpu)

static void rows_of_several_runs_or_gpus_give_no_ratio(void **state)
{
    static const struct {
        const char *rows, *cells;
    } table[] = {{LEVELS("run-a", "GPU-1"), "| xl | 512 | 60.0 |  | 20.0 | 3.00 |"},
                 {LEVELS("run-b", "GPU-1"), "| xl | 512 | 60.0 |  | 20.0 | |"},
                 {LEVELS("run-a", "GPU-2"), "| xl | 512 | 60.0 |  | 20.0 | |"}};
    char *dir = folder_path(*state, "box-x4");
    mkdir(dir, 0777);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        put(dir, "bench_transformer.csv", table[i].rows);
        char *text = report_text(dir);
        expect(text, table[i].cells, true);
        free(text);
    }
    /* Rows that name neither run nor GPU: machine.csv knows the GPU, and the commit is one. */
    put(dir, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,warmup,step_ms,params,run_id,machine,"
        "gpu,"
        "device,commit,utc\n1,1,bench_transformer,graph,ok,,xl,4,512,bf16,train-step,5,20,1000000,run-1,b,G,cuda,abc,"
        "u\n"
        "1,1,bench_transformer,none,ok,,xl,4,512,bf16,train-step,5,60,1000000,run-2,b,G,cuda,abc,u\n");
    for (int same = 0; same < 2; same++) {
        put(dir, "machine.csv",
            same ? "run_id,key,value\nrun-1,gpu_uuid,GPU-1\nrun-2,gpu_uuid,GPU-1\n"
                 : "run_id,key,value\nrun-1,gpu_uuid,GPU-1\nrun-2,gpu_uuid,GPU-2\n");
        char *text = report_text(dir);
        expect(text, same ? "| xl | 512 | 60.0 |  | 20.0 | 3.00 |" : "| xl | 512 | 60.0 |  | 20.0 | |", true);
        free(text);
    }
    free(dir);
}

/* ---- parts of a step ---- */

#define MODE(mode, ms)                                                                                                 \
    "1,1,bench_transformer,graph,ok,,xl,4,512,bf16," mode ",5," ms "," ms ",0.5,1000000,run-1,b,G,cuda,abc,u\n"

static void modes_stand_side_by_side(void **state)
{
    static const char header[] =
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,warmup,step_ms,"
        "step_mean_ms,step_std_ms,params,run_id,machine,gpu,device,commit,utc\n";
    char *dir = folder_path(*state, "box-x5"), *rows = xasprintf("%s%s", header, MODE("train-step", "58"));
    mkdir(dir, 0777);
    put(dir, "bench_transformer.csv", rows);
    char *text = report_text(dir);
    expect(text, "### Forward, backward and update", false);
    free(text);
    free(rows);
    rows = xasprintf("%s%s", header, MODE("train-step", "58") MODE("forward", "15"));
    put(dir, "bench_transformer.csv", rows);
    text = report_text(dir);
    expect(text, "| bf16 | xl | 512 | 15.0 ± 0.500 | | 58.0 ± 0.500 |", true);
    free(text);
    free(rows);
    free(dir);
}

/* ---- Gloo beside NCCL ---- */

#define ALL_REDUCE(device, backend, ranks, ms)                                                                         \
    "1,1,bench_allreduce,all-reduce,ok,," ranks ",1000000,fp32,1,eager," ms ",1," ms ",0.01,1 MB,20," backend          \
    ",run-1,box-x2,G," device ",1980,,abc,0,2026-11-21T10:00:00Z\n"

static void libraries_have_tables_of_their_own(void **state)
{
    char *dir = folder_path(*state, "box-x3");
    mkdir(dir, 0777);
    char *header = xstrdup(collectives);
    strchr(header, '\n')[1] = '\0';
    char *rows = xasprintf("%s%s", header,
                           ALL_REDUCE("cpu", "gloo", "2", "70") ALL_REDUCE("cpu", "gloo", "6", "90")
                               ALL_REDUCE("cuda", "nccl 2.28.3", "2", "0.5"));
    put(dir, "bench_allreduce.csv", rows);
    char *text = report_text(dir);
    const char *nccl = strstr(text, "### all-reduce, fp32\n"),
               *gloo = strstr(text, "### all-reduce, fp32, between CPUs\n");
    assert_true(nccl && gloo && nccl < gloo);
    const char *first = strstr(nccl, "| 2 | 1 MB | 0.500 "), *second = strstr(gloo, "| 2 | 1 MB | 70.0 ");
    assert_true(first && second && first < gloo);
    assert_non_null(strstr(gloo, "| 6 | 1 MB | 90.0 "));
    expect(text, "| all-reduce on 2 ranks | 0.500 GB/s on the bus (1 MB, nccl 2.28.3)", true);
    expect(text, "| all-reduce on 6 ranks |", false);
    free(text);
    free(rows);
    rows = xasprintf("%s%s", header, ALL_REDUCE("cpu", "gloo", "6", "90"));
    put(dir, "bench_allreduce.csv", rows);
    text = report_text(dir);
    expect(text, "| all-reduce on 6 ranks |", true);
    free(text);
    put(dir, "machine.csv", "run_id,key,value\nrun-9,gpu_name,G\n"); /* then the CPU does not stand for the machine */
    text = report_text(dir);
    expect(text, "| all-reduce on 6 ranks |", false);
    expect(text, "| 6 | 1 MB | 90.0 ", true);
    free(text);
    free(rows);
    free(header);
    free(dir);
}

/* ---- steps beside PyTorch ---- */

#define STEP(seq, ms)                                                                                                  \
    "1,1,bench_transformer,graph,ok,,xl,4," seq ",bf16,train-step,5," ms ",1000,40,75161927680,1000000,run-1,box-x1,"  \
    "NVIDIA H200,cuda,1980,,abc,0,2026-11-21T10:00:00Z,GPU-1\n"
static const char steps[] =
    "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,warmup,step_ms,tokens_per_s,"
    "mfu_causal_pct,peak_bytes,params,run_id,machine,gpu,device,sm_mhz,throttle,commit,dirty,utc,gpu_uuid\n" STEP(
        "128", "10") STEP("512", "20");
#define PEERS "bench,size,seq,batch,precision,attn,mode,step_ms,peak_gib,gpu_busy_pct,run_id,gpu_uuid\n"
#define PEER(seq, mode, ms) "model,xl," seq ",4,bf16,sdpa," mode "," ms ",90,95,run-1,GPU-1\n"

static void an_eager_peer_is_called_eager(void **state)
{
    char *dir = folder_path(*state, "box-x1");
    mkdir(dir, 0777);
    put(dir, "bench_transformer.csv", steps);
    put(dir, "peer_model.csv", PEERS PEER("128", "eager", "100") PEER("512", "eager", "30"));
    put(dir, "machine.csv", "run_id,key,value\nrun-1,gpu_memory_bytes,150323855360\nrun-1,gpu_uuid,GPU-1\n");
    char *text = report_text(dir);
    expect(text, "PyTorch (eager, SDPA) takes at least 1.50 and at most 10.0 times as long; its bf16 is autocast",
           true);
    expect(text, "PyTorch ran in eager mode alone", true);
    expect(text, "| training step, bf16 | MFU 40.0 % = 1000 tokens/s (xl, S 128, batch 4)", true);
    expect(text, "| 40 % | PyTorch eager, SDPA takes at least 1.50 times as long (2 cases) |", true);
    expect(text, "| 70.0 GiB (xl, S 128, batch 4) | 140 GiB on the GPU | 50 % |", true);
    free(text);
    put(dir, "peer_model.csv", PEERS PEER("128", "eager", "100") PEER("128", "compile", "12"));
    text = report_text(dir);
    expect(text, "PyTorch (compiled, SDPA) takes 1.20 times as long", true);
    expect(text, "| PyTorch compiled, SDPA takes at least 1.20 times as long (1 case) |", true);
    expect(text, "eager mode alone", false);
    free(text);
    free(dir);
}

/* The largest step of all, and not of those of one batch; but not one of a model that was cut to another shape. */
static void the_largest_step_is_that_of_all(void **state)
{
#define LARGE(size, layers, batch, recompute, bytes)                                                                   \
    "1,1,bench_transformer,graph,ok,," size "," batch ",512,bf16,train-step," recompute "," layers                     \
    ",5,10,1000,40," bytes ",1000000,run-1,box-x1,NVIDIA H200,cuda,1980,,abc,0,2026-11-21T10:00:00Z\n"
    char *dir = folder_path(*state, "box-x1");
    mkdir(dir, 0777);
    put(dir, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,layers,warmup,step_ms,"
        "tokens_per_s,mfu_causal_pct,peak_bytes,params,run_id,machine,gpu,device,sm_mhz,throttle,commit,dirty,"
        "utc\n" LARGE("small", "0", "4", "none", "1073741824") LARGE("xl", "0", "4", "none", "2147483648")
            LARGE("8b", "0", "1", "block", "10737418240") LARGE("8b", "4", "4", "none", "21474836480"));
    char *text = report_text(dir);
    expect(text, "| memory of the largest step, bf16 | 10.0 GiB (8b, S 512, batch 1, recompute block) |", true);
    free(text);
    free(dir);
}

/* What cannot be told from noise is no gain. */
static void percentiles_that_meet_are_said(void **state)
{
#define WAY(variant, ms, low, high, pct)                                                                               \
    "1,1,bench_recompute," variant ",ok,,xl,4,512,bf16," ms "," low "," high ",1000," pct                              \
    ",1073741824,run-1,box-x1,NVIDIA H200,cuda,1980,,abc,0,2026-11-21T10:00:00Z\n"
    char *dir = folder_path(*state, "box-x1");
    mkdir(dir, 0777);
    put(dir, "bench_recompute.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,step_ms,step_p10_ms,step_p90_ms,peak_bytes,"
        "extra_pct,saved_bytes,run_id,machine,gpu,device,sm_mhz,throttle,commit,dirty,utc\n" WAY("none", "58", "57",
                                                                                                 "60", "0")
            WAY("selective", "57.5", "57.2", "59", "-0.9") WAY("block", "66", "65", "67", "13.8"));
    char *text = report_text(dir);
    expect(text,
           "; selective saves 1.00 GiB for no time that could be told from noise; whole blocks save 1.00 GiB for "
           "13.8 % of time.",
           true);
    free(text);
    free(dir);
}

static void rows_of_several_gpus_are_counted(void **state)
{
    char *dir = folder_path(*state, "box-x1"), *both = xasprintf("%s%s", steps, STEP("1024", "30"));
    mkdir(dir, 0777);
    *strstr(strstr(both, ",1024,"), "run-1") = 'R';
    put(dir, "bench_transformer.csv", both);
    put(dir, "machine.csv", "run_id,key,value\nrun-1,gpu_uuid,GPU-1\nRun-1,gpu_uuid,GPU-2\n");
    char *text = report_text(dir);
    expect(text, "| [bench_transformer.csv](bench_transformer.csv) | 3 | 0 | 0 | 0 | 0 | 2 |", true);
    expect(text, "Ratios of two rows are formed within one run", true);
    free(text);
    put(dir, "bench_transformer.csv", steps);
    text = report_text(dir);
    expect(text, "| [bench_transformer.csv](bench_transformer.csv) | 2 | 0 | 0 | 0 | 0 | 1 |", true);
    expect(text, "Ratios of two rows are formed within one run", false);
    free(text);
    free(both);
    free(dir);
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

/* ---- what sections say of their own numbers ---- */

/* The report of a folder with one file of rows; caller frees. */
static char *report_with(const char *folder, const char *name, const char *rows)
{
    char *dir = folder_path(folder, "box-x9");
    mkdir(dir, 0777);
    put(dir, name, rows);
    char *text = report_text(dir);
    free(dir);
    return text;
}

#define WHO ",run-1,run-1,b,G,GPU-1,cuda,abc,2026-11-21T10:00:00Z\n"
#define WHO_COLUMNS ",run_id,campaign,machine,gpu,gpu_uuid,device,commit,utc\n"

static void a_section_says_what_its_numbers_say(void **state)
{
    static const char flash[] =
        "schema,method,bench,variant,status,reason,dtype,head_dim,seq,fwd_ms,speedup_fwd,speedup_bwd" WHO_COLUMNS;
    static const char attention[] =
        "schema,method,bench,variant,status,reason,batch,dtype,head_dim,seq,fwd_ms,mem_before_bwd_bytes" WHO_COLUMNS;
    static const char memory[] =
        "schema,method,bench,variant,status,reason,seq,precision,mode,peak_bytes,activation_bytes" WHO_COLUMNS;
    static const char collective[] = "schema,method,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_"
                                     "ms,busbw_gb_s,size" WHO_COLUMNS;
    static const char warmup[] =
        "schema,method,bench,variant,status,reason,size,seq,precision,warmup,step_ms,host_step_mean_ms" WHO_COLUMNS;
    static const char qualify[] =
        "schema,method,bench,variant,status,reason,ranks,rank,pair,group,behind_pct,metric,value,"
        "reference,bound,verdict,why" WHO_COLUMNS;
#define QUALIFY(variant, rank, pair, verdict, why)                                                                     \
    "1,1,bench_qualify," variant ",ok,,2," rank "," pair ",,50,p2p_gb_s,100,200,190," verdict "," why WHO
#define FLASH(seq, forward, backward) "1,1,bench_flash,flash,ok,,bf16,64," seq ",1," forward "," backward WHO
#define ATTENTION(variant, status, seq, ms, bytes)                                                                     \
    "1,1,bench_attention," variant "," status ",,8,fp32,64," seq "," ms "," bytes WHO
#define MEMORY(seq, mode, peak, kept) "1,1,bench_memory,graph,ok,," seq ",bf16," mode "," peak "," kept WHO
#define SUM(bytes, ms, rate, size)                                                                                     \
    "1,1,bench_allreduce,all-reduce,ok,,2," bytes ",bf16,1,eager," ms "," rate "," size WHO
#define WARM(size, steps, ms) "1,1,bench_transformer,graph,ok,," size ",512,bf16," steps ",10," ms WHO
    struct {
        const char *file, *head, *rows, *sentence;
    } const table[] = {
        {"bench_flash.csv", flash, FLASH("128", "0.5", "1.5") FLASH("256", "2", "3"),
         "less time than unfused in 1 of 2 forwards (0.500 times as fast at least, at S 128, D 64; 2.00 at most, at S "
         "256, "
         "D 64) and in 2 of 2 backwards (1.50 times"},
        {"bench_flash.csv", flash, FLASH("128", "0.5", "nan") FLASH("256", "0.9", "nan"),
         "in 0 of 2 forwards (0.500 times as fast at least, at S 128, D 64; 0.900 at most, at S 256, D 64)."},
        {"bench_attention.csv", attention,
         ATTENTION("unfused", "ok", "1024", "2", "4096") ATTENTION("flash", "ok", "1024", "4", "1024")
             ATTENTION("unfused", "oom", "2048", "nan", "nan") ATTENTION("flash", "ok", "2048", "8", "2048"),
         "At S 1024, D 64, unfused holds 4.00 times as much as flash before the backward, and its forward takes 0.500 "
         "times as "
         "long. Unfused is out of memory in 1 of 2 cases."},
        {"bench_attention.csv", attention,
         ATTENTION("unfused", "ok", "1024", "2", "4096") ATTENTION("flash", "ok", "1024", "4", "1024")
             ATTENTION("unfused", "ok", "2048", "8", "16384") ATTENTION("flash", "ok", "2048", "12", "2048"),
         "From S 1024 to 2048, unfused holds 4.00 times as much and takes 4.00 times as long, flash 2.00 and 3.00."},
        {"bench_memory.csv", memory,
         MEMORY("128", "train-step", "1073741824", "1") MEMORY("512", "train-step", "2147483648", "536870912")
             MEMORY("512", "forward", "536870912", "1"),
         "At S 512 a train step peaks at 2.00 GiB, 2.00 times as much as at S 128; activations are 25.0 % of it. "
         "Forward alone "
         "peaks at 0.500 GiB there."},
        {"bench_memory.csv", memory, MEMORY("128", "train-step", "1073741824", "1073741824"),
         "At S 128 a train step peaks at 1.00 GiB; activations are 100 % of it."},
        {"bench_allreduce.csv", collective,
         SUM("1024", "0.01", "1", "1 KiB") SUM("4096", "0.02", "95", "4 KiB") SUM("1048576", "2", "100", "1 MiB"),
         "On 2 ranks, called eagerly, 1 KiB takes 10.0 us and 1 MiB 2.00 ms; the bus reaches 100 GB/s at most, and 90 "
         "% of that at 4 "
         "KiB and more."},
        {"bench_qualify.csv", qualify,
         QUALIFY("verdict", "0", "", "ok", "x") QUALIFY("verdict", "1", "", "slow", "y")
             QUALIFY("p2p", "", "0-1", "slow", "half") QUALIFY("p2p", "", "1-0", "ok", ""),
         "1 of 2 GPUs are as fast as they should be."},
        {"bench_qualify.csv", qualify,
         QUALIFY("p2p", "", "0-1", "slow", "half") QUALIFY("p2p", "", "1-0", "ok", "none"),
         "- p2p 0-1 is slow: half.  <details>"},
        {"bench_transformer.csv", warmup,
         WARM("small", "0", "30") WARM("small", "5", "10") WARM("xl", "0", "20") WARM("xl", "1", "19")
             WARM("xl", "5", "20"),
         "takes 1.00 to 3.00 times as long after 0 steps, 0.950 times as long after 1 step."}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *rows = xasprintf("%s%s", table[i].head, table[i].rows), *dir = folder_path(*state, "box-x9");
        char *text = report_with(*state, table[i].file, rows), *file = folder_path(dir, table[i].file);
        for (char *c = text; *c; c++)
            *c = *c == '\n' ? ' ' : *c;
        if (!strstr(text, table[i].sentence))
            fail_msg("'%s' is not in:\n%.4000s", table[i].sentence, text);
        unlink(file);
        free(file);
        free(dir);
        free(text);
        free(rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {in_folder(libraries_have_tables_of_their_own),
                                       in_folder(modes_stand_side_by_side),
                                       in_folder(rows_of_several_runs_or_gpus_give_no_ratio),
                                       in_folder(a_handicapped_baseline_gives_no_ratio),
                                       in_folder(an_eager_peer_is_called_eager),
                                       in_folder(the_largest_step_is_that_of_all),
                                       in_folder(percentiles_that_meet_are_said),
                                       in_folder(rows_of_several_gpus_are_counted),
                                       in_folder(the_steady_state_stands_beside_the_burst),
                                       in_folder(a_section_says_what_its_numbers_say)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
