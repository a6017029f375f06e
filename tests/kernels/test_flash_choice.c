/* SPDX-License-Identifier: MIT */
/* Which main kernel of the Hopper flash backward a problem gets, on an H200 that is only described, and that the cases of
 * test_gpu meet every one of them. */
#include "tests/support/test.h"

#include <limits.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/attention/hopper/backward/choice.h"
#include "kernels/cuda/attention/hopper/backward/sizes.h"
#include "kernels/cuda/attention/hopper/forward/choice.h"
#include "kernels/cuda/attention/hopper/forward/section.h"
#include "tests/gpu/cases.h"

static const int sms = 132, clusters[4] = {132, 66, 30, 15};

static sb_attention problem(int batch, int heads, int heads_kv, int seq, int head_dim, bool causal, sb_dtype dtype)
{
    return (sb_attention){.batch = batch,
                          .heads = heads,
                          .heads_kv = heads_kv,
                          .seq_q = seq,
                          .seq_k = seq,
                          .head_dim = head_dim,
                          .causal = causal,
                          .dtype = dtype};
}

static flash_backward_choice choice(sb_attention a, bool deterministic)
{
    a.deterministic = deterministic;
    return flash_backward_choose(&a, FLASH_BACKWARD_CHOSEN, sms, clusters);
}

static flash_backward_choice forced(sb_attention a, flash_backward_kernel kernel)
{
    a.deterministic = true;
    return flash_backward_choose(&a, kernel, sms, clusters);
}

TEST(long_rows_of_many_heads)
{
    const sb_attention wide = problem(1, 16, 16, 16384, 128, true, SB_BF16),
                       fp32 = problem(1, 16, 16, 16384, 128, true, SB_FP32),
                       narrow = problem(1, 16, 16, 16384, 64, true, SB_FP16);
    assert_int_equal(choice(wide, false).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(wide, true).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(fp32, false).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(narrow, false).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(narrow, true).kernel, FLASH_BACKWARD_NARROW);
    assert_int_equal(choice(wide, true).sums, 1);
}

/* A pair's start and its second tile's empty steps have to be worth it. */
TEST(short_rows_of_many_heads)
{
    assert_int_equal(choice(problem(8, 16, 16, 1024, 128, true, SB_BF16), false).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(problem(8, 16, 16, 2048, 128, true, SB_BF16), false).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(problem(8, 16, 16, 2048, 96, false, SB_FP16), false).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(problem(8, 16, 16, 2048, 80, true, SB_FP16), false).kernel, FLASH_BACKWARD_WIDE);
    assert_int_equal(choice(problem(8, 16, 16, 8192, 80, true, SB_FP16), false).kernel, FLASH_BACKWARD_PAIR);
    assert_int_equal(choice(problem(4, 25, 25, 1024, 64, true, SB_BF16), false).kernel, FLASH_BACKWARD_NARROW);
    assert_int_equal(choice(problem(8, 32, 32, 2048, 64, true, SB_BF16), false).kernel, FLASH_BACKWARD_NARROW);
    for (int d = 80; d <= 128; d += 16)
        assert_int_equal(choice(problem(8, 16, 16, 2048, d, true, SB_BF16), true).sums, 1);
    assert_int_equal(choice(problem(8, 16, 16, 2048, 128, true, SB_BF16), true).kernel, FLASH_BACKWARD_PAIR);
}

/* Few key tiles are shared by clusters, and by several sums of dQ in order. */
TEST(one_head)
{
    for (int dtype = SB_BF16; dtype <= SB_BF16X3; dtype++)
        for (int seq = 1024; seq <= 16384; seq *= 2)
            for (int d = 64; d <= 128; d += 64) {
                const sb_attention a = problem(1, 1, 1, seq, d, true, (sb_dtype)dtype);
                for (int deterministic = 0; deterministic < 2; deterministic++) {
                    const flash_backward_choice c = choice(a, deterministic);
                    assert_int_equal(c.kernel, FLASH_BACKWARD_WIDE);
                    assert_true(c.split > 1);
                    assert_true(deterministic ? c.sums > 1 && c.sums <= seq / 128 : c.sums == 1);
                }
            }
}

/* With more key tiles than multiprocessors nobody shares one. In order pairs then have several sums, too. */
TEST(one_long_head)
{
    for (int seq = 32768; seq <= 65536; seq *= 2)
        for (int d = 80; d <= 128; d += 16) {
            const sb_attention a = problem(1, 1, 1, seq, d, true, SB_BF16);
            for (int deterministic = 0; deterministic < 2; deterministic++)
                assert_int_equal(choice(a, deterministic).kernel, FLASH_BACKWARD_PAIR);
            assert_int_equal(choice(a, true).sums, seq == 65536 && d == 80 ? 3 : 2);
            assert_int_equal(choice(a, true).early, seq == 32768 ? clusters[1] : 0); /* Q, dO and sums of half of L2 */
        }
    const sb_attention few_columns = problem(1, 1, 1, 65536, 64, true, SB_BF16);
    for (int deterministic = 0; deterministic < 2; deterministic++)
        assert_int_equal(choice(few_columns, deterministic).kernel, FLASH_BACKWARD_WIDE);
}

/* When causal, the first round starts at the diagonal where that saves sums: not if one sum, or one for each adder, is best. */
TEST(early_adders)
{
    for (int seq = 1024; seq <= 16384; seq *= 2)
        for (int d = 64; d <= 128; d += 64) {
            const sb_attention a = problem(1, 1, 1, seq, d, true, SB_BF16),
                               full = problem(1, 1, 1, seq, d, false, SB_BF16);
            const flash_backward_choice c = choice(a, true);
            assert_int_equal(c.early, seq < 8192 ? 0 : clusters[c.split / 2]);
            assert_true(c.early_sums < c.sums && (c.early > 0) == (c.early_sums > 0));
            assert_int_equal(choice(full, true).early, 0);
            assert_int_equal(choice(a, false).early, 0);
        }
    assert_int_equal(choice(problem(1, 16, 16, 4096, 128, true, SB_BF16), true).early, 0);
}

/* Above head_dim 128 tiles are shared by nobody: of 64 keys, and of 128 where V has up to 128 columns. */
TEST(large_heads)
{
    for (int dim = 136; dim <= 256; dim += 8)
        for (int dim_v = 0; dim_v <= 128; dim_v += 128) {
            sb_attention a = problem(1, 4, 2, 1000, dim, true, SB_BF16);
            a.head_dim_v = dim_v;
            const flash_backward_choice c = choice(a, false);
            assert_true(c.kernel == FLASH_BACKWARD_LARGE && c.split == 1 && c.sums == 1);
            assert_int_equal(flash_backward_key_tiles(&a, c.kernel), dim_v && dim <= 192 ? 8 : 16);
            assert_int_equal(flash_backward_step_rows(&a), 64);
            assert_int_equal(flash_backward_padded_dim(&a), dim > 192 ? 256 : 192);
        }
}

/* Up to 192 columns, tiles of 96 keys where there are so many that the length of one does not decide, and keys that fill them. */
TEST(tall_tiles)
{
    for (int causal = 0; causal < 2; causal++)
        for (int dim = 136; dim <= 256; dim += 8) {
            sb_attention many = problem(1, 16, 16, 8192, dim, causal, SB_BF16), packed = many, windowed = many,
                         latent = many;
            const flash_backward_choice c = choice(many, false);
            assert_int_equal(c.kernel, dim <= 192 ? FLASH_BACKWARD_TALL : FLASH_BACKWARD_LARGE);
            assert_int_equal(flash_backward_key_tiles(&many, c.kernel), dim <= 192 ? 86 : 128);
            packed.packed = true, packed.documents = 1, windowed.windowed = true, latent.head_dim_v = 128;
            assert_int_equal(choice(many, true).kernel, c.kernel);
            assert_int_equal(choice(packed, false).kernel, FLASH_BACKWARD_LARGE);
            assert_int_equal(choice(windowed, false).kernel, FLASH_BACKWARD_LARGE);
            assert_int_equal(choice(latent, false).kernel, FLASH_BACKWARD_LARGE);
        }
    assert_int_equal(choice(problem(4, 16, 16, 1024, 192, true, SB_BF16), false).kernel, FLASH_BACKWARD_TALL);
    assert_int_equal(choice(problem(1, 1, 1, 4096, 192, true, SB_BF16), false).kernel, FLASH_BACKWARD_LARGE);
    assert_int_equal(choice(problem(1, 4, 4, 4096, 192, true, SB_BF16), false).kernel, FLASH_BACKWARD_LARGE);
    assert_int_equal(choice(problem(1, 5, 5, 4096, 192, true, SB_BF16), false).kernel, FLASH_BACKWARD_TALL);
    assert_int_equal(choice(problem(1, 8, 8, 2048, 192, false, SB_BF16), false).kernel,
                     FLASH_BACKWARD_LARGE); /* 2 rounds of each */
    assert_int_equal(choice(problem(1, 6, 6, 2048, 192, false, SB_BF16), false).kernel,
                     FLASH_BACKWARD_TALL); /* 1, not 2 */
    assert_int_equal(choice(problem(64, 16, 16, 128, 192, false, SB_BF16), false).kernel, FLASH_BACKWARD_LARGE);
}

/* In order, so many causal heads are walked together that eight tiles of each begin at once; few heads have several sums each. */
TEST(large_heads_in_order)
{
    sb_attention many = problem(2, 32, 20, 8192, 256, true, SB_BF16), few = problem(1, 1, 1, 4096, 256, true, SB_BF16);
    assert_int_equal(choice(many, true).sums, 1);
    assert_int_equal(flash_backward_wide_section(&many, FLASH_BACKWARD_LARGE, sms), 2); /* as fit in L2 */
    many.deterministic = few.deterministic = true;
    assert_int_equal(flash_backward_wide_section(&many, FLASH_BACKWARD_LARGE, sms), 14); /* three of 40 */
    sb_attention full = many;
    full.causal = false;
    assert_int_equal(flash_backward_wide_section(&full, FLASH_BACKWARD_LARGE, sms), 2); /* as fit in L2 */
    assert_int_equal(flash_backward_wide_section(&few, FLASH_BACKWARD_LARGE, sms), 1);
    assert_true(choice(few, true).sums > 1 &&
                choice(few, true).sums <= flash_backward_key_tiles(&few, FLASH_BACKWARD_LARGE));
}

/* A kernel that is asked for runs as suits it best, and has no more sums than adders. */
TEST(asked_for)
{
    const sb_attention a = problem(1, 1, 1, 1024, 128, true, SB_BF16),
                       many = problem(2, 9, 3, 1100, 128, false, SB_FP16);
    const flash_backward_choice wide = forced(a, FLASH_BACKWARD_WIDE), pair = forced(a, FLASH_BACKWARD_PAIR),
                                narrow = forced(a, FLASH_BACKWARD_NARROW);
    assert_true(wide.kernel == FLASH_BACKWARD_WIDE && wide.split > 1 && wide.sums == 8);
    assert_true(pair.kernel == FLASH_BACKWARD_PAIR && pair.sums == 4);
    assert_true(narrow.kernel == FLASH_BACKWARD_NARROW && narrow.sums == 1);
    assert_int_equal(flash_backward_choose(&a, FLASH_BACKWARD_PAIR, sms, clusters).sums, 1); /* not deterministic */
    assert_int_equal(flash_backward_most_sums(&many, FLASH_BACKWARD_WIDE), 9);
    assert_int_equal(flash_backward_most_sums(&many, FLASH_BACKWARD_PAIR), 5);
    assert_int_equal(flash_backward_most_sums(&many, FLASH_BACKWARD_NARROW), 1);
}

static int section(int batch, int heads, int heads_kv, int seq, sb_dtype dtype)
{
    const sb_attention a = problem(batch, heads, heads_kv, seq, 128, true, dtype);
    return flash_backward_wide_section(&a, FLASH_BACKWARD_WIDE, sms);
}

/* Heads of the forward that are walked together: as many as fit in 32 MB, but in equal sections; without a
 * mask those of one key/value head. */
TEST(forward_sections)
{
    static const struct {
        int batch, heads, heads_kv, seq, head_dim, head_dim_v, section;
    } cases[] = {{1, 16, 16, 16384, 128, 0, 4},  {1, 16, 16, 8192, 192, 0, 4},  /* where 5 fit */
                 {8, 16, 16, 2048, 96, 0, 32},                                  /* 42 */
                 {1, 40, 40, 4096, 128, 0, 14},                                 /* 16 */
                 {1, 7, 7, 20000, 128, 0, 4},                                   /* 3, and one left over */
                 {1, 32, 8, 8192, 128, 0, 32},   {1, 28, 4, 32768, 128, 0, 14}, /* groups of 4 and 7 */
                 {1, 16, 16, 8192, 192, 128, 6}, {1, 2, 2, 524288, 128, 0, 1},  /* not one */
                 {1, 1, 1, 128, 64, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sb_attention a =
            problem(cases[i].batch, cases[i].heads, cases[i].heads_kv, cases[i].seq, cases[i].head_dim, true, SB_BF16);
        a.head_dim_v = cases[i].head_dim_v;
        assert_int_equal(flash_forward_section(&a), cases[i].section);
        a.causal = false;
        assert_int_equal(flash_forward_section(&a), cases[i].heads / cases[i].heads_kv);
        a.windowed = true;
        assert_int_equal(flash_forward_section(&a), cases[i].section);
    }
    const sb_attention fp32 = problem(1, 16, 16, 16384, 128, true, SB_FP32); /* parts take twice as much */
    assert_int_equal(flash_forward_section(&fp32), 2);
}

static flash_forward_choice forward(sb_attention a, flash_forward_kernel kernel)
{
    return flash_forward_choose(&a, kernel, clusters);
}

/* Two tiles share K and V in long rows of many heads, where there are such kernels and unless another is asked for. */
TEST(forward_pairs)
{
    const sb_attention rows = problem(1, 16, 16, 16384, 128, true, SB_BF16),
                       full = problem(8, 16, 16, 2048, 128, false, SB_FP16),
                       few = problem(1, 1, 1, 4096, 128, true, SB_BF16),
                       brief = problem(4, 16, 16, 1024, 128, true, SB_BF16),
                       narrow = problem(1, 16, 16, 16384, 80, true, SB_BF16),
                       parts = problem(1, 16, 16, 16384, 128, true, SB_FP32);
    sb_attention windowed = rows, packed = rows, latent = problem(1, 16, 16, 8192, 192, true, SB_BF16);
    windowed.windowed = true, packed.packed = true, packed.documents = 4, latent.head_dim_v = 128;
    const sb_attention pairs[] = {rows, full, latent, problem(1, 16, 16, 16384, 96, false, SB_BF16)},
                       alone[] = {few, brief, narrow, parts, windowed, packed};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_true(forward(pairs[i], FLASH_FORWARD_CHOSEN).paired &&
                    forward(pairs[i], FLASH_FORWARD_CHOSEN).split == 1);
        assert_false(forward(pairs[i], FLASH_FORWARD_ALONE).paired);
    }
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        const flash_forward_choice c = forward(alone[i], FLASH_FORWARD_CHOSEN);
        assert_true(c.groups > 0 && !c.paired);
    }
    assert_true(forward(few, FLASH_FORWARD_CHOSEN).split > 1);
    assert_true(forward(few, FLASH_FORWARD_PAIRED).paired && forward(brief, FLASH_FORWARD_PAIRED).paired);
    assert_int_equal(forward(narrow, FLASH_FORWARD_PAIRED).groups, 0);
    assert_int_equal(forward(problem(1, 16, 16, 16384, 264, true, SB_BF16), FLASH_FORWARD_CHOSEN).groups, 0);
}

/* Documents of equal length are walked as sequences of a batch are: the narrow kernel and the one for pairs, whatever order. */
TEST(documents_are_walked_as_sequences)
{
    for (int dim = 64; dim <= 128; dim += 64) {
        sb_attention a = problem(1, 16, 16, 8 * 2048, dim, true, SB_BF16);
        a.packed = true, a.documents = 8;
        assert_int_equal(flash_backward_choose(&a, FLASH_BACKWARD_CHOSEN, sms, clusters).kernel,
                         dim == 64 ? FLASH_BACKWARD_NARROW : FLASH_BACKWARD_PAIR);
        assert_int_equal(flash_backward_wide_section(&a, FLASH_BACKWARD_WIDE, sms), 16); /* of one long document 2 */
        assert_int_equal(flash_backward_narrow_section(&a, sms, true), 16);
        a.documents = 1;
        assert_int_equal(flash_backward_wide_section(&a, FLASH_BACKWARD_WIDE, sms), dim == 64 ? 4 : 2);
        assert_int_equal(flash_backward_narrow_section(&a, sms, true), 8);
        a.documents = INT_MAX / 16;
        assert_int_equal(flash_backward_wide_section(&a, FLASH_BACKWARD_WIDE, sms), 16);
    }
}

/* The first jobs of a section fill the chip, sections are equal, and what they walk stays in L2 where both can be had. */
TEST(sections_fill_the_chip)
{
    assert_int_equal(section(8, 16, 16, 2048, SB_BF16), 16); /* 20 fit; 128 are no multiple */
    assert_int_equal(section(8, 16, 16, 512, SB_BF16), 64);  /* 80 fit */
    assert_int_equal(section(1, 16, 16, 8192, SB_BF16), 4);  /* 5 fit */
    assert_int_equal(section(1, 16, 16, 4096, SB_FP32), 8);  /* 6 fit; there is no divisor from 5 to 6 */
    assert_int_equal(section(1, 32, 8, 8192, SB_BF16), 4);   /* one fits, and 2 x 64 key tiles are less than 132 */
    assert_int_equal(section(1, 32, 8, 4096, SB_BF16), 8);
    assert_int_equal(section(1, 28, 4, 8192, SB_BF16), 4);
    assert_int_equal(section(1, 16, 16, 32768, SB_BF16), 1);
    assert_int_equal(section(1, 1, 1, 1024, SB_BF16), 1);
    for (int heads = 1; heads <= 64; heads++)
        for (int seq = 100; seq <= 40000; seq = seq * 3 / 2) {
            const int n = section(1, heads, heads, seq, SB_BF16);
            assert_true(n >= 1 && n <= heads);
            assert_true(n == heads || n * ((seq + 127) / 128) >= sms);
        }
}

/* The sum over rounds that split_time makes, and the average that it takes where there are many, meet. */
TEST(rounds_become_an_average)
{
    for (int causal = 0; causal < 2; causal++)
        for (int split = 1, i = 0; split <= 8; split *= 2, i++) {
            const int64_t many = 64 * (int64_t)clusters[i];
            const double sum = split_time(many, 100, causal, 4, 5, split, clusters[i]),
                         average = split_time(many + 1, 100, causal, 4, 5, split, clusters[i]);
            assert_true(fabs(average / sum - 1) < 0.02);
            assert_true(split_time(1, 100, causal, 4, 5, split, clusters[i]) == 4 + 100.0 / split);
        }
}

/* Every kernel, the wide one whole, shared, with several sums, and with early adders, and pairs in order, with early adders or
 * without, serves some case of test_gpu. */
TEST(cases_meet_every_kernel)
{
    enum { ONE_BLOCK, SHARED, SUMS, EARLY, NARROW, PAIR, PAIR_ORDERED, PAIR_EARLY, KINDS };
    int met[KINDS][SB_BF16X3 + 1] = {0}, n;
    test_case *const cases = cases_create(&n);
    for (int i = 0; i < n; i++)
        for (int deterministic = 0; deterministic < 2; deterministic++) {
            const test_case *const t = &cases[i];
            sb_attention a = problem(t->batch, t->heads, t->heads_kv, t->seq_q, t->head_dim, t->causal, t->dtype);
            a.seq_k = t->seq_k;
            if (t->head_dim > 128 || t->dtype == SB_TF32)
                continue;
            const flash_backward_choice c = choice(a, deterministic);
            const bool ordered = deterministic && c.sums < flash_backward_most_sums(&a, c.kernel);
            met[c.kernel == FLASH_BACKWARD_NARROW ? NARROW
                : c.kernel == FLASH_BACKWARD_PAIR ? (c.early > 0 ? PAIR_EARLY
                                                     : ordered   ? PAIR_ORDERED
                                                                 : PAIR)
                : c.early > 0                     ? EARLY
                : c.sums > 1                      ? SUMS
                : c.split > 1                     ? SHARED
                                                  : ONE_BLOCK][t->dtype]++;
        }
    free(cases);
    for (int kind = 0; kind < KINDS; kind++) {
        assert_true(met[kind][SB_BF16] > 0);
        assert_true(met[kind][SB_FP16] > 0);
        assert_true(kind == NARROW || kind >= PAIR || met[kind][SB_FP32] > 0);
    }
    assert_true(met[PAIR][SB_BF16] >= 6); /* each width, causal or not */
}

#else
int main(void)
{
    return skip_program();
}
#endif
