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
    accounting_step(a, "P = blocks x matrices x d x F = %s x %s x %s x %s = %s parameters",
                    accounting_whole((double)s->blocks), accounting_whole((double)s->matrices),
                    accounting_whole((double)s->d_model), accounting_whole((double)s->d_ff), accounting_whole(p));
    accounting_step(a, "master weights, fp32:         4 P = %s B = %s", accounting_whole(4 * p),
                    accounting_size(4 * p));
    accounting_step(a, "accumulated gradients, fp32:  4 P = %s B = %s", accounting_whole(4 * p),
                    accounting_size(4 * p));
    accounting_step(a, "AdamW's two moments, fp32:    8 P = %s B = %s", accounting_whole(8 * p),
                    accounting_size(8 * p));
    accounting_step(a, "together:                    16 P = %s B = %s", accounting_whole(16 * p),
                    accounting_size(16 * p));
    if (s->matrices == 3)
        accounting_step(a,
                        "kept for backward: the block's input, gate, up and their product: d + 3 F elements of bf16");
    else
        accounting_step(a, "kept for backward: each product's input, d + F elements of bf16; a block's output is the "
                           "next one's input");
    accounting_step(a, "a token: 2 B x %s x (%s + %s%s) = %s B = %s", accounting_whole((double)s->blocks),
                    accounting_whole((double)s->d_model), s->matrices == 3 ? "3 x " : "",
                    accounting_whole((double)s->d_ff), accounting_whole(token), accounting_size(token));
}

void accounting_run_memory(const accounting *a)
{
    const ffn_stack s = accounting_stack(a);
    const double state = common_columns(a, &s), device = (double)case_int(a->c, "device-memory");
    const double token = (double)ffn_saved_per_token(&s), tokens = (double)case_int(a->c, "tokens");
    const double held = state + token * tokens, devices = ceil(held / device);
    state_steps(a, &s);
    if (tokens > 0)
        accounting_step(a, "activations of %s tokens: %s x %s B = %s", accounting_whole(tokens),
                        accounting_whole(tokens), accounting_whole(token), accounting_size(token * tokens));
    accounting_step(a, "devices of %s: %s B / %s B = %.2f, so %s", accounting_size(device), accounting_whole(held),
                    accounting_whole(device), held / device, accounting_whole(devices));
    const double mixed = ceil(held / 1073741824.0 / (device / gb));
    if (mixed != devices)
        accounting_step(a, "(%s would be GiB divided by GB: %.1f / %s; right only for a device of %s GiB)",
                        accounting_whole(mixed), held / 1073741824.0, accounting_plain(device / gb),
                        accounting_plain(device / gb));
    const double further = floor(device / token);
    accounting_step(a, "one more device holds the activations of %s tokens", accounting_whole(further));
    accounting_real(a, "devices", devices);
    accounting_real(a, "devices_exact", held / device);
    accounting_real(a, "tokens_of_a_device", further);
    accounting_answer(a, "%s devices of %s for %s", accounting_whole(devices), accounting_size(device),
                      accounting_size(held));
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
    accounting_step(a, "A(%s)/2 = %s x %s B / 2 = %s", accounting_whole(tokens), accounting_whole(tokens),
                    accounting_whole(token), accounting_size(half));
    accounting_step(a, "M < %s  <=>  N > (16 P + A/2) / (%s B - A/2)", accounting_size(device),
                    accounting_whole(device));
    accounting_real(a, "devices", devices);
    accounting_real(a, "devices_exact", exact);
    accounting_real(a, "tokens_most", most);
    if (!isfinite(devices)) {
        accounting_step(a, "the half that is not sharded leaves %s B: no N is enough", accounting_whole(device - half));
        accounting_answer(a, "no number of devices is enough; at most %s tokens", accounting_whole(most));
        return;
    }
    const double held = fsdp_device_bytes(&s, devices, tokens);
    accounting_step(a, "N > (%s + %s) / (%s - %s) = %.2f", accounting_whole(state), accounting_whole(half),
                    accounting_whole(device), accounting_whole(half), exact);
    accounting_step(a, "M(%s, %s) = %s B", accounting_whole(devices), accounting_whole(tokens), accounting_whole(held));
    accounting_step(a, "whatever N, B < %s B / %s B: at most %s tokens", accounting_whole(device),
                    accounting_whole(token / 2), accounting_whole(most));
    accounting_answer(a, "N = %s devices, %s on each", accounting_whole(devices), accounting_size(held));
}
