/* SPDX-License-Identifier: MIT */
/* FLOPs of a transformer's step: the figures that the course's sizes must have, both conventions, and known peaks. */
#include "tests/support/test.h"

#include "common/formulas/model.h"

static const struct size {
    const char *name;
    int d_model, d_ff, layers, heads;
    int64_t matmul_parameters;
    double full, causal; /* GFLOP a token at 512 tokens, to three places */
} sizes[] = {
    {"small", 768, 3072, 12, 12, 120926208, 0.782, 0.754},     {"medium", 1024, 4096, 24, 16, 412893184, 2.628, 2.553},
    {"large", 1280, 5120, 36, 20, 956518400, 6.022, 5.881},    {"xl", 1600, 6400, 48, 25, 1982080000, 12.364, 12.128},
    {"2.7b", 2560, 10240, 32, 32, 3381043200, 20.790, 20.538},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static transformer_shape shape_of(const struct size *z, int64_t batch, int64_t seq)
{
    return (transformer_shape){10000, z->d_model, z->d_ff, z->layers, z->heads, z->heads, batch, seq};
}

static void assert_close(double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

TEST(the_sizes_of_the_course)
{
    for (int i = 0; i < SIZES; i++) {
        transformer_shape s = shape_of(&sizes[i], 4, 512);
        assert_true(transformer_matmul_parameters(&s) == (double)sizes[i].matmul_parameters);
        double tokens = transformer_tokens(&s);
        assert_true(tokens == 2048);
        double full = transformer_step_flops(&s, FLOPS_FULL) / tokens / 1e9;
        double causal = transformer_step_flops(&s, FLOPS_CAUSAL) / tokens / 1e9;
        assert_true(fabs(full - sizes[i].full) <= 0.0005000001);
        assert_true(fabs(causal - sizes[i].causal) <= 0.0005000001);
    }
}

TEST(conventions)
{
    transformer_shape s = shape_of(&sizes[3], 3, 1024);
    double tokens = 3 * 1024.0, n = 1982080000.0, attention = 48.0 * 1024 * 1600;
    assert_close(transformer_step_flops(&s, FLOPS_FULL), (6 * n + 12 * attention) * tokens, 1e-15);
    assert_close(transformer_step_flops(&s, FLOPS_CAUSAL), (6 * n + 6 * attention) * tokens, 1e-15);
    assert_close(3 * transformer_forward_flops(&s, FLOPS_FULL), transformer_step_flops(&s, FLOPS_FULL), 1e-15);
    assert_close(3 * transformer_forward_flops(&s, FLOPS_CAUSAL), transformer_step_flops(&s, FLOPS_CAUSAL), 1e-15);
}

TEST(grouped_heads_have_fewer_weights_and_as_many_scores)
{
    transformer_shape s = shape_of(&sizes[0], 1, 256), grouped = s;
    grouped.heads_kv = 4; /* of 12 */
    double saved = 12 * 2 * 768.0 * (768 - 256);
    assert_close(transformer_matmul_parameters(&s) - transformer_matmul_parameters(&grouped), saved, 1e-15);
    assert_close(transformer_step_flops(&s, FLOPS_FULL) - transformer_step_flops(&grouped, FLOPS_FULL), 6 * saved * 256,
                 1e-12);
}

/* Full checkpointing: 8 (N - V d) + 6 V d and 16 (8 causal) L S d for each token; the head is not repeated. */
TEST(repeats)
{
    for (int i = 0; i < SIZES; i++) {
        transformer_shape s = shape_of(&sizes[i], 2, 2048);
        double tokens = transformer_tokens(&s), d = (double)s.d_model, head = 10000.0 * d;
        double n = (double)sizes[i].matmul_parameters, attention = (double)s.layers * 2048 * d;
        const int64_t all = s.layers;
        const transformer_repeats nothing = {0}, blocks = {all, all, all, all, all, 0}, scores = {.scores = all};
        const transformer_repeats needed = {.qkv = 1, .attention = 1, .gate_up = 1}; /* o and w2 of one block are not */
        for (flops_convention c = FLOPS_CAUSAL; c <= FLOPS_FULL; c++) {
            double times = c == FLOPS_FULL ? 2 : 1;
            assert_true(transformer_repeated_flops(&s, nothing, c) == 0);
            assert_close(transformer_step_flops(&s, c) + transformer_repeated_flops(&s, blocks, c),
                         (8 * (n - head) + 6 * head + 8 * times * attention) * tokens, 1e-14);
            assert_close(transformer_repeated_flops(&s, scores, c), times * attention * tokens, 1e-15);
            assert_close(transformer_repeated_flops(&s, needed, c),
                         (2 * (3 * d * d + 2 * d * (double)s.d_ff) + 2 * times * 2048 * d) * tokens, 1e-14);
        }
    }
}

TEST(large_shapes_do_not_overflow)
{
    transformer_shape s = {1 << 20, 1 << 16, 1 << 18, 1024, 1024, 1024, 65536, 1 << 20};
    double flops = transformer_step_flops(&s, FLOPS_FULL);
    assert_true(isfinite(flops) && flops > 1e25);
}

TEST(peaks_of_known_gpus_alone)
{
    assert_true(peak_tflops("NVIDIA H200", "bf16") == 989.4);
    assert_true(peak_tflops("NVIDIA H100 80GB HBM3", "fp16") == 989.4);
    assert_true(peak_tflops("NVIDIA H200", "fp8") == 1978.9);
    assert_true(isnan(peak_tflops("NVIDIA A100-SXM4-80GB", "fp8")));
    assert_true(peak_tflops("NVIDIA H200", "tf32") == 494.7);
    assert_true(peak_tflops("NVIDIA H200", "fp32") == 66.9);
    assert_true(peak_gb_s("NVIDIA H200") == 4800 && peak_gb_s("NVIDIA H100 PCIe") == 2000);
    assert_true(isnan(peak_gb_s("NVIDIA A100-SXM4-80GB")) && isnan(peak_gb_s("some CPU")));
    /* A name that goes on is another GPU. */
    assert_true(peak_tflops("NVIDIA H20", "bf16") == 148 && peak_gb_s("NVIDIA H20-3e") == 4800);
    assert_true(isnan(peak_tflops("NVIDIA H2000", "bf16")) && isnan(peak_tflops("NVIDIA B2000", "bf16")));
    assert_true(isnan(peak_tflops("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16")));
    assert_true(isnan(peak_tflops("NVIDIA GeForce RTX 5090 D", "bf16")));
    assert_true(peak_tflops("NVIDIA GeForce RTX 4090", "bf16") == 165.2);
    assert_true(peak_tflops("NVIDIA GeForce RTX 5090", "fp8") == 419);
    assert_true(peak_tflops("NVIDIA GH200 480GB", "bf16") == 989.4 && peak_gb_s("NVIDIA GH200 480GB") == 4000);
    assert_true(peak_gb_s("NVIDIA GH200 144G HBM3e") == 4900 && peak_tflops("NVIDIA H800", "tf32") == 494.7);
    assert_true(peak_tflops("NVIDIA B200", "bf16") == 2250 && peak_tflops("NVIDIA GB200", "bf16") == 2500);
    assert_true(peak_tflops("NVIDIA L40S", "fp8") == 733 && isnan(peak_tflops("NVIDIA RTX A6000", "fp8")));
    /* 8 bits are twice 16, which are twice tf32, but for rounding in the data sheet. */
    static const char *const all[] = {"NVIDIA H100 PCIe",
                                      "NVIDIA H200",
                                      "NVIDIA GH200 480GB",
                                      "NVIDIA H800",
                                      "NVIDIA H20",
                                      "NVIDIA B200",
                                      "NVIDIA GB200",
                                      "NVIDIA L40S",
                                      "NVIDIA GeForce RTX 4090",
                                      "NVIDIA GeForce RTX 5090"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_float_equal(peak_tflops(all[i], "fp8") / peak_tflops(all[i], "bf16"), 2, 0.03);
        assert_float_equal(peak_tflops(all[i], "bf16") / peak_tflops(all[i], "tf32"), 2, 0.03);
    }
    assert_true(peak_tflops("NVIDIA H200", "fp16x3") == 989.4 / 3);
    assert_true(peak_tflops("NVIDIA H200", "bf16x3") == 989.4 / 3);
    assert_true(peak_tflops("NVIDIA H200", "bf16x6") == 989.4 / 6);
    assert_true(peak_tflops("NVIDIA H100 PCIe", "bf16") == 756);
    assert_true(peak_tflops("NVIDIA A100-SXM4-80GB", "bf16") == 312);
    static const char *const unknown[] = {"NVIDIA H200 NVL", "NVIDIA H2", "NVIDIA GeForce RTX 3090", "Intel Xeon", ""};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_true(isnan(peak_tflops(unknown[i], "bf16")));
    assert_true(isnan(peak_tflops("NVIDIA H200", "fp6")));
}

/* Where attention has a third of the operations of the weights and a peak six times theirs: 4 / (3/10 + 1/60) = 12.63. */
TEST(peak_of_two_kinds_of_products)
{
    /* one block, d 64, F 64, a vocabulary of 2: 2 x (7 x 4096 + 128) operations a token, and 2 S d of attention */
    transformer_shape s = {.vocab = 2, .d_model = 64, .d_ff = 64, .layers = 1, .heads = 1, .heads_kv = 1, .batch = 3};
    s.seq = 2 * (7 * 4096 + 128) / (3 * 2 * 64);
    const double weights = 2.0 * (7 * 4096 + 128), attention = 2.0 * 64 * (double)s.seq;
    const double want = (weights + attention) / (weights / 10 + attention / 60);
    assert_true(fabs(want - 12.63) < 0.01);
    assert_true(fabs(transformer_peak_tflops(&s, 10, 60) - want) < 1e-9);
    assert_true(fabs(transformer_peak_tflops(&s, 10, 10) - 10) < 1e-12);
    assert_true(isnan(transformer_peak_tflops(&s, 10, NAN)));
}
