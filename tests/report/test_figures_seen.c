/* SPDX-License-Identifier: MIT */
/* Each figure of each committed folder, as librsvg shows it: a browser forgives what leaves a blank there. */
#include <sys/stat.h>

#include "tests/support/bench_run.h"
#include "tests/support/test.h"

/* Draws all figures that there are of a folder of results, whichever benches are built, and looks at them. */
static void expect_seen(const char *folder, const char *results)
{
    OWNED char *self = build_folder(), *bench = folder_path(folder, "bench_all"), *said = folder_path(folder, "said");
    file_write(bench,
               "#!/bin/sh\nprintf 'name\\tbench_all\\norder\\t1\\n'\nfor f in plots/figures/*.gp; do f=${f##*/}; "
               "printf 'figure\\t%s\\n' \"${f%.gp}\"; done\n");
    assert_int_equal(chmod(bench, 0777), 0);
    OWNED char *command = xasprintf("{ BENCHES='%s' REPORT='%s/report' sh plots/draw.sh 'results/%s' '%s/%s' && "
                                    "python3 tests/report/seen.py '%s/%s'/*.svg; } >'%s' 2>&1",
                                    folder, self, results, folder, results, folder, results, said);
    if (system(command) != 0)
        fail_msg("%s: %s", results, file_text(said));
}

TEST_IN_FOLDER(one_gpu)
{
    expect_seen(*state, "h200-x1");
}

TEST_IN_FOLDER(two_gpus)
{
    expect_seen(*state, "h200-x2");
}

/* Without `columnheaders`, a list whose columns are named in functions alone counts the header as record 0: all else moves by one. */
TEST(records_begin_behind_the_header)
{
    assert_int_not_equal(
        system("grep -l 'using 0:(' plots/figures/*.gp | xargs grep -L 'datafile columnheaders' | grep ."), 0);
}

/* A figure of white alone is found, and so is a file that is no SVG. */
TEST_IN_FOLDER(what_is_blank_is_found)
{
    static const char *const figures[] = {"<svg xmlns='http://www.w3.org/2000/svg' width='90' height='40'/>", "<svg"};
    OWNED char *path = folder_path(*state, "figure.svg"),
               *command = xasprintf("python3 tests/report/seen.py '%s' >/dev/null", path);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        file_write(path, figures[i]);
        assert_int_not_equal(system(command), 0);
    }
}

TESTS_NEED(system("(command -v gnuplot && command -v rsvg-convert && python3 -c 0) >/dev/null 2>&1") == 0)
