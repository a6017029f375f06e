/* SPDX-License-Identifier: MIT */
/* The ways `copy` and `push` of a team: its trainer's rows go through windows (comm/windows.h); see team.h. */
#include "common/replica/team_copy.h"

#include <stdio.h>

#include "common/core/error.h"

void team_copy_begin(team *x)
{
    windows_quiet(x->w, !x->r->communicating);
    if (team_breaks(x, TEAM_FLAG))
        windows_plant_late(x->w);
    windows_begin(x->w, trainer_state_of(x->t).stream);
}

static void spread(void *user, int at, const void *mine, size_t count, sb_dtype t, bool whole)
{
    team *x = user;
    team_note(x, (team_op){.kind = OP_SPREAD, .send = mine, .count = count, .t = replica_comm_dtype(t), .at = at});
    x->spread[at] = mine;
    windows_spread(x->w, at, mine, whole);
}

static void *window(void *user, int at)
{
    return windows_rows(((team *)user)->w, at);
}

static void await(void *user, int at, int rank, void *stream, bool aside)
{
    team *x = user;
    windows_await(x->w, at, rank, stream, aside);
    if (team_breaks(x, TEAM_CHUNK) && rank <= 0)
        device_stream_copy(x->at.d, stream, windows_rows(x->w, at), x->spread[at], x->row_bytes);
}

static void read(void *user, int at, void *side)
{
    windows_read(((team *)user)->w, at, side);
}

static void *part_there(void *user, int rank)
{
    const team *x = user;
    return x->r->communicating ? windows_part(x->w, rank) : NULL;
}

static void give(void *user, int rank, const void *part)
{
    team *x = user;
    if (x->sums == 1 && team_breaks(x, TEAM_PARTIAL))
        device_memset(x->at.d, part ? (void *)part : windows_part(x->w, rank), 0, x->row_bytes);
    windows_give(x->w, rank, part, trainer_state_of(x->t).stream);
}

static void add(void *user, const void *own, const void *residual, void *out, size_t count, sb_dtype t)
{
    team *x = user;
    const char *first = (const char *)own - (size_t)(x->rank % x->m.tp) * x->row_bytes;
    team_note(x, (team_op){.kind = OP_PARTS, .send = first, .count = count, .t = replica_comm_dtype(t)});
    x->sums++;
    windows_sum(x->w, own, residual, out, count, t);
    team_break_number(x, out, t);
}

void team_copy_hooks(step_share *share)
{
    share->spread = spread;
    share->window = window;
    share->await = await;
    share->read = read;
    share->part = part_there;
    share->give = give;
    share->add = add;
}

void team_copy_alone(team *x, const team_op *op)
{
    void *main = trainer_state_of(x->t).stream;
    if (op->kind == OP_SPREAD) {
        windows_spread(x->w, op->at, op->send, false);
        windows_await(x->w, op->at, -1, main, false);
        windows_read(x->w, op->at, main);
        return;
    }
    for (int k = 1; k < x->m.tp; k++) {
        const int to = (x->rank + k) % x->m.tp;
        windows_give(x->w, to, (const char *)op->send + (size_t)to * x->row_bytes, main);
    }
    windows_settle(x->w);
}

void team_copy_sum(team *x, comm *c, void *values, size_t count, sb_dtype t, void *stream)
{
    const comm_dtype type = replica_comm_dtype(t);
    const size_t bytes = count * comm_dtype_bytes(type);
    sb_direct_sum p = {.dtype = t, .count = comm_size(c), .n = count, .out = values};
    for (int r = 0; r < p.count; r++)
        p.parts[r] = (char *)x->scratch + (size_t)r * bytes;
    team_give(x, (team_op){OP_GATHER, c, values, x->scratch, count, type, 0}, stream);
    if (x->r->communicating && !windows_add(x->at.d, &p, stream))
        launch_fail(x->at.l, EXIT_CODE_FAILURE, "a sum of gradients: %s", sb_last_message());
}

/* ---- making and freeing ---- */

team_copy_bytes team_copy_bytes_of(const step_options *o, const params *p, int tp)
{
    const size_t rows = (size_t)o->batch * (size_t)o->seq / (size_t)tp * (size_t)o->config.d_model;
    const int sums = sb_dtype_bytes(step_sums_dtype(o)), made = sb_dtype_bytes(step_made_dtype(o));
    team_copy_bytes b = {.rows = rows * (size_t)sb_dtype_bytes(o->precision->activations)};
    int64_t first, most;
    b.windows = windows_bytes(tp, b.rows);
    if (!p)
        return b;
    params_unit_range(p, params_gains(p), &first, &most);
    for (int i = 0; i < p->count; i++)
        if (p->tensors[i].kind == PARAM_K && p->tensors[i].count + p->tensors[i + 1].count > most)
            most = p->tensors[i].count + p->tensors[i + 1].count;
    b.scratch = (size_t)tp * (size_t)most * (size_t)(made > sums ? made : sums);
    return b;
}

bool team_copy_open(team *x, char *why, size_t why_bytes)
{
    const team_copy_bytes b = team_copy_bytes_of(&x->o, x->member ? trainer_params(x->t) : NULL, x->m.tp);
    x->row_bytes = b.rows;
    if (x->row_bytes % 16) {
        snprintf(why, why_bytes, "copy engines move rows of a multiple of 16 bytes, not %zu", x->row_bytes);
        return false;
    }
    mesh_group g = mesh_group_of(x->m, x->member ? x->rank : 0, MESH_TP);
    x->w = windows_open(x->at.l, x->at.d, g.ranks, g.count, x->row_bytes, why, why_bytes);
    mesh_group_free(&g);
    if (!x->w)
        return false;
    x->extra_bytes = x->member ? (int64_t)(b.windows + b.scratch) : 0;
    x->scratch = x->member ? device_malloc(x->at.d, b.scratch) : NULL;
    snprintf(why, why_bytes, "no memory for the ranks' gradients of gains");
    return launch_all(x->at.l, "scratch", !x->member || x->scratch);
}

void team_copy_close(team *x)
{
    windows_free(x->w);
    device_free(x->at.d, x->scratch);
}
