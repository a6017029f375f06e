/* SPDX-License-Identifier: MIT */
/* common/build/results.sh: what is packed comes out as it was; of a stranger's file nothing leaves the folder of its machine. */
#include "tests/support/test.h"

/* Runs the commands in the folder, in which `results` is the script; its exit code. What it says is in `said`. */
static int run(const char *folder, const char *commands, char **said)
{
    OWNED char *line = xasprintf(
        "script=$PWD/common/build/results.sh; results() { bash \"$script\" \"$@\"; }; cd '%s' && { %s; } 2>&1", folder,
        commands);
    int code;
    *said = command_text(line, &code);
    return code;
}

TEST_IN_FOLDER(a_machine_is_packed_and_unpacked)
{
    OWNED char *said = NULL;
    assert_int_equal(
        run(*state,
            "mkdir -p results/box-x1/run results/box-x1/checks && echo a,b >results/box-x1/bench_flash.csv && "
            "echo c >results/box-x1/run/log.csv && echo d >results/box-x1/checks/said.txt && "
            "echo e >results/box-x1/report.html && results pack results/box-x1 && "
            "results unpack box-x1.tar.gz in && rm results/box-x1/report.html && diff -r results in",
            &said),
        0);
    assert_string_equal(said, "box-x1.tar.gz\nin/box-x1\n");
    OWNED char *again = NULL;
    assert_int_equal(run(*state, "results unpack box-x1.tar.gz in", &again), 2);
    text_has(again, "in/box-x1 is there already");
    OWNED char *renamed = NULL;
    assert_int_equal(run(*state, "mv box-x1.tar.gz mine.tar.gz && results unpack mine.tar.gz in", &renamed), 2);
    text_has(renamed, "if it was renamed, call it box-x1.tar.gz again");
}

TEST_IN_FOLDER(what_strangers_send_stays_in_its_folder)
{
    static const struct {
        const char *make, *why;
    } files[] = {
        {"ln -s /etc/passwd box/x.csv && tar czf box.tar.gz box/x.csv", "no plain file"},
        {"mkdir -p box/a/b && echo 1 >box/a/b/c.csv && tar czf box.tar.gz box/a/b/c.csv", "no plain file"},
        {"echo 1 >../up.csv && tar czPf box.tar.gz ../up.csv; rm ../up.csv", "no plain file"},
        {"echo 1 >\"$PWD/abs.csv\" && tar czPf box.tar.gz \"$PWD/abs.csv\"", "no plain file"},
        {"echo 1 >'box/a b.csv' && tar czf box.tar.gz box/a*", "no plain file"},
        {"mkdir -p other && echo 1 >other/x.csv && tar czf box.tar.gz other/x.csv", "no plain file"},
        {"echo 1 >box/report.html && tar czf box.tar.gz box/report.html",
         "nothing that make pack packs: box/report.html"},
        {"mkdir box/x && echo 1 >box/x/report.md && tar czf box.tar.gz box/x/report.md",
         "nothing that make pack packs"},
        {"echo 1 >box/gemm_choices.csv && tar czf box.tar.gz box/gemm_choices.csv", "nothing that make pack packs"},
        {"(cd box && seq -f %g.csv 17000 | xargs touch) && tar czf box.tar.gz box/*.csv", "holds more than 64 MiB"},
        {"truncate -s 70M box/x.csv && tar czf box.tar.gz box/x.csv", "holds more than 64 MiB"},
        {"echo nonsense >box.tar.gz", "can't be read: gzip: stdin: not in gzip format"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        OWNED char *said = NULL,
                   *commands = xasprintf("rm -rf in box && mkdir -p box && { %s; } && results unpack box.tar.gz in",
                                         files[i].make);
        assert_int_equal(run(*state, commands, &said), 2);
        text_has(said, files[i].why);
        OWNED char *in = folder_path(*state, "in");
        assert_int_equal(access(in, F_OK), -1);
    }
}
