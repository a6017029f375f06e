/* SPDX-License-Identifier: MIT */
/* Schedules of recomputation, and what they cost; see recompute.h. */
#include "common/formulas/recompute.h"

#include <stdio.h>
#include <string.h>

const char *recompute_name(recompute r)
{
    static const char *const names[RECOMPUTE_KINDS] = {"none",          "selective", "attn",  "mlp",
                                                       "but-attention", "block",     "nested"};
    return names[r];
}

/* Halfway between a block whose input is held and the one that is wanted: the input to keep on the way. */
static int halfway(int first, int layer)
{
    return first + (layer - first + 1) / 2;
}

void recompute_set(recompute_schedule *s, int first, int count, recompute what, int every)
{
    const int last = first + count - 1;
    for (int l = first; l <= last; l++) {
        s->what[l] = (unsigned char)what;
        s->away[l] = 0;
        s->input[l] = what == RECOMPUTE_BLOCK ? (l - first) % every == 0 : what != RECOMPUTE_NESTED || l == first;
    }
    if (what == RECOMPUTE_NESTED) /* forward passes the inputs that the way to the last block keeps */
        for (int l = first; l < last;)
            s->input[l = halfway(l, last)] = true;
    if (last + 1 < s->layers && recompute_whole(s, last + 1))
        s->input[last + 1] = true;
}

recompute_schedule recompute_uniform(int layers, recompute what, int every)
{
    recompute_schedule s = {.layers = layers};
    recompute_set(&s, 0, layers, what, every);
    return s;
}

int recompute_count(const recompute_schedule *s, recompute what)
{
    int n = 0;
    for (int l = 0; l < s->layers; l++)
        n += s->what[l] == what;
    return n;
}

static size_t describe(char *out, size_t out_bytes, size_t used, int blocks, bool all, int what, const char *more)
{
    char number[16] = "";
    if (!all)
        snprintf(number, sizeof number, "%d ", blocks);
    if (used < out_bytes)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s%s%s", used ? ", " : "", number,
                                 recompute_name((recompute)what), more);
    return used;
}

void recompute_describe(const recompute_schedule *s, char *out, size_t out_bytes)
{
    int away[RECOMPUTE_KINDS] = {0}, run = 0, what = RECOMPUTE_NONE;
    size_t used = 0;
    out[0] = '\0';
    for (int l = 0; l < s->layers; l++) {
        if (s->away[l]) {
            away[s->what[l]]++;
            continue;
        }
        if (run && s->what[l] != what) {
            used = describe(out, out_bytes, used, run, false, what, "");
            run = 0;
        }
        what = s->what[l];
        run++;
    }
    if (run)
        used = describe(out, out_bytes, used, run, run == s->layers, what, "");
    for (int k = 0; k < RECOMPUTE_KINDS; k++)
        if (away[k])
            used = describe(out, out_bytes, used, away[k], away[k] == s->layers, k, " offloaded");
}

recompute_forwards recompute_next(const recompute_schedule *s, const bool *held, int layer)
{
    int first = layer;
    while (!held[first])
        first--;
    if (s->what[layer] == RECOMPUTE_BLOCK)
        return (recompute_forwards){first, first, layer};
    if (first == layer)
        return (recompute_forwards){layer, layer, layer};
    return (recompute_forwards){first, halfway(first, layer), -1};
}

/* Walks backward over the blocks as a step does. */
recompute_work recompute_work_of(const recompute_schedule *s)
{
    recompute_work n = {0};
    bool held[RECOMPUTE_LAYERS], made[RECOMPUTE_LAYERS] = {false};
    memcpy(held, s->input, sizeof held);
    for (int l = s->layers - 1; l >= 0; l--)
        while (recompute_whole(s, l) && !made[l]) {
            const recompute_forwards f = recompute_next(s, held, l);
            n.passed += f.advance - f.first;
            held[f.advance] = true;
            for (int i = f.advance; i <= f.keep; i++, n.kept++)
                held[i] = made[i] = true;
        }
    return n;
}

transformer_repeats recompute_repeats(const recompute_schedule *s, bool flash)
{
    const recompute_work work = recompute_work_of(s);
    const int whole = work.kept + work.passed;
    int ends = 0; /* of groups, and nested blocks: nobody reads their output again */
    for (int l = 0; l < s->layers; l++)
        ends += recompute_whole(s, l) && (s->what[l] == RECOMPUTE_NESTED || l + 1 == s->layers || s->input[l + 1]);
    transformer_repeats r = {.qkv = whole, .attention = whole, .o = whole, .gate_up = whole, .w2 = whole - ends};
    r.qkv += recompute_count(s, RECOMPUTE_ATTN) + recompute_count(s, RECOMPUTE_BUT_ATTENTION);
    r.attention += recompute_count(s, RECOMPUTE_ATTN);
    r.gate_up += recompute_count(s, RECOMPUTE_MLP) + recompute_count(s, RECOMPUTE_BUT_ATTENTION);
    r.scores = flash ? s->layers : 0;
    return r;
}
