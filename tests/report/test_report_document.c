/* SPDX-License-Identifier: MIT */
/* Documents and their Markdown, which leaves out what is folded. */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "plots/report/document.h"

static char *markdown_of(const document *d)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    doc_write(d, &markdown_writer, &(doc_output){.file = out, .folder = "."});
    fclose(out);
    return text;
}

static void expect_markdown(document *d, const char *wanted)
{
    OWNED char *text = markdown_of(d);
    assert_string_equal(text, wanted);
    doc_free(d);
}

TEST(texts_have_marks_of_the_writer)
{
    document *d = doc_create("box");
    doc_heading(d, 2, "Rows of b");
    doc_paragraph(d, "\3x_y\4 is 7 %");
    doc_more(d, ",\n\1a-b\2.");
    doc_bullet(d, "one\nline");
    doc_bullet(d, "\5a file\6a.csv\7");
    doc_note(d, "an aside");
    doc_figure(d, "f.svg", "f");
    doc_fold(d, "more"); /* which the page in HTML has */
    doc_paragraph(d, "hidden");
    doc_fold(d, "inside");
    doc_fold_end(d);
    doc_table(d);
    doc_fold_end(d);
    expect_markdown(d, "# box\n\n"
                       "## Rows of b\n\n"
                       "`x_y` is 7 %, **a-b**.\n\n"
                       "- one line\n- [a file](a.csv)\n\n"
                       "> an aside\n\n"
                       "![f](f.svg)\n\n");
}

/* Cells of other people's files: on GitHub, they are shown as they are. */
TEST(markup_in_texts_is_shown)
{
    static const struct {
        const char *text, *paragraph, *cell;
    } table[] = {{"<img src=x onerror=a>", "&lt;img src=x onerror=a>", "&lt;img src=x onerror=a>"},
                 {"</td>", "&lt;/td>", "&lt;/td>"},
                 {"<!-- ", "&lt;!-- ", "&lt;!-- "},
                 {"a < 5, b<5", "a < 5, b<5", "a < 5, b<5"},
                 {"&lt;b & c; R&D", "&amp;lt;b & c; R&D", "&amp;lt;b & c; R&D"},
                 {"a|b", "a|b", "a\\|b"},
                 {"a\\|b", "a\\\\|b", "a\\\\\\|b"},
                 {"`x` $y$", "\\`x\\` \\$y\\$", "\\`x\\` \\$y\\$"},
                 {"[x](javascript:a)", "\\[x\\](javascript:a)", "[x\\](javascript:a)"},
                 {"![x](y)", "![x\\](y)", "![x\\](y)"},
                 {"[x]: y", "\\[x\\]: y", "[x\\]: y"},
                 {"**a** 2 * 3 ~~b~~", "\\*\\*a\\*\\* 2 * 3 \\~\\~b\\~\\~", "\\*\\*a\\*\\* 2 * 3 \\~\\~b\\~\\~"},
                 {"_a_ fwd_ms", "\\_a\\_ fwd_ms", "\\_a\\_ fwd_ms"},
                 {"# a", "\\# a", "# a"},
                 {"- a", "\\- a", "- a"},
                 {"* a", "\\* a", "* a"},
                 {"> a", "\\> a", "> a"},
                 {"1. a", "1\\. a", "1. a"},
                 {"12) a", "12\\) a", "12) a"},
                 {"1.5 ms", "1.5 ms", "1.5 ms"},
                 {"a\n===", "a ===", "a ==="},
                 {"a\n---|---", "a ---|---", "a ---\\|---"},
                 {"=1+1", "\\=1+1", "=1+1"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        document *d = doc_create("");
        doc_paragraph(d, table[i].text);
        doc_table(d);
        doc_column(d, DOC_TEXT, "c");
        doc_row(d);
        doc_cell(d, table[i].text);
        OWNED char *wanted = xasprintf("%s\n\n| c |\n|---|\n| %s |\n\n", table[i].paragraph, table[i].cell);
        expect_markdown(d, wanted);
    }
}

TEST(nothing_ends_what_it_is_in)
{
    document *d = doc_create("");
    doc_paragraph(d, "\3a`<b>_c_\4 \5x](y\6a) (b.csv\7");
    doc_figure(d, "a)<b.svg", "x](y");
    expect_markdown(d, "`a'<b>_c_` [x\\](y](a%29%20%28b.csv)\n\n![x\\](y](a%29%3Cb.svg)\n\n");
}

static void add_row(document *d, size_t n, const char *const *cells)
{
    doc_row(d);
    for (size_t i = 0; i < n; i++)
        doc_cell(d, cells[i]);
}

TEST(tables_have_columns_of_a_kind)
{
    document *d = doc_create("");
    doc_table(d);
    doc_column(d, DOC_TEXT, "case");
    doc_column(d, DOC_NUMBER, "ms %");
    doc_column(d, DOC_NUMBER, "n");
    add_row(d, 3, (const char *const[]){"a|b", "1", "2"});
    add_row(d, 3, (const char *const[]){"c", NULL, "3"});
    doc_more(d, "+");
    add_row(d, 1, (const char *const[]){"d"});
    expect_markdown(d, "| case | ms % | n |\n|---|---:|---:|\n| a\\|b | 1 | 2 |\n| c | | 3+ |\n| d | | |\n\n");
}

TEST(parts_are_appended)
{
    document *d = doc_create("box"), *part = doc_create("");
    assert_true(doc_empty(part));
    doc_paragraph(d, "first");
    doc_paragraph(d, ""); /* for doc_more, which does not come */
    doc_heading(part, 3, "second");
    assert_false(doc_empty(part));
    doc_append(d, part);
    doc_append(d, doc_create(""));
    size_t at = 0;
    int level = 0;
    assert_string_equal(doc_next_heading(d, &at, &level), "second");
    assert_int_equal(level, 3);
    assert_null(doc_next_heading(d, &at, &level));
    expect_markdown(d, "# box\n\nfirst\n\n### second\n\n");
}

static void add_cell_too_many(document *d)
{
    doc_table(d);
    doc_column(d, DOC_TEXT, "one");
    add_row(d, 2, (const char *const[]){"a", "b"});
}

static void add_row_without_table(document *d)
{
    doc_paragraph(d, "a");
    doc_row(d);
}

static void add_more_to_nothing(document *d)
{
    doc_fold_end(d);
    doc_more(d, "lost");
}

TEST(misuse_stops_the_report)
{
    void (*const misuses[])(document *) = {add_cell_too_many, add_row_without_table, add_more_to_nothing};
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        const pid_t child = fork();
        if (child == 0) {
            freopen("/dev/null", "w", stderr);
            document *d = doc_create("");
            misuses[i](d);
            doc_free(d);
            _exit(EXIT_CODE_OK);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_FAILURE);
    }
}
