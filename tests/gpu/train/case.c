/* SPDX-License-Identifier: MIT */
/* Lists of cases, their slots, and the reference; see train_case.h. */
#include "tests/gpu/train/case.h"

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Draws are repeated after this many, a prime, so that no row of a large array is like another one. */
enum { PERIOD = 65521 };

train_case *case_add(case_list *l, const train_op *op, const char *dtype, const char *fmt, ...)
{
    va_list args;
    if ((l->n & (l->n - 1)) == 0)
        l->items = xrealloc(l->items, sizeof *l->items * (unsigned long)(l->n ? 2 * l->n : 1));
    train_case *c = &l->items[l->n++];
    *c = (train_case){.op = op, .dtype = dtype};
    va_start(args, fmt);
    vsnprintf(c->name, sizeof c->name, fmt, args);
    va_end(args);
    return c;
}

int case_pick(const char *text, int n)
{
    return (int)(rng_hash(7, text) % (uint64_t)n);
}

bool case_fail(const runner *r, const train_case *c, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return runner_fail(r, c->op->name, c->dtype, c->name, "%s", text);
}

/* ---- slots ---- */

size_t slot_element_bytes(const slot *s)
{
    switch (s->content) {
    case SLOT_FLOATS: return (size_t)sb_dtype_bytes(s->dtype);
    case SLOT_INTEGERS: return sizeof(int32_t);
    case SLOT_STATES: return STATE_BYTES;
    case SLOT_BYTES: return 1;
    case SLOT_REMAINDERS: return sizeof(int16_t);
    }
    return 0;
}

static slot *add(train_case *c, slot s)
{
    if (c->slot_count == MAX_SLOTS)
        die(EXIT_CODE_FAILURE, "%s has more than %d slots", c->name, MAX_SLOTS);
    s.before = xmalloc(s.n * slot_element_bytes(&s));
    memset(s.before, 0xff, s.n * slot_element_bytes(&s));
    c->slots[c->slot_count] = s;
    return &c->slots[c->slot_count++];
}

slot *slot_add(train_case *c, const char *name, slot_role role, sb_dtype dtype, size_t n)
{
    return add(c, (slot){.name = name, .role = role, .content = SLOT_FLOATS, .dtype = dtype, .n = n});
}

slot *slot_add_content(train_case *c, const char *name, slot_role role, slot_content content, size_t n)
{
    return add(c, (slot){.name = name, .role = role, .content = content, .dtype = SB_FP32, .n = n});
}

float slot_get(const slot *s, size_t i)
{
    switch (s->dtype) {
    case SB_BF16: return bf16_to_float(((const uint16_t *)s->before)[i]);
    case SB_FP16: return fp16_to_float(((const uint16_t *)s->before)[i]);
    case SB_E4M3: return e4m3_to_float(s->before[i]);
    case SB_E5M2: return e5m2_to_float(s->before[i]);
    default: return ((const float *)s->before)[i];
    }
}

void slot_set(slot *s, size_t i, float x)
{
    switch (s->dtype) {
    case SB_BF16: ((uint16_t *)s->before)[i] = bf16_from_float(x); break;
    case SB_FP16: ((uint16_t *)s->before)[i] = fp16_from_float(x); break;
    case SB_E4M3: s->before[i] = e4m3_from_float(x); break;
    case SB_E5M2: s->before[i] = e5m2_from_float(x); break;
    default: ((float *)s->before)[i] = x;
    }
}

void slot_fill(train_case *c, slot *s, size_t first, size_t rows, size_t columns, size_t ld, double scale)
{
    const size_t drawn = rows * columns < PERIOD ? rows * columns : PERIOD;
    OWNED float *x = xmalloc(drawn * sizeof *x);
    rng_normal(x, drawn, rng_hash(1, c->name), (uint32_t)(s - c->slots), 0, (float)scale);
    size_t next = 0;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            slot_set(s, first + i * ld + j, x[next]);
            next = next + 1 == drawn ? 0 : next + 1;
        }
}

slot *slot_input(train_case *c, const char *name, sb_dtype dtype, size_t n, double scale)
{
    slot *s = slot_add(c, name, SLOT_IN, dtype, n);
    slot_fill(c, s, 0, 1, n, n, scale);
    return s;
}

slot *slot_output(train_case *c, const char *name, sb_dtype dtype, size_t n, slot_bound bound)
{
    slot *s = slot_add(c, name, SLOT_OUT, dtype, n);
    s->bound = bound;
    return s;
}

/* ---- the reference ---- */

void case_prepare(train_case *c)
{
    train_call x = {.kernels = sb_kernels_cpu()};
    if (x.kernels->create(0, &x.ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "the CPU backend: %s", sb_last_message());
    c->op->fill(c);
    for (int i = 0; i < c->slot_count; i++) {
        slot *s = &c->slots[i];
        const size_t bytes = s->n * slot_element_bytes(s);
        if (s->role != SLOT_IN) {
            s->want = xmalloc(bytes);
            memcpy(s->want, s->before, bytes);
        }
        x.at[i] = (s->want ? s->want : s->before) + s->lead * slot_element_bytes(s);
    }
    x.workspace_bytes = c->op->workspace ? c->op->workspace(c, x.kernels, x.ctx) : 0;
    if (x.workspace_bytes > 0)
        x.workspace = xmalloc(x.workspace_bytes);
    if (c->op->run(c, &x) != SB_OK)
        die(EXIT_CODE_FAILURE, "the CPU backend refuses %s %s: %s", c->op->name, c->name, sb_last_message());
    free(x.workspace);
    x.kernels->destroy(x.ctx);
}

void case_release(train_case *c)
{
    for (int i = 0; i < c->slot_count; i++) {
        free(c->slots[i].before);
        free(c->slots[i].want);
    }
    c->slot_count = 0;
}
