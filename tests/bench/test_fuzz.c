/* SPDX-License-Identifier: MIT */
/* 2000 random command lines over every bench (400 without a sanitizer): most go through the parser in this process, with
 * the table of options that the bench prints, the rest through the program with --dry-run, and some measure a tiny case.
 * Each is accepted, or refused with one printable sentence and exit code 2; nothing crashes, hangs or upsets a
 * sanitizer. STEPBENCH_FUZZ_SEED changes the draw. Run from the project's root. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* All of them where a sanitizer looks on; without one, a fifth shows as much. */
#ifdef __SANITIZE_ADDRESS__
enum { SHARE = 1 };
#else
enum { SHARE = 5 };
#endif

enum {
    PARSED = 1700 / SHARE,
    DRY = 275 / SHARE,
    MEASURED = 25 / SHARE,
    ARGUMENTS_MAX = 16,
    OPTIONS_MAX = 96,
    BENCHES_MAX = 32,
    SECONDS_MAX = 60
};

typedef struct bench {
    char *name, *program, *table; /* table: what --list-options prints, which specs point into */
    option_spec specs[OPTIONS_MAX + 1];
    size_t n;
} bench;

static bench benches[BENCHES_MAX];
static size_t bench_count;

/* ---- the benches and their options ---- */

static char *output_of(const char *program, const char *argument)
{
    int code;
    OWNED char *path = shell_path(program);
    char *command = xasprintf("'%s' %s", path, argument), *text = command_text(command, &code);
    assert_int_equal(code, 0);
    free(command);
    return text;
}

static option_spec spec_of(char *line)
{
    static const char *const kinds[] = {"int", "real", "bytes", "choice", "flag", "text"};
    enum { NAME, KIND, DEFAULT, MIN, MAX, CHOICES, UNIT, UNSET, HELP, CELLS };
    char *cells[CELLS];
    for (int i = 0; i < CELLS; i++)
        assert_non_null(cells[i] = strsep(&line, "\t"));
    option_spec s = {.name = cells[NAME], .def = cells[DEFAULT]};
    char *list = strchr(cells[KIND], ' ');
    if (list) {
        *list = '\0';
        s.flags = OPTION_LIST;
    }
    while (strcmp(kinds[s.kind], cells[KIND]) != 0)
        s.kind++;
    if (*cells[MIN]) {
        s.min = strtod(cells[MIN], NULL);
        s.max = strtod(cells[MAX], NULL);
    }
    s.choices = *cells[CHOICES] ? cells[CHOICES] : NULL;
    s.unit = cells[UNIT];
    s.unset = *cells[UNSET] ? cells[UNSET] : NULL;
    s.help = cells[HELP];
    return s;
}

static void add_bench(const char *programs, const char *name)
{
    bench *b = &benches[bench_count++];
    b->name = xstrdup(name);
    b->program = xasprintf("%s/%s", programs, name);
    b->table = output_of(b->program, "--list-options");
    char *rest = b->table;
    strsep(&rest, "\n"); /* the heading */
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        assert_true(b->n < OPTIONS_MAX);
        b->specs[b->n++] = spec_of(line);
    }
    assert_true(b->n > 10);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int find_benches(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    const char *where = getenv("STEPBENCH_BIN");
    OWNED char *programs = realpath(where ? where : ".", NULL);
    struct dirent **entries;
    const int n = scandir("bench", &entries, NULL, by_name);
    assert_true(programs && n > 0);
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(entries[i]->d_name);
        if (strncmp(entries[i]->d_name, "bench_", 6) == 0 && strcmp(entries[i]->d_name + length - 2, ".c") == 0) {
            entries[i]->d_name[length - 2] = '\0';
            add_bench(programs, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    return bench_count == 0;
}

static int forget_benches(void **state)
{
    for (size_t i = 0; i < bench_count; i++) {
        free(benches[i].name);
        free(benches[i].program);
        free(benches[i].table);
    }
    return folder_remove(state);
}

/* ---- drawing command lines ---- */

static uint64_t random_state;

static size_t draw(size_t below) /* splitmix64 */
{
    uint64_t x = random_state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % below;
}

/* One of the words between bars. Caller frees. */
static char *one_of(const char *list)
{
    size_t words = 1;
    for (const char *c = list; *c; c++)
        words += *c == '|';
    for (size_t skip = draw(words); skip > 0; skip--)
        list = strchr(list, '|') + 1;
    return xasprintf("%.*s", (int)strcspn(list, "|"), list);
}

static char *garbage(void)
{
    static const char known[] =
        "|-|--|,|1,,2|a,|nan|inf|-inf|1e400|0x10|-1|0|1K|1KB|1G|8E|1KK|5:1|1:2|1:9:+0|1:9:*1|1:1M:*2|"
        "1:99999|::|:|1:2:3:4|1:|:1|1:2:|1:2:+|1:2:x3|all|none|auto|%s%n%s|../x|\xff\xfe|a\nb|\x1b[1m|"
        "1.5|.|+3| 4|9223372036854775807|9223372036854775808|-9223372036854775808|18446744073709551616|=|"
        "a=b";
    if (draw(3))
        return one_of(known);
    const size_t length = draw(20) ? draw(12) : 5000;
    char *text = xmalloc(length + 1);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)(1 + draw(255));
    text[length] = '\0';
    return text;
}

/* A number at, near or between the bounds. */
static char *number(const option_spec *s)
{
    const bool bounded = s->min < s->max;
    const double low = bounded ? s->min : -10, high = bounded ? s->max : 1e6;
    static const double off[] = {0, 0, 0, -1, 1};
    double x = draw(2) ? low + off[draw(5)] + (double)draw(40) : high + off[draw(5)];
    return xasprintf(s->kind == OPTION_REAL ? "%.6g" : "%.0f", draw(4) ? low + (double)draw(64) : x);
}

static char *one_value(const option_spec *s)
{
    if (draw(8) == 0)
        return garbage();
    if (s->kind == OPTION_FLAG)
        return xasprintf("%d", (int)draw(2));
    if (s->kind == OPTION_TEXT)
        return xstrdup(s->def);
    if (s->kind != OPTION_CHOICE || !s->choices)
        return number(s);
    return one_of(s->choices);
}

static char *value_of(const option_spec *s)
{
    char *text = one_value(s);
    for (size_t more = s->flags & OPTION_LIST ? draw(3) : draw(12) == 0; more > 0; more--) {
        char *next = one_value(s), *longer = xasprintf("%s%c%s", text, draw(10) ? ',' : ':', next);
        free(next);
        free(text);
        text = longer;
    }
    return text;
}

static void mutate_name(char *name)
{
    char *at = name + draw(strlen(name));
    if (draw(2))
        *at = *at == '-' ? '_' : '-';
    else
        memmove(at, at + 1, strlen(at));
}

typedef struct line {
    char *argv[ARGUMENTS_MAX + 1];
    int argc;
} line;

static void push(line *l, char *argument)
{
    if (l->argc < ARGUMENTS_MAX)
        l->argv[l->argc++] = argument;
    else
        free(argument);
}

/* Adds up to `most` options; of those in `allowed` alone, unless that is NULL. */
static void add_options(line *l, const bench *b, size_t most, const char *const *allowed, size_t allowed_n)
{
    for (size_t left = draw(most + 1); left > 0; left--) {
        const option_spec *s = &b->specs[draw(b->n)];
        for (size_t pick = allowed ? draw(allowed_n) : 0, i = 0; allowed && i < b->n; i++)
            s = strcmp(b->specs[i].name, allowed[pick]) == 0 ? &b->specs[i] : s;
        OWNED char *name = xstrdup(s->name), *value = value_of(s);
        if (!allowed && draw(15) == 0)
            mutate_name(name);
        if (draw(2)) {
            push(l, xasprintf("--%s=%s", name, value));
        } else {
            push(l, xasprintf("--%s", name));
            if (allowed || draw(15))
                push(l, xstrdup(value));
        }
    }
    if (!allowed && draw(20) == 0)
        push(l, garbage());
}

static void clear(line *l)
{
    for (int i = 0; i < l->argc; i++)
        free(l->argv[i]);
    *l = (line){0};
}

_Noreturn static void fail_for(const line *l, const char *what, const char *said)
{
    for (int i = 0; i < l->argc; i++)
        print_message("  argv[%d] = '%.200s'\n", i, l->argv[i]);
    print_message("%s; said: %s\n", what, said);
    fail();
    abort();
}

/* Printable, one line, not empty. */
static bool is_sentence(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return *text != '\0';
}

/* ---- the parser in this process ---- */

static bool is_action(const line *l)
{
    static const char *const actions[] = {"-h", "-V", "--help", "--version", "--list", "--list-options", "--list-runs"};
    for (int i = 1; i < l->argc; i++)
        for (size_t k = 0; k < sizeof actions / sizeof *actions; k++)
            if (strcmp(l->argv[i], actions[k]) == 0)
                return true;
    return false;
}

static void parse(const bench *b, const line *l)
{
    const bench_info info = {.name = b->name, .summary = "", .options = b->specs};
    char msg[2048];
    OWNED_OPTIONS options *o =
        options_try(&info, l->argc, (char **)l->argv, &(options_env){"cpu", "no GPU", NULL}, msg, sizeof msg);
    if (!o && !is_sentence(msg))
        fail_for(l, "refused without one printable sentence", msg);
    if (!o)
        return;
    const size_t cases = cases_count(o);
    for (size_t i = 0; i<cases; i += cases> 1 ? cases - 1 : 1) { /* the first and the last */
        OWNED_CASE bench_case *c = case_at(o, i);
        if (!*case_key(c))
            fail_for(l, "a case without a key", "");
    }
    free(options_describe(o));
}

TEST(the_parser_takes_or_refuses)
{
    for (int i = 0; i < PARSED; i++) {
        const bench *b = &benches[(size_t)i % bench_count];
        line l = {0};
        push(&l, xstrdup(b->name));
        add_options(&l, b, 5, NULL, 0);
        if (!is_action(&l))
            parse(b, &l);
        clear(&l);
    }
}

/* ---- whole programs ---- */

/* Runs it in the folder; the exit code, or minus the signal. What it says on stderr goes to *said. */
static int run(const char *folder, const bench *b, const line *l, char **said)
{
    OWNED char *err = folder_path(folder, "err");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit seconds = {SECONDS_MAX, SECONDS_MAX};
        setrlimit(RLIMIT_CPU, &seconds);
        if (chdir(folder) != 0 || dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO) < 0 ||
            dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO) < 0)
            _exit(99);
        execv(b->program, (char **)l->argv);
        _exit(99);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    *said = file_text(err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* `codes`: those that are right, ended by -1. Every code but 0 comes with one sentence. */
static void expect_end(const char *folder, const bench *b, const line *l, const int *codes)
{
    char *said;
    const int code = run(folder, b, l, &said);
    while (*codes >= 0 && *codes != code)
        codes++;
    if (*codes != code || strstr(said, "Sanitizer") || strstr(said, "runtime error"))
        fail_for(l, xasprintf("ended with %d", code), said);
    char *end = strchr(said, '\n');
    if (end && !end[1])
        *end = '\0';
    if ((code != EXIT_CODE_OK || *said) && !is_sentence(said))
        fail_for(l, xasprintf("ended with %d, not with one printable sentence", code), said);
    free(said);
}

TEST(programs_end_as_documented)
{
    static const int codes[] = {EXIT_CODE_OK, EXIT_CODE_USAGE, -1};
    for (int i = 0; i < DRY; i++) {
        const bench *b = &benches[(size_t)i % bench_count];
        line l = {0};
        push(&l, xstrdup(b->program));
        push(&l, xstrdup("--dry-run=1"));
        push(&l, xstrdup("--device=cpu"));
        add_options(&l, b, 4, NULL, 0);
        push(&l, NULL);
        l.argc--;
        expect_end(*state, b, &l, codes);
        clear(&l);
    }
}

TEST(tiny_runs_end_as_documented)
{
    static const struct {
        const char *bench, *arguments;
    } tiny[] = {{"bench_roofline", "--variant=gemm --size=16,32"},
                {"bench_flash", "--seq=16 --head-dim=16"},
                {"bench_attention", "--seq=16 --head-dim=16"},
                {"bench_accounting", "--variant=memory"},
                {"bench_mixed_precision", "--variant=accumulation"}};
    static const char *const harmless[] = {"seed", "check", "quiet", "timer", "l2", "gpu", "resume", "warmup", "iters"};
    static const int codes[] = {EXIT_CODE_OK, EXIT_CODE_USAGE, EXIT_CODE_UNSUPPORTED, -1};
    for (size_t i = 0; i < MEASURED; i++) {
        const size_t k = i % (sizeof tiny / sizeof *tiny);
        const bench *b = benches;
        while (strcmp(b->name, tiny[k].bench) != 0)
            b++;
        line l = {0};
        push(&l, xstrdup(b->program));
        push(&l, xstrdup("--device=cpu"));
        push(&l, xstrdup("--csv=none"));
        push(&l, xstrdup("--max-time=0.001"));
        char *words = xstrdup(tiny[k].arguments), *rest = words;
        for (char *word; (word = strsep(&rest, " "));)
            push(&l, xstrdup(word));
        free(words);
        add_options(&l, b, 3, harmless, sizeof harmless / sizeof *harmless);
        push(&l, NULL);
        l.argc--;
        expect_end(*state, b, &l, codes);
        clear(&l);
    }
}

TESTS_WITH(find_benches, forget_benches)

int main(void)
{
    const char *seed = getenv("STEPBENCH_FUZZ_SEED");
    random_state = seed ? strtoull(seed, NULL, 10) : 1;
    return tests_run();
}
