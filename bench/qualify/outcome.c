/* SPDX-License-Identifier: MIT */
/* Exit code and metrics; see outcome.h. */
#include "bench/qualify/outcome.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/core/error.h"

void outcome_count(outcome *o, bool on_gpu, verdict v, const char *why)
{
    if (verdict_missed(v))
        o->missed++;
    else if (!on_gpu)
        o->parts_ok += v == VERDICT_OK;
    else
        *(v == VERDICT_OK ? &o->ok : &o->unchecked) += 1;
    if (v == VERDICT_NOT_CHECKED && !*o->why)
        snprintf(o->why, sizeof o->why, "%s", why);
}

int outcome_code(const outcome *o, int code)
{
    const bool verdicts = o->ok + o->unchecked > 0;
    if (code != EXIT_CODE_OK && code != EXIT_CODE_UNSUPPORTED)
        return code;
    if (o->expected && o->gpus != o->expected) {
        warn("%d GPU%s of the %d that --expect names %s there", o->gpus, o->gpus == 1 ? "" : "s", o->expected,
             o->gpus == 1 ? "is" : "are");
        return EXIT_CODE_GATE;
    }
    if (o->missed)
        return EXIT_CODE_GATE;
    if (verdicts ? o->ok == 0 : o->parts_ok == 0) {
        warn("nothing could be checked, so nothing is called ok: %s", *o->why ? o->why : "no measurement ran");
        return EXIT_CODE_UNSUPPORTED;
    }
    if (o->unchecked) {
        warn("%d of %d GPUs could not be checked: %s", o->unchecked, o->ok + o->unchecked, o->why);
        return EXIT_CODE_GATE;
    }
    return code;
}

/* ---- metrics ---- */

static void begin(FILE *f, const char *name, const char *help)
{
    fprintf(f, "# TYPE stepbench_%s gauge\n# HELP stepbench_%s %s\n", name, name, help);
}

/* A line for each item of all sets: its value, or its bound. */
static void put_items(FILE *f, const qualify *q, const char *name, bool bound)
{
    for (size_t s = 0; s < q->sets_n; s++)
        for (size_t i = 0; i < q->sets[s].n; i++) {
            const qualify_set *set = &q->sets[s];
            const double x = bound ? set->items[i].j.bound : set->items[i].value;
            char who[64];
            if (!isfinite(x))
                continue;
            if (set->by_rank)
                snprintf(who, sizeof who, "gpu=\"%zu\"", i);
            else if (text_is(set->name, "p2p")) {
                const int from = (int)i / (q->ranks - 1), to = (int)i % (q->ranks - 1);
                snprintf(who, sizeof who, "gpus=\"%d-%d\"", from, to + (to >= from));
            } else
                snprintf(who, sizeof who, "gpus=\"%s\"", option_text_at(q->s->opt, "group", i));
            fprintf(f, "stepbench_%s{metric=\"%s\",shape=\"%s\",%s} %.9g\n", name, set->metric->name, set->shape, who,
                    x);
        }
}

static void put_counter(FILE *f, const qualify *q, const char *name, const char *help, size_t field)
{
    begin(f, name, help);
    for (int r = 0; r < q->ranks; r++) {
        double x;
        memcpy(&x, (const char *)&q->health[r] + field, sizeof x);
        if (isfinite(x))
            fprintf(f, "stepbench_%s{gpu=\"%d\"} %.9g\n", name, r, x);
    }
}

char *outcome_metrics(qualify *q)
{
    char *text, why[1024];
    unsigned long bytes;
    FILE *f = text_stream(&text, &bytes);
    begin(f, "gpu_verdict", "1 for the word that the GPU got.");
    for (int r = 0; r < q->ranks; r++) {
        const verdict v = qualify_of_gpu(q, r, why, sizeof why);
        for (verdict word = VERDICT_OK; word <= VERDICT_BROKEN; word++)
            fprintf(f, "stepbench_gpu_verdict{gpu=\"%d\",uuid=\"%s\",verdict=\"%s\"} %d\n", r, q->uuid[r],
                    verdict_word(word), v == word);
    }
    begin(f, "qualify_value", "What was measured, in the unit that ends the name of the metric.");
    put_items(f, q, "qualify_value", false);
    begin(f, "qualify_bound", "What it must reach, or must not exceed in us and ms.");
    put_items(f, q, "qualify_bound", true);
    put_counter(f, q, "gpu_ecc_uncorrected_errors", "Since the driver was loaded.",
                offsetof(gpu_health, ecc_uncorrected));
    put_counter(f, q, "gpu_nvlink_errors", "Replays and recoveries while this was measured.",
                offsetof(gpu_health, nvlink_errors));
    put_counter(f, q, "gpu_pcie_replays", "While this was measured.", offsetof(gpu_health, pcie_replays));
    fclose(f);
    return text;
}

void outcome_write(const char *path, const char *metrics, const outcome *o, int code)
{
    OWNED char *beside = xasprintf("%s.%d", path, (int)getpid()); /* the collector takes only *.prom */
    FILE *f = fopen(beside, "w");
    if (f) {
        fprintf(f, "%s", metrics ? metrics : "");
        begin(f, "qualify_gpus", "GPUs that were looked at.");
        fprintf(f, "stepbench_qualify_gpus %d\n", o->gpus);
        begin(f, "qualify_gpus_expected", "The number that --expect names; 0: any.");
        fprintf(f, "stepbench_qualify_gpus_expected %d\n", o->expected);
        begin(f, "qualify_exit_code",
              "0: every GPU is ok; 3: a wrong result; 4: a GPU is not well; 77: nothing was checked.");
        fprintf(f, "stepbench_qualify_exit_code %d\n", code);
        begin(f, "qualify_end_time_seconds", "When it ended, since 1970.");
        fprintf(f, "stepbench_qualify_end_time_seconds %lld\n# EOF\n", (long long)time(NULL));
    }
    if (!file_close(f) || rename(beside, path) != 0) {
        const int error = errno;
        unlink(beside);
        die(EXIT_CODE_FAILURE, "--metrics %s can't be written: %s", path, strerror(error));
    }
}
