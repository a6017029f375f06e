/* SPDX-License-Identifier: MIT */
/* The Makefile in a small tree, with a compiler that builds everything: clocks that were set back, and when a warning
 * ends a build. Run from the project's root. */
#include "tests/support/test.h"

static int tree_create(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    OWNED char *command = xasprintf("d='%s' && mkdir -p \"$d\"/common/core && cp Makefile \"$d\" && "
                                    "cp -r common/build \"$d\"/common/ && cp common/core/version.h \"$d\"/common/core/",
                                    (char *)*state);
    return system(command);
}

/* What `change`, then make of this goal in the tree, print; make must end, and end well. Caller frees. */
static char *make_says(const char *folder, const char *change, const char *arguments)
{
    int code;
    char *command = xasprintf("cd '%s' && unset CI WERROR MAKEFLAGS MAKELEVEL && { %s; } && timeout -k 5 60 make -s "
                              "CC=true CXX=true CUDA=0 SETUP=0 BUILD=out %s 2>&1",
                              folder, change, arguments),
         *said = command_text(command, &code);
    if (code != 0)
        fail_msg("after '%s' make %s ends with %d: %.2000s", change, arguments, code, said);
    free(command);
    return said;
}

static size_t times(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

/* The probe runs so often after this change, and make warns of the clock once at most. */
static void expect_probes(const char *folder, const char *change, size_t n)
{
    OWNED char *said = make_says(folder, change, "out/build_info.flags");
    if (times(said, "Found on this machine") != n || times(said, "Clock skew") > 1)
        fail_msg("after '%s', %zu probes were expected: %s", change, n, said);
}

TEST_WITH(a_clock_that_was_set_back, tree_create, folder_remove)
{
    static const char later[] = "find . -exec touch -d '+2 hours' {} +";
    expect_probes(*state, later, 1);
    expect_probes(*state, "true", 0);
    /* What was built before lies in the future, too, and what has changed since is seen all the same. */
    expect_probes(*state, later, 0);
    expect_probes(*state, "export GLOO_HOME=/usr", 1);
    expect_probes(*state, "echo '# changed' >>common/build/probe.sh", 1);
    expect_probes(*state, "true", 0);
    expect_probes(*state, "rm out/config.mk", 1);
}

TEST_WITH(an_environment_that_uses_our_names, tree_create, folder_remove)
{
    free(make_says(*state, "touch common/core/any.c; export EXTRA='(' SANITIZERS='('", "out/common/core/any.c.o"));
    OWNED char *said = make_says(
        *state, "printf 'include Makefile\\nask:\\n\\t@echo [$$CDPATH]\\n' >ask.mk; export CDPATH=.", "-f ask.mk ask");
    text_has(said, "[]\n");
}

/* What somebody named a file runs neither in the shell nor in make. */
TEST_WITH(a_file_to_unpack_may_have_any_name, tree_create, folder_remove)
{
    static const char *const names[] = {"x'\\''; touch ran; '\\''", "$(shell touch ran)", "`touch ran`"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        OWNED char *arguments = xasprintf("-i unpack FILE='%s'", names[i]),
                   *said = make_says(*state, "true", arguments), *ran = folder_path(*state, "ran");
        text_has(said, "is no name of a machine");
        assert_int_equal(access(ran, F_OK), -1);
    }
}

/* Without a name, make asks for one before it looks for anything or builds. */
TEST_WITH(who_packs_names_the_machine, tree_create, folder_remove)
{
    static const char *const ways[] = {"", "RESULTS="};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        OWNED char *arguments = xasprintf("pack %s 2>&1 || [ $? = 2 ]", ways[i]),
                   *said = make_says(*state, "mkdir -p results/box && touch results/box/bench_flash.csv", arguments);
        text_has(said, "make pack packs the results of one machine: name it by RESULTS=results/<machine>");
        text_lacks(said, "Found on this machine");
    }
}

/* RESULTS is one folder of whatever name, or several; without it, all are meant that have rows. */
TEST_WITH(folders_of_results_may_have_any_name, tree_create, folder_remove)
{
    static const char *const table[][2] = {
        {"", "[results/$HOME's/]\n[results/a b/]\n[results/box/]\n"},
        {"RESULTS='results/a b'", "[results/a b]\n"},
        {"RESULTS='results/$HOME'\\''s'", "[results/$HOME's]\n"},
        {"RESULTS='results/box results/empty/'", "[results/box]\n[results/empty/]\n"},
        {"RESULTS='results/b*'", "[results/box]\n"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        OWNED char *arguments = xasprintf("-f ask.mk ask %s", table[i][0]),
                   *said =
                       make_says(*state,
                                 "printf 'include Makefile\nask:\n\t@$(set_folders); printf \"[%%s]\\\\n\" \"$$@\"\n' "
                                 ">ask.mk; for d in '$HOME'\\''s' 'a b' box published; do mkdir -p \"results/$d\"; "
                                 "touch \"results/$d/bench_flash.csv\" \"results/$d/bench_run.csv\"; done; "
                                 "mkdir -p results/empty",
                                 arguments);
        const char *line = strstr(said, "[");
        if (!line || strcmp(line, table[i][1]) != 0)
            fail_msg("make %s: %s", arguments, said);
    }
}

TEST_WITH(warnings_end_the_build_in_ci_alone, tree_create, folder_remove)
{
    static const struct {
        const char *variables;
        size_t errors;
    } table[] = {{"", 0}, {"CI=false", 0}, {"CI=true", 1}, {"WERROR=-Werror", 1}, {"CI=true WERROR=", 0}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        OWNED char *arguments = xasprintf("print-config %s", table[i].variables),
                   *said = make_says(*state, "true", arguments);
        if (!strstr(said, "-Wall") || times(said, "-Werror") != table[i].errors)
            fail_msg("make %s compiles with: %s", arguments, said);
    }
}
