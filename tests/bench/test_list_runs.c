/* SPDX-License-Identifier: MIT */
/* What every bench says about itself under --list-runs: its runs parse, its section and its figures exist, and no two
 * benches have the same place. Run from the project's root. */
#include "tests/support/test.h"

#include <dirent.h>

enum { BENCHES_MAX = 64 };

static char *benches[BENCHES_MAX]; /* "bench_flash" */
static size_t count;
static const char *programs; /* where they are built */

/* Every bench/bench_*.c has a program. */
static int find_benches(void **state)
{
    (void)state;
    programs = getenv("STEPBENCH_BIN") ? getenv("STEPBENCH_BIN") : ".";
    DIR *folder = opendir("bench");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) && count < BENCHES_MAX;) {
        size_t length = strlen(entry->d_name);
        if (strncmp(entry->d_name, "bench_", 6) == 0 && strcmp(entry->d_name + length - 2, ".c") == 0)
            benches[count++] = xasprintf("%.*s", (int)length - 2, entry->d_name);
    }
    closedir(folder);
    return count == 0;
}

/* What `<bench> <arguments>` prints; its exit code in *code. Caller frees. */
static char *output_of(const char *bench, const char *arguments, int *code)
{
    char *command = xasprintf("'%s/%s' %s 2>&1", programs, bench, arguments), *text = command_text(command, code);
    free(command);
    return text;
}

/* What ./run_all.sh promises of its lists, by the seconds that the benches give: on one GPU, on two and on four. */
static const int gpu_counts[] = {1, 2, 4}, quick_most[] = {240, 300, 300}, normal_most[] = {1200, 1200, 1200};
enum { MACHINES = sizeof gpu_counts / sizeof *gpu_counts };

typedef struct facts {
    int names, orders, summaries, smalls, sections, figures, apart;
    int quick_s[MACHINES], normal_s[MACHINES];
    int quick, normal, cpu; /* runs of these lists */
    int order;
} facts;

/* The options are cases on the CPU, or are refused there and not on a GPU. {gpus} stands for their number. */
static void check_options(const char *bench, const char *run)
{
    const char *gpus = strstr(run, "{gpus}");
    OWNED char *arguments = gpus ? xasprintf("--device cpu --dry-run %.*s2%s", (int)(gpus - run), run, gpus + 6)
                                 : xasprintf("--device cpu --dry-run %s", run);
    int code;
    OWNED char *text = output_of(bench, arguments, &code);
    const bool for_a_gpu = code == EXIT_CODE_USAGE && strstr(text, "--device cuda");
    if (code != EXIT_CODE_OK && !for_a_gpu)
        fail_msg("%s %s: exit code %d: %s", bench, arguments, code, text);
    if (code == EXIT_CODE_OK && !strstr(text, "variant="))
        fail_msg("%s %s has no cases", bench, arguments);
}

/* A run: its lists, how many GPUs it needs, the seconds it takes, its options. */
static void check_run(const char *bench, const char *run, facts *f)
{
    static const char *const lists[] = {"quick",     "default",      "quick+default", "full",
                                        "full+load", "default+load", "cpu",           "headline"};
    char list[16];
    int gpus, seconds, options = 0;
    if (sscanf(run, "%15[a-z+]\t%d\t%d\t%n", list, &gpus, &seconds, &options) != 3 || !options)
        fail_msg("%s --list-runs: '%s' is not lists, GPUs, seconds and options", bench, run);
    size_t i = 0;
    while (i < sizeof lists / sizeof *lists && strcmp(list, lists[i]) != 0)
        i++;
    assert_true(i < sizeof lists / sizeof *lists && gpus >= 0 && seconds > 0);
    if (gpus < 2 && strstr(run, "{gpus}"))
        fail_msg("%s --list-runs: '%s' is not of several GPUs", bench, run);
    f->quick += strstr(list, "quick") != NULL;
    f->normal += strstr(list, "default") != NULL;
    f->cpu += strcmp(list, "cpu") == 0;
    for (i = 0; i < MACHINES; i++) {
        const bool quick = strstr(list, "quick"),
                   normal = gpu_counts[i] > 1 && gpus == 1 ? quick : strstr(list, "default") != NULL;
        f->quick_s[i] += quick && gpus <= gpu_counts[i] ? seconds : 0;
        f->normal_s[i] += normal && gpus <= gpu_counts[i] ? seconds : 0;
    }
    check_options(bench, run + options);
}

static void check_file(const char *bench, char *path)
{
    if (access(path, R_OK) != 0)
        fail_msg("%s names %s, which does not exist", bench, path);
    free(path);
}

static void take_fact(const char *bench, const char *key, const char *value, facts *f)
{
    if (strcmp(key, "name") == 0) {
        f->names++;
        assert_string_equal(value, bench);
    } else if (strcmp(key, "order") == 0) {
        f->orders++;
        f->order = atoi(value);
    } else if (strcmp(key, "summary") == 0) {
        f->summaries += value[strlen(value) - 1] == '?';
    } else if (strcmp(key, "small") == 0) {
        f->smalls += *value != 0;
        check_options(bench, value);
    } else if (strcmp(key, "run") == 0) {
        check_run(bench, value, f);
    } else if (strcmp(key, "section") == 0) {
        f->sections++;
        check_file(bench, xasprintf("plots/report/sections/%s.sql", value));
    } else if (strcmp(key, "figure") == 0) {
        f->figures++;
        check_file(bench, xasprintf("plots/figures/%s.gp", value));
    } else if (strcmp(key, "apart") == 0) {
        assert_string_equal(value, "1");
        f->apart++;
    } else {
        fail_msg("%s --list-runs: there is no fact '%s'", bench, key);
    }
}

static facts facts_of(const char *bench)
{
    int code;
    facts f = {0};
    char *text = output_of(bench, "--list-runs", &code), *rest = text, *line;
    assert_int_equal(code, EXIT_CODE_OK);
    while ((line = strsep(&rest, "\n")) && *line) {
        char *value = strchr(line, '\t');
        if (!value)
            fail_msg("%s --list-runs: '%s' is not a fact and its value", bench, line);
        *value++ = 0;
        take_fact(bench, line, value, &f);
    }
    free(text);
    return f;
}

TEST(every_bench)
{
    int orders[BENCHES_MAX], quick_s[MACHINES] = {0}, normal_s[MACHINES] = {0};
    for (size_t i = 0; i < count; i++) {
        const facts f = facts_of(benches[i]);
        if (f.names != 1 || f.orders != 1 || f.summaries != 1 || f.smalls != 1 || f.sections != 1 || f.figures < 1 ||
            f.quick < 1 || f.normal < 1 || f.cpu < 1)
            fail_msg("%s --list-runs lacks a fact, or has one twice: %d name, %d order, %d summary that is a question, "
                     "%d small, %d section, %d figure, runs of the lists quick %d, default %d, cpu %d",
                     benches[i], f.names, f.orders, f.summaries, f.smalls, f.sections, f.figures, f.quick, f.normal,
                     f.cpu);
        orders[i] = f.order;
        for (size_t k = 0; k < MACHINES && !f.apart; k++) {
            quick_s[k] += f.quick_s[k];
            normal_s[k] += f.normal_s[k];
        }
        for (size_t k = 0; k < i; k++)
            if (orders[k] == f.order)
                fail_msg("%s and %s have the same order, %d", benches[k], benches[i], f.order);
    }
    for (size_t k = 0; k < MACHINES; k++)
        if (quick_s[k] > quick_most[k] || normal_s[k] > normal_most[k])
            fail_msg("on %d GPUs the runs take %d s with --quick (%d are promised) and else %d s (%d)", gpu_counts[k],
                     quick_s[k], quick_most[k], normal_s[k], normal_most[k]);
}

/* One of the programs test_columns... checks the columns of each. */
TEST(every_bench_has_rules)
{
    for (size_t i = 0; i < count; i++) {
        OWNED char *command = xasprintf("grep -qE 'columns_have_rules\\([^,]*, \"%s\"|strategy\\([^,]*, \"%s\"' "
                                        "tests/bench/test_columns*.c",
                                        benches[i], benches[i]);
        if (system(command) != 0)
            fail_msg("no tests/bench/test_columns*.c states the columns of %s", benches[i]);
    }
}

TESTS_WITH(find_benches, NULL)
