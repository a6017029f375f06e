/* SPDX-License-Identifier: MIT */
/* D = A B^T + C for operands in float8, with the sums of Hopper's tensor cores: its bits as far as they are known.
 *
 * A step adds 32 products to the sum. The exponent of a product is the sum of its factors' exponents, of subnormal ones that of
 * the smallest normal; all terms are cut toward zero at 13 bits below the largest exponent and added exactly, and the result is cut
 * to 13 bits of fraction. F. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (2026); confirmed for cuBLAS on an
 * H100 by the mmaemu package (0.1.0). Blocks of 1x32, which Hopper does not have, are summed in fp32 and nothing is cut. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/float8_matmul.h"
#include "kernels/shared/float8.h"

#include "common/core/numeric.h"

enum { TILE = 32, DEPTH = SB_FLOAT8_BLOCK, STEP = 32, FRACTION = 13, NO_EXPONENT = -1000 };

/* Rows of an operand, DEPTH of k: zeros beyond the matrix. */
typedef struct strip {
    float value[TILE][DEPTH];
    int16_t exponent[TILE][DEPTH]; /* NO_EXPONENT of zero */
    bool finite[TILE];
} strip;

typedef struct operand {
    const uint8_t *codes;
    int rows, ld;
    sb_scaling scaling;
    const float *scales;
    float value[256]; /* of each code */
    int16_t exponent[256];
} operand;

static float power_of_two(int exponent)
{
    return float_of_bits((uint32_t)(exponent + 127) << 23);
}

static void decode(sb_dtype dtype, operand *x)
{
    const int bias = dtype == SB_E4M3 ? 7 : 15, mantissa = dtype == SB_E4M3 ? 3 : 2;
    for (int code = 0; code < 256; code++) {
        const int bits = code & 0x7f, stored = bits >> mantissa;
        cpu_load(dtype, &x->value[code], &(uint8_t){(uint8_t)code}, 1);
        x->exponent[code] = (int16_t)(bits == 0 ? NO_EXPONENT : (stored > 0 ? stored : 1) - bias);
    }
}

static void load(const operand *x, int row, int k0, int k, strip *out)
{
    for (int i = 0; i < TILE; i++) {
        const int there = row + i < x->rows ? (k - k0 < DEPTH ? k - k0 : DEPTH) : 0;
        const uint8_t *code = x->codes + (size_t)(row + i) * (size_t)x->ld + (size_t)k0;
        out->finite[i] = true;
        for (int j = 0; j < DEPTH; j++) {
            const uint8_t of = j < there ? code[j] : 0;
            out->value[i][j] = x->value[of];
            out->exponent[i][j] = x->exponent[of];
            out->finite[i] &= isfinite(x->value[of]) != 0;
        }
    }
}

/* One step of the tensor core: `sum` and 32 products. */
static float step(const float *a, const int16_t *exponent_a, const float *b, const int16_t *exponent_b, float sum)
{
    int16_t most = sum == 0 ? 2 * NO_EXPONENT : (int16_t)((float_bits(sum) >> 23 & 0xff) - 127);
    for (int i = 0; i < STEP; i++) {
        const int16_t exponent = (int16_t)(exponent_a[i] + exponent_b[i]);
        most = exponent > most ? exponent : most;
    }
    if (most <= NO_EXPONENT + 127) /* every product is zero, and so is the sum */
        return 0;
    const float units = power_of_two(FRACTION - most);
    int total = (int)(sum * units);
    for (int i = 0; i < STEP; i++)
        total += (int)(a[i] * b[i] * units);
    return float_of_bits(float_bits((float)total * power_of_two(most - FRACTION)) & ~((1u << (23 - FRACTION)) - 1));
}

/* The scale of a row's group at k0. */
static float scale_of(const operand *x, int row, int k0, int k)
{
    return x->scales[sb_scale_place(x->scaling, x->rows, k, row, k0)];
}

/* The chain goes on over DEPTH of k. */
static float chain(const strip *a, int i, const strip *b, int j, float sum)
{
    for (int k = 0; a->finite[i] && b->finite[j] && k < DEPTH; k += STEP)
        sum = step(a->value[i] + k, a->exponent[i] + k, b->value[j] + k, b->exponent[j] + k, sum);
    return a->finite[i] && b->finite[j] ? sum : NAN;
}

/* DEPTH of k onto *total, block by block of 32. */
static void add_mx(const operand *a, const strip *sa, int i, const operand *b, const strip *sb, int j, int row,
                   int column, int k0, int k, float *total)
{
    for (int from = 0; from < DEPTH && k0 + from < k; from += STEP) {
        float sum = 0;
        for (int l = from; l < from + STEP; l++)
            sum += sa->value[i][l] * sb->value[j][l];
        *total += sum * (scale_of(a, row, k0 + from, k) * scale_of(b, column, k0 + from, k));
    }
}

static void tile(const sb_matmul *p, const operand *a, const operand *b, int i0, int j0)
{
    static _Thread_local strip sa, sb;
    const bool promotes = p->sums == SB_SUMS_EXACT, mx = p->scaling_a == SB_SCALE_1X32;
    const int rows = p->m - i0 < TILE ? p->m - i0 : TILE, columns = p->n - j0 < TILE ? p->n - j0 : TILE;
    float total[TILE][TILE] = {{0}};
    for (int k0 = 0; k0 < p->k; k0 += DEPTH) {
        load(a, i0, k0, p->k, &sa);
        load(b, j0, k0, p->k, &sb);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) {
                const float scale = promotes ? scale_of(a, i0 + i, k0, p->k) * scale_of(b, j0 + j, k0, p->k) : 1;
                if (mx)
                    add_mx(a, &sa, i, b, &sb, j, i0 + i, j0 + j, k0, p->k, &total[i][j]);
                else if (promotes)
                    total[i][j] += chain(&sa, i, &sb, j, 0) * scale;
                else
                    total[i][j] = chain(&sa, i, &sb, j, total[i][j]);
            }
    }
    for (int i = 0; i < rows; i++) {
        float out[TILE] = {0};
        if (p->c)
            cpu_read(p->dtype_out, out, p->c, (size_t)(i0 + i) * p->ldc + j0, columns);
        for (int j = 0; j < columns; j++)
            out[j] +=
                promotes ? total[i][j] : total[i][j] * (scale_of(a, i0 + i, 0, p->k) * scale_of(b, j0 + j, 0, p->k));
        cpu_write(p->dtype_out, p->d, (size_t)(i0 + i) * p->ldd + j0, out, columns);
    }
}

void cpu_float8_matmul(const sb_matmul *p)
{
    operand a = {p->a, p->m, p->lda, p->scaling_a, p->scale_a, {0}, {0}};
    operand b = {p->b, p->n, p->ldb, p->scaling_b, p->scale_b, {0}, {0}};
    decode(p->dtype, &a);
    decode(p->dtype_b, &b);
    for (int i = 0; i < p->m; i += TILE)
        for (int j = 0; j < p->n; j += TILE)
            tile(p, &a, &b, i, j);
}
