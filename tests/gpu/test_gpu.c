/* SPDX-License-Identifier: MIT */
/* Attention and the basic ops of CUDA against the CPU's fp64 reference: odd shapes, masks, head groups, layouts, hard
 * values, dtypes; nothing written outside of the outputs; the same bits on every run. flash_wide, _narrow, _pair and _tall are the
 * backward kernels that flash chooses from on Hopper, and flash_forward_pairs one of its forwards. Prints a line for each failure and
 * a table.
 *
 * Run: build/tests/gpu/test_gpu [--small] [--op NAME] [--dtype NAME] [--case TEXT] [--list] [--device cuda|cpu]
 * Exit code 0, 2 for bad input, 3 when a case failed, 77 when there is no GPU. */
#include "common/core/error.h"
#include "tests/gpu/forced_kernels.h"
#include "tests/gpu/ops.h"
#include "tests/gpu/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64 };

/* Keeps the cases that were asked for; their number. */
static int select_cases(const arguments *x, test_case *cases, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if ((!x->small || cases[i].small) && (!x->name || strstr(cases[i].name, x->name)) &&
            (!x->dtype || strcmp(x->dtype, case_dtype_names[cases[i].dtype]) == 0))
            cases[kept++] = cases[i];
    return kept;
}

/* Expected values. */
static void prepare(void *context, int i)
{
    problem **problems = context;
    if (problems[i]->by_cpu)
        problem_expect_from_cpu(problems[i]);
}

/* One op alone is compared with the device's reference, which takes a hundredth of the time: the run of --op reference
 * compares that with the CPU's on the same problems. Small runs are for compute-sanitizer, where the device is slow. */
static bool asks_cpu(const arguments *x)
{
    return !x->op || strcmp(x->op, "reference") == 0 || x->small || x->kind == DEVICE_CPU;
}

static bool is_attention(const char *op)
{
    return strcmp(op, "reference") == 0 || strstr(op, "fused") || strncmp(op, "flash", 5) == 0;
}

static void list_cases(const arguments *x, const char *const *ops, const test_case *cases, int n)
{
    for (; *ops; ops++)
        for (int i = 0; i < n && is_attention(*ops) && (!x->op || strcmp(x->op, *ops) == 0); i++)
            printf("%s %s %s\n", *ops, case_dtype_names[cases[i].dtype], cases[i].name);
}

static void run_cases(runner *r, const arguments *x, const test_case *cases, int n)
{
    for (int first = 0; first < n; first += BATCH) {
        const int count = n - first < BATCH ? n - first : BATCH;
        problem *problems[BATCH];
        for (int i = 0; i < count; i++) {
            problems[i] = problem_create(&cases[first + i]);
            problems[i]->by_cpu = asks_cpu(x) && problem_cpu_affordable(problems[i]);
        }
        in_parallel(count, prepare, problems);
        for (int i = 0; i < count; i++) {
            run_attention(r, problems[i], x->op);
            problem_free(problems[i]);
        }
        runner_progress(first + count, n, "attention cases");
    }
}

int main(int argc, char **argv)
{
    const char *ops[24] = {"unfused", "fused",       "flash", "flash_portable", "reference",
                           "gemm",    "fill_normal", "copy",  "nothing"}; /* and the forced kernels; ends with NULL */
    int listed = 0;
    while (ops[listed])
        listed++;
    for (const sb_attention_op *op = forced_kernels(); op->name; op++)
        ops[listed++] = op->name;
    static const char *const dtypes[] = {"bf16", "fp16", "tf32", "fp32", "bf16x3", "bytes", NULL};
    program_name_set(argv[0]);
    const arguments x = arguments_parse(argc, argv, ops, dtypes);
    int n = 0;
    test_case *cases = cases_create(&n);
    n = select_cases(&x, cases, n);
    if (x.list) {
        list_cases(&x, ops, cases, n);
        run_basic(NULL, &x);
        free(cases);
        return EXIT_CODE_OK;
    }
    runner r = runner_open(&x, argv[0]);
    run_basic(&r, &x);
    if (!x.op || is_attention(x.op))
        run_cases(&r, &x, cases, n);
    free(cases);
    return runner_close(&r, "worst rel_l2 of o, dq, dk, dv on N(0,1)");
}
