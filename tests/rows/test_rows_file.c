/* SPDX-License-Identifier: MIT */
/* The CSV file across runs: other files in the way, torn lines, several writers, what --resume finds. */
#include "tests/support/test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

TEST(other_columns_are_moved_aside)
{
    OWNED char *path = folder_path(*state, "other.csv"), *first = folder_path(*state, "other.1.csv");
    OWNED char *second = folder_path(*state, "other.2.csv");
    OWNED_OPTIONS options *o = sample_options_of("--seq 1 --dtype bf16 --variant fast");
    file_write(path, "a,b\n1,2\n");
    rows_close(sample_rows(o, path, false));
    char *text = file_text(first);
    assert_string_equal(text, "a,b\n1,2\n");
    free(text);
    file_write(path, "schema"); /* killed while it wrote the header */
    row_writer *r = sample_rows(o, path, false);
    text = file_text(second);
    assert_string_equal(text, "schema");
    free(text);

    assert_int_equal(unlink(path), 0); /* deleted during the run */
    sample_row(r, o, 0, ROW_OK);
    rows_close(r);
    OWNED_CSV csv *t = csv_read(path);
    assert_int_equal(t->rows, 1);
}

TEST(what_is_no_file_is_refused_and_links_stay)
{
    OWNED_OPTIONS options *o = sample_options_of("--seq 1 --dtype bf16 --variant fast");
    OWNED char *pipe = folder_path(*state, "pipe.csv"), *link = folder_path(*state, "link.csv"),
               *file = folder_path(*state, "linked.csv"), *aside = folder_path(*state, "linked.1.csv");
    assert_int_equal(mkfifo(pipe, 0666), 0);
    const char *const paths[] = {pipe, *state, "/proc/self/fd/1", "/dev/null"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const pid_t child = fork();
        if (child == 0) {
            rows_close(sample_rows(o, paths[i], false));
            _exit(EXIT_CODE_OK);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_CODE_USAGE)
            fail_msg("--csv %s: %#x", paths[i], (unsigned)status);
    }
    file_write(file, "a,b\n1,2\n");
    assert_int_equal(symlink("linked.csv", link), 0);
    rows_close(sample_rows(o, link, false));
    OWNED char *text = file_text(aside);
    assert_string_equal(text, "a,b\n1,2\n");
    struct stat info;
    assert_true(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
}

/* A file that a spreadsheet or an editor has rewritten: what it held is kept, here or aside. */
TEST(a_rewritten_file_is_kept)
{
    static const char *const edits[] = {
        "s/,/;/g", "s/,/\\t/g", "1s/^/\\xef\\xbb\\xbf/", "s/$/\\r/", "1s/,seq,/,dtype,/",
        "1d",      "d",         "2s/,/\\x00/",           "2s/,/\"/", "2s/,[^,]*$//"};
    OWNED char *path = folder_path(*state, "edited.csv"), *aside = folder_path(*state, "edited.1.csv"),
               *copy = folder_path(*state, "edited.copy");
    OWNED_OPTIONS options *o = sample_options_of("--seq 1:3 --dtype bf16 --variant fast");
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        row_writer *r = sample_rows(o, path, false);
        sample_row(r, o, 0, ROW_OK);
        sample_row(r, o, 1, ROW_OK);
        rows_close(r);
        OWNED char *edit = xasprintf("sed -i '%s' '%s' && cp '%s' '%s'", edits[i], path, path, copy);
        assert_int_equal(system(edit), 0);
        r = sample_rows(o, path, true);
        sample_row(r, o, 2, ROW_OK);
        rows_close(r);
        OWNED char *same =
            xasprintf("head -c \"$(stat -c %%s '%s')\" \"$([ -f '%s' ] && echo '%s' || echo '%s')\" | cmp -s - '%s'",
                      copy, aside, aside, path, copy);
        if (system(same) != 0)
            fail_msg("after %s the file's bytes are gone", edits[i]);
        OWNED_CSV csv *t = csv_read(path);
        assert_string_equal(csv_cell(t, t->rows - 1, "seq"), "3");
        unlink(path);
        unlink(aside);
    }
}

/* Cut the file after every byte of its second row, and write another row. */
TEST(torn_lines)
{
    OWNED char *path = folder_path(*state, "torn.csv");
    OWNED_OPTIONS options *o = sample_options_of("--seq 1:3 --dtype bf16 --variant fast");
    row_writer *r = sample_rows(o, path, false);
    sample_row(r, o, 0, ROW_OK);
    OWNED char *one = file_text(path);
    sample_row(r, o, 1, ROW_SKIP); /* a quoted reason */
    rows_close(r);
    OWNED char *two = file_text(path);
    for (size_t cut = strlen(one); cut < strlen(two); cut++) {
        OWNED char *part = xasprintf("%.*s", (int)cut, two);
        file_write(path, part);
        r = sample_rows(o, path, false);
        sample_row(r, o, 2, ROW_OK);
        rows_close(r);
        OWNED_CSV csv *t = csv_read(path);
        assert_true(t->rows == 2 || t->rows == 3); /* 3: only the time stamp was cut */
        assert_int_equal(t->dropped, t->rows == 2 && cut > strlen(one));
        assert_string_equal(csv_cell(t, 0, "seq"), "1");
        assert_string_equal(csv_cell(t, t->rows - 1, "seq"), "3");
        if (t->rows == 3)
            assert_string_equal(csv_cell(t, 1, "gpu_uuid"), "GPU-1");
    }
}

/* The file may grow to `bytes`; what the writer of a row says of it. */
static void write_into_full_disk(const char *path, const char *err, size_t bytes)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {bytes, bytes};
        signal(SIGXFSZ, SIG_IGN);
        options *o = sample_options_of("--seq 1:3 --dtype bf16 --variant fast");
        if (!freopen(err, "w", stderr) || setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(99);
        setvbuf(stderr, NULL, _IONBF, 0);
        row_writer *r = sample_rows(o, path, false);
        sample_row(r, o, 1, ROW_OK);
        _exit(98);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_CODE_FAILURE);
}

/* What a full disk cut off is taken back: no torn line stays. */
TEST(a_full_disk_leaves_whole_rows)
{
    OWNED char *path = folder_path(*state, "full.csv"), *err = folder_path(*state, "full.err");
    OWNED_OPTIONS options *o = sample_options_of("--seq 1:3 --dtype bf16 --variant fast");
    row_writer *r = sample_rows(o, path, false);
    sample_row(r, o, 0, ROW_OK);
    rows_close(r);
    OWNED char *before = file_text(path);
    write_into_full_disk(path, err, strlen(before) + 40);
    OWNED char *after = file_text(path), *said = file_text(err);
    assert_string_equal(after, before);
    assert_non_null(strstr(said, "cannot write a row to"));
}

/* --resume says which line does not count. */
TEST(a_torn_line_is_named)
{
    OWNED char *path = folder_path(*state, "named.csv"), *err = folder_path(*state, "named.err");
    OWNED_OPTIONS options *o = sample_options_of("--seq 1:3 --dtype bf16 --variant fast");
    row_writer *r = sample_rows(o, path, false);
    sample_row(r, o, 0, ROW_OK);
    sample_row(r, o, 1, ROW_OK);
    rows_close(r);
    OWNED char *text = file_text(path);
    text[strlen(text) / 2 + strlen(text) / 3] = 0;
    file_write(path, text);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen(err, "w", stderr))
            _exit(99);
        rows_close(sample_rows(o, path, true));
        fflush(NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    OWNED char *said = file_text(err);
    assert_non_null(strstr(said, "named.csv: line 3 is torn and does not count\n"));
}

static bool has(row_writer *r, const options *o, size_t index)
{
    OWNED_CASE bench_case *c = case_at(o, index);
    bool result = rows_has(r, c);
    return result;
}

TEST(resume)
{
    OWNED char *path = folder_path(*state, "resume.csv");
    options *o = sample_options_of("--seq 128,256 --dtype bf16");
    row_writer *r = sample_rows(o, path, true); /* nothing to resume from */
    sample_row(r, o, 0, ROW_OK);
    sample_row(r, o, 1, ROW_FAIL);
    sample_row(r, o, 2, ROW_OOM);
    rows_close(r);

    r = sample_rows(o, path, false);
    assert_false(has(r, o, 0));
    rows_close(r);
    r = sample_rows(o, path, true);
    assert_true(has(r, o, 0) && has(r, o, 2));
    assert_false(has(r, o, 3));
    assert_int_equal(rows_close(r), 0);
    r = sample_rows(o, path, true);
    assert_true(has(r, o, 1));
    assert_int_equal(rows_close(r), EXIT_CODE_VERIFY); /* a kept failure is still one */
    r = sample_rows(o, path, false);
    sample_row(r, o, 1, ROW_OK);
    rows_close(r);
    r = sample_rows(o, path, true);
    assert_true(has(r, o, 1));
    assert_int_equal(rows_close(r), 0); /* the latest row counts */

    options_free(o);
    o = sample_options_of("--seq 256,512 --dtype bf16,fp16"); /* other lists: case by case */
    r = sample_rows(o, path, true);
    assert_true(has(r, o, 0)); /* 256 bf16 plain */
    assert_false(has(r, o, 2));
    rows_close(r);
    rows_info info = {.csv_path = path,
                      .machine = "test-x1",
                      .device_name = "GPU",
                      .device = "cuda",
                      .quiet = true}; /* rows of the CPU are not its own */
    r = rows_open(o, &info, true);
    assert_false(has(r, o, 0));
    rows_close(r);
    options_free(o);
}

/* A row measured in another way does not stand for this run's; a verified one stands for an unverified one. */
TEST(resume_asks_how_it_was_measured)
{
    static const char way[] = "--seq 128 --dtype bf16 --variant fast";
    static const struct {
        const char *kept, *asked;
        bool counts;
    } table[] = {{"", "", true},           {"--check 0", "", false},    {"", "--check 0", true},
                 {"--l2 cold", "", false}, {"", "--timer host", false}, {"--timer host", "--timer host", true}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        OWNED char *path = folder_path(*state, "way.csv");
        OWNED char *kept = xasprintf("%s %s", way, table[i].kept), *asked = xasprintf("%s %s", way, table[i].asked);
        options *o = sample_options_of(kept);
        row_writer *r = sample_rows(o, path, false);
        sample_row(r, o, 0, ROW_OK);
        rows_close(r);
        options_free(o);
        o = sample_options_of(asked);
        r = sample_rows(o, path, true);
        if (has(r, o, 0) != table[i].counts)
            fail_msg("a row of '%s' for '%s'", table[i].kept, table[i].asked);
        rows_close(r);
        options_free(o);
        assert_int_equal(unlink(path), 0);
    }
}

/* Rows of another GPU or, within a ./run_all.sh, of another run do not stand beside this run's. */
TEST(resume_stays_on_one_gpu_and_in_one_run)
{
    static const struct {
        const char *gpu_uuid, *campaign;
        bool counts;
    } table[] = {{"GPU-1", NULL, true},     {"GPU-1", "run-1", true}, {"GPU-2", NULL, false},
                 {"GPU-2", "run-1", false}, {NULL, "run-1", false},   {"GPU-1", "run-2", false}};
    OWNED char *path = folder_path(*state, "place.csv"), *machine = folder_path(*state, "machine.csv");
    OWNED_OPTIONS options *o = sample_options_of("--seq 128 --dtype bf16 --variant fast");
    rows_info info = {.csv_path = path,
                      .machine = "test-x1",
                      .device_name = "GPU",
                      .gpu_uuid = "GPU-1",
                      .campaign = "run-1",
                      .device = "cuda",
                      .quiet = true};
    row_writer *r = rows_open(o, &info, false);
    sample_row(r, o, 0, ROW_OK);
    rows_close(r);
    OWNED char *facts = file_text(machine);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        file_write(machine, facts); /* without those of the runs below, which have the same id in the same second */
        info.gpu_uuid = table[i].gpu_uuid;
        info.campaign = table[i].campaign;
        info.silent = true;
        r = rows_open(o, &info, true);
        assert_int_equal(has(r, o, 0), table[i].counts);
        rows_close(r);
    }
    file_write(machine, "run_id,key,value\n"); /* whose rows these are is not known */
    info.gpu_uuid = "GPU-1";
    info.campaign = "run-1";
    r = rows_open(o, &info, true);
    assert_false(has(r, o, 0));
    rows_close(r);
}

static int resumed(const char *path)
{
    OWNED_OPTIONS options *o = sample_options_of("--seq 128 --dtype bf16 --variant fast");
    rows_close(sample_rows(o, path, true));
    return EXIT_CODE_OK;
}

/* Rows of another schema are bad input for --resume, and stay where they are; without it they are moved aside. */
TEST(another_schema)
{
    static const char old[] = "schema,method,bench,variant,status,reason\n2,3,bench_sample,fast,ok,\n";
    OWNED char *path = folder_path(*state, "schema.csv"), *aside = folder_path(*state, "schema.1.csv");
    file_write(path, old);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(resumed(path));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_USAGE);
    char *text = file_text(path);
    assert_string_equal(text, old);
    free(text);
    OWNED_OPTIONS options *o = sample_options_of("--seq 128 --dtype bf16 --variant fast");
    rows_close(sample_rows(o, path, false));
    text = file_text(aside);
    assert_string_equal(text, old);
    free(text);
}

/* Several processes append to one file; every row arrives whole. */
TEST(many_writers)
{
    enum { WRITERS = 4, EACH = 50 };
    OWNED char *path = folder_path(*state, "many.csv");
    OWNED_OPTIONS options *o = sample_options_of("--seq 1:50 --dtype bf16 --variant fast");
    for (int i = 0; i < WRITERS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            row_writer *r = sample_rows(o, path, false);
            for (size_t k = 0; k < EACH; k++)
                sample_row(r, o, k, ROW_OK);
            _exit(rows_close(r));
        }
    }
    int status;
    for (int i = 0; i < WRITERS; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    OWNED_CSV csv *t = csv_read(path);
    assert_int_equal(t->rows, WRITERS * EACH);
    assert_int_equal(t->dropped, 0);
}

TESTS_WITH(folder_create, folder_remove)
