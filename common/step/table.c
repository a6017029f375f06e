/* SPDX-License-Identifier: MIT */
/* The table of a step: which part of the model a micro-batch goes through next, forward or backward. A whole model is one
 * part, whose micro-batches follow each other; a stage of a pipeline brings its own table. */
#include "common/step/table.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

static const char *parts_problem(const step_table *t, int layers)
{
    if (t->part_count < 1)
        return "a table needs a part of the model";
    for (int k = 0; k < t->part_count; k++) {
        const model_part *p = &t->parts[k];
        if (p->first < (k ? t->parts[k - 1].end : 0) || p->end < p->first || p->end > layers)
            return "the parts of a table are ranges of the model's layers, one behind the other";
        if ((p->embedding && p->first > 0) || (p->head && p->end < layers))
            return "the embedding is in front of the first layer, and the head behind the last";
        if (p->first == p->end && !p->embedding && !p->head)
            return "a part of a table is empty";
    }
    return NULL;
}

/* Whether part k gives its x to the part behind it, which is here, too. */
static bool neighbours(const step_table *t, int k)
{
    return k >= 0 && k + 1 < t->part_count && t->parts[k].end == t->parts[k + 1].first;
}

/* `done`: what the actions so far have done with each micro-batch of each part, as one bit for each kind of work. */
static const char *action_problem(const step_table *t, const step_action *a, const unsigned char *done, int micros)
{
    const unsigned char *mine = done + (size_t)a->part * (size_t)micros + a->micro;
    if (*mine & 1u << a->work)
        return "a table has an action twice";
    if (a->work == STEP_F && neighbours(t, a->part - 1) && !(*(mine - micros) & 1u << STEP_F))
        return "a table has an F before the F of the part in front of it";
    if (a->work == STEP_B && !(*mine & 1u << STEP_F))
        return "a table has a B before its F";
    if (a->work == STEP_B && neighbours(t, a->part) && !(*(mine + micros) & 1u << STEP_B))
        return "a table has a B before the B of the part behind it";
    return a->work == STEP_W && !(*mine & 1u << STEP_B) ? "a table has a W before its B" : NULL;
}

static const char *actions_problem(const step_table *t, int micros)
{
    const char *problem = NULL;
    bool splits = false;
    OWNED unsigned char *done = xcalloc((size_t)t->part_count * (size_t)micros, 1);
    for (int i = 0; i < t->action_count && !problem; i++) {
        const step_action *a = &t->actions[i];
        if (a->micro < 0 || a->micro >= micros || a->part < 0 || a->part >= t->part_count || a->work > STEP_W)
            problem = "a table has an action of a micro-batch or a part that is not there";
        else if (!(problem = action_problem(t, a, done, micros)))
            done[(size_t)a->part * (size_t)micros + (size_t)a->micro] |= 1u << a->work;
        splits |= a->work == STEP_W;
    }
    for (int i = 0; i < t->part_count * micros && !problem; i++)
        if (done[i] != (splits ? 7 : 3))
            problem = splits ? "a table lacks an F, a B or a W" : "a table lacks an F or a B";
    return problem;
}

/* A W that comes right behind its B. */
static bool follows_its_b(const step_action *actions, int i)
{
    const step_action *a = &actions[i], *b = a - 1;
    return i > 0 && b->work == STEP_B && b->micro == a->micro && b->part == a->part;
}

const char *table_problem(const step_options *o)
{
    const step_table *t = o->table;
    if (!t)
        return NULL;
    if (o->mode == STEP_FORWARD)
        return "a table is for steps with a backward";
    const char *problem = parts_problem(t, o->config.layers);
    if (!problem)
        problem = actions_problem(t, step_micro_batches(o));
    bool splits = false;
    for (int i = 0; i < t->action_count && !problem; i++)
        splits |= t->actions[i].work == STEP_W && !follows_its_b(t->actions, i);
    if (!problem && o->shard.ranks && o->shard.grads && (t->part_count > 1 || splits))
        problem = "gradients are kept in slices where a rank has one part and no W of its own";
    if (!problem && splits && !step_sums_in_products(o) && step_sums_dtype(o) != step_made_dtype(o))
        problem = "a W of its own adds gradients in the dtype in which they are made, or in fp32";
    return problem;
}

/* F0 B0 F1 B1 ... */
static void alternate(step *s)
{
    const bool backward = s->o.mode != STEP_FORWARD;
    s->actions = xcalloc(2 * (size_t)s->micro_batches, sizeof *s->actions);
    for (int i = 0; i < s->micro_batches; i++) {
        s->actions[s->action_count++] = (step_action){STEP_F, i, 0};
        if (backward)
            s->actions[s->action_count++] = (step_action){STEP_B, i, 0};
    }
}

static void create_part(step *s, step_part *p, model_part holds)
{
    const size_t slots = (size_t)s->o.config.layers + 1;
    *p = (step_part){.holds = holds, .before = -1, .behind = -1};
    p->micros = xcalloc((size_t)s->micro_batches, sizeof *p->micros);
    for (int i = 0; i < s->micro_batches; i++) {
        step_micro *m = &p->micros[i];
        *m = (step_micro){.number = i, .x = -1, .dy = -1, .logits = -1};
        m->blocks = xmalloc(slots * sizeof *m->blocks);
        memset(m->blocks, 0xff, slots * sizeof *m->blocks); /* -1 */
    }
}

void table_create(step *s)
{
    const model_part whole = {0, s->o.config.layers, true, true};
    const step_table alone = {.parts = &whole, .part_count = 1}, *t = s->o.table ? s->o.table : &alone;
    s->parts = xcalloc((size_t)t->part_count, sizeof *s->parts);
    s->part_count = t->part_count;
    for (int k = 0; k < t->part_count; k++) {
        create_part(s, &s->parts[k], t->parts[k]);
        s->parts[k].before = neighbours(t, k - 1) ? k - 1 : -1;
        s->parts[k].behind = neighbours(t, k) ? k + 1 : -1;
    }
    if (!s->o.table) {
        alternate(s);
        return;
    }
    s->actions = xcalloc((size_t)t->action_count, sizeof *s->actions);
    memcpy(s->actions, t->actions, (size_t)t->action_count * sizeof *s->actions);
    s->action_count = t->action_count;
    for (int i = 0; i < s->action_count; i++)
        s->splits |= s->actions[i].work == STEP_W && !follows_its_b(s->actions, i);
}

void table_free(step *s)
{
    for (int k = 0; k < s->part_count; k++) {
        for (int i = 0; i < s->micro_batches; i++) {
            free(s->parts[k].micros[i].blocks);
            free(s->parts[k].micros[i].notes);
        }
        free(s->parts[k].micros);
    }
    free(s->parts);
    free(s->actions);
}

/* A walk that was given up midway, after a failure, may have left anything behind. */
void table_begin(step *s)
{
    s->in_flight = 0;
    for (int k = 0; k < s->part_count; k++) {
        step_part *p = &s->parts[k];
        p->backwards = p->weights = 0;
        p->sent[0].slot = p->sent[1].slot = -1;
        for (int i = 0; i < s->micro_batches; i++) {
            step_micro *m = &p->micros[i];
            m->x = m->dy = m->logits = -1;
            m->note_count = 0;
        }
    }
}

/* Where a table has W of their own, the gradient that a B gives another rank goes ahead of its weight gradients. */
bool table_done(const step *s, int i)
{
    const step_part *p = &s->parts[s->actions[i].part];
    return s->actions[i].work == STEP_W && follows_its_b(s->actions, i) &&
           (!s->splits || p->holds.embedding || p->before >= 0);
}

bool table_whole(const step *s, int i)
{
    return !s->splits || (i + 1 < s->action_count && table_done(s, i + 1));
}
