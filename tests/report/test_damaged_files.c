/* SPDX-License-Identifier: MIT */
/* Files of results that a spreadsheet, an editor or a full disk has changed: report, report --check and stepcmp say what of
 * them does not count, and none of them stops at a column that is not there. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/stat.h>

/* What `command`, in the folder of the build's programs, says on both streams. Caller frees. */
static char *said_by(const char *command, int wanted_code)
{
    OWNED char *build = build_folder(),
               *whole = xasprintf("PATH='%s':$(realpath \"${STEPBENCH_BIN:-.}\"):$PATH; { %s; } 2>&1", build, command);
    int code;
    char *said = command_text(whole, &code);
    if (code != wanted_code)
        fail_msg("%s: exit code %d, not %d: %s", command, code, wanted_code, said);
    return said;
}

static void expect_words(const char *of, const char *text, const char *edit, const char *words)
{
    if (!strstr(text, words))
        fail_msg("after %s, %s does not say '%s': %s", edit, of, words, text);
}

TEST_IN_FOLDER(what_does_not_count_is_said)
{
    static const struct {
        const char *edit, *words;
    } table[] = {
        {"sed 's/,/;/g'", "bench_flash.csv: no line counts, since cells are separated by semicolons"},
        {"tr , '\\t'", "bench_flash.csv: no line counts, since cells are separated by semicolons or tabs"},
        {"iconv -t UTF-16", "bench_flash.csv: no line counts, since it is UTF-16"},
        {"iconv -t UTF-16BE", "bench_flash.csv: no line counts, since it is UTF-16"},
        {"sed '1s/,seq,/,dtype,/'", "bench_flash.csv: no line counts, since two columns have the same name"},
        {"sed '1s/^/\"/'", "bench_flash.csv: no line counts, since the line with the names of the columns"},
        {"sed '3s/,/,\\x00/'", "bench_flash.csv: line 3 is torn"},
        {"sed '3s/,/,\\x1b/'", "bench_flash.csv: line 3 is torn"},
        {"sed '3s/,/,\"/'", "bench_flash.csv: line 3 is torn"},
        {"sed '3s/$/,more/'", "bench_flash.csv: line 3 is torn"},
        {"sed '3s/,[^,]*$//; 5s/,[^,]*$//'", "bench_flash.csv: 2 lines are torn and do not count; the first is line 3"},
        {"head -c 3000", "is torn"},
        {"sed 1q", "bench_flash.csv: no rows"},
        {"sed d", "bench_flash.csv: no rows"},
        {"sed '1s/^/\\xef\\xbb\\xbf/'", NULL},
        {"sed 's/$/\\r/'", NULL},
        {"tr '\\n' '\\r'", NULL}};
    OWNED char *dir = folder_path(*state, "box"), *good = folder_path(*state, "good"),
               *page = folder_path(dir, "report.md");
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(mkdir(good, 0777), 0);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *words = table[i].words;
        OWNED char *make =
            xasprintf("cp results/h200-x1/bench_flash.csv '%s'; cp results/h200-x1/bench_roofline.csv '%s'; "
                      "cp results/h200-x1/machine.csv '%s'; %s <results/h200-x1/bench_flash.csv >'%s/bench_flash.csv'",
                      good, dir, dir, table[i].edit, dir);
        OWNED char *report = xasprintf("report '%s'", dir), *check = xasprintf("report --check '%s'", dir);
        OWNED char *compare = xasprintf("stepcmp '%s' '%s' || true", good, dir);
        free(said_by(make, EXIT_CODE_OK));
        OWNED char *text = said_by(report, EXIT_CODE_OK), *written = file_text(page);
        const bool loss = words && strcmp(words, "bench_flash.csv: no rows") != 0;
        OWNED char *checked = said_by(check, words ? EXIT_CODE_GATE : EXIT_CODE_OK),
                   *compared = said_by(compare, EXIT_CODE_OK);
        if (words) {
            expect_words("report --check", checked, table[i].edit, words);
            expect_words("report.md", written, table[i].edit,
                         strncmp(words, "bench", 5) == 0 ? strchr(words, ':') : words);
        } else if (strstr(text, " count") || strstr(compared, "not count") || !strstr(written, "flash_forward")) {
            fail_msg("after %s, something is said to be lost: %s%s", table[i].edit, text, compared);
        }
        if (loss) {
            expect_words("report", text, table[i].edit, words);
            expect_words("stepcmp", compared, table[i].edit, words);
        }
    }
}

/* What is there under the name of a file and can't be read is no absent file; nothing waits for a FIFO or reads a device. */
TEST_IN_FOLDER(what_is_no_file_is_said)
{
    static const char *const table[][2] = {{"mkdir", "no plain file"},
                                           {"mkfifo", "no plain file"},
                                           {"ln -s /dev/zero", "no plain file"},
                                           {"ln -s /nowhere", "be read"}};
    static const char *const files[] = {"bench_flash.csv", "machine.csv"};
    for (size_t i = 0; i < 2 * sizeof table / sizeof *table; i++) {
        const char *file = files[i % 2], *is = table[i / 2][0], *words = table[i / 2][1];
        OWNED char *make = xasprintf("cd '%s' && rm -rf box good && mkdir box good && here=$PWD && cd - >/dev/null && "
                                     "cp results/h200-x1/bench_[fr]*.csv results/h200-x1/machine.csv \"$here/good\" && "
                                     "cp \"$here\"/good/* \"$here/box\" && cd \"$here/box\" && rm %s && %s %s",
                                     (char *)*state, file, is, file),
                   *in = xasprintf("cd '%s' && timeout 60", (char *)*state), *report = xasprintf("%s report box", in),
                   *check = xasprintf("%s report --check box", in),
                   *compare = xasprintf("%s stepcmp good box || [ $? = 77 ]", in), *what = xasprintf("%s %s", is, file);
        free(said_by(make, EXIT_CODE_OK));
        OWNED char *said = said_by(report, EXIT_CODE_OK), *checked = said_by(check, EXIT_CODE_GATE),
                   *compared = said_by(compare, EXIT_CODE_OK);
        expect_words("report", said, what, file);
        expect_words("report", said, what, words);
        expect_words("report", said, what, i % 2 ? "GPU: not known: bf16 " : "1 x NVIDIA H200: bf16 ");
        expect_words("report --check", checked, what, words);
        expect_words("stepcmp", compared, what, i % 2 ? "" : words);
    }
}

/* Tables that the README shows, and the page of several folders, lose rows as a report does. */
TEST_IN_FOLDER(what_tables_of_several_lose_is_said)
{
    const char *dir = *state;
    OWNED char *make = xasprintf("mkdir '%s/box'; cp results/h200-x1/bench_roofline.csv results/h200-x1/machine.csv "
                                 "README.md '%s/box'; sed 's/,/;/g' results/h200-x1/bench_flash.csv "
                                 ">'%s/box/bench_flash.csv'",
                                 dir, dir, dir);
    OWNED char *readme = xasprintf("report --readme '%s/box' '%s/box/README.md'", dir, dir),
               *all = xasprintf("report --all '%s/box' '%s/box'", dir, dir);
    static const char words[] = "box/bench_flash.csv: no line counts, since cells are separated by semicolons";
    free(said_by(make, EXIT_CODE_OK));
    OWNED char *of_readme = said_by(readme, EXIT_CODE_OK), *of_all = said_by(all, EXIT_CODE_OK);
    expect_words("report --readme", of_readme, "semicolons", words);
    expect_words("report --all", of_all, "semicolons", words);
}

TEST_IN_FOLDER(what_cannot_be_checked_is_refused)
{
    free(said_by("report --check no/folder", EXIT_CODE_USAGE));
    OWNED char *none = said_by("report --readme results/h100-x1 no/README.md", EXIT_CODE_USAGE),
               *other = said_by("report --readme results/h100-x1 LICENSE", EXIT_CODE_USAGE);
    expect_words("report --readme", none, "no file", "report: no/README.md: No such file or directory\n");
    expect_words("report --readme", other, "no markers", "report: LICENSE has no lines '<!-- begin table -->'");
    free(said_by("report --check results/h100-x1 bench_flash:two", EXIT_CODE_USAGE));
}
