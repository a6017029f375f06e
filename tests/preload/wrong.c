/* SPDX-License-Identifier: MIT */
/* Stands between a bench and the CPU's kernels, and makes one result wrong: WRONG="o 2" an element of o from the second
 * call on. lse, dq, dk, dv likewise, of flash; scale is a wrong one in forward, grad-scale in backward; mask a missing
 * causal one in both; c is a product, copy a copy, table the embedding's gradient, loss the loss, lost a NaN in place of that of
 * ranks that share layers, rms the fused RMSNorm; with none AdamW does nothing, with twice it updates twice. For fp32; with chance AdamW rounds the
 * moments of bf16 weights by the chances of other elements. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static sb_kernels kernels;
static sb_train_ops train;
static sb_attention_op attention[8];
static const sb_kernels *right;
static const sb_attention_op *flash;
static int calls;

/* Whether this call's result is to be wrong, and it is `what` that is asked for. */
static bool wrong(const char *what)
{
    const char *asked = getenv("WRONG");
    const size_t n = strlen(what);
    return asked && strncmp(asked, what, n) == 0 && asked[n] == ' ' && ++calls >= atoi(asked + n);
}

static void spoil(const char *what, void *first)
{
    if (first && wrong(what))
        *(float *)first += 1;
}

/* The problem of a kernel that takes another scale for what is asked for as `what`, or has no mask. */
static sb_attention other(const sb_attention *a, const char *what)
{
    sb_attention b = *a;
    if (wrong(what))
        b.scale = 1.1f / sqrtf((float)a->head_dim);
    if (wrong("mask"))
        b.causal = false;
    return b;
}

static sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_attention b = other(a, "scale");
    const sb_status s = flash->forward(ctx, &b, stream);
    spoil("o", a->o.data);
    spoil("lse", a->lse);
    return s;
}

static sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_attention b = other(a, "grad-scale");
    const sb_status s = flash->backward(ctx, &b, stream);
    spoil("dq", a->dq.data);
    spoil("dk", a->dk.data);
    spoil("dv", a->dv.data);
    return s;
}

static sb_status gemm(sb_context *ctx, sb_dtype dtype, int m, int n, int k, const void *a, const void *b, void *c,
                      void *stream)
{
    const sb_status s = right->gemm(ctx, dtype, m, n, k, a, b, c, stream);
    spoil("c", c);
    return s;
}

static sb_status copy(sb_context *ctx, void *dst, const void *src, size_t bytes, void *stream)
{
    const sb_status s = right->copy(ctx, dst, src, bytes, stream);
    if (wrong("copy"))
        *(unsigned char *)dst ^= 1;
    return s;
}

static sb_status embedding_backward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    const sb_status s = right->train->embedding_backward(ctx, p, stream);
    spoil("table", p->d_table);
    return s;
}

static sb_status rmsnorm_forward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    const sb_status s = right->train->rmsnorm_forward(ctx, p, stream);
    spoil("rms", p->y);
    return s;
}

static sb_status cross_entropy(sb_context *ctx, const sb_cross_entropy *p, void *stream)
{
    const sb_status s = right->train->cross_entropy(ctx, p, stream);
    spoil("loss", p->loss);
    return s;
}

static sb_status vocab_loss_finish(sb_context *ctx, const sb_vocab_loss *p, void *stream)
{
    const sb_status s = right->train->vocab_loss_finish(ctx, p, stream);
    if (wrong("lost"))
        *p->loss = NAN;
    return s;
}

static sb_status adamw(sb_context *ctx, const sb_adamw *p, void *stream)
{
    if (wrong("none"))
        return SB_OK;
    if (p->dtype_param == SB_BF16 && wrong("chance")) {
        sb_adamw other = *p;
        other.first += 4;
        return right->train->adamw(ctx, &other, stream);
    }
    const sb_status s = right->train->adamw(ctx, p, stream);
    return s == SB_OK && wrong("twice") ? right->train->adamw(ctx, p, stream) : s;
}

const sb_kernels *sb_kernels_cpu(void)
{
    if (right)
        return &kernels;
    right = ((const sb_kernels *(*)(void))dlsym(RTLD_NEXT, "sb_kernels_cpu"))();
    kernels = *right;
    train = *right->train;
    for (int i = 0; right->attention[i].name; i++) {
        attention[i] = right->attention[i];
        if (strcmp(attention[i].name, "flash") == 0) {
            flash = &right->attention[i];
            attention[i].forward = forward;
            attention[i].backward = backward;
        }
    }
    kernels.attention = attention;
    kernels.gemm = gemm;
    kernels.copy = copy;
    train.embedding_backward = embedding_backward;
    train.rmsnorm_forward = rmsnorm_forward;
    train.cross_entropy = cross_entropy;
    train.vocab_loss_finish = vocab_loss_finish;
    train.adamw = adamw;
    kernels.train = &train;
    return &kernels;
}
