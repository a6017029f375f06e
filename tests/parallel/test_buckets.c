/* SPDX-License-Identifier: MIT */
/* Cutting an index space in buckets and in parts that ranks own: plain arithmetic, on spaces by hand and at random. */
#include "tests/support/test.h"

#include "common/core/rng.h"
#include "common/parallel/buckets.h"

/* ---- spaces ---- */

enum { MOST = 64 };

typedef struct space {
    int64_t starts[MOST + 1];
    index_space s;
} space;

static void space_of(space *p, const int64_t *sizes, int n)
{
    for (int i = 0; i < n; i++)
        p->starts[i + 1] = p->starts[i] + sizes[i];
    p->s = (index_space){.starts = p->starts, .tensors = n};
}
#define SPACE(name, ...)                                                                                               \
    space name = {0};                                                                                                  \
    space_of(&name, (const int64_t[]){__VA_ARGS__}, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)))

/* 0 <= result < n */
static int64_t draw(uint64_t seed, uint32_t what, int i, int64_t n)
{
    return (int64_t)(rng_uniform(seed, what, (uint64_t)i) * (double)n);
}

/* Tensors of 1 to 5000 elements, some lying against the one before, the last one padded to the granularity. */
static void random_space(space *p, uint64_t seed, int ranks)
{
    const int n = 1 + (int)draw(seed, 0, 0, MOST);
    const int64_t unit = (int64_t)BUCKET_ALIGNMENT * ranks;
    int64_t sizes[MOST], all = 0;
    for (int i = 0; i < n; i++) {
        sizes[i] = 1 + draw(seed, 1, i, i % 3 ? 700 : 5000);
        if (i % 4)
            sizes[i] = (sizes[i] + 63) / 64 * 64;
        all += sizes[i];
    }
    sizes[n - 1] += (all + unit - 1) / unit * unit - all;
    memset(p, 0, sizeof *p);
    space_of(p, sizes, n);
}

static int64_t end_of(const space *p)
{
    return p->starts[p->s.tensors];
}

static void assert_counts(buckets b, const int64_t *counts, int n)
{
    int64_t first = 0;
    assert_int_equal(b.n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(b.b[i].first, first);
        assert_int_equal(b.b[i].count, counts[i]);
        first += counts[i];
    }
    buckets_free(&b);
    assert_null(b.b);
}
#define ASSERT_COUNTS(b, ...)                                                                                          \
    assert_counts(b, (const int64_t[]){__VA_ARGS__}, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)))

/* ---- buckets ---- */

TEST(by_tensor_and_whole)
{
    SPACE(p, 256, 512, 128);
    ASSERT_COUNTS(buckets_by_size(&p.s, 0), 256, 512, 128);
    ASSERT_COUNTS(buckets_by_size(&p.s, INT64_MAX), 896);
    SPACE(one, 64);
    ASSERT_COUNTS(buckets_by_size(&one.s, 0), 64);
    ASSERT_COUNTS(buckets_by_size(&one.s, INT64_MAX), 64);
}

TEST(greedy_by_size)
{
    SPACE(p, 256, 512, 128);
    ASSERT_COUNTS(buckets_by_size(&p.s, 1), 256, 512, 128);
    ASSERT_COUNTS(buckets_by_size(&p.s, 256), 256, 512, 128); /* a tensor larger than the cap is alone */
    ASSERT_COUNTS(buckets_by_size(&p.s, 640), 256, 640);
    ASSERT_COUNTS(buckets_by_size(&p.s, 767), 256, 640);
    ASSERT_COUNTS(buckets_by_size(&p.s, 768), 768, 128); /* exactly full */
    ASSERT_COUNTS(buckets_by_size(&p.s, 895), 768, 128);
    ASSERT_COUNTS(buckets_by_size(&p.s, 896), 896);
    SPACE(large, 64, 64, 6400, 64, 64, 64);
    ASSERT_COUNTS(buckets_by_size(&large.s, 128), 128, 6400, 128, 64); /* nothing joins the large one */
    SPACE(first, 6400, 64);
    ASSERT_COUNTS(buckets_by_size(&first.s, 128), 6400, 64);
}

TEST(aligned_ends_move_down)
{
    SPACE(p, 100, 156, 500, 12); /* ends 100, 256, 756, 768 */
    buckets b = buckets_by_size(&p.s, 0);
    buckets_align(&b, 2); /* to 128: ends 0, 256, 640, 768 */
    ASSERT_COUNTS(b, 256, 384, 128);
    b = buckets_by_size(&p.s, 0);
    buckets_align(&b, 4); /* to 256: ends 0, 256, 512, 768 */
    ASSERT_COUNTS(b, 256, 256, 256);
    b = buckets_by_size(&p.s, 0);
    buckets_align(&b, 12); /* to 768: one is left */
    ASSERT_COUNTS(b, 768);
}

/* Whatever the space and the cap: the buckets are the space, in order; within the cap unless one tensor is larger; and
 * each begins with a tensor that did not fit any more in the one before. */
TEST(random_buckets)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        const int ranks = 1 + (int)(seed % 8);
        const int64_t cap = 1 + draw(seed, 2, 0, 9000), unit = (int64_t)BUCKET_ALIGNMENT * ranks;
        space p;
        random_space(&p, seed, ranks);
        buckets b = buckets_by_size(&p.s, cap);
        int tensor = 0;
        for (int i = 0; i < b.n; i++) {
            const int from = tensor;
            assert_int_equal(b.b[i].first, p.starts[tensor]);
            while (p.starts[tensor] < b.b[i].first + b.b[i].count)
                tensor++;
            assert_int_equal(b.b[i].first + b.b[i].count, p.starts[tensor]);
            assert_true(b.b[i].count <= cap || tensor == from + 1);
            if (tensor < p.s.tensors)
                assert_true(p.starts[tensor + 1] - b.b[i].first > cap);
        }
        assert_int_equal(tensor, p.s.tensors);

        const int cut = b.n;
        buckets_align(&b, ranks);
        int64_t end = 0;
        for (int i = 0; i < b.n; i++) {
            assert_int_equal(b.b[i].first, end);
            assert_true(b.b[i].count > 0 && b.b[i].count % unit == 0);
            end += b.b[i].count;
        }
        assert_int_equal(end, end_of(&p));
        assert_true(b.n <= cut);
        buckets_free(&b);
    }
}

/* ---- ownership ---- */

/* Adds 1 to each element that o owns, and checks that its state is without gaps. */
static void count_owned(const ownership *o, unsigned char *owners)
{
    int64_t state = 0, end = -1;
    for (int i = 0; i < o->n; i++) {
        assert_true(o->r[i].first >= end && o->r[i].count > 0);
        assert_int_equal(o->r[i].state_first, state);
        for (int64_t k = 0; k < o->r[i].count; k++)
            owners[o->r[i].first + k]++;
        state += o->r[i].count;
        end = o->r[i].first + o->r[i].count;
    }
    assert_int_equal(state, o->state_elements);
}

static void assert_all_once(const unsigned char *owners, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (owners[i] != 1)
            fail_msg("element %lld has %d owners", (long long)i, owners[i]);
}

TEST(everything_is_owned_once)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        const int ranks = 1 + (int)(seed % 8);
        space p;
        random_space(&p, seed, ranks);
        OWNED unsigned char *slices = xcalloc((unsigned long)end_of(&p), 1),
                            *tensors = xcalloc((unsigned long)end_of(&p), 1);
        buckets b = buckets_by_size(&p.s, 2000);
        buckets_align(&b, ranks);
        int64_t least = INT64_MAX, most = 0, largest = 0;
        for (int r = 0; r < ranks; r++) {
            ownership o = own_slices(&b, r, ranks, 0);
            assert_int_equal(o.n, b.n);
            assert_null(o.owner);
            for (int i = 0; i < b.n; i++) {
                assert_int_equal(o.r[i].first, b.b[i].first + r * b.b[i].count / ranks);
                assert_int_equal(o.r[i].count * ranks, b.b[i].count);
            }
            assert_int_equal(o.state_elements * ranks, end_of(&p));
            count_owned(&o, slices);
            ownership_free(&o);

            o = own_tensors(&p.s, r, ranks);
            count_owned(&o, tensors);
            for (int i = 1; i < o.n; i++) /* neighbours are joined */
                assert_true(o.r[i].first > o.r[i - 1].first + o.r[i - 1].count);
            least = o.state_elements < least ? o.state_elements : least;
            most = o.state_elements > most ? o.state_elements : most;
            ownership_free(&o);
        }
        assert_all_once(slices, end_of(&p));
        assert_all_once(tensors, end_of(&p));
        for (int i = 0; i < p.s.tensors; i++)
            largest = p.starts[i + 1] - p.starts[i] > largest ? p.starts[i + 1] - p.starts[i] : largest;
        /* The fullest rank got its last tensor when it held no more than any other does now. */
        assert_true(most - least <= largest);
        buckets_free(&b);
    }
}

TEST(owners_of_tensors)
{
    SPACE(p, 64, 512, 64, 256, 128, 128);
    static const int owner[] = {0, 0, 1, 1, 1, 1}; /* 512:0, 256:1, 128:1, 128:1 (384 < 512), 64:0 of equal, 64:1 */
    for (int rank = 0; rank < 2; rank++) {
        ownership o = own_tensors(&p.s, rank, 2);
        for (int i = 0; i < 6; i++)
            assert_int_equal(o.owner[i], owner[i]);
        assert_int_equal(o.n, 1);
        assert_int_equal(o.r[0].first, rank ? 576 : 0);
        assert_int_equal(o.r[0].count, 576);
        assert_int_equal(o.state_elements, 576);
        ownership_free(&o);
    }
    ownership none = own_tensors(&p.s, 2, 2); /* no member */
    assert_int_equal(none.n, 0);
    assert_int_equal(none.state_elements, 0);
    ownership_free(&none);
}

TEST(owners_of_more_ranks_than_tensors)
{
    SPACE(p, 64, 128);
    int64_t held = 0;
    for (int rank = 0; rank < 5; rank++) {
        ownership o = own_tensors(&p.s, rank, 5);
        assert_true(o.n <= 1);
        held += o.state_elements;
        ownership_free(&o);
    }
    assert_int_equal(held, 192);
}

TEST(everyone_owns_all)
{
    SPACE(p, 64, 512, 100);
    ownership o = own_all(&p.s);
    assert_int_equal(o.n, 1);
    assert_int_equal(o.r[0].first, 0);
    assert_int_equal(o.r[0].count, 676);
    assert_int_equal(o.r[0].state_first, 0);
    assert_int_equal(o.state_elements, 676);
    assert_null(o.owner);
    ownership_free(&o);
    assert_null(o.r);
}
