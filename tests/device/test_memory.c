/* SPDX-License-Identifier: MIT */
/* Device memory: what is held, the peak, reuse, and asking for more than there is. */
#include "tests/support/test.h"

#include "common/device/memory.h"

static device *dev;
static memory *m;

static int set_up(void **state)
{
    (void)state;
    dev = device_open(DEVICE_CPU, 0);
    m = memory_create(dev);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    memory_destroy(m);
    device_close(dev);
    return 0;
}

TEST_WITH(counts_current_and_peak, set_up, tear_down)
{
    void *a = memory_alloc(m, 1024, "a"), *b = memory_alloc(m, 2048, "b");
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(memory_current(m), 3072);
    memory_release(m, b);
    assert_int_equal(memory_current(m), 1024);
    assert_int_equal(memory_peak(m), 3072);
    memory_peak_reset(m);
    assert_int_equal(memory_peak(m), 1024);
    memory_release(m, a);
    memory_release(m, NULL);
    assert_int_equal(memory_current(m), 0);
    assert_int_equal(memory_peak(m), 1024);
}

TEST_WITH(rounds_to_256_bytes_and_aligns, set_up, tear_down)
{
    for (size_t bytes = 0; bytes <= 257; bytes++) {
        void *p = memory_alloc(m, bytes, "odd");
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 0);
        assert_int_equal(memory_current(m), bytes <= 256 ? 256 : 512);
        memory_release(m, p);
    }
}

TEST_WITH(reuses_only_an_equal_block, set_up, tear_down)
{
    void *a = memory_alloc(m, 4096, "a"), *held = memory_alloc(m, 4096, "held");
    memory_release(m, a);
    assert_ptr_equal(memory_alloc(m, 4000, "the same after rounding"), a);
    void *other = memory_alloc(m, 4096, "another");
    assert_ptr_not_equal(other, a);
    assert_ptr_not_equal(other, held);
    assert_int_equal(memory_current(m), 3 * 4096);
}

TEST_WITH(release_all_frees_what_is_held, set_up, tear_down)
{
    memory_release(m, memory_alloc(m, 4096, "kept"));
    assert_non_null(memory_alloc(m, 8192, "held"));
    memory_release_all(m);
    assert_int_equal(memory_current(m), 0);
    assert_non_null(memory_alloc(m, 8192, "again"));
}

TEST_WITH(too_much_is_remembered, set_up, tear_down)
{
    const size_t absurd[] = {(size_t)1 << 50, SIZE_MAX, SIZE_MAX - 100};
    size_t asked;
    const char *tag;
    assert_false(memory_failed(m, &asked, &tag));
    void *a = memory_alloc(m, 256, "a");
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        assert_null(memory_alloc(m, absurd[i], "the moon"));
        assert_true(memory_failed(m, &asked, &tag));
        assert_true(asked == absurd[i]);
        assert_string_equal(tag, "the moon");
        memory_failed_clear(m);
        assert_false(memory_failed(m, &asked, &tag));
    }
    assert_int_equal(memory_current(m), 256);
    memory_release(m, a);
}

TEST_WITH(data_goes_there_and_back, set_up, tear_down)
{
    char text[] = "a tensor", back[sizeof text] = "";
    void *a = memory_alloc(m, sizeof text, "a"), *b = memory_alloc(m, sizeof text, "b");
    device_upload(dev, a, text, sizeof text);
    device_copy(dev, b, a, sizeof text);
    device_download(dev, back, b, sizeof text);
    assert_string_equal(back, text);
    device_memset(dev, b, 0xff, sizeof text);
    device_download(dev, back, b, sizeof text);
    assert_int_equal((unsigned char)back[3], 0xff);
}
