/* SPDX-License-Identifier: MIT */
/* A run of bench_run that is killed goes on bit for bit: state, losses and log are those of the run that nobody killed. With
 * STEPBENCH_RESUMES=N only as many runs, of all strategies, are killed four times each at random times, the first of them number
 * STEPBENCH_RESUME_FROM; with STEPBENCH_DEVICE=cuda on two GPUs (tests/run/kills.sh has several at once). */
#include "tests/support/test.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <fcntl.h>

#include "common/core/rng.h"
#include "tests/support/bench_run.h"

enum { EVERY = 7, WAIT_MS = 20000, KILLS = 4 };
static int steps = 40;
#define SYMBOLS "--symbols 16 "
#define RUN                                                                                                            \
    "--size tiny --seq 16 --layers 1 --d-model 32 --heads 2 --vocab 32 --iters 0 --save-every 7 "                      \
    "--log-every 2 --keep 100 --deterministic 1 "
#define QUICK "--precision fp32 --variant save --check 0 --folder ck --resume-run ck "
#define CHECKED "--precision fp32 --variant save --check 1 --folder ck --resume-run ck "

static char *below(const char *folder, const char *name)
{
    char *path = folder_path(folder, name);
    mkdir(path, 0777);
    return path;
}

static csv *go(const char *folder, const char *options, int code)
{
    OWNED char *all = xasprintf(RUN "--steps %d %s%s", steps, strstr(options, "--symbols") ? "" : SYMBOLS, options);
    csv *c = bench_rows(folder, "bench_run", "", all, code);
    return c;
}

static bool there(const char *folder, int step)
{
    OWNED char *path = xasprintf("%s/ck/step-%08d", folder, step);
    const bool is = access(path, F_OK) == 0;
    return is;
}

static void pause_ms(double ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(ms * 1e6)}, NULL);
}

/* Rank 0 has the folder until it is gone. */
static void await_end(const char *folder)
{
    OWNED char *path = xasprintf("%s/ck/.stepbench-checkpoints", folder);
    const int fd = open(path, O_RDWR);
    for (int ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && ms < WAIT_MS; ms++)
        pause_ms(1);
    if (fd >= 0)
        close(fd);
}

static bool over(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* Starts it, slowed down, and sends its launcher a signal so long after a save. Returns how it ended. */
static int start_and_signal(const char *folder, const char *options, int step, double ms, int number)
{
    OWNED char *programs = programs_folder();
    OWNED char *command = xasprintf("cd '%s' && exec '%s/bench_run' --device %s --machine test-x1 --quiet " RUN SYMBOLS
                                    "--steps %d --data-delay 10 %s >out.txt 2>&1",
                                    folder, programs, bench_device(), steps, options);
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; !there(folder, step) && i < WAIT_MS && !over(pid); i++)
        pause_ms(1);
    pause_ms(ms);
    kill(pid, number);
    waitpid(pid, &status, 0);
    await_end(folder);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- what must be the same ---- */

static void same_file(const char *a, const char *b, const char *name)
{
    OWNED char *command = xasprintf("cmp '%s/%s' '%s/%s'", a, name, b, name);
    if (system(command) != 0)
        fail_msg("%s is another file in %s than in %s", name, b, a);
}

static void same_state(const char *a, const char *b)
{
    char name[80];
    for (int step = EVERY; step < steps + EVERY; step += EVERY)
        for (int f = 1; f <= 3; f++)
            for (int optim = 0; optim < 2; optim++) {
                snprintf(name, sizeof name, "ck/step-%08d/%s-%05d-of-00003.safetensors", step < steps ? step : steps,
                         optim ? "optim" : "model", f);
                same_file(a, b, name);
            }
    same_file(a, b, "ck/losses.bin");
}

/* But for the columns that say how fast it was. `slack`: of losses and norms, relative. */
static void same_log(const char *a, const char *b, const char *name_a, const char *name_b, double slack)
{
    static const char *const columns[] = {"step", "tokens", "loss", "loss_max", "entropy", "norm", "rate", "outliers"};
    OWNED char *path_a = xasprintf("%s/results/test-x1/run/%s.csv", a, name_a);
    OWNED char *path_b = xasprintf("%s/results/test-x1/run/%s.csv", b, name_b);
    OWNED_CSV csv *want = csv_read(path_a), *got = csv_read(path_b);
    assert_non_null(want);
    assert_non_null(got);
    assert_int_equal(want->rows, steps / 2);
    assert_int_equal(got->rows, want->rows);
    for (size_t i = 0; i < want->rows; i++)
        for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
            const double x = csv_real(want, i, columns[k]), y = csv_real(got, i, columns[k]);
            if (slack > 0 && strcmp(columns[k], "loss_max") == 0)
                continue; /* of a rank */
            if (!(fabs(x - y) <= slack * fabs(x)))
                fail_msg("record %zu: %s %.9g, without the kill %.9g", i, columns[k], y, x);
        }
}

static size_t lines_of(const char *folder, const char *name)
{
    OWNED char *path = xasprintf("%s/results/test-x1/run/%s", folder, name), *text = file_text(path);
    size_t n = 0;
    for (const char *c = text; *c; c++)
        n += *c == '\n';
    return n;
}

/* ---- tests ---- */

#define TWO_RANKS "--ranks 2 --batch 2 --strategy zero1"
#define TWO QUICK TWO_RANKS
#define LOG "save-zero1-2-tiny-16-fp32"

/* The folder of the run that nobody killed, which the first test makes. */
static char *whole_of(void **state)
{
    bench_needs_gloo(TWO_RANKS);
    return below(*state, "whole");
}

static void a_killed_run_goes_on_bit_for_bit(void **state)
{
    OWNED char *whole = whole_of(state), *killed = below(*state, "killed");
    csv_free(go(whole, TWO, EXIT_CODE_OK));
    assert_int_equal(start_and_signal(killed, TWO, 7, 5, SIGKILL), 128 + SIGKILL);
    assert_int_equal(start_and_signal(killed, TWO, 14, 55, SIGKILL), 128 + SIGKILL);
    assert_int_equal(start_and_signal(killed, TWO, 28, 0, SIGKILL), 128 + SIGKILL);
    OWNED_CSV csv *c = go(killed, CHECKED TWO_RANKS, EXIT_CODE_OK); /* the event file is whole, too */
    assert_true(csv_real(c, 0, "first_step") >= 28);
    same_state(whole, killed);
    same_log(whole, killed, LOG, LOG, 0);
    assert_int_equal(lines_of(killed, LOG ".jsonl"), steps / 2);
    csv_free(go(killed, TWO, EXIT_CODE_UNSUPPORTED)); /* there is nothing left to do */
}

static void flip(const char *folder, const char *name)
{
    OWNED char *path = xasprintf("%s/ck/%s", folder, name);
    const int fd = open(path, O_RDWR);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 5000), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 5000), 1);
    close(fd);
}

/* A bit that decayed is known when all is read: the run goes on from the checkpoint before, and ends as it would have. */
static void a_damaged_checkpoint_is_passed_over(void **state)
{
    OWNED char *whole = whole_of(state), *damaged = below(*state, "damaged");
    OWNED char *copy =
        xasprintf("cd '%s' && cp -r '%s/ck' . && rm -r ck/step-*07 ck/step-*35 ck/step-*40", damaged, whole);
    assert_int_equal(system(copy), 0);
    flip(damaged, "step-00000028/optim-00002-of-00003.safetensors");
    flip(damaged, "step-00000021/model-00001-of-00003.safetensors");
    OWNED_CSV csv *c = go(damaged, CHECKED TWO_RANKS, EXIT_CODE_OK);
    assert_true(csv_real(c, 0, "first_step") == 14);
    OWNED char *path = folder_path(damaged, "out.txt"), *text = file_text(path);
    if (!strstr(text, "00028/optim-00002-of-00003.safetensors is damaged") || !strstr(text, "is taken"))
        fail_msg("%s", text);
    same_file(whole, damaged, "ck/losses.bin");
    same_file(whole, damaged, "ck/step-00000040/optim-00002-of-00003.safetensors");
    OWNED char *only = xasprintf("cd '%s/ck' && rm -r step-*14 step-*28 step-*35 step-*40", damaged);
    assert_int_equal(system(only), 0);
    flip(damaged, "step-00000021/model-00001-of-00003.safetensors");
    csv_free(go(damaged, TWO, EXIT_CODE_FAILURE)); /* no other is there */
}

static void expect_words(const char *folder, const char *options, int code, const char *words);

/* From any checkpoint, into a folder of its own; the one that is named, or none. */
static void a_run_goes_on_from_a_step(void **state)
{
#define FROM(folder, step)                                                                                             \
    "--precision fp32 --variant save --resume-run old --folder " folder " --from " step " " TWO_RANKS
    OWNED char *whole = whole_of(state), *branch = below(*state, "branch");
    OWNED char *copy = xasprintf("cp -r '%s/ck' '%s/old'", whole, branch);
    assert_int_equal(system(copy), 0);
    expect_words(branch, FROM("old", "14"), EXIT_CODE_USAGE, "old has later checkpoints, the last of step 40");
    expect_words(branch, FROM("ck", "15"), EXIT_CODE_USAGE, "old/step-00000015/manifest.json: No such file");
    OWNED_CSV csv *c = go(branch, FROM("ck", "14"), EXIT_CODE_OK);
    assert_true(csv_real(c, 0, "first_step") == 14);
    assert_true(!there(branch, 14) && there(branch, 21));
    same_file(whole, branch, "ck/losses.bin");
    same_file(whole, branch, "ck/step-00000040/optim-00002-of-00003.safetensors");
    OWNED char *fifo = xasprintf("rm '%s/old/losses.bin' && mkfifo '%s/old/losses.bin'", branch, branch);
    assert_int_equal(system(fifo), 0);
    expect_words(branch, FROM("more", "35"), EXIT_CODE_OK, "lacks losses of the 35 steps before");
    flip(branch, "../old/step-00000021/optim-00002-of-00003.safetensors");
    expect_words(branch, FROM("new", "21"), EXIT_CODE_FAILURE, "00021/optim-00002-of-00003.safetensors is damaged");
    expect_words(branch, "--variant save --precision fp32 --from 14", EXIT_CODE_USAGE, "give --resume-run as well");
}

/* Nothing is lost, and nothing is done twice. */
static void a_signal_saves_first(void **state)
{
    OWNED char *whole = whole_of(state), *asked = below(*state, "asked");
    assert_int_equal(start_and_signal(asked, TWO, 14, 0, SIGTERM), 128 + SIGTERM);
    char *path = folder_path(asked, "out.txt"), *text = file_text(path), *last = strstr(text, "after step ");
    if (!last || !strstr(text, "--resume-run ck goes on"))
        fail_msg("%s", text);
    const int step = atoi(last + strlen("after step "));
    assert_true(step >= 14 && step < steps && there(asked, step));
    free(text);
    free(path);
    OWNED_CSV csv *c = go(asked, TWO, EXIT_CODE_OK);
    assert_true(csv_real(c, 0, "first_step") == step);
    same_state(whole, asked);
    same_log(whole, asked, LOG, LOG, 0);
}

/* Sums have another order there: the same losses but for rounding. */
static void a_run_goes_on_on_other_ranks(void **state)
{
    OWNED char *whole = whole_of(state), *moved = below(*state, "moved");
    assert_int_equal(start_and_signal(moved, TWO, 14, 0, SIGKILL), 128 + SIGKILL);
    csv_free(go(moved, QUICK "--ranks 1 --batch 4", EXIT_CODE_OK));
    same_log(whole, moved, LOG, "save-ddp-1-tiny-16-fp32", 1e-5);
}

static void expect_words(const char *folder, const char *options, int code, const char *words)
{
    OWNED_CSV csv *c = go(folder, options, code);
    OWNED char *path = folder_path(folder, "out.txt"), *text = file_text(path);
    const char *reason = code == EXIT_CODE_VERIFY ? csv_cell(c, c->rows - 1, "reason") : text;
    if (!strstr(reason, words))
        fail_msg("%s: '%s' lacks '%s'", options, reason, words);
}

static void what_is_lost_or_wrong_has_a_name(void **state)
{
    char *folder = below(*state, "wrong");
#define ONE "--ranks 1 --batch 2 "
    assert_int_equal(start_and_signal(folder, QUICK ONE, 14, 0, SIGKILL), 128 + SIGKILL);
    expect_words(folder, CHECKED ONE "--plant-error lost-moments", EXIT_CODE_VERIFY, ".exp_avg");
    expect_words(folder, CHECKED ONE "--plant-error lost-schedule", EXIT_CODE_VERIFY, "its place in the schedule");
    expect_words(folder, QUICK "--ranks 1 --batch 4", EXIT_CODE_USAGE, "this run takes 4 a step");
    expect_words(folder, QUICK ONE "--lr 1e-2", EXIT_CODE_USAGE, "its schedule is cosine, --lr 0.003");
    expect_words(folder, QUICK ONE "--seed 7", EXIT_CODE_USAGE, "its data are 'made'");
    expect_words(folder, QUICK ONE "--symbols 8", EXIT_CODE_USAGE, "its data had other tokens");
    expect_words(folder, QUICK ONE "--clip 0", EXIT_CODE_USAGE,
                 "its updates are of fp32, --clip 1; here fp32, --clip 0");
    expect_words(folder, "--precision tf32 --variant save --check 0 --folder ck --resume-run ck " ONE, EXIT_CODE_USAGE,
                 "its updates are of fp32");
    expect_words(folder, QUICK ONE "--d-ff 128", EXIT_CODE_USAGE, "another model");
    expect_words(folder, "--variant save --folder ck --precision fp32 " ONE, EXIT_CODE_USAGE, "--resume-run ck goes");
    expect_words(folder, "--variant save --resume-run nowhere --precision fp32 " ONE, EXIT_CODE_USAGE, "nowhere");
    expect_words(folder, "--variant log --folder ck --precision fp32 " ONE, EXIT_CODE_USAGE,
                 "are for the variant save");
    expect_words(folder, CHECKED ONE "--plant-error lost-position", EXIT_CODE_VERIFY,
                 "in step 40 rank 0 had the tokens of rank 0 in step 41");
    free(folder);
}

/* A limit of file sizes stands for a full disk. */
static void three_failed_saves_end_a_run(void **state)
{
    OWNED char *folder = below(*state, "full"), *path = folder_path(folder, "out.txt");
    struct rlimit all, little = {.rlim_cur = 20000};
    getrlimit(RLIMIT_FSIZE, &all);
    little.rlim_max = all.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    csv_free(go(folder, QUICK ONE, EXIT_CODE_FAILURE));
    setrlimit(RLIMIT_FSIZE, &all);
    OWNED char *text = file_text(path);
    if (!strstr(text, "step 21 could not be saved: rank 0 can't write") ||
        !strstr(text, "3 saves in a row have failed") || strstr(text, "step 28"))
        fail_msg("%s", text);
    assert_false(there(folder, 7));
}

static double last_loss(const char *folder, const char *policy)
{
    OWNED char *path = xasprintf("%s/results/test-x1/run/save-ddp-1-tiny-16-%s.csv", folder, policy);
    OWNED_CSV csv *c = csv_read(path);
    assert_non_null(c);
    assert_int_equal(c->rows, steps / 2);
    return csv_real(c, c->rows - 1, "loss");
}

/* bf16 and float8 have the same state between steps: what one saved, the other continues. The same policy does so bit for bit. */
static void a_run_goes_on_in_float8_and_back(void **state)
{
#define IN(policy) "--variant save --folder ck --resume-run ck --ranks 1 --batch 2 --precision " policy
    static const char *const of[] = {"bf16", "fp8-block", "fp8-delayed"};
    static const struct {
        int from, to;
        const char *says;
    } ways[] = {{0, 1, "from bf16 to fp8-block\n"},
                {0, 2, "from bf16 to fp8-delayed; its history of largest magnitudes begins anew\n"},
                {1, 0, "from fp8-block to bf16\n"},
                {2, 0, "from fp8-delayed to bf16\n"},
                {0, 0, "step-00000021\n"},
                {1, 1, "step-00000021\n"}};
    OWNED char *all = below(*state, "policies");
    char *whole[3];
    for (int i = 0; i < 3; i++) {
        OWNED char *run = xasprintf(IN("%s"), of[i]);
        whole[i] = below(all, of[i]);
        csv_free(go(whole[i], run, EXIT_CODE_OK));
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *from = whole[ways[i].from], *to = whole[ways[i].to], *policy = of[ways[i].to];
        OWNED char *name = xasprintf("%d", (int)i), *here = below(all, name), *run = xasprintf(IN("%s"), policy);
        OWNED char *stopped =
            xasprintf("cd '%s' && cp -r '%s/ck' . && rm -r ck/step-*28 ck/step-*35 ck/step-*40", here, from);
        assert_int_equal(system(stopped), 0);
        expect_words(here, run, EXIT_CODE_OK, ways[i].says);
        const double off = last_loss(here, policy) / last_loss(to, policy) - 1;
        if (!(fabs(off) < 0.01))
            fail_msg("%s: the last loss is off by %.2g", ways[i].says, off);
        if (from == to)
            same_state(from, here);
    }
    expect_words(whole[0], IN("fp8-block --clip 0"), EXIT_CODE_USAGE, "of bf16, --clip 1; here fp8-block, --clip 0");
    expect_words(whole[1], IN("bf16-pure"), EXIT_CODE_USAGE, "the checkpoint has other moments");
    for (int i = 0; i < 3; i++)
        free(whole[i]);
}

/* Waits for the checkpoint behind those that are there, and a little more; with more steps a save may be under way then. */
static int kill_behind_next(const char *folder, const char *options, double ms)
{
    int next = EVERY;
    while (there(folder, next))
        next += EVERY;
    return start_and_signal(folder, options, next < steps ? next : steps, ms, SIGKILL);
}

static void kill_and_compare(void **state, const char *options, const char *log, uint64_t turn)
{
    OWNED char *a = xasprintf("a%d", (int)turn), *b = xasprintf("b%d", (int)turn), *whole = below(*state, a),
               *killed = below(*state, b);
    int kills = 0;
    csv_free(go(whole, options, EXIT_CODE_OK));
    /* Other algorithms of products would have other bits. */
    OWNED char *copy = xasprintf(
        "mkdir -p '%s/results/test-x1' && cp -f '%s/results/test-x1/gemm_choices.csv' '%s/results/test-x1' 2>/dev/null",
        killed, whole, killed);
    (void)!system(copy);
    for (uint64_t k = 0; k < KILLS && !there(killed, steps); k++)
        kills += kill_behind_next(killed, options, 75 * rng_uniform(7, k, turn)) == 128 + SIGKILL;
    if (!there(killed, steps))
        csv_free(go(killed, options, EXIT_CODE_OK));
    same_state(whole, killed);
    same_log(whole, killed, log, log, 0);
    print_message("%s: %d kills, nothing lost, the same bits\n", log, kills);
    assert_true(kills > KILLS / 2);
}

static void any_strategy_at_any_time(void **state)
{
#define BF16 "--precision bf16 --variant save --check 0 --folder ck --resume-run ck --ranks 2 --batch 2 --strategy "
    static const char *const ways[][2] = {{QUICK "--ranks 2 --batch 2 --strategy ddp", "ddp-2"},
                                          {QUICK "--ranks 2 --batch 2 --strategy zero1 --way sync", "zero1-2"},
                                          {QUICK "--ranks 2 --batch 2 --strategy fsdp --way lazy", "fsdp-2"},
                                          {BF16 "zero2 --way device", "zero2-2"},
                                          {BF16 "fsdp --moments bf16", "fsdp-2"},
                                          {QUICK "--ranks 1 --batch 4", "ddp-1"},
                                          {QUICK "--ranks 4 --batch 1 --strategy ddp --way device", "ddp-4"},
                                          {QUICK "--ranks 4 --batch 1 --strategy zero1 --way lazy", "zero1-4"},
                                          {QUICK "--ranks 4 --batch 1 --strategy fsdp", "fsdp-4"}};
    const char *from = getenv("STEPBENCH_RESUME_FROM");
    const int first = from ? atoi(from) : 0;
    steps = 80;
    for (int turn = first; turn < first + atoi(getenv("STEPBENCH_RESUMES")); turn++) {
        const char *const *way = ways[(size_t)turn % (sizeof ways / sizeof *ways)];
        OWNED char *log = xasprintf("save-%s-tiny-16-%s", way[1], strstr(way[0], "bf16") ? "bf16" : "fp32");
        kill_and_compare(state, way[0], log, (uint64_t)turn);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_goes_on_bit_for_bit), cmocka_unit_test(a_damaged_checkpoint_is_passed_over),
        cmocka_unit_test(a_run_goes_on_from_a_step),        cmocka_unit_test(a_signal_saves_first),
        cmocka_unit_test(a_run_goes_on_on_other_ranks),     cmocka_unit_test(what_is_lost_or_wrong_has_a_name),
        cmocka_unit_test(three_failed_saves_end_a_run),     cmocka_unit_test(a_run_goes_on_in_float8_and_back)};
    const struct CMUnitTest more[] = {cmocka_unit_test(any_strategy_at_any_time)};
    return getenv("STEPBENCH_RESUMES") ? cmocka_run_group_tests(more, folder_create, folder_remove)
                                       : cmocka_run_group_tests(tests, folder_create, folder_remove);
}
