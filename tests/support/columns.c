/* SPDX-License-Identifier: MIT */
/* See columns.h. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"
#include "tests/support/columns.h"

enum { COLUMNS = 128 };
static const double relative = 1e-7; /* cells have nine digits */
static bool seen[COLUMNS];

/* One of the words of a rule's name. */
static bool is_of(const column_rule *rule, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(rule->name, name); at; at = strstr(at + 1, name))
        if ((at == rule->name || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static size_t place_of(const column_rule *rules, const char *name)
{
    size_t i = 0;
    while (rules[i].name && !is_of(&rules[i], name))
        i++;
    assert_true(i < COLUMNS);
    return i;
}

/* What the bench prints. Caller frees. */
static char *printed(const char *folder, const char *bench, const char *option)
{
    const char *where = getenv("STEPBENCH_BIN");
    OWNED char *command = xasprintf("%s/%s %s >'%s/printed.txt'", where ? where : ".", bench, option, folder);
    OWNED char *path = folder_path(folder, "printed.txt");
    assert_int_equal(system(command), 0);
    return file_text(path);
}

static bool is_option(const char *options, const char *column)
{
    OWNED char *line = xasprintf("\n%s\t", column);
    for (char *at = line; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return strstr(options, line);
}

void columns_have_rules(const char *folder, const char *bench, const column_rule *rules)
{
    char *list = printed(folder, bench, "--list"), *options = printed(folder, bench, "--list-options"), *rest;
    bool own = false; /* after `reason` and before `run_id` are the columns of this bench */
    int columns = 0;
    rest = strstr(list, "\ncolumns:");
    assert_non_null(rest);
    for (char *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[64], kind[64];
        if (sscanf(line, " %63s %63s", name, kind) != 2)
            continue;
        own = own && strcmp(name, "run_id") != 0;
        const bool number = strcmp(kind, "real") == 0 || strcmp(kind, "int") == 0;
        if (own && number && !is_option(options, name)) {
            columns++;
            if (!rules[place_of(rules, name)].name)
                fail_msg("%s has a column %s that is neither measured nor derived: state in this test which", bench,
                         name);
        }
        own = own || strcmp(name, "reason") == 0;
    }
    assert_true(columns > 0);
    free(list);
    free(options);
}

static bool near(double got, double want, double slack)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    return got == want || fabs(got - want) <= relative * fabs(want) + slack;
}

static bool column_holds(const csv *c, size_t row, const char *bench, const column_rule *rule, const char *name)
{
    if (csv_column(c, name) < 0)
        fail_msg("%s has no column %s", bench, name);
    const double want = rule->value ? rule->value(c, row) : NAN, got = csv_real(c, row, name);
    if (isinf(got))
        fail_msg("%s, row %zu (%s): %s is infinite", bench, row, csv_cell(c, row, "variant"), name);
    if (rule->kind != MEASURED || !isnan(want))
        if (!near(got, want, rule->slack))
            fail_msg("%s, row %zu (%s): %s is %.9g, and should be %.9g", bench, row, csv_cell(c, row, "variant"), name,
                     got, want);
    return !isnan(got);
}

static void row_holds(const csv *c, size_t row, const char *bench, const column_rule *rules)
{
    for (size_t i = 0; rules[i].name; i++) {
        OWNED char *copy = xstrdup(rules[i].name);
        char *rest = copy;
        for (char *name = strtok_r(rest, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
            seen[i] = column_holds(c, row, bench, &rules[i], name) || seen[i];
    }
}

void columns_hold(csv *c, const char *bench, const column_rule *rules)
{
    assert_non_null(c);
    assert_true(c->rows > 0);
    for (size_t row = 0; row < c->rows; row++) {
        if (!csv_is(c, row, "status", "ok"))
            fail_msg("%s, row %zu: %s", bench, row, csv_cell(c, row, "reason"));
        row_holds(c, row, bench, rules);
    }
    csv_free(c);
}

void columns_run(const char *folder, const char *bench, const char *environment, const char *arguments,
                 const column_rule *rules)
{
    columns_hold(bench_rows(folder, bench, environment, arguments, EXIT_CODE_OK), bench, rules);
}

void columns_were_seen(const char *bench, const column_rule *rules)
{
    for (size_t i = 0; rules[i].name; i++) {
        if (rules[i].kind == DERIVED && !seen[i])
            fail_msg("%s: no row of this test has a value of %s", bench, rules[i].name);
        seen[i] = false;
    }
}

int place_of_largest(const char *numbers)
{
    double most = -INFINITY;
    int largest = -1, place = 0;
    for (char *end;; numbers = end, place++) {
        const double x = strtod(numbers, &end);
        if (end == numbers)
            return largest;
        if (x > most) {
            most = x;
            largest = place;
        }
    }
}
