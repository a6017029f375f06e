/* SPDX-License-Identifier: MIT */
/* The check of a case: what is loaded is what was saved, bit for bit, and so is what follows; see checkpoint.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/checkpoint/checkpoint.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/device/host.h"

enum { STEPS = 2 };

/* What a rank has. Hashes are of all that it holds; parameters are gathered where it holds slices, as no hash shows what
 * other ranks gave it. */
typedef struct after {
    uint64_t *hashes;
    double losses[STEPS];
    uint64_t params;
} after;

/* Cores of the host are shared out among its ranks. */
static int hashing_threads(const saving *s)
{
    const int cores = host_cores_allowed() / s->k->ranks;
    return cores < 1 ? 1 : cores > 32 ? 32 : cores;
}

static void look(saving *s, const char *when, after *a)
{
    phase_set("check of %s: hashing what each rank holds, %s", case_name(s->k->c), when);
    if (!s->r->member)
        return;
    if (s->r->plan->s->parameters != PARAMETERS_RESIDENT)
        a->params = replica_checksum(s->r);
    if (!a->hashes)
        a->hashes = xcalloc((unsigned long)checkpoint_pieces_blocks(&s->x->load) + 1, sizeof *a->hashes);
    replica_state_hashes(s->x, hashing_threads(s), a->hashes);
}

/* Sums of another order are no fault of a checkpoint; the same steps twice would differ as well. */
static bool steps_repeat(const saving *s)
{
    return device_kind_of(s->k->s->dev) == DEVICE_CPU || s->k->o.deterministic;
}

static void go_on(saving *s, const char *when, after *a)
{
    phase_set("check of %s: %d steps, %s", case_name(s->k->c), STEPS, when);
    for (int i = 0; i < STEPS; i++) {
        replica_step(s->r);
        replica_settle(s->r);
        a->losses[i] = s->r->member ? trainer_loss(s->r->t) : 0;
    }
    if (steps_repeat(s))
        look(s, when, a);
}

/* Names the first tensor that differs. */
static bool same(saving *s, const char *when, const after *got, const after *want, char *why, size_t why_bytes)
{
    char what[96];
    const int64_t blocks = s->x ? checkpoint_pieces_blocks(&s->x->load) : 0;
    for (int64_t i = 0; i < blocks; i++)
        if (got->hashes[i] != want->hashes[i]) {
            snprintf(why, why_bytes, "%s: rank %d has other bytes, from %s on", when, launch_rank(s->k->l),
                     checkpoint_pieces_at(&s->x->load, s->x->layout, i, what, sizeof what));
            return false;
        }
    if (memcmp(got->losses, want->losses, sizeof got->losses) != 0)
        snprintf(why, why_bytes, "%s: the losses of rank %d differ", when, launch_rank(s->k->l));
    else if (got->params != want->params)
        snprintf(why, why_bytes, "%s: the parameters of rank %d differ", when, launch_rank(s->k->l));
    else
        return true;
    return false;
}

/* So that nothing passes that was merely left as it was. */
static void scramble(saving *s)
{
    for (int i = 0; s->x && i < s->x->load.n; i++)
        device_memset(s->r->at.d, s->x->load.p[i].at, 0xff, (size_t)s->x->load.p[i].bytes);
    if (s->r->member) {
        trainer_set_optimizer_state(s->r->t, &(sb_optimizer_state){.loss_scale = 1});
        device_sync(s->r->at.d);
    }
}

static bool load(saving *s, char *why, size_t why_bytes)
{
    checkpoint c = {0};
    checkpoint_loaded loaded;
    if (!s->r->member)
        return true;
    const checkpoint_model want = replica_model(s->r);
    const bool ok = checkpoint_open_in(s->folder, -1, &want, &c, why, why_bytes) &&
                    replica_state_load(s->x, &c, s->readers, &loaded, why, why_bytes);
    checkpoint_close(&c);
    if (ok && text_is(option_text(s->k->s->opt, "plant-error"), "step"))
        trainer_set_optimizer_state(s->r->t, &(sb_optimizer_state){.lr = 1e-3f, .loss_scale = 1, .grad_factor = 1});
    return ok;
}

/* Look 0 is what the save must have, and 2 what the load made of it: any byte that is not saved or loaded. Looks 1 and 3 lie
 * two steps after them: what a state has besides its bytes, such as the optimizer's step. Loads hash every block that
 * they read, and ranks read all of them: a block that decayed. What is left of the files is the frame. */
static bool check(saving *s, after at[4])
{
    char why[400] = "";
    checkpoint_saved saved;
    replica_step(s->r);
    replica_settle(s->r);
    look(s, "before the save", &at[0]);
    saving_begin(s);
    go_on(s, "after the save", &at[1]); /* under which the save goes on: what it writes must be the state before */
    phase_set("check of %s: until the save is durable", case_name(s->k->c));
    if (!saving_finish(s, &saved) || !saving_frame_is_whole(s))
        return false;
    phase_set("check of %s: loading over memory that was overwritten", case_name(s->k->c));
    scramble(s);
    if (!saving_agree(s, "load", load(s, why, sizeof why), why, ROW_FAIL))
        return false;
    look(s, "as it was loaded", &at[2]);
    if (!saving_agree(s, "bytes", same(s, "what was loaded is not what was saved", &at[2], &at[0], why, sizeof why),
                      why, ROW_FAIL))
        return false;
    go_on(s, "after the load", &at[3]);
    row_text(s->k->w, "resume", steps_repeat(s) ? "bit for bit" : "not compared: --deterministic 1 would");
    return !steps_repeat(s) ||
           saving_agree(s, "resume", same(s, "after a resume", &at[3], &at[1], why, sizeof why), why, ROW_FAIL);
}

bool saving_check(saving *s)
{
    after at[4] = {{0}};
    const bool ok = check(s, at);
    for (int i = 0; i < 4; i++)
        free(at[i].hashes);
    return ok;
}
