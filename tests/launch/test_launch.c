/* SPDX-License-Identifier: MIT */
/* Several ranks around a toy bench: started by the program itself and by hand, and everything that can go wrong with
 * them: each must end all ranks in time, with the right exit code, a sentence that names the rank, and the rows kept. */
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/core/clock.h"
#include "common/session/watchdog.h"
#include "common/launch/control.h"
#include "common/launch/coordinator.h"
#include "common/launch/internal.h"
#include "common/launch/env.h"
#include "tests/support/ranks.h"

/* ---- the toy: at n 2 the victim meets its variant's fate ---- */

static option_spec option_table[] = {LAUNCH_RANKS("2", "2"),
                                     {"n", OPTION_INT, OPTION_LIST, "1,2,3", .help = "a number", .min = 1, .max = 100},
                                     {"victim", OPTION_INT, 0, "1", .help = "which rank", .max = 100},
                                     {0}};
static const variant_spec variant_table[] = {{"right", "works"},
                                             {"killed", "the victim is killed"},
                                             {"stopped", "the victim is stopped"},
                                             {"stuck", "the victim hangs before a collective of the others"},
                                             {"dies", "the victim ends itself with a message"},
                                             {"leaves", "the victim exits with 0"},
                                             {"astray", "the victim enters another exchange than the others"},
                                             {"fails", "the victim reports that it can't go on"},
                                             {"busy", "rank 0 works for long and the others wait"},
                                             {"wrong", "gives a wrong result"},
                                             {"clocks", "rank 1 is on another host, whose clock is off"},
                                             {0}};
static const column_spec column_table[] = {{"sum", COLUMN_INT, true, "n over all ranks"}, {0}};
static const bench_info info = TOY_BENCH("bench_toy", "What is the sum of n over ranks?");

static void note(const char *path, const char *fmt, long value)
{
    char line[64];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    int bytes = snprintf(line, sizeof line, fmt, value);
    if (write(fd, line, (size_t)bytes) != bytes)
        die(EXIT_CODE_FAILURE, "can't write %s", path);
    close(fd);
}

static int toy; /* its communicator */

static launch_number enqueue(launch *l, const char *op, size_t count, const char *dtype)
{
    return launch_collective(l, &(launch_op){toy, "toy", op, dtype, count, -1});
}

static void meet_fate(launch *l, const char *variant, bool victim)
{
    usleep(150 * 1000); /* rank 0 writes the row before; what ranks do is known, also where they send it every 50 ms */
    if (strcmp(variant, "killed") == 0 && victim)
        raise(SIGKILL);
    if (strcmp(variant, "stopped") == 0 && victim)
        raise(SIGSTOP);
    if (strcmp(variant, "stuck") == 0 && victim)
        for (;;)
            pause();
    if (strcmp(variant, "stuck") == 0) {
        enqueue(l, "all_reduce", 77, "fp32");
        for (;;)
            pause();
    }
    if (strcmp(variant, "dies") == 0 && victim)
        die(EXIT_CODE_FAILURE, "the dog ate my tensor");
    if (strcmp(variant, "leaves") == 0 && victim)
        _exit(EXIT_CODE_OK);
    if (strcmp(variant, "astray") == 0 && victim)
        launch_barrier(l, "somewhere else");
    if (strcmp(variant, "fails") == 0 && victim)
        launch_fail(l, EXIT_CODE_FAILURE, "all_reduce broke");
    for (int i = 0; strcmp(variant, "busy") == 0 && launch_rank(l) == 0 && i < 15; i++) {
        usleep(100 * 1000);
        watchdog_beat();
    }
}

/* The clock of the other host: 1 ms ahead when it starts, and 1 % fast. */
static double started_s;
static double other_clock_at(double true_s)
{
    return true_s + 1e-3 + 0.01 * (true_s - started_s);
}
static double other_clock(void)
{
    return other_clock_at(host_seconds());
}

/* The time of rank 0's host must be found, before, between and after, as well as the error says. */
static void check_clocks(launch *l)
{
    const launch whole = *l;
    started_s = host_seconds();
    l->hosts = 2;
    l->host = l->first_of_host = l->rank == 1;
    l->now = l->rank == 1 ? other_clock : host_seconds;
    const clock_reading before = launch_clock(l);
    usleep(50 * 1000);
    const double true_s = host_seconds(), between_s = l->rank == 1 ? other_clock_at(true_s) : true_s;
    usleep(50 * 1000);
    const clock_reading after = launch_clock(l);
    const host_clock c = host_clock_of(&before, &after);
    const double off_us = 1e6 * fabs(host_clock_rank_0_s(&c, between_s) - true_s);
    if (l->rank != 1 ? off_us > 0 || c.err_us > 0 : !(off_us < c.err_us + 2) || !(c.err_us > 0) || c.err_us > 900)
        launch_fail(l, EXIT_CODE_FAILURE, "clocks are off by %g us, and said to be by %g us at most", off_us, c.err_us);
    if (l->rank == 1 && !(fabs(c.drift + 0.01 / 1.01) < 2.5e-6 * c.err_us / (after.at_s - before.at_s)))
        launch_fail(l, EXIT_CODE_FAILURE, "a drift of %g was found, %g us", c.drift, c.err_us);
    l->hosts = whole.hosts;
    l->host = whole.host;
    l->first_of_host = whole.first_of_host;
    l->now = whole.now;
    const clock_reading alone = launch_clock(l);
    if (alone.offset_s != 0 || alone.round_trip_s != 0) /* NOLINT: one host has one clock */
        launch_fail(l, EXIT_CODE_FAILURE, "the clock of one host is off itself");
}

static void toy_run(session *s, const bench_case *c, row *w)
{
    launch *l = launch_of(s);
    int64_t mine = case_int(c, "n"), all[64], sum = 0;
    note("ran.txt", "%ld\n", launch_rank(l));
    if (getenv("NOISE") &&
        (puts("a library says") < 0 || fflush(stdout) != 0 || write(STDOUT_FILENO, "and more\n", 9) != 9))
        _exit(EXIT_CODE_FAILURE);
    launch_collective_done(l, toy, enqueue(l, "all_gather", 1234, "bf16"));
    if (mine == 2)
        meet_fate(l, case_variant(c), launch_rank(l) == option_int(s->opt, "victim"));
    if (strcmp(case_variant(c), "clocks") == 0)
        check_clocks(l);
    launch_gather(l, "n", &mine, sizeof mine, all);
    for (int r = 0; r < launch_size(l); r++)
        sum += all[r];
    row_int(w, "sum", sum);
    if (strcmp(case_variant(c), "wrong") == 0)
        row_status_set(w, ROW_FAIL, "sums are wrong today");
}

static void toy_start(session *s)
{
    launch *l = launch_of(s);
    int word = launch_rank(l) == 1 ? 4711 : 0;
    note("pids.txt", "%ld\n", getpid());
    toy = launch_communicator(l, "toy", 0, launch_rank(l), launch_size(l));
    launch_share(l, "word", &word, sizeof word, launch_size(l) > 1 ? 1 : 0);
    if (launch_size(l) > 1 && word != 4711)
        die(EXIT_CODE_FAILURE, "rank 1's word was lost");
    if (launch_all(l, "all", true) != true || launch_all(l, "not all", launch_rank(l) != 0) != false)
        die(EXIT_CODE_FAILURE, "ranks do not agree");
    if (launch_local_size(l) != launch_size(l) || launch_hosts(l) != 1 || l->local_rank != launch_rank(l))
        die(EXIT_CODE_FAILURE, "one host looks like several");
}

static int toy_main(int argc, char **argv)
{
    const session_hooks hooks = {.start = toy_start, .run = toy_run};
    return launch_main(&info, &hooks, argc, argv);
}

#define CPU "--device cpu --csv rows.csv "
static int run(const char *arguments)
{
    return ranks_run("bench_toy", arguments);
}

/* ---- started by the program ---- */

TEST_IN_RANKS_FOLDER(rank_0_alone_writes)
{
    assert_int_equal(run(CPU "--ranks 4 --variant right"), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
    assert_int_equal(ranks_lines("ran.txt"), 4 * 3);
    assert_non_null(strstr(ranks_text("rows.csv"), ",4,3,12,"));
    assert_int_equal(ranks_lines("err.txt"), 0);
    const char *said = ranks_text("out.txt");
    assert_non_null(strstr(said, "results: rows.csv\n"));
    assert_null(strstr(strstr(said, "results:") + 1, "results:"));
    ranks_all_gone("pids.txt");
    assert_int_equal(run(CPU "--ranks 1 --variant right"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--ranks 2 --variant wrong"), EXIT_CODE_VERIFY);
}

TEST_IN_RANKS_FOLDER(libraries_of_ranks_print_to_stderr)
{
    assert_int_equal(run("NOISE=1 " CPU "--ranks 3 --variant right --json"), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("out.txt"), 3);
    assert_null(strstr(ranks_text("out.txt"), "a library says"));
    assert_int_equal(run("NOISE=1 " CPU "--ranks 3 --variant right"), EXIT_CODE_OK);
    assert_non_null(strstr(ranks_text("out.txt"), "results: rows.csv\n"));
    assert_null(strstr(ranks_text("out.txt"), "a library says"));
    assert_int_equal(ranks_lines("err.txt"), 3 * 3 * 2);
}

/* A container's settings, mpirun -np 1: the ranks are started all the same, as many as are asked for. */
TEST_IN_RANKS_FOLDER(a_world_of_one_starts_its_ranks)
{
    static const char *const worlds[] = {
        "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 ",
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 ", "PMI_RANK=0 PMI_SIZE=1 ",
        "SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 "};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        char arguments[256];
        unlink("rows.csv");
        snprintf(arguments, sizeof arguments, "%s" CPU "--ranks 3 --n 1 --variant right", worlds[i]);
        assert_int_equal(run(arguments), EXIT_CODE_OK);
        assert_int_equal(ranks_lines("rows.csv"), 1 + 1);
        assert_int_equal(ranks_lines("ran.txt"), 3 * ((int)i + 1));
    }
}

TEST_IN_RANKS_FOLDER(resume_is_agreed)
{
    assert_int_equal(run(CPU "--n 1,3 --variant right"), EXIT_CODE_OK);
    assert_int_equal(run(CPU "--n 1,2,3 --variant right --resume"), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("ran.txt"), 2 * 2 + 2);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
}

TEST_IN_RANKS_FOLDER(dry_run_starts_nobody)
{
    assert_int_equal(run(CPU "--variant right --dry-run"), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("out.txt"), 3);
    assert_int_equal(access("pids.txt", F_OK), -1);
}

/* Runs a variant whose victim spoils it; everything must be over within the seconds, with this in the message. */
static void spoiled(const char *arguments, int code, double seconds, const char *const *said)
{
    unlink("rows.csv");
    unlink("pids.txt");
    const double start = ranks_seconds();
    int got = run(arguments);
    const double took = ranks_seconds() - start;
    const char *err = ranks_text("err.txt");
    for (; *said; said++)
        if (!strstr(err, *said))
            fail_msg("%s: '%s' is not in: %s", arguments, *said, err);
    if (got != code)
        fail_msg("%s: exit code %d, not %d: %s", arguments, got, code, err);
    if (took > seconds)
        fail_msg("%s took %g s", arguments, took);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 1);
    ranks_all_gone("pids.txt");
}
#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST_IN_RANKS_FOLDER(a_dead_rank_ends_the_job)
{
    spoiled(CPU "--variant killed", EXIT_CODE_TIMEOUT, 5,
            SAYS("rank 1 of 2 was killed by signal 9", "while: n=2 variant=killed",
                 "last collective: all_gather #2 of 1234 bf16 on toy, done", "rows so far are in rows.csv"));
    spoiled(CPU "--ranks 3 --variant killed --victim 0", EXIT_CODE_TIMEOUT, 5,
            SAYS("rank 0 of 3 was killed by signal 9", "n=2 variant=killed", "all_gather #2"));
    spoiled(CPU "--variant dies", EXIT_CODE_FAILURE, 5,
            SAYS("bench_toy[rank 1]: the dog ate my tensor", "rank 1 of 2 ended with exit code 1"));
    spoiled(CPU "--variant leaves", EXIT_CODE_TIMEOUT, 5, SAYS("rank 1 of 2 ended with exit code 0 before the others"));
    spoiled(CPU "--variant fails", EXIT_CODE_FAILURE, 5, SAYS("rank 1 of 2: all_reduce broke"));
    spoiled(CPU "--variant astray", EXIT_CODE_FAILURE, 5,
            SAYS("out of step", "rank 1 is at 'somewhere else'", "rank 0 at 'n'"));
}

TEST_IN_RANKS_FOLDER(a_stuck_rank_ends_the_job_at_the_timeout)
{
    spoiled(CPU "--variant stopped --timeout 1", EXIT_CODE_TIMEOUT, 5,
            SAYS("--timeout 1 s", "rank 1 of 2 does not run", "n=2 variant=stopped", "all_gather #2 of 1234 bf16",
                 "rank 0 waits for the others"));
    spoiled(CPU "--variant stopped --victim 0 --timeout 1", EXIT_CODE_TIMEOUT, 5, SAYS("rank 0 of 2 does not run"));
    spoiled(CPU "--ranks 3 --variant stuck --victim 2 --timeout 1", EXIT_CODE_TIMEOUT, 5,
            SAYS("rank 2 of 3 makes no progress, and rank 0 waits for it on toy", "rank 0 is not done",
                 "all_reduce #3 of 77 fp32 on toy, under way"));
}

TEST_IN_RANKS_FOLDER(waiting_for_a_busy_rank_is_no_standstill)
{
    assert_int_equal(run(CPU "--variant busy --n 2 --timeout 0.7"), EXIT_CODE_OK);
}

TEST_IN_RANKS_FOLDER(signals_end_the_job)
{
    const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        unlink("rows.csv");
        unlink("ran.txt");
        unlink("pids.txt");
        pid_t pid = ranks_start(NULL, "bench_toy", "", CPU "--variant stuck");
        ranks_wait_lines("ran.txt", 4);
        kill(pid, signals[i]);
        assert_int_equal(ranks_wait(pid), 128 + signals[i]);
        assert_int_equal(ranks_lines("rows.csv"), 1 + 1);
        assert_non_null(strstr(ranks_text("err.txt"), i ? "stopped by SIGTERM" : "stopped by SIGINT"));
        assert_non_null(strstr(ranks_text("err.txt"), "rows so far are in rows.csv"));
        ranks_all_gone("pids.txt");
    }
}

/* As `nohup` and the background jobs of a shell start it; the job lives on, and so do its ranks. */
TEST_IN_RANKS_FOLDER(ignored_signals_stay_ignored)
{
    const int signals[] = {SIGHUP, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_IGN);
    pid_t pid = ranks_start(NULL, "bench_toy", "", CPU "--variant busy");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    ranks_wait_lines("ran.txt", 4);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        kill(pid, signals[i]);
        for (const char *line = ranks_text("pids.txt"); *line; line = strchr(line, '\n') + 1)
            kill(atoi(line), signals[i]);
    }
    assert_int_equal(ranks_wait(pid), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
}

TEST_IN_RANKS_FOLDER(ranks_die_with_the_launcher)
{
    pid_t pid = ranks_start(NULL, "bench_toy", "", CPU "--ranks 3 --variant stuck");
    ranks_wait_lines("ran.txt", 6);
    kill(pid, SIGKILL);
    assert_int_equal(ranks_wait(pid), -SIGKILL);
    ranks_all_gone("pids.txt");
    assert_int_equal(ranks_lines("rows.csv"), 1 + 1);
}

TEST_IN_RANKS_FOLDER(bad_requests_are_usage_errors)
{
    const char *const wrong[] = {"--device cpu --ranks 0",
                                 "--device cpu --timer graph",
                                 "--device cpu --no-such",
                                 "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 --device cpu --ranks 3",
                                 "RANK=2 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 --device cpu",
                                 "RANK=x WORLD_SIZE=2 --device cpu",
                                 "RANK=0 WORLD_SIZE=2 --device cpu"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(run(wrong[i]), EXIT_CODE_USAGE);
        assert_int_equal(ranks_lines("err.txt"), 1);
    }
    assert_non_null(strstr(ranks_text("err.txt"), "MASTER_ADDR"));
    assert_int_equal(access("pids.txt", F_OK), -1);
}

/* ---- started by somebody else ---- */

/* A port that was free a moment ago, below those that systems give to connections. */
static int some_port(void)
{
    static int next;
    return 14000 + (int)(getpid() % 500) * 10 + next++ % 10;
}

/* Starts a rank by hand; its output goes to out<rank>.txt and err<rank>.txt. `settings` go into its environment. */
static pid_t start_rank_with(const char *settings, const char *program, int rank, int size, int port,
                             const char *arguments)
{
    char all[1024], tag[16];
    snprintf(all, sizeof all, "RANK=%d WORLD_SIZE=%d STEPBENCH_PORT=%d %s " CPU "%s", rank, size, port, settings,
             arguments);
    snprintf(tag, sizeof tag, "%d", rank);
    return ranks_start(program, "bench_toy", tag, all);
}

static pid_t start_rank(const char *program, int rank, int size, int port, const char *arguments)
{
    return start_rank_with("MASTER_ADDR=127.0.0.1", program, rank, size, port, arguments);
}

TEST_IN_RANKS_FOLDER(ranks_by_hand)
{
    const int port = some_port();
    pid_t pids[3];
    for (int r = 2; r >= 0; r--)
        pids[r] = start_rank(NULL, r, 3, port, "--ranks 3 --variant right");
    for (int r = 0; r < 3; r++)
        assert_int_equal(ranks_wait(pids[r]), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
    for (int r = 1; r < 3; r++)
        assert_int_equal(ranks_lines(r == 1 ? "out1.txt" : "out2.txt"), 0);
}

TEST_IN_RANKS_FOLDER(clocks_of_hosts_are_found)
{
    const int port = some_port();
    pid_t pids[3];
    for (int r = 2; r >= 0; r--)
        pids[r] = start_rank(NULL, r, 3, port, "--ranks 3 --variant clocks --n 1");
    for (int r = 0; r < 3; r++)
        if (ranks_wait(pids[r]) != EXIT_CODE_OK)
            fail_msg("%s", ranks_text("err0.txt"));
}

/* Two ranks by hand that can't work together: exit codes of both, and what rank 0 (or 1) says. */
static void unequal(int size0, const char *program1, int rank1, int size1, const char *arguments1, int code,
                    const char *said)
{
    const int port = some_port();
    pid_t a = start_rank(NULL, 0, size0, port, "--variant right --timeout 5");
    pid_t b = start_rank(program1, rank1, size1, port, arguments1);
    int code_b = ranks_wait(b), code_a = ranks_wait(a);
    const char *err = ranks_text("err0.txt");
    text_has(err, said);
    assert_int_equal(code_a, code);
    assert_int_equal(code_b, code);
}

/* `lib` in this folder leads to the library of this build, whose own path may have what the loader or a shell takes for a mark. */
static void library_here(void)
{
    char here[4096] = "";
    assert_true(readlink("/proc/self/exe", here, sizeof here - 1) > 0);
    *strrchr(here, '/') = 0;
    OWNED char *library = xasprintf("%s/../../lib", here);
    assert_int_equal(symlink(library, "lib"), 0);
}

/* Ranks look for libraries in this folder, and then where they did before. */
static void libraries_first_in(const char *folder)
{
    const char *before = getenv("LD_LIBRARY_PATH");
    OWNED char *path = xasprintf("%s%s%s", folder, before && *before ? ":" : "", before ? before : "");
    setenv("LD_LIBRARY_PATH", path, 1);
}

TEST_IN_RANKS_FOLDER(unequal_ranks_are_refused)
{
    const char *same = "--variant right --timeout 5";
    unequal(2, NULL, 1, 2, "--variant right --timeout 5 --n 1,2", EXIT_CODE_USAGE,
            "rank 1 has other options than rank 0: 'n=1,2' against 'n=1,2,3'");
    unequal(2, NULL, 1, 3, same, EXIT_CODE_USAGE, "rank 1 of 3, but rank 0 has a job of 2 ranks");
    /* A copy with one byte more is another build. Away from its folder it does not find its library by itself. */
    library_here();
    libraries_first_in("lib");
    assert_int_equal(system("cat /proc/$PPID/exe > other && echo >> other && chmod +x other"), 0);
    unequal(2, "./other", 1, 2, same, EXIT_CODE_USAGE, "rank 1 (host ");
    assert_non_null(strstr(ranks_text("err0.txt"), "runs another build"));
}

/* The same program, but its kernels are from another build: the library with one byte more. */
TEST_IN_RANKS_FOLDER(other_kernels_are_refused)
{
    const int port = some_port();
    library_here();
    assert_int_equal(system("mkdir other && cat lib/libstepbench.so.0 > other/libstepbench.so.0 && "
                            "echo >> other/libstepbench.so.0"),
                     0);
    pid_t a = start_rank(NULL, 0, 2, port, "--variant right --timeout 5");
    libraries_first_in("other");
    pid_t b = start_rank(NULL, 1, 2, port, "--variant right --timeout 5");
    assert_int_equal(ranks_wait(b), EXIT_CODE_USAGE);
    assert_int_equal(ranks_wait(a), EXIT_CODE_USAGE);
    assert_non_null(strstr(ranks_text("err0.txt"), "runs another build"));
}

TEST_IN_RANKS_FOLDER(a_rank_started_twice_is_refused)
{
    const int port = some_port();
    pid_t a = start_rank(NULL, 0, 3, port, "--ranks 3 --variant right --timeout 5");
    pid_t b = start_rank(NULL, 1, 3, port, "--ranks 3 --variant right --timeout 5");
    pid_t c = start_rank(NULL, 1, 3, port, "--ranks 3 --variant right --timeout 5");
    assert_int_equal(ranks_wait(a), EXIT_CODE_USAGE);
    assert_int_equal(ranks_wait(b), EXIT_CODE_USAGE);
    assert_int_equal(ranks_wait(c), EXIT_CODE_USAGE);
    assert_non_null(strstr(ranks_text("err0.txt"), "rank 1 was started twice"));
}

TEST_IN_RANKS_FOLDER(missing_ranks_are_named)
{
    const int port = some_port();
    pid_t a = start_rank(NULL, 0, 4, port, "--ranks 4 --variant right --timeout 1");
    pid_t b = start_rank(NULL, 2, 4, port, "--ranks 4 --variant right --timeout 1");
    assert_int_equal(ranks_wait(a), EXIT_CODE_TIMEOUT);
    assert_int_equal(ranks_wait(b), EXIT_CODE_TIMEOUT);
    assert_non_null(strstr(ranks_text("err0.txt"), "ranks 1, 3 of 4 did not join within --timeout 1 s"));
    b = start_rank(NULL, 1, 2, some_port(), "--variant right --timeout 0.5");
    assert_int_equal(ranks_wait(b), EXIT_CODE_TIMEOUT);
    assert_non_null(strstr(ranks_text("err1.txt"), "rank 1 of 2 can't reach rank 0 at 127.0.0.1 port"));
}

TEST_IN_RANKS_FOLDER(a_port_of_another_job_is_said)
{
    const int port = some_port();
    char own[128];
    snprintf(own, sizeof own, "--variant right --timeout 1");
    pid_t a = start_rank(NULL, 0, 2, port, own);
    setenv("STEPBENCH_RUN_ID", "another", 1);
    pid_t b = start_rank(NULL, 1, 2, port, own);
    unsetenv("STEPBENCH_RUN_ID");
    assert_int_equal(ranks_wait(b), EXIT_CODE_USAGE);
    assert_non_null(strstr(ranks_text("err1.txt"), "another job listens on this port"));
    assert_int_equal(ranks_wait(a), EXIT_CODE_TIMEOUT);
}

TEST_IN_RANKS_FOLDER(dead_and_stuck_ranks_by_hand)
{
    const struct {
        const char *arguments;
        int codes[2], speaker;
        const char *said;
    } fates[] = {
        {"--variant killed", {EXIT_CODE_TIMEOUT, -SIGKILL}, 0, "rank 1 of 2 (host "},
        {"--variant killed --victim 0", {-SIGKILL, EXIT_CODE_TIMEOUT}, 1, "rank 1 of 2 lost its connection to rank 0"},
        {"--variant stuck --timeout 1", {EXIT_CODE_TIMEOUT, EXIT_CODE_TIMEOUT}, 0, "rank 1 of 2 makes no progress"},
    };
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        const int port = some_port();
        unlink("rows.csv");
        const double start = ranks_seconds();
        pid_t a = start_rank(NULL, 0, 2, port, fates[i].arguments),
              b = start_rank(NULL, 1, 2, port, fates[i].arguments);
        assert_int_equal(ranks_wait(a), fates[i].codes[0]);
        assert_int_equal(ranks_wait(b), fates[i].codes[1]);
        assert_true(ranks_seconds() - start < 5);
        const char *err = ranks_text(fates[i].speaker ? "err1.txt" : "err0.txt");
        if (!strstr(err, fates[i].said) || !strstr(err, "n=2") || !strstr(err, "all_gather #2"))
            fail_msg("'%s' is not in: %s", fates[i].said, err);
        assert_int_equal(ranks_lines("rows.csv"), 1 + 1);
    }
}

/* ---- strangers, secrets, and a rank 0 that says nothing ---- */

#define SECRET "STEPBENCH_SECRET=0123456789abcdef"
#define WRONG_SECRET "STEPBENCH_SECRET=0123456789abcdeg"

/* An address of this host that is not of the loopback, in text; "" where there is none. */
static const char *address_of(int family)
{
    static char four[NI_MAXHOST], six[NI_MAXHOST];
    char *address = family == AF_INET ? four : six;
    struct ifaddrs *all = NULL;
    assert_int_equal(getifaddrs(&all), 0);
    for (struct ifaddrs *i = all; i && !*address; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == family && (i->ifa_flags & IFF_UP) &&
            !(i->ifa_flags & IFF_LOOPBACK))
            getnameinfo(i->ifa_addr, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6),
                        address, NI_MAXHOST, NULL, 0, NI_NUMERICHOST);
    freeifaddrs(all);
    return address;
}

/* MASTER_ADDR= such an address; skips the test where there is none. */
static const char *own_address(void)
{
    static char text[128];
    if (!*address_of(AF_INET))
        skip();
    snprintf(text, sizeof text, "MASTER_ADDR=%s", address_of(AF_INET));
    return text;
}

/* Two names: both.test has an address of each family, half.test an IPv6 address that this host does not have, and IPv4. */
int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    const bool both = host && strcmp(host, "both.test") == 0, half = host && strcmp(host, "half.test") == 0;
    if (!both && !half)
        return __real_getaddrinfo(host, service, hints, found);
    const int code = __real_getaddrinfo(both ? address_of(AF_INET6) : "2001:db8::1", service, hints, found);
    return code ? code : __real_getaddrinfo(address_of(AF_INET), service, hints, &(*found)->ai_next);
}

static int connect_to(const char *address, int port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *to;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    assert_int_equal(__real_getaddrinfo(address, service, &hints, &to), 0);
    int fd = socket(to->ai_family, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    const int refused = connect(fd, to->ai_addr, to->ai_addrlen);
    freeaddrinfo(to);
    if (refused == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_soon(const char *address, int port)
{
    int fd = -1;
    for (int i = 0; i < 500 && fd < 0; i++) {
        fd = connect_to(address, port);
        usleep(10 * 1000);
    }
    assert_true(fd >= 0);
    return fd;
}

/* Whether the other end closes the connection within the seconds. */
static bool is_closed(int fd, double seconds)
{
    const double until = ranks_seconds() + seconds;
    char bytes[4096];
    struct timeval wait = {.tv_usec = 100 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    while (ranks_seconds() < until) {
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
            return true;
    }
    return false;
}

TEST_IN_RANKS_FOLDER(several_hosts_need_a_secret)
{
    const char *address = own_address(), *right = "--variant right --timeout 5";
    char settings[256];
    assert_int_equal(ranks_wait(start_rank_with(address, NULL, 0, 2, some_port(), right)), EXIT_CODE_USAGE);
    assert_non_null(strstr(ranks_text("err0.txt"), "set STEPBENCH_SECRET"));
    snprintf(settings, sizeof settings, "%s STEPBENCH_SECRET=short", address);
    assert_int_equal(ranks_wait(start_rank_with(settings, NULL, 0, 2, some_port(), right)), EXIT_CODE_USAGE);
    assert_non_null(strstr(ranks_text("err0.txt"), "STEPBENCH_SECRET has 5 characters"));

    const int port = some_port();
    snprintf(settings, sizeof settings, "%s " SECRET, address);
    pid_t a = start_rank_with(settings, NULL, 0, 2, port, right);
    close(connect_soon(strchr(address, '=') + 1, port));
    assert_int_equal(connect_to("127.0.0.1", port), -1); /* bound to the address that is used */
    pid_t b = start_rank_with(settings, NULL, 1, 2, port, right);
    assert_int_equal(ranks_wait(b), EXIT_CODE_OK);
    assert_int_equal(ranks_wait(a), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
}

static bool has_ipv6(void)
{
    const struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

/* Rank 0 listens at the address it was given, of either family, and nowhere else; so it does at all addresses of a name. */
TEST_IN_RANKS_FOLDER(rank_0_listens_where_it_is_told)
{
    const bool six = has_ipv6();
    const char *four = address_of(AF_INET), *global = six ? address_of(AF_INET6) : "";
    const struct {
        bool here;
        const char *master, *of_rank_1, *there, *not_there;
    } cases[] = {
        {true, "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.1"},
        {true, "localhost", "localhost", "127.0.0.1", *four ? four : NULL},
        {six, "::1", "::1", "::1", "127.0.0.1"},
        {six, "[::1]", "0:0:0:0:0:0:0:1", "::1", "127.0.0.1"},
        {six, "::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1", "::1"},
        {*global, global, global, global, "::1"}, /* with its scope where it is of the link */
        {*four, "0.0.0.0", "127.0.0.1", four, six ? "::1" : NULL},
        {*global, "::", "127.0.0.1", global, NULL},
        {*four && *global, "both.test", "both.test", four, "127.0.0.1"},
        {*four && *global, "both.test", global, global, "::1"},
        {*four, "half.test", "half.test", four, "127.0.0.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int port = some_port();
        char settings[2][512];
        snprintf(settings[0], sizeof settings[0], "MASTER_ADDR=%s " SECRET, cases[i].master);
        snprintf(settings[1], sizeof settings[1], "MASTER_ADDR=%s " SECRET, cases[i].of_rank_1);
        if (!cases[i].here)
            continue;
        pid_t a = start_rank_with(settings[0], NULL, 0, 2, port, "--variant right --timeout 5");
        close(connect_soon(cases[i].there, port));
        if (cases[i].not_there && connect_to(cases[i].not_there, port) >= 0)
            fail_msg("with MASTER_ADDR=%s rank 0 listens at %s, too", cases[i].master, cases[i].not_there);
        pid_t b = start_rank_with(settings[1], NULL, 1, 2, port, "--variant right --timeout 5");
        if (ranks_wait(b) != EXIT_CODE_OK || ranks_wait(a) != EXIT_CODE_OK)
            fail_msg("MASTER_ADDR=%s, rank 1's %s: %s%s", cases[i].master, cases[i].of_rank_1, ranks_text("err0.txt"),
                     ranks_text("err1.txt"));
    }
}

TEST_IN_RANKS_FOLDER(a_wrong_secret_is_turned_away)
{
    const int port = some_port();
    const char *right = "--variant right --timeout 5";
    pid_t a = start_rank_with("MASTER_ADDR=127.0.0.1 " SECRET, NULL, 0, 2, port, right);
    pid_t b = start_rank_with("MASTER_ADDR=127.0.0.1 " WRONG_SECRET, NULL, 1, 2, port, right);
    assert_int_equal(ranks_wait(b), EXIT_CODE_USAGE);
    assert_non_null(strstr(ranks_text("err1.txt"), "STEPBENCH_SECRET is not that of rank 0"));
    b = start_rank_with("MASTER_ADDR=127.0.0.1", NULL, 1, 2, port, right);
    assert_int_equal(ranks_wait(b), EXIT_CODE_USAGE);
    assert_non_null(strstr(ranks_text("err1.txt"), "STEPBENCH_SECRET is set for rank 0 but not for this rank"));
    b = start_rank_with("MASTER_ADDR=127.0.0.1 " SECRET, NULL, 1, 2, port, right); /* the job still waits for it */
    assert_int_equal(ranks_wait(b), EXIT_CODE_OK);
    assert_int_equal(ranks_wait(a), EXIT_CODE_OK);
}

/* "NAME=value ..." goes into the environment, a name without a value out of it. */
static void environment(const char *settings)
{
    OWNED char *copy = xstrdup(settings);
    char *rest = copy;
    for (char *name = strtok_r(rest, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
    }
}

/* The run id of a job as start_rank starts it. */
static uint64_t run_id_by_hand(void)
{
    launch_place p;
    char msg[512];
    environment("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1");
    assert_true(launch_place_find(&p, msg, sizeof msg));
    environment("RANK WORLD_SIZE MASTER_ADDR");
    return p.run_id;
}

/* None of these may end the job, join it, or make it keep what they send. */
TEST_IN_RANKS_FOLDER(strangers_are_shut_out)
{
    enum { SILENT = 300, BYTES = 1 << 20 }; /* more of the silent than there are places */
    const int port = some_port();
    const char *right = "--variant right --timeout 30";
    pid_t a = start_rank_with("MASTER_ADDR=127.0.0.1 " SECRET, NULL, 0, 2, port, right);
    int silent[SILENT];
    for (int i = 0; i < SILENT; i++)
        silent[i] = connect_soon("127.0.0.1", port);

    static char noise[BYTES];
    signal(SIGPIPE, SIG_IGN);
    int loud = connect_soon("127.0.0.1", port);
    (void)!write(loud, noise, BYTES); /* no frame of ours */
    assert_true(is_closed(loud, 2));
    int large = connect_soon("127.0.0.1", port);
    const control_head head = {CONTROL_MAGIC, CONTROL_PROOF, CONTROL_STRANGER_BYTES + 1};
    (void)!write(large, &head, sizeof head);
    assert_true(is_closed(large, 2));
    int rash = connect_soon("127.0.0.1", port);
    const struct {
        control_head head;
        control_hello hello;
    } rank_1 = {{CONTROL_MAGIC, CONTROL_HELLO, sizeof(control_hello)}, /* as that of a rank, but without a proof */
                {.version = CONTROL_VERSION, .rank = 1, .size = 2, .run_id = run_id_by_hand(), .host_name = "x"}};
    (void)!write(rash, &rank_1, sizeof rank_1);
    assert_true(is_closed(rash, 2));
    assert_true(is_closed(silent[SILENT - 1], 8)); /* it has some seconds to say something */

    pid_t b = start_rank_with("MASTER_ADDR=127.0.0.1 " SECRET, NULL, 1, 2, port, right);
    assert_int_equal(ranks_wait(b), EXIT_CODE_OK);
    assert_int_equal(ranks_wait(a), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
    assert_null(strstr(ranks_text("rows.csv"), "0123456789abcdef"));
    assert_null(strstr(ranks_text("out0.txt"), "0123456789abcdef"));
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    close(loud);
    close(large);
    close(rash);
}

static int listen_on_loopback(int port)
{
    const int on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* Connects again and again and says nothing; keeps some connections. */
_Noreturn static void flood(int port)
{
    enum { KEPT = 600 };
    int kept[KEPT];
    memset(kept, -1, sizeof kept);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0;; i = (i + 1) % KEPT) {
        if (kept[i] >= 0)
            close(kept[i]);
        kept[i] = connect_to("127.0.0.1", port);
    }
}

TEST_IN_RANKS_FOLDER(ranks_join_among_strangers)
{
    enum { SILENT = 400 };
    static const char *const settings[] = {"MASTER_ADDR=127.0.0.1", "MASTER_ADDR=127.0.0.1 " SECRET};
    for (int i = 0; i < 4; i++) {
        const bool many = i / 2;
        const int port = some_port();
        pid_t a = start_rank_with(settings[i % 2], NULL, 0, 2, port, "--variant right --timeout 20"), stranger = 0;
        int silent[SILENT];
        silent[0] = connect_soon("127.0.0.1", port);
        for (int k = 1; k < SILENT; k++)
            silent[k] = many ? connect_soon("127.0.0.1", port) : -1;
        if (!many && (stranger = fork()) == 0)
            flood(port);
        usleep(100 * 1000);
        pid_t b = start_rank_with(settings[i % 2], NULL, 1, 2, port, "--variant right --timeout 20");
        if (ranks_wait(b) != EXIT_CODE_OK || ranks_wait(a) != EXIT_CODE_OK)
            fail_msg("%s, %s: %s%s", settings[i % 2], many ? "400 silent ones" : "one that keeps connecting",
                     ranks_text("err0.txt"), ranks_text("err1.txt"));
        if (stranger) {
            kill(stranger, SIGKILL);
            waitpid(stranger, NULL, 0);
        }
        for (int k = 0; k < SILENT; k++)
            close(silent[k]);
    }
}

_Noreturn static void close_all(int listener)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        close(accept(listener, NULL, NULL));
}

/* Whoever has the port closes every connection. The reason must not be a secret, or a version, that nobody saw. */
TEST_IN_RANKS_FOLDER(a_port_that_closes_is_said)
{
    const int port = some_port();
    static const char *const settings[] = {"MASTER_ADDR=127.0.0.1", "MASTER_ADDR=127.0.0.1 " SECRET};
    const int fd = listen_on_loopback(port);
    for (int i = 0; i < 2; i++) {
        pid_t closer = fork();
        if (closer == 0)
            close_all(fd);
        pid_t b = start_rank_with(settings[i], NULL, 1, 2, port, "--variant right --timeout 1");
        assert_int_equal(ranks_wait(b), EXIT_CODE_TIMEOUT);
        kill(closer, SIGKILL);
        waitpid(closer, NULL, 0);
        assert_non_null(
            strstr(ranks_text("err1.txt"), "rank 1 of 2 could not join within --timeout 1 s: each of its "));
        assert_non_null(strstr(ranks_text("err1.txt"), "was closed before rank 0 had heard it"));
    }
    close(fd);
}

TEST_IN_RANKS_FOLDER(a_silent_port_is_given_up_at_the_timeout)
{
    const int port = some_port(), fd = listen_on_loopback(port);
    const double start = ranks_seconds();
    assert_int_equal(ranks_wait(start_rank(NULL, 1, 2, port, "--variant right --timeout 1")), EXIT_CODE_TIMEOUT);
    assert_true(ranks_seconds() - start < 6);
    assert_non_null(strstr(ranks_text("err1.txt"), "rank 1 of 2 heard nothing from rank 0 at 127.0.0.1 port"));
    close(fd);
}

TEST_IN_RANKS_FOLDER(a_stopped_rank_0_is_named_by_the_others)
{
    const int port = some_port();
    const double start = ranks_seconds();
    pid_t a = start_rank(NULL, 0, 2, port, "--variant stopped --victim 0 --timeout 1");
    pid_t b = start_rank(NULL, 1, 2, port, "--variant stopped --victim 0 --timeout 1");
    assert_int_equal(ranks_wait(b), EXIT_CODE_TIMEOUT);
    assert_true(ranks_seconds() - start < 8);
    assert_non_null(strstr(ranks_text("err1.txt"), "rank 1 of 2 heard nothing from rank 0 for --timeout 1 s"));
    kill(a, SIGKILL);
    assert_int_equal(ranks_wait(a), -SIGKILL);
}

TEST_IN_RANKS_FOLDER(under_mpirun)
{
    if (system("mpirun --version >/dev/null 2>&1") != 0) {
        print_message("mpirun is not here\n");
        skip();
    }
    char self[512] = "", arguments[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    assert_int_equal(symlink(self, "bench_toy"), 0);
    snprintf(arguments, sizeof arguments,
             "--allow-run-as-root --oversubscribe -np 3 ./bench_toy " CPU "--variant right --ranks 3");
    assert_int_equal(ranks_wait(ranks_start("mpirun", "mpirun", "", arguments)), EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
    assert_int_equal(ranks_lines("ran.txt"), 3 * 3);
}

/* ---- the pieces ---- */

TEST(place_is_found_in_order)
{
    launch_place p;
    char msg[512];
    static const char all[] =
        "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT OMPI_COMM_WORLD_RANK "
        "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE "
        "MV2_COMM_WORLD_RANK MV2_COMM_WORLD_SIZE MV2_COMM_WORLD_LOCAL_SIZE SLURM_PROCID SLURM_STEP_ID "
        "SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES STEPBENCH_SECRET";
    environment(all);
    assert_true(launch_place_find(&p, msg, sizeof msg));
    assert_null(p.by);

    setenv("SLURM_PROCID", "0", 1); /* the shell of an allocation */
    assert_true(launch_place_find(&p, msg, sizeof msg));
    assert_null(p.by);
    environment("SLURM_STEP_ID=7 SLURM_STEP_NUM_TASKS=1");
    assert_true(launch_place_find(&p, msg, sizeof msg));
    assert_null(p.by);
    unsetenv("SLURM_STEP_ID");

    static const char *const alone[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        setenv(alone[i][0], "0", 1); /* without a size it says nothing */
        assert_true(launch_place_find(&p, msg, sizeof msg) && !p.by);
        setenv(alone[i][1], "1", 1);
        setenv("LOCAL_WORLD_SIZE", "1", 1);
        assert_true(launch_place_find(&p, msg, sizeof msg));
        assert_null(p.by);
        assert_int_equal(p.local_size, -1);
        setenv(alone[i][0], "1", 1);
        assert_false(launch_place_find(&p, msg, sizeof msg));
        assert_non_null(strstr(msg, "the environment says rank 1 of 1"));
        unsetenv(alone[i][0]); /* nor does a size without a rank */
        assert_true(launch_place_find(&p, msg, sizeof msg) && !p.by);
        unsetenv(alone[i][1]);
        unsetenv("LOCAL_WORLD_SIZE");
    }
    environment("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_SIZE=2");
    assert_true(launch_place_find(&p, msg, sizeof msg) && p.rank == 1 && p.local);
    unsetenv("MV2_COMM_WORLD_RANK");

    environment("SLURM_STEP_ID=7 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 "
                "SLURM_STEP_NODELIST=gpu[07-09,12],login1 SLURM_STEP_NUM_NODES=2");
    assert_false(launch_place_find(&p, msg, sizeof msg));
    assert_non_null(strstr(msg, "rank 5 of 8 is to meet the others at gpu07, which takes a secret"));
    setenv("STEPBENCH_SECRET", "0123456789abcdef", 1);
    assert_true(launch_place_find(&p, msg, sizeof msg));
    assert_false(p.local);
    assert_string_equal(p.by, "srun");
    assert_int_equal(p.rank, 5);
    assert_int_equal(p.local_rank, 1);
    assert_string_equal(p.master, "gpu07");
    assert_true(p.port >= 20000 && p.port < 30000);

    environment("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2");
    assert_false(launch_place_find(&p, msg, sizeof msg));
    assert_non_null(strstr(msg, "mpirun -x MASTER_ADDR"));
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
    assert_true(launch_place_find(&p, msg, sizeof msg));
    assert_string_equal(p.by, "mpirun");
    assert_string_equal(p.master, "127.0.0.1");
    setenv("MASTER_ADDR", "10.0.0.9", 1); /* not needed on one host */
    assert_true(launch_place_find(&p, msg, sizeof msg) && p.local);
    assert_string_equal(p.master, "127.0.0.1");

    environment("RANK=2 WORLD_SIZE=3 MASTER_ADDR=10.0.0.9 MASTER_PORT=29500");
    assert_true(launch_place_find(&p, msg, sizeof msg));
    assert_string_equal(p.by, "torchrun");
    assert_string_equal(p.master, "10.0.0.9");
    assert_int_equal(p.port, 29501); /* 29500 is torchrun's */
    assert_int_equal(p.local_rank, -1);
    environment(all);

    environment("SLURM_PROCID=0 SLURM_STEP_ID=7 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NODELIST=gpu[07-09");
    assert_false(launch_place_find(&p, msg, sizeof msg));
    assert_non_null(strstr(msg, "SLURM_STEP_NODELIST=gpu[07-09, which is no list of hosts; set MASTER_ADDR"));
    environment(all);
}

TEST(the_first_host_of_a_list_is_found)
{
    static const char *const lists[][2] = {{"node1,node2", "node1"},
                                           {"node1", "node1"},
                                           {"n-[3,5-9]", "n-3"},
                                           {"x[1-2]-ib", "x1-ib"},
                                           {"x[1-2]-ib,y[3-4]", "x1-ib"},
                                           {"x[7],y1", "x7"},
                                           {"a[1-2]b[3-4]", "a1b3"},
                                           {"a[1-2]b[3-4].site.org,c", "a1b3.site.org"},
                                           {"[10-12]", "10"},
                                           {"n[001-010]", "n001"},
                                           {"n[009,001-003],m[1-2]", "n009"}};
    static const char *const none[] = {"",       ",a",     "x[1-2", "x[1-2,y", "x[",       "x[]",  "x]1",
                                       "x[1]]2", "x[[1]]", "x[-2]", "x[a-b]",  "x[1-2;3]", "x[1 ]"};
    char host[16];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_true(launch_first_host(lists[i][0], host, sizeof host));
        assert_string_equal(host, lists[i][1]);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (launch_first_host(none[i], host, sizeof host))
            fail_msg("%s is taken for %s", none[i], host);
    assert_true(launch_first_host("fifteen-letters", host, sizeof host));
    assert_false(launch_first_host("sixteen-letters-", host, sizeof host));
    assert_false(launch_first_host("fifteen-letter[10-20]", host, sizeof host));
}

static rank_view at(unsigned enqueued, double beat_age_s, double move_age_s)
{
    rank_view v = {.s = {.enqueued = enqueued}, .beat_age_s = beat_age_s, .move_age_s = move_age_s};
    v.s.on[3] = (communicator_status){.tag = 7, .size = 3, .enqueued = enqueued, .met = enqueued, .name = "c"};
    snprintf(v.s.last, sizeof v.s.last, "all_reduce #%u of 8 fp32 on c", enqueued);
    return v;
}

/* A pipeline of three stages, as ranks that live see it at a standstill: stage 1 is late with what it sends to stage 2,
 * which has little to do, and has enqueued more than both others. */
TEST(the_right_stage_is_blamed)
{
    char text[2048];
    rank_view v[3] = {at(0, 0, 3), at(0, 0, 3), at(0, 0, 3)};
    const uint16_t with[3][3] = {{0, 5, 0}, {5, 0, 3}, {0, 4, 0}};
    for (int r = 0; r < 3; r++) {
        communicator_status *c = &v[r].s.on[3];
        v[r].s.enqueued = (uint64_t[]){5, 8, 4}[r];
        *c = (communicator_status){.tag = 7, .place = (int16_t)r, .size = 3, .enqueued = 4, .done = 3, .name = "pp"};
        memcpy(c->with, with[r], sizeof with[r]);
    }
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 1 of 3 makes no progress, and rank 2 waits for it on pp, while"));
    v[0].s.on[3].with[1] = 0xffff; /* counters wrap */
    v[1].s.on[3].with[0] = 1;
    v[2].s.on[3].with[1] = 3;
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 0 of 3 makes no progress, and rank 1 waits for it on pp, while"));
    /* Stage 0 waits for 1, and 1 for 2, though it has stopped first and has nothing under way that is known. */
    v[0].s.on[3].with[1] = 5;
    v[1].s.on[3].with[0] = 4;
    v[2].s.on[3].with[1] = 2;
    v[1].s.on[3].done = v[1].s.on[3].enqueued;
    v[1].move_age_s = 4;
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 2 of 3 makes no progress, and rank 1 waits for it on pp, while"));
    v[1] = v[2];
    v[1].s.on[3].place = 1;
    v[1].s.on[3].with[0] = 1;
    v[1].s.on[3].with[2] = 2;
    /* All wait for one another: it is the one that has nothing under way, then the one that stopped first. */
    v[0].s.on[3].with[1] = 1;
    v[0].s.on[5] = (communicator_status){.tag = 9, .size = 2, .met = 1, .name = "a"};
    v[1].s.on[0] = (communicator_status){.tag = 9, .size = 2, .place = 1, .met = 2, .name = "a"};
    v[0].s.on[6] = (communicator_status){.tag = 11, .size = 2, .met = 2, .name = "b"};
    v[1].s.on[1] = (communicator_status){.tag = 11, .size = 2, .place = 1, .met = 1, .name = "b"};
    v[0].move_age_s = 3.5;
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 0 of 3 makes no progress, and rank 1 waits for it on a, while"));
    v[1].s.on[3].done = v[1].s.on[3].enqueued;
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 1 of 3 makes no progress, and rank 0 waits for it on b, while"));
}

TEST(the_right_rank_is_blamed)
{
    char text[2048];
    rank_view v[3] = {at(5, 0, 1), at(5, 0, 1), at(5, 0, 1)};
    assert_false(coordinator_stuck(v, 3, 2, text, sizeof text));
    v[1] = at(4, 0, 3); /* did not enqueue what the others wait in */
    v[0].move_age_s = 2.9;
    assert_false(coordinator_stuck(v, 3, 2, text, sizeof text)); /* rank 2 makes progress */
    v[2].move_age_s = 2.9;
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 1 of 3 makes no progress, and rank 0 waits for it on c, while"));
    v[2].beat_age_s = 2.5; /* does not even run */
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 2 of 3 does not run"));
    v[0] = v[1] = v[2] = at(5, 0, 3);
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "nor do the others"));
    snprintf(v[2].s.last, sizeof v[2].s.last, "all_reduce #5 of 9 fp32 on c");
    v[2].s.on[3].what = 9;
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "disagree about a collective"));
    assert_non_null(strstr(text, "of 9 fp32"));
    for (int r = 0; r < 3; r++) /* whoever waits for the others is not stuck */
        v[r].s.waiting = r != 1;
    assert_true(coordinator_stuck(v, 3, 2, text, sizeof text));
    assert_non_null(strstr(text, "rank 1 of 3"));
    v[1].left = true;
    assert_false(coordinator_stuck(v, 3, 2, text, sizeof text));
}

PROGRAM("bench_toy", toy_main)
