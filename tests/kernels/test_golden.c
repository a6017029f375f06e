/* SPDX-License-Identifier: MIT */
/* The CPU ops and the fp64 reference against tensors made with PyTorch (golden/make_golden.py, which documents the
 * format). A missing file is a failure. The folder can be given as the argument; the default fits the project's root. */
#include "tests/support/attention_problem.h"
#include "tests/support/test.h"

#include <errno.h>

static const char *folder = "tests/golden";
static const char *const cases[] = {
    "full", "causal_batch", "causal_more_keys", "causal_more_queries", "gqa_6_2", "one_query", "d80", "d128", "bf16"};

static void read_exactly(FILE *f, const char *path, void *out, size_t bytes)
{
    if (fread(out, 1, bytes, f) != bytes)
        fail_msg("%s is too short", path);
}

/* A problem whose inputs and expected results come from a file. */
static problem *read_case(const char *name, sb_dtype *dtype)
{
    char path[512], magic[8];
    int32_t header[8];
    snprintf(path, sizeof path, "%s/%s.bin", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s can't be read (%s); make it with: python3 tests/golden/make_golden.py tests/golden", path,
                 strerror(errno));
    read_exactly(f, path, magic, sizeof magic);
    if (memcmp(magic, "SBGOLD01", sizeof magic) != 0)
        fail_msg("%s is no golden file", path);
    read_exactly(f, path, header, sizeof header);

    sb_attention shape = {.batch = header[0],
                          .heads = header[1],
                          .heads_kv = header[2],
                          .seq_q = header[3],
                          .seq_k = header[4],
                          .head_dim = header[5],
                          .causal = header[6],
                          .dtype = *dtype};
    if (header[7] == SB_BF16)
        *dtype = shape.dtype = SB_BF16;
    problem *p = problem_create(&shape, LAYOUT_BHSD, 0);
    snprintf(p->name, sizeof p->name, "golden case %s", name);
    for (int id = INPUT_Q; id <= INPUT_D_O; id++) {
        size_t n = p->tensor[id].count;
        OWNED float *values = xmalloc(n * sizeof *values);
        read_exactly(f, path, values, n * sizeof *values);
        problem_set(p, id, values);
    }
    read_exactly(f, path, p->expected[OUTPUT_O], p->tensor[OUTPUT_O].count * sizeof(double));
    read_exactly(f, path, p->expected_lse, p->lse_count * sizeof(double));
    for (int id = OUTPUT_DQ; id < TENSOR_COUNT; id++)
        read_exactly(f, path, p->expected[id], p->tensor[id].count * sizeof(double));
    if (fgetc(f) != EOF)
        fail_msg("%s is too long", path);
    fclose(f);
    return p;
}

TEST(test_ops)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (sb_dtype wanted = SB_TF32; wanted <= SB_FP32; wanted++) {
            sb_dtype dtype = wanted;
            OWNED_PROBLEM problem *p = read_case(cases[i], &dtype);
            for (const sb_attention_op *op = sb_kernels_cpu()->attention; op->name; op++) {
                problem_run(p, op);
                problem_check(p, op->name);
            }
        }
}

TEST(test_reference)
{
    static const check_bound fp64 = {.rel_l2 = 1e-12, .rel_row = 1e-11, .max_abs = 1e-11, .zero_scale = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sb_dtype dtype = SB_FP32;
        OWNED_PROBLEM problem *golden = read_case(cases[i], &dtype), *p = read_case(cases[i], &dtype);
        problem_reference(p);
        for (int id = OUTPUT_O; id < TENSOR_COUNT; id++)
            expect_close(golden->expected[id], p->expected[id], p->tensor[id].count, p->a.head_dim, fp64, "reference",
                         p->name);
        expect_close(golden->expected_lse, p->expected_lse, p->lse_count, p->lse_count, fp64, "reference lse", p->name);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        folder = argv[1];
    return tests_run();
}
