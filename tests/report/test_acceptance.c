/* SPDX-License-Identifier: MIT */
/* Whether a folder of results can be sent: each reason why not is found, and a sound folder has none. */
#include "tests/support/test.h"

#include <sys/stat.h>

#include "plots/report/acceptance.h"

static const char header[] =
    "schema,method,bench,variant,status,reason,dtype,size,time_us,tflops,run_id,machine,gpu,gpu_uuid,"
    "device,commit,dirty,check,utc\n";
static const char sound[] = "3,1,bench_roofline,gemm,ok,,bf16,%d,5.1,700,r-1,m,NVIDIA H200,GPU-a,cuda,aaaaaaaaaaaa,0,1,"
                            "2026-11-22T10:00:00Z\n";

/* The complaints about the sound rows and one more; what they say in *said. */
static size_t complaints(const char *folder, const char *row, char **said)
{
    OWNED char *path = folder_path(folder, "bench_roofline.csv"), *one = xasprintf(sound, 1024),
               *two = xasprintf(sound, 2048);
    OWNED char *text = xasprintf("%s%s%s%s", header, one, two, row);
    file_write(path, text);
    size_t bytes;
    FILE *out = open_memstream(said, &bytes);
    static const char *const benches[] = {"bench_roofline:1", "bench_zero1:2"};
    const size_t n = results_accept(folder, benches, 2, out);
    fclose(out);
    return n;
}

static void found(const char *folder, const char *row, const char *words)
{
    char *said;
    OWNED char *first = xasprintf("%s is not ready to be sent:\n  ", folder); /* of several folders */
    if (complaints(folder, row, &said) != 1 || strstr(said, first) != said || !strstr(said, words))
        fail_msg("want one complaint with \"%s\": %s", words, said);
    free(said);
}

#define ROW(status, size, tflops, uuid, commit, dirty, check)                                                          \
    "3,1,bench_roofline,gemm," status ",why,"                                                                          \
    "bf16," size ",5.1," tflops ",r-1,m,NVIDIA H200," uuid ",cuda," commit "," dirty "," check                         \
    ",2026-11-22T10:00:00Z\n"

TEST_IN_FOLDER(a_sound_folder)
{
    char *said;
    assert_int_equal(complaints(*state, "", &said), 0);
    assert_non_null(strstr(said, "2 rows in 1 files, verified, of commit aaaaaaaaaaaa"));
    free(said);
}

/* What machine.csv says of a row's run is held to the same words as the row. */
TEST_IN_FOLDER(a_strange_run)
{
    OWNED char *machine = folder_path(*state, "machine.csv");
    file_write(machine, "run_id,key,value\nr-1,gpu_count,1\nr-1,campaign,a;b\n");
    found(*state, "", "bench_roofline.csv: row 1 has something in column 20 that no bench writes there");
    remove(machine);
}

/* So are the files that figures are drawn from. */
TEST_IN_FOLDER(a_strange_log)
{
    static const char *const folders[] = {"pipeline", "run"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        OWNED char *folder = folder_path(*state, folders[i]), *log = xasprintf("%s/log.csv", folder),
                   *said = xasprintf("%s/log.csv: row 1 has something in column 2", folders[i]);
        mkdir(folder, 0777);
        file_write(log, "# a run\nstep,loss\n1,`date`\n");
        found(*state, "", said);
        remove(log);
    }
}

TEST_IN_FOLDER(reasons)
{
    found(*state, ROW("fail", "4096", "nan", "GPU-a", "aaaaaaaaaaaa", "0", "1"), "1 rows failed, the first with: why");
    found(*state, ROW("ok", "4096", "700", "GPU-a", "aaaaaaaaaaaa", "0", "0"), "not verified");
    found(*state, ROW("ok", "4096", "700", "GPU-a", "aaaaaaaaaaaa", "1", "1"), "not committed");
    found(*state, ROW("ok", "4096", "700", "GPU-a", "aaaaaaaaaaaa", "nan", "1"), "git did not say");
    found(*state, ROW("ok", "4096", "700", "GPU-a", "bbbbbbbbbbbb", "0", "1"),
          "several commits: aaaaaaaaaaaa, bbbbbbbbbbbb");
    found(*state, ROW("ok", "4096", "700", "GPU-b", "aaaaaaaaaaaa", "0", "1"), "several: GPU-a, GPU-b");
    found(*state, ROW("ok", "4096", "1200", "GPU-a", "aaaaaaaaaaaa", "0", "1"),
          "tflops is 1200 where the data sheet has 989");
    found(*state, ROW("ok", "4096", "inf", "GPU-a", "aaaaaaaaaaaa", "0", "1"),
          "bench_roofline.csv: row 3 has something in column 10 that no bench writes there");
    found(*state, "3,1,bench_roofline,gemm,ok,,bf16", "line 4 is torn");
}

/* 700 TFLOP/s were measured, so a share of them is at most 989 / 700. */
TEST_IN_FOLDER(shares_of_the_measured_product)
{
    static const char row
        [] = "schema,method,bench,variant,status,reason,dtype,fwd_ceiling_pct,gpu,device,commit,dirty,check,utc\n3,1,"
             "bench_flash,flash,ok,,bf16x3,%s,NVIDIA H200,cuda,aaaaaaaaaaaa,0,1,2026-11-22T10:00:00Z\n",
     step[] =
         "schema,method,bench,variant,status,reason,size,step_ms,mfu_causal_pct,gpu,device,commit,dirty,check,utc\n3,1,"
         "bench_transformer,graph,ok,,xl,%s,%s,NVIDIA H200,cuda,aaaaaaaaaaaa,0,1,2026-11-22T10:00:00Z\n";
    static const struct {
        const char *ceiling, *ms, *mfu, *words;
    } cases[] = {{"109", "5", "53", "verified"},
                 {"140", "5", "53", "verified"},
                 {"150", "5", "53", "bench_flash: fwd_ceiling_pct is 150"},
                 {"90", "5", "109", "bench_transformer: mfu_causal_pct is 109"},
                 {"90", "0", "53", "bench_transformer: step_ms is 0"}};
    OWNED char *path = folder_path(*state, "bench_flash.csv"), *other = folder_path(*state, "bench_transformer.csv");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said, *text = xasprintf(row, cases[i].ceiling), *more = xasprintf(step, cases[i].ms, cases[i].mfu);
        file_write(path, text);
        file_write(other, more);
        complaints(*state, "", &said);
        text_has(said, cases[i].words);
        free(said);
        free(more);
        free(text);
    }
    /* A product that was looked for, and its burst, is passed by nothing. */
    char *said, *text = xasprintf(row, "101");
    file_write(path, text);
    remove(other);
    complaints(*state,
               "3,1,bench_roofline,gemm_best,ok,,bf16,0,5.1,700,r-1,m,NVIDIA H200,GPU-a,cuda,aaaaaaaaaaaa,0,1,"
               "2026-11-22T10:00:00Z\n",
               &said);
    assert_non_null(strstr(said, "bench_flash: fwd_ceiling_pct is 101"));
    free(said);
    free(text);
}

/* ... but not of a float8 step, whose share is that of a bf16 product in early rows. */
TEST_IN_FOLDER(shares_of_float8_steps)
{
    static const char row[] =
        "schema,method,bench,variant,status,reason,size,precision,ceiling_pct,gpu,device,commit,dirty,check,utc\n3,1,"
        "bench_transformer,graph,ok,,xl,%s,150,NVIDIA H200,cuda,aaaaaaaaaaaa,0,1,2026-11-22T10:00:00Z\n";
    static const char *const cases[][2] = {{"fp8-tensorwise", "verified"},
                                           {"bf16", "bench_transformer: ceiling_pct is 150"}};
    OWNED char *path = folder_path(*state, "bench_transformer.csv");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said, *text = xasprintf(row, cases[i][0]);
        file_write(path, text);
        complaints(*state, "", &said);
        text_has(said, cases[i][1]);
        free(said);
        free(text);
    }
}

/* Both copies use the same memory. */
TEST_IN_FOLDER(a_copy_that_is_far_behind)
{
    static const char text[] =
        "schema,method,bench,variant,status,reason,dtype,bytes,gb_s,gpu,device,commit,dirty,check,utc\n"
#define COPY(variant, gb_s)                                                                                            \
    "3,1,bench_roofline," variant ",ok,,bf16,1073741824," gb_s                                                         \
    ",NVIDIA H200,cuda,aaaaaaaaaaaa,0,1,2026-11-22T10:00:00Z\n"
        COPY("gemm_best", "nan") COPY("copy_kernel", "4212") COPY("copy", "%s");
    static const char *const rates[] = {"4189", "2716"};
    char *path = folder_path(*state, "bench_roofline.csv"), *said;
    for (size_t i = 0; i < 2; i++) {
        OWNED char *rows = xasprintf(text, rates[i]);
        size_t bytes;
        FILE *out = open_memstream(&said, &bytes);
        file_write(path, rows);
        results_accept(*state, (const char *const[]){"bench_roofline:1"}, 1, out);
        fclose(out);
        assert_int_equal(strstr(said, "copy of 1073741824 bytes has 2716 GB/s, and copy_kernel 4212") != NULL, i == 1);
        free(said);
    }
    free(path);
}

TEST_IN_FOLDER(files_that_rows_name)
{
    static const char *const named[][2] = {{"bench_pp", "timeline"}, {"bench_mesh", "actions"}};
    OWNED char *folder = folder_path(*state, "pipeline"), *file = folder_path(*state, "pipeline/zb-v.csv");
    mkdir(folder, 0777);
    for (size_t i = 0; i < 2; i++) {
        char *said;
        OWNED char *name = xasprintf("%s.csv", named[i][0]), *path = folder_path(*state, name),
                   *rows = xasprintf("schema,method,bench,variant,status,reason,%s,device,commit,dirty,check\n"
                                     "3,1,%s,zb-v,ok,,zb-v.csv,cuda,aaaaaaaaaaaa,0,1\n"
                                     "3,1,%s,1f1b,skip,why,,cuda,aaaaaaaaaaaa,0,1\n",
                                     named[i][1], named[i][0], named[i][0]),
                   *words = xasprintf("%s: a row names pipeline/zb-v.csv, which is not there", named[i][0]);
        file_write(path, rows);
        found(*state, "", words);
        file_write(file, "strip\npredicted\n");
        assert_int_equal(complaints(*state, "", &said), 0);
        free(said);
        remove(file);
        remove(path);
    }
}

TEST_IN_FOLDER(what_is_missing)
{
    char *machine = folder_path(*state, "machine.csv"), *said;
    file_write(machine, "run_id,key,value\nr-1,gpu_count,2\n");
    assert_int_equal(complaints(*state, "", &said), 1);
    assert_non_null(strstr(said, "bench_zero1: no rows"));
    free(said);
    free(machine);
}

TEST_IN_FOLDER(an_empty_folder)
{
    char *said;
    size_t bytes;
    FILE *out = open_memstream(&said, &bytes);
    assert_true(results_accept(*state, NULL, 0, out) > 0);
    fclose(out);
    assert_non_null(strstr(said, "holds no rows"));
    free(said);
}
