/* SPDX-License-Identifier: MIT */
/* The CSV reader: RFC 4180, comments, torn rows; and that quoting and reading are inverse. */
#include "tests/support/test.h"

#include <errno.h>

static csv *read_text(void **state, const char *text)
{
    OWNED char *path = folder_path(*state, "t.csv");
    file_write(path, text);
    csv *c = csv_read(path);
    assert_non_null(c);
    return c;
}

TEST(plain)
{
    OWNED_CSV csv *c = read_text(state, "a,b,c\n1,x,2.5\n-3,,nan\n");
    assert_int_equal(c->rows, 2);
    assert_int_equal(c->columns, 3);
    assert_int_equal(c->dropped, 0);
    assert_int_equal(csv_column(c, "c"), 2);
    assert_int_equal(csv_column(c, "d"), -1);
    assert_string_equal(csv_cell(c, 0, "b"), "x");
    assert_string_equal(csv_cell(c, 1, "b"), "");
    assert_string_equal(csv_cell(c, 0, "d"), "");
    assert_true(csv_is(c, 1, "b", "") && !csv_is(c, 1, "d", "") && csv_is(c, 0, "b", "x"));
    assert_true(csv_real(c, 0, "c") == 2.5);
    assert_true(csv_real(c, 1, "a") == -3);
    assert_true(isnan(csv_real(c, 1, "b")));
    assert_true(isnan(csv_real(c, 1, "c")));
    assert_true(isnan(csv_real(c, 0, "b")));
    assert_true(isnan(csv_real(c, 0, "d")));
}

TEST(torn_lines_are_named)
{
    OWNED_CSV csv *c = read_text(state, "# run\n\na,b\n1,\"two\nlines\"\n\n3\n4,5\n6,7,8\n9,\"no end\n");
    assert_int_equal(c->rows, 2);
    assert_int_equal(c->dropped, 3);
    assert_int_equal(c->first_dropped, 7);
}

/* What spreadsheets, editors and broken disks make of a file: it can be read, or what cannot is named. */
TEST(damaged_files)
{
#define FILE_OF(text) text, sizeof text - 1
    static const struct {
        const char *text;
        size_t bytes, rows;
        const char *lost;
    } table[] = {{FILE_OF("\xef\xbb\xbf"
                          "a,b\n1,2\n"),
                  1, NULL},
                 {FILE_OF("a,b\r\n1,2\r\n\r\n3,\"4\"\r\n"), 2, NULL},
                 {FILE_OF("# mac\ra,b\r1,2\r\r3,4\r"), 2, NULL},
                 {FILE_OF("a,b\n1,2\n3,4"), 2, NULL},
                 {FILE_OF("a,b\n"), 0, NULL},
                 {FILE_OF("a;b\n1;2,5\n"), 0, "no line counts, since cells are separated by semicolons"},
                 {FILE_OF("a\tb\n1\t2\n"), 0, "no line counts, since cells are separated by semicolons or tabs"},
                 {FILE_OF("\xff\xfe"
                          "a\0,\0b\0\n\0"),
                  0, "UTF-16"},
                 {FILE_OF("\xfe\xff\0a\0,\0b\0\n"), 0, "UTF-16"},
                 {FILE_OF("a\0,\0b\0\n\0"), 0, "UTF-16"},
                 {FILE_OF("a,b\n1,\0\n3,4\n"), 1, "line 2 is torn"},
                 {FILE_OF("a,b\n1,\x1b[2J\n3,4\n"), 1, "line 2 is torn"},
                 {FILE_OF("a,b\n1,2\n3,\"\x7f\"\n"), 1, "line 3 is torn"},
                 {FILE_OF("a,b\n1,\"x\n3,4\n5,6\n"), 2, "line 2 is torn"},
                 {FILE_OF("a,b\n1,\"x\n3,\"y\n5,6\n"), 1, "2 lines are torn and do not count; the first is line 2"},
                 {FILE_OF("a,b\n1,\"x\"y\n3,4\n"), 1, "line 2 is torn"},
                 {FILE_OF("a,b\r1,2,3\r3,4\r"), 1, "line 2 is torn"},
                 {FILE_OF("a,b,a\n1,2,3\n"), 0, "two columns have the same name"},
                 {FILE_OF("\"a,b\n1,2\n"), 0, "the line with the names of the columns is torn"}};
    OWNED char *path = folder_path(*state, "damaged.csv");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        FILE *out = fopen(path, "wb");
        assert_int_equal(fwrite(table[i].text, 1, table[i].bytes, out), table[i].bytes);
        assert_int_equal(fclose(out), 0);
        OWNED_CSV csv *c = csv_read(path);
        OWNED char *lost = csv_lost(c);
        const bool said = table[i].lost ? lost && strstr(lost, table[i].lost) : !lost;
        if (!said || c->rows != table[i].rows)
            fail_msg("file %zu: %zu rows, %s", i, c->rows, lost ? lost : "nothing lost");
        if (!c->problem)
            assert_string_equal(c->header[0], "a");
    }
}

TEST(quoted)
{
    OWNED_CSV csv *c = read_text(state, "\"a\",b\r\n\"x,\"\"y\"\"\",\"two\nlines\"\r\n\"\",\"z\"\r\n");
    assert_int_equal(c->rows, 2);
    assert_string_equal(c->header[0], "a");
    assert_string_equal(c->header[1], "b");
    assert_string_equal(csv_cell(c, 0, "a"), "x,\"y\"");
    assert_string_equal(csv_cell(c, 0, "b"), "two\nlines");
    assert_string_equal(csv_cell(c, 1, "a"), "");
    assert_string_equal(csv_cell(c, 1, "b"), "z");
}

TEST(comments_and_empty_lines)
{
    OWNED_CSV csv *c = read_text(state, "# gpu=x\n\na,b\n# one, two\n1,2\n\r\n\n3,4 # no comment\n#");
    assert_int_equal(c->rows, 2);
    assert_int_equal(c->dropped, 0);
    assert_string_equal(csv_cell(c, 1, "b"), "4 # no comment");
}

TEST(torn_rows)
{
    static const struct {
        const char *tail;
        size_t rows, dropped;
    } table[] = {{"3,4,5\n", 2, 0},   {"3,4,5", 2, 0},        {"3,4", 1, 1},
                 {"3", 1, 1},         {"3,4,\"5", 1, 1},      {"3,\"4\"\"", 1, 1},
                 {"3,4,\"5\"", 2, 0}, {"3,4\n5,6,7\n", 2, 1}, {"1,2,3,4\n", 1, 1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[64];
        snprintf(text, sizeof text, "a,b,c\n0,1,2\n%s", table[i].tail);
        OWNED_CSV csv *c = read_text(state, text);
        assert_int_equal(c->rows, table[i].rows);
        assert_int_equal(c->dropped, table[i].dropped);
    }
}

TEST(empty_and_absent)
{
    csv *c = read_text(state, "");
    assert_int_equal(c->columns, 0);
    assert_int_equal(c->rows, 0);
    csv_free(c);
    c = read_text(state, "a,b");
    assert_int_equal(c->columns, 2);
    assert_int_equal(c->rows, 0);
    csv_free(c);
    csv_free(NULL);
    OWNED char *path = folder_path(*state, "absent.csv");
    assert_null(csv_read(path));
    assert_int_equal(errno, ENOENT);
}

TEST(long_file)
{
    enum { ROWS = 20000 };
    char *text = xmalloc(32 * ROWS), *at = text + sprintf(text, "i,square\n");
    for (int i = 0; i < ROWS; i++)
        at += sprintf(at, "%d,%.9g\n", i, (double)i * i);
    OWNED_CSV csv *c = read_text(state, text);
    free(text);
    assert_int_equal(c->rows, ROWS);
    assert_true(csv_real(c, ROWS - 1, "square") == (ROWS - 1.0) * (ROWS - 1.0));
}

TEST(quoting)
{
    static const char *const texts[] = {"", "plain", "a,b", "say \"no\"", "\"", "two\nlines", "#first", "a # b", " x "};
    OWNED char *cleaned = csv_quoted("\x1b[2J"), *comma = csv_quoted("a,b");
    assert_string_equal(cleaned, "?[2J");
    assert_string_equal(comma, "\"a,b\"");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[128];
        OWNED char *cell = csv_quoted(texts[i]);
        snprintf(text, sizeof text, "a,b\n%s,1\n", cell);
        OWNED_CSV csv *c = read_text(state, text);
        assert_int_equal(c->rows, 1);
        assert_string_equal(csv_cell(c, 0, "a"), texts[i]);
    }
}

TESTS_WITH(folder_create, folder_remove)
