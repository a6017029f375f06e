/* SPDX-License-Identifier: MIT */
/* Pointwise ops: every op with every spread of b and every triple of dtypes, over whole and odd shapes with and without
 * gaps, in place, and over the numbers at the edges of the dtypes. */
#include "tests/gpu/train/ops.h"

#include <math.h>
#include <stdio.h>

enum { ALIAS, VALUES };
typedef enum alias { OUT_ALONE, OUT_IS_A, OUT_IS_B } alias;
typedef enum values { VALUES_ORDINARY, VALUES_WIDE, VALUES_EDGES, VALUE_KINDS } values;

typedef struct point_info {
    const char *name;
    sb_point op;
    bool has_b, positive; /* positive: of a, or half of the results are NaN */
    double relative, absolute;
} point_info;
static const point_info points[] = {
    {"copy", SB_POINT_COPY, false, false, 0, 0},
    {"add", SB_POINT_ADD, true, false, 0, 0},
    {"sub", SB_POINT_SUB, true, false, 0, 0},
    {"mul", SB_POINT_MUL, true, false, 0, 0},
    {"div", SB_POINT_DIV, true, false, 1e-6, 0},
    {"scale", SB_POINT_SCALE, false, false, 0, 0},
    {"shift", SB_POINT_SHIFT, false, false, 0, 0},
    {"lerp", SB_POINT_LERP, true, false, 1e-6, 1e-6},
    {"sqrt", SB_POINT_SQRT, false, true, 1e-6, 0},
    {"rsqrt", SB_POINT_RSQRT, false, true, 1e-6, 0},
    {"sigmoid", SB_POINT_SIGMOID, false, false, 2e-6, 1e-30},
    {"silu", SB_POINT_SILU, false, false, 2e-6, 1e-30},
    {"silu-grad", SB_POINT_SILU_GRAD, true, false, 4e-6, 4e-6},
    {"relu", SB_POINT_RELU, false, false, 0, 0},
    {"relu-grad", SB_POINT_RELU_GRAD, true, false, 0, 0},
    {"exp", SB_POINT_EXP, false, false, 2e-6, 1e-30},
    {"log", SB_POINT_LOG, false, true, 2e-6, 1e-7},
};
enum { POINTS = sizeof points / sizeof *points };

/* ---- the list ---- */

typedef struct shape {
    int rows, columns, gap_a, gap_b, gap_out;
} shape;
static const shape shapes[] = {
    {1, 1, 0, 0, 0},    {1, 37, 0, 0, 0},    {37, 129, 0, 0, 0},   {37, 129, 3, 1, 7},  {64, 256, 0, 0, 0},
    {64, 256, 8, 8, 8}, {64, 256, 8, 16, 0}, {130, 1000, 0, 0, 0}, {3, 4099, 0, 0, 0},  {5, 4096, 8, 0, 16},
    {4099, 8, 0, 0, 0}, {4099, 7, 1, 1, 1},  {33, 130, 2, 2, 2},   {257, 12, 4, 4, 20},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool may_alias(const sb_pointwise *p, alias a, bool has_b)
{
    if (a == OUT_IS_A)
        return p->dtype_a == p->dtype_out;
    return a == OUT_ALONE || (has_b && p->spread_b == SB_SPREAD_FULL && p->dtype_b == p->dtype_out);
}

static void add_case(case_list *l, const train_op *op, int point, sb_spread spread, const sb_dtype *t, int nth)
{
    static const char *const spreads[] = {"full", "row", "column", "one"}, *const aliases[] = {"", "-out=a", "-out=b"};
    static const char *const value_names[] = {"", "-wide", "-edges"};
    const bool has_b = points[point].has_b;
    char key[64], dtypes[40];
    snprintf(key, sizeof key, "%d %d %d %d %d", point, (int)spread, (int)t[0], (int)t[1], (int)t[2]);
    const int pick = case_pick(key, SHAPES * VALUE_KINDS * 3);
    const shape *s = &shapes[(pick + 5 * nth) % SHAPES];
    const values v = (values)(pick / SHAPES % VALUE_KINDS);
    alias a = (alias)(pick / SHAPES / VALUE_KINDS);
    sb_pointwise p = {.op = points[point].op,
                      .dtype_a = t[0],
                      .dtype_b = t[1],
                      .dtype_out = t[2],
                      .rows = s->rows,
                      .columns = s->columns,
                      .lda = s->columns + s->gap_a,
                      .ldb = s->columns + s->gap_b,
                      .ld_out = s->columns + s->gap_out,
                      .spread_b = spread,
                      .scalar = 0.3f};
    if (!may_alias(&p, a, has_b))
        a = OUT_ALONE;
    if (a != OUT_ALONE)
        p.ld_out = a == OUT_IS_A ? p.lda : p.ldb;
    snprintf(dtypes, sizeof dtypes, "%s-%s", case_dtype_names[t[0]], has_b ? case_dtype_names[t[1]] : "none");
    train_case *c = case_add(l, op, case_dtype_names[t[2]], "%s-%s-%s-%dx%d-%d-%d-%d%s%s", points[point].name, dtypes,
                             has_b ? spreads[spread] : "alone", p.rows, p.columns, p.lda, p.ldb, p.ld_out, aliases[a],
                             value_names[v]);
    c->p.pointwise = p;
    c->variant[ALIAS] = a;
    c->variant[VALUES] = v;
    c->small =
        t[0] == t[1] && nth == 0 && (spread == SB_SPREAD_FULL || point == 1) && p.rows < 100 && s->columns < 1000;
    c->elements = (size_t)p.rows * (size_t)p.columns * 3;
}

static void list(case_list *l, const train_op *op)
{
    static const sb_dtype dtypes[] = {SB_BF16, SB_FP16, SB_FP32};
    for (int point = 0; point < POINTS; point++)
        for (int spread = SB_SPREAD_FULL; spread <= (points[point].has_b ? SB_SPREAD_ONE : SB_SPREAD_FULL); spread++)
            for (int i = 0; i < 27; i++)
                for (int nth = 0; nth < (points[point].has_b ? 1 : 3); nth++) {
                    const sb_dtype t[] = {dtypes[i % 3], dtypes[i / 3 % 3], dtypes[i / 9]};
                    if (points[point].has_b || t[0] == t[1])
                        add_case(l, op, point, (sb_spread)spread, t, nth);
                }
    for (int s = SB_SPREAD_FULL; s <= SB_SPREAD_ONE; s++)
        add_case(l, op, 1, (sb_spread)s, (const sb_dtype[]){SB_TF32, SB_TF32, SB_TF32}, 1);
}

/* ---- one case ---- */

static const point_info *info_of(const sb_pointwise *p)
{
    return &points[p->op]; /* in the order of sb_point */
}

/* Values at the edges; b's come in another order, so that all pairs meet. */
static float edge(size_t i)
{
    static const float edges[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, -1, 3e38f, -3e38f, 1e-40f, 65504, 1e-7f, -80};
    enum { EDGES = sizeof edges / sizeof *edges };
    return edges[i % EDGES];
}

static void shape_values(const train_case *c, slot *x, size_t rows, size_t columns, size_t ld, bool second)
{
    const values v = (values)c->variant[VALUES];
    const point_info *info = info_of(&c->p.pointwise);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < columns; i++) {
            const size_t n = r * columns + i;
            float value = slot_get(x, r * ld + i);
            if (v == VALUES_EDGES)
                value = edge(second ? n / 13 : n);
            else if (v == VALUES_WIDE)
                value *= 20;
            if (info->positive && v != VALUES_EDGES)
                value = fabsf(value);
            slot_set(x, r * ld + i, value);
        }
}

static slot *matrix(train_case *c, const char *name, sb_dtype t, size_t rows, size_t columns, size_t ld, bool second)
{
    slot *s = slot_add(c, name, SLOT_IN, t, (rows - 1) * ld + columns);
    slot_fill(c, s, 0, rows, columns, ld, 1);
    shape_values(c, s, rows, columns, ld, second);
    return s;
}

static void fill(train_case *c)
{
    const sb_pointwise *p = &c->p.pointwise;
    const point_info *info = info_of(p);
    const size_t rows = (size_t)p->rows, columns = (size_t)p->columns;
    const bool full = p->spread_b == SB_SPREAD_FULL;
    slot *onto = matrix(c, "a", p->dtype_a, rows, columns, (size_t)p->lda, false);
    if (info->has_b) {
        const size_t b_rows = full || p->spread_b == SB_SPREAD_ROW ? rows : 1;
        const size_t b_columns = full || p->spread_b == SB_SPREAD_COLUMN ? columns : 1;
        slot *b = matrix(c, "b", p->dtype_b, b_rows, b_columns, full ? (size_t)p->ldb : b_columns, true);
        onto = c->variant[ALIAS] == OUT_IS_B ? b : onto;
    }
    if (c->variant[ALIAS] == OUT_ALONE)
        onto = slot_add(c, "out", SLOT_OUT, p->dtype_out, (rows - 1) * (size_t)p->ld_out + columns);
    else
        onto->role = SLOT_INOUT;
    onto->bound = (slot_bound){.units = 1, .relative = info->relative, .absolute = info->absolute, .scale = 1};
    if (info->relative == 0 && info->absolute == 0)
        onto->bound.units = 0; /* one operation, rounded to fp32 and then to the dtype: exact */
}

static sb_status run(const train_case *c, const train_call *x)
{
    sb_pointwise p = c->p.pointwise;
    const bool has_b = info_of(&p)->has_b;
    p.a = x->at[0];
    p.b = has_b ? x->at[1] : NULL;
    p.out = x->at[c->variant[ALIAS] == OUT_IS_A ? 0 : c->variant[ALIAS] == OUT_IS_B ? 1 : 1 + has_b];
    return x->kernels->train->pointwise(x->ctx, &p, x->stream);
}

const train_op train_pointwise = {"pointwise", list, fill, NULL, run, NULL};
