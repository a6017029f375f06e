/* SPDX-License-Identifier: MIT */
/* Values that are kept by kind and key: found again, apart by both, at an address that stays, and dropped once. */
#include "tests/support/test.h"

#include "common/core/cache.h"

static int destroyed;

static void destroy(void *value)
{
    destroyed += *(int *)value;
}

TEST(values_are_found_by_kind_and_key)
{
    cache *c = cache_create();
    assert_null(cache_find(c, "fit", "2 ranks"));
    int *fit = cache_add(c, "fit", "2 ranks", 3 * sizeof *fit, NULL);
    assert_true(fit[0] == 0 && fit[1] == 0 && fit[2] == 0);
    char key[] = "4 ranks"; /* a copy is kept */
    int *other = cache_add(c, "fit", key, sizeof *other, NULL);
    key[0] = '9';
    int *kind = cache_add(c, "choice", "2 ranks", sizeof *kind, NULL);
    for (int i = 0; i < 100; i++) {
        char name[20];
        snprintf(name, sizeof name, "key %d", i);
        *(int *)cache_add(c, "many", name, sizeof(int), NULL) = i;
    }
    assert_ptr_equal(cache_find(c, "fit", "2 ranks"), fit);
    assert_ptr_equal(cache_find(c, "fit", "4 ranks"), other);
    assert_ptr_equal(cache_find(c, "choice", "2 ranks"), kind);
    assert_int_equal(*(int *)cache_find(c, "many", "key 57"), 57);
    assert_null(cache_find(c, "choice", "4 ranks"));
    cache_free(c);
}

TEST(a_kind_is_dropped_alone)
{
    cache *c = cache_create();
    destroyed = 0;
    *(int *)cache_add(c, "a", "x", sizeof(int), destroy) = 1;
    *(int *)cache_add(c, "b", "x", sizeof(int), destroy) = 10;
    *(int *)cache_add(c, "a", "y", sizeof(int), destroy) = 100;
    cache_drop(c, "none");
    assert_int_equal(destroyed, 0);
    cache_drop(c, "a");
    assert_int_equal(destroyed, 101);
    assert_null(cache_find(c, "a", "x"));
    assert_null(cache_find(c, "a", "y"));
    assert_non_null(cache_find(c, "b", "x"));
    cache_free(c);
    assert_int_equal(destroyed, 111);
    cache_free(NULL);
}
