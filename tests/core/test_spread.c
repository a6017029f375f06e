/* SPDX-License-Identifier: MIT */
/* Loops over pieces of an array: every element once, sums that do not depend on the number of threads. */
#include "tests/support/test.h"

#include <sched.h>
#include <sys/mman.h>

#include "common/core/spread.h"

static void count_each(void *arg, size_t first, size_t count)
{
    unsigned char *seen = arg;
    assert_true(count > 0);
    for (size_t i = first; i < first + count; i++)
        seen[i]++;
}

TEST(every_element_once)
{
    static const size_t sizes[] = {0, 1, 6, 7, 8, 7 * 4 - 1, 7 * 4, 7 * 4 + 1, 100000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        OWNED unsigned char *seen = xcalloc(sizes[s] + 1, 1);
        spread_pieces(sizes[s], 7, count_each, seen);
        for (size_t i = 0; i <= sizes[s]; i++)
            if (seen[i] != (i < sizes[s]))
                fail_msg("element %zu of %zu was seen %d times", i, sizes[s], seen[i]);
    }
}

static spread_sums three_sums(const void *arg, size_t first, size_t count)
{
    const float *x = arg;
    spread_sums s = {{0}};
    for (size_t i = first; i < first + count; i++) {
        s.x[0] += x[i];
        s.x[1] += 1.0 / (1.0 + x[i]); /* rounded: its sum depends on the order */
        s.x[2] += 1;
    }
    return s;
}

TEST(sums_do_not_depend_on_threads)
{
    const size_t n = (size_t)SPREAD_PIECE * 6 + 5;
    OWNED float *x = xmalloc(n * sizeof *x);
    cpu_set_t before, one;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 1001);
    const spread_sums many = spread_sum(n, three_sums, x);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const spread_sums alone = spread_sum(n, three_sums, x);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_memory_equal(&many, &alone, sizeof many);
    assert_true(many.x[2] == (double)n);
    const spread_sums none = spread_sum(0, three_sums, x);
    assert_true(none.x[0] == 0 && none.x[2] == 0);
}

TEST(copies)
{
    const size_t n = ((size_t)5 << 20) + 3;
    OWNED unsigned char *from = xmalloc(n), *to = xcalloc(n + 1, 1);
    for (size_t i = 0; i < n; i++)
        from[i] = (unsigned char)(i * 31 >> 3);
    spread_copy(to, from, n);
    assert_memory_equal(to, from, n);
    assert_int_equal(to[n], 0);
}

TEST(pages_are_there)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = ((size_t)9 << 20) / page, n = pages * page - page / 2;
    unsigned char *p = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OWNED unsigned char *there = xcalloc(pages, 1);
    assert_ptr_not_equal(p, MAP_FAILED);
    madvise(p, pages * page, MADV_NOHUGEPAGE); /* or one touch would bring many */
    assert_int_equal(mincore(p, pages * page, there), 0);
    assert_int_equal(there[0] & 1, 0);
    spread_touch(p + page - 1, n - page + 1);
    assert_int_equal(mincore(p, pages * page, there), 0);
    for (size_t i = 0; i < pages; i++)
        if (!(there[i] & 1))
            fail_msg("page %zu of %zu is not there", i, pages);
    munmap(p, pages * page);
}
