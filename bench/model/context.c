/* SPDX-License-Identifier: MIT */
/* The context and the trainer that a case runs on; see context.h. */
#include "bench/model/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/formulas/attention.h"
#include "common/profile/nvtx.h"

void model_start(session *s)
{
    model_bench *b = xcalloc(1, sizeof *b);
    b->kernels = device_kind_of(s->dev) == DEVICE_CUDA ? sb_kernels_cuda() : sb_kernels_cpu();
    if (b->kernels->create(device_ordinal(s->dev), &b->ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "cannot set up the %s kernels: %s", b->kernels->name, sb_last_message());
    s->user = b;
}

void model_finish(session *s)
{
    model_bench *b = s->user;
    b->kernels->destroy(b->ctx);
    free(b);
    s->user = NULL;
}

/* Where choices of algorithms are kept; NULL: nowhere, as on the CPU, which has none. */
static char *choices_path(const session *s)
{
    bool kept = device_kind_of(s->dev) == DEVICE_CUDA && s->csv_path && access(s->results_dir, W_OK) == 0;
    return kept ? xasprintf("%s/gemm_choices.csv", s->results_dir) : NULL;
}

trainer *model_trainer(session *s, const trainer_options *o, row *w)
{
    model_bench *b = s->user;
    char why[512] = "";
    range_push("setup");
    trainer *t = trainer_create(s->dev, s->mem, b->kernels, b->ctx, o, why, sizeof why);
    if (!t) {
        row_status_set(w, ROW_SKIP, "%s", why); /* the session says oom instead where memory was what lacked */
    } else {
        char *choices = choices_path(s);
        if (!trainer_tune(t, choices)) {
            row_status_set(w, ROW_FAIL, "choosing algorithms for the products: %s", sb_last_message());
            trainer_free(t);
            t = NULL;
        }
        free(choices);
    }
    range_pop();
    return t;
}

void model_print_products(const trainer *t)
{
    const tuned_product *p;
    const int n = trainer_products(t, &p);
    printf("\n%-18s %7s %7s %7s %10s %8s %6s  %s\n", "product", "m", "n", "k", "ms", "TFLOP/s", "gain", "algorithm");
    for (int i = 0; i < n; i++) {
        const sb_matmul_choice *c = &p[i].choice;
        const double flops = gemm_flops(p[i].shape.m, p[i].shape.n, p[i].shape.k);
        printf("%-18s %7d %7d %7d ", p[i].name, p[i].shape.m, p[i].shape.n, p[i].shape.k);
        if (c->tried)
            printf("%10.4g %8.4g %5.2fx  %s%s\n", c->ms, flops / c->ms / 1e9, c->first_ms / c->ms, c->name,
                   p[i].cached ? ", kept from an earlier run" : "");
        else
            printf("%10s %8s %6s  the library's first proposal, not timed\n", "-", "-", "-");
    }
    putchar('\n');
}
