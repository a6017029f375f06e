/* SPDX-License-Identifier: MIT */
/* report.md, and the other pages where they are there, of every committed folder of results, and the README's table are
 * what the report program writes from the CSV files, to the byte. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void link_to(const char *target, const char *folder, const char *name)
{
    OWNED char *absolute = realpath(target, NULL), *path = folder_path(folder, name);
    assert_non_null(absolute);
    assert_int_equal(symlink(absolute, path), 0);
}

/* <folder>/results/<machine>, with figures, published tables and losses where a report looks for them. Caller frees. */
static char *linked_copy(const char *folder, const char *committed)
{
    char *results = folder_path(folder, "results"), *dir = folder_path(results, strrchr(committed, '/') + 1);
    if (mkdir(results, 0777) == 0) {
        link_to("plots", folder, "plots");
        link_to("results/published", results, "published");
        link_to("results/h200-x1-losses", results, "h200-x1-losses");
    }
    unlink(dir); /* where it is the link to the losses */
    assert_int_equal(mkdir(dir, 0777), 0);
    DIR *entries = opendir(committed);
    assert_non_null(entries);
    for (const struct dirent *e; (e = readdir(entries));) {
        OWNED char *path = folder_path(committed, e->d_name);
        if (e->d_name[0] != '.' && strncmp(e->d_name, "report.", 7) != 0 && strncmp(e->d_name, "report-cpu.", 11) != 0)
            link_to(path, dir, e->d_name);
    }
    closedir(entries);
    free(results);
    return dir;
}

static void expect_same(const char *committed, const char *name, const char *with, const char *wanted, const char *got)
{
    size_t line = 1, begin = 0;
    for (size_t i = 0; wanted[i] == got[i]; i++) {
        if (!wanted[i])
            return;
        if (wanted[i] == '\n') {
            line++;
            begin = i + 1;
        }
    }
    fail_msg("line %zu of %s/%s is not what the report program writes now (%s):\n%.*s\n%.*s", line, committed, name,
             with, (int)strcspn(wanted + begin, "\n"), wanted + begin, (int)strcspn(got + begin, "\n"), got + begin);
}

/* Where a folder has the file. */
static void expect_file(const char *committed, const char *now, const char *name)
{
    OWNED char *old_path = folder_path(committed, name), *new_path = folder_path(now, name);
    if (access(old_path, F_OK) == 0) {
        OWNED char *wanted = file_text(old_path), *got = file_text(new_path);
        expect_same(committed, name, "make report", wanted, got);
    }
}

/* Folders of this machine's own runs may be of an older version. Where git does not know this tree, all are committed. */
static bool is_committed(const char *folder)
{
    OWNED char *command = xasprintf("git ls-files --error-unmatch Makefile >/dev/null 2>&1 && "
                                    "! git ls-files --error-unmatch '%s/report.md' >/dev/null 2>&1",
                                    folder);
    return system(command) != 0;
}

TEST_IN_FOLDER(committed_reports_are_current)
{
    glob_t found;
    assert_int_equal(glob("results/*/report.md", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        *strrchr(found.gl_pathv[i], '/') = '\0';
        const char *committed = found.gl_pathv[i];
        if (is_committed(committed)) {
            OWNED char *dir = linked_copy(*state, committed);
            OWNED char *quoted = xasprintf("'%s'", dir);
            report_run(quoted);
            static const char *const pages[] = {"report.md", "report.html", "report-cpu.md", "report-cpu.html"};
            for (size_t p = 0; p < sizeof pages / sizeof *pages; p++)
                expect_file(committed, dir, pages[p]);
        }
    }
    assert_true(found.gl_pathc >= 2);
    globfree(&found);
}

/* The folders of the README's tables, each before a space, those of CPUs last. Caller frees. */
static char *readme_folders(void)
{
    char *list = xstrdup("");
    glob_t found;
    assert_int_equal(glob("results/h*-x*/report.md", 0, NULL, &found), 0);
    assert_int_equal(glob("results/cpu-*/report.md", GLOB_APPEND, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        *strrchr(found.gl_pathv[i], '/') = '\0';
        if (is_committed(found.gl_pathv[i])) {
            char *more = xasprintf("%s%s ", list, found.gl_pathv[i]);
            free(list);
            list = more;
        }
    }
    globfree(&found);
    return list;
}

TEST_IN_FOLDER(the_readme_is_current)
{
    OWNED char *copy = folder_path(*state, "README.md"), *committed = file_text("README.md");
    file_write(copy, committed);
    OWNED char *folders = readme_folders(), *arguments = xasprintf("--readme %s'%s'", folders, copy);
    report_run(arguments);
    OWNED char *now = file_text(copy);
    expect_same(".", "README.md", "build/report --readme results/h*-x* results/cpu-epyc README.md", committed, now);
    text_lacks(now, "median step"); /* a phone has no room for it */
}

/* The README's table names no commit: results/README.md, to which it refers, does, for each folder. */
TEST_IN_FOLDER(origins_name_every_folders_commit)
{
    OWNED char *origins = file_text("results/README.md"), *folders = readme_folders();
    for (char *folder, *rest = folders; (folder = strtok_r(rest, " ", &rest));) {
        OWNED char *page = folder_text(folder, "report.md");
        const char *before = strstr(page, ", stepbench ");
        OWNED char *commit = before ? xasprintf("%.12s", before + strlen(", stepbench ")) : NULL;
        if (!commit || !strstr(origins, commit))
            fail_msg("results/README.md lacks the commit of %s, %s", folder, commit ? commit : "unknown");
    }
}

/* Within a schema columns are added, and none goes (docs/method.md): every bench has those of its committed files. */
TEST_IN_FOLDER(committed_columns_are_still_there)
{
    static const char gone[] =
        "for file in results/h*-x*/bench_*.csv; do name=${file##*/}; head -n 1 $file | tr , '\\n' | "
        "sed \"s/^/${name%%.csv} /\"; done | sort -u >'%s/committed' && for bench in '%s'/bench_*; "
        "do $bench --list | sed -n \"/^columns:/,\\$ s/^  \\([a-z]\\)/${bench##*/} \\1/p\"; done | "
        "cut -d ' ' -f 1,2 | sort -u | comm -23 '%s/committed' -";
    const char *programs = getenv("STEPBENCH_BIN");
    OWNED char *command = xasprintf(gone, (char *)*state, programs ? programs : ".", (char *)*state);
    int code;
    OWNED char *said = command_text(command, &code);
    if (*said || code != 0)
        fail_msg("these columns have gone, which raises the schema:\n%s", said);
}
