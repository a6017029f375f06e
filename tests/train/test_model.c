/* SPDX-License-Identifier: MIT */
/* The training step against PyTorch (golden/make_golden_model.py says what is in the files) and against finite
 * differences of its own loss. Another folder of files can be given as the argument: models of random sizes. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

#include "common/core/rng.h"

static char **models; /* of MANIFEST_MODEL */
static int model_count;
static bool drawn; /* their sizes are, by make_golden_model.py --random */

/* Relative L2 errors that each policy may have against float64. */
typedef struct policy_bound {
    const char *precision;
    bool grad_fp32;
    double first; /* of the first step's logits and of each gradient */
    double loss;  /* of the loss, relative */
    double moved; /* of what three steps of AdamW changed in a tensor. Its first step moves each element by lr times the
                   * sign of its gradient, so that elements whose gradient is near zero are wrong wholly, not slightly:
                   * one such element of a gain of 32 is 0.35 */
} policy_bound;
/* fp32 where its products are made of 16-bit ones: flash scores are good to 17 bits. The CPU's are plain fp32. */
static const policy_bound split_fp32 = {"fp32", false, 1e-4, 1e-5, 5e-2};
static const policy_bound bounds[] = {
    /* fp32: sums of some hundred products with 24 bits through ten layers; about 1e-6 is measured. */
    {"fp32", false, 1e-5, 1e-6, 1e-3},
    /* 11 bits of each factor: 2^-12 a product on average, 1e-3 after the layers. */
    {"tf32", false, 5e-3, 5e-4, 0.2},
    /* 8 bits of everything in memory, the residual stream and its gradient among it: 2^-9 an op, 2e-2 after the layers;
     * PyTorch's own error in bf16 is a bound of its own, below. */
    {"bf16", false, 5e-2, 5e-3, 0.5},
    {"bf16", true, 5e-2, 5e-3, 0.5},
    {"bf16-pure", false, 5e-2, 5e-3, 0.5},
    /* 11 bits of everything in memory; gradients keep them thanks to the loss scale. */
    {"fp16", false, 1e-2, 1e-3, 0.1},
    {"fp16", true, 1e-2, 1e-3, 0.1},
};

/* A trainer of a golden model, with its parameters. Where a model has few tokens and words, gradients are large, and an fp16
 * scale of 65536 would begin with steps that are left out. */
static trainer *create_golden(const step_options *o)
{
    trainer *t = create(o);
    if (drawn && o->precision->loss_scaling)
        trainer_set_loss_scale(t, 256);
    golden_params(t);
    return t;
}

static step_options options_of(const golden_model *g, const char *precision)
{
    step_options o = small_options();
    o.config = g->config;
    o.batch = g->batch;
    o.seq = g->seq;
    o.precision = precision_find(precision);
    o.lr = 1e-2;
    o.weight_decay = 0.01;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.eps = 1e-8;
    return o;
}

static void close_loss(double want, double got, double bound, const char *what)
{
    if (!(fabs(got - want) <= bound * want))
        fail_msg("%s: the loss is %.8f, want %.8f", what, got, want);
}

/* The first step's logits, loss and gradients. Errors of all tensors go to `errors` (logits first). */
static void check_first(const golden_model *g, const step_options *o, const policy_bound *b, const char *what,
                        double *errors)
{
    step_options once = *o;
    once.mode = STEP_FORWARD_BACKWARD;
    OWNED_TRAINER trainer *t = create_golden(&once);
    const params *p = trainer_params(t);
    golden_tokens(t, 0);
    OWNED float *logits = all_logits(t);
    close_loss(g->losses[0], trainer_loss(t), b->loss, what);
    errors[0] = relative_l2(g->logits, logits, (int64_t)g->batch * g->seq * g->config.vocab);
    if (!(errors[0] <= b->first))
        fail_msg("%s: relative L2 error of the logits is %.2e, more than %.0e", what, errors[0], b->first);
    step(t);
    close_loss(g->losses[0], trainer_loss(t), b->loss, what);
    OWNED float *grads = all_grads(t);
    tensors_close(p, g->grads, grads, b->first, what);
    for (int i = 0, at = 0; i < p->count; at += (int)p->tensors[i++].count)
        errors[i + 1] = relative_l2(g->grads + at, grads + at, p->tensors[i].count);
}

static void subtract(float *from, const float *what, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        from[i] -= what[i];
}

/* AdamW's first step moves an element by lr, up or down by the sign of its gradient: where that is near zero, its last bit
 * decides. The committed models have no such element in fp32. Among random ones, one in a thousand elements of a tensor,
 * and one of a small tensor, may have gone the other way. */
static void forgive_turned_elements(const step_options *o, const params *p, const float *want, float *got, int steps,
                                    const char *what)
{
    for (int i = 0; i < p->count; want += p->tensors[i].count, got += p->tensors[i++].count)
        for (int64_t left = 1 + p->tensors[i].count / 1000; left > 0; left--) {
            int64_t worst = 0;
            for (int64_t j = 1; j < p->tensors[i].count; j++)
                if (fabsf(got[j] - want[j]) > fabsf(got[worst] - want[worst]))
                    worst = j;
            if (!(fabsf(got[worst] - want[worst]) <= 2.1 * steps * o->lr))
                fail_msg("%s: element %lld of %s moved by %g, want %g", what, (long long)worst, p->tensors[i].name,
                         (double)got[worst], (double)want[worst]);
            got[worst] = want[worst];
        }
}

/* The parameters after all steps; the worst tensor's error goes to `error`. */
static void check_steps(const golden_model *g, const step_options *o, const policy_bound *b, const char *what,
                        double *error)
{
    OWNED_TRAINER trainer *t = create_golden(o);
    const params *p = trainer_params(t);
    OWNED float *before = all_params(t);
    for (int s = 0; s < g->steps; s++) {
        golden_tokens(t, s);
        step(t);
        close_loss(g->losses[s], trainer_loss(t), (drawn ? 100 : 10) * b->loss, what); /* turned elements move it */
    }
    OWNED float *after = all_params(t), *want = malloc((size_t)p->parameters * sizeof *want);
    memcpy(want, g->params, (size_t)p->parameters * sizeof *want);
    /* Weights held in bf16 alone can't have moved by less than their rounding. */
    if (strcmp(o->precision->name, "bf16-pure") != 0) {
        subtract(want, before, p->parameters);
        subtract(after, before, p->parameters);
    }
    if (drawn)
        forgive_turned_elements(o, p, want, after, g->steps, what);
    tensors_close(p, want, after, b->moved, what);
    *error = worst_tensor(p, want, after, NULL);
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    assert_true(state.step == g->steps && state.skipped == 0);
}

/* The models that lie in golden_folder, by its MANIFEST_MODEL: lines "sha256 model_<name>.bin sizes...". */
static void find_models(void)
{
    char *path = xasprintf("%s/MANIFEST_MODEL", golden_folder), line[512], name[128];
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "test_model: %s can't be read; tests/golden/make_golden_model.py makes it\n", path);
        exit(2);
    }
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%*s model_%127[^. ].bin", name) == 1) {
            models = xrealloc(models, ((size_t)model_count + 1) * sizeof *models);
            models[model_count++] = xstrdup(name);
        }
    fclose(f);
    free(path);
}

TEST(golden)
{
    assert_true(model_count > 0);
    for (int m = 0; m < model_count; m++)
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
            char what[80];
            golden_model g = golden_read(models[m]);
            double *errors = calloc((size_t)g.tensors + 1, sizeof *errors), worst = 0, moved;
            step_options o = options_of(&g, bounds[i].precision);
            o.grad_fp32 = bounds[i].grad_fp32;
            snprintf(what, sizeof what, "%s %s%s", models[m], bounds[i].precision,
                     o.grad_fp32 ? " fp32 gradients" : "");
            assert_true(model_parameters(&g.config) > 0 && g.tensors == (g.config.heads ? 9 : 4) * g.config.layers + 3);
            check_first(&g, &o, &bounds[i], what, errors);
            check_steps(&g, &o, &bounds[i], what, &moved);
            /* PyTorch's model that is bf16 throughout rounds as often as ours. */
            for (int e = 0; strncmp(bounds[i].precision, "bf16", 4) == 0 && e <= g.tensors; e++)
                if (!(errors[e] <= 1.5 * g.pure[e] + 1e-3))
                    fail_msg("%s: error %d is %.2e, that of PyTorch %.2e", what, e, errors[e], g.pure[e]);
            for (int e = 0; e <= g.tensors; e++)
                worst = fmax(worst, errors[e]);
            print_message("%-40s worst error of the first step %.1e, of what three moved %.1e\n", what, worst, moved);
            free(errors);
            golden_free(&g);
        }
}

/* Every attention op, eager ops, and the forms of products give the golden results in fp32, too. */
TEST(golden_variants)
{
    for (int m = 0; m < model_count; m++) {
        golden_model g = golden_read(models[m]);
        double *errors = calloc((size_t)g.tensors + 1, sizeof *errors), moved;
        int variants = 0;
        for (const sb_attention_op *op = bed.kernels->attention; op->name; op++)
            for (int f = FUSION_NONE; f <= FUSION_GRAPH; f++) {
                char what[80];
                step_options o = options_of(&g, "fp32");
                o.attention = op->name;
                o.fusion = (fusion)f;
                o.split = f == FUSION_KERNELS ? SB_FP16X3_FAST : f == FUSION_GRAPH ? SB_FP16X3 : SB_FMA;
                snprintf(what, sizeof what, "%s %s fusion %d", models[m], op->name, f);
                const bool parts =
                    strcmp(bed.kernels->name, "cpu") != 0 && (o.split || strncmp(op->name, "flash", 5) == 0);
                check_first(&g, &o, parts ? &split_fp32 : &bounds[0], what, errors);
                check_steps(&g, &o, parts ? &split_fp32 : &bounds[0], what, &moved);
                variants++;
            }
        print_message("%-40s fp32 agrees with %d pairs of attention and fusion\n", models[m], variants);
        free(errors);
        golden_free(&g);
    }
}

/* ---- finite differences ---- */

static double loss_at(trainer *t, const float *params, const float *direction, double h, int64_t n)
{
    OWNED float *moved = malloc((size_t)n * sizeof *moved);
    for (int64_t i = 0; i < n; i++)
        moved[i] = (float)(params[i] + h * direction[i]);
    set_params(t, moved);
    step(t);
    return trainer_loss(t);
}

/* The direction is the gradient with a random half of its elements set to zero: the loss changes fast along it, so that
 * fp32's rounding does not matter, and an error in any part of the gradient shows in some of the directions. */
static void check_differences(const step_options *o, int directions, const char *what)
{
    step_options oo = *o;
    oo.mode = STEP_FORWARD_BACKWARD;
    OWNED_TRAINER trainer *t = create(&oo);
    oo.mode = STEP_FORWARD;
    OWNED_TRAINER trainer *forward = create(&oo);
    const int64_t n = trainer_params(t)->parameters;
    golden_params(t);
    golden_tokens(t, 0);
    golden_tokens(forward, 0);
    step(t);
    OWNED float *params = all_params(t), *grads = all_grads(t), *direction = malloc((size_t)n * sizeof *direction);
    for (int k = 0; k < directions; k++) {
        double slope = 0;
        for (int64_t i = 0; i < n; i++) {
            direction[i] = rng_uniform(5, (uint32_t)k, (uint64_t)i) < 0.5 ? 0 : grads[i];
            slope += (double)direction[i] * grads[i];
        }
        const double h = 0.02 / slope; /* the loss changes by about 0.02 */
        const double near = loss_at(forward, params, direction, h, n) - loss_at(forward, params, direction, -h, n);
        const double far =
            loss_at(forward, params, direction, 2 * h, n) - loss_at(forward, params, direction, -2 * h, n);
        const double measured = (8 * near - far) / (12 * h);
        if (!(fabs(measured - slope) <= 1e-3 * slope))
            fail_msg("%s: the loss changes by %.6g along direction %d, the gradient says %.6g", what, measured, k,
                     slope);
    }
}

TEST(finite_differences)
{
    static const struct {
        const char *what;
        model_config config;
        int batch, seq;
    } table[] = {
        {"tiny", {"custom", 23, 32, 40, 2, 2, 2, 10000, 1e-5f}, 2, 13},
        {"one token", {"custom", 23, 32, 40, 2, 2, 2, 10000, 1e-5f}, 1, 1},
        {"seq 1", {"custom", 23, 32, 40, 1, 2, 1, 10000, 1e-5f}, 5, 1},
        {"batch 1, vocab 7, f 37", {"custom", 7, 48, 37, 3, 3, 1, 10000, 1e-5f}, 1, 19},
        {"one word, one unit", {"custom", 2, 16, 1, 1, 1, 1, 10000, 1e-5f}, 3, 5},
        {"grouped, theta 100", {"custom", 31, 64, 24, 2, 4, 2, 100, 1e-3f}, 2, 33},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (const sb_attention_op *op = bed.kernels->attention; op->name; op++) {
            char what[80];
            step_options o = small_options();
            o.config = table[i].config;
            o.batch = table[i].batch;
            o.seq = table[i].seq;
            o.attention = op->name;
            snprintf(what, sizeof what, "%s, %s", table[i].what, op->name);
            check_differences(&o, 3, what);
        }
}

TESTS_WITH(bed_create, bed_destroy)

int main(int argc, char **argv)
{
    if (argc > 1) {
        golden_folder = argv[1];
        drawn = true;
    }
    find_models();
    return tests_run();
}
