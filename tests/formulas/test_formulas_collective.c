/* SPDX-License-Identifier: MIT */
/* Bandwidth of collectives: the factors of nccl-tests, gigabytes of 1e9, and sizes that say their unit. */
#include "tests/support/test.h"

#include "common/formulas/collective.h"

TEST(factors)
{
    assert_true(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 2) == 1);
    assert_true(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 4) == 1.5);
    assert_true(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 8) == 1.75);
    assert_true(collective_bus_factor(COLLECTIVE_ALL_GATHER, 4) == 0.75);
    assert_true(collective_bus_factor(COLLECTIVE_REDUCE_SCATTER, 8) == 0.875);
    assert_true(collective_bus_factor(COLLECTIVE_BROADCAST, 8) == 1);
    assert_true(collective_bus_factor(COLLECTIVE_REDUCE, 8) == 1);
    assert_true(collective_bus_factor(COLLECTIVE_ALL_TO_ALL, 4) == 0.75);
    assert_true(collective_bus_factor(COLLECTIVE_SEND_RECV, 4) == 1);
    assert_true(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 1) == 0); /* nothing crosses a link */
    /* 1 GiB in 3.27 ms on two ranks */
    const double rate = collective_gb_s(1073741824.0, 3.27);
    assert_true(rate > 328.3 && rate < 328.4);
}

TEST(sizes)
{
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{1 << 20, "1 MiB"},   {1000000, "1 MB"},    {104857600, "100 MiB"}, {100000000, "100 MB"},
                 {1 << 30, "1 GiB"},   {1000000000, "1 GB"}, {1024, "1 KiB"},        {1000, "1 kB"},
                 {1536, "1536 B"},     {5 << 10, "5 KiB"},   {12, "12 B"},           {0, "0 B"},
                 {1500000, "1500 kB"}, {3145728, "3 MiB"},   {2048000000, "2048 MB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        collective_size_text(cases[i].bytes, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}
