/* SPDX-License-Identifier: MIT */
/* What GPUs and their links reach; see mesh.h. Peaks are those of data sheets. h200: measured by this project's benches
 * (results/h200-x1, -x2). The others are round numbers of public reports, since nobody prints all of them for one machine: attention of
 * FlashAttention's papers, bus bandwidths of nccl-tests, network cards of 400 Gb/s (H100) and 200 (A100) at 85 to 90 %. Their
 * `share` is to be fitted to a run of that machine. `contention` was chosen by the exposed times of results/h200-x2/bench_fsdp.csv,
 * `chunk_s` by those of results/h100-x2 and -x4/bench_tp.csv; where nobody measured them, they are 0. */
#include <math.h>

#include "common/core/text.h"
#include "common/formulas/mesh/mesh.h"

const mesh_rates mesh_machines[] = {
    {.name = "h200",
     .peak = 989e12,
     .share = 0.69,
     .share8 = 0.6,
     .attention_forward = 648e12,
     .attention_backward = 610e12,
     .memory = 4.2e12,
     .passes = 0.5,
     .link = 280e9,
     .network = 43e9,
     .call_s = 17e-6,
     .chunk_s = 20e-6,
     .contention = 0.35,
     .multiprocessors = 132,
     .bytes = 141e9,
     .communicator = 508.9e6},
    {.name = "h100",
     .peak = 989e12,
     .share = 0.6,
     .share8 = 0.5,
     .attention_forward = 500e12,
     .attention_backward = 400e12,
     .memory = 2.8e12,
     .passes = 1,
     .link = 360e9,
     .network = 43e9,
     .call_s = 20e-6,
     .multiprocessors = 132,
     .bytes = 80e9},
    {.name = "h100-500w",
     .peak = 989e12,
     .share = 0.5,
     .share8 = 0.4,
     .attention_forward = 380e12,
     .attention_backward = 300e12,
     .memory = 1.9e12,
     .passes = 1,
     .link = 330e9,
     .network = 42e9,
     .call_s = 25e-6,
     .multiprocessors = 132,
     .bytes = 80e9},
    {.name = "a100",
     .peak = 312e12,
     .share = 0.6,
     .share8 = 0.6,
     .attention_forward = 170e12,
     .attention_backward = 130e12,
     .memory = 1.6e12,
     .passes = 1,
     .link = 230e9,
     .network = 22e9,
     .call_s = 25e-6,
     .multiprocessors = 108,
     .bytes = 80e9},
    {0},
};

const mesh_rates *mesh_machine_find(const char *name)
{
    for (const mesh_rates *r = mesh_machines; r->name; r++)
        if (text_is(r->name, name))
            return r;
    return NULL;
}

/* A product is cut into tiles, one on a multiprocessor at a time. Smaller tiles fill the last wave better, and read their
 * operands more often: their speed against the largest, as products of 1024, 2048 and 4096 show on an H200. */
double mesh_product_s(const mesh_rates *r, bool eight_bits, double m, double n, double k)
{
    static const struct {
        double rows, columns, speed;
    } tiles[] = {{128, 256, 1}, {256, 128, 1}, {128, 192, 0.95}, {192, 128, 0.95}, {128, 128, 0.85}, {64, 128, 0.62}};
    const double rate = eight_bits ? 2 * r->peak * r->share8 : r->peak * r->share;
    double best = 0;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const double waves = ceil(ceil(m / tiles[i].rows) * ceil(n / tiles[i].columns) / r->multiprocessors);
        const double filled = m * n / (waves * r->multiprocessors * tiles[i].rows * tiles[i].columns);
        best = fmax(best, filled * tiles[i].speed);
    }
    const double times = r->measured ? mesh_points_at(&r->measured->products, fmax(m, n), fmin(m, n), k) : NAN;
    return 2 * m * n * k / (rate * best) * (times > 0 ? times : 1);
}

double mesh_collective_s(const mesh_rates *r, int host, int inner, int members, double bytes)
{
    if (members < 2)
        return 0;
    const int beside = inner < host ? host / inner : 1; /* of its members, on one host */
    const double rate = members <= beside ? r->link : fmin(r->link, beside * r->network);
    return r->call_s + bytes / rate;
}

/* Bus bandwidth depends more on the size of a call than on its members: a number of members without points has the nearest one's. */
double mesh_calls_s(const mesh_rates *r, mesh_call call, int host, int inner, int members, double bytes, double calls)
{
    const bool within = members <= (inner < host ? host / inner : 1);
    const mesh_points *of = r->measured && within && bytes > 0 ? &r->measured->calls[call] : NULL;
    const double rate = of ? mesh_points_at(of, bytes / calls, mesh_points_nearest_y(of, pow(members, 8)), 1) : NAN;
    return members > 1 && rate > 0 ? bytes / rate : mesh_collective_s(r, host, inner, members, bytes);
}
