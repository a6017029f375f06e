/* SPDX-License-Identifier: MIT */
/* Parts (c) and (d) of communication_accounting: the batch from which a block under FSDP and tensor parallelism is
 * compute-bound, and what each way to lower that batch gains. */
#include "bench/accounting/questions.h"

#include <math.h>
#include <string.h>

static const mesh_rules in_turn = {false, false}, at_once = {true, false}, in_turn_rings = {false, true};

static double devices_of(const ffn_mesh *m)
{
    return m->x * m->y;
}

static void columns_of(const accounting *a, const ffn_mesh *m, double tokens)
{
    accounting_real(a, "tokens_least", tokens);
    accounting_real(a, "tokens_per_device", tokens / devices_of(m));
}

/* ---- (c) ---- */

static void mesh_steps(const accounting *a, const ffn_stack *s, const ffn_mesh *m)
{
    const double d = (double)s->d_model, f = (double)s->d_ff;
    accounting_step(a, "d = %W, F = %W, X = %P (FSDP), Y = %P (tensor parallel), N = X Y = %P", d, f, m->x, m->y,
                    devices_of(m));
    accounting_step(a, "C = %P FLOP/s, W = %P B/s of one axis, M_X = %P, M_Y = %P, alpha = C / W = %.1f FLOP/B",
                    m->flops, m->bandwidth, m->mesh_x, m->mesh_y, mesh_intensity(m));
}

/* The times of a block's forward as functions of B, with the numbers put in. */
static void time_steps(const accounting *a, const ffn_stack *s, const ffn_mesh *m)
{
    const mesh_times one = mesh_forward(s, m, 1, in_turn);
    const double k = (double)s->matrices;
    accounting_step(a, "forward of one block, B tokens of the whole batch:");
    accounting_step(a, "T_math = %P B d F / (N C) = %P x B x %W x %W / (%P x %P) = %.6g us x B", 2 * k, 2 * k,
                    (double)s->d_model, (double)s->d_ff, devices_of(m), m->flops, 1e6 * one.math);
    accounting_step(a, "T_FSDP = %P d F / (Y W M_X), %P all-gathers of %P d F / Y bytes, = %.1f us%s",
                    k * m->weight_bytes, k, m->weight_bytes, 1e6 * one.fsdp,
                    m->x > 1 ? "" : " (one device gathers nothing)");
    accounting_step(a, "T_TP   = 4 B d / (X W M_Y), all-gather and reduce-scatter of 2 B d / X bytes, = %.6g us x B%s",
                    1e6 * one.tp, m->y > 1 ? "" : " (one device reduces nothing)");
    accounting_step(a, "compute-bound when T_math > T_FSDP + T_TP: products overlap with collectives, the axes' "
                       "collectives not with each other");
}

/* Tensor parallelism alone is faster than the products from this d_ff on. */
static double least_width(const ffn_stack *s, const ffn_mesh *m)
{
    return m->activation_bytes / (double)s->matrices * m->y * mesh_intensity(m) / m->mesh_y;
}

/* The inequality, divided so that its terms are those of two matrices and 2-byte data where these are given. */
static void bound_steps(const accounting *a, const ffn_stack *s, const ffn_mesh *m, double tokens)
{
    const mesh_times one = mesh_forward(s, m, 1, in_turn);
    const double by = 2 * (double)s->matrices * (double)s->d_model / m->bandwidth;
    const bool plain = s->matrices == 2 && m->weight_bytes == 2;
    accounting_step(a, "divided by %P d / W: %s < B F / (N alpha)", 2 * (double)s->matrices,
                    plain ? "F/(Y M_X) + B/(X M_Y)" : "F/(Y M_X) x (bytes of a weight)/2 + B/(X M_Y) x 2/matrices");
    accounting_step(a, "%P + %P B < %P B", one.fsdp / by, one.tp / by, one.math / by);
    accounting_step(a, "tensor parallelism alone: F > %s%.0f", plain && m->mesh_y == 1 ? "Y alpha = " : "",
                    least_width(s, m));
    if (isfinite(tokens))
        accounting_step(a, "B > %P / (%P - %P) = %.1f tokens, %.1f per device, %.0f per FSDP shard", one.fsdp / by,
                        one.math / by, one.tp / by, tokens, tokens / devices_of(m), tokens / m->x);
    else
        accounting_step(a, "which does not hold: no B is large enough");
}

/* What the same mesh needs under other rules. */
static void other_rules_steps(const accounting *a, const ffn_stack *s, const ffn_mesh *m)
{
    const double n = devices_of(m), both = m->mesh_x + m->mesh_y;
    const double together = mesh_tokens(s, m, at_once), rings = mesh_tokens(s, m, in_turn_rings);
    const mesh_split best = mesh_best_split(s, m), whole = mesh_best_whole_split(s, m);
    accounting_step(a, "other rules:");
    accounting_step(a, "  both axes' collectives at once: B > %.1f, %.1f per device", together, together / n);
    accounting_step(a, "  rings send (k - 1)/k of the bytes: B > %.1f, %.1f per device", rings, rings / n);
    accounting_step(a, "  FSDP alone, alpha / M: %.0f per device on %P axes, %.0f on %P", mesh_pure_fsdp(m, both), both,
                    mesh_pure_fsdp(m, m->mesh_x), m->mesh_x);
    accounting_step(a, "  best X = %.1f on these %P devices: %.1f per device; of whole ones X = %P, Y = %P: %.1f",
                    best.x, n, best.tokens_per_device, whole.x, whole.y, whole.tokens_per_device);
}

void accounting_run_compute_bound(const accounting *a)
{
    const ffn_stack s = accounting_stack(a);
    ffn_mesh m;
    if (!accounting_mesh(a, &m))
        return;
    const double least = mesh_tokens(&s, &m, in_turn), asked = (double)case_int(a->c, "batch");
    mesh_steps(a, &s, &m);
    time_steps(a, &s, &m);
    bound_steps(a, &s, &m, least);
    columns_of(a, &m, least);
    other_rules_steps(a, &s, &m);

    const double tokens = asked > 0 ? asked : floor(least) + 1;
    if (isfinite(tokens)) {
        const mesh_times t = mesh_forward(&s, &m, tokens, in_turn);
        const double comm = mesh_communication(t, in_turn);
        accounting_step(a, "at B = %W: T_math = %.2f us, T_FSDP + T_TP = %.2f + %.2f = %.2f us", tokens, 1e6 * t.math,
                        1e6 * t.fsdp, 1e6 * t.tp, 1e6 * comm);
        accounting_real(a, "at_tokens", tokens);
        accounting_real(a, "math_us", 1e6 * t.math);
        accounting_real(a, "fsdp_us", 1e6 * t.fsdp);
        accounting_real(a, "tp_us", 1e6 * t.tp);
        accounting_real(a, "comm_us", 1e6 * comm);
        row_text(a->w, "bound_by", t.math > comm ? "compute" : "communication");
    }
    if (!isfinite(least))
        accounting_answer(a, "communication-bound at any B: Y = %P needs F > %.0f", m.y, least_width(&s, &m));
    else if (least == 0)
        accounting_answer(a, "compute-bound at any B: one device a shard gathers nothing");
    else if (asked > 0)
        accounting_answer(a, "B = %W is %s-bound; the bound is %.1f", asked,
                          asked > least ? "compute" : "communication", least);
    else
        accounting_answer(a, "compute-bound from B = %W on, %.1f (%.0f) per device", floor(least) + 1,
                          least / devices_of(&m), ceil(least / devices_of(&m)));
}

/* ---- (d) ---- */

enum { MICRO_BATCHES = 2 }; /* of the way that keeps gathered weights */

/* A way changes the mesh, the rules or both; what it is, and what it costs. */
typedef struct way {
    const char *name, *what;
} way;
static const way ways[] = {
    {"as-given", "FSDP and tensor-parallel collectives in turn, bf16 weights gathered for each micro-batch"},
    {"best-split", "X where both collectives take the same time; Y grows, and needs that many devices close together"},
    {"best-whole-split", "the best X of those that divide N"},
    {"overlap-axes", "collectives of both axes at once, or those of tensor parallelism hidden by collective products"},
    {"more-axes", "one more mesh axis for FSDP, where the network has one"},
    {"8bit-weights", "weights gathered in 8 bits, products in bf16"},
    {"8bit-all", "products in 8 bits, too: C doubles, activations halve, and the gain cancels"},
    {"keep-weights", "gathered weights stay for two micro-batches: each may be half as large, the step's batch stays, "
                     "and the block's gathered weights are held"},
    {"faster-link", "W doubles, as where collectives are hierarchical and most bytes stay inside a node"},
    {"pipeline", "stages of whole blocks instead of FSDP: 2 B d bytes per boundary whatever F, but a bubble"},
    {"context", "sequences divided over devices: to the feed-forward block one more axis of data, so the same tokens "
                "of fewer sequences"},
};

static const char *what_is(const char *name)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, name) == 0)
            return ways[i].what;
    return "";
}

/* X stages of Y devices each: a boundary sends the batch's activations once, and X micro-batches leave a bubble. */
static void pipeline(const accounting *a, const ffn_stack *s, const ffn_mesh *m)
{
    const double sent = m->activation_bytes * (double)s->d_model / (m->y * m->bandwidth * m->mesh_x);
    /* A block on Y devices takes X times as long as on X Y; a stage has blocks / X of them. */
    const double math = mesh_forward(s, m, 1, in_turn).math * (double)s->blocks;
    const double bubble = (m->x - 1) / (2 * m->x - 1);
    accounting_step(a, "a boundary sends 2 B d / (Y W M_X) = %.4g us x B, a stage of %.4g blocks computes %.4g us x B",
                    1e6 * sent, (double)s->blocks / m->x, 1e6 * math);
    accounting_step(a, "with p = X = %P stages and as many micro-batches the bubble is (p - 1) / (2 p - 1) = %.1f %%",
                    m->x, 100 * bubble);
    if ((double)s->d_ff <= least_width(s, m)) {
        accounting_answer(a, "communication-bound at any B");
        return;
    }
    accounting_answer(a, "any batch by its traffic, %.3f %% of a stage; bubble %.0f %%", 100 * sent / math,
                      100 * bubble);
}

/* The least batch of the way; in *m what it makes of the mesh. */
static double tokens_of_way(const char *name, const ffn_stack *s, ffn_mesh *m)
{
    const double n = devices_of(m);
    if (strcmp(name, "best-split") == 0 || strcmp(name, "best-whole-split") == 0) {
        mesh_split split = mesh_best_split(s, m);
        if (strcmp(name, "best-whole-split") == 0 || split.x < 1 || split.x > n)
            split = mesh_best_whole_split(s, m);
        m->x = split.x;
        m->y = split.y;
        return split.tokens_per_device * n;
    }
    if (strcmp(name, "overlap-axes") == 0)
        return mesh_tokens(s, m, at_once);
    if (strcmp(name, "more-axes") == 0)
        m->mesh_x++;
    if (strcmp(name, "8bit-weights") == 0 || strcmp(name, "8bit-all") == 0)
        m->weight_bytes = 1;
    if (strcmp(name, "8bit-all") == 0) {
        m->activation_bytes = 1;
        m->flops *= 2;
    }
    if (strcmp(name, "keep-weights") == 0)
        m->weight_bytes /= MICRO_BATCHES; /* a gather is divided among them */
    if (strcmp(name, "faster-link") == 0)
        m->bandwidth *= 2;
    return mesh_tokens(s, m, in_turn);
}

void accounting_run_batch(const accounting *a)
{
    const ffn_stack s = accounting_stack(a);
    const char *name = case_text(a->c, "way");
    ffn_mesh given;
    if (!accounting_mesh(a, &given))
        return;
    const double n = devices_of(&given), before = mesh_tokens(&s, &given, in_turn);
    ffn_mesh m = given;
    const double tokens = tokens_of_way(name, &s, &m);
    mesh_steps(a, &s, &given);
    accounting_step(a, "as given: B > %.1f, %.1f per device", before, before / n);
    accounting_step(a, "%s: %s", name, what_is(name));
    row_text(a->w, "what", what_is(name));
    if (strcmp(name, "pipeline") == 0) {
        pipeline(a, &s, &given);
        return;
    }
    columns_of(a, &m, tokens);
    accounting_real(a, "of_given", tokens / before);
    if (!isfinite(tokens)) {
        accounting_answer(a, "communication-bound at any B");
        return;
    }
    accounting_step(a, "X = %.4g, Y = %.4g, M_X = %P, alpha = %.1f, %P B a weight: T_FSDP = %T", m.x, m.y, m.mesh_x,
                    mesh_intensity(&m), m.weight_bytes, mesh_forward(&s, &m, 1, in_turn).fsdp);
    if (strcmp(name, "keep-weights") == 0)
        accounting_answer(a, "%.1f tokens per device in each of %P micro-batches", tokens / n, (double)MICRO_BATCHES);
    else if (isfinite(before) && before > 0)
        accounting_answer(a, "%.1f tokens per device, from B = %W on, %.2f of as given", tokens / n, floor(tokens) + 1,
                          tokens / before);
    else
        accounting_answer(a, "%.1f tokens per device, from B = %W on", tokens / n, floor(tokens) + 1);
}
