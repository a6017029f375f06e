/* SPDX-License-Identifier: MIT */
/* Models and rates of bench_mesh; see planner.h. Dimensions of other people's models are those of their reports: Llama 3 (arXiv
 * 2407.21783, table 3), GPT-3 (arXiv 2005.14165, table 2.1) with Megatron-LM's padded vocabulary. */
#include "bench/mesh/planner.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/model/config.h"

static const struct {
    const char *name;
    mesh_job job;
} others[] = {{"llama3-70b", {128256, 8192, 28672, 80, 64, 8, .matrices = 3}},
              {"llama3-405b", {128256, 16384, 53248, 126, 128, 8, .matrices = 3}},
              {"gpt-175b", {51200, 12288, 49152, 96, 96, 96, .matrices = 2}}};

bool planner_model(const char *name, mesh_job *job)
{
    const model_config *c = model_size_find(name);
    if (c && c->heads) {
        *job = (mesh_job){c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, .matrices = 3};
        return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (text_is(others[i].name, name)) {
            *job = others[i].job;
            return true;
        }
    return false;
}

char *planner_bench_model(const char *name, const mesh_job *j, bool one_gpu)
{
    const bool known = model_size_find(name);
    OWNED char *layers =
        one_gpu ? xstrdup(known ? "" : " --layers 2") : xasprintf(" --layers %lld", (long long)j->layers);
    if (known)
        return xasprintf("--size %s%s", name, layers);
    return xasprintf("--size llama3-8b --d-model %lld --d-ff %lld --heads %lld --heads-kv %lld --vocab %lld%s",
                     (long long)j->d_model, (long long)j->d_ff, (long long)j->heads, (long long)j->heads_kv,
                     (long long)j->vocab, layers);
}

const char *planner_no_bench_model(const mesh_job *j)
{
    return j->matrices == 3 ? NULL : "its feed-forward has two matrices, that of the benches three";
}

/* Bytes of a parameter, its gradient in the policy's dtype, its state. fp8 is bf16 but for its products. */
static const planner_policy policies[] = {{"bf16", 2, 2, 12}, {"bf16-pure", 2, 2, 4}, {"fp8", 2, 2, 12}};

const planner_policy *planner_policy_of(const mesh_job *j)
{
    return j->eight_bits ? &policies[2] : j->state < policies[0].state ? &policies[1] : &policies[0];
}

void planner_policy_set(mesh_job *j, const char *name, const char *grads)
{
    const planner_policy *p = policies;
    while (!text_is(p->name, name))
        p++;
    j->eight_bits = p == &policies[2];
    j->param = p->param;
    j->grad = text_is(grads, "fp32") ? 4 : p->grad;
    j->state = p->state;
}
