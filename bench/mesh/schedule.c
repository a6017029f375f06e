/* SPDX-License-Identifier: MIT */
/* A schedule of a pipeline without a model: its bubble, what it holds, and its actions as a file; see planner.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/mesh/planner.h"
#include "common/core/error.h"
#include "common/pipeline/simulate.h"

/* One line an action, with when it runs. False with errno. */
static bool actions_write(const char *path, const pipeline_table *t, const pipeline_costs *costs, const double *starts)
{
    FILE *f = fopen(path, "w");
    const pipeline_shape *s = &t->shape;
    if (!f)
        return false;
    fprintf(f, "# %s: %d ranks, %d chunks of layers on each, %d micro-batches; times in forwards of a rank\n",
            s->schedule->name, s->ranks, s->chunks, s->micros);
    fprintf(f, "rank,action,kind,micro,chunk,stage,start,end\n");
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < t->count; i++) {
            const pipeline_action a = pipeline_actions(t, r)[i];
            const int stage = pipeline_stage(s, r, a.chunk);
            const double start = starts[(size_t)r * (size_t)t->count + (size_t)i];
            const double whole = s->schedule->split ? 0 : costs->w[stage];
            const double takes = a.kind == PIPELINE_F   ? costs->f[stage]
                                 : a.kind == PIPELINE_B ? costs->b[stage] + whole
                                                        : costs->w[stage];
            fprintf(f, "%d,%d,%c,%d,%d,%d,%.9g,%.9g\n", r, i, "FBW"[a.kind], a.micro, a.chunk, stage, start,
                    start + takes);
        }
    return fclose(f) == 0;
}

/* pipeline/<name>.csv beside the rows; NULL: there are none. Caller frees. */
static char *actions_path(const session *s, const pipeline_shape *of)
{
    const char *slash = s->csv_path ? strrchr(s->csv_path, '/') : NULL;
    if (!s->csv_path)
        return NULL;
    OWNED char *folder =
        slash ? xasprintf("%.*s/pipeline", (int)(slash - s->csv_path), s->csv_path) : xstrdup("pipeline");
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        die(EXIT_CODE_FAILURE, "can't make the folder %s for schedules: %s", folder, strerror(errno));
    char *path = xasprintf("%s/%s_p%d_v%d_m%d.csv", folder, of->schedule->name, of->ranks, of->chunks, of->micros);
    return path;
}

static void fill(session *s, const pipeline_table *t, const pipeline_costs *costs, row *w)
{
    const pipeline_shape *shape = &t->shape;
    char text[256], why[256];
    OWNED double *starts = xcalloc((size_t)shape->ranks * (size_t)t->count, sizeof *starts);
    const pipeline_times times = pipeline_simulate(t, costs, starts);
    OWNED char *path = actions_path(s, shape);
    if (pipeline_invalid(t, why, sizeof why))
        row_status_set(w, ROW_FAIL, "%s", why);
    row_int(w, "stages_of_all", pipeline_stages(shape));
    row_real(w, "makespan", times.makespan);
    row_real(w, "longest", times.longest);
    row_real(w, "busy", times.busy);
    row_real(w, "schedule_bubble_pct", 100 * times.bubble);
    row_real(w, "in_flight", (double)times.peak / shape->chunks);
    if (path && actions_write(path, t, costs, starts))
        row_text(w, "actions", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    else if (path)
        die(EXIT_CODE_FAILURE, "can't write %s: %s", path, strerror(errno));
    snprintf(text, sizeof text, "%s is idle for %.1f %% of its time, and holds %.3g micro-batches",
             shape->schedule->name, 100 * times.bubble, (double)times.peak / shape->chunks);
    row_text(w, "answer", text);
}

void planner_run_schedule(session *s, const bench_case *c, row *w)
{
    const pipeline_schedule *row = pipeline_schedule_find(case_text(c, "schedule"));
    const int chunks = pipeline_chunks(row, (int)case_int(c, "chunks"));
    const pipeline_shape shape = {row, (int)case_int(c, "stages"), chunks, (int)case_int(c, "micro-batches")};
    char why[256];
    if (pipeline_problem(&shape, why, sizeof why)) {
        row_status_set(w, ROW_SKIP, "%s", why);
        return;
    }
    const size_t stages = (size_t)pipeline_stages(&shape);
    double *f = xmalloc(3 * stages * sizeof *f), *b = f + stages, *d = b + stages;
    for (size_t i = 0; i < stages; i++) {
        f[i] = 1. / chunks;
        b[i] = case_real(c, "backward") / chunks;
        d[i] = case_real(c, "weights") / chunks;
    }
    const pipeline_costs costs = {.f = f, .b = b, .w = d, .hop = case_real(c, "hop")};
    pipeline_table *t = pipeline_table_create(&shape, &costs);
    row_int(w, "plan_chunks", chunks);
    fill(s, t, &costs, w);
    pipeline_table_free(t);
    free(f);
}
