/* SPDX-License-Identifier: MIT */
/* The matrix products of a step: noted while it is planned, with what chose the algorithm of each (train/tune). */
#pragma once

#include <stdbool.h>

#include "kernels/train.h"

enum { PRODUCTS_MAX = 48, CHOICE_RIVALS = 2 };
typedef enum choice_source { CHOICE_SHIPPED, CHOICE_KEPT, CHOICE_TIMED /* in this run */ } choice_source;

typedef struct tuned_product {
    char name[32];   /* "w2 forward" */
    sb_matmul shape; /* pointers do not count, but for whether there is a c, and whether it is d */
    sb_matmul_choice choice;
    sb_matmul_choice rivals[CHOICE_RIVALS]; /* still to race; of a product that was timed in this run */
    choice_source source;
    int uses; /* how often the step has this product */
} tuned_product;

typedef struct step_products {
    tuned_product list[PRODUCTS_MAX];
    int count;
} step_products;

/* One more use of a product; `linear` and `pass` are its name. */
void products_note(step_products *p, const char *linear, const char *pass, const sb_matmul *product);
/* Whether one algorithm serves both: shape, dtypes and layout are equal. */
bool products_same_shape(const sb_matmul *a, const sb_matmul *b);
