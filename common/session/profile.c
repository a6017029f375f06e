/* SPDX-License-Identifier: MIT */
/* Recording what was timed; see profile.h. Blocks of steps without and with a recording alternate, so that the cost of
 * recording is known. All tables and the trace show one step, that of median length, so that they add up. */
#include "common/session/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/build_info.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/record/ops.h"
#include "common/session/profile_internal.h"

const sb_kernels *session_kernels(const session *s, sb_context **ctx)
{
    const bool gpu = device_kind_of(s->dev) == DEVICE_CUDA;
    const sb_kernels *k = gpu ? sb_kernels_cuda() : sb_kernels_cpu();
    if (k->create(device_ordinal(s->dev), ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "cannot set up the %s kernels: %s", k->name, sb_last_message());
    return !gpu || option_flag(s->opt, "profile") ? profiled_kernels(k) : k;
}

static profile_identity identity_of(const session *s, const char *name)
{
    const char *machine = strrchr(s->results_dir, '/');
    return (profile_identity){.bench = options_bench(s->opt)->name,
                              .variant = case_variant(s->profile->c) ? case_variant(s->profile->c) : "",
                              .key = case_key(s->profile->c),
                              .measurement = name,
                              .rank = s->peers ? s->peers->rank : 0,
                              .ranks = s->peers ? s->peers->size : 1,
                              .run_id = s->profile->run_id,
                              .campaign = s->profile->campaign,
                              .machine = machine ? machine + 1 : s->results_dir,
                              .gpu = device_get_info(s->dev)->name,
                              .device = option_text(s->opt, "device"),
                              .commit = build_commit()};
}

bool session_profile(session *s, const char *name, const profile_how *how, bool (*fn)(void *arg), void *arg,
                     profile_result *out)
{
    const profile_identity id = identity_of(s, name);
    OWNED profile_work *x = xcalloc(1, sizeof *x);
    char why[300] = "", folder[512];
    *out = (profile_result){.ok = false};
    x->s = s, x->how = how, x->fn = fn, x->arg = arg;
    phase_set("profile of %s, %s", id.key, name);
    const bool armed = profile_on_all(s, how, s->profile->armed);
    if (armed && how->member)
        profile_calibrate(s, how->dev);
    double clock_err_us = 0;
    const bool ok = armed && profile_blocks(x, &clock_err_us, why, sizeof why);
    const profile_choice c = profile_choose(x, ok);
    if (profile_on_all(s, how, ok && c.block >= 0)) {
        profile_prepare_folder(s, how, &id, folder, sizeof folder);
        profile_on_all(s, how, true); /* the old trace is gone before anybody adds to the new one */
        if (how->member)
            profile_write(s, how, &id, x, c, folder, out);
        if (how->together && s->peers && !how->silent)
            profile_write_together(s, folder, &id, how->member ? x->r[c.block] : NULL, c.step, c.base_us, clock_err_us);
    } else if (armed && (*why || profile_first_rank(s))) {
        warn("no profile of %s, %s: %s", id.key, name, *why ? why : "no whole step was recorded");
        s->profile->told = true;
    }
    s->profile->recorded = s->profile->recorded || out->ok;
    profile_work_free(x);
    return out->ok;
}

/* ---- the pass ---- */

/* What was just timed. Ranks may call this each at its own time. */
static void after_measure(session *s, const char *name, bool (*fn)(void *arg), void *arg)
{
    profile_result ignored;
    session_profile(s, name, &(profile_how){.dev = s->dev, .member = true}, fn, arg, &ignored);
}

static char *folder_beside(const char *csv)
{
    const char *slash = csv ? strrchr(csv, '/') : NULL;
    return !csv ? xstrdup("") : slash ? xasprintf("%.*s/profile", (int)(slash - csv), csv) : xstrdup("profile");
}

void profile_pass_begin(session *s)
{
    s->profile = xcalloc(1, sizeof *s->profile);
    s->profile->folder = folder_beside(s->csv_path);
    snprintf(s->profile->run_id, sizeof s->profile->run_id, "%s", rows_run_id(s->rows));
    snprintf(s->profile->campaign, sizeof s->profile->campaign, "%s", rows_campaign(s->rows));
    if (s->peers) {
        s->peers->share(s->peers->user, s->profile->run_id, sizeof s->profile->run_id);
        s->peers->share(s->peers->user, s->profile->campaign, sizeof s->profile->campaign);
    }
    s->after_measure = after_measure;
    s->timing.iters = 1;
    s->timing.warmup = 1;
    s->timing.settle_s = 0;
}

void profile_pass_end(session *s)
{
    if (profile_first_rank(s) && s->profile->recorded && *s->profile->folder)
        say("profile: %s\n", s->profile->folder);
    else if (profile_first_rank(s) && !s->profile->recorded && !s->profile->told)
        warn("no profile: nothing was timed that runs on the device");
    s->after_measure = NULL;
    free(s->profile->folder);
    free(s->profile);
    s->profile = NULL;
}

void profile_case_begin(session *s, const bench_case *c)
{
    char why[300] = "";
    s->profile->c = c;
    s->profile->armed = recorder_arm(s->dev, why, sizeof why);
    if (!s->profile->armed && !s->profile->told)
        warn("no profile: %s", why);
    s->profile->told = s->profile->told || !s->profile->armed;
}

void profile_case_end(session *s)
{
    recorder_disarm();
    s->profile->armed = false;
    s->profile->c = NULL;
}
