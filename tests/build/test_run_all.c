/* SPDX-License-Identifier: MIT */
/* ./run_all.sh in a small tree of its own, with benches that are shell scripts: they have lists, write down how they are
 * called, and end as they are told. What is asked: which runs a machine and a list get, what is said before, codes, and
 * when --resume goes on. Run from the project's root. */
#include "tests/support/test.h"

#include <sys/stat.h>
#include <sys/wait.h>

/* The environment says what the machine has; exit/<bench> holds the exit code of the bench's calls with that word. */
static const char bench[] =
    "#!/bin/bash\n"
    "name=$(basename \"$0\")\n"
    "case \" $* \" in\n"
    "*' --list-runs '*) cat \"lists/$name\"; exit ;;\n"
    "*' --where '*)\n"
    "    printf 'machine\\tlab\\ncommit\\t%s\\ndirty\\t%s\\n' \"$COMMIT\" \"${DIRTY-0}\"\n"
    "    printf 'gpus\\t%s\\ndevice\\tG 1\\n' \"$(wc -w <<<\"$UUIDS\")\"\n"
    "    for uuid in $UUIDS; do printf 'gpu\\t%s\\n' \"$uuid\"; done; exit ;;\n"
    "*' --dry-run '*)\n"
    "    case \" $* \" in *\" ${REFUSED-none} \"*) echo \"$name: 3 is odd\" >&2; exit 2 ;; esac\n"
    "    echo \"size=${#name} variant=a  (about 2.5 GiB)\"; exit ;;\n"
    "esac\n"
    "echo $name $* >>calls; echo \"$STEPBENCH_RUN\" >>campaigns\n"
    "mkdir -p results/lab; echo \"results: results/lab/$name.csv\"\n"
    "while read -r code word; do case \" $name $* \" in *\" $word \"*) exit $code ;; esac; done <exits\n";

/* One bench for a GPU, one for several with a run on the CPU beside them, one that names no runs. */
static const char lists_one[] = "name\tbench_one\norder\t1\nsummary\tOne?\nsmall\t--tiny\n"
                                "run\tquick\t1\t10\t--q\nrun\tdefault\t1\t70\t\nrun\tdefault\t1\t30\t--d\n"
                                "run\tfull\t1\t100\t--f\nrun\tcpu\t0\t5\t--c\nsection\tone\nfigure\tone\n";
static const char lists_ranks[] = "name\tbench_ranks\norder\t3\nsummary\tRanks?\nsmall\t--ranks 2\n"
                                  "run\tquick\t2\t10\t--ranks {gpus} --q\nrun\tdefault\t2\t20\t--ranks {gpus}\n"
                                  "run\tdefault\t4\t20\t--four\nrun\tquick+default\t0\t20\t--beside\n"
                                  "run\tcpu\t0\t5\t\nsection\tone\nfigure\tone\n";
static const char lists_more[] =
    "name\tbench_more\norder\t2\nsummary\tMore?\nsmall\t--tiny\n"
    "run\tdefault+load\t2\t20\t--two\nrun\theadline\t1\t20\t--head\nrun\tcpu\t0\t5\t\nsection\tone\nfigure\tone\n";
/* One that runs only when it is asked for. */
static const char lists_qualify[] = "name\tbench_qualify\norder\t4\nsummary\tWell?\nsmall\t--tiny\n"
                                    "run\tquick+default\t1\t10\t\nrun\tcpu\t0\t5\t--c\nsection\tone\napart\t1\n"
                                    "figure\tone\n";

static void plant(const char *folder, const char *file, const char *text)
{
    OWNED char *path = folder_path(folder, file);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
    file_write(path, text);
    chmod(path, 0755);
}

static int tree_create(void **state)
{
    static const char *const names[] = {"one", "more", "ranks", "qualify"}, *const lists[] = {lists_one, lists_more,
                                                                                              lists_ranks,
                                                                                              lists_qualify};
    if (folder_create(state) != 0)
        return -1;
    char *script = file_text("run_all.sh"), path[64];
    plant(*state, "run_all.sh", script);
    free(script);
    plant(*state, "Makefile", "all lib:\n");
    plant(*state, "common/build/setup.sh", "");
    plant(*state, "plots/draw.sh", "");
    plant(*state, "build/report", "#!/bin/sh\n");
    plant(*state, "exits", "");
    plant(*state, "tests/peers/peers.py", "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "bench/bench_%s.c", names[i]);
        plant(*state, path, "");
        snprintf(path, sizeof path, "lists/bench_%s", names[i]);
        plant(*state, path, lists[i]);
        snprintf(path, sizeof path, "bench_%s", names[i]);
        plant(*state, path, bench);
    }
    return 0;
}

/* The exit code of run_all.sh; what it printed is in `out`, and calls of benches are added to `calls`. */
static int run_all(const char *folder, const char *environment, const char *arguments)
{
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && rm -f calls && : >calls && env -u STEPBENCH_RUN LC_ALL=C COMMIT=c1 UUIDS='GPU-a' %s bash "
             "run_all.sh %s "
             ">out 2>&1 </dev/null",
             folder, environment, arguments);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_calls(const char *folder, const char *want)
{
    OWNED char *got = folder_text(folder, "calls");
    if (strcmp(got, want) != 0)
        fail_msg("the benches were called as\n%sand not as\n%s", got, want);
}

static void expect_said(const char *folder, const char *part)
{
    OWNED char *said = folder_text(folder, "out");
    text_has(said, part);
}

#define BESIDE "--device cpu --machine lab"

TEST_WITH(a_machine_gets_its_runs, tree_create, folder_remove)
{
    static const struct {
        const char *environment, *arguments, *calls;
    } table[] = {
        {"", "", "bench_one\nbench_one --d\nbench_more " BESIDE " --tiny\nbench_ranks " BESIDE " --beside\n"},
        {"", "--quick", "bench_one --q\nbench_more " BESIDE " --tiny\nbench_ranks " BESIDE " --beside\n"},
        {"", "--full --only one", "bench_one\nbench_one --d\nbench_one --f\n"},
        {"", "--device cuda --only one", "bench_one --device cuda\nbench_one --device cuda --d\n"},
        {"UUIDS='a b'", "",
         "bench_one --q\nbench_more --two\nbench_ranks --ranks 2\nbench_ranks " BESIDE " --beside\n"},
        {"UUIDS='a b c d e f g h'", "--only ranks",
         "bench_ranks --ranks 8\nbench_ranks --four\nbench_ranks " BESIDE " --beside\n"},
        {"UUIDS='a b c d'", "--only ranks --match 'ranks 4$|^--no'", "bench_ranks --ranks 4\n"},
        {"UUIDS='a b c d'", "--quick --only=bench_ranks,one",
         "bench_ranks --ranks 4 --q\nbench_ranks " BESIDE " --beside\nbench_one --q\n"},
        {"UUIDS='a b'", "--full --only one", "bench_one\nbench_one --d\nbench_one --f\n"},
        {"UUIDS=", "", "bench_one --device cpu --c\nbench_more --device cpu\nbench_ranks --device cpu\n"},
        {"UUIDS='a b'", "--full-loads", "bench_more --two\n"},
        {"UUIDS='a b'", "--full-loads --only one,more", "bench_more --two\n"},
        {"", "--headlines",
         "bench_more --head\nbench_more --head\nbench_more --head\nbench_more --head\nbench_more --head\n"},
        {"UUIDS='a b c d'", "--qualify", "bench_qualify\n"},
        {"UUIDS=", "--qualify", "bench_qualify --c\n"}, /* which then says that there is no GPU */
        {"UUIDS=", "--qualify --device cpu", "bench_qualify --device cpu --c\n"},
        {"UUIDS='a b c d'", "--qualify --expect 8", "bench_qualify --expect 8\n"},
        {"UUIDS=", "--quick --only one", "bench_one --device cpu --tiny\n"},
        {"UUIDS=", "--small --only one", "bench_one --device cpu --tiny --csv results/small/bench_one.csv\n"},
        {"", "--small --only one,ranks",
         "bench_one --tiny --csv results/small/bench_one.csv\n"
         "bench_ranks --device cpu --machine small --ranks 2 --csv results/small/bench_ranks.csv\n"},
        {"UUIDS='a b'", "--small --only ranks", "bench_ranks --ranks 2 --csv results/small/bench_ranks.csv\n"},
        {"UUIDS='a b'", "--small --match 'ranks 2'", "bench_ranks --ranks 2 --csv results/small/bench_ranks.csv\n"},
        {"UUIDS=", "--quick --match ranks", "bench_ranks --device cpu --ranks 2\n"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(run_all(*state, table[i].environment, table[i].arguments), EXIT_CODE_OK);
        expect_calls(*state, table[i].calls);
    }
}

/* Not everything can be shared by three: what a bench refuses does not run, and is no failure. */
TEST_WITH(what_a_number_of_gpus_cannot_run_is_left_out, tree_create, folder_remove)
{
    static const char three[] = "UUIDS='a b c' REFUSED='--ranks 3'";
    assert_int_equal(run_all(*state, three, "--only more,ranks"), EXIT_CODE_OK);
    expect_calls(*state, "bench_more --two\nbench_ranks " BESIDE " --beside\n");
    expect_said(*state, "  1 left out, which 3 GPUs can't run, such as bench_ranks: 3 is odd\n");
    expect_said(*state, "  bench_ranks                1      20 s      2.5 GiB\n");
    expect_said(*state, "  together                   2      40 s\n");
    assert_int_equal(run_all(*state, "UUIDS= REFUSED=--c", "--only one"), EXIT_CODE_OK);
    expect_calls(*state, "bench_one --device cpu --c\n");
}

/* Each repeat of a headline is a run of its own, so that the report sees how far they are apart. */
TEST_WITH(repeats_are_runs_of_their_own, tree_create, folder_remove)
{
    assert_int_equal(run_all(*state, "", "--headlines"), EXIT_CODE_OK);
    char *campaigns = folder_text(*state, "campaigns"), *rest = campaigns, *line;
    char number = '1';
    for (; (line = strsep(&rest, "\n")) && *line; number++)
        assert_true(line[strlen(line) - 1] == number && strncmp(line, campaigns, strlen(line) - 1) == 0);
    assert_int_equal(number, '6');
    free(campaigns);
}

/* Peers that stand beside the named benches, as part of this run: its lock is their file 9. */
TEST_WITH(peers_are_told_what_they_stand_beside, tree_create, folder_remove)
{
    static const struct {
        const char *arguments, *told;
    } table[] = {{"--peers", "--out results/lab"},
                 {"--only one --peers", "--out results/lab --beside one"},
                 {"--only one --cases a --peer-seconds 9", "--out results/lab --beside one --cases a --timeout 9"},
                 {"--only more,one --full-loads", "--out results/lab --full-loads --beside more,one"}};
    if (system("python3 -c 0 >/dev/null 2>&1") != 0)
        skip();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        plant(*state, "tests/peers/peers.py",
              "import os, sys\nsame = os.path.samestat(os.fstat(9), os.stat('build/.run_all.lock'))\n"
              "open('told', 'w').write(' '.join(sys.argv[1:]) + f' {same} ' + os.environ['STEPBENCH_RUN'])\n");
        assert_int_equal(run_all(*state, "UUIDS='a b'", table[i].arguments), EXIT_CODE_OK);
        OWNED char *told = folder_text(*state, "told"), *campaigns = folder_text(*state, "campaigns");
        OWNED char *wanted = xasprintf("%s True 2", table[i].told);
        if (strncmp(told, wanted, strlen(wanted)) != 0 || !strstr(campaigns, strrchr(told, ' ') + 1))
            fail_msg("'%s' and not '%s...' of the runs %s", told, wanted, campaigns);
    }
}

TEST_WITH(a_bench_without_lists_runs_with_its_defaults, tree_create, folder_remove)
{
    plant(*state, "lists/bench_more", "name\tbench_more\norder\t2\nsummary\tMore?\nsmall\t--tiny\n");
    assert_int_equal(run_all(*state, "", "--only more"), EXIT_CODE_OK);
    expect_calls(*state, "bench_more\n");
}

TEST_WITH(it_says_what_will_run_and_for_how_long, tree_create, folder_remove)
{
    assert_int_equal(run_all(*state, "", "--dry-run"), EXIT_CODE_OK);
    expect_calls(*state, "");
    expect_said(*state, "lab: G 1, commit c1; list: default");
    expect_said(*state, "  bench_one                  2     2 min      2.5 GiB\n");
    expect_said(*state, "  together                   4     2 min\n"); /* 70 + 30 + 5 + 20 s */
    OWNED char *said = folder_text(*state, "out");
    assert_null(strstr(said, "two cores"));
    assert_null(strstr(said, "no run of"));
    assert_int_equal(run_all(*state, "", "--match nothing"), EXIT_CODE_UNSUPPORTED);
    expect_said(*state, "  no run of this list that matches 'nothing' is for this machine\n");
    assert_int_equal(run_all(*state, "UUIDS=", "--headlines"), EXIT_CODE_UNSUPPORTED);
    expect_said(*state, "  no run of this list is for this machine\n");
    expect_calls(*state, "");
    assert_int_equal(run_all(*state, "", "--only one"), EXIT_CODE_OK);
    expect_said(*state, "== [1/2, 0 s gone, about 2 min left] bench_one");
    expect_said(*state, "== [2/2, ");
    expect_said(*state, "  bench_one                  0");
}

TEST_WITH(the_worst_code_is_the_exit_code, tree_create, folder_remove)
{
    plant(*state, "exits", "77 --d\n");
    assert_int_equal(run_all(*state, "", "--only one"), EXIT_CODE_OK);
    plant(*state, "exits", "77 bench_one\n77 bench_more\n77 bench_ranks\n");
    assert_int_equal(run_all(*state, "", ""), EXIT_CODE_UNSUPPORTED);
    plant(*state, "exits", "3 --d\n1 --tiny\n77 --beside\n");
    assert_int_equal(run_all(*state, "", ""), EXIT_CODE_VERIFY);
    expect_said(*state, "  bench_one                  3");
    expect_said(*state, "  bench_more                 1");
    expect_said(*state, "  bench_ranks               77");
}

TEST_WITH(a_node_is_qualified_whole, tree_create, folder_remove)
{
    plant(*state, "exits", "4 bench_qualify\n");
    assert_int_equal(run_all(*state, "", "--qualify"), EXIT_CODE_GATE);
    expect_said(*state, "  bench_qualify              4");
    static const char *const resumed[] = {"--qualify --resume", "--only qualify,one --resume"};
    for (size_t i = 0; i < sizeof resumed / sizeof *resumed; i++) {
        assert_int_equal(run_all(*state, "", resumed[i]), EXIT_CODE_USAGE);
        expect_said(*state, "a node is qualified in one run: leave out --resume");
        expect_calls(*state, "");
    }
}

/* A second one would mix its rows with those of the first. */
TEST_WITH(one_at_a_time, tree_create, folder_remove)
{
    char *command = xasprintf("cd '%s' && mkdir -p build && { (flock 9 && exec sleep 20) 9>build/.run_all.lock & "
                              "echo $! >holder; } && sleep 0.3",
                              (const char *)*state);
    assert_int_equal(system(command), 0);
    assert_int_equal(run_all(*state, "", ""), EXIT_CODE_FAILURE);
    expect_said(*state, "another ./run_all.sh of this checkout is running");
    expect_calls(*state, "");
    free(command);
    command = xasprintf("kill $(cat '%s/holder') && sleep 0.2", (const char *)*state);
    assert_int_equal(system(command), 0);
    assert_int_equal(run_all(*state, "", ""), EXIT_CODE_OK);
    free(command);
}

/* Somebody who may not write in the tree: this user, or nobody in root's place. */
static const char *other_user(void)
{
    return geteuid() ? "" : "setpriv --reuid=65534 --regid=65534 --clear-groups";
}

static void change_mode(const char *folder, const char *name, mode_t mode)
{
    OWNED char *path = folder_path(folder, name);
    assert_int_equal(chmod(path, mode), 0);
}

static void expect_unwritable(const char *folder, const char *environment, const char *said)
{
    assert_int_equal(run_all(folder, environment, "--only one"), EXIT_CODE_USAGE);
    expect_said(folder, said);
    expect_calls(folder, "");
}

TEST_WITH(it_says_what_cannot_be_written, tree_create, folder_remove)
{
    if (geteuid() == 0 && system("command -v setpriv >/dev/null") != 0)
        skip();
    plant(*state, "results", "");
    expect_unwritable(*state, "", "run_all.sh: results can't be written: Not a directory\n");
    char *results = folder_path(*state, "results");
    assert_int_equal(remove(results), 0);
    free(results);
    assert_int_equal(run_all(*state, "", "--only one"), EXIT_CODE_OK); /* leaves a lock that nobody holds */
    change_mode(*state, "", 0755);
    change_mode(*state, "build", 0555);
    expect_unwritable(*state, other_user(), "run_all.sh: build can't be written: Permission denied\n");
    assert_int_equal(run_all(*state, other_user(), "--only one --dry-run"), EXIT_CODE_OK);
    change_mode(*state, "build", 0777);
    change_mode(*state, "build/logs", 0777);
    change_mode(*state, "plots", 0777);
    change_mode(*state, "results/lab", 0777);
    change_mode(*state, "build/.run_all.lock", 0444);
    expect_unwritable(*state, other_user(), "run_all.sh: build/.run_all.lock can't be written; it belongs to ");
    change_mode(*state, "build/.run_all.lock", 0666);
    change_mode(*state, "results/lab", 0555);
    expect_unwritable(*state, other_user(), "run_all.sh: results/lab can't be written: Permission denied\n");
    change_mode(*state, "results/lab", 0777);
    change_mode(*state, "build/logs/run-lab.txt", 0444);
    expect_unwritable(*state, other_user(), "run_all.sh: build/logs/run-lab.txt can't be written; it belongs to ");
}

/* The exit code of a command in the tree, and what it says. Caller frees. */
static char *said_by(const char *folder, const char *command, int want)
{
    int code;
    char *line = xasprintf("cd '%s' && export COMMIT=c1 UUIDS=GPU-a && { %s; } 2>&1 </dev/null", folder, command),
         *said = command_text(line, &code);
    if (code != want)
        fail_msg("exit code %d, not %d: %s: %s", code, want, command, said);
    free(line);
    return said;
}

TEST_WITH(any_shell_will_do, tree_create, folder_remove)
{
    static const char *const shells[] = {"sh", "POSIXLY_CORRECT=1 bash", "bash --posix"};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        OWNED char *command = xasprintf("%s run_all.sh --only one --dry-run", shells[i]),
                   *said = said_by(*state, command, EXIT_CODE_OK);
        assert_non_null(strstr(said, "lab: G 1, commit c1"));
    }
}

/* Where numbers have commas, awk and sort would take 2.5 for 2. */
TEST_WITH(numbers_have_points_everywhere, tree_create, folder_remove)
{
    OWNED char *make = xasprintf("localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", (char *)*state);
    if (system(make) != 0)
        skip();
    OWNED char *said =
        said_by(*state, "LOCPATH=$PWD LC_ALL=de_DE.UTF-8 bash run_all.sh --only one --dry-run", EXIT_CODE_OK);
    text_has(said, "2.5 GiB");
}

/* By CDPATH, cd may find another folder of this name first. */
TEST_WITH(it_runs_where_it_lies, tree_create, folder_remove)
{
    free(said_by(
        *state,
        "mkdir -p other/mine mine && cp -r run_all.sh Makefile bench* common lists plots build mine && cd mine/.. && "
        "CDPATH=$PWD/other bash mine/run_all.sh --only one --dry-run",
        EXIT_CODE_OK));
}

TEST_WITH(its_last_line_is_that_of_the_report, tree_create, folder_remove)
{
    plant(*state, "build/report", "#!/bin/sh\necho wrote report.html\necho 2 x GPU: five numbers\n");
    assert_int_equal(run_all(*state, "", "--only one"), EXIT_CODE_OK);
    OWNED char *said = folder_text(*state, "out");
    static const char end[] = "\nresults: results/lab\n2 x GPU: five numbers\n";
    assert_string_equal(said + strlen(said) - strlen(end), end);
}

TEST_WITH(a_full_stdout_is_a_failure, tree_create, folder_remove)
{
    if (access("/dev/full", W_OK) != 0)
        skip();
    plant(*state, "Makefile", "all lib:\n\t@:\n"); /* make checks its own */
    OWNED char *said = said_by(*state, "bash run_all.sh --only one 2>&1 >/dev/full", EXIT_CODE_FAILURE);
    if (!strstr(said, "run_all.sh: stdout can't be written: a part of the output is lost\n"))
        fail_msg("it says: %s", said);
    free(said_by(*state, "bash run_all.sh --help >/dev/full", EXIT_CODE_FAILURE));
    free(said_by(*state, "bash run_all.sh --list >/dev/full", EXIT_CODE_FAILURE));
}

TEST_WITH(resume_goes_on_on_the_same_gpus_at_the_same_commit, tree_create, folder_remove)
{
    plant(*state, "exits", "1 --d\n");
    assert_int_equal(run_all(*state, "", "--resume --only one"), EXIT_CODE_FAILURE);
    expect_said(*state, "--resume: no run of lab was begun here; this begins one");
    expect_calls(*state, "bench_one\nbench_one --d\n");
    plant(*state, "exits", "");
    assert_int_equal(run_all(*state, "", "--resume --only one"), EXIT_CODE_OK);
    expect_calls(*state, "bench_one --d --resume\n"); /* the failed one alone */
    char *campaigns = folder_text(*state, "campaigns"), *second = strchr(campaigns, '\n') + 1,
         *third = strchr(second, '\n');
    assert_true(third - second + 1 == second - campaigns);
    assert_string_equal(third + 1 + (third - second + 1), ""); /* three calls */
    assert_memory_equal(campaigns, second, (size_t)(third - second));
    assert_memory_equal(campaigns, third + 1, (size_t)(third - second));
    free(campaigns);

    static const char *const others[] = {"COMMIT=c2", "UUIDS=GPU-b", "COMMIT=c1 UUIDS='GPU-a GPU-b'", "DIRTY=1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(run_all(*state, "", "--only one"), EXIT_CODE_OK);
        assert_int_equal(run_all(*state, others[i], "--resume --only one --device cuda"), EXIT_CODE_OK);
        expect_said(*state, "was on other GPUs or at another commit; this begins a new one");
        OWNED char *calls = folder_text(*state, "calls");
        assert_true(*calls);
        assert_null(strstr(calls, "--resume"));
    }
}

/* Programs that were built from changed files have one commit, and may still differ. */
TEST_WITH(resume_compares_programs_of_changed_files, tree_create, folder_remove)
{
    assert_int_equal(run_all(*state, "DIRTY=1", "--only one"), EXIT_CODE_OK);
    assert_int_equal(run_all(*state, "DIRTY=1", "--resume --only one"), EXIT_CODE_OK);
    expect_calls(*state, "");
    OWNED char *changed = xasprintf("%s# changed\n", bench);
    plant(*state, "bench_more", changed);
    assert_int_equal(run_all(*state, "DIRTY=1", "--resume --only one"), EXIT_CODE_OK);
    expect_calls(*state, "bench_one\nbench_one --d\n");
}

TEST_WITH(bad_options_are_refused, tree_create, folder_remove)
{
    static const char *const bad[] = {"--quick --full",
                                      "--small --quick",
                                      "--only",
                                      "--only two",
                                      "--device gpu",
                                      "--fast",
                                      "--full --full-loads",
                                      "--headlines --quick",
                                      "--quick=1x --full",
                                      "--quick=1x",
                                      "--qualify --only one",
                                      "--expect 8",
                                      "--qualify --expect all",
                                      "--qualify --expect",
                                      "--only one --qualify",
                                      "--only one,one",
                                      "--only bench_one,one",
                                      "--only one --only more",
                                      "--device cpu --device=cpu",
                                      "--only 'more one'",
                                      "--only ,"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(run_all(*state, "", bad[i]), EXIT_CODE_USAGE);
        expect_said(*state, "; ./run_all.sh --help lists the options");
        expect_calls(*state, "");
    }
}
