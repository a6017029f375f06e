/* SPDX-License-Identifier: MIT */
/* Which tiles the matmul with SwiGLU should use. Tiles of 256 columns take the least bandwidth and energy, but all
 * clusters start and end a round together, so that a last round of few tiles takes as long as a full one: 4096 x 6400
 * of h are 12.1 rounds forward and would cost 13. The columns of such a round go to narrower tiles,
 * in a launch of their own that starts where the first one's blocks end. */
#include "kernels/cuda/matmul/hopper/swiglu_matmul.h"

enum { STEP = 64, CLUSTER_ROWS = 256 };

/* Clocks. The second launch starts under the end of the first. */
static const double tile_switch = 400, second_launch = 2000;
static const double in_bytes = 56; /* a clock, from L2 to a multiprocessor */

static int parts(int x, int unit)
{
    return (x + unit - 1) / unit;
}

/* A block of n columns: tensor cores, or what its operands take to come in; narrow tiles also cost more energy. */
static double step_clocks(int n)
{
    const double product = 4.0 * n, operands = (128.0 + n) * 2 * STEP / in_bytes;
    return (product > operands ? product : operands) * (1 + 4.0 / n);
}

static double time_of(const sb_swiglu_matmul *p, bool backward, int n, int columns, int at_once)
{
    const int tiles = parts(columns, backward ? n : n / 2) * parts(p->rows, CLUSTER_ROWS);
    return parts(tiles, at_once) * (parts(p->d, STEP) * step_clocks(n) + tile_switch);
}

swiglu_matmul_plan swiglu_matmul_plan_of(const sb_swiglu_matmul *p, bool backward, int at_once)
{
    static const int widths[] = {256, 192, 128, 64};
    enum { WIDTHS = sizeof widths / sizeof *widths };
    swiglu_matmul_plan best = {0};
    double best_time = 0;
    for (int i = 0; i < WIDTHS; i++) {
        const int width = backward ? widths[i] : widths[i] / 2, all = parts(p->f, width);
        for (int tiles = all; tiles > 0; tiles--)
            for (int j = i + 1; j <= WIDTHS; j++) {
                const int columns = tiles == all ? p->f : tiles * width;
                if ((columns == p->f) != (j == WIDTHS)) /* a rest has tiles of its own */
                    continue;
                if (backward && j < WIDTHS) /* measured 2 to 20 % slower there than a nearly empty last round */
                    continue;
                double time = time_of(p, backward, widths[i], columns, at_once);
                if (j < WIDTHS)
                    time += time_of(p, backward, widths[j], p->f - columns, at_once) + second_launch;
                if (best.n == 0 || time < best_time) {
                    best = (swiglu_matmul_plan){widths[i], columns, j < WIDTHS ? widths[j] : 0};
                    best_time = time;
                }
            }
    }
    return best;
}
