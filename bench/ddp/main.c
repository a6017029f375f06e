/* SPDX-License-Identifier: MIT */
/* main of the benches of data parallelism, and one case from its options to its row; see ddp.h. */
#include <stdlib.h>
#include <string.h>

#include "bench/ddp/ddp.h"
#include "bench/ddp/time.h"
#include "bench/ddp/verify.h"
#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/session/profile.h"

static void ddp_run(session *s, const bench_case *c, row *w)
{
    ddp_case k;
    ddp_times m;
    const bool profiling = session_profiling(s); /* then the case was verified and timed before */
    if (!ddp_case_of(s, c, w, &k) || (!profiling && !ddp_verify(&k)) || s->timing.iters == 0)
        return;
    if (!profiling && ddp_has_column(&k, "predicted_ms"))
        ddp_fit_make(&k);
    phase_set("setup of %s", case_name(c));
    const bool memory_asked = ddp_has_column(&k, "after_step_bytes");
    const double free_before = (double)device_free_bytes(s->dev);
    ddp_held held;
    ddp_held_start(&k, &held);
    replica *r = ddp_replica(&k, &k.o, &k.p);
    if (!r)
        return;
    if (r->member)
        replica_set_tokens(r->t, k.o.seed, launch_rank(k.l));
    if (profiling) {
        ddp_profile(&k, r);
        replica_free(r);
        return;
    }
    if (memory_asked)
        ddp_held_init(&k, r, &held);
    if (ddp_time(&k, r, free_before, &m)) {
        ddp_fill_row(&k, r, &m);
        profile_note(s, case_key(c), "steps", stats_of(&m.step).median);
        if (ddp_has_column(&k, "predicted_ms"))
            ddp_fill_fit(&k, r, &m);
        if (memory_asked) {
            ddp_held_after(&k, &held);
            ddp_fill_memory(&k, r, &held);
        }
        if (option_flag(s->opt, "timeline"))
            ddp_record(&k, r);
    }
    ddp_times_free(&m);
    replica_free(r);
}

void ddp_add_variants(variant_spec table[DDP_VARIANTS], bool (*mine)(const strategy *s))
{
    int n = 0;
    while (table[n].name)
        n++;
    for (const strategy *s = parallel_strategies; s->name; s++) {
        if (!mine(s))
            continue;
        if (n == DDP_VARIANTS - 1)
            die(EXIT_CODE_FAILURE, "bug: a bench has more than %d variants", n);
        table[n++] = (variant_spec){s->name, s->summary};
    }
}

int ddp_main(const bench_info *info, option_spec *table, int argc, char **argv)
{
    const session_hooks hooks = {model_start_gated, ddp_run, model_finish, ddp_case_estimate};
    option_spec *batch = model_option(table, "batch"), *grads = model_option(table, "grad-dtype");
    batch->def = "2";
    batch->help = "batch size of each rank";
    grads->def = "policy,fp32";
    grads->help = "dtype in which gradients are made; wire_dtype is that of their sums";
    model_options_of_ranks(table);
    launch_default_ranks(table, "2");
    return launch_main(info, &hooks, argc, argv);
}
