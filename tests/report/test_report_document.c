/* SPDX-License-Identifier: MIT */
/* Documents and their Markdown; and that the report's sections leave all markup to the writer. */
#include "tests/support/test.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/report/document.h"

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
    char *text = markdown_of(d);
    assert_string_equal(text, wanted);
    free(text);
    doc_free(d);
}

static void texts_have_marks_of_the_writer(void **state)
{
    (void)state;
    document *d = doc_create("box");
    doc_heading(d, 2, "Rows of %s", "b");
    doc_paragraph(d, "%s is %d %%", code("x_%c", 'y'), 7);
    doc_more(d, ",\n%s.", strong("a%sb", "-"));
    doc_bullet(d, "one\nline");
    doc_bullet(d, "%s", link_to("a file", "%s.csv", "a"));
    doc_note(d, "an aside");
    doc_preformatted(d, "a\n  b");
    doc_figure(d, "f.svg", "f", "What it shows.");
    doc_fold(d, "more");
    doc_fold_end(d);
    expect_markdown(d, "# box\n\n"
                       "## Rows of b\n\n"
                       "`x_y` is 7 %,\n**a-b**.\n\n"
                       "- one line\n- [a file](a.csv)\n\n"
                       "> an aside\n\n"
                       "```\na\n  b\n```\n\n"
                       "![f](f.svg)\n\nWhat it shows.\n\n"
                       "<details><summary>more</summary>\n\n</details>\n\n");
}

/* Cells of other people's files: on GitHub, they are shown as they are. */
static void markup_in_texts_is_shown(void **state)
{
    (void)state;
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
                 {"a\n===", "a\n\\===", "a ==="},
                 {"a\n---|---", "a\n\\---|---", "a ---\\|---"},
                 {"=1+1", "\\=1+1", "=1+1"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        document *d = doc_create("");
        doc_paragraph(d, "%s", table[i].text);
        doc_table(d);
        doc_columns(d, DOC_TEXT, "c", NULL);
        doc_row(d, table[i].text, NULL);
        char *wanted = xasprintf("%s\n\n| c |\n|---|\n| %s |\n\n", table[i].paragraph, table[i].cell);
        expect_markdown(d, wanted);
        free(wanted);
    }
}

static void nothing_ends_what_it_is_in(void **state)
{
    (void)state;
    document *d = doc_create("");
    doc_paragraph(d, "%s %s", code("a`<b>_c_"), link_to("x](y", "a) (b.csv"));
    doc_preformatted(d, "a\n````\nb");
    doc_figure(d, "a)<b.svg", "x](y", "");
    doc_fold(d, "%s", "</summary>\n\n<script>");
    doc_fold_end(d);
    expect_markdown(d, "`a'<b>_c_` [x\\](y](a%29%20%28b.csv)\n\n`````\na\n````\nb\n`````\n\n![x\\](y](a%29%3Cb.svg)\n\n"
                       "<details><summary>&lt;/summary>  &lt;script></summary>\n\n</details>\n\n");
}

static void tables_have_columns_of_a_kind(void **state)
{
    (void)state;
    document *d = doc_create("");
    doc_table(d);
    doc_columns(d, DOC_TEXT, "case", NULL);
    doc_column(d, DOC_NUMBER, "%s %%", "ms");
    doc_columns(d, DOC_NUMBER, "n", NULL);
    doc_row(d, "a|b", "1", "2", NULL);
    doc_row(d, "c", NULL);
    doc_blank(d);
    doc_cell(d, "%d", 3);
    doc_more(d, "+");
    doc_row(d, "d", NULL);
    expect_markdown(d, "| case | ms % | n |\n|---|---:|---:|\n| a\\|b | 1 | 2 |\n| c | | 3+ |\n| d | | |\n\n");
}

static void parts_are_appended(void **state)
{
    (void)state;
    document *d = doc_create("box"), *part = doc_create("");
    assert_true(doc_empty(part));
    doc_paragraph(d, "first");
    doc_paragraph(d, "%s", ""); /* for doc_more, which does not come */
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
    doc_columns(d, DOC_TEXT, "one", NULL);
    doc_row(d, "a", "b", NULL);
}

static void add_row_without_table(document *d)
{
    doc_paragraph(d, "a");
    doc_row(d, "b", NULL);
}

static void add_more_to_nothing(document *d)
{
    doc_fold_end(d);
    doc_more(d, "lost");
}

static void misuse_stops_the_report(void **state)
{
    (void)state;
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

/* ---- sections ---- */

static const char *const writers[] = {"fprintf(", "fputs(", "fputc(", "fwrite(", "text_stream("};
static const char *const markup[] = {"|", "**", "`", "##", "](", "<details", "---"};

static const char *found_in(const char *text, size_t n, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memmem(text, n, list[i], strlen(list[i])))
            return list[i];
    return NULL;
}

/* What a section may not have: a call that writes to a file, or markup in a string; NULL when it has neither. */
static const char *breach_of(const char *source)
{
    const size_t callers = sizeof writers / sizeof *writers, marks = sizeof markup / sizeof *markup;
    for (const char *at = source; *at;) {
        const char *end = at + 1, *breach = NULL;
        if (strncmp(at, "/*", 2) == 0) {
            end = strstr(at, "*/");
        } else if (*at == '"') {
            while (*end && *end != '"')
                end += *end == '\\' ? 2 : 1;
            breach = found_in(at, (size_t)(end - at), markup, marks);
            end++;
        } else {
            end = at + strcspn(at, "/\"");
            end = end == at ? at + 1 : end;
            breach = found_in(at, (size_t)(end - at), writers, callers);
        }
        if (breach)
            return breach;
        at = end;
    }
    return NULL;
}

static void breaches_are_found(void **state)
{
    (void)state;
    assert_string_equal(breach_of("int a; fprintf(out, \"x\");"), "fprintf(");
    assert_string_equal(breach_of("f(\"a\"); fputs(text, out);"), "fputs(");
    assert_string_equal(breach_of("doc_more(doc, \"| %s\");"), "|");
    assert_string_equal(breach_of("doc_more(doc, \"a \\\" \" \"**b**\");"), "**");
    assert_null(breach_of("/* of `a` | b, \"**\" */ a = b || c | d; doc_more(doc, \"a - b\");"));
}

static void sections_have_no_markup(void **state)
{
    (void)state;
    glob_t found;
    assert_int_equal(glob("common/report/sections/*.c", 0, NULL, &found), 0);
    assert_int_equal(glob("common/report/sections/*/*.c", GLOB_APPEND, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *source = file_text(found.gl_pathv[i]);
        const char *breach = breach_of(source);
        if (breach)
            fail_msg("%s has '%s': a section adds to the document, and the writer has the markup", found.gl_pathv[i],
                     breach);
        free(source);
    }
    assert_true(found.gl_pathc > 10);
    globfree(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_have_marks_of_the_writer),
                                       cmocka_unit_test(tables_have_columns_of_a_kind),
                                       cmocka_unit_test(markup_in_texts_is_shown),
                                       cmocka_unit_test(nothing_ends_what_it_is_in),
                                       cmocka_unit_test(parts_are_appended),
                                       cmocka_unit_test(misuse_stops_the_report),
                                       cmocka_unit_test(breaches_are_found),
                                       cmocka_unit_test(sections_have_no_markup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
