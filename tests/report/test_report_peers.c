/* SPDX-License-Identifier: MIT */
/* The report beside peer_*.csv: the newest row of a case counts, the strongest mode leads, and no ratio is formed across
 * GPUs. What else refuses a ratio is planted below, one fault at a time. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/error.h"

#define ORIGIN ",run_id,machine,gpu,gpu_uuid,device,utc\n"
#define OF_GPU_A ",run-1,box-x1,GPU,GPU-a,cuda,2026-11-21T10:00:00Z\n"
#define PEER_ORIGIN ",torch,cuda,cudnn,nccl,driver,gpu,gpu_uuid,utc,commit,run_id\n"
#define PEER_OF(gpu) ",2.11.0,13.0,9.19.0,2.28.9,580,GPU," gpu ",2026-11-21T10:10:00Z,abc1234,run-1\n"

static void put(const char *dir, const char *name, const char *text)
{
    char *path = folder_path(dir, name);
    file_write(path, text);
    free(path);
}

/* <folder>/results/box-x1, new. */
static char *machine_folder(const char *folder)
{
    char *results = folder_path(folder, "results"), *dir = folder_path(results, "box-x1");
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

static void lacks(const char *text, const char *unwanted)
{
    if (strstr(text, unwanted))
        fail_msg("the report has '%s':\n%s", unwanted, text);
}

/* ---- steps ---- */

#define MODEL "bench,size,seq,batch,precision,attn,mode,policy,step_ms,fwd_ms,peak_gib,gpu_busy_pct" PEER_ORIGIN

static void our_step(const char *dir)
{
    put(dir, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,seq,batch,precision,mode,warmup,step_ms,tokens_per_s,"
        "mfu_causal_pct,params,peak_bytes" ORIGIN
        "1,1,bench_transformer,graph,ok,,small,128,4,bf16,train-step,5,2,256000,10,128625408,1073741824" OF_GPU_A);
}

static void the_strongest_mode_leads(void **state)
{
    char *dir = machine_folder(*state);
    our_step(dir);
    put(dir, "peer_model.csv",
        MODEL "model,small,128,4,bf16,sdpa,eager,autocast,40,20,2,99" PEER_OF("GPU-a")    /* older */
        "model,small,128,4,bf16,sdpa,step-graph,autocast,3,,1.5," PEER_OF("GPU-a")        /* older, faster */
        "model,small,128,4,bf16,sdpa,step-graph,autocast,5,,1.5," PEER_OF("GPU-a")        /* newest */
        "model,small,128,4,bf16master,sdpa,block-graph,by hand,4,,1.25," PEER_OF("GPU-a") /* the strongest */
        "model,small,128,4,bf16pure,sdpa,step-graph,all bf16,1,,0.5," PEER_OF("GPU-a"));  /* not our bf16 */
    char *text = report_text(dir);
    has(text,
        "PyTorch in one CUDA graph, SDPA, bf16 weights with fp32 master takes at least 2.00 times as long (1 case)");
    has(text, "PyTorch in one CUDA graph, SDPA, bf16 weights with fp32 master | PyTorch in one CUDA graph, SDPA | "
              "PyTorch eager, SDPA |");
    has(text, "| 2.00 / 1.25 | 2.50 / 1.50 | 20.0 / 2.00 |");
    has(text, "its bf16 weights with fp32 master are written by hand, with the dtypes of ours");
    lacks(text, "not known here");
    free(text);
    free(dir);
}

/* One measurement on each side is the same within 2 %: of these a faster one, two alike and a slower one. */
static void one_measurement_is_the_same_within_two_percent(void **state)
{
    static const int theirs[] = {1019, 981, 1021, 979};
    char *dir = machine_folder(*state), ours[2048], rows[2048];
    int n = snprintf(
            ours, sizeof ours,
            "schema,method,bench,variant,status,reason,size,seq,batch,precision,mode,warmup,step_ms,params" ORIGIN),
        m = snprintf(rows, sizeof rows, MODEL);
    for (int i = 0; i < 4; i++) {
        n += snprintf(ours + n, sizeof ours - (size_t)n,
                      "1,1,bench_transformer,graph,ok,,small,%d,4,bf16,train-step,5,1000,9" OF_GPU_A, 128 << i);
        m += snprintf(rows + m, sizeof rows - (size_t)m,
                      "model,small,%d,4,bf16,sdpa,block-graph,x,%d,,1," PEER_OF("GPU-a"), 128 << i, theirs[i]);
    }
    put(dir, "bench_transformer.csv", ours);
    put(dir, "peer_model.csv", rows);
    char *text = report_text(dir);
    has(text, "| training step, bf16 | 1 / 2 / 1 | 0.98 to 1.02 | PyTorch in one CUDA graph, SDPA 0.98, small, S 1024, "
              "batch 4 |");
    free(text);
    free(dir);
}

static void products_by_parts_stand_apart(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,seq,batch,precision,mode,fp32_products,warmup,step_ms,"
        "params" ORIGIN "1,1,bench_transformer,graph,ok,,small,128,4,fp32,train-step,fma,5,3.2,128625408" OF_GPU_A
        "1,1,bench_transformer,graph,ok,,small,512,4,fp32,train-step,fma,5,3.2,128625408" OF_GPU_A
        "1,1,bench_transformer,graph,ok,,small,128,4,fp32,train-step,fp16x3,5,2,128625408" OF_GPU_A);
    put(dir, "peer_model.csv", MODEL "model,small,128,4,fp32,sdpa,block-graph,fp32,4,,1.5," PEER_OF("GPU-a"));
    char *text = report_text(dir);
    has(text,
        "| training step, fp32 | 1 / 0 / 0 | 1.25 | PyTorch in one CUDA graph, SDPA 1.25, small, S 128, batch 4 |");
    has(text,
        "| training step, fp32 by fp16 parts | 1 / 0 / 0 | 2.00 | PyTorch in one CUDA graph, SDPA 2.00, small, S 128, "
        "batch 4 |");
    free(text);
    free(dir);
}

static void updates_are_compared_by_their_rate(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        char *dir = machine_folder(*state);
        put(dir, "bench_transformer.csv",
            "schema,method,bench,variant,status,reason,size,seq,batch,precision,mode,warmup,step_ms,opt_tb_s,"
            "params" ORIGIN "1,1,bench_transformer,graph,ok,,small,128,4,fp32,train-step,5,2,4,128625408" OF_GPU_A);
        char *rows = xasprintf("bench,impl,params,mode,policy,median_ms,gb_s" PEER_ORIGIN
                               "adamw,fused,500000000,event,all fp32,4,3200,2.11.0,13.0,9.19.0,2.28.9,580,GPU,%s,"
                               "2026-11-21T10:10:00Z,abc1234,run-1\n",
                               i == 0 ? "GPU-a" : "GPU-b");
        put(dir, "peer_adamw.csv", rows);
        char *text = report_text(dir);
        (i == 0 ? has : lacks)(
            text, "| AdamW, fp32, by bytes per second | 1 / 0 / 0 | 1.25 | PyTorch fused 1.25, 500 million "
                  "parameters, ours 129 million |");
        free(text);
        free(rows);
        free(dir);
    }
}

static void no_ratio_across_gpus(void **state)
{
    char *dir = machine_folder(*state);
    our_step(dir);
    put(dir, "peer_model.csv", MODEL "model,small,128,4,bf16,sdpa,step-graph,autocast,5,,1.5," PEER_OF("GPU-b"));
    char *text = report_text(dir);
    has(text, "PyTorch in one CUDA graph, SDPA: not compared, measured on another GPU");
    has(text,
        "measured on another GPU: PyTorch in one CUDA graph, SDPA in training step, bf16 (small, S 128, batch 4).");
    lacks(text, "2.50");
    free(text);
    free(dir);
}

/* run-1 of the peers is the ./run_all.sh that a bench names in `campaign`. */
static void no_ratio_across_runs(void **state)
{
    static const char *const campaigns[] = {"run-1", "run-2"};
    for (size_t i = 0; i < 2; i++) {
        char *dir = machine_folder(*state);
        char *text = xasprintf("schema,method,bench,variant,status,reason,dtype,size,pair,bytes,time_us,tflops,gb_s,"
                               "campaign" ORIGIN
                               "1,1,bench_roofline,gemm,ok,,bf16,1024,,nan,5,400,nan,%s,run-9,box-x1,GPU,GPU-a,cuda,"
                               "2026-11-21T10:00:00Z\n",
                               campaigns[i]);
        put(dir, "bench_roofline.csv", text);
        free(text);
        put(dir, "peer_gemm.csv",
            "bench,dtype,size,mode,policy,median_ms,tflops,gb_s" PEER_ORIGIN
            "gemm,bf16,1024,graph,x,0.004,500," PEER_OF("GPU-a"));
        text = report_text(dir);
        (i == 0 ? has : lacks)(text, "| bf16 | 1024 | 500 | 400 | 1.25 |");
        free(text);
        free(dir);
    }
}

/* ---- attention ---- */

#define FLASH                                                                                                          \
    "bench,impl,dtype,batch,heads,heads_kv,seq,head_dim,causal,layout,mode,policy,fwd_ms,bwd_ms,fwd_ratio,"            \
    "fwd_ratio_lo,fwd_ratio_hi,bwd_ratio,bwd_ratio_lo,bwd_ratio_hi,reference,fwd_diff,bwd_diff" PEER_ORIGIN
#define FLASH_V                                                                                                        \
    "bench,impl,dtype,batch,heads,heads_kv,seq,head_dim,head_dim_v,causal,layout,mode,policy,fwd_ms,bwd_ms,fwd_ratio," \
    "fwd_ratio_lo,fwd_ratio_hi,bwd_ratio,bwd_ratio_lo,bwd_ratio_hi,reference,fwd_diff,bwd_diff" PEER_ORIGIN
#define SHAPE "bf16,8,16,8,2048,64,1,bhsd,graph,x,"

static void attention_stands_in_turn(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "peer_flash.csv",
        FLASH "flash_interleaved,stepbench," SHAPE "1,2,,,,,,,fp64,0.002,0.003" PEER_OF(
            "GPU-a") "flash_interleaved,sdpa_cudnn," SHAPE
                     "2,3,2,1.9,2.1,1.5,1.4,1.6,fp64,0.002,0.003" PEER_OF(
                         "GPU-a") "flash_interleaved,fa4," SHAPE
                                  "1.25,4,1.25,1.2,1.3,2,1.9,2.1,fp64,0.002,0.003" PEER_OF(
                                      "GPU-a") "flash_interleaved,sdpa_fa2," SHAPE
                                               "0.5,1,0.5,0.5,0.5,0.5,0.5,0.5,fp64,0,0" PEER_OF("GPU-b"));
    char *text = report_text(dir);
    has(text, "## Attention in turn with its peers");
    has(text, "PyTorch 2.11.0, CUDA 13.0, cuDNN 9.19.0, driver 580, GPU. Ours is of commit abc1234.");
    has(text, "| fa4 | bf16 | 8 | 16 / 8 | 2048 | 64 | causal | 1.25, 1.00 | 1.25 [1.20, 1.30] | 0.00200, 0.00200 | "
              "4.00, 2.00 | 2.00 [1.90, 2.10] | 0.00300, 0.00300 |\n| sdpa_cudnn |");
    lacks(text, "| sdpa_fa2"); /* of another GPU than ours */
    has(text, "measured on another GPU: FlashAttention-2 in attention, forward, bf16, full loads (B 8, H 16 / 8");
    has(text, "full loads: forward, the strongest peer takes at least 1.25 [1.20, 1.30] times as long as ours "
              "(FlashAttention-4; 1 shape); backward 1.50 [1.40, 1.60] (cuDNN).");
    has(text,
        "| attention, forward, bf16, full loads | 1 / 0 / 0 | 1.25 | FlashAttention-4 1.25 [1.20, 1.30], B 8, H 16 / "
        "8, S 2048, D 64 |");
    has(text, "| attention, backward, bf16, full loads | 1 / 0 / 0 | 1.50 | cuDNN 1.50 [1.40, 1.60], B 8, H 16 / 8, S "
              "2048, D 64 |");
    lacks(text, "attention, forward, fp32");
    free(text);
    free(dir);
}

/* Of each kind of work the least ratio, the least of all first. A case counts as faster, same or slower by its rounds, and
 * shapes of one head, or that leave processors idle, stand apart. */
static void where_we_lead_least_comes_first(void **state)
{
    static const struct {
        const char *batch, *heads, *seq, *forward, *backward;
    } shapes[] = {{"64", "4", "256", "1.3,1.2,1.4", "0.97,0.96,0.98"},
                  {"64", "4", "512", "0.9,0.8,0.95", "0.96,0.9,1.01"},
                  {"64", "4", "1024", "0.99,0.98,0.995", "0.8,0.7,0.9"},
                  {"1", "4", "1024", "3,3,3", "4,4,4"},
                  {"64", "1", "1024", "5,5,5", "6,6,6"}};
    char *dir = machine_folder(*state), *rows = xstrdup(FLASH_V);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char *head = xasprintf("bf16,%s,%s,%s,%s,64,0,0,bhsd,graph,x,1,2", shapes[i].batch, shapes[i].heads,
                               shapes[i].heads, shapes[i].seq);
        char *more =
            xasprintf("%sx,stepbench,%s,,,,,,,fp64,0,0" PEER_OF("GPU-a") "x,fa4,%s,%s,%s,fp64,0,0" PEER_OF("GPU-a"),
                      rows, head, head, shapes[i].forward, shapes[i].backward);
        free(head);
        free(rows);
        rows = more;
    }
    put(dir, "peer_flash.csv", rows);
    char *text = report_text(dir);
    has(text, "## Beside the strongest peers");
    has(text,
        "|---|---:|---:|---|\n"
        "| attention, backward, bf16, full loads | 0 / 1 / 2 | 0.80 to 0.97 | FlashAttention-4 0.80 [0.70, 0.90], B "
        "64, H 4, S 1024, D 64, full |\n"
        "| attention, forward, bf16, full loads | 1 / 0 / 2 | 0.90 to 1.30 | FlashAttention-4 0.90 [0.80, 0.95], B "
        "64, H 4, S 512, D 64, full |\n"
        "| attention, forward, bf16, loads that leave processors idle | 1 / 0 / 0 | 3.00 |");
    has(text, "| attention, forward, bf16, one head | 1 / 0 / 0 | 5.00 |");
    free(text);
    free(rows);
    free(dir);
}

/* A peer with a wrong gradient gives no ratio of the backward, and is named; its forward, which is right, counts. */
static void a_wrong_peer_gives_no_ratio(void **state)
{
    static const struct {
        const char *diffs, *why;
    } faults[] = {{"0.002,1.1", "its result is wrong"},
                  {"0.002,0.016", "its result is wrong"},
                  {"0.002,nan", "its result was not checked"},
                  {"0.002,", "its result was not checked"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char *dir = machine_folder(*state);
        char *rows =
            xasprintf(FLASH "x,stepbench," SHAPE "1,2,,,,,,,fp64,0.002,0.003" PEER_OF(
                          "GPU-a") "x,fa4," SHAPE "1.25,1.9,1.25,1.2,1.3,0.95,0.94,0.96,fp64,%s" PEER_OF("GPU-a"),
                      faults[i].diffs);
        put(dir, "peer_flash.csv", rows);
        char *text = report_text(dir),
             *named = xasprintf("%s: FlashAttention-4 in attention, backward, bf16, full loads "
                                "(B 8, H 16 / 8, S 2048, D 64).",
                                faults[i].why);
        has(text, named);
        has(text, "| attention, forward, bf16, full loads | 1 / 0 / 0 | 1.25 |");
        lacks(text, "0.95");
        char *csv_path = folder_path(*state, "figure.csv"),
             *of_figure = xasprintf("--flash-peers %s %s", dir, csv_path);
        report_run(of_figure);
        char *figure = file_text(csv_path);
        char *line = xasprintf("\n1.25,nan,nan,nan,nan,1.25,nan,B 8  H 16 / 8  S 2048  D 64,-,FlashAttention-4: %s\n",
                               faults[i].why);
        has(figure, line);
        free(line);
        free(figure);
        free(of_figure);
        free(csv_path);
        free(named);
        free(text);
        free(rows);
        free(dir);
    }
}

#define ROW_V(impl, head_dim_v, cells)                                                                                 \
    "flash_interleaved," impl ",bf16,1,16,16,8192,192," head_dim_v ",1,bhsd,graph,x," cells PEER_OF("GPU-a")

/* A peer with values of another width stands beside ours of that width, and beside nothing else. */
static void values_of_another_width_stand_in_turn(void **state)
{
    static const char peer[] = ROW_V("sdpa_cudnn", "128", "6,9,2,1.9,2.1,1.5,1.4,1.6,fp64,0.002,0.003");
    for (int both = 0; both < 2; both++) {
        char *dir = machine_folder(*state);
        char *rows = xasprintf("%s%s%s%s", FLASH_V ROW_V("stepbench", "0", "4,7,,,,,,,fp64,0.002,0.003"),
                               both ? ROW_V("stepbench", "128", "3,6,,,,,,,fp64,0.002,0.003") : "", peer,
                               ROW_V("fa4", "0", "5,14,1.25,1.2,1.3,2,1.9,2.1,fp64,0.002,0.003"));
        put(dir, "peer_flash.csv", rows);
        free(rows);
        char *text = report_text(dir);
        has(text, "| fa4 | bf16 | 1 | 16 | 8192 | 192 | causal | 5.00, 4.00 | 1.25 [1.20, 1.30] |");
        lacks(text, "| sdpa_cudnn | bf16 | 1 | 16 | 8192 | 192 |");
        (both ? has : lacks)(text, "| sdpa_cudnn | bf16 | 1 | 16 | 8192 | 192 / 128 | causal | 6.00, 3.00 | 2.00 ");
        has(text, both ? "(FlashAttention-4; 2 shapes)" : "(FlashAttention-4; 1 shape)");
        free(text);
        free(dir);
    }
}

/* A row with a sliding window, of packed documents, or with values of another width is not the best of causal attention. */
static void windows_stand_apart(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "bench_flash.csv",
        "schema,method,bench,variant,status,reason,batch,heads,heads_kv,causal,window,window_right,documents,lengths,"
        "layout,"
        "deterministic,"
        "dtype,head_dim,head_dim_v,seq,seq_k,fwd_ms,bwd_ms,fwd_bwd_ms,fwd_tflops,bwd_tflops" ORIGIN
        "1,1,bench_flash,flash,ok,,1,4,0,1,512,-1,0,equal,bhsd,0,bf16,64,0,1024,0,1,2,3,900,800" OF_GPU_A
        "1,1,bench_flash,flash,ok,,1,4,0,1,-1,-1,8,equal,bhsd,0,bf16,64,0,1024,0,1,2,3,901,801" OF_GPU_A
        "1,1,bench_flash,flash,ok,,1,4,0,1,-1,-1,0,equal,bhsd,0,bf16,64,32,1024,0,1,2,3,902,802" OF_GPU_A
        "1,1,bench_flash,flash,ok,,1,4,0,1,-1,-1,0,equal,bhsd,0,bf16,64,0,1024,0,4,8,12,300,200" OF_GPU_A
        "1,1,bench_flash,flash,ok,,1,4,0,1,-1,-1,0,equal,bhsd,0,bf16,64,0,2048,0,9,18,27,310,210" OF_GPU_A);
    char *text = report_text(dir);
    has(text, "310 TFLOP/s (S 2048, D 64)");
    lacks(text, "900 TFLOP/s (S");
    lacks(text, "901 TFLOP/s (S");
    lacks(text, "902 TFLOP/s (S");
    lacks(text, "window -1");
    lacks(text, "lengths equal");
    lacks(text, "head_dim_v 0");
    has(text, "window=512"); /* among the others */
    lacks(text, "window=-1");
    lacks(text, "documents=0");
    has(text, "head_dim_v=32");
    lacks(text, "head_dim_v=0");
    free(text);
    free(dir);
}

/* ---- collectives ---- */

#define ALLREDUCE_OF(dtype, mode, in_place, ms)                                                                        \
    "1,1,bench_allreduce,all-reduce,ok,,2,1024,1 KiB," dtype ",nccl," mode "," in_place "," ms "," ms ",0,1,"          \
    "1" OF_GPU_A

#define ALLREDUCE(mode, in_place, ms) ALLREDUCE_OF("fp32", mode, in_place, ms)

/* Peers ran in fp32: our row in bf16 stands beside none of them. */
static void collectives_are_compared_in_each_mode(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "bench_allreduce.csv",
        "schema,method,bench,variant,status,reason,ranks,bytes,size,dtype,backend,mode,in_place,median_ms,mean_ms,"
        "std_ms,algbw_gb_s,busbw_gb_s" ORIGIN ALLREDUCE("eager", "1", "0.01") ALLREDUCE("graph", "1", "0.005")
            ALLREDUCE_OF("bf16", "graph", "1", "0.1"));
    put(dir, "bench_roofline.csv",
        "schema,method,bench,variant,status,reason,dtype,size,pair,bytes,time_us,tflops,gb_s" ORIGIN
        "1,1,bench_roofline,p2p,ok,,,,0-1,4096,5,nan,4" OF_GPU_A);
    put(dir, "peer_allreduce.csv",
        "bench,backend,ranks,bytes,mode,policy,median_ms,algbw_gb_s,busbw_gb_s" PEER_ORIGIN
        "allreduce,nccl,2,1024,eager,x,0.02,1,1" PEER_OF("GPU-a") "allreduce,nccl,2,1024,graph,x,0.015,1,1" PEER_OF(
            "GPU-a"));
    put(dir, "peer_nccl_tests.csv",
        "bench,tool,ranks,bytes,mode,in_place,policy,median_us,algbw_gb_s,busbw_gb_s,wrong" PEER_ORIGIN
        "nccl_tests,nccl-tests 2.17.6,2,1024,eager,0,x,99,1,1,0" PEER_OF("GPU-a") "nccl_tests,nccl-tests "
                                                                                  "2.17.6,2,1024,eager,1,x,15,1,1,"
                                                                                  "0" PEER_OF("GPU-a") "nccl_tests,"
                                                                                                       "nccl-tests "
                                                                                                       "2.17.6,2,1024,"
                                                                                                       "graph,1,x,6,1,"
                                                                                                       "1,0" PEER_OF(
                                                                                                           "GPU-a"));
    char *text = report_text(dir);
    has(text, "| eager 2.00, graph 3.00 | eager 1.50, graph 1.20 |");
    has(text, "| 4.00 GB/s, the measured copy between two GPUs | 25 % | nccl-tests takes at least 1.20 times as long "
              "(1 case)");
    free(text);
    free(dir);
}

/* ---- products and steps on several GPUs ---- */

static void products_stand_beside_ours(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "bench_roofline.csv",
        "schema,method,bench,variant,status,reason,dtype,size,pair,bytes,time_us,tflops,gb_s" ORIGIN
        "1,1,bench_roofline,gemm,ok,,bf16,1024,,nan,5,400,nan" OF_GPU_A
        "1,1,bench_roofline,gemm,ok,,fp32,1024,,nan,50,40,nan" OF_GPU_A);
    put(dir, "peer_gemm.csv",
        "bench,dtype,size,mode,policy,median_ms,tflops,gb_s" PEER_ORIGIN
        "gemm,bf16,1024,graph,x,0.004,500," PEER_OF("GPU-a") "gemm,fp32,1024,graph,x,0.05,41," PEER_OF("GPU-b"));
    char *text = report_text(dir);
    has(text, "| bf16 | 1024 | 500 | 400 | 1.25 |");
    has(text, "| not known | | PyTorch takes at least 0.80 times as long (1 size) |");
    has(text,
        "Same library on both sides, so that you can trust the harness: cuBLAS, matrix product, bf16: 0.80 to 0.80 (1 "
        "case).");
    lacks(text, "| fp32 | 1024 | 41");
    free(text);
    free(dir);
}

/* Products of one case, right but for one fault. A GPU that has just begun is faster than one at its power limit, and a call of
 * the host has its launch in its time. */
static void each_fault_refuses_a_ratio(void **state)
{
    static const struct {
        const char *settled, *timer, *policy, *mode, *gpu, *run, *why;
    } cases[] = {
        {"0.15", "graph", "warm; samples after 0.15 s", "graph", "GPU-a", "run-1", NULL},
        {"0", "graph", "warm", "graph", "GPU-a", "run-1", NULL},
        {"0", "event", "warm", "event", "GPU-a", "run-1", NULL},
        {"0.15", "graph", "warm", "graph", "GPU-a", "run-1", "sampled otherwise"},
        {"0", "graph", "warm; samples after 0.15 s", "graph", "GPU-a", "run-1", "sampled otherwise"},
        {"0", "graph", "warm", "event", "GPU-a", "run-1", "timed otherwise"},
        {"0", "event", "warm", "graph", "GPU-a", "run-1", "timed otherwise"},
        {"0", "graph", "warm", "graph", "GPU-b", "run-1", "measured on another GPU"},
        {"0", "graph", "warm", "graph", "GPU-a", "run-2", "measured in another run"},
        {"0", "graph", "warm", "graph", "", "run-1", ""}, /* shown nowhere */
        {"0", "graph", "warm", "graph", "GPU-a", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *dir = machine_folder(*state);
        char *ours =
            xasprintf("schema,method,bench,variant,status,reason,dtype,size,pair,bytes,time_us,tflops,gb_s,"
                      "timer,settle_s" ORIGIN "1,1,bench_roofline,gemm,ok,,bf16,1024,,nan,5,400,nan,%s,%s" OF_GPU_A,
                      cases[i].timer, cases[i].settled);
        char *theirs =
            xasprintf("bench,dtype,size,mode,policy,median_ms,tflops,gb_s" PEER_ORIGIN
                      "gemm,bf16,1024,%s,%s,0.004,500,,2.11.0,13.0,9.19.0,2.28.9,580,GPU,%s,2026-11-21T10:10:00Z,"
                      "abc1234,%s\n",
                      cases[i].mode, cases[i].policy, cases[i].gpu, cases[i].run);
        put(dir, "bench_roofline.csv", ours);
        put(dir, "peer_gemm.csv", theirs);
        char *text = report_text(dir);
        (cases[i].why ? lacks : has)(text, "| bf16 | 1024 | 500 | 400 | 1.25 |");
        (cases[i].why ? lacks : has)(text, "PyTorch takes at least 0.80 times as long (1 size)");
        (cases[i].why ? lacks : has)(text, "cuBLAS, matrix product, bf16: 0.80 to 0.80 (1 case)");
        if (cases[i].why && *cases[i].why) {
            has(text, "No ratio is formed of these rows:");
            has(text, cases[i].why);
        } else {
            lacks(text, "No ratio is formed");
        }
        free(text);
        free(theirs);
        free(ours);
        free(dir);
    }
}

/* Steps of several GPUs, and of one that are no CUDA graph, have a ratio only where the GPU was busy; both shares stand beside it. */
static void a_host_bound_step_gives_no_ratio(void **state)
{
    static const struct {
        const char *mode, *busy, *why;
    } cases[] = {{"block-graph", "", NULL},
                 {"eager", "80", NULL},
                 {"eager", "79.9", "host-bound: PyTorch eager, SDPA in training step, bf16 (small, S 128, batch 4)."},
                 {"block-graph", "79.9", "host-bound: PyTorch in one CUDA graph, SDPA in training step"},
                 {"eager", "", "how busy its GPU was is not known: PyTorch eager, SDPA in training step"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *dir = machine_folder(*state);
        our_step(dir);
        char *rows = xasprintf(MODEL "model,small,128,4,bf16,sdpa,%s,autocast,5,,1.5,%s" PEER_OF("GPU-a"),
                               cases[i].mode, cases[i].busy);
        put(dir, "peer_model.csv", rows);
        char *text = report_text(dir);
        (cases[i].why ? lacks : has)(text, "| training step, bf16 | 1 / 0 / 0 | 2.50 |");
        (cases[i].why ? lacks : has)(text, "| 2.50 / 1.50 |");
        if (cases[i].why)
            has(text, cases[i].why);
        free(text);
        free(rows);
        free(dir);
    }
}

/* Of those with a model on every rank: what keeps everything in bf16 does less, so it is the one to be ahead of. */
static void the_fastest_replica_is_named(void **state)
{
    static const struct {
        const char *strategy, *ranks, *precision, *mode;
        int ms;
    } theirs[] = {{"overlap", "2", "bf16", "eager", 300},   {"ddp25", "2", "bf16", "compile", 150},
                  {"fsdp2", "2", "bf16", "compile", 120},   {"ddp25", "4", "bf16", "compile", 110},
                  {"ddp25", "2", "fp32", "compile", 105},   {"ddp25", "2", "bf16pure", "compile", 140},
                  {"zero1", "2", "bf16pure", "compile", 90}};
    char *dir = machine_folder(*state), rows[2048];
    put(dir, "bench_ddp_overlap.csv",
        "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,mode,grad_dtype,wire_dtype,step_ms,"
        "compute_ms,exposed_ms,exposed_lo_ms,exposed_hi_ms" ORIGIN
        "1,1,bench_ddp_overlap,overlap,ok,,2,xl,2,512,bf16,train-step,bf16,bf16,100,98,2,1.5,2.5" OF_GPU_A);
    size_t n = (size_t)snprintf(rows, sizeof rows,
                                "bench,strategy,ranks,size,seq,batch_per_rank,precision,attn,mode,policy,bucket_mb,"
                                "step_ms,gpu_busy_pct" PEER_ORIGIN);
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        n += (size_t)snprintf(rows + n, sizeof rows - n, "ddp,%s,%s,xl,512,2,%s,sdpa,%s,x,25,%d,90" PEER_OF("GPU-a"),
                              theirs[i].strategy, theirs[i].ranks, theirs[i].precision, theirs[i].mode, theirs[i].ms);
    put(dir, "peer_ddp.csv", rows);
    char *text = report_text(dir);
    has(text, "PyTorch's fastest step of this kind (ddp25, compile, bf16pure) takes 1.40 times as long");
    has(text, "PyTorch's fastest step with a model on every rank (ddp25, compile, bf16pure) takes 1.40 times as long.");
    lacks(text, " 300"); /* its overlap sends fp32 gradients, ours bf16: not in one row */
    free(text);
    free(dir);
}

#define DDP_ROWS                                                                                                       \
    "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,mode,grad_dtype,wire_dtype,bucket_mb,"   \
    "step_ms,compute_ms,exposed_ms,exposed_lo_ms,exposed_hi_ms,mfu_causal_pct" ORIGIN
#define DDP_ROW(variant, mb, wire, ms)                                                                                 \
    "1,1,bench_zero1," variant ",ok,,2,xl,2,512,bf16,train-step," wire "," wire "," mb "," ms ",9,2,1.5,2.5,"          \
    "40" OF_GPU_A
#define PEER_DDP                                                                                                       \
    "bench,strategy,ranks,size,seq,batch_per_rank,precision,attn,mode,policy,bucket_mb,step_ms,mfu_pct,"               \
    "gpu_busy_pct" PEER_ORIGIN
#define PEER_STEP(strategy, precision, ms)                                                                             \
    "ddp," strategy ",2,xl,512,2," precision ",sdpa,eager,x,25," ms ",20,90" PEER_OF("GPU-a")

/* Replicated beside replicated, slices beside slices, sums in one dtype; what compares others says so. */
static void like_stands_beside_like(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "bench_zero1.csv",
        DDP_ROWS DDP_ROW("unsharded", "25", "fp32", "50") DDP_ROW("zero1", "25", "fp32", "44")
            DDP_ROW("fused", "25", "fp32", "40") DDP_ROW("unsharded", "25", "bf16", "10"));
    put(dir, "peer_ddp.csv",
        PEER_DDP PEER_STEP("ddp25", "bf16", "75") PEER_STEP("zero1", "bf16", "88") PEER_STEP("ddp25", "bf16pure", "60")
            PEER_STEP("fsdp2", "bf16", "48"));
    char *text = report_text(dir);
    has(text, "| 75.00, - (eager) | 1.50 |\n"); /* in the row of unsharded */
    has(text, "| data-parallel step, all replicated | 1 / 0 / 0 | 1.50 | PyTorch ddp25, eager, bf16 beside unsharded "
              "25 MB (MFU "
              "20 %, ours 40 %, busy 90 %) 1.50, xl, batch 2 per rank, S 512, bf16, gradients fp32, 2 ranks |");
    has(text,
        "| data-parallel step, optimizer sharded | 1 / 0 / 0 | 2.20 | PyTorch zero1, eager, bf16 beside fused 25 MB");
    has(text,
        "| data-parallel step, any algorithm on either side | 2 / 0 / 0 | 1.20 to 4.80 | PyTorch fsdp2, eager, bf16");
    free(text);
    free(dir);
}

#define FSDP_ROW(variant, ms) "1,1,bench_fsdp," variant ",ok,,2,2.7b,2,2048,bf16,none,fp32," ms ",1e9,2000" OF_GPU_A

/* FSDP2 frees behind the forward, as fsdp does; or keeps, as fsdp-keep and zero2 do. */
static void fsdp2_stands_beside_what_keeps_as_much(void **state)
{
    char *dir = machine_folder(*state);
    put(dir, "machine.csv", "run_id,key,value\nrun-1,gpu_name,GPU\n");
    put(dir, "bench_fsdp.csv",
        "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,recompute,wire_dtype,step_ms,"
        "peak_bytes,params" ORIGIN FSDP_ROW("fsdp", "200") FSDP_ROW("fsdp-keep", "160") FSDP_ROW("zero2", "180"));
    put(dir, "peer_ddp.csv",
        "bench,strategy,ranks,size,seq,batch_per_rank,precision,mode,step_ms,gpu_busy_pct" PEER_ORIGIN
        "ddp,fsdp2,2,2.7b,2048,2,bf16,compile-blocks,250,97" PEER_OF(
            "GPU-a") "ddp,fsdp2-keep,2,2.7b,2048,2,bf16,compile-blocks,"
                     "240,97" PEER_OF("GPU-a") "ddp,fsdp2-keep,2,2.7b,2048,2,bf16,eager,100,50" PEER_OF("GPU-a"));
    char *text = report_text(dir);
    has(text, "| FSDP step, sums in fp32 | 1 / 0 / 0 | 1.25 | PyTorch fsdp2, compile-blocks 1.25, 2.7b, batch 2 per "
              "rank, S 2048");
    has(text, "| step with parameters kept for the backward, sums in fp32 | 1 / 0 / 0 | 1.50 | PyTorch fsdp2-keep, "
              "compile-blocks 1.50,");
    has(text, "host-bound: PyTorch fsdp2-keep, eager in step with parameters kept for the backward, sums in fp32 "
              "(2.7b, batch 2");
    free(text);
    free(dir);
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_folder(the_strongest_mode_leads),
        in_folder(one_measurement_is_the_same_within_two_percent),
        in_folder(products_by_parts_stand_apart),
        in_folder(updates_are_compared_by_their_rate),
        in_folder(no_ratio_across_gpus),
        in_folder(no_ratio_across_runs),
        in_folder(attention_stands_in_turn),
        in_folder(where_we_lead_least_comes_first),
        in_folder(a_wrong_peer_gives_no_ratio),
        in_folder(values_of_another_width_stand_in_turn),
        in_folder(windows_stand_apart),
        in_folder(collectives_are_compared_in_each_mode),
        in_folder(products_stand_beside_ours),
        in_folder(each_fault_refuses_a_ratio),
        in_folder(a_host_bound_step_gives_no_ratio),
        in_folder(the_fastest_replica_is_named),
        in_folder(like_stands_beside_like),
        in_folder(fsdp2_stands_beside_what_keeps_as_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
