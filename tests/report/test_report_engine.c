/* SPDX-License-Identifier: MIT */
/* The blocks of a section, one by one, over a small table; and that an error names the file and the line of its block. */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "plots/report/db.h"
#include "plots/report/embedded.h"
#include "plots/report/engine.h"

/* What a test puts here is the program's text. */
static char section_text[8192], used_text[1024];
const embedded embedded_files[] = {
    {"schema.tsv",
     "machine\tmachine.csv\trun_id\tt\tm\t\n"
     "machine\tmachine.csv\tkey\tt\tm\t\n"
     "machine\tmachine.csv\tvalue\tt\tm\t\n"
     "bench_x\tbench_x.csv\tbench\tt\th\t\nbench_x\tbench_x.csv\tvariant\tt\th\t\nbench_x\tbench_x."
     "csv\tstatus\tt\th\t\n"
     "bench_x\tbench_x.csv\tdtype\tt\tp\tbf16,fp32\nbench_x\tbench_x.csv\tsize\ti\tp\t1\nbench_x\tbench_x."
     "csv\tcausal\ti\tp\t1\n"
     "bench_x\tbench_x.csv\tms\tr\tm\t\nbench_x\tbench_x.csv\tcount\ti\tm\t\nbench_x\tbench_x.csv\tdevice\tt\tr\t\n"
     "bench_x\tbench_x.csv\tl2\tt\tr\t\nbench_x\tbench_x.csv\ttimer_asked\tt\tr\t\nbench_x\tbench_x."
     "csv\tcheck\ti\tr\t\n"
     "bench_x\tbench_x.csv\tgpu_uuid\tt\tr\t\nbench_x\tbench_x.csv\tcampaign\tt\tr\t\nbench_x\tbench_x.csv\trun_"
     "id\tt\tr\t\n"
     "bench_x\tbench_x.csv\tcommit\tt\tr\t\nbench_x\tbench_x.csv\tutc\tt\tr\t\n"
     "bench_y\tbench_y.csv\tbench\tt\th\t\nbench_y\tbench_y.csv\tms\tr\tm\t\nbench_y\tbench_y.csv\tother\tt\tm\t\n"
     "bench_y\tbench_y.csv\tvariant\tt\th\t\nbench_y\tbench_y.csv\tdevice\tt\tr\t\nbench_y\tbench_y.csv\tl2\tt\tr\t\n"
     "bench_y\tbench_y.csv\ttimer_asked\tt\tr\t\nbench_y\tbench_y.csv\tcheck\ti\tr\t\nbench_y\tbench_y.csv\tgpu_"
     "uuid\tt\tr\t\n"
     "bench_y\tbench_y.csv\tcampaign\tt\tr\t\nbench_y\tbench_y.csv\trun_id\tt\tr\t\nbench_y\tbench_y."
     "csv\tcommit\tt\tr\t\n"
     "bench_y\tbench_y.csv\tutc\tt\tr\t\n"},
    {"try.sql", section_text},
    {"used.sql", used_text},
    {"figures/curve.sql", section_text},
    {0}};

static const char rows[] = "bench,variant,status,dtype,size,causal,ms,count,device,gpu_uuid,run_id,utc\n"
                           "bench_x,a,ok,bf16,1,1,1.5,10,cuda,G,r,2026-01-01\n"
                           "bench_x,a,ok,bf16,2,1,2,20,cuda,G,r,2026-01-01\n"
                           "bench_x,b,ok,fp32,1,0,12345.6,30,cuda,G,r,2026-01-01\n"
                           "bench_x,b,oom,fp32,2,0,nan,,cuda,G,r,2026-01-01\n";

/* The document of these blocks, as Markdown. Caller frees. */
static char *written(const char *folder, const char *blocks, const page *with)
{
    char *csv = folder_path(folder, "bench_x.csv"), *other = folder_path(folder, "bench_y.csv"), *text;
    unsigned long bytes;
    file_write(csv, rows);
    file_write(other, "bench,variant,ms,other,device\nbench_y,c,7,here,cuda\n");
    snprintf(section_text, sizeof section_text, "%s", blocks);
    sqlite3 *db = db_open(folder, NULL);
    db_guard(db, false);
    document *doc = doc_create("");
    page p = with ? *with : (page){0};
    p.db = db;
    p.doc = doc;
    page_use(&p, "try.sql");
    FILE *out = text_stream(&text, &bytes);
    doc_write(doc, &markdown_writer, &(doc_output){.file = out, .folder = folder});
    fclose(out);
    doc_free(doc);
    sqlite3_close(db);
    free(other);
    free(csv);
    return text;
}

static void gives(const char *folder, const char *blocks, const char *wanted)
{
    OWNED char *text = written(folder, blocks, NULL);
    if (strcmp(text, wanted) != 0)
        fail_msg("wanted:\n%s\ngot:\n%s", wanted, text);
}

/* The message with which the program ends. */
static void fails_with(const char *folder, const char *blocks, const page *with, const char *wanted)
{
    OWNED char *path = folder_path(folder, "said");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        assert_non_null(freopen(path, "w", stderr));
        setvbuf(stderr, NULL, _IONBF, 0);
        free(written(folder, blocks, with));
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    OWNED char *said = file_text(path);
    if (WEXITSTATUS(status) != EXIT_CODE_FAILURE || !strstr(said, wanted))
        fail_msg("'%s' wanted, but it ended with %d, and said: %s", wanted, WEXITSTATUS(status), said);
}

static void fails(const char *folder, const char *blocks, const char *wanted)
{
    fails_with(folder, blocks, NULL, wanted);
}

TEST_IN_FOLDER(texts)
{
    gives(*state, "-- a comment\nOf {count(*)} rows the mean is\n{avg(ms)} ms.\n@from bench_x",
          "Of 4 rows the mean is 4116 ms.\n\n");
    gives(*state, "{1.0} {0.5} {12345.6} {0.000123} {NULL} {7} {'a}b'}", "1.00 0.500 12346 1.2e-04 - 7 a}b\n\n");
    gives(*state, "a[[ b {NULL}]][[ c {1}]]", "a c 1\n\n");
    gives(*state, "Row {id}.\n@from bench_x WHERE id < 3 ORDER BY id\n\n+ Then {'x'}.", "Row 1.\n\nRow 2. Then x.\n\n");
    gives(*state, "Never\n@from bench_x WHERE 0\n\n+ but this.", "but this.\n\n"); /* begins a paragraph of its own */
    gives(*state, "## H\n\n### {'h'}\n\n- one\n\n- two\n\n> note", "## H\n\n### h\n\n- one\n- two\n\n> note\n\n");
    gives(*state, "**bold** and `code` {code('x')}", "**bold** and `code` `x`\n\n");
}

TEST_IN_FOLDER(a_stranger_is_no_markup)
{
    gives(*state, "{'<b>*x*</b> [a](http://x) `y` \\ _z_ a_b'}",
          "&lt;b>\\*x\\*&lt;/b> [a\\](http://x) \\`y\\` \\ \\_z\\_ a_b\n\n");
    gives(*state, "{'# no heading'}\n\n{'- no list'}", "\\# no heading\n\n\\- no list\n\n");
    gives(*state, "@table\nSELECT 'a|b' AS \"x\", '<i>' AS y", "| x | y |\n|---|---|\n| a\\|b | &lt;i> |\n\n");
}

TEST_IN_FOLDER(tables)
{
    gives(*state,
          "@table\nSELECT status, variant AS v, ms AS \"time ms:\", NULL AS \"none?:\", count AS \"n:\" FROM bench_x "
          "ORDER BY id",
          "| v | time ms | n |\n|---|---:|---:|\n| a | 1.50 | 10 |\n| a | 2.00 | 20 |\n| b | 12346 | 30 |\n| b | oom | "
          "oom |\n\n");
    gives(*state, "@table\nSELECT ms FROM bench_x WHERE 0", "");
    gives(*state, "@grid\nSELECT variant AS v, size || ':' AS across, ms AS cell FROM bench_x ORDER BY id",
          "| v | 1 | 2 |\n|---|---:|---:|\n| a | 1.50 | 2.00 |\n| b | 12346 | |\n\n");
}

TEST_IN_FOLDER(loops)
{
    gives(*state,
          "@each SELECT dtype, min(id) AS first FROM bench_x GROUP BY dtype ORDER BY first\n\nOf {:dtype}:\n\n@each "
          "SELECT id FROM bench_x "
          "WHERE dtype = :dtype ORDER BY id\n\n+ {:id}/{:dtype}\n\n@end\n\n@end",
          "Of bf16: 1/bf16 2/bf16\n\nOf fp32: 3/fp32 4/fp32\n\n");
    gives(*state, "@if (SELECT count(*) FROM bench_x) > 3\n\nmany\n\n@end\n\n@if 0\n\nnever", "many\n\n");
    gives(*state, "@fold More\n\nhidden\n\n@end", ""); /* which only the page in HTML has */
}

TEST_IN_FOLDER(own_tables)
{
    gives(*state, "@view v\nSELECT id FROM bench_x WHERE ms > 1.6\n\n@view w\nSELECT * FROM v\n\n{count(*)}\n@from w",
          "2\n\n");
    gives(*state, "@into kept\nSELECT 1 AS a\n\n@into kept\nSELECT 2\n\n{group_concat(a)}\n@from kept", "1,2\n\n");
    gives(*state,
          "@slice s FROM bench_x ALONG size WHERE status = 'ok'\n\n{count(*)} of {shape(bench, options)}\n@from s",
          "2 of bf16\n\n");
    gives(*state,
          "@union u bench_x bench_y OF ms other\n\n{count(*)}, {sum(other = 'here')}, {max(bench_table)}\n@from u",
          "5, 1, bench_y\n\n");
}

TEST_IN_FOLDER(names_and_files)
{
    gives(*state, "{case_name(bench, variant, options)}\n@from bench_x ORDER BY id",
          "a, bf16, 1\n\na, bf16, 2\n\nb, fp32, 1, not causal\n\nb, fp32, 2, not causal\n\n");
    snprintf(used_text, sizeof used_text, "%s", "{'$1'} then {$2}");
    gives(*state, "@use used one 1+1", "one then 2\n\n");
}

TEST_IN_FOLDER(answers)
{
    gives(*state,
          "@view none\nSELECT 1 WHERE 0\n\n@into unanswered\nSELECT '' AS name WHERE 0\n\n@problem first (2025): Some "
          "section\n\nYes\n\nand no.\n\n"
          "@problem second (2026): Other\n\nNever {1}\n@from none\n\n@end\n\nOpen: {group_concat(name)}.\n@from "
          "unanswered HAVING count(*)",
          "- **first** (2025): Yes and no.\n\nOpen: second.\n\n");
}

TEST_IN_FOLDER(errors_name_their_block)
{
    fails(*state, "fine\n\n@table\nSELECT no_such FROM bench_x",
          "plots/report/sections/try.sql:3: no such column: no_such");
    fails(*state, "{\"no_such\"}\n@from bench_x", "try.sql:1: no such column"); /* "x" is never a text */
    fails(*state, "\n@tabel\nSELECT 1", "try.sql:2: this is no block");
    fails(*state, "@each SELECT 1", "try.sql:1: there is no @end");
    fails(*state, "@if 1\n\n@fold More\n\n@end\n\n@fold X", "try.sql:7: there is no @end");
    fails(*state, "a {1", "try.sql:1: a { or [[ is not closed");
    fails(*state, "a [[b", "try.sql:1: a { or [[ is not closed");
    fails(*state, "@use nothing", "try.sql:1: there is no such file");
    fails(*state, "@grid\nSELECT 1 AS a", "try.sql:1: @grid needs the columns across and cell");
    fails(*state, "@problem x (y): z\n\n@table\nSELECT 1\n\n@end", "try.sql:3: an answer holds no table");
}

/* Without rows nothing inside is run: lint prepares it all the same. */
TEST_IN_FOLDER(lint_looks_into_all_branches)
{
    const char *const wrong[] = {"@if 0\n\n{nonsense}\n\n@end",
                                 "@each SELECT 1 AS a FROM bench_x WHERE 0\n\n@table\nSELECT nonsense\n\n@end"};
    for (size_t i = 0; i < 2; i++) {
        gives(*state, wrong[i], "");
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            assert_non_null(freopen("/dev/null", "w", stderr));
            free(written(*state, wrong[i], &(page){.lint = true}));
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), EXIT_CODE_FAILURE);
    }
}

TEST_IN_FOLDER(figures)
{
    free(written(*state,
                 "@draw curve_{'x'}: Title of {max(variant)}\nsizes = SELECT DISTINCT size FROM drawn ORDER BY "
                 "size\ntop := SELECT max(count) FROM drawn\n"
                 "SELECT variant, size, ms, 'it''s, so' AS machine, '' AS gpu, '2026-01-01' AS utc, count FROM "
                 "bench_x ORDER BY id",
                 &(page){.figure = "curve", .drawings = *state}));
    OWNED char *path = folder_path(*state, "curve_x.gp"), *variables = file_text(path),
               *csv = folder_path(*state, "curve_x.csv"), *data = file_text(csv);
    assert_non_null(strstr(variables, "title = 'Title of b'\n"));
    assert_non_null(strstr(variables, "sizes = '1 2'\n"));
    assert_non_null(strstr(variables, "top = 30\n"));
    assert_non_null(strstr(variables, "caption = 'it''s, so"));
    assert_non_null(strstr(data, "variant,size,ms,machine,gpu,utc,count\na,1,1.5,\"it's, so\",,2026-01-01,10\n"));
    assert_non_null(strstr(data, "b,2,nan,"));
    fails_with(*state, "@draw ../x: t\nSELECT 1 AS machine, 2 AS gpu, 3 AS utc",
               &(page){.figure = "curve", .drawings = *state}, "a character that no file should have");
}
