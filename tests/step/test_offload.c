/* SPDX-License-Identifier: MIT */
/* Activations that leave for the host's memory and come back: every bit as before, less memory of the device. Under
 * ThreadSanitizer a missing edge between the step and its copies is a data race. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

/* Whatever else is computed again, with everything beside the backward or nothing; each kind in its turn. On a GPU the fused
 * steps are replayed as a graph. */
TEST(offloading)
{
    static const int kinds[] = {OFFLOAD_BLOCK, OFFLOAD_RESIDUAL, OFFLOAD_MLP, OFFLOAD_ATTN};
    int turn = 0;
    for (int i = 0; i < POLICIES; i++)
        for (const sb_attention_op *op = bed.kernels->attention; op->name; op++)
            for (int mask = 0; mask < 4; mask++) {
                step_options o = three_blocks(policies[i]);
                o.attention = op->name;
                o.deterministic = true;
                o.fusion = mask & 1 ? FUSION_NONE : FUSION_GRAPH;
                o.overlap = mask & 2 ? OVERLAP_ALL : OVERLAP_NONE;
                outcome want = outcome_of(&o);
                for (int what = RECOMPUTE_NONE; what <= RECOMPUTE_BLOCK; what++) {
                    char name[96];
                    o.recompute = (recompute)what;
                    o.offload = kinds[turn++ % 4];
                    snprintf(name, sizeof name, "%s %s mask %d %s offload %d", policies[i], op->name, mask,
                             recompute_name(o.recompute), o.offload);
                    same_outcome(&want, &o, name);
                }
                outcome_free(&want);
            }
}

/* Any blocks, and any number of them in flight; several micro-batches write the same memory of the host. */
TEST(offloaded_schedules)
{
    for (int micro = 1; micro <= 2; micro++) {
        step_options o = three_blocks("fp32");
        o.config.layers = 7;
        o.micro_batches = micro;
        outcome want = outcome_of(&o);
        recompute_schedule s = recompute_uniform(7, RECOMPUTE_NONE, 1);
        recompute_set(&s, 2, 3, RECOMPUTE_BLOCK, 3);
        recompute_set(&s, 0, 1, RECOMPUTE_SELECTIVE, 1);
        recompute_set(&s, 6, 1, RECOMPUTE_MLP, 1);
        o.schedule = &s;
        for (int behind = 0; behind <= 8; behind++)
            for (int ahead = 0; ahead <= 8; ahead++) {
                char name[80];
                s.away[0] = OFFLOAD_BLOCK, s.away[1] = OFFLOAD_ATTN, s.away[5] = OFFLOAD_BLOCK, s.away[6] = OFFLOAD_MLP;
                s.behind = behind, s.ahead = ahead;
                snprintf(name, sizeof name, "%d micro-batches, %d behind, %d ahead", micro, behind, ahead);
                same_outcome(&want, &o, name);
            }
        outcome_free(&want);
    }
}

/* Less memory, by what left; what cannot leave is said. */
TEST(offloading_saves)
{
    char why[200];
    step_options o = three_blocks("fp32");
    o.config.layers = 6, o.seq = 64, o.config.vocab = 16;
    o.attention = "flash";
    o.overlap = OVERLAP_NONE;
    const int64_t kept = trainer_planned_bytes(bed.dev, bed.kernels, bed.ctx, &o);
    o.offload = OFFLOAD_BLOCK;
    const int64_t away = trainer_planned_offload(bed.dev, bed.kernels, bed.ctx, &o);
    const int64_t tokens = (int64_t)o.batch * o.seq, d = o.config.d_model, f = o.config.d_ff;
    const int64_t qkv = d + 2 * (int64_t)model_kv_dim(&o.config);
    assert_true(away >= 5 * tokens * (5 * d + qkv + 3 * f) * 4);
    assert_true(away <= 5 * (tokens * (5 * d + qkv + 3 * f) * 4 + 9 * 256));
    const int64_t left = trainer_planned_bytes(bed.dev, bed.kernels, bed.ctx, &o);
    assert_true(left < kept - away / 2);
    o.mode = STEP_FORWARD;
    assert_int_equal(trainer_planned_offload(bed.dev, bed.kernels, bed.ctx, &o), 0);
    o.mode = STEP_TRAIN;
    o.recompute = RECOMPUTE_BLOCK;
    o.recompute_every = 2;
    assert_null(trainer_create(bed.dev, bed.mem, bed.kernels, bed.ctx, &o, why, sizeof why));
    assert_string_equal(why, "blocks that are recomputed in groups or nested are not offloaded");
}

TESTS_WITH(bed_create, bed_destroy)
