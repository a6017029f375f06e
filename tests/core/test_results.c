/* SPDX-License-Identifier: MIT */
/* Rows with what machine.csv says of their runs, and rows of another schema. */
#include "tests/support/test.h"

#include "common/core/results.h"

TEST_IN_FOLDER(rows_have_what_holds_for_their_run)
{
    static const char *const keys[] = {"device", "machine", "note", NULL};
    char *path = folder_path(*state, "bench_x.csv"), *machine = results_machine(path), *lines = NULL;
    size_t bytes;
    for (int run = 1; run <= 2; run++) {
        FILE *out = text_stream(&lines, &bytes);
        results_fact(out, run == 1 ? "r-1" : "r-2", "device", run == 1 ? "cuda" : "cpu");
        results_fact(out, run == 1 ? "r-1" : "r-2", "note", run == 1 ? "a, \"b\"\nc" : "");
        results_fact(out, run == 1 ? "r-1" : "r-2", "machine", "not the row's");
        fclose(out);
        results_facts_append(machine, lines);
        free(lines);
    }
    file_write(path, "run_id,machine,n\nr-2,own,1\nr-1,own,2\nr-1,own,3\nr-3,own,4\nr-1,own,5\n");
    csv *c = csv_read(path);
    results_join(c, machine, keys);
    static const char *const wanted[][3] = {
        {"cpu", ""}, {"cuda", "a, \"b\" c"}, {"cuda", "a, \"b\" c"}, {"", ""}, {"cuda", "a, \"b\" c"}};
    assert_int_equal(c->rows, 5);
    assert_int_equal(c->columns, 5);
    for (size_t i = 0; i < c->rows; i++) {
        assert_string_equal(csv_cell(c, i, "device"), wanted[i][0]);
        assert_string_equal(csv_cell(c, i, "note"), wanted[i][1]);
        assert_string_equal(csv_cell(c, i, "machine"), "own"); /* a column of the file stays */
        assert_true(csv_real(c, i, "n") == (double)i + 1);
    }
    csv_free(c);
    c = csv_read(path); /* without machine.csv nothing is known */
    results_join(c, "/nowhere/machine.csv", keys);
    assert_string_equal(csv_cell(c, 1, "device"), "");
    csv_free(c);
    free(machine);
    free(path);
}

/* What a machine that went down left half written does not take the next run's first line with it. */
TEST_IN_FOLDER(a_torn_fact_stays_alone)
{
    OWNED char *machine = folder_path(*state, "machine.csv");
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,device,cpu\nr-1,command,\"./bench");
    results_facts_append(machine, "r-2,campaign,c-2\n");
    results_facts_append(machine, "r-3,campaign,c-3\n");
    OWNED_CSV csv *c = csv_read(machine);
    assert_int_equal(c->rows, 3);
    assert_string_equal(results_fact_find(c, "r-2", "campaign"), "c-2");
    assert_string_equal(results_fact_find(c, "r-3", "campaign"), "c-3");
}

TEST(another_schema_is_refused)
{
    static const struct {
        const char *text, *why; /* NULL: it is read */
    } table[] = {
        {"schema,a\n3,1\n3,2\n", NULL},
        {"a\n1\n", NULL},
        {"schema,a\n", NULL},
        {"schema,a\n3,1\n2,1\n", "x.csv has rows of schema 2, and this version reads schema 3: measure them anew"},
        {"schema,a\n4,1\n", "x.csv has rows of schema 4, and this version reads schema 3: a newer version reads them"},
        {"schema,a\n`x`,1\n", "x.csv has rows of schema nan, and this version reads schema 3: measure them anew"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        OWNED_CSV csv *c = csv_parse(table[i].text);
        OWNED char *why = results_refusal(c, "x.csv");
        if (table[i].why)
            assert_string_equal(why, table[i].why);
        else
            assert_null(why);
    }
    assert_null(results_refusal(NULL, "x.csv"));
}
