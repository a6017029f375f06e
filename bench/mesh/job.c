/* SPDX-License-Identifier: MIT */
/* Models and rates of bench_mesh; see planner.h. Dimensions of other people's models are those of their reports: Llama 3 (arXiv
 * 2407.21783, table 3), GPT-3 (arXiv 2005.14165, table 2.1) with Megatron-LM's padded vocabulary. */
#include <math.h>
#include <stdlib.h>

#include "bench/accounting/accounting.h"
#include "bench/mesh/planner.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/model/config.h"
#include "common/session/ceiling.h"

static const struct {
    const char *name;
    int64_t vocab, d_model, d_ff, layers, heads, heads_kv;
    int matrices;
} others[] = {{"llama3-8b", 128256, 4096, 14336, 32, 32, 8, 3},
              {"llama3-70b", 128256, 8192, 28672, 80, 64, 8, 3},
              {"llama3-405b", 128256, 16384, 53248, 126, 128, 8, 3},
              {"gpt-175b", 51200, 12288, 49152, 96, 96, 96, 2}};

bool planner_model(const char *name, mesh_job *job)
{
    const model_config *c = model_size_find(name);
    if (c) {
        *job = (mesh_job){.vocab = c->vocab,
                          .d_model = c->d_model,
                          .d_ff = c->d_ff,
                          .layers = c->layers,
                          .heads = c->heads,
                          .heads_kv = c->heads_kv,
                          .matrices = 3};
        return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (text_is(others[i].name, name)) {
            *job = (mesh_job){.vocab = others[i].vocab,
                              .d_model = others[i].d_model,
                              .d_ff = others[i].d_ff,
                              .layers = others[i].layers,
                              .heads = others[i].heads,
                              .heads_kv = others[i].heads_kv,
                              .matrices = others[i].matrices};
            return true;
        }
    return false;
}

/* The best rate of FlashAttention at D 128 in the rows of bench_flash, FLOP/s; NAN: there is none. */
static double measured_attention(const char *dir, const char *column)
{
    char *path = xasprintf("%s/bench_flash.csv", dir);
    csv *c = csv_read(path);
    double best = NAN;
    for (size_t i = 0; c && i < c->rows; i++)
        if (csv_is(c, i, "status", "ok") && csv_is(c, i, "dtype", "bf16") && csv_is(c, i, "head_dim", "128"))
            best = fmax(best, csv_real(c, i, column));
    csv_free(c);
    free(path);
    return 1e12 * best;
}

static void replace(double *rate, double measured)
{
    if (measured > 0)
        *rate = measured;
}

bool planner_rates(const session *s, const bench_case *c, row *w, mesh_rates *r)
{
    const char *name = case_text(c, "rates"), *dir = s->results_dir, *from;
    if (!text_is(name, "measured")) {
        *r = *mesh_machine_find(name);
        return true;
    }
    const double products = 1e12 * ceiling_tflops(NULL, dir, "bf16"), link = accounting_measured_bandwidth(dir, &from);
    *r = *mesh_machine_find("h200");
    if (isnan(products)) {
        row_status_set(w, ROW_SKIP,
                       "no rates: %s/bench_roofline.csv has no bf16 gemm; ./bench_roofline --variant gemm --dtype bf16 "
                       "measures it, and --rates %s does without",
                       dir, MESH_MACHINE_NAMES);
        return false;
    }
    r->share = products / r->peak;
    if (device_kind_of(s->dev) == DEVICE_CUDA)
        r->bytes = (double)device_get_info(s->dev)->memory_bytes;
    replace(&r->memory, 1e9 * ceiling_copy_gb_s(NULL, dir));
    replace(&r->attention_forward, measured_attention(dir, "fwd_tflops"));
    replace(&r->attention_backward, measured_attention(dir, "bwd_tflops"));
    replace(&r->link, link);
    if (isnan(link))
        row_status_set(w, ROW_OK, "the link's bandwidth is an H200's: no row of this machine has one");
    return true;
}
