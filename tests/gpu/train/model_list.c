/* SPDX-License-Identifier: MIT */
/* Which training steps are tested; see train_model.h. */
#include "tests/gpu/train/model.h"

#include "common/core/error.h"

#include <stdio.h>
#include <stdlib.h>

const model_shape model_shapes[MODEL_SHAPES] = {
    {"tiny", {"custom", 256, 64, 192, 2, 4, 4, 1e4f, 1e-5f}, 2, 16, 0},
    {"odd", {"custom", 61, 72, 104, 3, 3, 1, 1e4f, 1e-5f}, 3, 13, 0},
    {"mid", {"custom", 1000, 256, 704, 2, 4, 2, 1e4f, 1e-5f}, 2, 130, 0},
    {"clipped", {"custom", 256, 64, 192, 2, 4, 4, 1e4f, 1e-5f}, 2, 16, 0.05},
};
enum { TINY, ODD, MID };

/* Hardware may cut off the bits that tf32 has not, where the CPU rounds. */
enum { FP32, FP32_FAST, FP32_PARTS, TF32, BF16, FP16, BF16_PURE, BF16_MOMENTS, POLICIES };
static const model_policy policies[POLICIES] = {
    [FP32] = {"fp32", "fp32", SB_FMA, 1e-5, 3e-3, MOMENTS_POLICY},
    [FP32_FAST] = {"fp16x3-fast", "fp32", SB_FP16X3_FAST, 2e-5, 3e-3, MOMENTS_POLICY},
    [FP32_PARTS] = {"fp16x3", "fp32", SB_FP16X3, 1e-5, 3e-3, MOMENTS_POLICY},
    [TF32] = {"tf32", "tf32", SB_FMA, 1e-2, 3e-3, MOMENTS_POLICY},
    [BF16] = {"bf16", "bf16", SB_FMA, 5e-2, 3e-3, MOMENTS_POLICY},
    [FP16] = {"fp16", "fp16", SB_FMA, 1e-2, 3e-3, MOMENTS_POLICY},
    [BF16_PURE] = {"bf16-pure", "bf16-pure", SB_FMA, 5e-2, 1e-2, MOMENTS_POLICY},
    [BF16_MOMENTS] = {"bf16-moments", "bf16", SB_FMA, 5e-2, 3e-3, MOMENTS_BF16},
};

enum { KERNELS_UNFUSED, GRAPH_FLASH, KERNELS_GRAD32, EAGER, WAYS };
static const model_way ways[WAYS] = {
    [KERNELS_UNFUSED] = {"kernels-unfused", "unfused", FUSION_KERNELS, OVERLAP_NONE, false},
    [GRAPH_FLASH] = {"graph-flash", "flash", FUSION_GRAPH, OVERLAP_ALL, false},
    [KERNELS_GRAD32] = {"kernels-flash-grad32", "flash", FUSION_KERNELS, OVERLAP_GRADIENTS, true},
    [EAGER] = {"eager-fused", "fused", FUSION_NONE, OVERLAP_NONE, false},
};

static const model_variation variations[] = {
    {"again", false, OVERLAP_NONE, false, RECOMPUTE_NONE, 1, 0},
    {"graph", true, OVERLAP_NONE, false, RECOMPUTE_NONE, 1, 0},
    {"overlap", false, OVERLAP_ALL, false, RECOMPUTE_NONE, 1, 0},
    {"overlap-7-blocks", false, OVERLAP_ALL, false, RECOMPUTE_NONE, 1, 7},
    {"overlap-gradients", false, OVERLAP_GRADIENTS, false, RECOMPUTE_NONE, 1, 0},
    {"share", false, OVERLAP_NONE, true, RECOMPUTE_NONE, 1, 0},
    {"graph-overlap-share", true, OVERLAP_ALL, true, RECOMPUTE_NONE, 1, 0},
    {"selective", false, OVERLAP_NONE, true, RECOMPUTE_SELECTIVE, 1, 0},
    {"graph-selective", true, OVERLAP_ALL, true, RECOMPUTE_SELECTIVE, 1, 0},
    {"graph-attn", true, OVERLAP_ALL, true, RECOMPUTE_ATTN, 1, 0},
    {"graph-mlp", true, OVERLAP_ALL, true, RECOMPUTE_MLP, 1, 0},
    {"graph-but-attention", true, OVERLAP_ALL, true, RECOMPUTE_BUT_ATTENTION, 1, 0},
    {"block", false, OVERLAP_NONE, true, RECOMPUTE_BLOCK, 1, 0},
    {"graph-block", true, OVERLAP_ALL, true, RECOMPUTE_BLOCK, 1, 0},
    {"graph-every-2nd-block", true, OVERLAP_ALL, true, RECOMPUTE_BLOCK, 2, 0},
};
enum { VARIATIONS = sizeof variations / sizeof *variations };

static void add(model_list *l, const arguments *x, model_case c)
{
    static const char *const kinds[] = {"against-cpu", "bits", "overfit", "tune"};
    snprintf(c.name, sizeof c.name, "%s-%s-%s%s%s", kinds[c.kind], c.shape->name, c.way->name, c.variation ? "-" : "",
             c.variation ? c.variation->name : "");
    if (!arguments_want(x, MODEL_OP, c.policy->name, c.name, c.small))
        return;
    l->items = xrealloc(l->items, sizeof *l->items * (unsigned long)(l->n + 1));
    l->items[l->n++] = c;
}

static void add_comparisons(model_list *l, const arguments *x, int policy)
{
    for (int s = 0; s < MODEL_SHAPES; s++)
        for (int w = 0; w < WAYS; w++) {
            model_case c = {
                .kind = MODEL_COMPARE, .shape = &model_shapes[s], .policy = &policies[policy], .way = &ways[w]};
            c.small =
                s == TINY && (w == (policy % 2 ? GRAPH_FLASH : KERNELS_UNFUSED) || (policy == BF16 && w == EAGER));
            if (policy >= BF16 || w != KERNELS_GRAD32) /* elsewhere gradients are fp32 anyway */
                add(l, x, c);
        }
}

/* One after the other what has the same shape and way: they are compared with the same plain step. */
static void add_bits(model_list *l, const arguments *x, int policy)
{
    for (int s = ODD; s <= MID; s++)
        for (int w = s == ODD ? KERNELS_UNFUSED : GRAPH_FLASH; w <= GRAPH_FLASH; w++)
            for (int v = 0; v < VARIATIONS; v++) {
                model_case c = {.kind = MODEL_BITS,
                                .shape = &model_shapes[s],
                                .policy = &policies[policy],
                                .way = &ways[w],
                                .variation = &variations[v]};
                c.small = s == ODD && w == GRAPH_FLASH && policy == BF16 && variations[v].overlap != OVERLAP_NONE &&
                          variations[v].share && variations[v].recompute != RECOMPUTE_ATTN &&
                          variations[v].recompute != RECOMPUTE_MLP;
                add(l, x, c);
            }
}

model_list model_cases(const arguments *x)
{
    model_list l = {NULL, 0};
    for (int i = 0; i < POLICIES; i++) {
        model_case c = {.shape = &model_shapes[TINY], .policy = &policies[i], .way = &ways[GRAPH_FLASH]};
        add_comparisons(&l, x, i);
        add_bits(&l, x, i);
        c.kind = MODEL_OVERFIT;
        add(&l, x, c);
        c.kind = MODEL_TUNE;
        add(&l, x, c);
    }
    return l;
}

void list_model_cases(const arguments *x)
{
    const model_list l = model_cases(x);
    for (int i = 0; i < l.n; i++)
        printf("%s %s %s\n", MODEL_OP, l.items[i].policy->name, l.items[i].name);
    free(l.items);
}
