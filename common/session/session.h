/* SPDX-License-Identifier: MIT */
/* What every bench does around its own measurement: options, device, machine report, rows, resume, progress,
 * watchdog. A bench is a bench_info table and one function. */
#pragma once

#include "common/core/cache.h"
#include "common/options/options.h"
#include "common/rows/rows.h"
#include "common/device/device.h"
#include "common/device/memory.h"
#include "common/record/host_clock.h"

typedef enum timer_kind { TIMER_AUTO, TIMER_EVENT, TIMER_GRAPH, TIMER_HOST } timer_kind;

typedef struct timing { /* --timer --warmup --iters --settle --max-time --l2 */
    timer_kind kind;    /* AUTO: graph when a call takes under 1 ms, else event; host on the CPU */
    int warmup, iters;
    double settle_s; /* of calls before the samples, which take at least as long; 0: neither */
    double max_s;    /* stop early after this many seconds of samples (3 at least), or of warm-up; 0: no cap */
    bool cold_l2;    /* flush L2 before every sample (events or host; no graph) */
} timing;

/* --sustain, in the table of a bench that calls measure_sustained and has a column sustain_s. */
#define SESSION_SUSTAIN                                                                                                \
    {                                                                                                                  \
        "sustain", OPTION_REAL, 0, "0",                                                                                \
            .help = "after timing a case, run it for this long and measure the second half, by which time the GPU "    \
                    "has settled",                                                                                     \
            .max = 3600, .unit = "s", .unset = "0: no"                                                                 \
    }

/* This process as one of several that run the same cases together (common/launch makes it so). The rows are rank
 * 0's: the others neither print nor write. Whether a case still has to run is rank 0's to say. */
typedef struct session_peers {
    int rank, size;
    int gpu; /* which of the visible GPUs is this rank's */
    void *user;
    void (*opened)(void *user, device *d);                                 /* the device is open */
    void (*share)(void *user, void *data, size_t bytes);                   /* gives everyone rank 0's data */
    void (*gather)(void *user, const void *mine, size_t bytes, void *all); /* all: (size, bytes), to everyone */
    clock_reading (*clock)(void *user); /* everyone's host against rank 0's; everyone asks */
} session_peers;

typedef struct session session;
struct session {
    const options *opt;
    device *dev;
    memory *mem;
    row_writer *rows;
    timing timing;                   /* of this bench's options */
    double sustain_s;                /* --sustain, of benches that have it; 0: none */
    double idle_w;                   /* power of the GPU while nothing runs; NAN unknown */
    const char *results_dir;         /* "results/h200-x1": where this machine's CSVs of other benches are */
    const char *csv_path;            /* of this run; NULL with --csv none, and of ranks other than 0 */
    const session_peers *peers;      /* NULL: alone */
    cache *kept;                     /* what is remembered from case to case, freed after hooks.finish */
    bool lost;                       /* something beside the rows could not be written, and was named */
    void *user;                      /* the bench's own, set in start */
    struct session_profile *profile; /* of profile.c; NULL: this pass times */
    /* Runs once more what was just timed: fn(arg) enqueues it on dev. NULL: nothing does. */
    void (*after_measure)(session *s, const char *name, bool (*fn)(void *arg), void *arg);
};

/* What a part remembers from case to case, such as the reference of its check: `bytes` of memory, zeroed by the
 * first call with this name and the same memory in later calls: a value in `kept` with an empty key. After the last
 * case `clear` frees what it points to; may be NULL. */
void *session_cache(session *s, const char *name, size_t bytes, void (*clear)(void *data));

typedef struct session_hooks {
    void (*start)(session *s);                            /* after the device is open; may be NULL */
    void (*run)(session *s, const bench_case *c, row *w); /* one case and variant: verify, time, fill the row */
    void (*finish)(session *s);                           /* may be NULL */
    double (*estimate_bytes)(const options *o, const bench_case *c); /* for --dry-run; may be NULL */
} session_hooks;

/* Parses argv as session_main does: cuda is the default device where there is a GPU. */
options *session_options(const bench_info *info, int argc, char **argv);
/* Returns the exit code of the program. After `run` returns, a remembered out-of-memory turns the row to `oom`, memory
 * is released, clocks are sampled, and the row is committed. */
int session_main(const bench_info *info, const session_hooks *hooks, int argc, char **argv);
/* The same as one of several ranks. Somebody else watches over --timeout; signals still end this rank. */
int session_main_as(const session_peers *peers, const bench_info *info, const session_hooks *hooks, int argc,
                    char **argv);
/* Ends the program with a sentence when common options contradict each other; session_main does so first. */
void session_check(const options *o);
