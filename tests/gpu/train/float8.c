/* SPDX-License-Identifier: MIT */
/* float8: largest magnitudes and casts, compared byte for byte with the CPU's; products of every pair of formats and scalings, with
 * both sums, against the CPU's model of the accumulator, and again after tuning. Then every tile of our own kernel, which must have
 * the model's bits. */
#include "tests/gpu/train/ops.h"
#include "tests/gpu/train/run.h"

#include "common/core/error.h"
#include "common/core/numeric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum values { VALUES_ORDINARY, VALUES_EDGES, VALUES_BEYOND, VALUE_KINDS, VALUES_ALL } values;
static const char *const value_names[] = {"", "-edges", "-beyond"};
static const sb_dtype x_dtypes[] = {SB_BF16, SB_FP16, SB_FP32};

/* Shapes around tiles and whole units; 1600 is 12.5 blocks. */
typedef struct shape {
    int rows, columns, gap_x, gap_y;
} shape;
static const shape shapes[] = {{1, 1, 0, 0},       {15, 17, 1, 0},    {16, 129, 3, 1},  {127, 16, 0, 0},
                               {129, 260, 8, 4},   {128, 128, 0, 0},  {136, 384, 0, 8}, {8, 1600, 0, 0},
                               {1600, 264, 8, 0},  {257, 1000, 0, 0}, {1, 4099, 1, 3},  {640, 7, 0, 0},
                               {1032, 2048, 0, 16}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* x: rows and columns of different sizes, so that no scale is like its neighbour's. */
static void fill_x(train_case *c, sb_dtype dtype, int rows, int columns, int ld, values v)
{
    static const float edges[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 448, -464, 57344, 1e-39f, 65504, 1e-7f, 1};
    slot *x = slot_add(c, "x", SLOT_IN, dtype, (size_t)(rows - 1) * (size_t)ld + (size_t)columns);
    slot_fill(c, x, 0, (size_t)rows, (size_t)columns, (size_t)ld, 1);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const size_t at = (size_t)i * (size_t)ld + (size_t)j;
            const float spread = ldexpf(1, i * 7 % 13 - 6) * (j % 5 == 2 ? 16 : 1);
            slot_set(x, at, slot_get(x, at) * spread);
            if (v == VALUES_EDGES && (i + 3 * j) % 97 == 0)
                slot_set(x, at, edges[(size_t)(i + j) % (sizeof edges / sizeof *edges)]);
        }
}

static slot *bytes(train_case *c, const char *name, slot_role role, size_t n)
{
    return slot_add_content(c, name, role, SLOT_BYTES, n);
}

/* Every number of bf16, (256, 256). */
static void fill_all(train_case *c)
{
    slot *x = slot_add(c, "x", SLOT_IN, SB_BF16, 65536);
    for (size_t i = 0; i < 65536; i++)
        ((uint16_t *)x->before)[i] = (uint16_t)i;
}

/* ---- amax ---- */

static void list_amax(case_list *l, const train_op *op)
{
    for (int s = 0; s < SHAPES; s++)
        for (int t = 0; t < 3; t++)
            for (int v = VALUES_ORDINARY; v <= VALUES_EDGES; v++) {
                const shape *y = &shapes[s];
                train_case *c = case_add(l, op, case_dtype_names[x_dtypes[t]], "%dx%d-gap%d%s", y->rows, y->columns,
                                         y->gap_x, value_names[v]);
                c->p.amax = (sb_amax){
                    .dtype = x_dtypes[t], .rows = y->rows, .columns = y->columns, .ld = y->columns + y->gap_x};
                c->variant[0] = v;
                c->small = t == 0 && s < 5;
                c->elements = (size_t)y->rows * (size_t)y->columns;
            }
}

static void fill_amax(train_case *c)
{
    const sb_amax *p = &c->p.amax;
    fill_x(c, p->dtype, p->rows, p->columns, p->ld, (values)c->variant[0]);
    bytes(c, "of_all", SLOT_OUT, 4);
    bytes(c, "of_rows", SLOT_OUT, 4 * (size_t)p->rows);
    bytes(c, "of_columns", SLOT_OUT, 4 * (size_t)p->columns);
}

static sb_status run_amax(const train_case *c, const train_call *x)
{
    sb_amax p = c->p.amax;
    p.x = x->at[0], p.of_all = x->at[1], p.of_rows = x->at[2], p.of_columns = x->at[3];
    return x->kernels->train->amax(x->ctx, &p, x->stream);
}

const train_op train_amax = {"amax", list_amax, fill_amax, NULL, run_amax, NULL};

/* ---- casts ---- */

enum { VALUES, COPIES, POWER, MIXED = SB_SCALE_128X128 + 1 /* 1x128 of y and 128x128 of y_t */ };
typedef enum copies { BOTH, ROWS_ALONE, TRANSPOSED_ALONE } copies;

static const char *scalings_name(int scaling)
{
    return scaling == MIXED ? "1x128-128x128" : sb_scaling_name((sb_scaling)scaling);
}

static sb_scaling scaling_of_y(int scaling)
{
    return scaling == MIXED ? SB_SCALE_1X128 : (sb_scaling)scaling;
}

static sb_scaling scaling_of_y_t(int scaling)
{
    return scaling == MIXED ? SB_SCALE_128X128 : SB_SCALE_NONE;
}

static size_t scales_t_bytes(const sb_quantize *p)
{
    return 4 * sb_scale_count(p->scaling_t ? p->scaling_t : p->scaling, p->columns, p->rows);
}

static void add_cast(case_list *l, const train_op *op, int s, sb_dtype format, int scaling, sb_dtype t, values v)
{
    static const char *const copy_names[] = {"", "-rows", "-transposed"};
    const shape *y = &shapes[s];
    const copies made = (copies)((s + scaling + (int)format) % 3);
    train_case *c =
        case_add(l, op, case_dtype_names[t], "%s-%s-%dx%d-gap%d-%d%s%s", sb_dtype_name(format), scalings_name(scaling),
                 y->rows, y->columns, y->gap_x, y->gap_y, copy_names[made], value_names[v]);
    c->p.quantize = (sb_quantize){.dtype = t,
                                  .format = format,
                                  .scaling = scaling_of_y(scaling),
                                  .scaling_t = scaling_of_y_t(scaling),
                                  .rows = y->rows,
                                  .columns = y->columns,
                                  .ld = y->columns + y->gap_x,
                                  .ld_y = y->columns + y->gap_y,
                                  .ld_t = y->rows + y->gap_y};
    c->variant[VALUES] = v;
    c->variant[COPIES] = (int)made;
    c->small = t == SB_BF16 && s < 5 && v != VALUES_ORDINARY;
    c->elements = 3 * (size_t)y->rows * (size_t)y->columns;
}

/* With scales from 2^-20 to 2^20. */
static void add_all_numbers(case_list *l, const train_op *op, sb_dtype format, int power)
{
    train_case *c = case_add(l, op, "bf16", "%s-tensor-every-number-by-%d", sb_dtype_name(format), power);
    c->p.quantize = (sb_quantize){.dtype = SB_BF16,
                                  .format = format,
                                  .scaling = SB_SCALE_TENSOR,
                                  .rows = 256,
                                  .columns = 256,
                                  .ld = 256,
                                  .ld_y = 256,
                                  .ld_t = 256};
    c->variant[VALUES] = VALUES_ALL;
    c->variant[COPIES] = BOTH;
    c->variant[POWER] = power;
    c->elements = 65536;
}

static void list_quantize(case_list *l, const train_op *op)
{
    for (int power = -20; power <= 20; power++)
        for (int format = SB_E4M3; format <= SB_E5M2; format++)
            add_all_numbers(l, op, (sb_dtype)format, power);
    for (int s = 0; s < SHAPES; s++)
        for (int format = SB_E4M3; format <= SB_E5M2; format++)
            for (int scaling = SB_SCALE_TENSOR; scaling <= MIXED; scaling++)
                for (int v = VALUES_ORDINARY; v < (scaling <= SB_SCALE_ROW ? VALUE_KINDS : VALUES_BEYOND); v++)
                    add_cast(l, op, s, (sb_dtype)format, scaling, x_dtypes[(s + v + scaling) % 3], (values)v);
}

static void fill_quantize(train_case *c)
{
    const sb_quantize *p = &c->p.quantize;
    const values v = (values)c->variant[VALUES];
    const size_t rows = (size_t)p->rows, columns = (size_t)p->columns;
    if (v == VALUES_ALL)
        fill_all(c);
    else
        fill_x(c, p->dtype, p->rows, p->columns, p->ld, v);
    slot *along = bytes(c, "amax", SLOT_IN, 4 * rows), *down = bytes(c, "amax_t", SLOT_IN, 4 * columns);
    const bool tensor = p->scaling == SB_SCALE_TENSOR;
    const sb_amax largest = {.dtype = p->dtype,
                             .rows = p->rows,
                             .columns = p->columns,
                             .ld = p->ld,
                             .x = c->slots[0].before,
                             .of_all = tensor ? (uint32_t *)along->before : NULL,
                             .of_rows = tensor ? NULL : (uint32_t *)along->before,
                             .of_columns = (uint32_t *)down->before};
    sb_kernels_cpu()->train->amax(NULL, &largest, NULL);
    if (v == VALUES_BEYOND) /* words of a history: a quarter of what is there */
        for (size_t i = 0; i < rows + columns; i++) {
            uint32_t *w = i < rows ? (uint32_t *)along->before + i : (uint32_t *)down->before + i - rows;
            *w = float_bits(float_of_bits(*w) / 4);
        }
    if (v == VALUES_ALL)
        *(uint32_t *)along->before = float_bits(ldexpf(p->format == SB_E4M3 ? 448 : 57344, c->variant[POWER]));
    bytes(c, "y", SLOT_OUT, (rows - 1) * (size_t)p->ld_y + columns);
    bytes(c, "scales", SLOT_OUT, 4 * sb_scale_count(p->scaling, p->rows, p->columns));
    bytes(c, "y_t", SLOT_OUT, (columns - 1) * (size_t)p->ld_t + rows);
    bytes(c, "scales_t", SLOT_OUT, scales_t_bytes(p));
    slot *counts = bytes(c, "counts", SLOT_INOUT, 8);
    memset(counts->before, 0, 8);
}

static sb_status run_quantize(const train_case *c, const train_call *x)
{
    sb_quantize p = c->p.quantize;
    p.x = x->at[0], p.amax = x->at[1], p.amax_t = x->at[2];
    if (c->variant[COPIES] != TRANSPOSED_ALONE)
        p.y = x->at[3], p.scales = x->at[4];
    if (c->variant[COPIES] != ROWS_ALONE)
        p.y_t = x->at[5], p.scales_t = x->at[6];
    p.counts = c->variant[VALUES] == VALUES_ORDINARY
                   ? NULL
                   : x->at[7]; /* whole squares are another kernel where nothing is counted */
    return x->kernels->train->quantize(x->ctx, &p, x->stream);
}

const train_op train_quantize = {"quantize", list_quantize, fill_quantize, NULL, run_quantize, NULL};

/* ---- codes transposed ---- */

static void list_codes(case_list *l, const train_op *op)
{
    static const int sizes[][2] = {{16, 16}, {128, 272}, {1600, 144}, {2064, 4096}};
    for (int i = 0; i < 8; i++) {
        const int rows = sizes[i / 2][0], columns = sizes[i / 2][1];
        const sb_scaling scaling = i % 2 ? SB_SCALE_128X128 : SB_SCALE_TENSOR;
        train_case *c = case_add(l, op, "e4m3", "%s-%dx%d", sb_scaling_name(scaling), rows, columns);
        c->p.codes = (sb_codes){.scaling = scaling, .rows = rows, .columns = columns};
        c->small = i < 4;
        c->elements = (size_t)rows * (size_t)columns;
    }
}

static void fill_codes(train_case *c)
{
    const sb_codes *p = &c->p.codes;
    const size_t n = (size_t)p->rows * (size_t)p->columns, scales = sb_scale_count(p->scaling, p->rows, p->columns);
    slot *x = bytes(c, "x", SLOT_IN, n), *s = bytes(c, "scales", SLOT_IN, 4 * scales);
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)x->before)[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < scales; i++)
        ((float *)s->before)[i] = ldexpf(1, (int)(i % 61) - 30);
    bytes(c, "y_t", SLOT_OUT, n);
    bytes(c, "scales_t", SLOT_OUT, 4 * sb_scale_count(p->scaling, p->columns, p->rows));
}

static sb_status run_codes(const train_case *c, const train_call *x)
{
    sb_codes p = c->p.codes;
    p.x = x->at[0], p.scales = x->at[1], p.y_t = x->at[2], p.scales_t = x->at[3];
    return x->kernels->train->transpose_codes(x->ctx, &p, x->stream);
}

const train_op train_codes = {"transpose_codes", list_codes, fill_codes, NULL, run_codes, NULL};

/* ---- casts of what they make: largest magnitudes, then codes ---- */

enum { FROM, BESIDE, RSTD, WORDS, WORDS_T, CODES, CODE_SCALES, CODES_T, CODE_SCALES_T };

static const char *const source_names[] = {"x", "swiglu", "swiglu-gradient", "rmsnorm", "rope-gradient"};
enum { SOURCES = sizeof source_names / sizeof *source_names };

static void add_within(case_list *l, const train_op *op, sb_float8_source source, int rows, int width, int scaling,
                       int nth)
{
    const bool gradient = source == SB_FROM_SWIGLU_GRADIENT, swiglu = gradient || source == SB_FROM_SWIGLU;
    const sb_dtype dtype = nth % 3 || !swiglu ? SB_BF16 : SB_FP16, format = nth % 2 ? SB_E4M3 : SB_E5M2;
    const bool turns = source == SB_FROM_ROPE_GRADIENT;
    const int columns = (gradient ? 2 : 1) * width, head_dim = width < 256 ? 8 : 64;
    if (gradient && scaling >= SB_SCALE_1X128 && width % 128 != 0)
        return;
    train_case *c = case_add(l, op, case_dtype_names[dtype], "%s-%s-%s-%dx%d", source_names[source],
                             sb_dtype_name(format), scalings_name(scaling), rows, width);
    c->p.quantize = (sb_quantize){.dtype = dtype,
                                  .format = format,
                                  .scaling = scaling_of_y(scaling),
                                  .scaling_t = scaling_of_y_t(scaling),
                                  .from = {.source = source,
                                           .seq = rows % 4 == 0 ? rows / 4 : rows,
                                           .head_dim = head_dim,
                                           .turned = width * 2 / 3 / head_dim * head_dim},
                                  .rows = rows,
                                  .columns = columns,
                                  .ld = swiglu  ? 2 * width
                                        : turns ? (width + 15) / 8 * 8
                                                : width,
                                  .ld_y = columns,
                                  .ld_t = rows};
    c->small = rows == 136 && width == 256;
    c->elements = 8 * (size_t)rows * (size_t)width;
}

static void list_within(case_list *l, const train_op *op)
{
    static const int rows[] = {1, 136, 257}, widths[] = {20, 129, 256, 384, 1000};
    int nth = 0;
    for (size_t r = 0; r < 3; r++)
        for (size_t w = 0; w < 5; w++)
            for (int source = SB_FROM_SWIGLU; source < SOURCES; source++)
                for (int scaling = SB_SCALE_TENSOR; scaling <= MIXED; scaling++)
                    add_within(l, op, (sb_float8_source)source, rows[r], widths[w], scaling, nth++);
}

/* Sigmoids of these gates are 1/2 or 1 in fp32, so that both backends make the same bits. */
static void fill_gates(slot *x, size_t rows, size_t f)
{
    static const float gates[] = {0, 25, 40, 100, 200};
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < f; j++)
            slot_set(x, 2 * i * f + j, gates[(3 * i + j) % 5]);
}

static void fill_within(train_case *c)
{
    const sb_quantize *p = &c->p.quantize;
    const sb_float8_source source = p->from.source;
    const size_t rows = (size_t)p->rows, columns = (size_t)p->columns, ld = (size_t)p->ld;
    if (source == SB_FROM_RMSNORM || source == SB_FROM_ROPE_GRADIENT) {
        const bool turns = source == SB_FROM_ROPE_GRADIENT;
        fill_x(c, p->dtype, p->rows, p->columns, p->ld, VALUES_EDGES);
        slot *beside = slot_input(c, turns ? "table" : "gain", turns ? SB_FP32 : p->dtype,
                                  turns ? (size_t)p->from.seq * (size_t)p->from.head_dim : columns, 1);
        /* Products of 16 bits are exact in fp32, so that both backends make the same. */
        for (size_t i = 0; i < beside->n; i++)
            slot_set(beside, i, bf16_to_float(bf16_from_float(slot_get(beside, i))));
    } else {
        fill_gates(slot_input(c, "gate_up", p->dtype, rows * ld, 1), rows, ld / 2);
        slot_input(c, "dh", p->dtype, rows * ld / 2, 0.3);
    }
    slot *rstd = slot_add(c, "rstd", SLOT_IN, SB_FP32, rows);
    for (size_t i = 0; i < rows; i++) /* which no two neighbours share */
        slot_set(rstd, i, ldexpf(1.3f, (int)(i % 11) - 5));
    slot *words = bytes(c, "words", SLOT_INOUT, 4 * (rows + 1)),
         *words_t = bytes(c, "words_t", SLOT_INOUT, 4 * columns);
    memset(words->before, 0, 4 * (rows + 1));
    memset(words_t->before, 0, 4 * columns);
    bytes(c, "y", SLOT_OUT, rows * columns);
    bytes(c, "scales", SLOT_OUT, 4 * sb_scale_count(p->scaling, p->rows, p->columns));
    bytes(c, "y_t", SLOT_OUT, rows * columns);
    bytes(c, "scales_t", SLOT_OUT, scales_t_bytes(p));
}

static sb_quantize within_of(const train_case *c, const train_call *x)
{
    sb_quantize p = c->p.quantize;
    p.x = x->at[FROM], p.from.dh = p.from.gain = p.from.table = x->at[BESIDE], p.from.rstd = x->at[RSTD];
    return p;
}

static sb_status cast_matrix(const train_call *x, sb_quantize p)
{
    const bool by_row = p.scaling == SB_SCALE_ROW;
    p.amax = x->at[WORDS], p.amax_t = x->at[WORDS_T];
    p.y = x->at[CODES], p.scales = x->at[CODE_SCALES], p.y_t = x->at[CODES_T], p.scales_t = x->at[CODE_SCALES_T];
    p.largest = (uint32_t *)x->at[WORDS] + p.rows;
    p.again = p.scaling == SB_SCALE_TENSOR && p.rows > 1;
    if (p.again && p.rows % 2 == 0) /* a guess that is wrong */
        p.amax = x->at[WORDS_T];
    const sb_amax a = {.dtype = p.dtype,
                       .from = p.from,
                       .rows = p.rows,
                       .columns = p.columns,
                       .ld = p.ld,
                       .x = p.x,
                       .of_all = by_row ? NULL : x->at[WORDS],
                       .of_rows = by_row ? x->at[WORDS] : NULL,
                       .of_columns = by_row ? x->at[WORDS_T] : NULL};
    const sb_status s = x->kernels->train->amax(x->ctx, &a, x->stream);
    return s == SB_OK ? x->kernels->train->quantize(x->ctx, &p, x->stream) : s;
}

static sb_status run_within(const train_case *c, const train_call *x)
{
    return cast_matrix(x, within_of(c, x));
}

/* In rows as wide as those of x, which CUDA's op turns. */
static sb_status turn_back(const train_call *x, const sb_quantize *p, void *made)
{
    const int ld = p->ld;
    const sb_pointwise copy = {.op = SB_POINT_COPY,
                               .dtype_a = p->dtype,
                               .dtype_out = p->dtype,
                               .rows = p->rows,
                               .columns = p->columns,
                               .lda = ld,
                               .ld_out = ld,
                               .a = p->x,
                               .out = made};
    const sb_rope rope = {.dtype = p->dtype,
                          .batch = p->rows / p->from.seq,
                          .seq = p->from.seq,
                          .heads = p->from.turned / p->from.head_dim,
                          .head_dim = p->from.head_dim,
                          .x = {made, (int64_t)p->from.seq * ld, p->from.head_dim, ld},
                          .table = p->from.table,
                          .inverse = true};
    const sb_status s = x->kernels->train->pointwise(x->ctx, &copy, x->stream);
    return s == SB_OK ? x->kernels->train->rope(x->ctx, &rope, x->stream) : s;
}

/* The matrix, by its own op; of a norm that leaves rstd, too. */
static sb_status make_apart(const train_call *x, const sb_quantize *p, void *made)
{
    const bool gradient = p->from.source == SB_FROM_SWIGLU_GRADIENT;
    const sb_train_ops *ops = x->kernels->train;
    const sb_swiglu swiglu = {.dtype = p->dtype,
                              .rows = p->rows,
                              .f = p->ld / 2,
                              .gate_up = p->x,
                              .dh = p->from.dh,
                              .h = gradient ? NULL : made,
                              .d_gate_up = made};
    const sb_rmsnorm norm = {.dtype = p->dtype,
                             .dtype_param = p->dtype,
                             .rows = p->rows,
                             .d = p->columns,
                             .eps = 1e-5f,
                             .x = p->x,
                             .weight = p->from.gain,
                             .y = made,
                             .rstd = x->at[RSTD]};
    switch (p->from.source) {
    case SB_FROM_SWIGLU: return ops->swiglu_forward(x->ctx, &swiglu, x->stream);
    case SB_FROM_SWIGLU_GRADIENT: return ops->swiglu_backward(x->ctx, &swiglu, x->stream);
    case SB_FROM_RMSNORM: return ops->rmsnorm_forward(x->ctx, &norm, x->stream);
    default: return turn_back(x, p, made);
    }
}

/* Whose products are not exact. */
static void upload_angles(train_bed *bed, const instance *x)
{
    const slot *table = &x->c->slots[BESIDE];
    OWNED float *angles = xmalloc(table->n * sizeof *angles);
    for (size_t i = 0; i < table->n; i++)
        angles[i] = slot_get(table, i) * 1.1f;
    device_upload(bed->r->dev, x->slots[BESIDE].data, angles, table->n * sizeof *angles);
}

/* Both ops, one behind the other, leave the same bits. */
static bool check_apart(train_bed *bed, const train_case *c)
{
    instance x = instance_create(bed, c);
    sb_quantize p = within_of(c, &x.call);
    guarded made = guarded_create(bed->r, 2 * (size_t)p.rows * (size_t)p.ld);
    const bool turns = p.from.source == SB_FROM_ROPE_GRADIENT;
    if (turns)
        upload_angles(bed, &x);
    bool ok = make_apart(&x.call, &p, made.data) == SB_OK ||
              case_fail(bed->r, c, "what is cast is refused: %s", sb_last_message());
    ok = ok && instance_run(bed, &x, " within");
    left_behind within = left_of(bed, &x);
    instance_reset(bed, &x);
    p.from.source = SB_FROM_X, p.x = made.data, p.ld = turns ? p.ld : p.columns;
    ok = ok && (cast_matrix(&x.call, p) == SB_OK || case_fail(bed->r, c, "refused apart: %s", sb_last_message())) &&
         instance_same(bed, &x, &within, " of what its own op makes");
    left_free(&within);
    guarded_free(bed->r, &made);
    instance_free(bed, &x);
    return ok;
}

const train_op train_quantize_within = {"quantize_within", list_within, fill_within, NULL, run_within, check_apart};

/* ---- histories ---- */

static void list_history(case_list *l, const train_op *op)
{
    static const int words[] = {1, 257, 1000}, windows[] = {1, 2, 16};
    for (int i = 0; i < 9; i++) {
        train_case *c = case_add(l, op, case_dtype_names[SB_FP32], "%dx%d", words[i / 3], windows[i % 3]);
        c->p.history = (sb_float8_history){.n = words[i / 3], .window = windows[i % 3]};
        c->small = i == 4;
        c->elements = (size_t)words[i / 3] * (size_t)windows[i % 3];
    }
}

static void fill_history(train_case *c)
{
    static const uint32_t values[] = {0, 1, 0x3f800000u, 0x7f7fffffu, 0x7f800000u, 0x7fffffffu, 0x40490fdbu};
    const size_t n = (size_t)c->p.history.n, all = n * (size_t)c->p.history.window;
    slot *largest = bytes(c, "largest", SLOT_INOUT, 4 * n), *history = bytes(c, "history", SLOT_INOUT, 4 * all);
    for (size_t i = 0; i < n; i++)
        ((uint32_t *)largest->before)[i] = values[i % 7];
    for (size_t i = 0; i < all; i++)
        ((uint32_t *)history->before)[i] = values[i * 5 % 4];
    bytes(c, "used", SLOT_OUT, 4 * n);
}

static sb_status run_history(const train_case *c, const train_call *x)
{
    sb_float8_history p = c->p.history;
    p.largest = x->at[0], p.history = x->at[1], p.used = x->at[2];
    return x->kernels->train->float8_history(x->ctx, &p, x->stream);
}

const train_op train_float8_history = {"float8_history", list_history, fill_history, NULL, run_history, NULL};

/* ---- products ---- */

enum { ADD, TUNED, OWN_ROWS };
enum { ADD_NOTHING, ADD_ELSEWHERE, ADD_IN_PLACE };
enum { NO_TILE = 192 };

static const sb_scaling scalings_of_products[][2] = {{SB_SCALE_TENSOR, SB_SCALE_TENSOR},
                                                     {SB_SCALE_ROW, SB_SCALE_ROW},
                                                     {SB_SCALE_1X128, SB_SCALE_128X128},
                                                     {SB_SCALE_1X128, SB_SCALE_1X128},
                                                     {SB_SCALE_128X128, SB_SCALE_1X128}};
enum { SCALINGS_OF_PRODUCTS = 5 };

/* own_rows: 0, or of the tile of our own kernel. */
static void add_product(case_list *l, const train_op *op, const int *s, const sb_dtype *formats,
                        const sb_scaling *scalings, sb_float8_sums sums, int nth, int own_rows)
{
    static const sb_dtype outs[] = {SB_BF16, SB_FP32, SB_FP16};
    static const char *const add_names[] = {"", "-c", "-inplace"};
    const sb_dtype out = outs[nth % 3];
    const int adds = own_rows ? nth / 3 % 3 : nth % 2;
    char own[24] = "";
    if (own_rows)
        snprintf(own, sizeof own, "own-codes-%d-", own_rows);
    train_case *c =
        case_add(l, op, case_dtype_names[out], "%s%s.%s-%s.%s-%s-%dx%dx%d%s", own, sb_dtype_name(formats[0]),
                 sb_dtype_name(formats[1]), sb_scaling_name(scalings[0]), sb_scaling_name(scalings[1]),
                 sums == SB_SUMS_FAST ? "fast" : "exact", s[0], s[1], s[2], add_names[adds]);
    c->p.matmul = (sb_matmul){.dtype = formats[0],
                              .dtype_b = formats[1],
                              .dtype_out = out,
                              .transpose_b = true,
                              .m = s[0],
                              .n = s[1],
                              .k = s[2],
                              .lda = s[2],
                              .ldb = s[2],
                              .ldc = s[1],
                              .ldd = s[1],
                              .scaling_a = scalings[0],
                              .scaling_b = scalings[1],
                              .sums = sums};
    c->variant[ADD] = adds;
    c->variant[TUNED] = s[2] == 1600;
    c->variant[OWN_ROWS] = own_rows;
    c->small = s[2] == 272;
    c->may_be_unsupported = true; /* a GPU that is no Hopper */
    c->elements = (size_t)s[0] * (size_t)s[1] * (size_t)s[2] / 20;
}

/* Parts of tiles in every dimension; k of part of a step and of more steps than a block has stages; more tiles than run at once.
 * Shapes that no other case has, since a context keeps what was chosen for a shape. */
static void list_own(case_list *l, const train_op *op)
{
    static const int sizes[][3] = {{16, 16, 16},    {144, 400, 272},  {528, 272, 1616},
                                   {384, 256, 640}, {256, 144, 4112}, {2064, 2320, 144}};
    static const sb_dtype formats[][2] = {{SB_E4M3, SB_E4M3}, {SB_E5M2, SB_E4M3}};
    int nth = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int rows = 128; rows <= 256; rows += 128)
            for (size_t f = 0; f < 2; f++)
                for (int i = 0; i < SCALINGS_OF_PRODUCTS; i++)
                    add_product(l, op, sizes[s], formats[f], scalings_of_products[i], SB_SUMS_EXACT, nth++, rows);
}

static void list_products(case_list *l, const train_op *op)
{
    list_own(l, op);
    static const int sizes[][3] = {{48, 64, 272}, {128, 128, 128}, {304, 176, 1600}, {256, 192, 2048}};
    static const sb_dtype formats[][2] = {{SB_E4M3, SB_E4M3}, {SB_E5M2, SB_E4M3}, {SB_E4M3, SB_E5M2}};
    int nth = 0;
    for (size_t s = 0; s < 4; s++)
        for (size_t f = 0; f < 3; f++)
            for (size_t i = 0; i < SCALINGS_OF_PRODUCTS; i++)
                for (int sums = SB_SUMS_EXACT; sums <= (i < 2 ? SB_SUMS_FAST : SB_SUMS_EXACT); sums++)
                    add_product(l, op, sizes[s], formats[f], scalings_of_products[i], (sb_float8_sums)sums, nth++, 0);
}

/* Codes of N(0,1) and scales of a few binades, which no two neighbours share; for our own kernel one of many is NaN. */
static void fill_operand(train_case *c, const char *name, const char *scales_name, sb_dtype format, sb_scaling scaling,
                         int rows, int k)
{
    const size_t n = (size_t)rows * (size_t)k, count = sb_scale_count(scaling, rows, k);
    slot *codes = slot_add(c, name, SLOT_IN, format, n);
    slot_fill(c, codes, 0, 1, n, n, 16);
    slot *scales = slot_add(c, scales_name, SLOT_IN, SB_FP32, count);
    for (size_t i = 0; i < count; i++)
        slot_set(scales, i, ldexpf(1, (int)(i * 5 % 7) - 3));
    if (c->variant[OWN_ROWS] && count > 8)
        slot_set(scales, count / 2, NAN);
}

static void fill_product(train_case *c)
{
    const sb_matmul *p = &c->p.matmul;
    const size_t n = (size_t)p->m * (size_t)p->n;
    /* The library may sum other parts of k than the model does. Either sum is within 2e-4 of the one in double, fast sums of such
     * depths within 1e-3 (tests/kernels/test_float8.c): together they are sqrt(2) times as far apart. */
    const double part = p->sums == SB_SUMS_FAST ? 1.5e-3 : 3e-4;
    fill_operand(c, "a", "scale_a", p->dtype, p->scaling_a, p->m, p->k);
    fill_operand(c, "b", "scale_b", p->dtype_b, p->scaling_b, p->n, p->k);
    slot *d = slot_output(c, "d", p->dtype_out, n, (slot_bound){.units = 1, .absolute = 8 * part, .rel_l2 = part});
    if (c->variant[OWN_ROWS])
        d->bound = (slot_bound){.units = 0}; /* every bit */
    if (c->variant[ADD] == ADD_IN_PLACE) {
        d->role = SLOT_INOUT;
        slot_fill(c, d, 0, 1, n, n, 100);
    } else if (c->variant[ADD])
        slot_input(c, "c", p->dtype_out, n, 100);
}

static sb_matmul problem_of(const train_case *c, const train_call *x)
{
    sb_matmul p = c->p.matmul;
    p.a = x->at[0], p.scale_a = x->at[1], p.b = x->at[2], p.scale_b = x->at[3], p.d = x->at[4];
    p.c = c->variant[ADD] == ADD_NOTHING ? NULL : x->at[c->variant[ADD] == ADD_IN_PLACE ? 4 : 5];
    p.workspace = x->workspace, p.workspace_bytes = x->workspace_bytes;
    return p;
}

static size_t workspace(const train_case *c, const sb_kernels *k, sb_context *ctx)
{
    return k->train->matmul_workspace(ctx, &c->p.matmul);
}

static sb_status run_product(const train_case *c, const train_call *x)
{
    const sb_matmul p = problem_of(c, x);
    if (c->variant[OWN_ROWS]) {
        const sb_matmul_choice choice = own_choice("own code", c->variant[OWN_ROWS]);
        const sb_status s = x->kernels->train->matmul_choose(x->ctx, &p, &choice);
        if (s != SB_OK)
            return s;
    }
    return x->kernels->train->matmul(x->ctx, &p, x->stream);
}

/* A tile that there is not is refused, and where the library may also sum fast, so is our own kernel. */
static bool check_refusals(train_bed *bed, const train_case *c)
{
    const sb_kernels *k = bed->r->kernels;
    if (k == sb_kernels_cpu())
        return true;
    instance x = instance_create(bed, c);
    sb_matmul p = problem_of(c, &x.call);
    sb_matmul_choice choice = own_choice("own code", NO_TILE);
    bool ok = k->train->matmul_choose(x.call.ctx, &p, &choice) == SB_UNSUPPORTED ||
              case_fail(bed->r, c, "a tile of %d rows is accepted", NO_TILE);
    choice = own_choice("own code", c->variant[OWN_ROWS]);
    p.sums = SB_SUMS_FAST;
    if (ok && p.scaling_a <= SB_SCALE_ROW)
        ok = k->train->matmul_choose(x.call.ctx, &p, &choice) == SB_UNSUPPORTED ||
             case_fail(bed->r, c, "our own kernel is accepted for fast sums");
    instance_free(bed, &x);
    return ok;
}

static bool check_tuned(train_bed *bed, const train_case *c)
{
    if (c->variant[OWN_ROWS])
        return check_refusals(bed, c);
    if (!c->variant[TUNED])
        return true;
    const sb_kernels *k = bed->r->kernels;
    instance x = instance_create(bed, c);
    const sb_matmul p = problem_of(c, &x.call);
    sb_matmul_choice choice = {.tried = 0};
    instance_reset(bed, &x);
    bool ok = k->train->matmul_tune(x.call.ctx, &p, &choice, NULL, 0, x.call.stream) == SB_OK ||
              case_fail(bed->r, c, "tuning is refused: %s", sb_last_message());
    ok = ok && instance_run(bed, &x, " tuned") && instance_right(bed, &x, " tuned") &&
         (k->train->matmul_choose(x.call.ctx, &p, &choice) == SB_OK ||
          case_fail(bed->r, c, "the tuner's choice '%s' is refused: %s", choice.name, sb_last_message()));
    instance_free(bed, &x);
    return ok;
}

const train_op train_float8_matmul = {"float8_matmul", list_products, fill_product,
                                      workspace,       run_product,   check_tuned};
