/* SPDX-License-Identifier: MIT */
/* Parts (a) and (b) of communication_accounting: how many devices hold the state of a training run, without and with
 * FSDP. */
#include "bench/accounting/questions.h"

#include <math.h>

static const double gb = 1e9;

/* P, its state and what a token leaves for backward; returns the bytes of the state. */
static double common_columns(const accounting *a, const ffn_stack *s)
{
    const double p = (double)ffn_parameters(s), token = (double)ffn_saved_per_token(s);
    row_real(a->w, "parameters", p);
    row_real(a->w, "state_bytes", ACCOUNTING_STATE_BYTES * p);
    row_real(a->w, "saved_per_token_bytes", token);
    return ACCOUNTING_STATE_BYTES * p;
}

static void state_steps(const accounting *a, const ffn_stack *s)
{
    const double p = (double)ffn_parameters(s), token = (double)ffn_saved_per_token(s);
    accounting_step(a, "P = blocks x matrices x d x F = %W x %W x %W x %W = %W parameters", (double)s->blocks,
                    (double)s->matrices, (double)s->d_model, (double)s->d_ff, p);
    accounting_step(a, "master weights, fp32:         4 P = %W B = %B", 4 * p, 4 * p);
    accounting_step(a, "accumulated gradients, fp32:  4 P = %W B = %B", 4 * p, 4 * p);
    accounting_step(a, "AdamW's two moments, fp32:    8 P = %W B = %B", 8 * p, 8 * p);
    accounting_step(a, "together:                    16 P = %W B = %B", 16 * p, 16 * p);
    if (s->matrices == 3)
        accounting_step(a,
                        "kept for backward: the block's input, gate, up and their product: d + 3 F elements of bf16");
    else
        accounting_step(a, "kept for backward: each product's input, d + F elements of bf16; a block's output is the "
                           "next one's input");
    accounting_step(a, "a token: 2 B x %W x (%W + %s%W) = %W B = %B", (double)s->blocks, (double)s->d_model,
                    s->matrices == 3 ? "3 x " : "", (double)s->d_ff, token, token);
}

void accounting_run_memory(const accounting *a)
{
    const ffn_stack s = accounting_stack(a);
    const double state = common_columns(a, &s), device = (double)case_int(a->c, "device-memory");
    const double token = (double)ffn_saved_per_token(&s), tokens = (double)case_int(a->c, "tokens");
    const double held = state + token * tokens, devices = ceil(held / device);
    state_steps(a, &s);
    if (tokens > 0)
        accounting_step(a, "activations of %W tokens: %W x %W B = %B", tokens, tokens, token, token * tokens);
    accounting_step(a, "devices of %B: %W B / %W B = %.2f, so %W", device, held, device, held / device, devices);
    const double mixed = ceil(held / 1073741824.0 / (device / gb));
    if (mixed != devices)
        accounting_step(a, "(%W would be GiB divided by GB: %.1f / %P; right only for a device of %P GiB)", mixed,
                        held / 1073741824.0, device / gb, device / gb);
    const double further = floor(device / token);
    accounting_step(a, "one more device holds the activations of %W tokens", further);
    accounting_real(a, "devices", devices);
    accounting_real(a, "devices_exact", held / device);
    accounting_real(a, "tokens_of_a_device", further);
    accounting_answer(a, "%W devices of %B for %B", devices, device, held);
}

void accounting_run_fsdp(const accounting *a)
{
    const ffn_stack s = accounting_stack(a);
    const double state = common_columns(a, &s), device = (double)case_int(a->c, "device-memory");
    const double token = (double)ffn_saved_per_token(&s), tokens = (double)case_int(a->c, "tokens");
    const double half = token * tokens / 2, most = fsdp_tokens_most(&s, device);
    double exact;
    const double devices = fsdp_devices(&s, device, tokens, &exact);
    state_steps(a, &s);
    accounting_step(a, "state and half of the activations A are sharded: M(N, B) = 16 P / N + A(B)/2 (1 + 1/N)");
    accounting_step(a, "A(%W)/2 = %W x %W B / 2 = %B", tokens, tokens, token, half);
    accounting_step(a, "M < %B  <=>  N > (16 P + A/2) / (%W B - A/2)", device, device);
    accounting_real(a, "devices", devices);
    accounting_real(a, "devices_exact", exact);
    accounting_real(a, "tokens_most", most);
    if (!isfinite(devices)) {
        accounting_step(a, "the half that is not sharded leaves %W B: no N is enough", device - half);
        accounting_answer(a, "no number of devices is enough; at most %W tokens", most);
        return;
    }
    const double held = fsdp_device_bytes(&s, devices, tokens);
    accounting_step(a, "N > (%W + %W) / (%W - %W) = %.2f", state, half, device, half, exact);
    accounting_step(a, "M(%W, %W) = %W B", devices, tokens, held);
    accounting_step(a, "whatever N, B < %W B / %W B: at most %W tokens", device, token / 2, most);
    accounting_answer(a, "N = %W devices, %B on each", devices, held);
}
