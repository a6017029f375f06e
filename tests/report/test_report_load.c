/* SPDX-License-Identifier: MIT */
/* CSV files as tables: the newest row of a case, numbers and nothing, devices, and that neither a name nor a value of a stranger's file
 * is ever SQL. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/wait.h>

#define HEAD "bench,variant,status,reason,dtype,size,time_us,tflops,check,utc,device,gpu_uuid,run_id\n"
#define ROW(size, us, check, utc, device)                                                                              \
    "bench_roofline,gemm,ok,,bf16," size "," us ",100," check "," utc "," device ",GPU-a,r-1\n"

/* What the program says, and how it ends. Caller frees. */
static char *asked(const char *folder, const char *query, int wanted)
{
    OWNED char *build = build_folder(), *out = folder_path(folder, "said"), *sql = folder_path(folder, "query");
    file_write(sql, query);
    OWNED char *command = xasprintf("'%s/report' --sql '%s' \"$(cat '%s')\" >'%s' 2>&1", build, folder, sql, out);
    const int status = system(command);
    char *text = file_text(out);
    if (WEXITSTATUS(status) != wanted)
        fail_msg("ended with %d: %s", WEXITSTATUS(status), text);
    return text;
}

static void answers(const char *folder, const char *query, const char *wanted)
{
    char *text = asked(folder, query, EXIT_CODE_OK), *rows = strchr(text, '\n') + 1;
    if (strcmp(rows, wanted) != 0)
        fail_msg("%s: wanted %s, got %s", query, wanted, rows);
    free(text);
}

TEST_IN_FOLDER(the_newest_verified_row_counts)
{
    folder_write(*state, "bench_roofline.csv",
                 HEAD ROW("1024", "3", "1", "2026-01-03", "cuda") ROW("1024", "2", "1", "2026-01-02", "cuda")
                     ROW("1024", "1", "0", "2026-01-04", "cuda") ROW("64", "9", "1", "2026-01-01", "cuda"));
    answers(*state, "SELECT size, time_us FROM bench_roofline ORDER BY id",
            "64,9.0\n1024,3.0\n"); /* in the order of the parameters */
    folder_write(*state, "peer_gemm.csv",
                 "bench,dtype,size,mode,policy,median_ms\ngemm,bf16,64,graph,p,2\ngemm,bf16,64,graph,p,1\n");
    answers(*state, "SELECT median_ms FROM peer_gemm", "1.0\n"); /* of peers the later line */
}

/* Runs of one case on one GPU at one commit are a spread. */
TEST_IN_FOLDER(repeats_are_a_spread)
{
#define RUN_OF(size, us, run, gpu, commit)                                                                             \
    "3,1,bench_roofline,gemm,ok,," size "," us "," run "," gpu "," commit ",1,2026,cuda\n"
    folder_write(
        *state, "bench_roofline.csv",
        "schema,method,bench,variant,status,reason,size,time_us,campaign,gpu_uuid,commit,check,utc,device\n" RUN_OF(
            "64", "1", "c-1", "G", "a") RUN_OF("64", "4", "c-2", "G", "a") RUN_OF("64", "2", "c-3", "G", "a")
            RUN_OF("64", "9", "c-4", "H", "a") RUN_OF("64", "9", "c-5", "G", "b") RUN_OF("128", "1", "c-1", "G", "a")
                RUN_OF("128", "2", "c-1", "G", "a"));
    answers(*state, "SELECT json_extract(options, '$.size'), time, runs, middle, least, most FROM repeats",
            "64,time_us,3,2.0,1.0,4.0\n");
    folder_write(
        *state, "peer_model.csv",
        "bench,size,seq,policy,step_ms,step_mean_ms,step_p10_ms,step_p90_ms,sm_mhz,gpu_uuid,commit,run_id,utc\n"
        "model,xl,512,p,9,10,9,11,1500,G,a,r-1,2026\nmodel,xl,512,p,9,10.5,10,11,1400,G,a,r-1,2026\n"
        "model,xl,512,p,9,20,9,11,1500,H,a,r-1,2026\nmodel,xl,512,p,9,20,9,11,1500,G,b,r-1,2026\n"
        "model,xl,128,p,,,,,,G,a,r-1,2026\nmodel,xl,128,p,9,20,9,11,1500,G,a,r-1,2026\n");
    answers(
        *state,
        "SELECT bench, case_name(bench, variant, options), runs, least, most, own, clocks FROM repeats WHERE time = "
        "'step_mean_ms'",
        "PyTorch,\"xl, S 512\",2,10.0,10.5,20.0,1400 to 1500\n");
}

/* A ratio needs a row of the peer's own run: of the newest commit such a row stands for its case, whatever ran behind it. A row that was
 * sustained is not lost behind one that was not. */
TEST_IN_FOLDER(runs_with_peers_and_sustained_rows)
{
#define OF(size, us, long_us, campaign, commit, utc)                                                                   \
    "3,1,bench_roofline,gemm,ok,," size "," us "," long_us "," campaign ",G," commit ",1," utc ",cuda\n"
    static const char head[] =
        "schema,method,bench,variant,status,reason,size,time_us,sustain_s,sustained_us,campaign,gpu_uuid,commit,"
        "check,utc,device\n";
    OWNED char *rows =
        xasprintf("%s%s", head,
                  OF("64", "1", "0,nan", "with", "a", "1") OF("64", "2", "60,2.5", "alone", "a", "2")
                      OF("64", "3", "0,nan", "alone-1", "a", "3") OF("128", "4", "0,nan", "with", "a", "1")
                          OF("128", "5", "0,nan", "alone", "b", "2"));
    folder_write(*state, "bench_roofline.csv", rows);
    answers(*state, "SELECT size, time_us FROM bench_roofline ORDER BY id", "64,3.0\n128,5.0\n");
    folder_write(*state, "peer_gemm.csv",
                 "bench,dtype,size,mode,policy,median_ms,run_id\ngemm,bf16,64,graph,p,2,with\n");
    answers(*state, "SELECT size, time_us FROM bench_roofline ORDER BY id", "64,1.0\n128,5.0\n");
    answers(*state, "SELECT size, time_us, sustained_us FROM steady_bench_roofline", "64,2.0,2.5\n");
}

/* Rows of a bench that times nothing say neither --l2 nor --timer; files of the time when they did are read, too. */
TEST_IN_FOLDER(rows_without_times)
{
    folder_write(
        *state, "bench_accounting.csv",
        "bench,variant,status,reason,model,ranks,state_bytes,wire_bytes,device,utc\n"
        "bench_accounting,zero,ok,,xl,2,nan,1,cuda,2026-01-01\nbench_accounting,zero,ok,,xl,4,nan,3,cuda,2026-01-01\n"
        "bench_accounting,zero,ok,,xl,2,nan,2,cuda,2026-01-02\n");
    answers(*state, "SELECT ranks, wire_bytes FROM bench_accounting ORDER BY id", "2,2.0\n4,3.0\n");
    folder_write(
        *state, "bench_accounting.csv",
        "bench,variant,status,reason,model,ranks,state_bytes,wire_elements,wire_bytes,device,l2,timer_asked,throttle\n"
        "bench_accounting,zero,ok,,xl,2,nan,7,1,cuda,warm,auto,\n");
    answers(*state, "SELECT ranks, wire_bytes FROM bench_accounting", "2,1.0\n");
}

TEST_IN_FOLDER(numbers_and_nothing)
{
    folder_write(*state, "bench_roofline.csv",
                 HEAD ROW("64", "nan", "1", "2026-01-01", "cuda") ROW("128", "", "1", "2026-01-01", "cuda")
                     ROW("256", "4", "1", "2026-01-01", "cuda"));
    answers(*state, "SELECT count(*), count(time_us), typeof(max(time_us)), typeof(max(size)) FROM bench_roofline",
            "3,1,real,integer\n");
    answers(*state, "SELECT count(sustained_us), max(settle_s) IS NULL FROM bench_roofline",
            "0,1\n"); /* columns that the file lacks */
    folder_write(*state, "bench_roofline.csv",
                 HEAD ROW("64", "inf", "1", "2026-01-01", "cuda") ROW("128", "12ms", "1", "2026-01-01", "cuda")
                     ROW("256", "4", "1", "2026-01-01", "cuda") ROW("512", "-1e999", "1", "2026-01-01", "cuda"));
    answers(*state, "SELECT min(time_us), max(time_us), count(time_us) FROM bench_roofline", "4.0,4.0,1\n");
    folder_write(*state, "bench_ddp_bucketed.csv",
                 "bench,variant,status,reason,fit_bytes,device\nbench_ddp_bucketed,bucketed,ok,,64 128,cuda\n");
    answers(*state, "SELECT fit_bytes FROM bench_ddp_bucketed", "64 128\n"); /* a list, in spite of its name */
    folder_write(*state, "bench_transformer.csv",
                 "bench,variant,status,reason,size,step_ms,device\nbench_transformer,graph,ok,,xl,5,cuda\n");
    answers(*state, "SELECT attention, recompute, warmup, micro_batches, seq IS NULL FROM bench_transformer",
            "flash,none,5,1,1\n"); /* options' defaults */
}

/* Rows have the dimensions of their size; what departs from it is what was asked for. */
TEST_IN_FOLDER(dimensions_of_a_size)
{
    folder_write(*state, "bench_transformer.csv",
                 "bench,variant,status,reason,size,seq,d_model,d_ff,layers,heads,heads_kv,vocab,step_ms,device\n"
                 "bench_transformer,graph,ok,,small,1,768,3072,12,12,12,10000,5,cuda\n"
                 "bench_transformer,graph,ok,,small,1,512,2048,4,8,8,10000,5,cuda\n"
                 "bench_transformer,graph,ok,,small,1,768,3072,12,12,4,10000,5,cuda\n"
                 "bench_transformer,graph,ok,,mlp-1024,1,1024,4096,3,0,0,10000,5,cuda\n"
                 "bench_transformer,graph,skip,,small,1,0,0,0,0,0,0,nan,cuda\n");
    answers(*state,
            "SELECT d_model, layers, heads_kv, custom, json_extract(options, '$.d_model'), json_extract(options, "
            "'$.layers'), json_extract(options, '$.heads_kv'), json_extract(options, '$.d_ff') FROM bench_transformer "
            "WHERE status = 'ok' ORDER BY id",
            "1024,3,0,0,0,0,0,0\n768,12,12,0,0,0,0,0\n768,12,4,1,0,0,4,0\n512,4,8,1,512,4,0,0\n");
}

TEST_IN_FOLDER(rows_of_another_schema_are_not_read)
{
    folder_write(*state, "bench_ddp_naive.csv", "schema,bench,variant,status,reason\n2,bench_ddp_naive,naive,ok,\n");
    OWNED char *said = asked(*state, "SELECT 1", EXIT_CODE_USAGE);
    assert_non_null(strstr(said, "bench_ddp_naive.csv has rows of schema 2, and this version reads schema 3"));
}

/* machine.csv says what holds for a whole run. */
TEST_IN_FOLDER(rows_are_joined_with_their_run)
{
    folder_write(*state, "machine.csv",
                 "run_id,key,value\nr-1,device,cuda\nr-1,idle_w,90.5\nr-2,device,cpu\nr-2,dirty,1\n");
    folder_write(
        *state, "bench_roofline.csv",
        "schema,bench,variant,status,reason,dtype,size,run_id\n3,bench_roofline,gemm,ok,,bf16,1,r-2\n"
        "3,bench_roofline,gemm,ok,,bf16,2,r-1\n3,bench_roofline,gemm,ok,,bf16,3,r-1\n3,bench_roofline,gemm,ok,,bf16,4,"
        "r\n");
    answers(*state, "SELECT device, idle_w, dirty FROM bench_roofline ORDER BY id",
            "cpu,,1\ncuda,90.5,\ncuda,90.5,\n,,\n");
}

TEST_IN_FOLDER(a_row_knows_its_run)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,gpu_uuid,GPU-m\n");
    folder_write(*state, "bench_roofline.csv",
                 "bench,variant,status,reason,dtype,size,time_us,run_id,commit,campaign\n"
                 "bench_roofline,gemm,ok,,bf16,1,2,r-1,abc,c-1\nbench_roofline,gemm,ok,,bf16,2,2,r-2,abc,\n");
    answers(*state, "SELECT run_of FROM bench_roofline ORDER BY id", "GPU-m c-1\n abc\n");
}

/* Unknown files and columns are left out, so that their names reach no statement; values are bound. */
TEST_IN_FOLDER(a_stranger_is_never_sql)
{
    folder_write(*state, "bench_x\"; DROP TABLE machine; --.csv", "a,b\n1,2\n");
    folder_write(*state, "bench_evil.csv", "bench,variant\nx,y\n");
    folder_write(*state, "bench_roofline.csv",
                 "bench,variant,status,reason,dtype,\"x\"\"); DROP TABLE machine; --\",size,time_us,device\n"
                 "bench_roofline,gemm,ok,\"'); DROP TABLE machine; --\",bf16,1,64,5,cuda\n");
    folder_write(*state, "machine.csv", "run_id,key,value\nr,cpu,'x'\n");
    answers(*state, "SELECT reason, time_us FROM bench_roofline", "'); DROP TABLE machine; --,5.0\n");
    answers(*state, "SELECT count(*) FROM machine", "1\n");
    answers(*state, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%evil%' OR name LIKE '%DROP%'", "0\n");
    answers(*state, "SELECT count(*) FROM pragma_table_info('bench_roofline') WHERE name LIKE '%DROP%'", "0\n");
}

TEST_IN_FOLDER(a_question_only_reads)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr,cpu,x\n");
    static const char *const refused[] = {"DROP TABLE machine",         "INSERT INTO machine(value) VALUES(1)",
                                          "ATTACH 'x.db' AS x",         "PRAGMA user_version = 3",
                                          "SELECT load_extension('x')", "CREATE TEMP TABLE t(a)",
                                          "VACUUM INTO 'x.db'"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        free(asked(*state, refused[i], EXIT_CODE_USAGE));
    free(asked(*state, "SELEC 1", EXIT_CODE_USAGE));
    free(asked(*state, "", EXIT_CODE_USAGE));
    free(asked(*state, "SELECT 1; SELECT 2", EXIT_CODE_USAGE));
    answers(*state, "SELECT 1 ;\n", "1\n");
    answers(*state, "SELECT 'a,b', 'c\"d' AS x", "\"a,b\",\"c\"\"d\"\n");
}

TEST_IN_FOLDER(a_database_is_kept)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr,cpu,x\n");
    OWNED char *build = build_folder(), *path = folder_path(*state, "kept.db"),
               *command = xasprintf("'%s/report' --db '%s' '%s' && test \"$(head -c 15 '%s')\" = 'SQLite format 3'",
                                    build, (char *)*state, path, path);
    assert_int_equal(system(command), 0);
}
