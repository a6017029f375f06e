/* SPDX-License-Identifier: MIT */
/* The sample bench and the temporary folder; see test.h. */
#include "tests/support/test.h"

#include <ftw.h>
#include <sys/wait.h>
#include <sys/stat.h>

static const option_spec sample_options[] = {
    {"seq", OPTION_INT, OPTION_LIST, "128:1024:*2", .help = "sequence length", .def_cpu = "128,256", .min = 1,
     .max = 1048576, .unit = "tokens"},
    {"head-dim", OPTION_INT, OPTION_LIST, "16", .help = "columns of a head", .min = 8, .max = 256},
    {"dtype", OPTION_CHOICE, OPTION_LIST, "bf16,fp32", .help = "precision", .def_cpu = "fp32",
     .choices = "bf16|fp16|fp32"},
    {"decay", OPTION_REAL, OPTION_LIST, "0.5", .help = "a list of reals", .max = 1},
    {"causal", OPTION_FLAG, OPTION_LIST, "1", .help = "masked"},
    {"scale", OPTION_REAL, OPTION_PARAM, "1", .help = "a number without bounds"},
    {"bucket", OPTION_BYTES, 0, "25MB", .help = "a size", .min = 1, .max = 1e12, .unit = "bytes"},
    {"iters", OPTION_INT, 0, "7", .help = "samples of the sample bench", .min = 1, .max = 100, .unit = "samples"},
    {"fuse", OPTION_FLAG, 0, "0", .help = "one kernel"},
    {0},
};
static const variant_spec sample_variants[] = {{"plain", "one after the other"}, {"fast", "all at once"}, {0}};
static const column_spec sample_columns[] = {
    {"fwd_ms", COLUMN_REAL, true, "median of a forward pass"},
    {"peak_bytes", COLUMN_INT, true, "most memory held"},
    {"timer", COLUMN_TEXT, false, "what timed it"},
    {"err_fwd", COLUMN_REAL, false, "error of the output"},
    {0},
};

static bool sample_validate(const options *o, char *msg, size_t msg_bytes)
{
    if (!option_flag(o, "fuse") || option_real(o, "scale") == 1)
        return true;
    snprintf(msg, msg_bytes, "--fuse 1 goes with --scale 1 only");
    return false;
}

const bench_info sample_bench = {
    .name = "bench_sample",
    .summary = "What does a test need?",
    .notes = "A row is one case.",
    .examples = "./bench_sample --seq 128",
    .options = sample_options,
    .variants = sample_variants,
    .columns = sample_columns,
    .validate = sample_validate,
};

const options_env sample_on_cpu = {"cpu", NULL, &rows_layout}, sample_with_cuda = {"cuda", NULL, &rows_layout};

options *sample_parse(const char *arguments, char *msg, size_t msg_bytes)
{
    char *argv[64] = {"bench_sample"}, *copy = xstrdup(arguments), *rest = copy, *word;
    int argc = 1;
    while ((word = strsep(&rest, " ")))
        if (*word)
            argv[argc++] = word;
    options *o = options_try(&sample_bench, argc, argv, &sample_with_cuda, msg, msg_bytes);
    free(copy);
    return o;
}

options *sample_options_of(const char *arguments)
{
    char msg[1024];
    options *o = sample_parse(arguments, msg, sizeof msg);
    if (!o)
        fail_msg("'%s' was refused: %s", arguments, msg);
    return o;
}

row_writer *sample_rows(const options *o, const char *path, bool resume)
{
    rows_info info = {.csv_path = path,
                      .machine = "test-x1",
                      .device_name = "A, \"quoted\" GPU",
                      .gpu_uuid = "GPU-1",
                      .device = "cpu",
                      .quiet = true};
    return rows_open(o, &info, resume);
}

void sample_row(row_writer *r, const options *o, size_t index, row_status status)
{
    bench_case *c = case_at(o, index);
    row *w = row_begin(r, c);
    row_real(w, "fwd_ms", 1.0 / 3);
    row_int(w, "peak_bytes", (int64_t)1 << 36);
    row_text(w, "timer", "host");
    row_real(w, "err_fwd", 0.25);
    if (status != ROW_OK)
        row_status_set(w, status, "why, \"%s\"\nindeed", "so");
    row_commit(w);
    case_free(c);
}

int folder_create(void **state)
{
    const char *parent = getenv("TMPDIR");
    char *path = xasprintf("%s/stepbench_test_XXXXXX", parent ? parent : "/tmp");
    *state = path;
    return mkdtemp(path) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

int folder_remove(void **state)
{
    int result = nftw(*state, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return result;
}

char *folder_path(const char *folder, const char *name)
{
    return xasprintf("%s/%s", folder, name);
}

char *file_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = NULL;
    size_t bytes = 0;
    if (getdelim(&text, &bytes, '\0', file) < 0) {
        free(text);
        text = xstrdup("");
    }
    fclose(file);
    return text;
}

void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

char *folder_text(const char *folder, const char *name)
{
    char *path = folder_path(folder, name), *text = file_text(path);
    free(path);
    return text;
}

void folder_write(const char *folder, const char *name, const char *text)
{
    OWNED char *path = folder_path(folder, name);
    file_write(path, text);
}

void text_has(const char *text, const char *wanted)
{
    if (!strstr(text, wanted))
        fail_msg("'%s' is not in:\n%s", wanted, text);
}

void text_lacks(const char *text, const char *unwanted)
{
    if (strstr(text, unwanted))
        fail_msg("'%s' is in:\n%s", unwanted, text);
}

void folder_program(const char *folder, const char *name, const char *text)
{
    OWNED char *path = folder_path(folder, name);
    file_write(path, text);
    assert_int_equal(chmod(path, 0755), 0);
}

char *command_text(const char *command, int *code)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *from = popen(command, "r"), *to = open_memstream(&text, &bytes);
    assert_non_null(from);
    for (int c; (c = fgetc(from)) != EOF;)
        fputc(c, to);
    fclose(to);
    const int status = pclose(from);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return text;
}
