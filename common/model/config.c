/* SPDX-License-Identifier: MIT */
/* The named models and what their dimensions say. The sizes of 2025 are those of CS336's assignment 2; xl-2026 is the
 * xl of 2026, with the dimensions that 2025 called 2.7b. llama3-8b is that of arXiv 2407.21783, table 3. */
#include "common/model/config.h"

#include "common/core/error.h"

#include <stdio.h>
#include <string.h>

#define SIZE(name, vocab, d_model, d_ff, layers, heads)                                                                \
    {                                                                                                                  \
        name, vocab, d_model, d_ff, layers, heads, heads, 10000.0f, 1e-5f                                              \
    }
const model_config model_sizes[] = {
    SIZE("tiny", 256, 64, 192, 2, 4),
    SIZE("small", 10000, 768, 3072, 12, 12),
    SIZE("medium", 10000, 1024, 4096, 24, 16),
    SIZE("large", 10000, 1280, 5120, 36, 20),
    SIZE("xl", 10000, 1600, 6400, 48, 25),
    SIZE("2.7b", 10000, 2560, 10240, 32, 32),
    SIZE("xl-2026", 10000, 2560, 10240, 32, 32),
    SIZE("10b", 10000, 4608, 12288, 50, 36),
    SIZE("8b", 151936, 4096, 11008, 34, 32),
    {"llama3-8b", 128256, 4096, 14336, 32, 32, 8, 500000.0f, 1e-5f},
    SIZE("mlp-1024", 10000, 1024, 4096, 3, 0),
    SIZE("mlp-4096", 10000, 4096, 16384, 4, 0),
    {0},
};
#undef SIZE

const model_config *model_size_find(const char *name)
{
    for (const model_config *c = model_sizes; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

const char *model_config_problem(const model_config *c, char *out, size_t out_bytes)
{
    const struct {
        const char *what;
        int value;
    } counts[] = {{"vocab", c->vocab},   {"d_model", c->d_model}, {"d_ff", c->d_ff},
                  {"layers", c->layers}, {"heads", c->heads},     {"heads_kv", c->heads_kv}};
    const bool attends = c->heads || c->heads_kv;
    for (size_t i = 0; i < sizeof counts / sizeof *counts - (attends ? 0 : 2); i++)
        if (counts[i].value < 1) {
            snprintf(out, out_bytes, "%s is %d; it must be at least 1", counts[i].what, counts[i].value);
            return out;
        }
    if (attends && c->d_model % c->heads != 0)
        snprintf(out, out_bytes, "d_model %d is not a multiple of heads %d", c->d_model, c->heads);
    else if (attends && c->d_model / c->heads % 2 != 0)
        snprintf(out, out_bytes, "head_dim %d (d_model / heads) is odd; rotary embedding turns pairs",
                 c->d_model / c->heads);
    else if (attends && c->heads % c->heads_kv != 0)
        snprintf(out, out_bytes, "heads %d is not a multiple of heads_kv %d", c->heads, c->heads_kv);
    else if (!(c->rope_theta > 0))
        snprintf(out, out_bytes, "rope_theta %g is not positive", c->rope_theta);
    else if (!(c->norm_eps > 0))
        snprintf(out, out_bytes, "norm_eps %g is not positive", c->norm_eps);
    else
        return NULL;
    return out;
}

int model_head_dim(const model_config *c)
{
    return c->heads ? c->d_model / c->heads : 0;
}

int model_sharers_kv(const model_config *c, int ranks)
{
    return c->heads_kv && ranks > c->heads_kv ? ranks / c->heads_kv : 1;
}

static int heads_kv_of(const model_config *size, int heads)
{
    const int group = size->heads_kv ? size->heads / size->heads_kv : 1;
    return heads % group ? heads : heads / group;
}

model_config model_config_resized(const model_config *size, const model_config *asked)
{
    model_config c = *size;
    if (asked->d_model) {
        c.d_model = asked->d_model;
        c.heads = size->heads ? asked->d_model / model_head_dim(size) : 0;
        c.d_ff = (int)((int64_t)size->d_ff * asked->d_model / size->d_model);
    }
    c.d_ff = asked->d_ff ? asked->d_ff : c.d_ff;
    c.layers = asked->layers ? asked->layers : c.layers;
    c.heads = asked->heads ? asked->heads : c.heads;
    c.heads_kv = asked->heads_kv ? asked->heads_kv : heads_kv_of(size, c.heads);
    c.vocab = asked->vocab ? asked->vocab : c.vocab;
    if (asked->d_model || asked->d_ff || asked->layers || asked->heads || asked->heads_kv || asked->vocab)
        c.name = "custom";
    return c;
}

model_config model_config_departures(const model_config *size, const model_config *c)
{
    model_config d = {.d_model = c->d_model != size->d_model ? c->d_model : 0};
    const model_config follows = model_config_resized(size, &d);
    const bool divides = !size->heads || c->d_model % model_head_dim(size) == 0;
    d.heads = divides && c->heads == follows.heads ? 0 : c->heads;
    d.heads_kv = c->heads_kv == heads_kv_of(size, c->heads) ? 0 : c->heads_kv;
    d.d_ff = c->d_ff == follows.d_ff ? 0 : c->d_ff;
    d.layers = c->layers == size->layers ? 0 : c->layers;
    d.vocab = c->vocab == size->vocab ? 0 : c->vocab;
    return d;
}

int model_kv_dim(const model_config *c)
{
    return c->heads_kv * model_head_dim(c);
}

layer_shape layer_shape_of(const model_config *c, model_split s)
{
    enum { ALIGNMENT = 64 };
    const int n = s.ranks, sharers = model_sharers_kv(c, n), id_block = n > 1 ? ALIGNMENT : 1;
    if (n < 1 || s.rank < 0 || s.rank >= n || c->heads % n || c->d_ff % n || c->heads_kv * sharers % n)
        die(EXIT_CODE_FAILURE, "bug: heads %d, heads_kv %d and d_ff %d for rank %d of %d", c->heads, c->heads_kv,
            c->d_ff, s.rank, n);
    layer_shape x = {.heads = c->heads / n,
                     .heads_kv = c->heads_kv * sharers / n,
                     .head_dim = model_head_dim(c),
                     .d_ff = c->d_ff / n,
                     .vocab = (c->vocab + n * id_block - 1) / (n * id_block) * id_block,
                     .sharers_kv = sharers};
    x.width = x.heads * x.head_dim;
    x.kv = x.heads_kv * x.head_dim;
    x.first_head = s.rank * x.heads;
    x.first_head_kv = s.rank / sharers * x.heads_kv;
    x.first_id = s.rank * x.vocab;
    return x;
}

int64_t model_parameters(const model_config *c)
{
    const int64_t v = c->vocab, d = c->d_model, kv = model_kv_dim(c), f = c->d_ff;
    const int64_t attention = c->heads ? 2 * d * d + 2 * d * kv + d : 0;
    return 2 * v * d + c->layers * (attention + 3 * d * f + d) + d;
}
