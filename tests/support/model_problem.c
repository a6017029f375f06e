/* SPDX-License-Identifier: MIT */
/* See model_problem.h. */
#include "tests/support/model_problem.h"

#include "common/core/rng.h"
#include "tests/support/test.h"

#include <errno.h>

model_bed bed;
const char *const policies[POLICIES] = {"fp32", "tf32", "bf16", "bf16-pure", "fp16"};
const char *golden_folder = "tests/golden";
enum { GOLDEN_SEED = 20260101, GOLDEN_TOKENS = 1000 };

int bed_create(void **state)
{
    (void)state;
    const char *name = getenv("STEPBENCH_TEST_DEVICE");
    const bool cuda = name && strcmp(name, "cuda") == 0;
    bed.dev = device_open(cuda ? DEVICE_CUDA : DEVICE_CPU, 0);
    bed.mem = memory_create(bed.dev);
    bed.kernels = cuda ? sb_kernels_cuda() : sb_kernels_cpu();
    return bed.kernels->create(0, &bed.ctx) == SB_OK ? 0 : -1;
}

int bed_destroy(void **state)
{
    (void)state;
    const size_t left = memory_current(bed.mem);
    bed.kernels->destroy(bed.ctx);
    memory_destroy(bed.mem);
    device_close(bed.dev);
    if (left)
        print_error("%zu bytes of device memory were not given back\n", left);
    return left ? -1 : 0;
}

trainer *own_trainer(model_bed *own, const step_options *o)
{
    char why[256] = "";
    own->dev = device_open(DEVICE_CPU, 0);
    own->mem = memory_create(own->dev);
    own->kernels = sb_kernels_cpu();
    assert_int_equal(own->kernels->create(0, &own->ctx), SB_OK);
    trainer *t = trainer_create(own->dev, own->mem, own->kernels, own->ctx, o, why, sizeof why);
    if (!t)
        fail_msg("no trainer: %s", why);
    return t;
}

void own_trainer_free(model_bed *own, trainer *t)
{
    trainer_free(t);
    own->kernels->destroy(own->ctx);
    assert_int_equal(memory_current(own->mem), 0);
    memory_destroy(own->mem);
    device_close(own->dev);
}

step_options small_options(void)
{
    step_options o = step_defaults();
    o.config = (model_config){"custom", 23, 32, 40, 2, 2, 2, 10000, 1e-5f};
    o.batch = 2;
    o.seq = 13;
    o.precision = precision_find("fp32");
    o.attention = "unfused";
    o.fusion = FUSION_KERNELS;
    return o;
}

step_options three_blocks(const char *precision)
{
    step_options o = small_options();
    o.config.layers = 3;
    o.precision = precision_find(precision);
    o.lr = 1e-2;
    return o;
}

trainer *create(const step_options *o)
{
    char why[256] = "";
    trainer *t = trainer_create(bed.dev, bed.mem, bed.kernels, bed.ctx, o, why, sizeof why);
    if (!t)
        fail_msg("no trainer: %s", why);
    return t;
}

void step(trainer *t)
{
    if (!trainer_step(t))
        fail_msg("a step failed: %s", sb_last_message());
}

void set_params(trainer *t, const float *values)
{
    const params *p = trainer_params(t);
    for (int i = 0; i < p->count; values += p->tensors[i++].count)
        trainer_write_param(t, &p->tensors[i], values);
}

float *all_logits(trainer *t)
{
    const step_options *o = trainer_options_of(t);
    float *logits = xmalloc((size_t)o->batch * o->seq * o->config.vocab * sizeof *logits);
    if (!trainer_read_logits(t, logits))
        fail_msg("no logits: %s", sb_last_message());
    return logits;
}

void golden_params(trainer *t)
{
    const params *p = trainer_params(t);
    for (int i = 0; i < p->count; i++) {
        const param_tensor *of = &p->tensors[i];
        const bool gain = of->kind == PARAM_LN_FINAL || of->kind == PARAM_LN1 || of->kind == PARAM_LN2;
        const double scale = of->kind == PARAM_EMBEDDING ? sqrt(3.0) : sqrt(6.0 / (of->rows + of->columns));
        OWNED float *values = xmalloc((size_t)of->count * sizeof *values);
        for (int64_t j = 0; j < of->count; j++) {
            const double u = 2 * rng_uniform(GOLDEN_SEED, (uint32_t)i, (uint64_t)j) - 1;
            values[j] = (float)(gain ? 1 + u / 2 : u * scale);
        }
        trainer_write_param(t, of, values);
    }
}

void golden_tokens(trainer *t, int of_step)
{
    draw_tokens(t, GOLDEN_SEED, (uint32_t)(GOLDEN_TOKENS + of_step));
}

bool golden_steps(trainer *t, double losses[OUTCOME_STEPS])
{
    bool ok = true;
    for (int s = 0; s < OUTCOME_STEPS && ok; s++) {
        golden_tokens(t, s);
        ok = trainer_step(t);
        losses[s] = trainer_loss(t);
    }
    return ok;
}

static void *read_array(FILE *f, const char *path, size_t n, size_t size)
{
    void *out = xmalloc(n * size);
    if (fread(out, size, n, f) != n)
        fail_msg("%s is too short", path);
    return out;
}

golden_model golden_read(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/model_%s.bin", golden_folder, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s can't be read (%s); make it with: python3 tests/golden/make_golden_model.py tests/golden", path,
                 strerror(errno));
    OWNED char *magic = read_array(f, path, 8, 1);
    if (memcmp(magic, "SBMODEL1", 8) != 0)
        fail_msg("%s is no golden model", path);
    OWNED int32_t *h = read_array(f, path, 10, sizeof *h);
    golden_model g = {.config = {"custom", h[0], h[1], h[2], h[3], h[4], h[5], 10000, 1e-5f},
                      .seq = h[6],
                      .batch = h[7],
                      .steps = h[8],
                      .tensors = h[9]};
    const size_t n = (size_t)model_parameters(&g.config), errors = (size_t)g.tensors + 1;
    g.losses = read_array(f, path, (size_t)g.steps, sizeof(double));
    g.logits = read_array(f, path, (size_t)g.batch * g.seq * g.config.vocab, sizeof(float));
    g.grads = read_array(f, path, n, sizeof(float));
    g.params = read_array(f, path, n, sizeof(float));
    g.autocast = read_array(f, path, errors, sizeof(double));
    g.pure = read_array(f, path, errors, sizeof(double));
    if (fgetc(f) != EOF)
        fail_msg("%s is too long", path);
    fclose(f);
    return g;
}

void golden_free(golden_model *g)
{
    free(g->losses);
    free(g->logits);
    free(g->grads);
    free(g->params);
    free(g->autocast);
    free(g->pure);
}

void tensors_close(const params *p, const float *reference, const float *got, double bound, const char *what)
{
    int which = 0;
    const double worst = worst_tensor(p, reference, got, &which);
    if (!(worst <= bound))
        fail_msg("%s: relative L2 error of %s is %.2e, more than %.0e", what, p->tensors[which].name, worst, bound);
}

void same_bits(const params *p, const float *a, const float *b, const char *what)
{
    for (int i = 0; i < p->count; i++) {
        if (memcmp(a, b, (size_t)p->tensors[i].count * sizeof *a) != 0)
            fail_msg("%s: %s is not the same bit for bit", what, p->tensors[i].name);
        a += p->tensors[i].count;
        b += p->tensors[i].count;
    }
}

outcome outcome_of(const step_options *o)
{
    trainer *t = create(o);
    outcome r = {.p = params_create(&o->config)};
    golden_params(t);
    for (int s = 0; s < OUTCOME_STEPS; s++) {
        golden_tokens(t, s);
        step(t);
        r.losses[s] = trainer_loss(t);
    }
    r.params = all_params(t);
    r.grads = all_grads(t);
    trainer_free(t);
    return r;
}

void outcome_free(outcome *r)
{
    params_free(r->p);
    free(r->params);
    free(r->grads);
}

void same_outcome(const outcome *want, const step_options *o, const char *what)
{
    outcome got = outcome_of(o);
    assert_memory_equal(want->losses, got.losses, OUTCOME_STEPS * sizeof(double));
    same_bits(want->p, want->grads, got.grads, what);
    same_bits(want->p, want->params, got.params, what);
    outcome_free(&got);
}
