/* SPDX-License-Identifier: MIT */
/* Every training op of CUDA against the CPU backend on the same inputs, and the training step against the CPU's in fp32:
 * odd shapes, gaps, aliases, dtypes; nothing written outside of the outputs; the same bits on every run, from a
 * graph, and on two streams at once. Prints a line for each failure and a table.
 *
 * Run: build/tests/gpu/test_train [--small] [--op NAME] [--dtype NAME] [--case TEXT] [--list] [--device cuda|cpu]
 * Exit code 0, 2 for bad input, 3 when a case failed, 77 when there is no GPU. */
#include "common/core/error.h"
#include "tests/gpu/train/model.h"
#include "tests/gpu/train/ops.h"
#include "tests/gpu/train/run.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_BATCH = 64, MAX_ELEMENTS = 200 * 1000 * 1000 }; /* of cases that are prepared together */

static const train_op *const train_ops[] = {
    &train_matmul,
    &train_rmsnorm_forward,
    &train_rmsnorm_backward,
    &train_rope,
    &train_swiglu_forward,
    &train_swiglu_backward,
    &train_embedding_forward,
    &train_embedding_backward,
    &train_cross_entropy,
    &train_grad_stats,
    &train_optimizer_begin,
    &train_adamw,
    &train_pointwise,
    &train_reduce,
    &train_swiglu_matmul_forward,
    &train_swiglu_matmul_backward,
    &train_attention_merge,
    &train_amax,
    &train_quantize,
    &train_codes,
    &train_quantize_within,
    &train_float8_history,
    &train_float8_matmul,
    &train_vocab_loss_partial,
    &train_vocab_loss_finish,
};
enum { TRAIN_OPS = sizeof train_ops / sizeof *train_ops };

static case_list list_wanted(const arguments *x)
{
    case_list all = {NULL, 0};
    int kept = 0;
    for (int i = 0; i < TRAIN_OPS; i++)
        train_ops[i]->list(&all, train_ops[i]);
    for (int i = 0; i < all.n; i++) {
        const train_case *c = &all.items[i];
        if (arguments_want(x, c->op->name, c->dtype, c->name, c->small))
            all.items[kept++] = *c;
    }
    all.n = kept;
    return all;
}

static void prepare(void *context, int i)
{
    train_case *cases = context;
    case_prepare(&cases[i]);
}

static void run_cases(train_bed *bed, const case_list *l)
{
    for (int first = 0, end; first < l->n; first = end) {
        size_t elements = l->items[first].elements;
        for (end = first + 1; end < l->n && end - first < MAX_BATCH && elements < MAX_ELEMENTS; end++)
            elements += l->items[end].elements;
        in_parallel(end - first, prepare, l->items + first);
        for (int i = first; i < end; i++) {
            run_train_case(bed, &l->items[i]);
            case_release(&l->items[i]);
        }
        runner_progress(end, l->n, "cases of ops");
    }
}

int main(int argc, char **argv)
{
    const char *names[TRAIN_OPS + 2] = {0};
    static const char *const dtypes[] = {"bf16",        "bf16-pure", "fp16",         "tf32", "fp32",
                                         "fp16x3-fast", "fp16x3",    "bf16-moments", "e4m3", NULL};
    program_name_set(argv[0]);
    for (int i = 0; i < TRAIN_OPS; i++)
        names[i] = train_ops[i]->name;
    names[TRAIN_OPS] = MODEL_OP;
    const arguments x = arguments_parse(argc, argv, names, dtypes);
    const case_list cases = list_wanted(&x);
    if (x.list) {
        for (int i = 0; i < cases.n; i++)
            printf("%s %s %s\n", cases.items[i].op->name, cases.items[i].dtype, cases.items[i].name);
        list_model_cases(&x);
        free(cases.items);
        return EXIT_CODE_OK;
    }
    runner r = runner_open(&x, argv[0]);
    train_bed bed = bed_open(&r);
    run_cases(&bed, &cases);
    run_model_cases(&r, &x);
    bed_close(&bed);
    free(cases.items);
    return runner_close(&r, "worst rel_l2");
}
