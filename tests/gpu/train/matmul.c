/* SPDX-License-Identifier: MIT */
/* Matmul: every dtype over odd and whole shapes; transposes, gaps between rows, pointers aligned to elements only, an
 * addend elsewhere or in place, 16-bit products to fp32. Then the same after the tuner has chosen, and after its choice
 * was given to a new context. Then every tile of our own kernel for 16-bit products, chosen by hand. */
#include "tests/gpu/train/ops.h"
#include "tests/gpu/train/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SLOT_A, SLOT_B, SLOT_D, SLOT_C }; /* SLOT_C only where it is not d */
typedef enum addend { ADD_NOTHING, ADD_ELSEWHERE, ADD_IN_PLACE } addend;
enum { FAST = 4, PARTS = 5, KINDS = 6 }; /* the dtypes, and fp32 by 16-bit parts */
static const char *const kind_names[KINDS] = {"bf16", "fp16", "tf32", "fp32", "fp16x3-fast", "fp16x3"};

/* What a case varies beside its shape, in variant[]. */
enum { ADD, GAP, LEAD, ALGORITHM };
/* Values of variant[ALGORITHM]; larger ones are columns of a tile of our own kernel. */
enum { PROPOSED_FIRST, TUNED_TOO };
enum { ROW_UNIT = 8, RIVALS = 3, NO_TILE = 192 };

typedef struct layout {
    int transposes, add, gap, lead, wide; /* wide: 16-bit products to fp32 */
    int algorithm;
    bool small;
} layout;

static void add_case(case_list *l, const train_op *op, int kind, int m, int n, int k, layout y)
{
    static const char *const transpose_names[] = {"nn", "tn", "nt", "tt"}, *const add_names[] = {"", "-c", "-inplace"};
    const sb_dtype t = kind >= FAST ? SB_FP32 : (sb_dtype)kind;
    char own[24] = "";
    if (y.algorithm > TUNED_TOO)
        snprintf(own, sizeof own, "own16-%d-", y.algorithm);
    train_case *c =
        case_add(l, op, kind_names[kind], "%s%dx%dx%d-%s%s-gap%d-lead%d%s", own, m, n, k, transpose_names[y.transposes],
                 add_names[y.add], y.gap, y.lead, y.wide && kind < 2 ? "-to-fp32" : "");
    c->p.matmul = (sb_matmul){.dtype = t,
                              .dtype_out = y.wide && kind < 2 ? SB_FP32 : t,
                              .transpose_a = y.transposes & 1,
                              .transpose_b = y.transposes & 2,
                              .m = m,
                              .n = n,
                              .k = k,
                              .split = kind == FAST    ? SB_FP16X3_FAST
                                       : kind == PARTS ? SB_FP16X3
                                                       : SB_FMA};
    c->variant[ADD] = y.add;
    c->variant[GAP] = y.gap;
    c->variant[LEAD] = y.lead;
    c->variant[ALGORITHM] = y.algorithm;
    c->small = y.small;
    /* The library may have nothing for such pointers, another GPU nothing of our own. */
    c->may_be_unsupported = y.lead > 0 || y.algorithm > TUNED_TOO;
    c->elements = (size_t)m * (size_t)k + (size_t)n * (size_t)k + (size_t)m * (size_t)n * (y.add ? 2 : 1) +
                  (size_t)m * (size_t)n * (size_t)k / 100;
}

/* Parts of tiles in every dimension; k of one step, of fewer and of more steps than a tile has chunks of columns; more
 * tiles than run at once. Shapes that no other case has, since a context keeps what was chosen for a shape. */
static void list_own(case_list *l, const train_op *op)
{
    static const int tiles[] = {256, 200, 160},
                     shapes[][3] = {{128, 8, 40},      {257, 200, 63},   {300, 1000, 200}, {1000, 2568, 64},
                                    {2100, 2560, 136}, {700, 648, 1999}, {4096, 1600, 328}};
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
        for (int i = 0; i < 3 * 2 * 2; i++) {
            const int *s = shapes[shape], tile = i / 4;
            layout y = {.algorithm = tiles[tile], .transposes = i & 2, .small = shape == 1};
            y.gap = (int)(shape + (size_t)i) % 2 * ROW_UNIT;
            y.add = tile == 0 ? ADD_NOTHING : (int)(shape + (size_t)(i + tile)) % 3; /* the widest adds nothing */
            add_case(l, op, i % 2 ? SB_FP16 : SB_BF16, s[0], s[1], s[2], y);
        }
}

static void list(case_list *l, const train_op *op)
{
    list_own(l, op);
    static const int sizes[] = {1, 7, 13, 130, 257, 1000}, gaps[] = {0, 3, 8}, leads[] = {0, 0, 1, 3};
    static const int whole[][3] = {{264, 136, 64}, {128, 256, 2600}}; /* 2600: several runs of a split product */
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int shape = 0; shape < SIZES * SIZES * SIZES; shape++)
        for (int kind = 0; kind < KINDS; kind++) {
            const int m = sizes[shape % SIZES], n = sizes[shape / SIZES % SIZES], k = sizes[shape / SIZES / SIZES];
            char text[64];
            snprintf(text, sizeof text, "%d %d %d %d", m, n, k, kind);
            int pick = case_pick(text, 4 * 3 * 3 * 4 * 2); /* one of all combinations */
            layout y = {.transposes = pick % 4, .add = pick / 4 % 3, .gap = gaps[pick / 12 % 3]};
            y.lead = leads[pick / 36 % 4];
            y.wide = pick / 144;
            y.algorithm = m == 257 && n == 130 && k >= 257 && y.lead == 0 ? TUNED_TOO : PROPOSED_FIRST;
            y.small = k == 13 && ((m == 7 && n == 130) || (m == 130 && n == 7) || (m == 13 && n == 1));
            add_case(l, op, kind, m, n, k, y);
        }
    for (size_t shape = 0; shape < sizeof whole / sizeof *whole; shape++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < 12; i++) {
                const int *s = whole[shape];
                layout y = {.transposes = i % 4, .add = i / 4, .wide = (i + kind) % 2};
                /* dX; Y; dW added to what is there */
                y.algorithm = i == 0 || i == 2 || i == 5 ? TUNED_TOO : PROPOSED_FIRST;
                y.small = shape == 0 && (i == 2 || i == 9);
                add_case(l, op, kind, s[0], s[1], s[2], y);
            }
}

/* ---- one case ---- */

/* 0: not by our own kernel. */
static int own_columns(const train_case *c)
{
    return c->variant[ALGORITHM] > TUNED_TOO ? c->variant[ALGORITHM] : 0;
}

static int round_up(int x, int unit)
{
    return (x + unit - 1) / unit * unit;
}

static sb_matmul shape_of(const train_case *c)
{
    const int gap = c->variant[GAP];
    const int unit = own_columns(c) ? ROW_UNIT : 1;
    sb_matmul p = c->p.matmul;
    p.lda = round_up(p.transpose_a ? p.m : p.k, unit) + gap;
    p.ldb = round_up(p.transpose_b ? p.k : p.n, unit) + 2 * gap;
    p.ldd = round_up(p.n, unit) + gap;
    p.ldc = c->variant[ADD] == ADD_ELSEWHERE ? p.ldd + 2 * gap : p.ldd;
    return p;
}

/* A matrix behind `lead` elements, whose last row has no gap behind it. */
static slot *matrix(train_case *c, const char *name, slot_role role, sb_dtype t, int rows, int columns, int ld)
{
    const size_t lead = (size_t)c->variant[LEAD];
    slot *s = slot_add(c, name, role, t, lead + (size_t)(rows - 1) * (size_t)ld + (size_t)columns);
    s->lead = lead;
    if (role != SLOT_OUT)
        slot_fill(c, s, lead, (size_t)rows, (size_t)columns, (size_t)ld, 1);
    return s;
}

/* Sums of k products wander with the root of k, which is also their size: a single one may nearly cancel. Elements are
 * some times worse than all together. Products of tf32 have 10 bits of each factor, which a GPU may cut off. An addition
 * in place may be one of 16-bit numbers in memory: the product is then rounded before it, and the sum again. */
static slot_bound bound_of(const sb_matmul *p, bool in_place)
{
    const double root = sqrt(p->k), few = p->m * p->n < 16 ? 10 : 1;
    const double twice = !in_place ? 0 : p->dtype_out == SB_BF16 ? 0x1p-8 : p->dtype_out == SB_FP16 ? 0x1p-11 : 0;
    slot_bound b = {.units = 1, .relative = 1e-6, .absolute = 2e-6 + 4e-7 * root, .rel_l2 = 1e-6 + 1e-7 * root};
    if (p->dtype == SB_TF32)
        b = (slot_bound){.units = 1, .relative = 4e-3, .absolute = 6e-3, .rel_l2 = 2.5e-3};
    b.absolute = few * b.absolute + 8 * twice;                       /* of a product 8 times as large as most */
    b.rel_l2 = (p->m * p->n == 1 ? 10 : 1) * few * b.rel_l2 + twice; /* the absolute bound holds for it, too */
    b.scale = root;
    return b;
}

static void fill(train_case *c)
{
    const sb_matmul p = shape_of(c);
    const int add = c->variant[ADD];
    matrix(c, "a", SLOT_IN, p.dtype, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda);
    matrix(c, "b", SLOT_IN, p.dtype, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb);
    slot *d = matrix(c, "d", add == ADD_IN_PLACE ? SLOT_INOUT : SLOT_OUT, p.dtype_out, p.m, p.n, p.ldd);
    d->bound = bound_of(&p, add == ADD_IN_PLACE);
    if (add == ADD_ELSEWHERE)
        matrix(c, "c", SLOT_IN, p.dtype_out, p.m, p.n, p.ldc);
}

static sb_matmul problem_of(const train_case *c, const train_call *x)
{
    sb_matmul p = shape_of(c);
    p.a = x->at[SLOT_A];
    p.b = x->at[SLOT_B];
    p.d = x->at[SLOT_D];
    p.c = c->variant[ADD] == ADD_NOTHING ? NULL : x->at[c->variant[ADD] == ADD_ELSEWHERE ? SLOT_C : SLOT_D];
    p.workspace = x->workspace;
    p.workspace_bytes = x->workspace_bytes;
    return p;
}

static size_t workspace(const train_case *c, const sb_kernels *k, sb_context *ctx)
{
    const sb_matmul p = shape_of(c);
    return k->train->matmul_workspace(ctx, &p);
}

static sb_matmul_choice own_tile(int columns)
{
    return own_choice("own half", columns);
}

static sb_status run(const train_case *c, const train_call *x)
{
    const sb_matmul p = problem_of(c, x);
    if (own_columns(c)) {
        const sb_matmul_choice choice = own_tile(own_columns(c));
        const sb_status s = x->kernels->train->matmul_choose(x->ctx, &p, &choice);
        if (s != SB_OK)
            return s;
    }
    return x->kernels->train->matmul(x->ctx, &p, x->stream);
}

/* ---- tuning ---- */

/* The same bits from a new context that was given the choice. */
static bool check_choice(const train_bed *bed, instance *x, const sb_matmul_choice *choice, const left_behind *tuned)
{
    const sb_kernels *k = bed->r->kernels;
    sb_context *const usual = x->call.ctx;
    const sb_matmul p = problem_of(x->c, &x->call);
    if (k->create(0, &x->call.ctx) != SB_OK)
        return case_fail(bed->r, x->c, "no second context: %s", sb_last_message());
    bool ok = k->train->matmul_choose(x->call.ctx, &p, choice) == SB_OK ||
              case_fail(bed->r, x->c, "the tuner's choice is refused: %s", sb_last_message());
    ok = ok && instance_run(bed, x, " with a choice") && instance_same(bed, x, tuned, " with a choice");
    k->destroy(x->call.ctx);
    x->call.ctx = usual;
    return ok;
}

/* A tile that there is not, one that cannot add C, and another library's choice are refused. */
static bool check_refusals(train_bed *bed, const train_case *c)
{
    const sb_kernels *k = bed->r->kernels;
    if (k == sb_kernels_cpu())
        return true;
    instance x = instance_create(bed, c);
    const sb_matmul p = problem_of(c, &x.call);
    sb_matmul_choice wrong[3] = {own_tile(NO_TILE), own_tile(own_columns(c)), own_tile(256)};
    wrong[1].library++;
    bool ok = true;
    for (int i = 0; i < (p.c ? 3 : 2) && ok; i++)
        ok = k->train->matmul_choose(x.call.ctx, &p, &wrong[i]) == SB_UNSUPPORTED ||
             case_fail(bed->r, c, "made-up choice %d is accepted", i);
    instance_free(bed, &x);
    return ok;
}

/* Each can be chosen, and is right. */
static bool check_rivals(train_bed *bed, instance *x, const sb_matmul_choice *rivals)
{
    const sb_kernels *k = bed->r->kernels;
    const sb_matmul p = problem_of(x->c, &x->call);
    bool ok = true;
    for (int i = 0; i < RIVALS && rivals[i].tried && ok; i++)
        ok = (k->train->matmul_choose(x->call.ctx, &p, &rivals[i]) == SB_OK ||
              case_fail(bed->r, x->c, "rival '%s' is refused: %s", rivals[i].name, sb_last_message())) &&
             instance_run(bed, x, " by a rival") && instance_right(bed, x, " by a rival");
    return ok;
}

static bool check_tuned(train_bed *bed, const train_case *c)
{
    if (own_columns(c))
        return check_refusals(bed, c);
    if (c->variant[ALGORITHM] != TUNED_TOO)
        return true;
    const sb_kernels *k = bed->r->kernels;
    instance x = instance_create(bed, c);
    const sb_matmul p = problem_of(c, &x.call);
    sb_matmul_choice choice = {.tried = 0}, rivals[RIVALS];
    bool ok = true;
    instance_reset(bed, &x);
    if (k->train->matmul_tune(x.call.ctx, &p, &choice, rivals, RIVALS, x.call.stream) != SB_OK)
        ok = case_fail(bed->r, c, "tuning is refused: %s", sb_last_message());
    else if (!(choice.tried >= 1 && choice.ms >= 0 && choice.ms <= 1.02 * choice.first_ms && choice.name[0]))
        ok = case_fail(bed->r, c, "the tuner's choice '%s' of %d takes %g ms, the library's first proposal %g ms",
                       choice.name, choice.tried, choice.ms, choice.first_ms);
    if (ok && instance_run(bed, &x, " tuned") && instance_right(bed, &x, " tuned")) {
        left_behind tuned = left_of(bed, &x);
        for (int i = 1; i < bed->r->repeats && ok; i++)
            ok = instance_run(bed, &x, " tuned") && instance_same(bed, &x, &tuned, " tuned");
        ok = ok && check_choice(bed, &x, &choice, &tuned) && check_rivals(bed, &x, rivals);
        left_free(&tuned);
    } else {
        ok = false;
    }
    for (int i = 0; i < c->slot_count; i++)
        if (!guarded_intact(bed->r, &x.slots[i]))
            ok = case_fail(bed->r, c, "bytes around %s were written while tuning", c->slots[i].name);
    instance_free(bed, &x);
    return ok;
}

const train_op train_matmul = {"matmul", list, fill, workspace, run, check_tuned};
