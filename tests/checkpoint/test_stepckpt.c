/* SPDX-License-Identifier: MIT */
/* stepckpt from outside: what it lists, what it finds damaged, and the weights that it gives to others. */
#include "tests/support/test.h"

#include <sys/stat.h>

#include "common/checkpoint/json.h"
#include "tests/checkpoint/saved_state.h"

static char why[512];

/* What it prints, stderr with it; caller frees. */
static char *run(const char *arguments, int want)
{
    const char *bin = getenv("STEPBENCH_BIN");
    int code;
    char *command = xasprintf("%s/stepckpt %s 2>&1", bin ? bin : ".", arguments), *text = command_text(command, &code);
    if (code != want)
        fail_msg("stepckpt %s: %d, '%s'", arguments, code, text);
    free(command);
    return text;
}

static void expect(const char *arguments, int code, const char *part)
{
    OWNED char *text = run(arguments, code);
    if (!strstr(text, part))
        fail_msg("stepckpt %s: '%s' has no '%s'", arguments, text, part);
}

static void expectf(const char *command, const char *folder, const char *rest, int code, const char *part)
{
    OWNED char *arguments = xasprintf("%s %s%s", command, folder, rest);
    expect(arguments, code, part);
}

static int with_checkpoints(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    const checkpoint_save_options o = {
        .folder = *state, .writers = 2, .keep = 3, .way = CHECKPOINT_ASYNC, .timeout_s = 5};
    checkpoint_folder_close(checkpoint_folder_open(*state, why, sizeof why));
    for (int step = 1; step <= 3; step++)
        assert_true(saved_by(&saved_model, &o, 2, step * 10).ok);
    return 0;
}

TEST_WITH(it_lists_and_verifies, with_checkpoints, folder_remove)
{
    const char *folder = *state;
    OWNED char *manifest = folder_path(folder, "step-00000020/manifest.json");
    expectf("list", folder, "", EXIT_CODE_OK, "        30  custom ");
    expectf("verify", folder, "", EXIT_CODE_OK, "step-00000030 is whole: step 30, 8 files");
    expectf("verify", folder, "/step-00000010", EXIT_CODE_OK, "step 10");
    assert_int_equal(truncate(manifest, 100), 0);
    expectf("list", folder, "", EXIT_CODE_VERIFY, "        20  damaged: ");
    expectf("verify", folder, "/step-00000020", EXIT_CODE_VERIFY, "it is damaged or cut");
}

/* Its manifest is whole: a file is cut, then as long as before, with other bytes. */
TEST_WITH(damaged_files_have_their_exit_code, with_checkpoints, folder_remove)
{
    OWNED char *file = folder_path(*state, "step-00000030/model-00002-of-00004.safetensors"),
               *out = folder_path(*state, "out"), *to = xasprintf(" %s", out),
               *exported = folder_path(out, "model.safetensors");
    struct stat st;
    assert_true(stat(file, &st) == 0 && truncate(file, st.st_size - 1000) == 0);
    expectf("list", *state, "", EXIT_CODE_VERIFY, "1000 bytes too short");
    assert_int_equal(truncate(file, st.st_size), 0);
    expectf("export", *state, to, EXIT_CODE_VERIFY, "is damaged: its hash is another");
    assert_int_not_equal(access(exported, F_OK), 0);
}

TEST_WITH(bad_input_is_a_sentence, with_checkpoints, folder_remove)
{
    expect("", EXIT_CODE_USAGE, "is wanted; see --help");
    expect("list", EXIT_CODE_USAGE, "is wanted; see --help");
    expect("list /nowhere", EXIT_CODE_USAGE, "can't read the folder of checkpoints /nowhere: No such file");
    expect("verify /nowhere", EXIT_CODE_USAGE, "/nowhere");
    expectf("export --to gguf", *state, " out", EXIT_CODE_USAGE, "--to is cs336 or llama, not 'gguf'");
    expect("list a b c d", EXIT_CODE_USAGE, "'c' is not an option");
    expect("--help", EXIT_CODE_OK, "stepckpt export");
}

/* A tensor of an exported file; its bytes lie in *file, which the caller frees. */
static const char *tensor(const char *folder, const char *name, char **file, int64_t *bytes)
{
    size_t n;
    uint64_t header;
    *file = checkpoint_read_text(folder, "model.safetensors", &n, why, sizeof why);
    assert_non_null(*file);
    memcpy(&header, *file, sizeof header);
    assert_true(header < n && header % 8 == 0);
    json *j = json_parse(*file + 8, header, why, sizeof why);
    const json *span = json_find(json_find(j, name, JSON_OBJECT), "data_offsets", JSON_ARRAY);
    if (!span)
        fail_msg("no tensor %s", name);
    const int64_t at = span->first->value;
    *bytes = span->first->next->value - at;
    json_free(j);
    return *file + 8 + header + at;
}

/* RoPE turns the pair (2i, 2i + 1) of a head here, and (i, i + half) there: by rows, 0 2 4 ... 1 3 5 ... */
TEST_WITH(weights_leave_for_others, with_checkpoints, folder_remove)
{
    enum { ROW = 24 * 2, HEAD = 12 };
    char *ours = folder_path(*state, "ours"), *llama = folder_path(*state, "llama"), *a, *b;
    char *to_llama = xasprintf(" %s", llama), *to_ours = xasprintf(" %s", ours);
    int64_t n, m;
    expectf("export", *state, to_ours, EXIT_CODE_OK, "has the weights of step 30");
    expectf("export --to llama", *state, to_llama, EXIT_CODE_OK, "has the weights of step 30");
    expectf("export", *state, to_ours, EXIT_CODE_FAILURE, "File exists");
    OWNED char *config = folder_path(ours, "config.json"), *weights = folder_path(ours, "model.safetensors");
    file_write(config, "mine");
    assert_int_equal(unlink(weights), 0);
    expectf("export --to llama", *state, to_ours, EXIT_CODE_FAILURE, "config.json: File exists");
    OWNED char *kept = file_text(config);
    assert_string_equal(kept, "mine");
    expectf("export", *state, to_ours, EXIT_CODE_OK, "has the weights of step 30");
    const char *q = tensor(ours, "layers.1.attn.q_proj.weight", &a, &n);
    const char *hf = tensor(llama, "model.layers.1.self_attn.q_proj.weight", &b, &m);
    assert_true(n == 24 * ROW && m == n);
    for (int row = 0; row < 24; row++) {
        const int in_head = row % HEAD, from = in_head < HEAD / 2 ? 2 * in_head : 2 * (in_head - HEAD / 2) + 1;
        assert_memory_equal(hf + row * ROW, q + (row / HEAD * HEAD + from) * ROW, ROW);
    }
    free(a), free(b);
    const char *up = tensor(ours, "layers.0.ffn.w3.weight", &a, &n),
               *hf_up = tensor(llama, "model.layers.0.mlp.up_proj.weight", &b, &m);
    assert_true(n == m && n == 40 * ROW);
    assert_memory_equal(up, hf_up, (size_t)n);
    free(a), free(b), free(ours), free(llama), free(to_llama), free(to_ours);
}
