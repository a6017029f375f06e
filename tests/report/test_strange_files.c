/* SPDX-License-Identifier: MIT */
/* Folders of results that others send. Cells are hostile to a shell, to gnuplot, Markdown, HTML, a terminal or printf: nothing is
 * executed, nothing of them stands raw in a page, no program crashes. Columns are missing: no program crashes. The rows are
 * every few ones of the committed files. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <glob.h>
#include <sys/stat.h>

#include "common/compare/compare.h"

/* %s is the path of a file that only a command would make. Each is tried with quotes of the shell and of gnuplot. */
static const char *const printable[] = {"x';system(\">%s\");y='",
                                        "x\";system(\">%s\");y=\"",
                                        "'.system(\">%s\").'",
                                        "x/;1e>%s;s/q",
                                        "x/w%s",
                                        "`>%s`",
                                        "$(>%s)",
                                        ";>%s;",
                                        "'\n>%s\n'",
                                        "x\n!>%s\nsystem('>%s')\n",
                                        "<>%s",
                                        "|>%s",
                                        "@x",
                                        "=cmd|'>%s'!A1",
                                        "=1+1",
                                        "%%s%%s%%n%%s",
                                        "../../../../../../etc/passwd",
                                        "/dev/stdin",
                                        "-e",
                                        "--axes",
                                        "*",
                                        "<img src=x onerror=alert(1)>",
                                        "<script>alert(1)</script>",
                                        "</summary></details><script>alert(1)</script>",
                                        "{/\"><script>alert(1)</script><x x}",
                                        "\"'><img src=x onerror=alert(1)>",
                                        "|[x](javascript:alert(1))|`**",
                                        "a\\'b\\",
                                        "\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x99\x82",
                                        "\xff\xfe",
                                        "",
                                        "nan",
                                        "-1e308",
                                        "99999999999999999999999",
                                        "1 2 3",
                                        "a=b"};
static const char *const control[] = {"\x1b[2J\x1b]0;x\x07", "\x01strong\x02", "\x05x\x06javascript:alert(1)\x07",
                                      "a\x7f"};
#define COUNT(list) (sizeof list / sizeof *list)
enum { LONG = 5000, ROWS = 40 };

typedef struct source {
    char *name; /* in the folder */
    csv *file;
} source;

/* How a copy departs from its source: of `of` neighbouring columns, the one whose turn it is has another name, or cells of a list. */
typedef struct change {
    bool renamed;
    const char *const *cells;
    size_t cell_count, turn, of;
    const char *canary;
} change;
/* The files of a committed folder; the last one has no name. Caller frees. */
static source *sources_open(const char *dir)
{
    static const char *const patterns[] = {"*.csv", "profile/*.csv", "memory/*512*train*.csv"};
    glob_t found = {0};
    for (size_t i = 0; i < COUNT(patterns); i++) {
        OWNED char *pattern = folder_path(dir, patterns[i]);
        glob(pattern, i ? GLOB_APPEND : 0, NULL, &found);
    }
    assert_true(found.gl_pathc > 10);
    source *list = xcalloc(found.gl_pathc + 1, sizeof *list);
    for (size_t i = 0; i < found.gl_pathc; i++)
        list[i] = (source){xstrdup(found.gl_pathv[i] + strlen(dir) + 1), csv_read(found.gl_pathv[i])};
    globfree(&found);
    return list;
}

static void sources_free(source *list)
{
    for (source *s = list; s->name; s++) {
        csv_free(s->file);
        free(s->name);
    }
    free(list);
}

static void put(FILE *out, const char *text, bool last)
{
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fprintf(out, "\"%c", last ? '\n' : ',');
}

/* Every other cell of a column whose turn it is; one in many is long. */
static char *changed(const change *c, size_t row, size_t column, const char *text)
{
    if (!c->cells || (row + column) % 2 || column % c->of != c->turn)
        return xstrdup(text);
    if (row % 16 == 15) {
        char *filler = xmalloc(LONG + 1);
        memset(filler, 'x', LONG);
        filler[LONG] = '\0';
        return filler;
    }
    return xasprintf(c->cells[(row / 2 + column) % c->cell_count], c->canary, c->canary);
}

/* Up to ROWS rows of each source. */
static void write_copies(const char *dir, const source *list, const change *how)
{
    for (size_t f = 0; list[f].name; f++) {
        const csv *s = list[f].file;
        change c = *how;
        c.turn = (how->turn + f) % how->of;
        OWNED char *path = folder_path(dir, list[f].name);
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        for (size_t k = 0; k < s->columns; k++) {
            const bool renamed = how->renamed && k % c.of == c.turn;
            OWNED char *name = xasprintf("%s%s", renamed ? "x_" : "", s->header[k]);
            put(out, name, k + 1 == s->columns);
        }
        const size_t step = s->rows / ROWS + 1;
        for (size_t r = 0; r < s->rows; r += step)
            for (size_t k = 0; k < s->columns; k++) {
                const char *text = s->cells[r * s->columns + k];
                const bool schema = strcmp(s->header[k], "schema") == 0; /* with another one nothing is read */
                OWNED char *cell = schema ? xstrdup(text) : changed(&c, r / step, k, text);
                put(out, cell, k + 1 == s->columns);
            }
        assert_int_equal(fclose(out), 0);
    }
}

/* Fails the test when a program dies of a signal or a sanitizer speaks. Gives what was said; caller frees. */
static char *survives(const char *command)
{
    OWNED char *build = build_folder(),
               *whole = xasprintf("PATH='%s':$(realpath \"${STEPBENCH_BIN:-.}\"):$PATH; { %s; } 2>&1", build, command);
    int code;
    char *said = command_text(whole, &code);
    if (code < 0 || code > 77 || strstr(said, "Sanitizer") || strstr(said, "runtime error:"))
        fail_msg("%s: exit code %d: %s", command, code, said);
    return said;
}

static void has_none_of(const char *what, const char *text, const char *link)
{
    const char *const raw[] = {"<img src=x", "<script>alert", link};
    for (size_t i = 0; i < COUNT(raw); i++)
        if (strstr(text, raw[i]))
            fail_msg("%s has '%s': %.300s", what, raw[i], strstr(text, raw[i]));
}

/* Blanks in place of Markdown's code, in which nothing is markup, and of brackets in a summary, which is HTML. */
static void hide_code(char *text)
{
    bool fenced = false;
    for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const bool fence = strncmp(line, "```", 3) == 0;
        fenced ^= fence;
        const bool summary = strncmp(line, "<details>", 9) == 0;
        bool code = fenced || fence;
        for (char *c = line; *c && *c != '\n'; c++) {
            if (*c == '`' && !fenced && !fence && !summary && (code || c == line || c[-1] != '\\'))
                code = !code;
            if (code || (summary && *c == '['))
                *c = ' ';
        }
    }
}

static void pages_have_nothing_raw(const char *dir)
{
    static const char *const names[] = {"report.md",     "report.html",     "report-all.md", "report-all.html",
                                        "report-cpu.md", "report-cpu.html", "compare.md"};
    for (size_t i = 0; i < COUNT(names); i++) {
        OWNED char *path = folder_path(dir, names[i]), *text = access(path, F_OK) == 0 ? file_text(path) : xstrdup("");
        const bool markdown = strstr(names[i], ".md");
        if (markdown)
            hide_code(text);
        has_none_of(path, text, markdown ? "[x](javascript" : "href=\"javascript");
    }
}

static char *make_folder(const char *root, const char *name)
{
    char *dir = folder_path(root, name);
    static const char *const folders[] = {"", "profile", "memory"};
    for (size_t i = 0; i < COUNT(folders); i++) {
        OWNED char *path = folder_path(dir, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    return dir;
}

/* A recording says its label and its sums in a comment. */
static void write_timeline(const char *dir, const char *label)
{
    OWNED char *command = xasprintf(
                   "mkdir -p '%s/timeline' && cp results/h200-x2/timeline/naive.csv '%s/timeline/naive.csv'", dir, dir),
               *path = xasprintf("%s/timeline/naive.csv", dir);
    assert_int_equal(system(command), 0);
    OWNED char *text = file_text(path), *line = xstrdup(label);
    for (char *c = line; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    OWNED char *whole = xasprintf("# rank 0 of %s: 12.5 ms; compute %s 6 ms; idle 1 ms\n%s", line, line, text);
    file_write(path, whole);
}

/* In place of benches: one that names every figure. */
static void write_bench(const char *root)
{
    OWNED char *bin = folder_path(root, "bin");
    assert_int_equal(mkdir(bin, 0777), 0);
    folder_program(bin, "bench_all",
                   "#!/bin/sh\nprintf 'order\\t1\\n'\nfor f in plots/figures/*.gp; do f=${f##*/}\n"
                   "printf 'figure\\t%s\\n' \"${f%.gp}\"; done\n");
}

TEST_IN_FOLDER(no_cell_does_anything)
{
    enum { TURNS = 4 };
    OWNED char *canary = folder_path(*state, "canary"), *root = xasprintf("%s/results", (char *)*state);
    assert_int_equal(mkdir(root, 0777), 0);
    source *sources[2] = {sources_open("results/h200-x1"), sources_open("results/h200-x2")};
    OWNED char *sound = make_folder(root, "sound"), *dir = make_folder(root, "box");
    write_copies(sound, sources[0], &(change){.of = 1});
    write_bench(*state);
    const bool gnuplot = system("command -v gnuplot >/dev/null 2>&1") == 0;
    for (size_t turn = 0; turn <= TURNS; turn++) {
        const bool last = turn == TURNS;
        const source *list = sources[turn % 2];
        write_copies(dir, list,
                     &(change){.cells = last ? control : printable,
                               .cell_count = last ? COUNT(control) : COUNT(printable),
                               .turn = turn,
                               .of = TURNS,
                               .canary = canary});
        OWNED char *label = xasprintf(printable[turn], canary, canary);
        write_timeline(dir, label);
        OWNED char *command =
            xasprintf("cd '%s' && lives() { \"$@\"; [ $? -lt 78 ] || exit 99; }; lives report box; lives "
                      "report --all . box sound; lives report "
                      "--check box; lives stepcmp sound box; lives stepcmp --format markdown box sound "
                      ">compare.md; lives stepcmp "
                      "--format csv sound box; lives report --sql box 'SELECT * FROM bench_flash' >/dev/null",
                      root);
        OWNED char *said = survives(command);
        assert_null(strchr(said, '\x1b')); /* which a terminal obeys */
        pages_have_nothing_raw(dir);
        pages_have_nothing_raw(root);
        if (gnuplot && turn < 2) {
            OWNED char *drawing = xasprintf(
                "BENCHES='%s/bin' REPORT=$(command -v report) sh plots/draw.sh '%s' '%s/plots' || [ $? = 1 ]; "
                "! grep -l '<script\\|onerror=' '%s'/plots/*.svg",
                (char *)*state, dir, (char *)*state, (char *)*state);
            OWNED char *drawn = survives(drawing);
            if (!strstr(drawn, " figures in ") || strstr(drawn, "\n0 figures in "))
                fail_msg("nothing was drawn: %s", drawn);
            assert_null(strchr(drawn, '\x1b'));
        }
        OWNED char *baseline = folder_path(dir, "bench_flash.csv"), *rows = folder_path(sound, "bench_flash.csv"),
                   *row = file_text(rows);
        *(strchr(strchr(row, '\n') + 1, '\n') + 1) = '\0';
        free(compare_row(baseline, row, "/nowhere/machine.csv"));
        if (access(canary, F_OK) == 0)
            fail_msg("a cell of turn %zu was run", turn);
    }
    sources_free(sources[0]);
    sources_free(sources[1]);
}

/* Each column of each file in turn, with a few others far from it; under a sanitizer, where a turn takes seconds, with more. */
TEST_IN_FOLDER(any_column_may_be_missing)
{
#ifdef __SANITIZE_ADDRESS__
    enum { TURNS = 8 };
#else
    enum { TURNS = 24 };
#endif
    OWNED char *root = xasprintf("%s/results", (char *)*state);
    assert_int_equal(mkdir(root, 0777), 0);
    OWNED char *dir = make_folder(root, "box"), *sound = make_folder(root, "sound");
    static const char *const folders[] = {"results/h200-x1", "results/h200-x2"};
    for (size_t k = 0; k < COUNT(folders); k++) {
        source *list = sources_open(folders[k]);
        write_copies(sound, list, &(change){.of = 1});
        for (size_t turn = 0; turn < TURNS; turn++) {
            write_copies(dir, list, &(change){.renamed = true, .turn = turn, .of = TURNS});
            OWNED char *command = xasprintf(
                "report '%s' && { report --check '%s' || [ $? = 4 ]; } && { stepcmp '%s' '%s' || [ $? = 77 ]; }", dir,
                dir, sound, dir);
            free(survives(command));
        }
        sources_free(list);
    }
}
