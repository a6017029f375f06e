/* SPDX-License-Identifier: MIT */
/* What the files of this folder share: problems, exchanges, a team for a case; see share.h. */
#include "bench/share/share.h"

bool share_problem(share_case *k, const replica_problem *problem)
{
    row_status_set(k->w, problem->no_memory ? ROW_OOM : ROW_SKIP, "%s", problem->text);
    return false;
}

team *share_team(share_case *k, const step_options *o, const team_way *way)
{
    replica_problem problem;
    team *x = team_create(&k->at, o, k->ranks, way, k->max_ctas, &problem);
    if (!x)
        share_problem(k, &problem);
    else if (x->member)
        replica_set_tokens(x->t, o->seed, 0); /* all of them have the same */
    return x;
}
