/* SPDX-License-Identifier: MIT */
/* What CUDA_VISIBLE_DEVICES leaves of a machine's GPUs, and what is said when that is nothing. */
#include "tests/support/test.h"

#include "common/device/visible.h"

TEST(entries_are_counted_up_to_the_first_wrong_one)
{
    static const struct {
        const char *text;
        int gpus, visible;
    } values[] = {{NULL, 4, 4},
                  {"", 4, 0},
                  {"-1", 4, 0},
                  {"0", 4, 1},
                  {"3,1", 4, 2},
                  {"7", 2, 0},
                  {"2", 2, 0},
                  {"0,7", 2, 1},
                  {"0,7,1", 2, 1},
                  {"0,-1,1", 2, 1},
                  {"0,", 2, 1},
                  {",0", 2, 0},
                  {"0x1", 2, 0},
                  {"GPU-8932f937", 2, 1},
                  {"GPU-8932f937,GPU-46ab", 2, 2},
                  {"GPU-8932f937,5", 2, 1},
                  {"MIG-cd06", 1, 1},
                  {"NoDevFiles", 2, 0},
                  {"all", 2, 0},
                  {"0,1,2,3", 2, 2},
                  {"0", 0, 0}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (visible_count(values[i].text, values[i].gpus) != values[i].visible)
            fail_msg("CUDA_VISIBLE_DEVICES=%s of %d: %d, not %d", values[i].text, values[i].gpus,
                     visible_count(values[i].text, values[i].gpus), values[i].visible);
}

TEST(the_variable_its_value_and_the_gpus_are_named)
{
    char said[256];
    visible_none("7", 2, said, sizeof said);
    assert_string_equal(said, "CUDA_VISIBLE_DEVICES=7 leaves no GPU to use: this machine has 2, numbers 0 to 1 "
                              "(nvidia-smi -L lists their UUIDs)");
    visible_none("GPU-1", 1, said, sizeof said);
    assert_non_null(strstr(said, "CUDA_VISIBLE_DEVICES=GPU-1 leaves no GPU to use: this machine has one, number 0 "));
    visible_none("7", -1, said, sizeof said);
    assert_non_null(strstr(said, "which GPUs there are could not be found out"));
}

TEST(gpus_are_kept_apart_by_all_but_0)
{
    assert_true(visible_apart("1") && visible_apart("2"));
    assert_false(visible_apart("0") || visible_apart("") || visible_apart(NULL));
}
