/* SPDX-License-Identifier: MIT */
/* What the parts of a model give each other: the residual stream forward, its gradient backward. Parts of one rank hand on
 * the slot itself. Between ranks the receiver's slot is taken one action ahead, and opened there: from then on it may be
 * written. The sender's is dropped in front of the next one of its kind, when main has waited until it was read. So the
 * rule of the units (units.c) holds across ranks, and the plan knows both slots. */
#include "common/step/exchange.h"

static arena_slot *slot_of(step_micro *m, bool backward)
{
    return backward ? &m->dy : &m->x;
}

static step_hop hop_of(const step *s, const step_part *p, const step_micro *m, bool backward, bool comes)
{
    const arena_slot slot = backward ? m->dy : m->x;
    return (step_hop){.backward = backward,
                      .micro = m->number,
                      .layer = backward == comes ? p->holds.end : p->holds.first,
                      .at = step_pointer(s, slot),
                      .bytes = step_stream(s)};
}

/* Whether an action's tensor comes from another rank. */
static bool comes(const step_part *p, step_work work)
{
    return work == STEP_F ? !p->holds.embedding && p->before < 0 : work == STEP_B && !p->holds.head && p->behind < 0;
}

static void open(step *s, const step_action *a)
{
    step_part *p = &s->parts[a->part];
    step_micro *m = &p->micros[a->micro];
    const bool backward = a->work == STEP_B;
    arena_slot *slot = slot_of(m, backward);
    if (!comes(p, a->work) || *slot >= 0)
        return;
    *slot = backward ? step_take(s, step_stream(s), MEMORY_TEMPORARY, p->holds.end, "d_residual")
                     : step_take(s, step_stream(s), MEMORY_ACTIVATION, p->holds.first, "residual");
    const step_hop h = hop_of(s, p, m, backward, true);
    if (step_launching(s) && s->hops.open)
        s->hops.open(s->hops.user, &h);
    if (s->rehearsing && s->hops.place)
        s->hops.place(s->hops.user, &h);
}

void hops_open(step *s, int action)
{
    for (int i = action; i < s->action_count && i <= action + 1; i++)
        open(s, &s->actions[i]);
}

void hop_receive(step *s, bool backward)
{
    const int from = backward ? s->part->behind : s->part->before;
    if (from >= 0) {
        arena_slot *given = slot_of(&s->parts[from].micros[s->micro->number], backward);
        *slot_of(s->micro, backward) = *given;
        *given = -1;
        return;
    }
    const step_hop h = hop_of(s, s->part, s->micro, backward, true);
    if (step_launching(s) && s->hops.receive)
        s->hops.receive(s->hops.user, &h);
}

static void await_sent(step *s, step_part *p, bool backward)
{
    if (p->sent[backward].slot < 0)
        return;
    if (step_launching(s) && s->hops.sent)
        s->hops.sent(s->hops.user, &p->sent[backward].hop);
    step_drop(s, &p->sent[backward].slot);
}

void hop_send(step *s, bool backward)
{
    step_part *p = s->part;
    arena_slot *slot = slot_of(s->micro, backward);
    if ((backward ? p->before : p->behind) >= 0)
        return; /* it stays here until that part takes it */
    await_sent(s, p, backward);
    p->sent[backward].hop = hop_of(s, p, s->micro, backward, false);
    p->sent[backward].slot = *slot;
    *slot = -1;
    if (step_launching(s) && s->hops.send)
        s->hops.send(s->hops.user, &p->sent[backward].hop);
}

void hops_begun(step *s)
{
    if (step_launching(s) && s->hops.begun)
        s->hops.begun(s->hops.user, s->action);
}

void hops_ended(step *s)
{
    if (step_launching(s) && s->hops.ended)
        s->hops.ended(s->hops.user, s->action);
}

void hops_beside(step *s)
{
    if (step_launching(s) && s->side != s->main && s->hops.beside)
        s->hops.beside(s->hops.user, s->action, s->side);
}

void hops_end(step *s)
{
    for (int k = 0; k < s->part_count; k++) {
        await_sent(s, &s->parts[k], false);
        await_sent(s, &s->parts[k], true);
    }
}
