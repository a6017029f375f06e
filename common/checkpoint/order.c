/* SPDX-License-Identifier: MIT */
/* A plan of all ranks' lanes, file by file; see order.h. */
#include "common/checkpoint/order.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/core/error.h"

typedef struct plan {
    const int64_t *bytes;
    int files, ranks;
    bool *done;   /* [ranks][files]: has been begun */
    int *needed;  /* ranks that have still to begin a file */
    double *busy; /* until when somebody writes to it; a time is bytes that one lane writes */
} plan;

/* Whether a rank rather begins file f than g. */
static bool better(const plan *p, int f, int g, double now)
{
    const bool idle = p->busy[f] <= now;
    if (idle != (p->busy[g] <= now))
        return idle;
    return idle ? p->bytes[f] * p->needed[f] > p->bytes[g] * p->needed[g] : p->busy[f] < p->busy[g];
}

static int pick(const plan *p, int rank, double now)
{
    int best = -1;
    for (int f = 0; f < p->files; f++)
        if (!p->done[rank * p->files + f] && (best < 0 || better(p, f, best, now)))
            best = f;
    return best;
}

void checkpoint_order(const int64_t *bytes, int files, int rank, int ranks, int lanes, int *out)
{
    const unsigned long all = (unsigned long)ranks * (unsigned long)lanes;
    plan p = {.bytes = bytes, .files = files, .ranks = ranks};
    double *lane = xcalloc(all, sizeof *lane); /* when it is free; [lanes][ranks], so that ranks take turns */
    int *begun = xcalloc((unsigned long)ranks, sizeof *begun);
    p.done = xcalloc((unsigned long)ranks * (unsigned long)files, sizeof *p.done);
    p.needed = xcalloc((unsigned long)files, sizeof *p.needed);
    p.busy = xcalloc((unsigned long)files, sizeof *p.busy);
    for (int f = 0; f < files; f++)
        p.needed[f] = ranks;
    for (int i = 0; i < files * ranks; i++) {
        unsigned long first = all;
        for (unsigned long l = 0; l < all; l++)
            if (begun[l % (unsigned long)ranks] < files && (first == all || lane[l] < lane[first]))
                first = l;
        const int r = (int)(first % (unsigned long)ranks), f = pick(&p, r, lane[first]);
        const double from = p.busy[f] > lane[first] ? p.busy[f] : lane[first];
        p.done[r * files + f] = true;
        p.needed[f]--;
        p.busy[f] = lane[first] = from + (double)bytes[f];
        if (r == rank)
            out[begun[r]] = f;
        begun[r]++;
    }
    free(p.busy);
    free(p.needed);
    free(p.done);
    free(begun);
    free(lane);
}
