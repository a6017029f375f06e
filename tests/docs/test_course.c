/* SPDX-License-Identifier: MIT */
/* Every command of docs/course.md runs, on the CPU with small sizes in place of its own, and the report of the machine then has
 * the answer: each problem that the page names has one, and each section that the page names is there. Answers that are made
 * of rows of the page's own sizes are left out: no CI has the time. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/wait.h>

static char *programs; /* the folder they are in */

/* What takes the time: these options have small values, whatever the page says. */
static const char *const scaled[][2] = {
    {"--size", "tiny"},      {"--seq", "32"},    {"--bytes", "64K"},       {"--bucket-mb", "1"}, {"--ranks", "2"},
    {"--heads", "2"},        {"--budget", "1G"}, {"--loss-chunk", "16"},   {"--warmup", "1"},    {"--head-dim", "32"},
    {"--fusion", "kernels"}, {"--batch", "2"},   {"--d-ff", "64,128,256"}, {NULL, NULL}};

static bool has_option(const char *command, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = command; (at = strstr(at, name)); at += n)
        if (at[-1] == ' ' && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

/* The options of the command, with small values; then those of the bench's list `small` that it lacks. */
static char *small_command(const char *command)
{
    char *line, *words = xstrdup(command), *rest = words;
    size_t bytes;
    FILE *out = open_memstream(&line, &bytes);
    const char *bench = strsep(&rest, " ");
    fprintf(out, "'%s/%s' --machine course-x1 --quiet%s", programs, bench + 2,
            has_option(command, "--device") ? "" : " --device cpu");
    for (char *word; (word = strsep(&rest, " "));) {
        const char *value = NULL;
        for (size_t i = 0; scaled[i][0]; i++)
            if (strcmp(word, scaled[i][0]) == 0 && strncmp(bench, "./bench_accounting", 18) != 0)
                value = scaled[i][1];
        fprintf(out, " %s", word);
        if (value) {
            strsep(&rest, " ");
            fprintf(out, " %s", value);
        }
    }
    char *ask = xasprintf("'%s/%s' --list-runs", programs, bench + 2), lists[512];
    FILE *runs = popen(ask, "r");
    while (runs && fgets(lists, sizeof lists, runs)) {
        lists[strcspn(lists, "\n")] = 0;
        char *small = strncmp(lists, "small\t", 6) == 0 ? lists + 6 : NULL;
        for (char *name; small && (name = strsep(&small, " "));) {
            const char *value = small && strncmp(small, "--", 2) != 0 ? strsep(&small, " ") : NULL;
            if (*name && !has_option(command, name) && strcmp(name, "--variant") != 0)
                fprintf(out, " %s %s", name, value ? value : "");
        }
    }
    if (runs)
        pclose(runs);
    fclose(out);
    free(ask);
    free(words);
    return line;
}

TEST(every_command_runs)
{
    char *text = file_text("docs/course.md"), *at = text;
    size_t ran = 0, failed = 0, left_out = 0;
    while ((at = strstr(at, "`./bench_"))) {
        char *command = ++at, *end = strchr(command, '`');
        *end = 0;
        OWNED char *small = small_command(command);
        OWNED char *line =
            xasprintf("cd '%s' && STEPBENCH_RUN=course timeout 60 %s >out.txt 2>&1 </dev/null", (char *)*state, small);
        const int status = system(line), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (code != EXIT_CODE_OK) {
            OWNED char *path = folder_path(*state, "out.txt"), *said = file_text(path);
            const bool absent = code == EXIT_CODE_UNSUPPORTED && strstr(said, "built without Gloo");
            if (!absent)
                print_error("%s\nas %s\nends with code %d: %s\n", command, small, code, said);
            *(absent ? &left_out : &failed) += 1;
        }
        at = end + 1;
        ran++;
    }
    free(text);
    if (left_out)
        print_message("built without Gloo: %zu of %zu commands are left out\n", left_out, ran);
    assert_int_equal(failed, 0);
    assert_true(ran > 40);
}

/* Whether the page has the heading; up to an apostrophe, which it writes otherwise. */
static bool has_section(const char *page, const char *heading)
{
    OWNED char *begin = xasprintf(">%.*s", (int)strcspn(heading, "'"), heading);
    return strstr(page, begin) != NULL;
}

/* Answers that are made of rows of the page's own sizes, which no test has. */
static bool needs_its_sizes(const char *problem)
{
    static const char *const names[] = {"benchmarking_script", "distributed_communication_single_node", "leaderboard"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(problem, names[i]) == 0)
            return true;
    return false;
}

static char *result(const char *folder, const char *name)
{
    char *path = xasprintf("%s/results/course-x1/%s", folder, name), *text = file_text(path);
    free(path);
    return text;
}

TEST(the_report_answers)
{
    needs_gloo();
    OWNED char *line = xasprintf("'%s/results/course-x1'", (char *)*state);
    report_run(line);
    OWNED char *report = result(*state, "report.md"), *html = result(*state, "report.html"),
               *page = file_text("docs/course.md");
    size_t missing = 0, problems = 0, sections = 0;
    for (char *row = page, *end; (row = strstr(row, "\n| `")); row = end) {
        end = row + 1 + strcspn(row + 1, "\n");
        OWNED char *problem = xasprintf("%.*s", (int)strcspn(row + 4, "`"), row + 4),
                   *answer = xasprintf("- **%s** ", problem);
        if (!needs_its_sizes(problem) && !strstr(report, answer)) {
            print_error("the report has no answer to %s\n", problem);
            missing++;
        }
        problems++;
        const char *cell = end - 2;
        while (*cell != '|')
            cell--;
        for (const char *at = cell; (at = strchr(at, '*')) && at < end; at += strcspn(at, "*") + 1, sections++) {
            OWNED char *heading = xasprintf("%.*s", (int)strcspn(at + 1, "*"), at + 1);
            if (!has_section(html, heading)) {
                print_error("the report has no section '%s'\n", heading);
                missing++;
            }
            at++;
        }
    }
    assert_true(problems > 30 && sections >= problems - 1);
    assert_int_equal(missing, 0);
}

TESTS_WITH(folder_create, folder_remove)

int main(void)
{
    programs = programs_folder();
    return tests_run();
}
