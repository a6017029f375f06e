/* SPDX-License-Identifier: MIT */
/* The peer programs where there is Python: each compiles, and what needs neither a GPU nor PyTorch is right: rows,
 * options, the layout of kernels/kernels.h in ctypes, and our attention called through it. Run from the project's root. */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "bench/attention/problem.h"
#include "common/core/check.h"
#include "common/core/rng.h"
#include "common/formulas/attention.h"
#include "common/formulas/model.h"
#include "common/model/config.h"

/* What a command prints; its exit code in *code. Takes and frees the command; caller frees the text. */
static char *output_of(char *command, int *code)
{
    char *text = command_text(command, code);
    free(command);
    return text;
}

static void expect(int wanted, const char *part, char *command)
{
    OWNED char *said = xstrdup(command);
    int code;
    OWNED char *text = output_of(command, &code);
    if (code != wanted || !strstr(text, part))
        fail_msg("%s: exit code %d, not %d with '%s':\n%s", said, code, wanted, part, text);
}

static int python(const char *arguments)
{
    int code;
    free(output_of(xasprintf("python3 %s 2>&1", arguments), &code));
    return code;
}

static void need_python(void)
{
    if (python("-c 'import sys; sys.exit(sys.version_info < (3, 9))'") != 0)
        skip();
}

TEST_IN_FOLDER(every_program_compiles)
{
    need_python();
    expect(0, "", xasprintf("PYTHONPYCACHEPREFIX='%s' python3 -m py_compile tests/peers/*.py 2>&1", (char *)*state));
}

TEST_IN_FOLDER(the_self_test_passes)
{
    need_python();
    char *library = xasprintf("%s/lib/libstepbench.so", getenv("STEPBENCH_BIN") ? getenv("STEPBENCH_BIN") : "build");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const bool callable = false; /* Python does not bring the sanitizer's runtime */
#else
    const bool callable = access(library, R_OK) == 0;
#endif
    OWNED char *with = callable ? xasprintf("--lib '%s'", library) : xstrdup("");
    expect(0, callable ? "through ctypes: compared" : "",
           xasprintf("STEPBENCH_LIB= PYTHONPYCACHEPREFIX='%s' python3 tests/peers/peers.py --self-test %s 2>&1",
                     (char *)*state, with));
    free(library);
}

TEST_IN_FOLDER(what_is_missing_is_named)
{
    need_python();
    const char *dir = *state;
    expect(
        77, "nccl_tests: not run, NCCL_TESTS names no folder with all_reduce_perf",
        xasprintf(
            "NCCL_TESTS= PYTHONPYCACHEPREFIX='%s' python3 tests/peers/peers.py --only nccl_tests --out '%s/out' 2>&1",
            dir, dir));
    expect(77, "flash: not run, ",
           xasprintf("CUDA_VISIBLE_DEVICES= PYTHONPYCACHEPREFIX='%s' python3 tests/peers/peers.py --only flash,ddp "
                     "--out '%s/out' 2>&1",
                     dir, dir));
}

/* Each of the arguments is a usage error with such a part in its sentence. */
static void expect_refusals(const char *dir, const char *program, const char *const (*bad)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect(EXIT_CODE_USAGE, bad[i][1],
               xasprintf("PYTHONPYCACHEPREFIX='%s' python3 tests/peers/%s %s 2>&1", dir, program, bad[i][0]));
}

TEST_IN_FOLDER(bad_arguments_are_usage_errors)
{
    need_python();
    static const char *const bad[][2] = {{"--out x --only flash,nothing", "there is no peer 'nothing'"},
                                         {"--only flash", "--out is needed"},
                                         {"--out x --lib /none.so", "there is no /none.so"},
                                         {"--nothing", "unrecognized arguments"}};
    expect_refusals(*state, "peers.py", bad, sizeof bad / sizeof *bad);
}

/* The same seed draws the same problems, others draw others, and each kind of problem comes. */
TEST_IN_FOLDER(random_problems_follow_their_seed)
{
    need_python();
    int code;
    char *drawn[3];
    for (int i = 0; i < 3; i++) {
        drawn[i] = output_of(xasprintf("PYTHONPYCACHEPREFIX='%s' python3 tests/peers/random_checks.py --list "
                                       "--attention 200 --seed %d 2>&1",
                                       (char *)*state, i < 2 ? 7 : 8),
                             &code);
        assert_int_equal(code, 0);
    }
    assert_string_equal(drawn[0], drawn[1]);
    assert_string_not_equal(drawn[0], drawn[2]);
    static const char *const kinds[] = {"bf16 ",  "fp16 ",   "tf32 ",       "fp32 ",        "bf16x3 ",
                                        "causal", "window ", "window -1,0", "documents ",   ":0+",
                                        "bshd",   "padded",  "scale ",      "deterministic"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strstr(drawn[0], kinds[i]))
            fail_msg("200 random problems have none with '%s'", kinds[i]);
    for (int i = 0; i < 3; i++)
        free(drawn[i]);
}

/* random_checks.py repeats the bounds of the benches. */
TEST_IN_FOLDER(random_checks_have_the_bounds_of_the_benches)
{
    need_python();
    int code;
    OWNED char *text =
        output_of(xasprintf("PYTHONPYCACHEPREFIX='%s' PYTHONPATH=tests/peers python3 -c 'import random_checks\n"
                            "for d, b in random_checks.BOUNDS.items(): print(d, *b)' 2>&1",
                            (char *)*state),
                  &code);
    int dtypes = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), dtypes++) {
        char dtype[16];
        double forward, backward;
        if (sscanf(line, "%15s %lf %lf", dtype, &forward, &backward) != 3)
            fail_msg("%s", line);
        assert_true(forward == check_attention_bound(dtype, false).rel_l2);
        assert_true(backward == check_attention_bound(dtype, true).rel_l2);
    }
    assert_int_equal(dtypes, 5);
}

/* load.py repeats the formula of a step, the sizes of models and the data sheets. */
TEST_IN_FOLDER(peers_count_work_as_the_benches_do)
{
    need_python();
    int code, lines = 0;
    OWNED char *text = output_of(
        xasprintf(
            "PYTHONPYCACHEPREFIX='%s' PYTHONPATH=tests/peers python3 -c 'import load\n"
            "for size in load.SIZES: print(size, repr(load.step_flops(size, 2048, 3)), 0, sep=\";\")\n"
            "for gpu in (\"NVIDIA H100 PCIe\", \"NVIDIA H100 80GB HBM3\", \"NVIDIA H200\", \"NVIDIA H200 NVL\", "
            "\"NVIDIA A100-SXM4-80GB\", \"other\"):\n"
            "    for dtype in (\"bf16\", \"tf32\", \"fp32\"): print(gpu, repr(load.peak_tflops(gpu, dtype)), dtype, "
            "sep=\";\")' 2>&1",
            (char *)*state),
        &code);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        char name[64], dtype[8];
        double theirs;
        if (sscanf(line, "%63[^;];%lf;%7s", name, &theirs, dtype) != 3)
            fail_msg("%s", line);
        double ours = peak_tflops(name, dtype);
        if (*dtype == '0') {
            const model_config *m = NULL;
            for (size_t i = 0; model_sizes[i].name; i++)
                m = strcmp(model_sizes[i].name, name) == 0 ? &model_sizes[i] : m;
            assert_non_null(m);
            const transformer_shape shape = {.batch = 3,
                                             .seq = 2048,
                                             .d_model = m->d_model,
                                             .d_ff = m->d_ff,
                                             .layers = m->layers,
                                             .heads = m->heads,
                                             .heads_kv = m->heads_kv,
                                             .vocab = m->vocab > 10000 ? m->vocab : 10000};
            ours = transformer_step_flops(&shape, FLOPS_CAUSAL);
        }
        if (theirs != ours && !(isnan(theirs) && isnan(ours)))
            fail_msg("%s: ours is %.17g", line, ours);
    }
    assert_int_equal(lines, 8 + 18);
}

/* start.py draws what rng.c draws: here with numbers in place of tensors, so that no PyTorch is needed. */
TEST_IN_FOLDER(peers_start_where_the_benches_do)
{
    need_python();
    int code, lines = 0;
    OWNED char *text =
        output_of(xasprintf("PYTHONPYCACHEPREFIX='%s' PYTHONPATH=tests/peers python3 -c 'import sys, types\n"
                            "sys.modules[\"torch\"] = types.SimpleNamespace(no_grad=lambda: lambda f: f)\n"
                            "import start\n"
                            "for j in (0, 5, 2**32 - 1, 2**32 + 7, 2**40 + 3):\n"
                            "    seed = start.rng_hash(j, start.our_names(\"blocks.3.qkv.weight\")[1])\n"
                            "    print(j, seed, *start.philox(j, start.TOKENS, 1, seed))' 2>&1",
                            (char *)*state),
                  &code);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        unsigned long long j, seed, x[4];
        if (sscanf(line, "%llu %llu %llu %llu %llu %llu", &j, &seed, &x[0], &x[1], &x[2], &x[3]) != 6)
            fail_msg("%s", line);
        const uint32_t counter[4] = {(uint32_t)j, (uint32_t)(j >> 32), 0x70cef5, 1},
                       key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t ours[4];
        assert_true(seed == rng_hash(j, "layers.3.attn.k_proj.weight"));
        philox4x32(counter, key, ours);
        for (int i = 0; i < 4; i++)
            assert_int_equal(x[i], ours[i]);
    }
    assert_int_equal(lines, 5);
}

/* flash_cases.py repeats how bench_flash counts operations, and start.py how it draws the lengths of documents. */
TEST_IN_FOLDER(peers_have_the_attention_of_the_bench)
{
    need_python();
    int code, lines = 0, packed = 0;
    OWNED char *text = output_of(
        xasprintf("PYTHONPYCACHEPREFIX='%s' PYTHONPATH=tests/peers python3 -c 'import sys, types\n"
                  "sys.modules[\"torch\"] = types.SimpleNamespace(no_grad=lambda: lambda f: f)\n"
                  "import flash_cases, start\n"
                  "for c in (*flash_cases.CASES, *flash_cases.SMALL):\n"
                  "    _, seq = flash_cases.tokens(c)\n"
                  "    borders = start.document_borders(c.documents, seq, c.lengths) if c.documents else [0, seq]\n"
                  "    print(c.batch, c.heads, c.seq, c.head_dim, c.head_dim_v, c.causal, c.window, c.documents, "
                  "int(c.lengths == \"random\"), flash_cases.pairs(c, borders))' 2>&1",
                  (char *)*state),
        &code);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        sb_attention s = {0};
        int causal, random;
        double pairs;
        if (sscanf(line, "%d %d %d %d %d %d %d %d %d %lf", &s.batch, &s.heads, &s.seq_q, &s.head_dim, &s.head_dim_v,
                   &causal, &s.window_left, &s.documents, &random, &pairs) != 10)
            fail_msg("%s", line);
        s.heads_kv = s.heads, s.causal = causal, s.windowed = s.window_left >= 0, s.window_right = -1;
        s.packed = s.documents > 0, packed += s.packed;
        if (s.packed)
            s.seq_q *= s.batch, s.batch = 1;
        s.seq_k = s.seq_q;
        OWNED int *borders = s.packed ? documents_draw(s.documents, s.seq_q, random, rng_hash(1, "lengths"), 0) : NULL;
        s.cu_seqlens_q = s.cu_seqlens_k = borders;
        const double columns = s.head_dim + (s.head_dim_v ? s.head_dim_v : s.head_dim);
        if (2.0 * s.heads * columns * pairs != attention_forward_flops(&s))
            fail_msg("%s: ours are %.17g", line, attention_forward_flops(&s) / (2.0 * s.heads * columns));
    }
    assert_true(lines >= 40 && packed >= 2);
}

/* Where Python has PyTorch: FlexAttention is given the masks that random_checks.py compares with our attention. */
TEST_IN_FOLDER(flex_attention_has_our_masks)
{
    need_python();
    if (python("-c 'import torch.nn.attention.flex_attention'") != 0)
        skip();
    expect(
        0, "3 masks",
        xasprintf("PYTHONPYCACHEPREFIX='%s' PYTHONPATH=tests/peers python3 -c 'import flash, flash_cases, torch\n"
                  "from torch.nn.attention.flex_attention import create_mask\n"
                  "tasks = [flash.Task(c, device=\"cpu\") for c in flash_cases.SMALL if c.kind != \"plain\"]\n"
                  "for task in tasks:\n"
                  "    mask = create_mask(flash.flex_mask(task), 1, 1, *2 * task.borders[-1:], device=\"cpu\")[0, 0]\n"
                  "    assert torch.equal(mask, flash.random_checks.visible(task.problem, \"cpu\")), task.case\n"
                  "print(len(tasks), \"masks\")' 2>&1",
                  (char *)*state));
}

/* The same: what is called deterministic has a note if it gives other bits when it runs again. */
TEST_IN_FOLDER(other_bits_are_no_deterministic_backward)
{
    need_python();
    if (python("-c 'import torch'") != 0)
        skip();
    expect(0, "['noisy']",
           xasprintf(
               "PYTHONPYCACHEPREFIX='%s' PYTHONPATH=tests/peers python3 -c 'import flash, flash_cases, torch, types\n"
               "task, notes = flash.Task(flash_cases.SMALL[-1]._replace(seq=64), device=\"cpu\"), {}\n"
               "exact = flash.exact(task)\n"
               "results = {\"steady\": lambda: exact, \"noisy\": lambda: [t + torch.rand(()) for t in exact]}\n"
               "made = {name: types.SimpleNamespace(results=call) for name, call in results.items()}\n"
               "reference, found = flash.compare(made, task, notes)\n"
               "assert reference == \"fp64\" and found[\"steady\"] == [0, 0] and found[\"noisy\"][1] > 0, found\n"
               "print(list(notes))' 2>&1",
               (char *)*state));
}

TEST_IN_FOLDER(random_checks_name_bad_input)
{
    need_python();
    static const char *const bad[][2] = {{"--attention 0 --models 0", "must be more than 0"},
                                         {"--attention -1", "must not be negative"},
                                         {"--device tpu", "invalid choice"},
                                         {"--seed x", "invalid int"}};
    expect_refusals(*state, "random_checks.py", bad, sizeof bad / sizeof *bad);
}
