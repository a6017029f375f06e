/* SPDX-License-Identifier: MIT */
/* What the page says of steps on several ranks, of all-reduces and of one feature after the other, from planted rows. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#define END ",r-1,c-1,box,NVIDIA H200,GPU-a,cuda,1,aaaaaaaaaaaa,0,2026-11-21T10:00:00Z\n"
#define RUN ",run_id,campaign,machine,gpu,gpu_uuid,device,check,commit,dirty,utc\n"
#define ORIGIN ",torch,cuda,cudnn,nccl,driver,gpu,gpu_uuid,utc,commit,run_id\n"
#define OF ",2,13,9,2,580,NVIDIA H200,GPU-a,2026-11-21T10:10:00Z,bbb,c-1\n"

static char *html(const char *dir)
{
    free(report_text(dir));
    return folder_text(dir, "report.html");
}

#define DDP                                                                                                            \
    "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,grad_dtype,update,bucket_mb,step_ms,"    \
    "wire_dtype,buckets,"                                                                                              \
    "step_p5_ms,step_p95_ms,exposed_ms,exposed_lo_ms,exposed_hi_ms,tail_ms,comm_alone_ms,comm_pct,tokens_per_s,err_"   \
    "grad,err_param,params"
#define STEP(bench, variant, update, mb, ms, wire, exposed)                                                            \
    "3,1," bench "," variant ",ok,,2,xl,2,512,bf16,policy," update "," mb "," ms "," wire ",435," ms "," ms            \
    "," exposed ",2,20,40,8000,0.001,0,2000" END

TEST_IN_FOLDER(strategies_and_their_answers)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,gpu_name,NVIDIA H200\nr-1,gpu_count,2\n");
    folder_write(*state, "bench_ddp_naive.csv",
                 DDP RUN STEP("bench_ddp_naive", "naive", "after", "", "80", "bf16", "35,34,36"));
    folder_write(*state, "bench_ddp_flat.csv",
                 DDP RUN STEP("bench_ddp_flat", "flat", "after", "", "65", "bf16", "22,21,23"));
    folder_write(*state, "bench_ddp_overlap.csv",
                 DDP RUN STEP("bench_ddp_overlap", "overlap", "buckets", "", "66", "bf16", "24,23.5,24.5"));
    folder_write(*state, "bench_ddp_bucketed.csv",
                 DDP RUN STEP("bench_ddp_bucketed", "bucketed", "buckets", "1", "62", "bf16", "20,19,21")
                     STEP("bench_ddp_bucketed", "bucketed", "buckets", "100", "50", "bf16", "9,8,10")
                         STEP("bench_ddp_bucketed", "bucketed", "backward", "100", "40", "bf16", "4,3,5"));
    folder_write(
        *state, "peer_ddp.csv",
        "bench,strategy,ranks,size,seq,batch_per_rank,precision,attn,mode,timing,policy,bucket_mb,step_ms,gpu_busy_"
        "pct" ORIGIN "ddp,ddp,2,xl,512,2,bf16,sdpa,compile,queued,p,25,120,95" OF /* autocast sends fp32, ours bf16 */
        "ddp,fsdp2,2,xl,512,2,bf16,sdpa,compile,queued,p,0,44,95" OF);            /* nothing of ours does the same */
    char *text = report_text(*state);
    text_has(text, "| data parallel, xl S 512 batch 2 per GPU | 40.00 ms on 2 | efficiency 60 % | |");
    text_has(text,
             "of a step of 80.00 ms, 35.00 [34.00, 36.00] ms (40.0 %) are communication. Its 435 all-reduces follow "
             "the backward");
    text_has(
        text,
        "communication falls from 35.00 [34.00, 36.00] to 22.00 [21.00, 23.00] ms, the step from 80.00 to 65.00 ms");
    text_has(text, "1 MB 62.00 ms, 100 MB 50.00 ms; 100 MB is best, where a call for each tensor takes 66.00 ms");
    text_has(text,
             "**naive_ddp** (2025, 2026): 1 of 1 cases agree with one rank that computes everything: gradients are "
             "off by at most 0.00100");
    text_lacks(text, "| data-parallel step");
    free(text);
    text = html(*state);
    text_has(text,
             "Expected in exposed time: naive ≥ flat ≥ overlap ≥ bucketed. In this run: flat 13.00 ms less "
             "than naive (intervals separate); overlap 2.000 ms more than flat (intervals separate); bucketed 100 MB "
             "15.00 ms less than overlap (intervals separate). One run gives no verdict.");
    text_has(text, ">bucketed 100 MB (update backward)</td>");
    free(text);
    /* In the dtype that it sends, the same row stands beside ours. */
    folder_write(*state, "bench_ddp_bucketed.csv",
                 DDP RUN STEP("bench_ddp_bucketed", "bucketed", "backward", "100", "40", "fp32", "4,3,5"));
    text = report_text(*state);
    text_has(text,
             "| data-parallel step, bf16 | 1 / 0 / 0 | 3.00 | 3.00 | PyTorch ddp, compile, bf16 3.00, xl, batch 2 per "
             "rank, S 512, bf16, gradients fp32, 2 ranks |");
    free(text);
}

#define FSDP                                                                                                           \
    "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,mode,recompute,grad_dtype,update,step_"  \
    "ms,wire_dtype,tokens_per_s,peak_bytes,"                                                                           \
    "param_bytes,state_bytes,after_step_bytes,exposed_ms,params"
#define SHARD(variant, ranks, precision, grads, ms, tokens, peak)                                                      \
    "3,1,bench_fsdp," variant ",ok,," ranks ",xl,2,512," precision ",train-step,none," grads ",buckets," ms            \
    ",fp32," tokens "," peak ",1e9,2e9,3e9,5,2000" END

TEST_IN_FOLDER(one_feature_after_the_other)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,gpu_name,NVIDIA H200\nr-1,gpu_count,2\n");
    folder_write(*state, "bench_fsdp.csv",
                 FSDP RUN SHARD("ddp", "2", "fp32", "policy", "300", "6000", "32e9")
                     SHARD("ddp", "2", "bf16", "fp32", "60", "34000", "32e9")
                         SHARD("zero1", "2", "bf16", "fp32", "50", "40000", "22e9")
                             SHARD("fsdp", "2", "bf16", "fp32", "40", "50000", "20e9")
                                 SHARD("fsdp", "2", "bf16", "policy", "44", "45000", "18e9")
                                     SHARD("fsdp", "4", "bf16", "fp32", "50", "80000", "15e9"));
    OWNED char *text = html(*state);
    text_has(text, "Several ranks: xl, S 512, batch 2 on each of 2 ranks");
    text_has(text, ">+ parameters in slices (FSDP)</td>");
    text_has(text, ">40.0</td><td class=\"n\">1.25</td>");  /* over ZeRO-1, the line above */
    text_has(text, ">44.0</td><td class=\"n\">0.909</td>"); /* beside FSDP, the last line with + */
    text_has(text, ">+10.0 %</td>");
    text_has(text, ">-1.86 GiB</td>");
    text_has(text,
             "From &quot;fp32, everything on every rank&quot; to &quot;+ parameters in slices (FSDP)&quot; the step "
             "becomes 7.50 times as fast");
    text_has(text, "The largest part is &quot;+ bf16, gradients in fp32&quot;: 5.00 times.");
    text_has(text, "<h3 id=\"weak-scaling\">Weak scaling</h3>");
    text_has(text, ">80000</td><td class=\"n\">80.0</td>"); /* of linear: 20000 of a rank's 25000 */
}

/* FSDP in float8 stands beside a peer that gathers as it does: weights, not codes. */
TEST_IN_FOLDER(float8_beside_what_gathers_alike)
{
#define GATHERS(asked, dtype, ms)                                                                                      \
    "3,1,bench_fsdp,fsdp,ok,,2,xl,2,512,fp8-tensorwise,train-step,none,fp32," asked "," ms ",fp32," dtype              \
    ",16106127360" END
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,gpu_name,NVIDIA H200\nr-1,gpu_count,2\n");
    folder_write(*state, "bench_fsdp.csv",
                 "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,mode,recompute,grad_dtype,"
                 "gather_dtype,step_ms,wire_dtype,gathered_dtype,peak_bytes" RUN GATHERS("float8", "e4m3", "30")
                     GATHERS("param", "bf16", "40"));
    folder_write(*state, "peer_ddp.csv",
                 "bench,strategy,ranks,size,seq,batch_per_rank,precision,attn,mode,timing,policy,bucket_mb,step_ms,"
                 "gpu_busy_pct" ORIGIN
                 "ddp,fsdp2,2,xl,512,2,fp8-tensorwise-ao,sdpa,fused-prefetch,queued,p,0,60,95" OF);
    OWNED char *text = report_text(*state);
    text_has(text, "| FSDP step, sums in fp32, fp8-tensorwise | 1 / 0 / 0 | 1.50 | 1.50 | PyTorch fsdp2, ");
    /* The fastest is of any precision, and says which. */
    text_has(text, "The fastest FSDP step of xl, S 512, batch 2 per rank on 2 takes 30.00 ms and 15.0 GiB (fsdp, "
                   "fp8-tensorwise, sums in fp32).");
}

/* FSDP2 with remainders reduces in bf16 and repeats the MLPs: it stands beside what does both, and nothing else. */
TEST_IN_FOLDER(remainders_beside_sums_in_bf16)
{
#define LARGE(precision, recompute, wire, ms, loss)                                                                    \
    "3,1,bench_fsdp,fsdp,ok,,2,8b,1,8192," precision ",train-step," recompute "," wire "," ms "," wire ",bf16," loss END
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,gpu_name,NVIDIA H200\nr-1,gpu_count,2\n");
    folder_write(*state, "peer_ddp.csv",
                 "bench,strategy,ranks,size,seq,batch_per_rank,precision,attn,mode,timing,policy,bucket_mb,step_ms,"
                 "gpu_busy_pct,loss_third" ORIGIN
                 "ddp,fsdp2-rest,2,8b,8192,1,bf16,sdpa,fused-prefetch,queued,p,0,1000,95,9.1" OF
                 "ddp,fsdp2-rest,2,8b,8192,1,fp8-tensorwise-ao,sdpa,fused-prefetch,queued,p,0,900,95,9.1" OF);
    for (int known = 0; known < 2; known++) {
        OWNED char *rows =
            xasprintf("%s%s%s%s%s",
                      "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,mode,recompute,"
                      "grad_dtype,step_ms,wire_dtype,gathered_dtype,loss_third" RUN,
                      LARGE("bf16", "mlp", "bf16", "800", "9.0"), LARGE("bf16", "block", "bf16", "700", "9.0"),
                      LARGE("bf16", "mlp", "fp32", "600", "9.0"),
                      known ? LARGE("fp8-tensorwise", "mlp", "bf16", "600", "9.0")
                            : LARGE("fp8-tensorwise", "mlp", "bf16", "600", "nan"));
        folder_write(*state, "bench_fsdp.csv", rows);
        OWNED char *text = report_text(*state);
        text_has(text, "| FSDP step, sums in bf16 | 1 / 0 / 0 | 1.25 | 1.25 | PyTorch fsdp2-rest, ");
        text_has(text,
                 known ? "| FSDP step, sums in bf16, fp8-tensorwise | 1 / 0 / 0 | 1.50 | 1.50 | PyTorch fsdp2-rest, "
                       : "our row has no third loss to compare: FSDP step, sums in bf16, fp8-tensorwise (1)");
    }
}

#define CALL(variant, dtype, mode, ms)                                                                                 \
    "3,1,bench_allreduce," variant ",ok,,2,1024," dtype ",1," mode "," ms "," ms "," ms ",0.1,0.1,1 KiB,nccl 2" END

/* torchtitan's rows stand beside ours of the same model alone, and without rows of torchtitan there is no table. */
TEST_IN_FOLDER(torchtitan_beside_the_same_model)
{
#define LLAMA(seq, heads_kv, precision, ms)                                                                            \
    "3,1,bench_fsdp,fsdp,ok,,2,llama3-8b,1," seq "," precision ",mlp,32," heads_kv "," ms ",bf16,21000,58.1,49.5,"     \
    "77309411328" END
#define TITAN(size, precision, reduce, cells)                                                                          \
    "torchtitan,2," size ",8192,1," precision "," reduce                                                               \
    ",selective-op,compile-blocks,\"torchtitan 0.2.2, FSDP2\"," cells OF
    folder_write(*state, "bench_fsdp.csv",
                 "schema,method,bench,variant,status,reason,ranks,size,batch,seq,precision,recompute,layers,heads_kv,"
                 "step_ms,wire_dtype,tokens_per_s,mfu_causal_pct,mfu_bf16_pct,peak_bytes" RUN LLAMA(
                     "8192", "8", "bf16", "780.2") LLAMA("8192", "8", "fp8-tensorwise", "612.2")
                     LLAMA("8192", "32", "bf16", "777.7") LLAMA("4096", "8", "bf16", "333.3"));
    char *text = html(*state);
    text_lacks(text, "torchtitan");
    free(text);
    folder_write(*state, "peer_torchtitan.csv",
                 "bench,ranks,size,seq,batch_per_rank,precision,reduce,checkpointing,mode,policy,step_ms,tokens_per_s,"
                 "mfu_pct,mfu_full_pct,peak_gib,note" ORIGIN TITAN("llama3-8b", "fp8-tensorwise-ao", "fp32",
                                                                   "640,12800,50.1,62,84,")
                     TITAN("llama3-8b", "bf16", "bf16", ",,,,,0 of 16 steps: torch.OutOfMemoryError: CUDA")
                         TITAN("debugmodel", "bf16", "fp32", "10,51200,,1,2,"));
    text = html(*state);
    text_has(text, "so no ratio is formed");
    char *at = strstr(text, "torchtitan on the same model"); /* by precision, ours first */
    static const char *const places[] = {
        ">780</td><td class=\"n\">10500</td><td class=\"n\">49.5</td><td class=\"n\">72.0<",
        "0 of 16 steps: torch.OutOfMemoryError", ">612<",
        ">torchtitan 0.2.2</td><td class=\"n\">2</td><td class=\"n\">1</td><td>fp8-tensorwise-ao</td><td>fp32</td>"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!at || !(at = strstr(at, places[i])))
            fail_msg("%s: not there, or not behind %s", places[i], i ? places[i - 1] : "the heading");
    char *end = strstr(at, "</table>");
    assert_non_null(end);
    *end = '\0';
    at = strstr(text, "torchtitan on the same model");
    text_has(at, "50.1");
    text_lacks(at, ">778<");
    text_lacks(at, ">333<");
    text_lacks(at, "51200");
    text_lacks(text, "| FSDP step");
    free(text);
}

TEST_IN_FOLDER(own_kernels_beside_the_library)
{
    static const char header[] = "schema,method,bench,variant,status,reason,ranks,bytes,dtype,in_place,mode,median_ms,"
                                 "mean_ms,std_ms,algbw_gb_s,busbw_gb_s,size,backend" RUN;
    for (int implicit = 0; implicit < 2; implicit++) {
        OWNED char *machine = xasprintf(
            "run_id,key,value\nr-1,gpu_name,NVIDIA H200\nr-1,gpu_count,2\nr-1,NCCL_LAUNCH_ORDER_IMPLICIT,%d\n",
            implicit);
        OWNED char *rows = xasprintf(
            "%s%s%s%s%s%s", header, CALL("all-reduce", "fp32", "graph", "0.006"),
            CALL("one-shot", "fp32", "graph", "0.002"), CALL("all-reduce", "bf16", "graph", "0.004"),
            CALL("all-gather", "fp32", "graph", "0.005"), CALL("one-shot-all-gather", "fp32", "graph", "0.002"));
        folder_write(*state, "machine.csv", machine);
        folder_write(*state, "bench_allreduce.csv", rows);
        folder_write(*state, "peer_nccl_tests.csv",
                     "bench,tool,ranks,bytes,mode,in_place,policy,median_us,wrong" ORIGIN
                     "nccl_tests,t,2,1024,graph,1,\"a process for each rank, fp32, sum, registered buffers\",5,0" OF
                     "nccl_tests,t,2,,graph,,fp32,," OF); /* which did not run */
        OWNED char *text = html(*state);
        text_has(text, implicit ? "1 KiB</td><td>graph</td><td>yes</td><td class=\"n\">6.00</td><td "
                                  "class=\"n\">2.00</td><td class=\"n\"></td>"
                                : "1 KiB</td><td>graph</td><td>yes</td><td class=\"n\">6.00</td><td "
                                  "class=\"n\">2.00</td><td class=\"n\">3.00</td>");
        assert_int_equal(strstr(text, "cases replayed from graphs are not compared") != NULL, implicit);
        OWNED char *gather = xasprintf("<td class=\"n\">5.00</td><td class=\"n\">2.00</td><td class=\"n\">%s</td>",
                                       implicit ? "" : "2.50");
        text_has(text, gather);
        /* Beside our fastest in fp32; bf16 is other work. */
        text_has(text, "nccl-tests, a process for each GPU, registered buffers 2.50</td>");
        text_lacks(text, "1.25");
    }
}

TEST_IN_FOLDER(numbers_on_paper)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,gpu_name,NVIDIA H200\nr-1,gpu_count,2\n");
    folder_write(
        *state, "bench_accounting.csv",
        "schema,method,bench,variant,status,reason,model,ranks,recipe,strategy,init_bytes,before_step_bytes,after_step_"
        "bytes,wire_bytes" RUN "3,1,bench_accounting,zero,ok,,xl,2,fp32,zero1,1073741824,2147483648,3221225472,4e9" END
        "3,1,bench_accounting,zero,ok,,xl,2,fp32,zero1-broadcast,1073741824,2147483648,3221225472,6e9" END);
    OWNED char *text = html(*state);
    text_has(text, "<td class=\"n\">1.00 / 2.00 / 3.00; 4.00</td>");
    text_has(text, "a rank of two sends 6.00 GB in fp32 in the handout's way and 4.00 GB in the paper's (xl)");
}

/* The largest N of the course's forms by the machine's own rates, beside how much its steps hide. */
TEST_IN_FOLDER(forms_beside_steps)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,gpu_name,NVIDIA H200\nr-1,gpu_count,4\n");
    folder_write(*state, "bench_roofline.csv",
                 "schema,method,bench,variant,status,reason,dtype,size,tflops" RUN
                 "3,1,bench_roofline,gemm,ok,,bf16,4096,700" END "3,1,bench_roofline,gemm,ok,,bf16,1024,400" END);
    folder_write(*state, "bench_allreduce.csv",
                 "schema,method,bench,variant,status,reason,ranks,bytes,busbw_gb_s" RUN
                 "3,1,bench_allreduce,all-reduce,ok,,2,1073741824,350" END
                 "3,1,bench_allreduce,all-reduce,ok,,2,1048576,90" END);
    folder_write(*state, "bench_tp.csv",
                 "schema,method,bench,variant,status,reason,ranks,mesh,strategy,d_ff,step_ms,tokens_per_s,alone_ms,"
                 "hidden_pct" RUN "3,1,bench_tp,nccl,ok,,2,tp,ddp,1000,100,80000,12,20" END
                 "3,1,bench_tp,copy,ok,,2,tp,ddp,1000,100,80000,10,60" END
                 "3,1,bench_tp,copy,ok,,4,tp2+dp_shard2,fsdp,1000,100,80000,15,70" END);
    OWNED char *steps = report_text(*state); /* steps alone are no answer to a question of paper */
    text_lacks(steps, "C and W");
    folder_write(*state, "bench_accounting.csv",
                 "schema,method,bench,variant,status,reason,form,batch,devices_most" RUN
                 "3,1,bench_accounting,closed_forms,ok,,tensor-forward,4096,32.3" END
                 "3,1,bench_accounting,closed_forms,ok,,2d-at-once,4096,84" END);
    OWNED char *text = report_text(*state);
    text_has(text, "N <= 1 + 1.5 F rho in the forward (32.3 at B 4096). This machine's");
    text_has(text,
             "C and W allow, forward and backward, 1.75 and 2.50 at d_ff 1000 and B 8000, where 2 ranks hide 60.0 % "
             "of 10.0 ms (`copy`).");
    text_has(text,
             "C and W allow, at once, 8.75 at d_ff 1000 and B 8000, where 4 ranks hide 70.0 % of 15.0 ms (`copy`).");
}
