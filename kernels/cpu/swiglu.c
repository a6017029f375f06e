/* SPDX-License-Identifier: MIT */
/* h = silu(gate) up, silu(g) = g sigmoid(g), and its gradients: d_up = dh silu(gate),
 * d_gate = dh up sigmoid(gate) (1 + gate (1 - sigmoid(gate))). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

sb_status cpu_swiglu_forward(sb_context *ctx, const sb_swiglu *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_swiglu_check(p, false));
    for (int r = 0; r < p->rows; r++)
        for (int j = 0, n; j < p->f; j += n) {
            float gate[CPU_BLOCK], up[CPU_BLOCK];
            const size_t at = 2 * (size_t)r * p->f + j;
            n = cpu_block(j, p->f);
            cpu_read(p->dtype, gate, p->gate_up, at, n);
            cpu_read(p->dtype, up, p->gate_up, at + p->f, n);
            for (int i = 0; i < n; i++)
                up[i] *= gate[i] * sigmoid(gate[i]);
            cpu_write(p->dtype, p->h, (size_t)r * p->f + j, up, n);
        }
    return SB_OK;
}

/* n elements of row r from column j on. All are read before any is written, since outputs may overlap inputs. */
static void backward_block(const sb_swiglu *p, int r, int j, int n)
{
    float gate[CPU_BLOCK], up[CPU_BLOCK], dh[CPU_BLOCK], h[CPU_BLOCK];
    const size_t at = 2 * (size_t)r * p->f + j, at_h = (size_t)r * p->f + j;
    cpu_read(p->dtype, gate, p->gate_up, at, n);
    cpu_read(p->dtype, up, p->gate_up, at + p->f, n);
    cpu_read(p->dtype, dh, p->dh, at_h, n);
    for (int i = 0; i < n; i++) {
        const float s = sigmoid(gate[i]), silu = gate[i] * s;
        h[i] = silu * up[i];
        gate[i] = dh[i] * up[i] * s * (1 + gate[i] * (1 - s));
        up[i] = dh[i] * silu;
    }
    cpu_write(p->dtype, p->d_gate_up, at, gate, n);
    cpu_write(p->dtype, p->d_gate_up, at + p->f, up, n);
    if (p->h)
        cpu_write(p->dtype, p->h, at_h, h, n);
}

sb_status cpu_swiglu_backward(sb_context *ctx, const sb_swiglu *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_swiglu_check(p, true));
    for (int r = 0; r < p->rows; r++)
        for (int j = 0, n; j < p->f; j += n) {
            n = cpu_block(j, p->f);
            backward_block(p, r, j, n);
        }
    return SB_OK;
}
