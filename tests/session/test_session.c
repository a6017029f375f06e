/* SPDX-License-Identifier: MIT */
/* The session around a toy bench, each run in a process of its own inside an empty folder: rows of every status, exit
 * codes, resume, dry run, timeout, signals and kills; and the look-up of ceilings. */
#include "tests/support/test.h"

#include <ctype.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/core/results.h"
#include "common/session/ceiling.h"
#include "common/session/machine.h"
#include "common/session/session.h"

/* ---- the toy: each variant has its fate ---- */

static const option_spec option_table[] = {
    {"n", OPTION_INT, OPTION_LIST, "1,2,3", .help = "a number", .min = 1, .max = 100},
    {"depth", OPTION_INT, OPTION_LIST, "7", .help = "means something to right alone", .min = 1, .max = 100},
    {"pace", OPTION_TEXT, OPTION_SETTING, "slow", .help = "how it is done"},
    SESSION_SUSTAIN,
    {0}};
static const variant_spec variant_table[] = {{"right", "works"},        {"wrong", "gives a wrong result"},
                                             {"greedy", "no memory"},   {"odd", "unsupported"},
                                             {"stuck", "hangs at n 2"}, {0}};
static const column_spec column_table[] = {{"double_n", COLUMN_INT, true, "2 n"},
                                           {"err_rel", COLUMN_REAL, false, "error"},
                                           {"sustain_s", COLUMN_REAL, false, "--sustain"},
                                           {0}};

static bool applies(const char *option, const char *variant)
{
    return strcmp(option, "depth") != 0 || strcmp(variant, "right") == 0;
}

static const bench_info info = {.name = "bench_toy",
                                .summary = "What is twice n?",
                                .notes = "",
                                .examples = "",
                                .options = option_table,
                                .variants = variant_table,
                                .columns = column_table,
                                .applies = applies};

static void toy_run(session *s, const bench_case *c, row *w)
{
    const char *variant = case_variant(c);
    if (getenv("NOISE") &&
        (puts("a library says") < 0 || fflush(stdout) != 0 || write(STDOUT_FILENO, "and more\n", 9) != 9))
        _exit(EXIT_CODE_FAILURE);
    FILE *log = fopen("ran.txt", "a");
    fprintf(log, "%s\n", case_key(c));
    fclose(log);
    assert_non_null(memory_alloc(s->mem, 1000, "first")); /* never released: the session does */
    row_int(w, "double_n", 2 * case_int(c, "n"));
    row_real(w, "err_rel", 0.5);
    row_real(w, "sustain_s", s->sustain_s);
    if (strcmp(variant, "wrong") == 0)
        row_status_set(w, ROW_FAIL, "2 x 2 is not 5");
    else if (strcmp(variant, "greedy") == 0)
        assert_null(memory_alloc(s->mem, (size_t)1 << 50, "the scores"));
    else if (strcmp(variant, "odd") == 0)
        row_status_set(w, ROW_SKIP, "n must be odder");
    else if (strcmp(variant, "stuck") == 0 && case_int(c, "n") == 2)
        for (;;)
            pause();
}

static double toy_bytes(const options *o, const bench_case *c)
{
    (void)o;
    return (double)case_int(c, "n") * (1 << 30);
}

/* ---- running it ---- */

static char folder[512];

static int enter_folder(void **state)
{
    (void)state;
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/stepbench-test-XXXXXX", where ? where : "/tmp");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

/* Starts the toy with these arguments (cut at blanks); what it prints goes to out.txt and err.txt. */
static pid_t start(const char *arguments)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    char *text = xstrdup(arguments), *rest = text, *argv[32] = {"bench_toy"};
    int argc = 1;
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    if (dup2(open("out.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO) < 0 ||
        dup2(open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO) < 0)
        _exit(99);
    const session_hooks hooks = {NULL, toy_run, NULL, toy_bytes};
    int code = session_main(&info, &hooks, argc, argv);
    free(text);
    exit(code);
}

static int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int run(const char *arguments)
{
    return wait_for(start(arguments));
}

/* Whole file as a string of static storage, "" when absent. */
static const char *text_of(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    return text;
}

static int lines_of(const char *path)
{
    int n = 0;
    for (const char *c = text_of(path); *c; c++)
        n += *c == '\n';
    return n;
}

/* Waits until the file has that many lines. */
static void wait_for_lines(const char *path, int lines)
{
    for (int i = 0; i < 500 && lines_of(path) < lines; i++)
        usleep(10 * 1000);
    assert_int_equal(lines_of(path), lines);
}

#define CPU "--device cpu --csv rows.csv "

TEST_WITH(every_status_has_its_row, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 4 --variant right,wrong,greedy,odd"), EXIT_CODE_VERIFY);
    OWNED_CSV csv *c = csv_read("rows.csv");
    results_join(c, "machine.csv", (const char *const[]){"device", "machine", "idle_w", "campaign", NULL});
    assert_non_null(c);
    assert_int_equal(c->rows, 4);
    assert_string_equal(csv_cell(c, 3, "campaign"), csv_cell(c, 0, "run_id"));
    const char *const status[] = {"ok", "fail", "oom", "skip"};
    for (size_t i = 0; i < c->rows; i++)
        assert_string_equal(csv_cell(c, i, "status"), status[i]);
    assert_int_equal((int)csv_real(c, 0, "double_n"), 8);
    for (size_t i = 1; i < c->rows; i++)
        assert_true(isnan(csv_real(c, i, "double_n")));
    assert_true(csv_real(c, 1, "err_rel") == 0.5); /* a wrong result shows how wrong */
    assert_string_equal(csv_cell(c, 1, "reason"), "2 x 2 is not 5");
    assert_non_null(strstr(csv_cell(c, 2, "reason"), "the scores needs 1125899906842624 bytes"));
    assert_string_equal(csv_cell(c, 3, "reason"), "n must be odder");
    assert_string_equal(csv_cell(c, 0, "device"), "cpu");
    assert_non_null(strstr(text_of("out.txt"), "results: rows.csv\n"));
}

TEST_WITH(an_option_that_does_not_apply_is_empty, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 1,2 --depth 3,4,5 --variant right,greedy"), EXIT_CODE_OK);
    OWNED_CSV csv *c = csv_read("rows.csv");
    assert_int_equal(c->rows, 2 * 3 + 2);
    for (size_t i = 0; i < c->rows; i++)
        assert_int_equal(*csv_cell(c, i, "depth") == 0, csv_is(c, i, "variant", "greedy"));
    assert_int_equal(run(CPU "--n 1,2 --depth 5 --variant greedy,right --resume"), EXIT_CODE_OK);
    assert_int_equal(lines_of("ran.txt"), 8); /* greedy is the same case at any depth */
}

TEST_WITH(machine_report_is_beside_the_rows, enter_folder, leave_folder)
{
    setenv("NCCL_DEBUG", "WARN", 1);
    setenv("NCCL_COMM_ID", "10.1.2.3:4", 1);
    setenv("NCCL_TESTS", "/home/xyzzy/nccl-tests", 1);
    setenv("A_SECRET", "xyzzy", 1);
    assert_int_equal(run("--device cpu --csv deep/er/rows.csv --n 1 --variant right"), EXIT_CODE_OK);
    unsetenv("NCCL_DEBUG");
    unsetenv("NCCL_COMM_ID");
    unsetenv("NCCL_TESTS");
    unsetenv("A_SECRET");
    OWNED_CSV csv *c = csv_read("deep/er/machine.csv");
    bool cpu = false, command = false, nccl = false;
    assert_non_null(c);
    for (size_t i = 0; i < c->rows; i++) {
        const char *key = csv_cell(c, i, "key"), *value = csv_cell(c, i, "value");
        cpu |= strcmp(key, "cpu") == 0 && *value;
        command |= strcmp(key, "command") == 0 && strstr(value, "--variant right");
        nccl |= strcmp(key, "NCCL_DEBUG") == 0 && strcmp(value, "WARN") == 0;
    }
    assert_true(cpu && command && nccl);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const char *text = text_of("deep/er/machine.csv");
    assert_null(strstr(text, "xyzzy"));
    assert_null(strstr(text, "10.1.2.3"));
    if (strlen(host) > 4) /* a shorter one may be part of any word */
        assert_null(strstr(text, host));
}

TEST_WITH(default_file_is_of_machine_and_bench, enter_folder, leave_folder)
{
    assert_int_equal(run("--device cpu --machine lab-7 --n 1 --variant right"), EXIT_CODE_OK);
    assert_int_equal(lines_of("results/lab-7/bench_toy.csv"), 2);
    assert_int_equal(run("--device cpu --csv none --n 1 --variant right"), EXIT_CODE_OK);
    assert_null(strstr(text_of("out.txt"), "results:"));
    assert_int_equal(run("--device cpu --machine ../up --n 1"), EXIT_CODE_USAGE);
}

TEST_WITH(only_skips_is_unsupported, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--variant odd"), EXIT_CODE_UNSUPPORTED);
    assert_int_equal(lines_of("rows.csv"), 1 + 3);
}

TEST_WITH(no_memory_anywhere_is_unsupported, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 1 --variant greedy,odd"), EXIT_CODE_UNSUPPORTED);
    assert_int_equal(run(CPU "--n 1 --variant greedy,odd --resume"), EXIT_CODE_UNSUPPORTED); /* nor in kept rows */
    assert_int_equal(run(CPU "--n 1 --variant greedy,odd,right --resume"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--n 1 --variant right,odd --resume"), EXIT_CODE_OK);
}

TEST_WITH(the_exit_code_is_explained, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 4,5 --variant right,wrong --quiet"), EXIT_CODE_VERIFY);
    assert_string_equal(text_of("err.txt"), "bench_toy: 2 of 4 results are wrong; the first: n=4 variant=wrong: "
                                            "2 x 2 is not 5\n");
    assert_int_equal(run(CPU "--n 4,5 --variant wrong --quiet --resume"), EXIT_CODE_VERIFY);
    assert_string_equal(text_of("err.txt"), "bench_toy: 2 of 2 results are wrong, as an earlier run found\n");
    assert_int_equal(run(CPU "--n 4 --variant odd --quiet"), EXIT_CODE_UNSUPPORTED);
    assert_string_equal(text_of("err.txt"), "bench_toy: nothing could be measured: n=4 variant=odd: n must be odder\n");
    assert_int_equal(run(CPU "--n 4 --variant right --quiet"), EXIT_CODE_OK);
    assert_string_equal(text_of("err.txt"), "");
}

TEST_WITH(resume_skips_what_is_there, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 1,2 --variant right,wrong"), EXIT_CODE_VERIFY);
    assert_int_equal(lines_of("ran.txt"), 4);
    assert_int_equal(run(CPU "--n 1,2,3 --variant right,wrong --resume"), EXIT_CODE_VERIFY);
    assert_int_equal(lines_of("ran.txt"), 6);
    assert_int_equal(lines_of("rows.csv"), 1 + 6);
    assert_int_equal(run(CPU "--n 1 --variant right"), EXIT_CODE_OK); /* without --resume it is measured again */
    assert_int_equal(lines_of("rows.csv"), 1 + 7);
}

/* The rows alone are on stdout. */
TEST_WITH(json_has_stdout_to_itself, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 1,2 --variant right --json"), EXIT_CODE_OK);
    const char *out = text_of("out.txt");
    assert_int_equal(lines_of("out.txt"), 2);
    assert_true(strncmp(out, "{\"schema\":", 10) == 0 && strstr(out, "\n{\"schema\":"));
    assert_non_null(strstr(out, "\"n\":2,\"depth\":7,\"double_n\":4,\"err_rel\":0.5,"));
    assert_non_null(strstr(text_of("err.txt"), "results: rows.csv\n"));
    assert_int_equal(lines_of("rows.csv"), 1 + 2);
}

/* --csv -: each row has what holds for its run behind its columns, as there is no machine.csv. */
TEST_WITH(rows_go_to_stdout, enter_folder, leave_folder)
{
    static const char header[] = "schema,method,bench,variant,status,reason,n,depth,double_n,err_rel,", *const bad[] = {
                                                                                                            "--json",
                                                                                                            "--resume"};
    assert_int_equal(run("--device cpu --machine x --csv - --n 1,2 --variant right"), EXIT_CODE_OK);
    const char *out = text_of("out.txt");
    assert_int_equal(lines_of("out.txt"), 1 + 2);
    assert_int_equal(strncmp(out, header, strlen(header)), 0);
    OWNED_CSV csv *c = csv_parse(out);
    assert_int_equal(c->rows, 2);
    assert_int_equal(c->dropped, 0);
    for (size_t i = 0; i < c->rows; i++) {
        assert_true(csv_real(c, i, "double_n") == 2 * (double)(i + 1));
        assert_string_equal(csv_cell(c, i, "machine"), "x");
        assert_string_equal(csv_cell(c, i, "device"), "cpu");
        assert_string_equal(csv_cell(c, i, "campaign"), csv_cell(c, i, "run_id"));
        assert_string_equal(csv_cell(c, i, "seed"), "1");
    }
    assert_non_null(strstr(text_of("err.txt"), "2 rows on stdout\n"));
    assert_int_equal(access("machine.csv", F_OK), -1);
    assert_int_equal(access("-", F_OK), -1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char arguments[96];
        snprintf(arguments, sizeof arguments, "--device cpu --machine x --csv - --n 1 --variant right %s", bad[i]);
        assert_int_equal(run(arguments), EXIT_CODE_USAGE);
        assert_non_null(strstr(text_of("err.txt"), bad[i]));
    }
}

/* With and without --json, what libraries print goes to stderr. */
TEST_WITH(libraries_print_to_stderr, enter_folder, leave_folder)
{
    setenv("NOISE", "1", 1);
    assert_int_equal(run(CPU "--n 1,2 --variant right --json"), EXIT_CODE_OK);
    assert_int_equal(lines_of("out.txt"), 2);
    assert_non_null(strstr(text_of("err.txt"), "a library says\nand more\n"));
    assert_int_equal(run(CPU "--n 1,2 --variant right"), EXIT_CODE_OK);
    assert_non_null(strstr(text_of("out.txt"), "results: rows.csv\n"));
    assert_null(strstr(text_of("out.txt"), "a library says"));
    assert_null(strstr(text_of("out.txt"), "and more"));
    assert_string_equal(text_of("err.txt"), "a library says\nand more\na library says\nand more\n");
    unsetenv("NOISE");
}

static int run_into(const char *arguments, const char *path)
{
    const pid_t pid = fork();
    if (pid == 0) {
        char *argv[32] = {"bench_toy"}, text[256], *rest = text;
        int argc = 1;
        snprintf(text, sizeof text, "%s", arguments);
        while (argc < 31 && (argv[argc] = strsep(&rest, " ")))
            argc++;
        device_no_cuda_reason(); /* opens files of a driver that is here, the first of which would be a closed stdout */
        if (dup2(open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO) < 0 ||
            (path && dup2(open(path, O_WRONLY), STDOUT_FILENO) < 0) || (!path && close(STDOUT_FILENO) != 0))
            _exit(99);
        const session_hooks hooks = {.run = toy_run};
        _exit(session_main(&info, &hooks, argc, argv));
    }
    return wait_for(pid);
}

TEST_WITH(a_full_or_closed_stdout_is_an_error, enter_folder, leave_folder)
{
    assert_int_equal(run_into("--device cpu --csv rows.csv --n 1 --variant right --json", "/dev/full"),
                     EXIT_CODE_FAILURE);
    assert_non_null(strstr(text_of("err.txt"), "stdout can't be written (No space left on device): rows are lost"));
    assert_int_equal(run_into("--device cpu --csv rows.csv --n 2 --variant right", "/dev/full"), EXIT_CODE_FAILURE);
    assert_non_null(
        strstr(text_of("err.txt"), "stdout can't be written (No space left on device): lines of the table"));
    assert_int_equal(lines_of("rows.csv"), 1 + 2);
    assert_int_equal(run_into("--device cpu --csv rows.csv --n 3 --variant right", NULL), EXIT_CODE_FAILURE);
    assert_non_null(strstr(text_of("err.txt"), "stdout can't be set apart"));
    assert_int_equal(run_into("--device cpu --csv rows.csv --n 3 --variant right --quiet", "/dev/null"), EXIT_CODE_OK);
    assert_int_equal(lines_of("rows.csv"), 1 + 3);
}

TEST_WITH(a_row_stands_beside_its_baseline, enter_folder, leave_folder)
{
    assert_int_equal(run("--device cpu --csv old/bench_toy.csv --n 1,2 --variant right"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--n 2,3 --variant right --baseline old"), EXIT_CODE_OK);
    const char *first = strstr(text_of("out.txt"), "    baseline: "); /* compare_row has tests of its own */
    assert_true(first && strstr(first + 1, "    baseline: has no such case\n"));
    assert_int_equal(system("mkdir -p locale && sed 's/,/;/g' old/bench_toy.csv >locale/bench_toy.csv"), 0);
    assert_int_equal(run(CPU "--n 2 --variant right --baseline locale"), EXIT_CODE_USAGE);
    assert_non_null(
        strstr(text_of("err.txt"), "--baseline locale/bench_toy.csv: no line counts, since cells are separated"));
    assert_int_equal(run("--device cpu --machine x --n 2 --variant right --csv older/bench_toy.csv"), EXIT_CODE_OK);
    assert_int_equal(system("sed -i 's/^3,/2,/' older/bench_toy.csv"), 0);
    assert_int_equal(run(CPU "--n 2 --variant right --baseline older"), EXIT_CODE_USAGE);
    assert_non_null(strstr(text_of("err.txt"), "--baseline: older/bench_toy.csv has rows of schema 2"));
    assert_int_equal(run(CPU "--n 2 --variant right --baseline new"), EXIT_CODE_USAGE);
    assert_non_null(strstr(text_of("err.txt"), "--baseline new has no rows of bench_toy: new/bench_toy.csv"));
    assert_int_equal(run(CPU "--n 2 --variant right --baseline="), EXIT_CODE_USAGE);
}

TEST_WITH(dry_run_only_prints, enter_folder, leave_folder)
{
    assert_int_equal(run("--device cpu --n 1,2 --variant right,stuck --dry-run"), EXIT_CODE_OK);
    assert_int_equal(lines_of("out.txt"), 4);
    assert_non_null(strstr(text_of("out.txt"), "n=2 variant=right  (about 2 GiB)\n"));
    assert_int_equal(access("results", F_OK), -1);
    assert_int_equal(access("ran.txt", F_OK), -1);
}

TEST_WITH(no_progress_is_exit_5, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 1,2,3 --variant stuck --timeout 0.3"), EXIT_CODE_TIMEOUT);
    assert_int_equal(lines_of("rows.csv"), 1 + 1);
    const char *said = text_of("err.txt");
    assert_non_null(strstr(said, "--timeout 0.3"));
    assert_non_null(strstr(said, "n=2 variant=stuck"));
    assert_non_null(strstr(said, "rows.csv"));
}

TEST_WITH(signals_keep_the_rows, enter_folder, leave_folder)
{
    const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        pid_t pid = start(CPU "--n 1,2 --variant stuck");
        wait_for_lines("ran.txt", 2 * (i + 1));
        kill(pid, signals[i]);
        assert_int_equal(wait_for(pid), 128 + signals[i]);
        assert_int_equal(lines_of("rows.csv"), 1 + 1 + i);
        assert_non_null(strstr(text_of("err.txt"), "stopped by SIG"));
    }
}

/* As the background jobs of a shell start it. */
TEST_WITH(ignored_signals_stay_ignored, enter_folder, leave_folder)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    pid_t pid = start(CPU "--n 1,2 --variant stuck --timeout 1");
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    wait_for_lines("ran.txt", 2);
    kill(pid, SIGINT);
    kill(pid, SIGTERM);
    assert_int_equal(wait_for(pid), EXIT_CODE_TIMEOUT);
}

TEST_WITH(one_run_at_a_time_writes_a_folder, enter_folder, leave_folder)
{
    pid_t pid = start("--device cpu --machine lab-7 --n 1,2 --variant stuck");
    wait_for_lines("ran.txt", 2);
    assert_int_equal(run("--device cpu --machine lab-7 --n 5 --variant right"), EXIT_CODE_FAILURE);
    assert_non_null(strstr(text_of("err.txt"), "another run is writing results/lab-7; wait for it to end"));
    assert_int_equal(run("--device cpu --csv results/lab-7/other.csv --n 5 --variant right"), EXIT_CODE_FAILURE);
    assert_int_equal(run("--device cpu --machine lab-8 --n 5 --variant right"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--n 5 --variant right"), EXIT_CODE_OK);
    assert_int_equal(lines_of("ran.txt"), 4);
    kill(pid, SIGKILL); /* gives the folder back */
    wait_for(pid);
    assert_int_equal(run("--device cpu --machine lab-7 --n 5 --variant right"), EXIT_CODE_OK);
}

TEST_WITH(a_burst_does_not_stand_for_the_steady_state, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 1,2 --variant right"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--n 1 --variant right --sustain 2 --resume"), EXIT_CODE_OK);
    assert_int_equal(lines_of("ran.txt"), 3);
    assert_int_equal(run(CPU "--n 1 --variant right --sustain 2 --resume"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--n 1,2 --variant right --resume"), EXIT_CODE_OK); /* the other way round it does */
    assert_int_equal(lines_of("ran.txt"), 3);
}

/* A row has no column for such an option, but it says what was measured. */
TEST_WITH(a_row_with_another_setting_does_not_count, enter_folder, leave_folder)
{
    assert_int_equal(run(CPU "--n 1,2 --variant right"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--n 1,2 --variant right --resume --pace slow"), EXIT_CODE_OK);
    assert_int_equal(lines_of("ran.txt"), 2);
    assert_int_equal(run(CPU "--n 1 --variant right --resume --pace slower"), EXIT_CODE_OK);
    assert_int_equal(lines_of("ran.txt"), 3);
    assert_int_equal(run(CPU "--n 1,2 --variant right --resume --pace slower"), EXIT_CODE_OK);
    assert_int_equal(lines_of("ran.txt"), 4);
}

TEST_WITH(a_killed_run_is_resumed, enter_folder, leave_folder)
{
    pid_t pid = start(CPU "--n 1,2,3 --variant stuck");
    wait_for_lines("ran.txt", 2);
    kill(pid, SIGKILL);
    assert_int_equal(wait_for(pid), -SIGKILL);
    assert_int_equal(lines_of("rows.csv"), 1 + 1);
    assert_int_equal(run(CPU "--n 1,3 --variant stuck --resume"), EXIT_CODE_OK);
    assert_int_equal(lines_of("ran.txt"), 3);
    assert_int_equal(lines_of("rows.csv"), 1 + 2);
}

TEST_WITH(contradictions_are_usage_errors, enter_folder, leave_folder)
{
    const char *const wrong[] = {"--device cpu --timer graph",
                                 "--device cpu --timer event",
                                 "--device cpu --gpu 1",
                                 "--device cpu --resume --csv none",
                                 "--device cpu --csv=",
                                 "--device cpu --sustain 0.5",
                                 "--device cpu --sustain -1",
                                 "--device cpu --sustain long",
                                 "--n 0",
                                 "--variant none",
                                 "--no-such 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(run(wrong[i]), EXIT_CODE_USAGE);
        assert_int_equal(lines_of("err.txt"), 1);
    }
    assert_int_equal(access("ran.txt", F_OK), -1);
}

TEST_WITH(cuda_without_a_gpu_is_a_clear_error, enter_folder, leave_folder)
{
    const char *why = device_no_cuda_reason();
    if (!why) {
        print_message("a GPU is here: there is no such error to see\n");
        skip();
    }
    assert_int_equal(run("--device cuda"), EXIT_CODE_USAGE);
    const char *said = text_of("err.txt");
    assert_non_null(strstr(said, "--device cuda"));
    assert_non_null(strstr(said, why));
}

/* ---- the machine's name, ceilings ---- */

TEST_WITH(slug_is_a_plain_name, enter_folder, leave_folder)
{
    char slug[64], tiny[12];
    device *d = device_open(DEVICE_CPU, 0);
    machine_slug(device_kind_of(d), device_get_info(d), slug, sizeof slug);
    assert_int_equal(strncmp(slug, "cpu-", 4), 0);
    assert_non_null(strstr(slug, "-x"));
    for (const char *c = slug; *c; c++)
        assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-');
    machine_slug(device_kind_of(d), device_get_info(d), tiny, sizeof tiny);
    assert_true(strlen(tiny) > 0);
    device_close(d);
}

TEST_WITH(gpus_have_short_names, enter_folder, leave_folder)
{
    static const char *const names[][2] = {{"NVIDIA H100 80GB HBM3", "h100-x2"},
                                           {"NVIDIA H100 96GB HBM3", "h100-96gb-x2"},
                                           {"NVIDIA H200", "h200-x2"},
                                           {"NVIDIA A100-SXM4-80GB", "a100-sxm4-x2"},
                                           {"NVIDIA GeForce RTX 4090", "rtx-4090-x2"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        device_info info = {.count = 2};
        char slug[64];
        snprintf(info.name, sizeof info.name, "%s", names[i][0]);
        machine_slug(DEVICE_CUDA, &info, slug, sizeof slug);
        assert_string_equal(slug, names[i][1]);
    }
}

/* Whoever clones the project has its rows of h200-x1: theirs, of another GPU, go beside them. */
TEST_WITH(a_folder_has_the_rows_of_one_machine, enter_folder, leave_folder)
{
    static const char *const visible[][2] = {{"GPU-a ", "h200-x1"},
                                             {"GPU-c GPU-b ", "h200-x1-2"},
                                             {"GPU-x ", "h200-x1-3"},
                                             {"", "h200-x1"},
                                             {"GPU-x GPU-a ", "h200-x1"}};
    for (size_t i = 0; i < sizeof visible / sizeof *visible; i++) {
        OWNED char *name = machine_name("h200-x1", visible[i][0]);
        assert_string_equal(name, "h200-x1"); /* nothing has run */
    }
    assert_int_equal(mkdir("results", 0777) | mkdir("results/h200-x1", 0777) | mkdir("results/h200-x1-2", 0777), 0);
    file_write("results/h200-x1/machine.csv", "run_id,key,value\nr1,gpu_uuid,GPU-z\nr2,gpu_uuid,GPU-a\nr3,bench,x\n");
    file_write("results/h200-x1-2/machine.csv", "run_id,key,value\nr1,gpu_uuid,GPU-b\n");
    for (size_t i = 0; i < sizeof visible / sizeof *visible; i++) {
        OWNED char *name = machine_name("h200-x1", visible[i][0]);
        assert_string_equal(name, visible[i][1]);
    }
}

TEST_WITH(a_binding_does_not_rename_the_machine, enter_folder, leave_folder)
{
    char before[64], after[64];
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    device *d = device_open(DEVICE_CPU, 0);
    machine_slug(device_kind_of(d), device_get_info(d), before, sizeof before);
    device_close(d);
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    d = device_open(DEVICE_CPU, 0);
    machine_slug(device_kind_of(d), device_get_info(d), after, sizeof after);
    device_close(d);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_string_equal(after, before);
}

TEST_WITH(ceilings_are_the_best_ok_rows, enter_folder, leave_folder)
{
    char *argv[] = {"bench_toy", "--device=cpu"}, msg[256];
    OWNED_OPTIONS options *o = options_try(&info, 2, argv, &(options_env){"cpu", NULL, NULL}, msg, sizeof msg);
    rows_info one = {
        .machine = "x", .device_name = "x", .gpu_uuid = "GPU-1", .campaign = "one", .device = "cpu", .quiet = true};
    session s = {.opt = o, .rows = rows_open(o, &one, false)};
    assert_true(isnan(ceiling_tflops(&s, ".", "bf16")));
    FILE *f = fopen("bench_roofline.csv", "w");
    fputs("variant,status,dtype,bytes,tflops,gb_s,campaign,gpu_uuid,device\n"
          "gemm,ok,bf16,,600,nan,one,GPU-1,cpu\n"
          "gemm,ok,bf16,,700,nan,one,GPU-1,cpu\n"
          "gemm,ok,bf16,,800,nan,one,GPU-2,cpu\n" /* another GPU, run, device */
          "gemm,ok,bf16,,900,nan,two,GPU-1,cpu\n"
          "gemm,ok,bf16,,950,nan,one,GPU-1,cuda\n"
          "gemm,fail,bf16,,9000,nan,one,GPU-1,cpu\n"
          "gemm,ok,fp32,,50,nan,one,GPU-1,cpu\n"
          "gemm,ok,tf32,,60,nan,two,GPU-1,cpu\n"
          "copy,ok,,1024,nan,9999,one,GPU-1,cpu\n" /* inside the cache */
          "copy,ok,,4096,nan,4000,one,GPU-1,cpu\n"
          "copy_kernel,ok,,4096,nan,4100,one,GPU-1,cpu\n"
          "copy,ok,,4096,nan,4200,two,GPU-1,cpu\n"
          "p2p,ok,,8192,nan,5000,one,GPU-1,cpu\n",
          f);
    fclose(f);
    assert_true(ceiling_tflops(&s, ".", "bf16") == 700);
    assert_true(ceiling_tflops(&s, ".", "fp32") == 50);
    assert_true(ceiling_tflops(&s, ".", "bf16x3") == 700 / 3.0);
    assert_true(ceiling_tflops(&s, ".", "fp16x3") == 700 / 3.0);
    assert_true(ceiling_tflops(&s, ".", "bf16x6") == 700 / 6.0);
    assert_true(isnan(ceiling_tflops(&s, ".", "fp16")));
    assert_true(isnan(ceiling_tflops(&s, ".", "tf32")));
    assert_true(ceiling_tflops(NULL, ".", "tf32") == 60);
    assert_true(ceiling_copy_gb_s(&s, ".") == 4100);
    rows_close(s.rows);
}
