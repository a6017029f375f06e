/* SPDX-License-Identifier: MIT */
/* The context and the trainer that a case runs on; see context.h. */
#include "bench/model/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/core/output.h"
#include "common/formulas/attention.h"
#include "common/model/float8.h"
#include "common/record/nvtx.h"
#include "common/session/profile.h"
#include "common/train/tune/tune.h"

/* Where choices of algorithms are kept; NULL: nowhere, as on the CPU, which has none. */
static char *choices_path(const session *s)
{
    bool kept = device_kind_of(s->dev) == DEVICE_CUDA && s->csv_path && access(s->results_dir, W_OK) == 0;
    return kept ? xasprintf("%s/gemm_choices.csv", s->results_dir) : NULL;
}

static void start(session *s, bool anew)
{
    model_bench *b = xcalloc(1, sizeof *b);
    OWNED char *path = choices_path(s);
    b->kernels = session_kernels(s, &b->ctx);
    b->known = choices_open(device_get_info(s->dev)->name, path, anew);
    s->user = b;
}

void model_float8_gate(const session *s)
{
    const model_bench *b = s->user;
    for (size_t i = 0; i < option_count(s->opt, "precision"); i++)
        if (float8_supported(b->kernels, b->ctx, precision_find(option_text_at(s->opt, "precision", i))))
            return;
    die(EXIT_CODE_USAGE, "--precision %s: %s", option_text_at(s->opt, "precision", 0), sb_last_message());
}

void model_start(session *s)
{
    start(s, false);
}

void model_start_anew(session *s)
{
    start(s, true);
}

void model_start_gated(session *s)
{
    start(s, false);
    model_float8_gate(s);
}

void model_finish(session *s)
{
    model_bench *b = s->user;
    choices_free(b->known);
    b->kernels->destroy(b->ctx);
    free(b);
    s->user = NULL;
}

replica_place model_place(session *s, launch *l)
{
    const model_bench *b = s->user;
    return (replica_place){
        .l = l, .d = s->dev, .mem = s->mem, .kernels = b->kernels, .ctx = b->ctx, .kept = s->kept, .known = b->known};
}

static trainer *create(session *s, const step_options *o, bool (*tune)(trainer *t, choices *known), row *w)
{
    model_bench *b = s->user;
    char why[512] = "";
    scope_push("setup");
    trainer *t = trainer_create(s->dev, s->mem, b->kernels, b->ctx, o, why, sizeof why);
    if (!t) {
        row_status_set(w, ROW_SKIP, "%s", why); /* the session says oom instead where memory was what lacked */
    } else if (!tune(t, b->known)) {
        row_status_set(w, ROW_FAIL, "choosing algorithms for the products: %s", sb_last_message());
        trainer_free(t);
        t = NULL;
    }
    scope_pop();
    return t;
}

trainer *model_trainer(session *s, const step_options *o, row *w)
{
    return create(s, o, trainer_tune, w);
}

trainer *model_trainer_untimed(session *s, const step_options *o, row *w)
{
    return create(s, o, trainer_tune_products, w);
}

static bool tune_nothing(trainer *t, choices *known)
{
    (void)t;
    (void)known;
    return true;
}

trainer *model_trainer_untuned(session *s, const step_options *o, row *w)
{
    return create(s, o, tune_nothing, w);
}

/* "bf16", or the name of the product in float8. */
static const char *kind_of(const sb_matmul *p)
{
    for (const float8_product *f = float8_products; f->name; f++)
        if (p->dtype == f->a.format && p->dtype_b == f->b.format && p->scaling_a == f->a.scaling &&
            p->scaling_b == f->b.scaling && p->sums == f->sums)
            return f->name;
    return sb_dtype_name(p->dtype);
}

void model_print_products(const trainer *t)
{
    static const char *const from[] = {
        [CHOICE_TIMED] = "", [CHOICE_KEPT] = ", kept from an earlier run", [CHOICE_SHIPPED] = ", shipped for this GPU"};
    const tuned_product *p;
    const int n = trainer_products(t, &p);
    say("\n%-18s %-12s %7s %7s %7s %10s %8s %6s  %s\n", "product", "kind", "m", "n", "k", "ms", "TFLOP/s", "gain",
        "algorithm");
    for (int i = 0; i < n; i++) {
        const sb_matmul_choice *c = &p[i].choice;
        const double flops = gemm_flops(p[i].shape.m, p[i].shape.n, p[i].shape.k);
        say("%-18s %-12s %7d %7d %7d ", p[i].name, kind_of(&p[i].shape), p[i].shape.m, p[i].shape.n, p[i].shape.k);
        if (c->tried && !(c->ms > 0))
            say("%10s %8s %6s  %s%s\n", "-", "-", "-", c->name, from[p[i].source]);
        else if (c->tried)
            say("%10.4g %8.4g %5.2fx  %s%s\n", c->ms, flops / c->ms / 1e9, c->first_ms / c->ms, c->name,
                from[p[i].source]);
        else
            say("%10s %8s %6s  the library's first proposal, not timed\n", "-", "-", "-");
    }
    say("\n");
}
