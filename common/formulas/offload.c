/* SPDX-License-Identifier: MIT */
/* Offloaded blocks and what their copies cost; see offload.h. */
#include "common/formulas/offload.h"

#include <math.h>
#include <string.h>

int offload_parse(const char *name)
{
    static const struct {
        const char *name;
        int kinds;
    } all[] = {{"residual", OFFLOAD_RESIDUAL}, {"attn", OFFLOAD_ATTN}, {"mlp", OFFLOAD_MLP}, {"block", OFFLOAD_BLOCK}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0)
            return all[i].kinds;
    return 0;
}

void offload_every(recompute_schedule *s, int kinds, int every)
{
    for (int l = 0; l + every < s->layers; l += every)
        s->away[l] = (unsigned char)kinds;
    s->behind = s->ahead = every;
}

int offload_most(int layers)
{
    return layers > 2 ? layers - 2 : 0;
}

static double copy_ms(const offload_costs *costs, int what, double gb_s)
{
    return costs->bytes[what] / (gb_s * 1e6);
}

/* Blocks that a copy lasts, and one more, but not so many that a second copy is always in flight. */
static int lead(double ms, double block_ms, int distance)
{
    const double blocks = ceil(ms / fmax(block_ms, 1e-9)) + 1;
    return blocks < distance + 1 ? (int)blocks : distance + 1;
}

void offload_spread(recompute_schedule *s, const offload_costs *costs, int count)
{
    if (count < 1)
        return;
    const int distance = s->layers / count;
    s->behind = lead(copy_ms(costs, costs->what, costs->out_gb_s), costs->forward_ms, distance);
    s->ahead = lead(copy_ms(costs, costs->what, costs->in_gb_s), costs->backward_ms, distance);
    /* What the last blocks send would not be there before the backward begins. */
    const int room = s->layers - s->behind > count ? s->layers - s->behind : count;
    for (int i = 0; i < count; i++) {
        const int l = count > 1 ? i * (room - 1) / (count - 1) : 0;
        recompute_set(s, l, 1, costs->what, 1);
        s->away[l] = (unsigned char)costs->kinds;
    }
}

int offload_count(const recompute_schedule *s)
{
    int n = 0;
    for (int l = 0; l < s->layers; l++)
        n += s->away[l] != 0;
    return n;
}

typedef struct link { /* and what waits for it */
    double now, free, waited;
    double done[RECOMPUTE_LAYERS]; /* a block's copy */
} link;

static void send(link *k, int layer, double ms)
{
    k->free = fmax(k->free, k->now) + ms;
    k->done[layer] = k->free;
}

static void await(link *k, int layer)
{
    k->waited += fmax(k->done[layer] - k->now, 0);
    k->now = fmax(k->now, k->done[layer]);
}

double offload_exposed_ms(const offload_costs *costs, const recompute_schedule *s, const double *again_ms)
{
    const int behind = s->behind > 1 ? s->behind : 1, ahead = s->ahead > 1 ? s->ahead : 1;
    link out = {0}, in = {0};
    if (!offload_count(s))
        return 0;
    for (int l = 0; l < s->layers + behind; l++) {
        if (l < s->layers) {
            out.now += costs->forward_ms;
            if (s->away[l])
                send(&out, l, copy_ms(costs, s->what[l], costs->out_gb_s));
        }
        if (l >= behind && s->away[l - behind])
            await(&out, l - behind);
    }
    for (int l = s->layers - 1 + ahead; l >= 0; l--) {
        if (l >= ahead && s->away[l - ahead])
            send(&in, l - ahead, copy_ms(costs, s->what[l - ahead], costs->in_gb_s));
        if (l >= s->layers)
            continue;
        if (s->away[l])
            await(&in, l);
        in.now += costs->backward_ms + (again_ms ? again_ms[s->what[l]] : 0);
    }
    return out.waited + in.waited;
}

const char *offload_problem(const recompute_schedule *s)
{
    for (int l = 0; l < s->layers; l++) {
        const bool group =
            s->what[l] == RECOMPUTE_BLOCK &&
            (!s->input[l] || (l + 1 < s->layers && s->what[l + 1] == RECOMPUTE_BLOCK && !s->input[l + 1]));
        if (s->away[l] && (group || s->what[l] == RECOMPUTE_NESTED))
            return "blocks that are recomputed in groups or nested are not offloaded";
    }
    return NULL;
}
