/* SPDX-License-Identifier: MIT */
/* The planner's formulas: limits that need no model, closed forms by hand, this project's measurements, and the search against
 * trying every mesh. */
#include "tests/support/test.h"

#include "common/formulas/mesh/layer.h"
#include "common/formulas/model.h"
#include "common/pipeline/simulate.h"

static const mesh_job model_2_7b = {.vocab = 10000,
                                    .d_model = 2560,
                                    .d_ff = 10240,
                                    .layers = 32,
                                    .heads = 32,
                                    .heads_kv = 32,
                                    .seq = 2048,
                                    .matrices = 3,
                                    .global_batch = 4,
                                    .host = 8,
                                    .param = 2,
                                    .grad = 2,
                                    .state = 8};
static const mesh_job llama_8b = {.vocab = 128256,
                                  .d_model = 4096,
                                  .d_ff = 14336,
                                  .layers = 32,
                                  .heads = 32,
                                  .heads_kv = 8,
                                  .seq = 8192,
                                  .matrices = 3,
                                  .global_batch = 128,
                                  .host = 8,
                                  .param = 2,
                                  .grad = 4,
                                  .state = 12};

static void near(double value, double wanted, double share)
{
    if (!(fabs(value - wanted) <= share * fabs(wanted)))
        fail_msg("%.6g is not %.6g within %g %%", value, wanted, 100 * share);
}

static mesh_plan plan_of(int pp, int replicate, int shard, int cp, int tp, mesh_strategy strategy)
{
    return (mesh_plan){.axes = {pp, replicate, shard, cp, tp}, .strategy = strategy, .chunks = 1, .micro_batch = 1};
}

static const mesh_rates *h200(void)
{
    return mesh_machine_find("h200");
}

/* results/h200-x1/bench_roofline.csv: TFLOP/s of square bf16 products. */
TEST(products_of_h200)
{
    static const double sizes[] = {1024, 2048, 4096, 8192}, tflops[] = {409.7, 692.1, 672.9, 635.6};
    for (int i = 0; i < 4; i++)
        near(2 * pow(sizes[i], 3) / mesh_product_s(h200(), false, sizes[i], sizes[i], sizes[i]) / 1e12, tflops[i],
             0.08);
    /* A product that fills no wave pays for a whole one; a dozen waves pay little. */
    assert_true(mesh_product_s(h200(), false, 64, 128, 4096) >
                80 * mesh_product_s(h200(), false, 8192, 8192, 4096) / 8192);
    near(mesh_product_s(h200(), true, 4096, 4096, 4096) * 2 * h200()->share8,
         mesh_product_s(h200(), false, 4096, 4096, 4096) * h200()->share, 1e-12);
}

/* W = min(link, members on a host x network). */
TEST(bandwidth_of_groups)
{
    const mesh_rates r = {.link = 300, .network = 40, .call_s = 1};
    near(mesh_collective_s(&r, 8, 1, 8, 600), 1 + 600. / 300, 1e-12);  /* within a host */
    near(mesh_collective_s(&r, 8, 1, 16, 600), 1 + 600. / 300, 1e-12); /* 8 cards are more than the link */
    near(mesh_collective_s(&r, 8, 2, 16, 600), 1 + 600. / 160, 1e-12); /* 4 members on a host */
    near(mesh_collective_s(&r, 8, 8, 48, 600), 1 + 600. / 40, 1e-12);  /* one */
    near(mesh_collective_s(&r, 8, 2, 4, 600), 1 + 600. / 300, 1e-12);
    near(mesh_collective_s(&r, 8, 64, 2, 600), 1 + 600. / 40, 1e-12);
    assert_true(mesh_collective_s(&r, 8, 1, 1, 600) == 0);
}

TEST(operations)
{
    const transformer_shape s = {10000, 2560, 10240, 32, 32, 32, 4, 2048};
    near(mesh_step_flops(&model_2_7b, true), transformer_step_flops(&s, FLOPS_CAUSAL), 1e-12);
    near(mesh_step_flops(&model_2_7b, false), transformer_step_flops(&s, FLOPS_FULL), 1e-12);
}

/* results/h200-x1-steps/bench_transformer.csv: 2.7b, batch 4, bf16, --overlap none; forward and backward, ms. 10 % is what one
 * share of the peak and one rate of memory can do for both. */
TEST(steps_of_one_gpu)
{
    static const struct {
        int64_t seq;
        double forward, backward;
    } rows[] = {{1024, 43.55, 94.03}, {2048, 89.70, 197.08}};
    for (int i = 0; i < 2; i++) {
        mesh_job j = model_2_7b;
        mesh_plan p = plan_of(1, 1, 1, 1, 1, MESH_DDP);
        j.seq = rows[i].seq;
        p.micro_batch = 4;
        const mesh_pass block = mesh_block(&j, &p, h200()), head = mesh_head(&j, &p, h200());
        near(1e3 * (32 * mesh_seconds_sum(&block.f) + mesh_seconds_sum(&head.f)), rows[i].forward, 0.1);
        near(1e3 * (32 * (mesh_seconds_sum(&block.b) + mesh_seconds_sum(&block.w)) + mesh_seconds_sum(&head.b) +
                    mesh_seconds_sum(&head.w)),
             rows[i].backward, 0.1);
    }
}

TEST(stages)
{
    int blocks[128], sum = 0;
    mesh_stages(126, 128, 0.66, blocks); /* as Llama 3 405B had it: the first and the last chunk have no block */
    assert_int_equal(blocks[0], 0);
    assert_int_equal(blocks[127], 0);
    for (int i = 1; i < 127; i++)
        assert_int_equal(blocks[i], 1);
    mesh_stages(96, 48, 0.43,
                blocks); /* an even division, where one block less on the last stage would be one more elsewhere */
    for (int i = 0; i < 48; i++)
        assert_int_equal(blocks[i], 2);
    mesh_stages(34, 2, 3, blocks); /* 8b: its head is as long as three blocks */
    assert_int_equal(blocks[0], 18);
    assert_int_equal(blocks[1], 16);
    mesh_stages(32, 5, 1.5, blocks);
    for (int i = 0; i < 5; i++)
        sum += blocks[i];
    assert_int_equal(sum, 32);
    mesh_stages(7, 1, 2, blocks);
    assert_int_equal(blocks[0], 7);
}

/* Bytes by hand: 8b's block has 2 d^2 + 2 d kv + 3 d F = 218,103,808 parameters, its ends 128256 d each. */
TEST(bytes_of_a_rank)
{
    const double block = 218103808., ends = 128256. * 4096, all = 32 * block + 2 * ends, tokens = 8192;
    const double kept = tokens * (2 * (6 * 4096 + 2 * 1024 + 3 * 14336.) + 4 * 32);
    mesh_plan p = plan_of(1, 1, 8, 1, 1, MESH_FSDP_FREE);
    const mesh_bytes whole = mesh_memory(&llama_8b, &p);
    near(mesh_block_parameters(&llama_8b), block, 1e-12);
    near(whole.params, 2 * all / 8, 1e-12);
    near(whole.grads, 4 * all / 8, 1e-12);
    near(whole.state, 12 * all / 8, 1e-12);
    near(whole.activations, 32 * kept, 1e-12);
    near(whole.gathered, (2 * 2 + 4) * ends, 1e-12); /* the embedding is larger than a block */
    near(whole.logits, 2 * tokens * 128256, 1e-12);
    near(whole.total, 18 * all / 8 + 32 * kept + 8 * ends + 2 * tokens * 128256, 1e-12);
    p.strategy = MESH_ZERO1;
    near(mesh_memory(&llama_8b, &p).grads, 4 * all, 1e-12);
    near(mesh_memory(&llama_8b, &p).state, 12 * all / 8, 1e-12);
    p.recompute = MESH_BLOCK;
    near(mesh_memory(&llama_8b, &p).activations, 32 * tokens * 2 * 4096 + kept, 1e-12);
    mesh_plan pipe = plan_of(4, 1, 1, 1, 2, MESH_DDP); /* 4 micro-batches of 8 layers, each cut in two */
    pipe.schedule = pipeline_schedule_find("1f1b");
    near(mesh_memory(&llama_8b, &pipe).activations, 4 * 8 * kept / 2, 1e-12);
    near(mesh_memory(&llama_8b, &pipe).params, 2 * (8 * block + ends) / 2, 1e-12);
}

/* What a step adds up to, and what communication that is hidden saves. */
TEST(parts_of_a_step)
{
    mesh_plan p = plan_of(2, 1, 2, 2, 2, MESH_ZERO1);
    p.schedule = pipeline_schedule_find("1f1b");
    const mesh_prediction plain = mesh_predict(&llama_8b, &p, h200(), true);
    p.overlap = true;
    const mesh_prediction hidden = mesh_predict(&llama_8b, &p, h200(), true);
    double sum = 0;
    for (int i = 0; i < MESH_PARTS; i++) {
        assert_true(plain.parts[i] > 0);
        sum += plain.parts[i];
    }
    near(sum, plain.step_s, 1e-12);
    assert_int_equal(plain.micro_batches, 64);
    mesh_rates without_flags = *h200();
    without_flags.chunk_s = 0;
    const double least = mesh_predict(&llama_8b, &p, &without_flags, true).parts[MESH_TENSOR];
    assert_true(least < 0.5 * plain.parts[MESH_TENSOR]);
    assert_true(hidden.parts[MESH_TENSOR] > least && hidden.parts[MESH_TENSOR] < plain.parts[MESH_TENSOR]);
    assert_true(hidden.parts[MESH_CONTEXT] < plain.parts[MESH_CONTEXT]);
    assert_true(hidden.parts[MESH_PRODUCTS] == plain.parts[MESH_PRODUCTS]);
    p.axes.tp = 1;
    p.axes.dp_shard = 4;
    assert_true(mesh_predict(&llama_8b, &p, h200(), true).parts[MESH_TENSOR] == 0);
    p.recompute = MESH_BLOCK;
    assert_true(mesh_predict(&llama_8b, &p, h200(), true).step_s > 1.2 * hidden.step_s);
}

/* Bytes over W, where compute takes no time, by strategy; and where it takes for ever, only the last unit. 4 micro-batches. */
TEST(traffic_by_strategy)
{
    const double block = 218103808., all = 32 * block + 2 * 128256. * 4096, part = 7 / 8.;
    const double unit = part * (2 + 4) * block;
    const double wanted[] = {[MESH_DDP] = 2 * part * 4 * (all + block),
                             [MESH_ZERO1] = part * (4 + 2) * all + unit,
                             [MESH_ZERO2] = part * (4 * 4 + 2) * all + unit,
                             [MESH_FSDP_KEEP] = part * (4 + 2) * all + unit,
                             [MESH_FSDP_FREE] = part * (4 * 2 * 2 + 4) * all + unit};
    mesh_job j = llama_8b;
    j.global_batch = 32;
    for (int i = 0; i < MESH_STRATEGIES; i++) {
        const mesh_plan p = plan_of(1, i == MESH_DDP ? 8 : 1, i == MESH_DDP ? 1 : 8, 1, 1, (mesh_strategy)i);
        mesh_rates r = *h200();
        r.call_s = r.contention = 0;
        r.link = 1e9;
        r.peak = r.attention_forward = r.attention_backward = r.memory = 1e30;
        near(mesh_predict(&j, &p, &r, true).parts[MESH_GRADIENTS], wanted[i] / 1e9, 1e-6);
        r.peak = 1e6;
        near(mesh_predict(&j, &p, &r, true).parts[MESH_GRADIENTS], (i ? unit : 2 * part * 4 * block) / 1e9, 1e-6);
    }
    /* Two replicas of four: each rank sums its quarter of the gradients with its twin. */
    const mesh_plan p = plan_of(1, 2, 4, 1, 1, MESH_FSDP_KEEP);
    mesh_rates r = *h200();
    r.call_s = r.contention = 0;
    r.link = 1e9;
    r.peak = r.attention_forward = r.attention_backward = r.memory = 1e30;
    near(mesh_predict(&j, &p, &r, true).parts[MESH_GRADIENTS],
         (3 / 4. * 6 * (all + block) + 2 * (1 / 2.) * 4 * all / 4) / 1e9, 1e-6);
}

/* Compute that is long enough hides a collective but for what it loses beside it. */
TEST(contention)
{
    const mesh_plan p = plan_of(1, 8, 1, 1, 1, MESH_DDP);
    mesh_rates r = *h200();
    mesh_job j = llama_8b;
    j.global_batch = 8;
    r.contention = 0;
    r.peak = 1e9;
    const double plain = mesh_predict(&j, &p, &r, true).parts[MESH_GRADIENTS];
    const double takes = mesh_collective_s(&r, 8, 1, 8, 2 * 7 / 8. * 4 * (32 * 218103808. + 2 * 128256. * 4096));
    r.contention = 0.25;
    near(mesh_predict(&j, &p, &r, true).parts[MESH_GRADIENTS] - plain, takes / 4, 1e-9);
    r.peak = r.attention_forward = r.attention_backward = r.memory = 1e30; /* nothing is slowed down */
    near(mesh_predict(&j, &p, &r, true).parts[MESH_GRADIENTS] - plain, takes, 1e-6);
}

/* What was measured at a place counts there, what is far away hardly; and each kind of point does what it says. */
TEST(measured_shapes)
{
    mesh_measured m = {0};
    mesh_rates r = *h200();
    r.measured = &m;
    assert_true(isnan(mesh_points_at(&m.products, 1, 1, 1)));
    const double model = mesh_product_s(&r, false, 4096, 1024, 512);
    mesh_points_add(&m.products, 4096, 1024, 512, 3);
    mesh_points_add(&m.products, 64, 64, 64, 100);
    mesh_points_add(&m.products, 64, 64, 64, NAN);
    mesh_points_add(&m.products, 4096, 1024, 512, 2); /* in place of 3 */
    assert_int_equal(m.products.count, 2);
    near(mesh_product_s(&r, false, 4096, 1024, 512), 2 * model, 1e-9);
    near(mesh_product_s(&r, false, 1024, 4096, 512), 2 * model, 1e-9);
    near(mesh_points_at(&m.products, 4096, 1024, 1024), 2, 0.02);
    near(mesh_points_at(&m.products, 512, 256, sqrt(512 * 64.)), 51, 1e-6); /* half-way */

    mesh_points_add(&m.calls[MESH_GATHER], 1e6, pow(4, 8), 1, 5e9);
    mesh_points_add(&m.calls[MESH_GATHER], 1e6, pow(2, 8), 1, 1e9);
    near(mesh_calls_s(&r, MESH_GATHER, 8, 1, 4, 4e6, 4), 4e6 / 5e9, 1e-9);
    near(mesh_calls_s(&r, MESH_GATHER, 8, 1, 2, 4e6, 4), 4e6 / 1e9, 1e-9);
    mesh_points_add(&m.calls[MESH_GATHER], 1e3, pow(4, 8), 1, 1e7); /* 8 have the rate of 4 at their size */
    near(mesh_calls_s(&r, MESH_GATHER, 8, 1, 8, 4e6, 4), 4e6 / 5e9, 1e-9);
    near(mesh_calls_s(&r, MESH_GATHER, 8, 1, 8, 4e3, 4), 4e3 / 1e7, 1e-9);
    near(mesh_calls_s(&r, MESH_SUM, 8, 1, 4, 4e6, 4), mesh_collective_s(&r, 8, 1, 4, 4e6), 1e-12);
    near(mesh_calls_s(&r, MESH_GATHER, 8, 8, 4, 4e6, 4), mesh_collective_s(&r, 8, 8, 4, 4e6), 1e-12);

    mesh_plan p = plan_of(1, 1, 1, 1, 1, MESH_DDP);
    const mesh_pass plain = mesh_block(&llama_8b, &p, &r);
    mesh_points_add(&m.compute[0], 8192, 8192, 1, 1.5);
    mesh_points_add(&m.compute[1], 8192, 8192, 1, 0.5);
    const mesh_pass corrected = mesh_block(&llama_8b, &p, &r);
    near(mesh_seconds_sum(&corrected.f), 1.5 * mesh_seconds_sum(&plain.f), 1e-9);
    near(mesh_seconds_sum(&corrected.b), 0.5 * mesh_seconds_sum(&plain.b), 1e-9);
    near(mesh_seconds_sum(&corrected.w), 0.5 * mesh_seconds_sum(&plain.w), 1e-9);
    p.recompute = MESH_BLOCK; /* is a forward */
    const mesh_pass again = mesh_block(&llama_8b, &p, &r);
    near(mesh_seconds_sum(&again.b), mesh_seconds_sum(&corrected.b) + mesh_seconds_sum(&corrected.f), 1e-9);
    p.recompute = MESH_BUT_ATTENTION; /* of its products the two that attention and SwiGLU read */
    const mesh_seconds some = mesh_block(&llama_8b, &p, &r).b, *whole = &corrected.b, *forward = &corrected.f;
    const double inputs =
        1.5 * (mesh_product_s(&r, false, 8192, 6144, 4096) + mesh_product_s(&r, false, 8192, 28672, 4096));
    near(some.part[MESH_PRODUCTS], whole->part[MESH_PRODUCTS] + inputs, 1e-9);
    near(some.part[MESH_PASSES], whole->part[MESH_PASSES] + forward->part[MESH_PASSES], 1e-9);
    near(some.part[MESH_ATTENTION], whole->part[MESH_ATTENTION], 1e-9);
    mesh_points_add(&m.attention[0], 128, 8192, 32, 1e12);
    near(mesh_block(&llama_8b, &p, &r).f.part[MESH_ATTENTION], 1.5 * 2 * 8192. * 8192 * 4096 / 1e12, 1e-9);
    p = plan_of(1, 1, 1, 2, 1, MESH_DDP); /* a call has 8 heads of 16 tiles, for 132 multiprocessors */
    const mesh_pass shared = mesh_block(&llama_8b, &p, &r);
    near(shared.f.part[MESH_ATTENTION], 132 / 128. * 1.5 * 2 * 4096. * 8192 * 4096 / 1e12, 1e-9);
    r.op_s = 1;
    near(mesh_block(&llama_8b, &p, &r).f.part[MESH_PASSES] - shared.f.part[MESH_PASSES], 4 * (4 + 2), 1e-9);
    mesh_points_free(&m.products);
    mesh_points_free(&m.calls[MESH_GATHER]);
    mesh_points_free(&m.attention[0]);
    for (int i = 0; i < 2; i++)
        mesh_points_free(&m.compute[i]);
}

static double gradients_of(mesh_plan *p, double contention)
{
    mesh_rates r = *h200();
    r.contention = contention;
    return mesh_predict(&model_2_7b, p, &r, true).parts[MESH_GRADIENTS];
}

/* A pipeline of 2 stages has 3 micro-batches in its way where each rank has 2, and 2 where only one meets a collective. */
TEST(contention_of_stages)
{
    mesh_plan p = plan_of(2, 2, 1, 1, 1, MESH_DDP);
    p.schedule = pipeline_schedule_find("1f1b");
    const double held = 16 * mesh_block_parameters(&model_2_7b) + 10000. * 2560;
    const double gather = mesh_collective_s(h200(), 8, 1, 2, held), sum = mesh_collective_s(h200(), 8, 1, 2, 2 * held);
    near(gradients_of(&p, 0.2) - gradients_of(&p, 0.1), 0.1 * 2 * sum, 1e-9);
    p.axes = (mesh){2, 1, 2, 1, 1};
    p.strategy = MESH_FSDP_KEEP; /* a gather and a scatter, of as many bytes */
    near(gradients_of(&p, 0.2) - gradients_of(&p, 0.1), 0.1 * 2 * 2 * gather, 1e-9);
    p.each_micro = true;
    near(gradients_of(&p, 0.2) - gradients_of(&p, 0.1), 0.1 * 3 * 2 * gather, 1e-9);
    p.strategy = MESH_FSDP_FREE;
    near(gradients_of(&p, 0.6) - gradients_of(&p, 0.5), 0.1 * 3 / 2 * (2 * 2 + 1) * gather, 1e-9);
}

/* With all rows of norms on each rank, partial products are summed, and nothing is gathered. */
TEST(sums_of_whole_rows)
{
    mesh_plan p = plan_of(1, 1, 1, 1, 2, MESH_DDP);
    const mesh_pass apart = mesh_block(&llama_8b, &p, h200());
    p.rows_whole = true;
    const mesh_pass whole = mesh_block(&llama_8b, &p, h200());
    const double sum = mesh_collective_s(h200(), 8, 1, 2, 2 * 8192. * 4096),
                 part = mesh_collective_s(h200(), 8, 1, 2, 8192. * 4096);
    near(whole.f.part[MESH_TENSOR], 2 * sum, 1e-9);
    near(whole.b.part[MESH_TENSOR], 2 * sum, 1e-9);
    near(apart.f.part[MESH_TENSOR], 4 * part, 1e-9);
    assert_true(whole.w.part[MESH_TENSOR] == 0 && whole.f.part[MESH_PRODUCTS] == apart.f.part[MESH_PRODUCTS]);
    near(whole.f.part[MESH_PASSES] - apart.f.part[MESH_PASSES], h200()->passes * 2 * 8192. * 7 * 4096 / h200()->memory,
         1e-9);
}

/* Gathers that wait are exposed in full; stages of as many blocks wait for the one with the head. */
TEST(plans_of_our_own)
{
    mesh_plan p = plan_of(1, 1, 1, 1, 2, MESH_DDP);
    assert_true(mesh_block(&llama_8b, &p, h200()).w.part[MESH_TENSOR] == 0);
    p.regather_waits = true;
    near(mesh_block(&llama_8b, &p, h200()).w.part[MESH_TENSOR], 2 * mesh_collective_s(h200(), 8, 1, 2, 8192. * 4096),
         1e-9);
    p = plan_of(2, 1, 1, 1, 1, MESH_DDP);
    p.schedule = pipeline_schedule_find("1f1b");
    const double balanced = mesh_predict(&llama_8b, &p, h200(), true).step_s;
    p.even = true;
    assert_true(mesh_predict(&llama_8b, &p, h200(), true).step_s > 1.02 * balanced);
}

/* A long pipeline is extended from a short one: against the whole table, with the same stages. */
TEST(long_pipelines)
{
    for (const pipeline_schedule *row = pipeline_schedules; row->name; row++) {
        mesh_plan p = plan_of(4, 1, 1, 1, 1, MESH_DDP);
        p.schedule = row;
        p.chunks = row->chunks_least;
        p.overlap = true;
        mesh_job j = llama_8b;
        j.layers = 32 * p.chunks; /* even stages but for the head */
        const mesh_pass block = mesh_block(&j, &p, h200()), head = mesh_head(&j, &p, h200());
        const double f = mesh_seconds_sum(&block.f), b = mesh_seconds_sum(&block.b), w = mesh_seconds_sum(&block.w);
        const double hf = mesh_seconds_sum(&head.f), hb = mesh_seconds_sum(&head.b), hw = mesh_seconds_sum(&head.w);
        const pipeline_shape s = {row, 4, p.chunks, 128};
        int blocks[16];
        double t[3][16];
        mesh_stages(j.layers, pipeline_stages(&s), (hf + hb + hw) / (f + b + w), blocks);
        for (int i = 0; i < pipeline_stages(&s); i++) {
            const bool last = i + 1 == pipeline_stages(&s);
            t[0][i] = blocks[i] * f + (last ? hf : 0);
            t[1][i] = blocks[i] * b + (last ? hb : 0);
            t[2][i] = blocks[i] * w + (last ? hw : 0);
        }
        const pipeline_costs costs = {
            .f = t[0], .b = t[1], .w = t[2], .hop = h200()->call_s + 2. * 8192 * 4096 / h200()->link};
        pipeline_table *table = pipeline_table_create(&s, &costs);
        const double whole = pipeline_simulate(table, &costs, NULL).makespan;
        pipeline_table_free(table);
        const mesh_prediction x = mesh_predict(&j, &p, h200(), true);
        near(x.step_s - x.parts[MESH_UPDATE], whole, 0.004);
    }
}

TEST(refused_plans)
{
    char why[256];
    mesh_plan p = plan_of(1, 1, 3, 1, 1, MESH_DDP);
    assert_string_equal(mesh_plan_problem(&llama_8b, &p, why, sizeof why),
                        "global batch 128 is not a multiple of 3, of all replicas' micro-batches");
    p = plan_of(2, 1, 1, 1, 1, MESH_DDP);
    assert_string_equal(mesh_plan_problem(&llama_8b, &p, why, sizeof why), "pp 2 needs a schedule");
    p = plan_of(1, 1, 1, 1, 5, MESH_DDP);
    assert_string_equal(mesh_plan_problem(&llama_8b, &p, why, sizeof why), "heads 32 are not a multiple of tp 5");
}

/* ---- the search ---- */

/* The fastest way of 8 GPUs by trying all of them with whole simulations. */
static double fastest_of_all(double bytes, int *plans)
{
    double best = INFINITY;
    char why[256];
    *plans = 0;
    for (int pp = 1; pp <= 8; pp++)
        for (int tp = 1; tp <= 8; tp++)
            for (int cp = 1; cp <= 8; cp++)
                for (int n = 0; n < 5 * 6 * 4; n++) {
                    mesh_plan p = plan_of(pp, 1, 8 / (pp * tp * cp), cp, tp, (mesh_strategy)(n % 5));
                    static const mesh_recompute ways[] = {MESH_KEEP, MESH_SELECTIVE, MESH_BUT_ATTENTION, MESH_BLOCK};
                    const int schedule = n / 5 % 6, micro = n / 30;
                    if (pp * tp * cp * p.axes.dp_shard != 8)
                        continue;
                    if (p.strategy == MESH_DDP) {
                        p.axes.dp_replicate = p.axes.dp_shard;
                        p.axes.dp_shard = 1;
                    } else if (p.axes.dp_shard * cp == 1)
                        continue;
                    p.overlap = true;
                    p.micro_batch = 1 << micro;
                    if (pp > 1 && schedule == 5)
                        continue;
                    p.schedule = pp > 1 ? &pipeline_schedules[schedule] : NULL;
                    for (p.chunks = pp > 1 ? p.schedule->chunks_least : 1;
                         p.chunks <= (pp > 1 ? p.schedule->chunks_most : 1) && p.chunks <= 8; p.chunks *= 2)
                        for (int w = 0; w < 4; w++) {
                            p.recompute = ways[w];
                            if (mesh_plan_problem(&llama_8b, &p, why, sizeof why) || (pp == 1 && schedule > 0))
                                continue;
                            ++*plans;
                            const mesh_prediction x = mesh_predict(&llama_8b, &p, h200(), true);
                            if (x.bytes.total <= bytes)
                                best = fmin(best, x.step_s);
                        }
                }
    return best;
}

TEST(search_finds_the_fastest)
{
    int plans;
    const mesh_question q = {llama_8b, 8, 70e9, 8, true, {0}};
    const mesh_answer a = mesh_search(&q, h200());
    near(a.best[0].p.step_s, fastest_of_all(70e9, &plans), 1e-9);
    assert_int_equal(a.plans, plans);
    assert_true(a.best_count > 4 && a.lacking_count >= 1 && a.ties >= 2 && a.ties <= a.best_count);
    for (int i = 0; i < a.best_count; i++) {
        assert_true(a.best[i].p.bytes.total <= 70e9);
        assert_true(i == 0 || a.best[i].p.step_s >= a.best[i - 1].p.step_s);
        assert_true((a.best[i].p.step_s <= 1.08 * a.best[0].p.step_s) == (i < a.ties));
        for (int k = 0; k < i; k++)
            assert_true(memcmp(&a.best[i].plan.axes, &a.best[k].plan.axes, sizeof(mesh)) != 0);
    }
    for (int i = 0; i < a.lacking_count; i++) {
        assert_true(a.lacking[i].p.bytes.total > 70e9);
        assert_true(i == 0 || a.lacking[i].p.bytes.total >= a.lacking[i - 1].p.bytes.total);
        for (int k = 0; k < a.best_count; k++)
            assert_true(memcmp(&a.lacking[i].plan.axes, &a.best[k].plan.axes, sizeof(mesh)) != 0);
    }
}

TEST(search_within_a_mesh)
{
    const mesh_question q = {llama_8b, 8, 80e9, 8, true, {.pp = 2, .cp = 1, .tp = 2}};
    const mesh_answer a = mesh_search(&q, h200());
    for (int i = 0; i < a.best_count; i++)
        assert_true(a.best[i].plan.axes.pp == 2 && a.best[i].plan.axes.tp == 2 && a.best[i].plan.axes.cp == 1);
    assert_true(a.best_count >= 1);
    const mesh_question none = {llama_8b, 8, 1e9, 8, true, {0}};
    const mesh_answer b = mesh_search(&none, h200());
    assert_true(b.best_count == 0 && b.fits == 0 && b.ties == 0 && b.lacking_count > 0);
}
