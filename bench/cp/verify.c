/* SPDX-License-Identifier: MIT */
/* The check of a case: this rank's o, lse, dq, dk and dv against the whole sequence on one rank, which was itself verified
 * against the fp64 oracle; and, of ways that merge nothing, against the same parts of it, computed by one rank in the same
 * order, bit for bit. */
#include "bench/cp/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/core/spread.h"
#include "common/record/nvtx.h"

enum { BACK_TO_BACK = 3 }; /* passes before the last check: races show under load */
enum {
    CPU_TILE = 64
}; /* queries of a tile of the CPU's op: chunks of whole tiles have the bits of the whole sequence */

/* What is compared with what: how far, and whether the bits count. */
typedef struct compared {
    const char *name, *with;
    int number;         /* of the tensor, in the order in which they depend on each other */
    double diff2, ref2; /* sums of squares so far, over what is not equal */
    double bound;       /* of a piece's relative L2 */
    bool bits;
    size_t unequal; /* elements so far; 0 and -0 are equal */
} compared;

/* Whether no element is NaN or infinite; a loop without branches, for large tensors that are equal as a rule. */
static bool all_finite(sb_dtype dtype, const void *data, size_t n)
{
    size_t bad = 0;
    if (sb_dtype_bytes(dtype) == 4)
        for (size_t i = 0; i < n; i++)
            bad += (((const uint32_t *)data)[i] & 0x7f800000u) == 0x7f800000u;
    else
        for (size_t i = 0, mask = dtype == SB_BF16 ? 0x7f80 : 0x7c00; i < n; i++)
            bad += (((const uint16_t *)data)[i] & mask) == mask;
    return bad == 0;
}

/* "chunk 3, the second of rank 1" */
static void say_where(const cp_case *k, int which, char *out, size_t bytes)
{
    snprintf(out, bytes, "chunk %d, the %s of rank %d", context_chunk(&k->setup.shape, k->x->rank, which),
             which ? "second" : "first", k->x->rank);
}

typedef struct both {
    sb_dtype dtype;
    const void *got, *want;
} both;

/* Squares of differences, and of what is wanted; elements that differ. */
static spread_sums differences(const void *arg, size_t first, size_t count)
{
    const both *of = arg;
    spread_sums sums = {{0}};
    for (size_t i = first; i < first + count; i++) {
        const double x = attention_element(of->dtype, of->got, i), y = attention_element(of->dtype, of->want, i);
        sums.x[0] += (x - y) * (x - y);
        sums.x[1] += y * y;
        sums.x[2] += !(x == y);
    }
    return sums;
}

static void compare(cp_case *k, compared *c, sb_dtype dtype, const void *got, const void *want, size_t n,
                    const char *where)
{
    const both of = {dtype, got, want};
    if (memcmp(got, want, n * (size_t)sb_dtype_bytes(dtype)) == 0 && all_finite(dtype, got, n))
        return;
    const spread_sums sums = spread_sum(n, differences, &of);
    const double diff2 = sums.x[0], ref2 = sums.x[1];
    const size_t unequal = (size_t)sums.x[2];
    c->diff2 += diff2;
    c->ref2 += ref2;
    c->unequal += unequal;
    const double err = sqrt(diff2 / ref2);
    if (row_status_get(k->w) != ROW_OK || (c->bits ? unequal == 0 : err <= c->bound))
        return;
    k->wrong = c->number;
    if (c->bits)
        row_status_set(k->w, ROW_FAIL, "%zu elements of %s of %s have other bits than %s", unequal, c->name, where,
                       c->with);
    else
        row_status_set(k->w, ROW_FAIL, "wrong %s of %s: it differs from %s by %.1e, more than %.1e", c->name, where,
                       c->with, err, c->bound);
}

static void compare_tensor(cp_case *k, compared *c, const cp_tensor *t, const sb_tensor *whole)
{
    const size_t bytes = cp_elements(k, t) * k->x->element;
    void *place = memory_alloc(k->s->mem, bytes, "comparison");
    char *got = xmalloc(bytes), *want = xmalloc(bytes), where[80];
    for (int g = 0; g < k->x->groups && place; g++)
        for (int i = 0; i < 2; i++) {
            cp_take_piece(k, t, place, g, i, whole);
            device_sync(k->s->dev);
            device_download(k->s->dev, want, place, bytes);
            device_download(k->s->dev, got, context_piece(k->x, &t->at, g, i), bytes);
            say_where(k, i, where, sizeof where);
            compare(k, c, k->setup.whole.dtype, got, want, cp_elements(k, t), where);
        }
    memory_release(k->s->mem, place);
    free(got);
    free(want);
}

/* A call's lse is (B, heads of a group, rows), from the token `first` on. */
static void compare_lse(cp_case *k, compared *c, const float *lse, int group, int first, int rows, const float *whole,
                        const char *where)
{
    const int heads = k->x->heads;
    const size_t n = (size_t)rows;
    OWNED float *got = xcalloc((size_t)(k->setup.whole.batch * heads) * n, sizeof *got);
    device_download(k->s->dev, got, lse, (size_t)(k->setup.whole.batch * heads) * n * sizeof *got);
    for (int b = 0; b < k->setup.whole.batch; b++)
        for (int h = 0; h < heads; h++)
            compare(k, c, SB_FP32, got + (size_t)(b * heads + h) * n,
                    whole +
                        ((size_t)b * (size_t)k->setup.whole.heads + (size_t)(group * heads + h)) *
                            (size_t)k->setup.whole.seq_q +
                        first,
                    n, where);
}

static void compare_all_lse(cp_case *k, compared *c, const float *whole)
{
    char where[80];
    if (k->setup.way == CONTEXT_ALL_TO_ALL) {
        snprintf(where, sizeof where, "the heads of rank %d", k->x->rank);
        for (int turn = 0; turn < k->x->turns; turn++)
            compare_lse(k, c, context_lse_heads(k->x, turn), k->x->rank * k->x->turns + turn, 0, k->setup.whole.seq_q,
                        whole, where);
        return;
    }
    for (int g = 0; g < k->x->groups; g++)
        for (int i = 0; i < 2; i++) {
            say_where(k, i, where, sizeof where);
            compare_lse(k, c, context_lse(k->x, g, i), g, context_chunk(&k->setup.shape, k->x->rank, i) * k->x->rows,
                        k->x->rows, whole, where);
        }
}

enum { OF_O, OF_LSE, OF_DQ, OF_DK, OF_DV, COMPARED };
typedef struct comparison {
    compared of[COMPARED];
} comparison;

/* The twofold of the flash checks' bound: both sides have its error. */
static comparison compare_results(cp_case *k, const cp_results *r, const char *with, bool bits)
{
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    const cp_tensor *mine[] = {&k->o, NULL, &k->dq, &k->dk, &k->dv};
    const sb_tensor *whole[] = {&r->o, NULL, &r->dq, &r->dk, &r->dv};
    comparison all;
    for (int i = 0; i < COMPARED; i++) {
        const double bound = 2 * check_attention_bound(sb_dtype_name(k->setup.whole.dtype), i > OF_LSE).rel_l2;
        all.of[i] = (compared){.name = names[i], .number = i, .with = with, .bound = bound, .bits = bits};
        if (i == OF_LSE)
            compare_all_lse(k, &all.of[i], r->lse);
        else
            compare_tensor(k, &all.of[i], mine[i], whole[i]);
    }
    return all;
}

static bool same_bits(const comparison *c)
{
    return c->of[OF_O].unequal + c->of[OF_LSE].unequal + c->of[OF_DQ].unequal == 0;
}

/* The whole sequence as one rank computed it; lse is the caller's to free. */
static cp_results whole_of(const cp_case *k)
{
    const sb_attention *a = &k->whole.a;
    const size_t n = (size_t)a->batch * (size_t)a->heads * (size_t)a->seq_q;
    cp_results r = {a->o, a->dq, a->dk, a->dv, xcalloc(n, sizeof(float))};
    device_download(k->s->dev, r.lse, a->lse, n * sizeof *r.lse);
    return r;
}

/* Forward and backward, back to back so often. */
static bool pass(cp_case *k, int times)
{
    k->x->computing = k->x->moving = true;
    for (int i = 0; i < times; i++) {
        cp_pass(k, false);
        cp_pass(k, true);
    }
    device_sync(k->s->dev);
    return cp_ran(k);
}

/* The bits of what one rank computes in the same parts. */
static void verify_parts(cp_case *k)
{
    cp_results parts = {.lse = NULL};
    if (cp_parts(k, &parts)) {
        device_sync(k->s->dev);
        compare_results(k, &parts, "one rank that computes the same parts", true);
    }
    free(parts.lse);
}

/* Returns whether the bits are those of the whole sequence. */
static bool verify_whole(cp_case *k, double err[COMPARED])
{
    cp_results whole = whole_of(k);
    const comparison c = compare_results(k, &whole, "the whole sequence on one rank", false);
    for (int i = 0; i < COMPARED; i++)
        err[i] = c.of[i].diff2 == 0 ? 0 : sqrt(c.of[i].diff2 / c.of[i].ref2);
    free(whole.lse);
    return same_bits(&c);
}

static bool merges(const cp_case *k)
{
    return k->setup.way == CONTEXT_RING;
}

static void verify_member(cp_case *k, double err[COMPARED], bool *bits)
{
    const bool asked = k->x->as.whole.deterministic, cpu = device_kind_of(k->s->dev) == DEVICE_CPU;
    k->x->as.whole.deterministic = true; /* atomics have no bits to compare */
    const bool ran = pass(k, 1);
    if (ran)
        *bits = verify_whole(k, err);
    if (ran && !merges(k))
        verify_parts(k);
    k->x->as.whole.deterministic = asked;
    if (ran && !cpu && !asked && k->s->timing.iters == 0 && pass(k, 1)) /* else after the timing */
        verify_whole(k, err);
    if (row_status_get(k->w) == ROW_OK && cpu && !merges(k) && k->x->rows % CPU_TILE == 0 && !*bits)
        row_status_set(k->w, ROW_FAIL, "rank %d's o, lse or dq has other bits than the whole sequence on one rank",
                       k->x->rank);
}

static void fill_errors(cp_case *k, const double err[COMPARED], bool bits)
{
    static const char *const columns[] = {"err_o", "err_lse", "err_dq", "err_dk", "err_dv"};
    for (int i = 0; i < COMPARED; i++)
        row_real(k->w, columns[i], launch_most(k->l, columns[i], err[i], k->setup.shape.ranks));
    row_int(k->w, "whole_bits", launch_most(k->l, "bits", !bits, k->setup.shape.ranks) == 0);
}

bool cp_verify(cp_case *k)
{
    double err[COMPARED] = {0};
    bool bits = false;
    phase_set("verification of %s", case_name(k->c));
    scope_push("verify");
    if (k->member)
        verify_member(k, err, &bits);
    scope_pop();
    fill_errors(k, err, bits);
    return cp_agree(k, "check");
}

bool cp_verify_again(cp_case *k)
{
    double err[COMPARED] = {0};
    if (k->member && pass(k, BACK_TO_BACK))
        verify_whole(k, err);
    return cp_agree(k, "check after timing");
}
