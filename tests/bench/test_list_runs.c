/* SPDX-License-Identifier: MIT */
/* What every bench says about itself under --list-runs: its runs parse, its section and its figures exist, and no two
 * benches have the same place. Run from the project's root. */
#include "tests/support/test.h"

#include <dirent.h>

#include "common/core/text.h"

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

/* What ./run_all.sh promises of its lists, by the seconds that the benches give. */
static const struct {
    int gpus, quick_s, normal_s, full_s;
} machines[] = {{1, 240, 1200, 4500}, {2, 300, 1200, 10800}, {4, 300, 1200, 10800}, {8, 300, 1230, 10800}};
enum { MACHINES = sizeof machines / sizeof *machines };

typedef struct facts {
    int names, orders, summaries, smalls, sections, figures, apart;
    int quick_s[MACHINES], normal_s[MACHINES], full_s[MACHINES];
    int quick, normal, cpu; /* runs of these lists */
    int order;
} facts;

/* The options of a run on so many GPUs, for whose number {gpus} stands. Caller frees. */
static char *options_on(const char *run, int gpus)
{
    char *text = xstrdup(run), *at;
    while ((at = strstr(text, "{gpus}"))) {
        char *longer = xasprintf("%.*s%d%s", (int)(at - text), text, gpus, at + strlen("{gpus}"));
        free(text);
        text = longer;
    }
    return text;
}

/* The options are cases on the CPU, or are refused there and not on a GPU. */
static void check_options(const char *bench, const char *run, int gpus)
{
    OWNED char *options = options_on(run, gpus), *arguments = xasprintf("--device cpu --dry-run %s", options);
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
        const bool quick = strstr(list, "quick"), normal = strstr(list, "default"), fits = gpus <= machines[i].gpus;
        f->quick_s[i] += fits && quick ? seconds : 0;
        f->normal_s[i] += fits && (machines[i].gpus > 1 && gpus == 1 ? quick : normal) ? seconds : 0;
        f->full_s[i] += fits && (normal || strstr(list, "full")) ? seconds : 0;
        if (strstr(run, "{gpus}") ? fits : i == 0)
            check_options(bench, run + options, machines[i].gpus);
    }
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
        check_options(bench, value, 1);
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
    int orders[BENCHES_MAX], quick_s[MACHINES] = {0}, normal_s[MACHINES] = {0}, full_s[MACHINES] = {0};
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
            full_s[k] += f.full_s[k];
        }
        for (size_t k = 0; k < i; k++)
            if (orders[k] == f.order)
                fail_msg("%s and %s have the same order, %d", benches[k], benches[i], f.order);
    }
    for (size_t k = 0; k < MACHINES; k++)
        if (quick_s[k] > machines[k].quick_s || normal_s[k] > machines[k].normal_s || full_s[k] > machines[k].full_s)
            fail_msg(
                "on %d GPUs the runs take %d s with --quick (%d are promised), %d s with --full (%d) and else %d s "
                "(%d)",
                machines[k].gpus, quick_s[k], machines[k].quick_s, full_s[k], machines[k].full_s, normal_s[k],
                machines[k].normal_s);
}

/* ---- what four and eight GPUs are for ---- */

/* The values of an option among "--name a,b --other c", as "a,b"; NULL where it is not given. Caller frees. */
static char *values_of(const char *options, const char *name)
{
    OWNED char *all = xasprintf(" %s ", options), *wanted = xasprintf(" %s ", name);
    const char *at = strstr(all, wanted);
    return at ? xasprintf("%.*s", (int)strcspn(at + strlen(wanted), " "), at + strlen(wanted)) : NULL;
}

/* Whether options have all that is asked for: "--ranks 4 --variant a,b", in any order and beside others. A value of - leaves
 * an option to its default. */
static bool has(const char *options, const char *asked)
{
    char name[32], values[128];
    for (int used; sscanf(asked, " %31s %127s%n", name, values, &used) == 2; asked += used) {
        OWNED char *given = values_of(options, name);
        if (text_is(values, "-") != !given)
            return false;
        for (char *value, *rest = values, *at = given; at && (value = strsep(&rest, ","));) {
            OWNED char *listed = xasprintf(",%s,", given), *one = xasprintf(",%s,", value);
            if (!strstr(listed, one))
                return false;
        }
    }
    return true;
}

/* Whether ./run_all.sh --full has such a run of that bench on so many GPUs. */
static bool in_full(const char *bench, int gpus, const char *asked)
{
    int code;
    char *text = output_of(bench, "--list-runs", &code), *rest = text, *line;
    bool found = false;
    while (!found && (line = strsep(&rest, "\n"))) {
        char list[16];
        int least, seconds, start = 0;
        if (sscanf(line, "run\t%15[a-z+]\t%d\t%d\t%n", list, &least, &seconds, &start) != 3 || least > gpus ||
            !(strstr(list, "default") || strstr(list, "full")))
            continue;
        OWNED char *options = options_on(line + start, gpus);
        found = has(options, asked);
    }
    free(text);
    return found;
}

#define LARGE "--size 2.7b --seq 2048 --precision bf16-pure "
#define LARGER "--size 8b --seq 4096 "
#define STAGES "--size - --seq 2048 --transport copy "
#define SCALED "--size large --seq 512 --variant ddp,fsdp "

/* Meshes, sharded steps and collectives that need more than two GPUs; steps whose planner has to judge itself, with batches that
 * make each way the same step. */
TEST(four_and_eight_gpus_have_their_runs)
{
    static const struct {
        int gpus; /* 0: four, and eight */
        const char *bench, *asked;
    } runs[] = {
        {0, "bench_tp", LARGE "--ranks {gpus} --batch {gpus} --mesh - --variant -"},
        {4, "bench_pp", "--ranks 4 --micro-batches 8,16 --transport copy --variant - --size - --seq -"},
        {0, "bench_pp", STAGES "--ranks {gpus} --micro-batches {gpus} --variant - --mesh -"},
        {0, "bench_cp", "--ranks {gpus} --seq 65536 --transport nccl,copy --variant - --head-dim -"},
        {0, "bench_fsdp", LARGE "--ranks {gpus} --cp {gpus} --batch {gpus} --variant zero2,fsdp"},
        {0, "bench_fsdp", LARGE "--ranks {gpus} --cp 2 --batch 2 --variant fsdp"},
        {0, "bench_tp", LARGE "--ranks {gpus} --mesh tp2+dp_shard --batch 2 --strategy ddp,fsdp --variant nccl,copy"},
        {0, "bench_tp", LARGER "--ranks {gpus} --mesh tp2+dp_shard --batch 2 --strategy fsdp --variant nccl,copy"},
        {0, "bench_tp", LARGE "--ranks {gpus} --mesh cp2+tp2 --batch - --variant nccl,copy"},
        {0, "bench_tp", LARGER "--ranks {gpus} --mesh cp2+tp2 --batch 4 --variant nccl"},
        {0, "bench_pp", STAGES "--ranks {gpus} --mesh pp2+tp2 --micro-batches 4 --variant 1f1b,zb-v"},
        {0, "bench_pp", LARGER "--ranks {gpus} --mesh pp2+tp2 --micro-batches 4 --variant 1f1b,zb-v"},
        {0, "bench_pp", STAGES "--ranks {gpus} --mesh pp2+dp_shard --strategy ddp,fsdp-keep --micro-batches 2"},
        {0, "bench_pp", LARGER "--ranks {gpus} --mesh pp2+dp_shard --strategy fsdp-keep --micro-batches 2"},
        {0, "bench_mesh", "--variant measured --model 2.7b --gpus {gpus} --seq 2048 --global-batch {gpus}"},
        {0, "bench_mesh", "--variant measured --model 2.7b --gpus {gpus} --seq 1024 --global-batch 8"},
        {0, "bench_mesh", "--variant measured --model 8b --gpus {gpus} --seq 4096 --global-batch {gpus}"},
        {0, "bench_fsdp", LARGE "--ranks {gpus} --cp - --batch 1 --variant ddp,zero1,zero2,fsdp-keep,fsdp,hsdp"},
        {8, "bench_fsdp", LARGE "--ranks 8 --replicas 2,4 --batch 2 --variant fsdp,hsdp"},
        {4, "bench_fsdp", "--ranks 4 --size 10b --seq 1024 --variant fsdp"},
        {4, "bench_fsdp", LARGE "--ranks 1,4 --batch 2 --small - --variant fsdp"},
        {4, "bench_fsdp", LARGE "--ranks 4 --batch 2 --small replicated --variant fsdp"},
        {8, "bench_fsdp", SCALED "--ranks 1 --batch 4,8"},
        {8, "bench_fsdp", SCALED "--ranks 2 --batch 4"},
        {8, "bench_fsdp", SCALED "--ranks 4 --batch 2,4"},
        {8, "bench_fsdp", SCALED "--ranks 8 --batch 1,4"},
        {4, "bench_allreduce", "--ranks 3,4 --mode graph --variant - --bytes 8M,1GB"},
        {4, "bench_allreduce", "--ranks 3,4 --mode graph --variant all-to-all --in-place 0"},
        {8, "bench_allreduce", "--ranks - --mode - --variant - --bytes -"}, /* on 2, 4, 6 and 8 */
        {8, "bench_allreduce", "--ranks - --mode - --variant all-to-all --in-place 0"},
        {4, "bench_zero1", "--ranks 4 --variant unsharded,zero1-broadcast,fused"}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int gpus = 4; gpus <= 8; gpus += 4) {
            OWNED char *asked = options_on(runs[i].asked, gpus);
            if ((runs[i].gpus == 0 || runs[i].gpus == gpus) && !in_full(runs[i].bench, gpus, asked))
                fail_msg("on %d GPUs, ./run_all.sh --full has no run of %s with %s", gpus, runs[i].bench, asked);
        }
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
