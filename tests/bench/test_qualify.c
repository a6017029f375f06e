/* SPDX-License-Identifier: MIT */
/* bench_qualify on CPU ranks: its rows, its verdicts against a reference, a planted wrong bit, its exit codes, and what it
 * says where nothing can be compared. The rules themselves are in tests/qualify. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/wait.h>

/* Runs it in the folder; rows go to rows.csv, which is new, and what it prints to out.txt. */
static int run(const char *folder, const char *arguments)
{
    OWNED char *programs = programs_folder();
    OWNED char *command =
        xasprintf("cd '%s' && rm -f rows.csv && '%s/bench_qualify' --device cpu --machine test-x1 --iters 3 "
                  "--warmup 1 --gemm-size 32 --bytes 64K --seq 16 --sustain 0 --csv rows.csv %s >out.txt 2>&1",
                  folder, programs, arguments);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static csv *rows(const char *folder)
{
    OWNED char *path = folder_path(folder, "rows.csv");
    csv *c = csv_read(path);
    assert_non_null(c);
    return c;
}

/* A cell of the row of a variant and rank; the rank "" is a pair or a group. */
static const char *cell(const csv *c, const char *variant, const char *rank, const char *column)
{
    for (size_t r = 0; r < c->rows; r++)
        if (csv_is(c, r, "variant", variant) && csv_is(c, r, "rank", rank))
            return csv_cell(c, r, column);
    fail_msg("no row of %s for rank '%s'", variant, rank);
    return "";
}

static void said(const char *folder, const char *what)
{
    OWNED char *path = folder_path(folder, "out.txt"), *text = file_text(path);
    text_has(text, what);
}

TEST(nothing_to_compare_with)
{
    needs_gloo();
    assert_int_equal(run(*state, ""), EXIT_CODE_UNSUPPORTED); /* nobody takes it for a node that is well */
    OWNED_CSV csv *c = rows(*state);
    static const char *const measured[] = {"gemm", "copy", "flash", "gemm-together", "step"};
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        for (int rank = 0; rank < 2; rank++) {
            assert_string_equal(cell(c, measured[i], rank ? "1" : "0", "status"), "ok");
            assert_true(strtod(cell(c, measured[i], rank ? "1" : "0", "value"), NULL) > 0);
            assert_string_equal(cell(c, measured[i], rank ? "1" : "0", "verdict"), "not checked");
        }
    assert_string_equal(cell(c, "h2d", "0", "status"), "skip");
    assert_string_equal(cell(c, "verdict", "1", "verdict"), "not checked"); /* without NVML it is never ok */
    assert_non_null(strstr(cell(c, "verdict", "1", "why"), "NVML"));
    said(*state, "rank 1: not checked");
    said(*state, "nothing could be checked, so nothing is called ok");
}

/* A driver that is lost leaves no GPU: the CPUs are no substitute. A GPU that is missing is a fault, too. */
TEST(no_gpu_and_too_few)
{
    OWNED char *programs = programs_folder();
    static const struct {
        const char *arguments, *sentence;
        int code;
    } cases[] = {{"", "there is no GPU", EXIT_CODE_UNSUPPORTED},
                 {"--ranks 8", "there is no GPU", EXIT_CODE_UNSUPPORTED},
                 {"--expect 8", "0 GPUs of the 8 that --expect names are there", EXIT_CODE_GATE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED char *command =
            xasprintf("cd '%s' && rm -f rows.csv && CUDA_VISIBLE_DEVICES= '%s/bench_qualify' --csv rows.csv %s "
                      ">out.txt 2>&1 && exit 1; code=$?; [ ! -e rows.csv ] && exit $code",
                      (char *)*state, programs, cases[i].arguments);
        assert_int_equal(WEXITSTATUS(system(command)), cases[i].code);
        said(*state, cases[i].sentence);
    }
    assert_int_equal(run(*state, "--expect 3 --variant copy"), EXIT_CODE_GATE);
    said(*state, "2 GPUs of the 3 that --expect names are there");
    assert_int_equal(run(*state, "--expect 2 --variant copy"), EXIT_CODE_UNSUPPORTED);
}

/* The text that a monitor reads: gauges, each declared before its values, and an end. It is there whatever the verdict. */
TEST(metrics_are_openmetrics)
{
    folder_write(*state, "reference.csv", "metric,gpus,shape,value,floor\ncopy_gb_s,1,bytes=65536,1e6,\n");
    assert_int_equal(run(*state, "--reference reference.csv --variant copy,verdict --expect 2 --metrics q.prom"),
                     EXIT_CODE_GATE);
    char *path = folder_path(*state, "q.prom"), *text = file_text(path), *copy = xstrdup(text), *rest = copy,
         last[128] = "";
    static const char *const lines[] = {
        "stepbench_gpu_verdict{gpu=\"1\",uuid=\"\",verdict=\"slow\"} 1\n",
        "stepbench_gpu_verdict{gpu=\"1\",uuid=\"\",verdict=\"ok\"} 0\n",
        "stepbench_qualify_bound{metric=\"copy_gb_s\",shape=\"bytes=65536\",gpu=\"0\"} 960000\n",
        "stepbench_qualify_gpus_expected 2\n", "stepbench_qualify_exit_code 4\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_non_null(strstr(text, lines[i]));
    for (char *line; (line = strsep(&rest, "\n"));) {
        char name[128];
        if (sscanf(line, "# TYPE %127s gauge", name) == 1)
            snprintf(last, sizeof last, "%s", name);
        else if (*line && *line != '#') /* a name, labels, one number */
            assert_true(strncmp(line, last, strlen(last)) == 0 && strchr("{ ", line[strlen(last)]) &&
                        isfinite(strtod(strrchr(line, ' '), NULL)));
    }
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    free(copy);
    free(text);
    remove(path);
    free(path);
    assert_int_equal(run(*state, "--variant copy --metrics no/folder/q.prom"), EXIT_CODE_USAGE);
    said(*state, "--metrics no/folder/q.prom can't be written: No such file or directory");
    OWNED char *longest =
        xasprintf("--variant copy --metrics %0255d", 0); /* no name is left for what is renamed to it */
    assert_int_equal(run(*state, longest), EXIT_CODE_FAILURE);
    said(*state, "0 can't be written: File name too long");
    assert_int_equal(run(*state, "--variant copy --metrics /proc/self/fd/1"), EXIT_CODE_USAGE);
    said(*state, "--metrics needs a file, which /proc/self/fd/1 is not");
}

TEST(a_reference_that_is_missed)
{
    needs_gloo();
    char *path = folder_path(*state, "reference.csv");
    file_write(path, "metric,gpus,shape,value,floor\ncopy_gb_s,1,bytes=65536,1e6,\nstep_ms,1,model=tiny,1e6,\n"
                     "flash_tflops,1,seq=17,1e6,\n");
    free(path);
    assert_int_equal(run(*state, "--reference reference.csv --variant copy,flash,step,verdict"), EXIT_CODE_GATE);
    csv *c = rows(*state);
    assert_string_equal(cell(c, "copy", "1", "verdict"), "slow");
    assert_string_equal(cell(c, "copy", "1", "against"), "reference");
    assert_true(strtod(cell(c, "copy", "1", "again"), NULL) > 0); /* a suspect is measured again */
    assert_string_equal(cell(c, "step", "1", "verdict"), "ok");
    assert_string_equal(cell(c, "flash", "1", "verdict"), "not checked"); /* of another shape */
    const char *shape = cell(c, "flash", "1", "shape");
    assert_true(strncmp(shape, "seq=", 4) == 0 && strcmp(shape, "seq=17") != 0);
    assert_string_equal(cell(c, "verdict", "0", "verdict"), "slow");
    csv_free(c);
    said(*state, "rank 0: slow; copy_gb_s");
    assert_int_equal(run(*state, "--reference reference.csv --variant step"), EXIT_CODE_OK);
    /* A speed alone does not make a GPU well: NVML is not there. */
    assert_int_equal(run(*state, "--reference reference.csv --variant step,verdict"), EXIT_CODE_UNSUPPORTED);
    path = folder_path(*state, "reference.csv");
    file_write(path, "metric,gpus,shape,value,floor\nstep_ms,1,model=tiny,1e-6,\n");
    free(path);
    assert_int_equal(run(*state, "--reference reference.csv --variant step,verdict"), EXIT_CODE_GATE);
    c = rows(*state);
    assert_string_equal(cell(c, "step", "0", "verdict"), "slow");
    assert_true(strtod(cell(c, "step", "0", "again"), NULL) > 0); /* alone */
    csv_free(c);
}

/* Each line of docs/qualify.md with jq, on the rows of a GPU that is slow. */
TEST(the_lines_with_jq)
{
    static const char *const wants[] = {
        "0\tslow\tcopy_gb_s ", "{\"rank\":1,\"pair\":\"\",\"metric\":\"copy_gb_s\",\"value\":", "[\n  0,\n  1\n]\n"};
    if (system("jq --version >/dev/null 2>&1") != 0)
        skip();
    char *path = folder_path(*state, "reference.csv"), *text = file_text("docs/qualify.md"), *rest = text;
    file_write(path, "metric,gpus,shape,value,floor\ncopy_gb_s,1,bytes=65536,1e6,\n");
    free(path);
    size_t lines = 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        static const char begin[] = "    ./bench_qualify --json | ";
        if (strncmp(line, begin, strlen(begin)) != 0)
            continue;
        assert_true(lines < sizeof wants / sizeof *wants);
        OWNED char *arguments = xasprintf("--json --reference reference.csv --variant copy,verdict 2>errors.txt | %s",
                                          line + strlen(begin));
        assert_int_equal(run(*state, arguments), 0); /* jq's own */
        said(*state, wants[lines++]);
    }
    assert_int_equal(lines, sizeof wants / sizeof *wants);
    free(text);
}

TEST(a_planted_wrong_bit)
{
    needs_gloo();
    assert_int_equal(run(*state, "--ranks 3 --plant-error bits --variant step,verdict"), EXIT_CODE_VERIFY);
    OWNED_CSV csv *c = rows(*state);
    assert_string_equal(cell(c, "step", "0", "status"), "ok");
    assert_string_equal(cell(c, "step", "2", "status"), "fail");
    assert_string_equal(cell(c, "verdict", "0", "verdict"), "not checked");
    assert_string_equal(cell(c, "verdict", "2", "verdict"), "broken");
}

TEST(one_rank_and_four)
{
    assert_int_equal(run(*state, "--ranks 1"), EXIT_CODE_UNSUPPORTED);
    csv *c = rows(*state);
    assert_string_equal(cell(c, "step", "0", "status"), "ok");
    assert_string_equal(cell(c, "p2p", "", "status"), "skip");
    assert_string_equal(cell(c, "all-reduce", "", "status"), "skip");
    csv_free(c);
    assert_int_equal(run(*state, "--ranks 4 --variant all-reduce"), EXIT_CODE_UNSUPPORTED);
    c = rows(*state);
    assert_int_equal(c->rows, 3); /* all, and each half */
    static const char *const groups[] = {"0..3", "0..1", "2..3"};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(csv_cell(c, i, "group"), groups[i]);
#ifdef HAVE_GLOO
        assert_string_equal(csv_cell(c, i, "status"), "ok");
        assert_true(csv_real(c, i, "value") > 0);
#endif
    }
    csv_free(c);
}

TEST(bad_input)
{
    static const struct {
        const char *arguments, *sentence;
    } cases[] = {{"--reference none.csv", "--reference none.csv can't be read"},
                 {"--reference torn.csv", "another number of cells"},
                 {"--ranks 1,2", "as a whole"},
                 {"--group 0..9", "--group 0..9 is not a group of 2 ranks"},
                 {"--pair 0-2", "--pair 0-2 needs two ranks below 2"},
                 {"--rank 2", "--rank 2 is not below --ranks 2"},
                 {"--resume", "in one run"}};
    OWNED char *torn = folder_path(*state, "torn.csv");
    file_write(torn, "metric,gpus,shape,value,floor,source\nstep_ms,1,model=tiny,1e6,,my node, May\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run(*state, cases[i].arguments), EXIT_CODE_USAGE);
        said(*state, cases[i].sentence);
    }
}

TESTS_WITH(folder_create, folder_remove)
