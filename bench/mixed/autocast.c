/* SPDX-License-Identifier: MIT */
/* The benchmarking_mixed_precision problem, part (a): which tensors of a small model have which dtype under autocast?
 * The model is the course's: fc1 (no bias), ReLU, LayerNorm, fc2 (no bias), here followed by cross-entropy.
 *
 * Autocast chooses by the kind of an op ("Automatic Mixed Precision package - torch.amp", section "Autocast Op
 * Reference", lists of CUDA ops): linear layers run in the low dtype, layer_norm and cross_entropy in fp32, and every
 * op that no list names, such as relu, in the dtype of its input. Parameters stay fp32, and a gradient has the dtype of
 * its tensor. tests/golden/autocast.csv holds what PyTorch itself says. */
#include <string.h>

#include "bench/mixed/mixed.h"
#include "common/core/error.h"
#include "common/model/dtypes.h"

typedef enum rule { RUNS_IN_FP32, RUNS_LOW, FOLLOWS } rule;

/* The tensors in the order in which they are made; `input` is what a tensor that FOLLOWS has its dtype from. */
static const struct line {
    const char *tensor;
    rule rule;
    const char *input;
} lines[] = {{"fc1.weight", RUNS_IN_FP32, NULL},
             {"ln.weight", RUNS_IN_FP32, NULL},
             {"ln.bias", RUNS_IN_FP32, NULL},
             {"fc2.weight", RUNS_IN_FP32, NULL},
             {"fc1", RUNS_LOW, NULL},
             {"relu", FOLLOWS, "fc1"},
             {"ln", RUNS_IN_FP32, NULL},
             {"logits", RUNS_LOW, NULL},
             {"loss", RUNS_IN_FP32, NULL},
             {"fc1.weight.grad", FOLLOWS, "fc1.weight"},
             {"ln.weight.grad", FOLLOWS, "ln.weight"},
             {"ln.bias.grad", FOLLOWS, "ln.bias"},
             {"fc2.weight.grad", FOLLOWS, "fc2.weight"}};

static sb_dtype autocast_dtype(const char *tensor, sb_dtype low)
{
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strcmp(lines[i].tensor, tensor) == 0)
            return lines[i].rule == FOLLOWS    ? autocast_dtype(lines[i].input, low)
                   : lines[i].rule == RUNS_LOW ? low
                                               : SB_FP32;
    die(EXIT_CODE_FAILURE, "bug: the model has no tensor %s", tensor);
}

/* With --dtype fp32 autocast is off. */
void mixed_run_autocast(mixed *m)
{
    const sb_dtype low = dtype_named(case_text(m->c, "dtype"));
    row_text(m->w, "tensor_dtype", sb_dtype_name(autocast_dtype(case_text(m->c, "tensor"), low)));
}
