/* SPDX-License-Identifier: MIT */
/* The rates C and W of bench_accounting: from the options, or from what other benches stored for this machine. C is
 * the best bf16 matrix product of bench_roofline. W is the best bus bandwidth in the newest run of bench_allreduce,
 * otherwise the slowest pair among the newest GPU-to-GPU copies of bench_roofline: a ring is no faster than its
 * slowest link. */
#include "bench/accounting/accounting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/session/ceiling.h"

/* A row that went well, with a rate; of the variant where one is given. */
static bool counts(const csv *c, size_t row, const char *variant, const char *column)
{
    return csv_is(c, row, "status", "ok") && (!variant || csv_is(c, row, "variant", variant)) &&
           csv_real(c, row, column) > 0 && same_peers(c, row);
}

/* The id of the newest run that has such rows; ids begin with the time. */
static const char *newest_run(const csv *c, const char *variant, const char *column)
{
    const char *newest = NULL;
    for (size_t i = 0; c && i < c->rows; i++) {
        const char *id = csv_cell(c, i, "run_id");
        if (id && counts(c, i, variant, column) && (!newest || strcmp(id, newest) > 0))
            newest = id;
    }
    return newest;
}

/* Bytes a second; NAN when it was never measured. */
static double measured_bus(const char *dir)
{
    OWNED_CSV csv *c = rows_of_bench(dir, "bench_allreduce");
    const char *run = newest_run(c, NULL, "busbw_gb_s");
    double best = NAN;
    for (size_t i = 0; run && i < c->rows; i++)
        if (counts(c, i, NULL, "busbw_gb_s") && csv_is(c, i, "run_id", run))
            best = fmax(best, csv_real(c, i, "busbw_gb_s"));
    return 1e9 * best;
}

static double measured_link(const char *dir)
{
    OWNED_CSV csv *c = rows_of_bench(dir, "bench_roofline");
    const char *run = newest_run(c, "p2p", "gb_s");
    double slowest = NAN, most_bytes = 0;
    for (size_t i = 0; run && i < c->rows; i++) {
        double bytes = csv_real(c, i, "bytes"), gb_s = csv_real(c, i, "gb_s");
        if (!counts(c, i, "p2p", "gb_s") || !csv_is(c, i, "run_id", run) || !(bytes >= most_bytes))
            continue;
        slowest = bytes > most_bytes ? gb_s : fmin(slowest, gb_s);
        most_bytes = bytes;
    }
    return 1e9 * slowest;
}

double accounting_measured_bandwidth(const char *dir, const char **from)
{
    const double bus = measured_bus(dir);
    *from = isnan(bus) ? "bench_roofline.csv, slowest pair of GPUs one way" : "bench_allreduce.csv, best bus bandwidth";
    return isnan(bus) ? measured_link(dir) : bus;
}

static bool measured(const accounting *a, const char *flops, const char *bandwidth, accounting_rates *r)
{
    const char *dir = a->s->results_dir, *from;
    if (flops) {
        r->flops = 1e12 * ceiling_tflops(NULL, dir, "bf16");
        if (isnan(r->flops)) {
            row_status_set(a->w, ROW_SKIP,
                           "C is not measured: %s/bench_roofline.csv has no bf16 gemm; "
                           "./bench_roofline --variant gemm --dtype bf16 measures it",
                           dir);
            return false;
        }
        accounting_step(a, "C = %P FLOP/s, the best bf16 GEMM of %s/bench_roofline.csv", r->flops, dir);
    }
    const double w = accounting_measured_bandwidth(dir, &from);
    if (isnan(w)) {
        accounting_step(a, "W is not measured: %s has neither bench_allreduce.csv nor copies between GPUs", dir);
        accounting_step(a, "W = %R, of --%s", r->bandwidth, bandwidth);
        row_status_set(a->w, ROW_OK, "W is that of --%s: it is not measured", bandwidth);
        return true;
    }
    r->bandwidth = w;
    accounting_step(a, "W = %R, of %s/%s", w, dir, from);
    return true;
}

bool accounting_rates_of(const accounting *a, const char *flops, const char *bandwidth, accounting_rates *r)
{
    *r = (accounting_rates){.flops = flops ? case_real(a->c, flops) : NAN, .bandwidth = case_real(a->c, bandwidth)};
    if (case_int(a->c, "measured") && !measured(a, flops, bandwidth, r))
        return false;
    accounting_real(a, "used_flops", r->flops);
    accounting_real(a, "used_bandwidth", r->bandwidth);
    return true;
}

bool accounting_mesh(const accounting *a, ffn_mesh *m)
{
    accounting_rates r;
    if (!accounting_rates_of(a, "flops", "bandwidth", &r))
        return false;
    int64_t mesh_x = case_int(a->c, "mesh-x"), mesh_y = case_int(a->c, "mesh-y"), bits = case_int(a->c, "weight-bits");
    *m = (ffn_mesh){.x = (double)case_int(a->c, "x"),
                    .y = (double)case_int(a->c, "y"),
                    .mesh_x = mesh_x ? (double)mesh_x : 1,
                    .mesh_y = mesh_y ? (double)mesh_y : 1,
                    .flops = r.flops,
                    .bandwidth = r.bandwidth,
                    .weight_bytes = bits ? (double)bits / 8 : 2,
                    .activation_bytes = ACCOUNTING_ACTIVATION_BYTES};
    return true;
}
