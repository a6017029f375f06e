/* SPDX-License-Identifier: MIT */
/* What a build says of its commit (common/build/identity.sh, Makefile): only sources that git knows as a commit's are
 * called by it alone; others are told from one another by a hash. In a small repository with the Makefile and its
 * scripts. Run from the project's root. */
#include "tests/support/test.h"

#include <regex.h>

#define NO_GIT_DIR "env -u GIT_DIR -u GIT_WORK_TREE -u GIT_INDEX_FILE "
#define GIT NO_GIT_DIR "git -c user.name=t -c user.email=t@example.org "
#define HASH "[0-9a-f]{12}"
#define KERNELS HASH "-" HASH

static int repository_create(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    OWNED char *command =
        xasprintf("d='%s'/tree && mkdir -p \"$d\"/common/core \"$d\"/bench \"$d\"/tests \"$d\"/reference \"$d\"/docs "
                  "\"$d\"/kernels && "
                  "cp Makefile \"$d\" && cp -r common/build \"$d\"/common/ && "
                  "cp common/core/version.h common/core/build_info.[ch] \"$d\"/common/core/ && cd \"$d\" && "
                  "echo none >common/build/commit && echo /out/ >.gitignore && "
                  "touch bench/a.c reference/a.csv docs/a.md kernels/a.c && "
                  "if command -v git >/dev/null; then " GIT "init -q && " GIT "add -A && " GIT "commit -qm first; fi",
                  (char *)*state);
    return system(command);
}

/* What a command prints in folder/<where>, where no repository lies around the folder. Caller frees. */
static char *said_in(const char *folder, const char *where, const char *command)
{
    int code;
    char *line = xasprintf(
             "cd '%s/%s' && export GIT_CEILING_DIRECTORIES='%s' && unset STEPBENCH_COMMIT MAKEFLAGS && { %s; } 2>&1",
             folder, where, folder, command),
         *said = command_text(line, &code);
    if (code != 0)
        fail_msg("exit code %d: %s: %s", code, line, said);
    free(line);
    return said;
}

static void expect_match(const char *said, const char *pattern)
{
    regex_t compiled;
    assert_int_equal(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&compiled, said, 0, NULL, 0) != 0)
        fail_msg("'%s' is not '%s'", said, pattern);
    regfree(&compiled);
}

/* The commit that folder/<where> gives itself after `change`, with "NAME=value" in the environment, if commit, dirty
 * and the reason match `pattern`. Caller frees. */
static char *commit_in(const char *folder, const char *where, const char *change, const char *environment,
                       const char *pattern)
{
    char *command = xasprintf("{ %s; } >/dev/null 2>&1 && env -u GIT_DIR %s sh common/build/identity.sh lines", change,
                              environment),
         *said = said_in(folder, where, command), *whole = xasprintf("^%s *\n$", pattern);
    expect_match(said, whole);
    said[strcspn(said, " ")] = '\0';
    free(whole);
    free(command);
    return said;
}

static void expect(const char *folder, const char *change, const char *pattern)
{
    free(commit_in(folder, "tree", change, "", pattern));
}

static void need_git(void)
{
    if (system("command -v git >/dev/null") != 0)
        skip();
}

#define CLEAN HASH " 0 " KERNELS
#define CHANGED HASH "\\+" HASH " 1 " KERNELS
#define UNKNOWN "src-" HASH " -1 " KERNELS " "

TEST_WITH(a_commit_alone_is_one_of_unchanged_sources, repository_create, folder_remove)
{
    static const char *const compiled[][2] = {
        {"echo 1 >reference/a.csv", GIT "checkout -q reference"},
        {"touch bench/bench_new.c", "rm bench/bench_new.c"},
        {GIT "config status.showUntrackedFiles no; touch kernels/b.c", "rm kernels/b.c"},
        {"echo '# 1' >>Makefile", GIT "checkout -q Makefile"}};
    need_git();
    expect(*state, "true", CLEAN);
    expect(*state, "echo 1 >docs/a.md", CLEAN);
    for (size_t i = 0; i < sizeof compiled / sizeof *compiled; i++) {
        expect(*state, compiled[i][0], CHANGED);
        expect(*state, compiled[i][1], CLEAN);
    }
}

/* Two changes of one commit are two builds; so are two trees without a commit. */
TEST_WITH(changed_sources_are_told_apart, repository_create, folder_remove)
{
    static const char *const trees[][2] = {{"true", CHANGED},
                                           {"mv .git git-was", UNKNOWN "[^\n]*not a git repository[^\n]*"}};
    need_git();
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        expect(*state, trees[i][0], ".*");
        OWNED char *one = commit_in(*state, "tree", "echo 1 >kernels/a.c", "", trees[i][1]),
                   *two = commit_in(*state, "tree", "echo 2 >kernels/a.c", "", trees[i][1]),
                   *again = commit_in(*state, "tree",
                                      "echo 1 >kernels/a.c; echo 3 >docs/a.md; touch kernels/.a.c.swp kernels/a.c~", "",
                                      trees[i][1]);
        assert_string_not_equal(one, two);
        assert_string_equal(one, again);
    }
}

TEST_WITH(a_tree_that_git_refuses_says_why, repository_create, folder_remove)
{
    need_git();
    free(commit_in(*state, "tree", "true", "GIT_TEST_ASSUME_DIFFERENT_OWNER=1 GIT_CONFIG_GLOBAL=/dev/null",
                   UNKNOWN "fatal: detected dubious ownership[^\n]*safe.directory[^\n]*"));
    free(commit_in(*state, "tree", "mkdir ../bin && ln -s /usr/bin/* /bin/* ../bin; rm ../bin/git",
                   "PATH=\"$PWD/../bin\"", UNKNOWN "git is not installed"));
    expect(*state, "rm -rf .git; " GIT "init -q", UNKNOWN "fatal: Needed a single revision");
}

/* Copied into another repository, or called by a hook of one, a tree has not that one's commit. */
TEST_WITH(another_repository_is_not_ones_own, repository_create, folder_remove)
{
    need_git();
    char *own = commit_in(*state, "tree", "true", "", CLEAN),
         *hooked = commit_in(*state, "tree",
                             "(cd .. && mkdir other && cd other && " GIT "init -q && " GIT
                             "commit -q --allow-empty -m other)",
                             "GIT_DIR=\"$PWD/../other/.git\" GIT_WORK_TREE=\"$PWD/../other\"", CLEAN),
         *worktree = commit_in(*state, "tree", GIT "worktree add ../second", "", CLEAN),
         *second = commit_in(*state, "second", "true", "", CLEAN),
         *shallow = commit_in(*state, "tree", GIT "clone -q --depth 1 \"file://$PWD\" ../shallow", "", CLEAN),
         *cloned = commit_in(*state, "shallow", "true", "", CLEAN),
         *module =
             commit_in(*state, "tree",
                       "(cd ../other && " GIT "-c protocol.file.allow=always submodule add ../tree module)", "", CLEAN),
         *inside = commit_in(*state, "other/module", "true", "", CLEAN);
    assert_string_equal(hooked, own);
    assert_string_equal(second, own);
    assert_string_equal(cloned, own);
    assert_string_equal(inside, own);
    free(commit_in(*state, "tree",
                   "(cp -r . ../other/copied; rm -rf ../other/copied/.git; cd ../other; " GIT "add copied; " GIT
                   "commit -qm more)",
                   "", CLEAN));
    free(commit_in(*state, "other/copied", "true", "", UNKNOWN "the repository around this folder [^\n]*"));
    char *const all[] = {own, hooked, worktree, second, shallow, cloned, module, inside};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Where a shell exports CDPATH, cd prints where it goes. */
TEST_WITH(a_search_path_of_cd_is_not_ours, repository_create, folder_remove)
{
    need_git();
    free(commit_in(*state, "tree", "true", "CDPATH=.", CLEAN));
}

/* An archive knows its commit (make dist), and the environment may give one: neither knows the sources. */
TEST_WITH(a_word_is_no_proof, repository_create, folder_remove)
{
    expect(*state, "printf '%040d\\n' 7 >common/build/commit", "0{12}\\+" HASH " -1 " KERNELS);
    OWNED char *one = commit_in(*state, "tree", "true", "STEPBENCH_COMMIT='a b' STEPBENCH_DIRTY=0",
                                "a_b\\+" HASH " -1 " KERNELS),
               *two = commit_in(*state, "tree", "echo 1 >bench/a.c", "STEPBENCH_COMMIT='a b'",
                                "a_b\\+" HASH " -1 " KERNELS);
    assert_string_not_equal(one, two);
}

/* The kernels' hash knows their sources and how they are compiled, and nothing else. */
TEST_WITH(kernels_have_a_hash, repository_create, folder_remove)
{
    static const char *const changes[] = {"true", "echo 1 >bench/a.c", "echo 1 >kernels/a.c",
                                          "echo 1 >common/core/rng.h"};
    char *was = xstrdup("");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *command = xasprintf("%s; sh common/build/identity.sh lines | cut -d ' ' -f 3", changes[i]),
             *is = said_in(*state, "tree", command);
        assert_int_equal(strcmp(is, was) == 0, i == 1);
        free(was);
        free(command);
        was = is;
    }
    OWNED char *other = said_in(*state, "tree", "sh common/build/identity.sh other lines | cut -d ' ' -f 3");
    assert_string_not_equal(other, was);
    free(was);
}

/* Once a build, not whenever make runs. */
TEST_WITH(make_says_why_there_is_no_commit, repository_create, folder_remove)
{
    static const char make[] = "make CC=true CXX=true CUDA=0 SETUP=0 BUILD=out out/common/core/build_info.c.o; touch "
                               "out/common/core/build_info.c.o",
                      why[] = "stepbench: rows will name the commit src-" HASH ": fatal: not a git repository";
    need_git();
    free(said_in(*state, "tree", "rm -rf .git"));
    OWNED char *said = said_in(*state, "tree", make), *again = said_in(*state, "tree", make),
               *flags = said_in(*state, "tree", "cat out/build_info.flags");
    expect_match(said, why);
    assert_null(strstr(again, "rows will name"));
    expect_match(flags,
                 "-DSTEPBENCH_COMMIT='\"src-" HASH "\"' -DSTEPBENCH_DIRTY=-1 -DSTEPBENCH_KERNELS='\"" KERNELS "\"' ");
}
