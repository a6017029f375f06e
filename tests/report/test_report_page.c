/* SPDX-License-Identifier: MIT */
/* The pages of a folder: the same cases on every machine, which rows of peers give a ratio, ranks of the CPU apart, and the length that
 * a reader is promised. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <glob.h>
#include <sys/stat.h>

#define H200 "NVIDIA H200"
#define END ",r-1,c-1,box," H200 ",GPU-a,cuda,1,aaaaaaaaaaaa,0,2026-11-21T10:00:00Z\n"
#define RUN ",run_id,campaign,machine,gpu,gpu_uuid,device,check,commit,dirty,utc\n"

static void machine(const char *dir)
{
    folder_write(dir, "machine.csv",
                 "run_id,key,value\nr-1,gpu_name," H200
                 "\nr-1,gpu_count,1\nr-1,driver,580.1\nr-1,cuda_runtime,13.0\nr-1,gpu_memory_bytes,150109880320\n"
                 "r-1,cpu,A CPU\n");
}

static void roofline(const char *dir, const char *timer)
{
    OWNED char *text = xasprintf(
        "schema,method,bench,variant,status,reason,dtype,size,bytes,pair,time_us,tflops,gb_s,settle_s,timer" RUN
        "3,1,bench_roofline,gemm,ok,,bf16,2048,,,25,680,,0.15,%s" END
        "3,1,bench_roofline,gemm,ok,,bf16,8192,,,26,600,,0.15,graph" END
        "3,1,bench_roofline,copy_kernel,ok,,,,1073741824,,510,,4200,0.15,graph" END
        "3,1,bench_roofline,copy_kernel,ok,,,,64000000,,510,,4400,0.15,graph" END,
        timer);
    folder_write(dir, "bench_roofline.csv", text);
}

/* ---- the first screen ---- */

TEST_IN_FOLDER(the_same_cases_on_every_machine)
{
    machine(*state);
    roofline(*state, "graph");
    folder_write(
        *state, "bench_flash.csv",
        "schema,method,bench,variant,status,reason,batch,heads,causal,dtype,head_dim,seq,fwd_ms,bwd_ms,fwd_tflops,bwd_"
        "tflops,fwd_ceiling_pct,bwd_ceiling_pct" RUN
        "3,1,bench_flash,flash,ok,,8,16,1,bf16,128,2048,0.26,0.8,523,427,77,63" END
        "3,1,bench_flash,flash,ok,,1,1,1,bf16,128,65536,1.6,4.5,682,611,100,90" END); /* faster, and not the case */
    folder_write(
        *state, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,warmup,step_ms,"
        "step_mean_ms,tokens_per_s,tokens_per_j,mfu_causal_pct,peak_bytes,params" RUN
        "3,1,bench_transformer,graph,ok,,xl,4,1024,bf16,train-step,none,5,100,104,40000,54.7,50,36000000000,2000" END
        "3,1,bench_transformer,graph,ok,,2.7b,4,512,bf16,train-step,none,5,88,88,23135,33.2,48.0,48000000000,3000" END);
    char *text = report_text(*state);
    text_has(text, "# 1 x NVIDIA H200\n");
    text_has(text, "2026-11-21, stepbench aaaaaaaaaaaa, driver 580.1, CUDA 13.0; `box`.");
    text_has(text, "| bf16 matrix product, best of 2 sizes | 680 TFLOP/s | 69 % | |");
    text_has(text, "| copy of 1 GiB | 4200 GB/s | 88 % | |"); /* not the faster one of fewer bytes */
    text_has(text, "| attention forward, B 8 H 16 S 2048 D 128 | 523 TFLOP/s | 77 % | |");
    text_has(text, "| attention backward, same shape | 427 TFLOP/s | 63 % | |");
    text_has(text, /* of all steps, the median beside it */
             "| training step, xl S 1024 batch 4 | 38462 tokens/s, median step 100.0 ms | MFU 48 % | |");
    text_has(text, "| training step, 2.7b S 2048 batch 4 | | | |"); /* 512 is another case */
    text_has(text, "| FSDP, 2.7b S 2048 batch 2 per GPU | | | |");
    text_has(text, "| energy of the xl step above | 18.3 mJ per token | | |");
    text_has(text, "The largest step takes 44.7 GiB of 140 GiB (2.7b, batch 4, S 512, bf16).");
    text_lacks(text, "## bench_flash"); /* what is folded is in the page in HTML */
    free(text);
    OWNED char *build = build_folder(), *said_of = xasprintf("'%s/report' '%s' | tail -n 1", build, (char *)*state);
    FILE *said = popen(said_of, "r");
    char line[300] = "";
    assert_non_null(said);
    assert_non_null(fgets(line, sizeof line, said));
    pclose(said);
    OWNED char *wanted =
        xasprintf("1 x NVIDIA H200: bf16 680 TFLOP/s, copy 4200 GB/s, xl 38462 tokens/s (MFU 48 %%); %s/report.html\n",
                  (char *)*state);
    assert_string_equal(line, wanted);
    text = folder_text(*state, "report.html");
    text_has(text, "<summary>bench_flash: FlashAttention against unfused attention</summary>");
    text_has(text, "<a href=\"#bench_flash-flashattention-against-unfused-attention\">");
    text_has(text, "id=\"bench_flash-flashattention-against-unfused-attention\"");
    text_has(text, "<nav aria-label=\"Contents\"><details><summary>");
    free(text);
}

/* What did not run is not among what a product is the best of. */
TEST_IN_FOLDER(the_best_of_as_many_products_as_ran)
{
#define PRODUCTS "schema,method,bench,variant,status,reason,dtype,size,mnk,tflops" RUN
#define ONE "3,1,bench_roofline,gemm_best,ok,,bf16,,4096x2560x20480,680" END
    machine(*state);
    folder_write(*state, "bench_roofline.csv", PRODUCTS ONE);
    OWNED char *one = report_text(*state);
    text_has(one, "| bf16 matrix product, only one shape | 680 TFLOP/s |");
    folder_write(*state, "bench_roofline.csv",
                 PRODUCTS ONE "3,1,bench_roofline,gemm,ok,,bf16,1024,,400" END
                              "3,1,bench_roofline,gemm,skip,none,fp32,1024,," END);
    OWNED char *both = report_text(*state);
    text_has(both, "| bf16 matrix product, best of all shapes | 680 TFLOP/s |");
}

/* Not all cases agree if one failed. */
TEST_IN_FOLDER(attention_agrees_in_as_many_cases_as_it_does)
{
#define CHECKED "schema,method,bench,variant,status,reason,dtype,seq,fwd_ms,bwd_ms,err_fwd" RUN
#define AGREES "3,1,bench_flash,flash,ok,,bf16,512,1,2,0.001" END
    folder_write(*state, "bench_flash.csv", CHECKED AGREES "3,1,bench_flash,flash,fail,o is off,bf16,1024,,,0.3" END);
    OWNED char *failed = report_text(*state);
    text_has(failed, "1 of 2 cases agree with attention in fp64; the largest relative L2 error of o is bf16 0.00100. 1 "
                     "case failed: o is off\n");
    folder_write(*state, "bench_flash.csv", CHECKED AGREES);
    OWNED char *one = report_text(*state);
    text_has(one, "The only case agrees with attention");
}

/* Five runs of a case and a minute of it stand beside it. */
TEST_IN_FOLDER(runs_beside_a_headline)
{
    machine(*state);
    OWNED char *rows =
        xasprintf("schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,warmup,step_ms,"
                  "step_mean_ms,tokens_per_s,mfu_causal_pct,sustain_s,sustained_step_ms" RUN);
    for (int i = 0; i < 6; i++) { /* the fourth is 2 % longer, the first a minute long */
        OWNED char *before = rows;
        rows = xasprintf(
            "%s3,1,bench_transformer,graph,ok,,xl,4,1024,bf16,train-step,none,5,100,%d,40000,50,%s,r-%d,c-%d,box," H200
            ",GPU-a,cuda,1,aaaaaaaaaaaa,0,2026-11-21T10:00:0%dZ\n",
            before, i == 3 ? 102 : 100, i == 0 ? "60,105" : "0,nan", i, i, i);
    }
    folder_write(*state, "bench_transformer.csv", rows);
    OWNED char *text = report_text(*state), *page = folder_text(*state, "report.html");
    text_has(text, "| 40000 tokens/s, median step 100.0 ms | MFU 50 % | | 6 runs within 2.0 %; 1.05 times as long when "
                   "busy for 60 s |");
    text_has(text, "1 of 1 case agree within 3 %");
    text_has(page, "steady / burst");
}

TEST_IN_FOLDER(a_stranger_is_escaped)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,cpu,<b>*x* |y</b>\n");
    folder_write(*state, "bench_roofline.csv",
                 "schema,method,bench,variant,status,reason,dtype,size,time_us,tflops,machine,device,commit,dirty,utc\n"
                 "3,1,bench_roofline,gemm,fail,<script>alert(1)</script> | a,bf16,64,1,1,box,cpu,`x` "
                 "[a](javascript:b),0,2026\n");
    OWNED char *md = report_text(*state), *html = folder_text(*state, "report.html");
    text_has(md, "# CPU: &lt;b>\\*x\\* \\|y&lt;/b>");
    text_has(md, "stepbench \\`x\\` [a\\](javascript:b)");
    text_lacks(md, "<script>");
    text_lacks(html, "<script>alert");
    text_has(html, "&lt;script&gt;alert(1)&lt;/script&gt; | a");
    text_lacks(html, "href=\"javascript");
}

/* Work that grows with the square of the cases would take minutes. */
TEST_IN_FOLDER(many_cases_take_seconds)
{
    enum { CASES = 10000 };
    OWNED char *path = folder_path(*state, "bench_flash.csv"), *self = build_folder();
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("schema,method,bench,variant,status,reason,batch,heads,causal,dtype,head_dim,seq,fwd_ms,bwd_ms" RUN, out);
    for (int i = 0; i < CASES; i++)
        fprintf(out, "3,1,bench_flash,%s,ok,,1,1,1,bf16,64,%d,%d,2" END, i % 2 ? "flash" : "unfused", 128 + i / 2,
                1 + i);
    assert_int_equal(fclose(out), 0);
    OWNED char *command = xasprintf("ulimit -t 30; '%s/report' '%s' >/dev/null", self, (char *)*state);
    assert_int_equal(system(command), 0);
}

/* ---- peers ---- */

#define ORIGIN ",torch,cuda,cudnn,nccl,driver,gpu,gpu_uuid,utc,commit,run_id\n"
#define OF(gpu, run) ",2,13,9,2,580," H200 "," gpu ",2026-11-21T10:10:00Z,bbb," run "\n"

static void steps(const char *dir)
{
    folder_write(
        dir, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,warmup,step_ms,tokens_per_s,"
        "mfu_causal_pct,peak_bytes,params" RUN
        "3,1,bench_transformer,graph,ok,,xl,4,1024,bf16,train-step,none,5,100,38491,48.1,1073741824,2000" END);
}

TEST_IN_FOLDER(the_strongest_mode_leads)
{
    machine(*state);
    steps(*state);
    folder_write(
        *state, "peer_model.csv",
        "bench,size,seq,batch,precision,attn,mode,policy,step_ms,fwd_ms,peak_gib,loss,gpu_busy_pct" ORIGIN
        "model,xl,1024,4,bf16,sdpa,step-graph,autocast,90,,1.5,2,100" OF("GPU-a", "c-1")  /* older */
        "model,xl,1024,4,bf16,sdpa,step-graph,autocast,150,,1.5,2,100" OF("GPU-a", "c-1") /* newest of its case */
        "model,xl,1024,4,bf16master,sdpa,block-graph,by hand,120,,1.25,2,100" OF("GPU-a", "c-1") /* the strongest */
        "model,xl,1024,4,bf16pure,sdpa,step-graph,all bf16,50,,0.5,2,100" OF("GPU-a", "c-1")     /* not our bf16 */
        "model,xl,512,4,bf16,sdpa,step-graph,autocast,50,,0.5,2,100" OF("GPU-a", "c-1"));        /* not our shape */
    OWNED char *text = report_text(*state);
    text_has(text, "| 38491 tokens/s | MFU 48 % | PyTorch in one graph, fp32 master 1.20 |");
    text_has(text,
             "| training step, bf16 | 1 / 0 / 0 | 1.20 | 1.20 | PyTorch in one graph, fp32 master 1.20, xl, S 1024, "
             "batch 4 |");
    text_lacks(text, "No ratio is formed");
}

/* Steps of another --overlap, as they are recorded, neither lead nor trail where their run has the default one. */
TEST_IN_FOLDER(default_steps_stand_for_a_case)
{
#define STEP(seq, overlap, ms, rate)                                                                                   \
    "3,1,bench_transformer,graph,ok,,xl,4," seq ",bf16,train-step,none," overlap ",5," ms "," rate                     \
    ",1073741824,2000" END
#define PEER(seq, ms) "model,xl," seq ",4,bf16,sdpa,step-graph,p," ms ",2,100" OF("GPU-a", "c-1")
    machine(*state);
    folder_write(
        *state, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,overlap,warmup,step_"
        "ms,tokens_per_s,peak_bytes,params" RUN STEP("1024", "none", "110", "37000")
            STEP("1024", "auto", "100", "38491") STEP("1024", "all", "90", "39000") STEP("512", "none", "50", "40000"));
    folder_write(*state, "peer_model.csv",
                 "bench,size,seq,batch,precision,attn,mode,policy,step_ms,loss,gpu_busy_pct" ORIGIN PEER("1024", "120")
                     PEER("512", "65"));
    OWNED char *text = report_text(*state);
    text_has(text, "| training step, xl S 1024 batch 4 | 38491 tokens/s | | PyTorch in one graph 1.20 |");
    text_has(text, "| training step, bf16 | 2 / 0 / 0 | 1.20 to 1.30 | 1.25 | PyTorch in one graph 1.20, xl, S 1024, ");
}

/* What was timed or computed otherwise stands neither for a fixed case nor beside a peer, wherever in the files it is. */
TEST_IN_FOLDER(other_ways_stand_for_no_case)
{
#define WAY(grads, exact, batches, ms, rate)                                                                           \
    "3,1,bench_transformer,graph,ok,,xl,4,1024,bf16,train-step,none,auto,5," grads "," exact "," batches "," ms        \
    "," rate ",1073741824,2000" END
#define COPY(l2, timer, rate) "3,1,bench_roofline,copy_kernel,ok,,1073741824,500," rate ",0.15,graph," l2 "," timer END
    machine(*state);
    folder_write(*state, "bench_roofline.csv",
                 "schema,method,bench,variant,status,reason,bytes,time_us,gb_s,settle_s,timer,l2,timer_asked" RUN COPY(
                     "cold", "auto", "1111") COPY("warm", "graph", "2222") COPY("warm", "auto", "4200"));
    folder_write(
        *state, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,overlap,warmup,grad_dtype,"
        "deterministic,micro_batches,step_ms,tokens_per_s,peak_bytes,params" RUN WAY("fp32", "0", "1", "200", "1111")
            WAY("policy", "1", "1", "200", "2222") WAY("policy", "0", "2", "200", "3333")
                WAY("policy", "0", "1", "100", "38491"));
    folder_write(
        *state, "peer_model.csv",
        "bench,size,seq,batch,precision,attn,mode,policy,step_ms,loss,gpu_busy_pct" ORIGIN PEER("1024", "120"));
    OWNED char *text = report_text(*state);
    text_has(text, "| copy of 1 GiB | 4200 GB/s | 88 % | |");
    text_has(text, "| training step, xl S 1024 batch 4 | 38491 tokens/s | | PyTorch in one graph 1.20 |");
    folder_write(*state, "bench_roofline.csv",
                 "schema,method,bench,variant,status,reason,bytes,time_us,gb_s,settle_s,timer,l2,timer_asked" RUN COPY(
                     "cold", "auto", "1111"));
    folder_write(
        *state, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,overlap,warmup,grad_dtype,"
        "deterministic,micro_batches,step_ms,tokens_per_s,peak_bytes,params" RUN WAY("policy", "0", "2", "200",
                                                                                     "3333"));
    OWNED char *other = report_text(*state);
    text_has(other, "| copy of 1 GiB | 1111 GB/s |"); /* for lack of one by default */
    text_has(other, "| training step, xl S 1024 batch 4 | | | |");
}

/* A backward with an update beside it is none: the answer is that of the step without one. Dense steps and others' stand beside it. */
TEST_IN_FOLDER(parts_of_a_step)
{
    OWNED char *dir = folder_path(*state, "machine"), *published = folder_path(*state, "published");
    mkdir(dir, 0777);
    mkdir(published, 0777);
    machine(dir);
    folder_write(published, "model_timing.csv",
                 "source,gpu,size,seq,batch,dtype,mode,mean_ms,std_ms,compiled,status,profiler,table,repeat_of\n"
                 "a,,xl,512,,fp32,forward,300,,0,ok,none,benchmarking_script,\n"
                 "b,,xl,512,,fp32,forward,400,,0,ok,none,benchmarking_script,\n"
                 "c,,xl,512,,fp32,forward,900,,1,ok,none,benchmarking_script,\n"); /* compiled */
    folder_write(
        dir, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,attention,recompute,warmup,fwd_ms,bwd_"
        "ms,fwd_mean_ms,bwd_mean_ms,step_ms,step_mean_ms,step_std_ms,opt_alone_ms,peak_bytes,params" RUN
        "3,1,bench_transformer,graph,ok,,xl,4,512,fp32,train-step,flash,none,5,10,90,10,90,100,100,1,25,1,1" END
        "3,1,bench_transformer,graph,ok,,xl,4,512,fp32,forward-backward,flash,none,5,10,20,10,20,30,30,1,nan,1,1" END
        "3,1,bench_transformer,none,ok,,xl,4,512,fp32,train-step,unfused,none,5,99,99,99,99,200,200,1,25,1,1" END);
    OWNED char *text = report_text(dir);
    text_has(
        text,
        "With parts run one after another, xl, fp32: forward 10.0, backward 20.0, AdamW alone 25.0 ms. The backward "
        "takes 2.00 times as long as the forward.");
    text_has(text, "a step takes 200 ms (xl, fp32). For xl in fp32 others report, on their GPUs, 300 to 400 ms for a "
                   "forward.");
}

/* A step of PyTorch that would be 1.50 times ours, and one reason why it gives no ratio. */
static void refuses(const char *dir, const char *mode, const char *loss, const char *busy, const char *origin,
                    const char *why)
{
    OWNED char *rows = xasprintf("bench,size,seq,batch,precision,attn,mode,policy,step_ms,loss,gpu_busy_pct" ORIGIN
                                 "model,xl,1024,4,bf16,sdpa,%s,p,150,%s,%s%s",
                                 mode, loss, busy, origin);
    folder_write(dir, "peer_model.csv", rows);
    OWNED char *text = report_text(dir),
               *said = why ? xasprintf("No ratio is formed where %s: training step, bf16 (1).", why) : NULL;
    if (said)
        text_has(text, said);
    else
        text_has(text, "PyTorch compiled 1.50");
    if (said)
        text_lacks(text, "1.50");
}

TEST_IN_FOLDER(no_ratio_across_origins_and_hosts)
{
    machine(*state);
    steps(*state);
    refuses(*state, "compile", "2", "95", OF("GPU-a", "c-1"), NULL);
    refuses(*state, "compile", "2", "95", OF("", "c-1"), "a row does not name its GPU and run");
    refuses(*state, "compile", "2", "95", OF("GPU-a", ""), "a row does not name its GPU and run");
    refuses(*state, "compile", "2", "95", OF("GPU-b", "c-1"), "the peer ran on another GPU");
    refuses(*state, "compile", "2", "95", OF("GPU-a", "c-2"), "the peer was measured in another run");
    refuses(*state, "compile", "nan", "95", OF("GPU-a", "c-1"), "the peer's result is wrong");
    refuses(*state, "compile", "2", "", OF("GPU-a", "c-1"), "it is unknown how busy the peer's GPU was");
    refuses(*state, "compile", "2", "79", OF("GPU-a", "c-1"), "the peer was host-bound");
}

/* The same start: the losses stand beside the ratio, whose interval is that of both sides' steps, or refuse it. */
TEST_IN_FOLDER(losses_stand_beside_the_ratio)
{
    static const char *const thirds[][2] = {{"9.1", NULL}, {"9.3", "the peer's losses differ from ours"}};
    machine(*state);
    folder_write(
        *state, "bench_transformer.csv",
        "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,warmup,step_ms,step_p10_ms,"
        "step_p90_ms,tokens_per_s,peak_bytes,params,loss_third" RUN
        "3,1,bench_transformer,graph,ok,,xl,4,1024,bf16,train-step,none,5,100,98,102,38491,1073741824,2000,9" END);
    for (size_t i = 0; i < 2; i++) {
        OWNED char *rows = xasprintf(
            "bench,size,seq,batch,precision,attn,mode,optimizer,policy,step_ms,step_p10_ms,"
            "step_p90_ms,peak_gib,loss_third,attn_kernel,mfu_pct,planned,note" ORIGIN
            "model,xl,1024,4,bf16rest,fa4,fused-graph,beside,p,110,107.1,112.7,1,%s,k,44.4,5," OF(
                "GPU-a", "c-1") "model,xl,1024,4,bf16master,sdpa,block-graph,fused,p,120,120,120,1,"
                                "9,cudnn_flash,,5," OF("GPU-a", "c-1") "model,xl,1024,4,bf16,sdpa,eager,fused,p,,"
                                                                       ",,,,,,5,no memory" OF("GPU-a", "c-1"),
            thirds[i][0]);
        folder_write(*state, "peer_model.csv", rows);
        OWNED char *text = report_text(*state);
        if (thirds[i][1])
            text_has(text, thirds[i][1]);
        text_has(text, thirds[i][1] ? "| PyTorch in one graph, fp32 master, attention by cuDNN (loss 9.000, ours "
                                      "9.000) 1.20 [1.18, 1.22], "
                                    : "| PyTorch fused, in one graph, fp32 remainders, attention fa4, AdamW during "
                                      "the backward (loss 9.100, ours 9.000) 1.10 [1.05, 1.15], xl, S 1024, batch 4; "
                                      "MFU 44 %, GPU busy 100 % |");
        text_has(text, "Of the listed steps of PyTorch, 2 of 5 on one GPU ran.");
    }
    char *ours = folder_text(*state, "bench_transformer.csv"), *loss = strstr(ours, ",2000,9") + strlen(",2000,");
    memmove(loss, loss + 1, strlen(loss)); /* an empty cell */
    folder_write(*state, "bench_transformer.csv", ours);
    free(ours);
    OWNED char *text = report_text(*state);
    text_has(text, "our row has no third loss to compare");
}

/* What gains least comes first, with its price in loss: of steps and of runs. A run whose loss is lower has no gap above. */
TEST_IN_FOLDER(float8_leads_with_what_gains_least)
{
#define STEP8(precision, speed, pays)                                                                                  \
    "3,1,bench_transformer,graph,ok,,xl,4,1024," precision ",train-step,none,5,100,100,40000," speed "," pays END
#define RUN8(precision, draw, speed, gap)                                                                              \
    "3,1,bench_run,log,ok,,small,512," precision ",1000,8," draw ",1.25," speed "," gap END
    machine(*state);
    folder_write(*state, "bench_transformer.csv",
                 "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,warmup,step_ms,"
                 "step_mean_ms,tokens_per_s,speedup_bf16,fp8_pays" RUN STEP8("fp8-delayed", "1.3", "yes")
                     STEP8("fp8-rowwise", "0.9", "no") STEP8("fp8-block", "1.2", "yes"));
    folder_write(*state, "bench_run.csv",
                 "schema,method,bench,variant,status,reason,size,seq,precision,steps,global_batch,draw,loss_last,"
                 "speedup_bf16,loss_gap_pct" RUN RUN8("fp8-block", "0", "0.7", "-0.1")
                     RUN8("fp8-block", "1", "0.9", "-0.3") RUN8("fp8-rowwise", "0", "0.95", "0.4"));
    free(report_text(*state));
    OWNED char *page = folder_text(*state, "report.html");
    text_has(page,
             "a step of xl at S 1024 is 0.900 times as fast as in bf16 (fp8-rowwise); that is the least of 3 steps, "
             "and its loss after a run is 0.400 % above that of bf16. The most is 1.30; 1 step did not gain.");
    text_has(page,
             "fp8-block gains least: on small at S 512, its step is 0.800 times as fast as in bf16, and after 1000 "
             "steps its loss is 0.200 % below that of bf16. The most is 0.950.");
}

/* An interval is from the quickest tenth of one side's steps over the slowest of the other's to the other way round. */
TEST_IN_FOLDER(shared_layers_have_an_interval)
{
    machine(*state);
    folder_write(
        *state, "bench_tp.csv",
        "schema,method,bench,variant,status,reason,ranks,size,seq,batch,precision,recompute,micro_batches,loss,"
        "moments,mesh,clip,step_ms,step_p10_ms,step_p90_ms" RUN
        "3,1,bench_tp,copy,ok,,2,2.7b,2048,4,bf16-pure,none,1,parallel,policy,tp,0,100,98,102" END);
    folder_write(*state, "peer_tp.csv",
                 "bench,ranks,size,seq,batch,precision,attn,mode,timing,policy,step_ms,step_p10_ms,step_p90_ms,loss,"
                 "mfu_pct,gpu_busy_pct" ORIGIN
                 "tp,2,2.7b,2048,4,bf16pure,sdpa,block-graph,queued,p,125,122.4,127.4,9,42,97" OF("GPU-a", "c-1"));
    OWNED char *text = report_text(*state);
    text_has(text, "PyTorch DTensor, block-graph 1.25 [1.20, 1.30], 2.7b, batch 4, S 2048");
}

/* The interval of few samples is from the least over the largest to the largest over the least. */
TEST_IN_FOLDER(collectives_and_stalls_have_an_interval)
{
    machine(*state);
    folder_write(*state, "bench_allreduce.csv",
                 "schema,method,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_ms,min_ms,max_ms,"
                 "size" RUN "3,1,bench_allreduce,one-shot,ok,,2,1024,fp32,1,graph,0.002,0.00196,0.0025,1 KiB" END);
    folder_write(*state, "peer_nccl_tests.csv",
                 "bench,tool,ranks,bytes,mode,in_place,policy,median_us,least_us,most_us,wrong" ORIGIN
                 "nccl_tests,t,2,1024,graph,1,p,6,5.9,6.2,0" OF("GPU-a", "c-1"));
    folder_write(*state, "bench_checkpoint.csv",
                 "schema,method,bench,variant,status,reason,ranks,strategy,size,batch,seq,precision,fs,io_used,moments,"
                 "state_bytes,stall_ms,stall_min_ms,stall_max_ms" RUN
                 "3,1,bench_checkpoint,async,ok,,1,ddp,xl,4,512,bf16,tmpfs,buffered,policy,1000,100,80,125" END);
    folder_write(*state, "peer_checkpoint.csv",
                 "bench,way,ranks,size,seq,batch_per_rank,precision,fs,policy,stall_ms,stall_min_ms,stall_max_ms,"
                 "state_bytes" ORIGIN
                 "checkpoint,async-pinned,1,xl,512,4,bf16,tmpfs,p,200,150,240,1000" OF("GPU-a", "c-1"));
    OWNED char *text = report_text(*state);
    text_has(text, "nccl-tests 3.00 [2.36, 3.16], 1 KiB");
    text_has(text, "PyTorch, async-pinned 2.00 [1.20, 3.00], async, xl, batch 4, S 512, 1 GPU");
}

/* What recomputation saves is the difference of two peaks; the plan's own figure stands in the table. */
TEST_IN_FOLDER(what_recomputation_saves_is_measured)
{
    machine(*state);
    folder_write(*state, "bench_recompute.csv",
                 "schema,method,bench,variant,status,reason,size,batch,seq,precision,step_ms,extra_pct,peak_bytes,"
                 "saved_bytes" RUN "3,1,bench_recompute,none,ok,,xl,4,512,bf16,50,0,4294967296,0" END
                 "3,1,bench_recompute,but-attention,ok,,xl,4,512,bf16,56,12,2147483648,2147483648" END
                 "3,1,bench_recompute,block,ok,,xl,4,512,bf16,60,20,1073741824,2147483648" END);
    free(report_text(*state));
    OWNED char *text = folder_text(*state, "report.html");
    text_has(text, "all but attention 2.00 GiB for 12.0 %; whole blocks save 3.00 GiB for 20");
}

/* Rates of an update: the peer's by its name, beside ours of the nearest number of parameters. */
TEST_IN_FOLDER(updates_by_bytes_per_second)
{
    machine(*state);
    folder_write(*state, "bench_transformer.csv",
                 "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,params,step_ms,opt_alone_ms,"
                 "opt_alone_p10_ms,opt_alone_p90_ms,opt_tb_s" RUN
                 "3,1,bench_transformer,graph,ok,,xl,4,512,fp32,train-step,400000000,9,4,3.75,5,3" END
                 "3,1,bench_transformer,graph,ok,,small,4,512,fp32,train-step,100000000,9,4,3.75,5,1" END);
    folder_write(*state, "peer_adamw.csv",
                 "bench,impl,params,mode,policy,median_ms,p10_ms,p90_ms,gb_s" ORIGIN
                 "adamw,fused,500000000,event,p,5,4,6,2000" OF(
                     "GPU-a", "c-1") "adamw,compiled,500000000,event,p,5,4.5,6,2500" OF("GPU-a", "c-1"));
    OWNED char *text = report_text(*state);
    text_has(text, "| PyTorch compiled 1.20 [0.86, 1.54], 400 million parameters, theirs 500 million |"); /* its best */
}

TEST_IN_FOLDER(no_ratio_across_timers_and_settling)
{
    static const char *const cases[][3] = {
        {"graph", "settled; samples after 0.15 s", NULL},
        {"event", "settled; samples after 0.15 s", "only one side was replayed from a CUDA graph"},
        {"graph", "no word", "only one side had settled before its samples"}};
    machine(*state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED char *rows = xasprintf("bench,dtype,size,mode,policy,median_ms,tflops" ORIGIN
                                     "gemm,bf16,2048,%s,%s,0.05,100" OF("GPU-a", "c-1"),
                                     cases[i][0], cases[i][1]);
        roofline(*state, "graph");
        folder_write(*state, "peer_gemm.csv", rows);
        OWNED char *text = report_text(*state);
        if (cases[i][2]) {
            text_has(text, cases[i][2]);
            text_lacks(text, "PyTorch 2.00");
        } else {
            text_has(text, "cuBLAS 2.00 to 2.00 (1 case)"); /* of one library, not of ours */
            text_lacks(text, "| matrix product, bf16 |");
        }
    }
}

TEST_IN_FOLDER(a_copy_with_its_percentiles)
{
    machine(*state);
    folder_write(*state, "bench_roofline.csv",
                 "schema,method,bench,variant,status,reason,bytes,time_us,time_p10_us,time_p90_us,settle_s,timer" RUN
                 "3,1,bench_roofline,copy_kernel,ok,,1073741824,500,490,510,0.15,graph" END);
    folder_write(*state, "peer_gemm.csv",
                 "bench,dtype,size,mode,policy,median_ms,p10_ms,p90_ms" ORIGIN
                 "copy,fp32,1073741824,graph,samples after 0.15 s,0.6,0.55,0.7" OF("GPU-a", "c-1"));
    OWNED char *text = report_text(*state);
    text_has(text, "PyTorch 1.20 [1.08, 1.43]");
}

TEST_IN_FOLDER(attention_with_its_rounds)
{
#define FLASH(impl, batch, heads, seq, ratio, lo, hi, diff)                                                            \
    "flash," impl ",bf16," batch "," heads "," heads "," seq ",128,0,1,bhsd,graph,p,1,1," ratio "," lo "," hi          \
    ",1.2,1.1,1.3,fp64," diff ",0.002" OF("GPU-a", "c-1")
    machine(*state);
    folder_write(
        *state, "peer_flash.csv",
        "bench,impl,dtype,batch,heads,heads_kv,seq,head_dim,head_dim_v,causal,layout,mode,policy,fwd_ms,bwd_ms,fwd_"
        "ratio,fwd_ratio_lo,fwd_ratio_hi,bwd_ratio,"
        "bwd_ratio_lo,bwd_ratio_hi,reference,fwd_diff,bwd_diff" ORIGIN FLASH("stepbench", "8", "16", "2048", "1", "1",
                                                                             "1", "0.002")
            FLASH("fa4", "8", "16", "2048", "0.95", "0.94", "0.97", "0.002")  /* faster in each round */
        FLASH("sdpa_cudnn", "8", "16", "2048", "0.90", "0.89", "0.91", "0.5") /* and wrong */
        FLASH("stepbench", "8", "16", "4096", "1", "1", "1", "0.002")
            FLASH("fa4", "8", "16", "4096", "0.99", "0.97", "1.01", "0.002") /* on both sides of 1 */
        FLASH("stepbench", "1", "1", "4096", "1", "1", "1", "0.002")
            FLASH("fa4", "1", "1", "4096", "3", "2.9", "3.1", "0.002")  /* a class of its own */
        FLASH("fa4", "2", "16", "2048", "0.5", "0.5", "0.5", "0.002")); /* ours did not run beside it */
    OWNED char *text = report_text(*state);
    text_has(text,
             "| attention, forward, bf16, full loads | 0 / 1 / 1 | 0.95 to 0.99 | 0.97 | FlashAttention-4 0.95 [0.94, "
             "0.97], B 8, "
             "H 16, S 2048, D 128 |");
    text_has(text, "| attention, forward, bf16, one head | 1 / 0 / 0 | 3.00 | 3.00 |");
    text_has(text, "the peer's result is wrong: attention, forward, bf16, full loads (1)");
    text_lacks(text, "0.50");
    assert_true(strstr(text, "| attention, forward, bf16, full loads |") <
                strstr(text, "| attention, forward, bf16, one head |")); /* the worst first */
}

/* A window, packed documents and the deterministic backward are works of their own, and only the same stand beside each other. */
TEST_IN_FOLDER(attention_of_each_mask_beside_its_own)
{
#define MASKED(impl, mask, ratio)                                                                                      \
    "flash," impl ",bf16,8,16,16,2048,128,0,1," mask ",bhsd,graph,p,1,1," ratio "," ratio "," ratio "," ratio          \
    "," ratio "," ratio ",fp64,0.002,0.002" OF("GPU-a", "c-1")
#define PLAIN "-1,0,equal,0"
#define WINDOW "1024,0,equal,0"
#define DOCUMENTS "-1,8,random,0"
#define DETERMINISTIC "-1,0,equal,1"
    static const char header[] =
        "bench,impl,dtype,batch,heads,heads_kv,seq,head_dim,head_dim_v,causal,window,documents,"
        "lengths,deterministic,layout,mode,policy,fwd_ms,bwd_ms,fwd_ratio,fwd_ratio_lo,fwd_"
        "ratio_hi,bwd_ratio,bwd_ratio_lo,bwd_ratio_hi,reference,fwd_diff,bwd_diff" ORIGIN;
    machine(*state);
    OWNED char *rows = xasprintf(
        "%s%s", header,
        MASKED("stepbench", PLAIN, "1") MASKED("fa4", PLAIN, "1.11") MASKED("stepbench", WINDOW, "1")
            MASKED("fa4", WINDOW, "1.77") MASKED("flex", WINDOW, "1.22") MASKED("flex", "512,0,equal,0", "0.41")
                MASKED("stepbench", DOCUMENTS, "1") MASKED("varlen_fa2", DOCUMENTS, "1.33")
                    MASKED("fa4", "-1,8,equal,0", "0.42") MASKED("fa4", "-1,4,random,0", "0.43")
                        MASKED("stepbench", DETERMINISTIC, "1") MASKED("fa4", DETERMINISTIC, "1.44"));
    folder_write(*state, "peer_flash.csv", rows);
    OWNED char *text = report_text(*state);
    text_has(text,
             "| attention, forward, bf16, full loads | 1 / 0 / 0 | 1.11 | 1.11 | FlashAttention-4 1.11 [1.11, 1.11], "
             "B 8, H 16, S 2048, D 128 |");
    text_has(text, "| attention, backward, bf16, full loads | 1 / 0 / 0 | 1.11 |");
    text_has(text, "| attention in a window, forward, bf16, full loads | 1 / 0 / 0 | 1.22 | 1.22 | FlexAttention 1.22 "
                   "[1.22, 1.22], B 8, H 16, S 2048, D 128, window 1024 |");
    text_has(text, "| attention of packed documents, backward, bf16, full loads | 1 / 0 / 0 | 1.33 | 1.33 | "
                   "FlashAttention-2 1.33 [1.33, 1.33], B 8, H 16, S 2048, D 128, 8 documents of random lengths |");
    text_has(text, "| deterministic attention, backward, bf16, full loads | 1 / 0 / 0 | 1.44 |");
    text_lacks(text, "0.41"); /* ours have other windows, lengths and documents */
    text_lacks(text, "0.42");
    text_lacks(text, "0.43");
    /* A file of the time before them has no such column, and is plain. Nor does a window stand beside that. */
    OWNED char *windows = xasprintf("%s%s", header, MASKED("stepbench", PLAIN, "1") MASKED("fa4", WINDOW, "0.44"));
    folder_write(*state, "peer_flash.csv", windows);
    OWNED char *none = report_text(*state);
    text_lacks(none, "0.44");
}

/* ---- ranks of the CPU ---- */

TEST_IN_FOLDER(ranks_of_the_cpu_have_a_page)
{
#define CALL(bytes, size, ms, device)                                                                                  \
    "3,1,bench_allreduce,all-reduce,ok,,2," bytes ",fp32,1,eager," ms ",1,1,1,1,0.1,2,3," size                         \
    ",gloo,r-1,c-1,box,G,," device ",1,aaa,0,2026\n"
    static const char header[] = "schema,method,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_ms,"
                                 "mean_ms,min_ms,max_ms,rank_mean_ms,std_ms,"
                                 "algbw_gb_s,busbw_gb_s,size,backend" RUN;
    OWNED char *both =
        xasprintf("%s%s%s", header, CALL("1000000", "1 MB", "0.5", "cpu"), CALL("1000000", "1 MB", "0.25", "cuda"));
    machine(*state);
    folder_write(*state, "bench_allreduce.csv", both);
    char *text = report_text(*state), *cpu = folder_text(*state, "report-cpu.md");
    text_has(text, "1 MB takes 0.250 ms");
    text_lacks(text, "0.500");
    text_has(text, "[a page of their own](report-cpu.html)");
    text_has(cpu, "# CPU: A CPU");
    text_has(cpu, "1 MB takes 0.500 ms");
    text_lacks(cpu, "0.250");
    text_lacks(cpu, "bf16 matrix product, best of four sizes"); /* the cases of GPUs */
    free(cpu);
    free(text);
    OWNED char *only = xasprintf("%s%s", header, CALL("1000000", "1 MB", "0.25", "cuda")),
               *path = folder_path(*state, "report-cpu.md");
    assert_int_equal(unlink(path), 0);
    folder_write(*state, "bench_allreduce.csv", only);
    free(report_text(*state));
    assert_int_equal(access(path, F_OK), -1);
    OWNED char *none = xasprintf("%s%s", header, CALL("1000000", "1 MB", "0.5", "cpu"));
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,cpu,A CPU\n");
    folder_write(*state, "bench_allreduce.csv", none);
    OWNED char *alone = report_text(*state);
    text_has(alone, "None of the fixed cases of a first screen ran here.");
    text_lacks(alone, "| bf16 matrix product");
    text_lacks(alone, "Limits:");
}

/* A machine without a GPU has cases of its own on the first screen, and a last line of them. */
TEST_IN_FOLDER(a_cpu_has_its_cases)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,cpu,A CPU\n");
    folder_write(*state, "bench_roofline.csv",
                 "schema,method,bench,variant,status,reason,dtype,bytes,tflops,gb_s" RUN
#define OF_CPU ",r-1,c-1,box,A CPU,,cpu,1,aaaaaaaaaaaa,0,2026-11-21T10:00:00Z\n"
                 "3,1,bench_roofline,gemm,ok,,fp32,nan,0.05,nan" OF_CPU
                 "3,1,bench_roofline,gemm,ok,,fp32,nan,0.25,nan" OF_CPU
                 "3,1,bench_roofline,copy_kernel,ok,,,67108864,nan,9" OF_CPU
                 "3,1,bench_roofline,copy_kernel,ok,,,268435456,nan,7" OF_CPU);
    folder_write(*state, "bench_transformer.csv",
                 "schema,method,bench,variant,status,reason,size,batch,seq,precision,mode,recompute,attention,warmup,"
                 "step_ms,tokens_per_s,peak_bytes,params" RUN
                 "3,1,bench_transformer,kernels,ok,,tiny,2,32,fp32,train-step,none,flash,5,4,16000,100,2000" OF_CPU
                 "3,1,bench_transformer,kernels,ok,,tiny,2,16,fp32,train-step,none,flash,5,2,17000,100,2000" OF_CPU);
    OWNED char *build = build_folder(), *said_of = xasprintf("'%s/report' '%s'", build, (char *)*state);
    int code;
    OWNED char *said = command_text(said_of, &code), *text = folder_text(*state, "report.md");
    text_has(text, "| fp32 matrix product on the CPU, best of all shapes | 250 GFLOP/s |");
    text_has(text, "| copy of 256 MiB | 7.00 GB/s |");
    text_has(text, "| training step, tiny S 32 batch 2, fp32 | 16000 tokens/s |");
    text_lacks(text, "| bf16 matrix product");
    text_lacks(text, "Limits:");
    text_has(said, "\nCPU: A CPU: fp32 250 GFLOP/s, copy 7.00 GB/s, tiny 16000 tokens/s; ");
}

/* ---- several folders ---- */

TEST_IN_FOLDER(folders_side_by_side)
{
#define ALL_REDUCE                                                                                                     \
    "schema,method,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_ms,min_ms,max_ms,busbw_gb_s,"    \
    "size" RUN "3,1,bench_allreduce,all-reduce,ok,,2,1073741824,fp32,1,graph,"
    OWNED char *a = folder_path(*state, "a"), *b = folder_path(*state, "b"), *readme = folder_path(*state, "README.md");
    mkdir(a, 0777);
    mkdir(b, 0777);
    machine(a);
    roofline(a, "graph");
    folder_write(a, "bench_tp.csv", /* older, by a commit that sorts behind the newest one */
                 "schema,method,bench,variant,status,reason,ranks" RUN "3,1,bench_tp,copy,skip,none,2,r-0,c-0,box," H200
                 ",GPU-a,cuda,1,ffffffffffff,0,2026-11-20T10:00:00Z\n");
    machine(b);
    steps(b);
    for (int i = 0; i < 2; i++) /* only b has the link's rate, and so a share */
        folder_write(i ? b : a, "bench_allreduce.csv",
                     i ? ALL_REDUCE "0.003,0.003,0.003,310,1 GiB" END : ALL_REDUCE "0.003,0.003,0.003,300,1 GiB" END);
    folder_write(b, "bench_roofline.csv",
                 "schema,method,bench,variant,status,reason,bytes,gb_s" RUN
                 "3,1,bench_roofline,p2p,ok,,1073741824,400" END);
    for (int i = 0; i < 2; i++) /* the step that both have is one of two */
        folder_write(i ? b : a, "peer_model.csv",
                     "bench,size,seq,batch,precision,attn,mode,policy,step_ms,loss,gpu_busy_pct,planned" ORIGIN
                     "model,xl,1024,4,bf16,sdpa,step-graph,p,150,2,100,2" OF("GPU-a", "c-1"));
    char *arguments = xasprintf("--all '%s' '%s' '%s'", (char *)*state, a, b);
    report_run(arguments);
    OWNED char *all = folder_text(*state, "report-all.md");
    text_has(all, "| on | 1 x NVIDIA H200 (a) | 1 x NVIDIA H200 (b) |");
    text_has(all, "| copy of 1 GiB | 4200 GB/s (88 %) | |");
    text_has(all, "| training step, xl S 1024 batch 4 | | 38491 tokens/s (MFU 48 %) |");
    text_lacks(all, "all-reduce of 1 KiB"); /* which ran nowhere */
    text_has(all, "| a | 1 x NVIDIA H200 | 2026-11-21 | aaaaaaaaaaaa |");
    file_write(readme, "above\n<!-- begin table -->\nold\n<!-- end table -->\nbetween\n<!-- begin peers -->\nold\n<!-- "
                       "end peers -->\nbelow\n");
    free(arguments);
    arguments = xasprintf("--readme '%s' '%s' '%s'", a, b, readme);
    report_run(arguments);
    OWNED char *text = file_text(readme);
    text_has(text,
             "above\n<!-- begin table -->\n| on | 1 x NVIDIA H200 |\n"); /* one column for machines that are alike */
    text_has(text, "| copy of 1 GiB | 4200 GB/s (88 %) |\n");
    text_has(text, "| training step, xl S 1024 batch 4 | 38491 tokens/s (MFU 48 %) |\n");
    text_has(text, "| all-reduce of 1 GiB, bus bandwidth | 310 GB/s on 2 (78 %) |\n");
    text_lacks(text, "ffffffffffff");
    text_has(text,
             "\nOrigin of the rows: NVIDIA H200, 2 folders of 2026-11-21. How each folder was measured, and at which "
             "commit: "
             "[results/README.md](results/README.md).\n<!-- end table -->\nbetween\n<!-- begin peers -->\n| work |");
    text_has(text, "| training step, bf16 | 1 / 0 / 0 | 1.50 | PyTorch in one graph 1.50, xl, S 1024, batch 4, `b` "
                   "|\n");
    text_has(text, "\nOf the listed steps of PyTorch, 1 of 2 on one GPU ran.");
    text_has(text, "<!-- end peers -->\nbelow\n");
    text_lacks(text, "\nold\n");
    OWNED char *page = report_text(a);
    text_has(page, "2026-11-21, stepbench aaaaaaaaaaaa, driver");
    text_has(page, "- 5 of 6 cases ran; not supported: 1.");
    free(arguments);
}

/* Folders of one name, from two clones, have a column each; a folder has one. */
TEST_IN_FOLDER(folders_of_one_name)
{
    OWNED char *a = folder_path(*state, "a"), *twin = folder_path(*state, "twin"), *b = folder_path(*state, "twin/a");
    mkdir(a, 0777);
    mkdir(twin, 0777);
    mkdir(b, 0777);
    machine(a);
    roofline(a, "graph");
    machine(b);
    steps(b);
    OWNED char *arguments = xasprintf("--all '%s' '%s' '%s'", (char *)*state, a, b),
               *title = xasprintf("| on | 1 x NVIDIA H200 (%s) | 1 x NVIDIA H200 (%s) |", a, b);
    report_run(arguments);
    OWNED char *all = folder_text(*state, "report-all.md");
    text_has(all, title);
    text_has(all, "| copy of 1 GiB | 4200 GB/s (88 %) | |");
    text_has(all, "| training step, xl S 1024 batch 4 | | 38491 tokens/s (MFU 48 %) |");
    int code;
    OWNED char *build = build_folder(),
               *command = xasprintf("'%s/report' --all '%s' '%s' '%s' 2>&1", build, (char *)*state, a, a),
               *said = command_text(command, &code), *twice = xasprintf("report: '%s' is given twice\n", a);
    assert_int_equal(code, EXIT_CODE_USAGE);
    assert_string_equal(said, twice);
}

/* In a table of machines, GPUs without each other's memory must not stand for those that have it. */
TEST_IN_FOLDER(gpus_kept_apart_are_another_machine)
{
    OWNED char *a = folder_path(*state, "a"), *b = folder_path(*state, "b"), *readme = folder_path(*state, "README.md");
    mkdir(a, 0777);
    mkdir(b, 0777);
    for (int i = 0; i < 2; i++)
        folder_write(i ? b : a, "bench_allreduce.csv",
                     i ? ALL_REDUCE "60,60,60,28,1 GiB" END : ALL_REDUCE "3,3,3,300,1 GiB" END);
    machine(a);
#define OF_TWO "run_id,key,value\nr-1,gpu_name," H200 "\nr-1,gpu_count,2\nr-1,NCCL_P2P_DISABLE,1\n"
    folder_write(b, "machine.csv", OF_TWO);
    file_write(readme, "<!-- begin table -->\n<!-- end table -->\n<!-- begin peers -->\n<!-- end peers -->\n");
    OWNED char *arguments = xasprintf("--readme '%s' '%s' '%s'", a, b, readme), *page = report_text(b);
    report_run(arguments);
    OWNED char *text = file_text(readme);
    text_has(page, "# 2 x NVIDIA H200 with NCCL_P2P_DISABLE=1\n");
    text_has(text, "| on | 1 x NVIDIA H200 | 2 x NVIDIA H200 with NCCL_P2P_DISABLE=1 |\n");
    folder_write(b, "machine.csv", OF_TWO "r-0,gpu_name," H200 "\nr-0,gpu_count,2\n");
    OWNED char *some = report_text(b);
    text_has(some, "# 2 x NVIDIA H200, some runs with NCCL_P2P_DISABLE=1\n");
}

/* ---- the committed folders ---- */

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

TEST_IN_FOLDER(a_page_is_short)
{
    glob_t found;
    assert_int_equal(glob("results/*/machine.csv", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        *strrchr(found.gl_pathv[i], '/') = '\0';
        OWNED char *copy =
            xasprintf("mkdir -p '%s/results' && ln -sfn \"$PWD/plots\" '%s/plots' && cp -r '%s' '%s/results/'",
                      (char *)*state, (char *)*state, found.gl_pathv[i], (char *)*state);
        assert_int_equal(system(copy), 0);
        OWNED char *dir = xasprintf("%s/results/%s", (char *)*state, strrchr(found.gl_pathv[i], '/') + 1),
                   *text = report_text(dir);
        if (count(text, "\n") > 250 || count(text, "![") > 8)
            fail_msg("%s: %zu lines, %zu figures", found.gl_pathv[i], count(text, "\n"), count(text, "!["));
        text_lacks(text, "nan");
        text_lacks(text, " - |");
    }
    globfree(&found);
}
