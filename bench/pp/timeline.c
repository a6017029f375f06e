/* SPDX-License-Identifier: MIT */
/* A schedule as it was predicted and as it ran, as a file beside the rows: a line an action, in milliseconds. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/pp/time.h"
#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/pipeline/simulate.h"

static double span(const pp_spans *s, int rank, int action, bool end)
{
    return s->begun_ended[(rank * 2 + end) * s->table->count + action];
}

static void write_line(FILE *f, const pipeline_table *t, const char *strip, int rank, int i, double start, double end)
{
    const pipeline_action a = pipeline_actions(t, rank)[i];
    fprintf(f, "%s,%d,%d,%c,%d,%d,%d,%.6g,%.6g\n", strip, rank, i, "FBW"[a.kind], a.micro, a.chunk,
            pipeline_stage(&t->shape, rank, a.chunk), start, end);
}

static void write_predicted(FILE *f, const pipeline_table *t, const pipeline_costs *c)
{
    OWNED double *starts = xcalloc((size_t)t->shape.ranks * (size_t)t->count, sizeof *starts);
    pipeline_simulate(t, c, starts);
    for (int r = 0; r < t->shape.ranks; r++)
        for (int i = 0; i < t->count; i++) {
            const pipeline_action a = pipeline_actions(t, r)[i];
            const double start = starts[(size_t)r * (size_t)t->count + (size_t)i];
            const double takes = pipeline_duration(&t->shape, c, r, a);
            if (takes > 0)
                write_line(f, t, "predicted", r, i, start, start + takes);
        }
}

static void write_recorded(FILE *f, const pp_spans *s)
{
    const pipeline_table *t = s->table;
    double first = INFINITY;
    for (int r = 0; r < t->shape.ranks; r++)
        first = fmin(first, span(s, r, 0, false));
    for (int r = 0; r < t->shape.ranks; r++)
        for (int i = 0; i < t->count; i++)
            if (!isnan(span(s, r, i, false)))
                write_line(f, t, "recorded", r, i, span(s, r, i, false) - first, span(s, r, i, true) - first);
}

void pp_timeline(pp_case *k, const pp_spans *recorded, const pipeline_costs *costs)
{
    const pipeline_table *t = recorded->table;
    const pipeline_shape *of = &t->shape;
    const char *csv = k->s->csv_path, *slash = csv ? strrchr(csv, '/') : NULL;
    if (!csv)
        return;
    OWNED char *folder = slash ? xasprintf("%.*s/pipeline", (int)(slash - csv), csv) : xstrdup("pipeline");
    OWNED char *name =
        xasprintf("pp_%s_%016llx.csv", of->schedule->name, (unsigned long long)rng_hash(0, case_key(k->c)));
    OWNED char *path = xasprintf("%s/%s", folder, name);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        die(EXIT_CODE_FAILURE, "can't make the folder %s for timelines: %s", folder, strerror(errno));
    FILE *f = fopen(path, "w");
    if (!f)
        die(EXIT_CODE_FAILURE, "can't write %s: %s", path, strerror(errno));
    fprintf(f, "# %s: %d ranks, %d chunks of layers on each, %d micro-batches; milliseconds\n", of->schedule->name,
            of->ranks, of->chunks, of->micros);
    fprintf(f, "strip,rank,action,kind,micro,chunk,stage,start,end\n");
    write_predicted(f, t, costs);
    write_recorded(f, recorded);
    if (fclose(f) != 0)
        die(EXIT_CODE_FAILURE, "can't write %s: %s", path, strerror(errno));
    row_text(k->w, "timeline", name);
}
