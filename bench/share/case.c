/* SPDX-License-Identifier: MIT */
/* What the files of this folder share: problems, exchanges, a team for a case; see share.h. */
#include "bench/share/share.h"
#include "common/replica/parts.h"

bool share_problem(share_case *k, const replica_problem *problem)
{
    const row_status status = problem->no_memory ? ROW_OOM : k->fault ? ROW_FAIL : ROW_SKIP;
    row_status_set(k->w, status, "%s", problem->text);
    return false;
}

bool share_has_bits(const share_case *k)
{
    return k->data == 1 && !(k->o.clip_norm > 0) && parts_hold(k->way, k->m.tp);
}

team *share_team(share_case *k, const step_options *o, const team_way *way)
{
    replica_problem problem;
    const team_options how = {.m = k->m,
                              .way = way,
                              .strategy = k->strategy,
                              .max_ctas = k->max_ctas,
                              .join = k->graph,
                              .fault = way ? k->fault : TEAM_SOUND};
    team *x = team_create(&k->at, o, &how, &problem);
    if (!x)
        share_problem(k, &problem);
    else
        team_set_tokens(x, o->seed);
    return x;
}
