/* SPDX-License-Identifier: MIT */
/* Ops by which ranks of a team give each other something: noted in the first step, enqueued; see team_copy.h. */
#include "common/replica/team_copy.h"

#include <stdlib.h>

#include "common/core/error.h"

void team_enqueue(const team_op *op, void *stream)
{
    switch (op->kind) {
    case OP_GATHER: comm_all_gather(op->c, op->send, op->recv, op->count, op->t, stream); break;
    case OP_SCATTER: comm_reduce_scatter(op->c, op->send, op->recv, op->count, op->t, COMM_SUM, stream); break;
    case OP_SUM: comm_all_reduce(op->c, op->send, op->recv, op->count, op->t, COMM_SUM, stream); break;
    case OP_SPREAD:
    case OP_PARTS: break; /* team_copy_alone */
    }
}

static double bytes_of(const team *x, const team_op *op)
{
    const double n = op->c ? comm_size(op->c) : x->m.tp, bytes = (double)op->count * (double)comm_dtype_bytes(op->t);
    return op->kind == OP_SUM ? 2 * (n - 1) / n * bytes : (n - 1) * bytes;
}

void team_note(team *x, team_op op)
{
    if (!x->r->communicating || x->steps > 0)
        return;
    LIST_ADD(x->ops, x->op_count, x->op_room, op);
    x->wire_bytes += bytes_of(x, &op);
}

void team_give(team *x, team_op op, void *stream)
{
    team_note(x, op);
    if (x->r->communicating)
        team_enqueue(&op, stream);
}

bool team_breaks(const team *x, team_fault f)
{
    return x->fault == f && x->rank == x->ranks - 1;
}

void team_break_number(team *x, void *sum, sb_dtype t)
{
    const size_t element = (size_t)sb_dtype_bytes(t);
    if (x->sums == 2 && team_breaks(x, TEAM_NUMBER))
        device_copy(x->at.d, sum, (char *)sum + element, element);
}
