/* SPDX-License-Identifier: MIT */
/* The closed forms of the 2026 handout: how many devices each kind of parallelism can keep compute-bound. SwiGLU's
 * three matrices, 2-byte data, W bytes/s that a device can send, rho = W / C. Collectives overlap with products. */
#include "bench/accounting/questions.h"

#include <math.h>
#include <string.h>

/* The two sides of a form, and what its inequality becomes. */
static const struct form_text {
    const char *name, *math, *comm, *bound;
} texts[CLOSED_FORMS] = {
    {"all-reduce", "", "", ""},
    {"data", "backward: 12 B d F / (N C)", "all-reduce of 6 d F bytes: 12 d F (N - 1) / (N W)", "N <= 1 + B rho"},
    {"fsdp-forward", "forward: 6 B d F / (N C)", "all-gather of 6 d F bytes: 6 d F (N - 1) / (N W)", "N <= 1 + B rho"},
    {"fsdp-backward", "backward: 12 B d F / (N C)", "all-gather and reduce-scatter: 12 d F (N - 1) / (N W)",
     "N <= 1 + B rho"},
    {"tensor-forward", "forward: 6 B d F / (N C)", "all-reduce of the output: 4 B d (N - 1) / (N W)",
     "N <= 1 + 1.5 F rho"},
    {"tensor-backward", "backward: 12 B d F / (N C)", "all-reduce of the input's gradient: 4 B d (N - 1) / (N W)",
     "N <= 1 + 3 F rho"},
    {"2d-at-once", "forward: 6 B d F / (X Y C)", "the longer of 6 d F (X - 1) / (X Y W) and 4 B d (Y - 1) / (X Y W)",
     "N <= (1 + B rho) (1 + 1.5 F rho)"},
    {"2d-in-turn", "forward: 6 B d F / (X Y C)", "6 d F (X - 1) / (X Y W) + 4 B d (Y - 1) / (X Y W)",
     "N <= 3 F / (2 B) (B rho / 2 + 1/2 + B / (3 F))^2"},
};

static closed_form form_of(const char *name)
{
    int i = 0;
    while (strcmp(texts[i].name, name) != 0)
        i++;
    return (closed_form)i;
}

static void all_reduce(const accounting *a, const ffn_stack *s, const ffn_mesh *m)
{
    const double n = m->x * m->y, bytes = 6 * (double)s->d_model * (double)s->d_ff;
    const double alternate = all_reduce_alternate_s(bytes, n, m->bandwidth),
                 both = all_reduce_s(bytes, n, m->bandwidth);
    accounting_step(a, "S = 6 d F = %B, gradients of one block, on N = %P devices", bytes, n);
    accounting_step(a, "alternate ring: N - 1 steps, each passes the whole of S on: (N - 1) S / W = %T", alternate);
    accounting_step(a, "reduce-scatter and all-gather: 2 (N - 1) steps of S / N: 2 (N - 1) / N S / W = %T", both);
    accounting_real(a, "comm_us", 1e6 * both);
    accounting_real(a, "alternate_us", 1e6 * alternate);
    accounting_answer(a, "%T; the alternate ring %T, N/2 = %P times", both, alternate, n / 2);
}

static void least_batch_step(const accounting *a, const ffn_mesh *m, double tokens)
{
    if (!isfinite(tokens))
        accounting_step(a, "no batch keeps X Y = %P devices bound by compute", m->x * m->y);
    else if (tokens > 0)
        accounting_step(a, "least batch for X Y = %P devices: B = %.1f, %.1f per device", m->x * m->y, tokens,
                        tokens / (m->x * m->y));
    else
        accounting_step(a, "any batch keeps X Y = %P devices bound by compute", m->x * m->y);
}

static void answer_of(const accounting *a, closed_form form, const closed_answer *x, const ffn_mesh *m, double tokens)
{
    const bool both = form == FORM_2D_AT_ONCE || form == FORM_2D_IN_TURN;
    accounting_real(a, "devices_most", x->devices);
    if (!isfinite(x->devices))
        accounting_answer(a, "no batch is enough for X = %P, Y = %P", m->x, m->y);
    else if (both)
        accounting_answer(a, "N <= %.2f = %.2f x %.2f at B = %W", x->devices, x->devices_x, x->devices_y, tokens);
    else if (form == FORM_TENSOR_FORWARD || form == FORM_TENSOR_BACKWARD)
        accounting_answer(a, "N <= %.2f at any B", x->devices);
    else
        accounting_answer(a, "N <= %.2f at B = %W", x->devices, tokens);
}

void accounting_run_closed_forms(const accounting *a)
{
    const ffn_stack s = accounting_stack(a);
    const char *name = case_text(a->c, "form");
    const closed_form form = form_of(name);
    ffn_mesh m;
    if (!accounting_mesh(a, &m))
        return;
    const double rho = m.bandwidth / m.flops, asked = (double)case_int(a->c, "batch"), f = (double)s.d_ff;
    accounting_step(a, "d = %W, F = %W, three matrices; rho = W / C = %P / %P = %.6g", (double)s.d_model, f,
                    m.bandwidth, m.flops, rho);
    if (form == FORM_ALL_REDUCE) {
        all_reduce(a, &s, &m);
        return;
    }
    const closed_answer answer = closed_form_of(form, &s, &m, asked);
    const double tokens = asked > 0 ? asked : answer.tokens;
    accounting_step(a, "%s: %s against %s", name, texts[form].math, texts[form].comm);
    accounting_step(a, "%s", texts[form].bound);
    least_batch_step(a, &m, answer.tokens);
    accounting_real(a, "tokens_least", answer.tokens);
    accounting_real(a, "tokens_per_device", answer.tokens / (m.x * m.y));
    if (tokens > 0 && isfinite(tokens)) {
        accounting_real(a, "at_tokens", tokens);
        accounting_real(a, "math_us", 1e6 * answer.math_s);
        accounting_real(a, "comm_us", 1e6 * answer.comm_s);
        accounting_step(a,
                        "at B = %P: B rho = %.4g, F rho = %.4g; on X = %P, Y = %P: %T of products, %T of collectives",
                        tokens, tokens * rho, f * rho, m.x, m.y, answer.math_s, answer.comm_s);
    }
    answer_of(a, form, &answer, &m, tokens);
}
