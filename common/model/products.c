/* SPDX-License-Identifier: MIT */
/* Notes the matrix products of a step; see products.h. */
#include "common/model/products.h"

#include <stdio.h>

#include "common/core/error.h"

bool products_same_shape(const sb_matmul *a, const sb_matmul *b)
{
    return a->dtype == b->dtype && a->dtype_out == b->dtype_out && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldd == b->ldd && !a->c == !b->c && (!a->c || a->ldc == b->ldc) &&
           a->split == b->split && a->workspace_bytes == b->workspace_bytes && a->dtype_b == b->dtype_b &&
           a->scaling_a == b->scaling_a && a->scaling_b == b->scaling_b && a->sums == b->sums;
}

void products_note(step_products *p, const char *linear, const char *pass, const sb_matmul *product)
{
    int i = 0;
    while (i < p->count && !products_same_shape(&p->list[i].shape, product))
        i++;
    if (i == PRODUCTS_MAX)
        die(EXIT_CODE_FAILURE, "bug: a step has more than %d different products", PRODUCTS_MAX);
    tuned_product *n = &p->list[i];
    if (i == p->count) {
        *n = (tuned_product){.shape = *product};
        snprintf(n->name, sizeof n->name, "%s %s", linear, pass);
        p->count++;
    }
    n->uses++;
}
