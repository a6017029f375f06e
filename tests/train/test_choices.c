/* SPDX-License-Identifier: MIT */
/* Choices of algorithms: what is kept is found again, newest first, by all of its shape; a trainer times nothing that is
 * known; what the program ships can be read whole. */
#include "tests/support/test.h"

#include <limits.h>

#include "common/train/tune/choices.h"
#include "common/train/tune/tune.h"
#include "tests/support/model_problem.h"

OWNER(choices, choices_free)
#define OWNED_CHOICES OWNED_BY(choices)

static const char nobody[] = "no such GPU";

static kept_choice example(int m, int algorithm, int64_t library)
{
    kept_choice k = {.shape = {.dtype = SB_BF16,
                               .dtype_out = SB_FP32,
                               .transpose_b = true,
                               .m = m,
                               .n = 24,
                               .k = 40,
                               .lda = 40,
                               .ldb = 48,
                               .ldd = 24,
                               .workspace_bytes = (size_t)5 << 30},
                     .choice = {.library = library, .ms = 0.25f, .first_ms = 0.5f, .tried = 7, .name = "a \"b\", c"},
                     .source = CHOICE_TIMED};
    memset(k.choice.algorithm, algorithm, sizeof k.choice.algorithm);
    return k;
}

static char *text_of(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = xcalloc(1, 1 << 16);
    assert_non_null(f);
    assert_in_range(fread(text, 1, (1 << 16) - 1, f), 1, (1 << 16) - 2);
    fclose(f);
    return text;
}

static int newest(const choices *c, const sb_matmul *shape)
{
    const int place = choices_find(c, shape, INT_MAX);
    assert_in_range(place, 0, INT_MAX);
    return place;
}

TEST_IN_FOLDER(kept_choices_are_read_again)
{
    OWNED char *path = folder_path(*state, "choices.csv");
    const kept_choice one = example(16, 1, 130100), two = example(17, 2, 130100);
    choices *c = choices_open(nobody, path, false);
    choices_add(c, "w2 forward", &one);
    choices_add(c, "w2 dx", &two);
    choices_free(c);

    c = choices_open(nobody, path, false);
    const kept_choice *k = choices_at(c, newest(c, &two.shape));
    assert_memory_equal(k->choice.algorithm, two.choice.algorithm, sizeof two.choice.algorithm);
    assert_string_equal(k->choice.name, two.choice.name);
    assert_int_equal(k->choice.library, 130100);
    assert_int_equal(k->choice.tried, 7);
    assert_true(k->choice.ms == 0.25f && k->choice.first_ms == 0.5f);
    assert_int_equal(k->source, CHOICE_KEPT);
    assert_int_equal(k->rivals[0].tried, 0);
    choices_free(c);

    c = choices_open(nobody, path, true); /* timed again: nothing is read */
    assert_int_equal(choices_find(c, &one.shape, INT_MAX), -1);
    choices_free(c);
}

TEST(the_newest_comes_first_then_older_ones)
{
    const kept_choice old = example(16, 1, 130100), new = example(16, 2, 130200), other = example(17, 3, 130200);
    OWNED_CHOICES choices *c = choices_open(nobody, NULL, false);
    choices_add(c, "o forward", &old);
    choices_add(c, "o forward", &new);
    choices_add(c, "o dx", &other);
    const int first = newest(c, &old.shape), second = choices_find(c, &old.shape, first);
    assert_int_equal(choices_at(c, first)->choice.library, 130200);
    assert_int_equal(choices_at(c, second)->choice.library, 130100); /* the library may be the old one again */
    assert_int_equal(choices_find(c, &old.shape, second), -1);
}

/* What an algorithm depends on, one at a time. */
TEST(every_part_of_the_shape_counts)
{
    static const char something;
    const kept_choice k = example(16, 1, 130100);
    OWNED_CHOICES choices *c = choices_open(nobody, NULL, false);
    choices_add(c, "o forward", &k);
    sb_matmul same = k.shape;
    same.a = same.b = &something; /* pointers do not count */
    newest(c, &same);
    sb_matmul others[17];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        others[i] = k.shape;
    others[0].m++, others[1].n++, others[2].k++, others[3].dtype = SB_FP16, others[4].dtype_out = SB_BF16;
    others[5].transpose_a = true, others[6].transpose_b = false, others[7].lda++, others[8].ldb++, others[9].ldd++;
    others[10].c = &something, others[11].split = SB_FP16X3_FAST, others[12].workspace_bytes++;
    others[13].dtype_b = SB_E4M3, others[14].scaling_a = SB_SCALE_ROW, others[15].scaling_b = SB_SCALE_ROW;
    others[16].sums = SB_SUMS_FAST;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (choices_find(c, &others[i], INT_MAX) != -1)
            fail_msg("shape %zu is not that of the choice", i);
}

/* What has not raced yet races in the next run; what has, does not. */
TEST_IN_FOLDER(rivals_are_kept_until_they_have_raced)
{
    OWNED char *path = folder_path(*state, "choices.csv");
    kept_choice k = example(16, 1, 130100), other = example(17, 2, 130100);
    for (int i = 0; i < CHOICE_RIVALS; i++) {
        k.rivals[i] = k.choice;
        k.rivals[i].algorithm[0] = (uint8_t)(10 + i);
    }
    choices *c = choices_open(nobody, path, false);
    choices_add(c, "o forward", &k);
    choices_add(c, "o dx", &other);
    choices_free(c);
    c = choices_open(nobody, path, false);
    assert_int_equal(choices_count(c), 2);
    const kept_choice *read = choices_at(c, newest(c, &k.shape));
    for (int i = 0; i < CHOICE_RIVALS; i++)
        assert_memory_equal(read->rivals[i].algorithm, k.rivals[i].algorithm, sizeof k.rivals[i].algorithm);
    assert_int_equal(choices_at(c, newest(c, &other.shape))->rivals[0].tried, 0);
    k.rivals[0] = k.rivals[1], k.rivals[1].tried = 0;
    choices_add(c, "o forward", &k); /* the first one has raced */
    choices_free(c);
    c = choices_open(nobody, path, false);
    read = choices_at(c, newest(c, &k.shape));
    assert_int_equal(read->rivals[0].algorithm[0], 11);
    assert_int_equal(read->rivals[1].tried, 0);
    choices_free(c);
}

/* As it was until 2026-11: every cell full, all 64 bytes of an algorithm, no rivals. */
TEST_IN_FOLDER(an_older_file_is_converted_once)
{
    char *path = folder_path(*state, "choices.csv"), *text;
    file_write(path, "product,m,n,k,dtype,dtype_out,transpose_a,transpose_b,lda,ldb,ldc,ldd,adds,split,workspace_bytes,"
                     "library,algorithm_name,ms,first_ms,tried,algorithm\n"
                     "o dx,16,24,40,0,3,0,1,40,48,0,24,0,0,5368709120,130100,\"a, b\",0.25,0.5,7,"
                     "0102000000000000000000000000000000000000000000000000000000000000"
                     "0000000000000000000000000000000000000000000000000000000000000000\n"
                     "o dw,17,24,40,0,3,0,1,40,48,0,24,0,0,5368709120,130100,x,0.25,0.5,7,torn");
    for (int i = 0; i < 2; i++) {
        const kept_choice k = example(16, 0, 130100);
        choices *c = choices_open(nobody, path, i == 1);
        if (i == 0) {
            const kept_choice *read = choices_at(c, newest(c, &k.shape));
            assert_int_equal(read->choice.algorithm[1], 2);
            assert_int_equal(read->choice.algorithm[2] | read->choice.algorithm[63], 0);
            assert_string_equal(read->choice.name, "a, b");
        }
        assert_int_equal(choices_count(c), i == 0);
        choices_free(c);
        text = text_of(path);
        assert_non_null(strstr(text, ",tried,rival,algorithm\no dx,16,24,"));
        assert_non_null(strstr(text, ",0.25,0.5,7,0,0102\n"));
        assert_null(strstr(text, "torn"));
        free(text);
    }
    free(path);
}

TEST_IN_FOLDER(an_empty_cell_is_that_of_the_row_above)
{
    OWNED char *path = folder_path(*state, "choices.csv");
    file_write(path, "m,n,k,dtype,dtype_out,transpose_a,transpose_b,lda,ldb,ldc,ldd,adds,split,workspace_bytes,library,"
                     "algorithm\n16,24,40,0,3,0,1,40,48,0,24,0,0,5368709120,130100,0102\n17,,,,,,,,,,,,,,,\n");
    const kept_choice one = example(16, 0, 130100), two = example(17, 0, 130100);
    OWNED_CHOICES choices *c = choices_open(nobody, path, false);
    assert_int_equal(choices_at(c, newest(c, &one.shape))->choice.algorithm[0], 1);
    assert_int_equal(choices_at(c, newest(c, &two.shape))->choice.algorithm[1], 2);
    assert_int_equal(choices_at(c, newest(c, &two.shape))->choice.library, 130100);
    assert_int_equal(choices_at(c, newest(c, &two.shape))->choice.tried, 1);
}

TEST_IN_FOLDER(broken_rows_are_left_out)
{
    OWNED char *path = folder_path(*state, "choices.csv");
    const kept_choice good = example(16, 1, 130100), bad = example(17, 1, 130100);
    choices *c = choices_open(nobody, path, false);
    choices_add(c, "o forward", &good);
    choices_add(c, "o dx", &bad);
    choices_free(c);
    OWNED char *text = text_of(path);
    strrchr(text, '0')[0] = 'x'; /* within the last algorithm */
    file_write(path, text);
    c = choices_open(nobody, path, false);
    newest(c, &good.shape);
    assert_int_equal(choices_find(c, &bad.shape, INT_MAX), -1);
    choices_free(c);
}

/* Every row of a shipped file is one that counts, for a shape and a library of its own. */
TEST(shipped_choices_are_whole)
{
    static const char *const gpus[] = {"NVIDIA H200", "NVIDIA H100 80GB HBM3"};
    assert_null(choices_shipped(nobody));
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        const char *text = choices_shipped(gpus[g]);
        assert_non_null(text);
        OWNED_CSV csv *file = csv_parse(text);
        choices *c = choices_open(gpus[g], NULL, false);
        assert_int_equal(file->dropped, 0);
        assert_true(file->rows > 0);
        assert_int_equal(choices_count(c), file->rows);
        for (int i = 0; i < choices_count(c); i++) {
            const kept_choice *k = choices_at(c, i);
            assert_int_equal(k->source, CHOICE_SHIPPED);
            assert_true(k->choice.library > 0 && k->choice.name[0]);
            for (int j = choices_find(c, &k->shape, i); j >= 0; j = choices_find(c, &k->shape, j))
                if (choices_at(c, j)->choice.library == k->choice.library)
                    fail_msg("%s: rows %d and %d have one shape", gpus[g], j + 2, i + 2);
        }
        choices_free(c);
        c = choices_open(gpus[g], NULL, true);
        assert_int_equal(choices_count(c), 0);
        choices_free(c);
    }
}

TEST(a_trainer_times_what_is_not_known)
{
    const step_options o = small_options();
    OWNED_CHOICES choices *c = choices_open(nobody, NULL, false);
    const tuned_product *p;
    trainer *t = create(&o);
    assert_true(trainer_tune_products(t, c));
    const int n = trainer_products(t, &p), known = choices_count(c);
    assert_int_equal(known, n);
    for (int i = 0; i < n; i++) {
        assert_true(p[i].choice.tried > 0);
        assert_in_range(p[i].uses, 1, 100);
        assert_int_equal(p[i].uses % o.config.layers == 0 || strncmp(p[i].name, "lm_head", 7) == 0, 1);
    }
    trainer_free(t);
    kept_choice mine = {.shape = {0}};
    t = create(&o);
    trainer_products(t, &p);
    mine.shape = p[0].shape;
    mine.choice = (sb_matmul_choice){.tried = 3, .name = "mine"};
    choices_add(c, p[0].name, &mine);
    assert_true(trainer_tune_products(t, c));
    assert_string_equal(p[0].choice.name, "mine");
    assert_int_equal(choices_count(c), known + 1); /* nothing was timed */
    trainer_free(t);
}

/* What an older build has kept counts, and float8 fits beside it. */
TEST_IN_FOLDER(a_file_without_float8_gets_its_columns)
{
    OWNED char *path = folder_path(*state, "choices.csv");
    const kept_choice wide = example(18, 3, 130100);
    kept_choice narrow = example(18, 4, 130100);
    narrow.shape.dtype = SB_E5M2, narrow.shape.dtype_b = SB_E4M3, narrow.shape.sums = SB_SUMS_FAST;
    narrow.shape.scaling_a = narrow.shape.scaling_b = SB_SCALE_TENSOR;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(
        "product,m,n,k,dtype,dtype_out,transpose_a,transpose_b,lda,ldb,ldc,ldd,adds,split,workspace_bytes,library,"
        "algorithm_name,ms,first_ms,tried,algorithm\nw2 dx,18,24,40,0,3,0,1,40,48,0,24,0,0,5368709120,130100,one,0.25,"
        "0.5,7,",
        f);
    for (size_t i = 0; i < sizeof wide.choice.algorithm; i++)
        fputs("03", f);
    fputs("\n", f);
    fclose(f);
    choices *c = choices_open(nobody, path, false);
    assert_int_equal(choices_at(c, newest(c, &wide.shape))->choice.algorithm[63], 3);
    assert_int_equal(choices_find(c, &narrow.shape, INT_MAX), -1);
    choices_add(c, "w2 dx", &narrow);
    choices_free(c);
    c = choices_open(nobody, path, false);
    assert_int_equal(choices_count(c), 2);
    assert_int_equal(choices_at(c, newest(c, &wide.shape))->choice.algorithm[0], 3);
    assert_int_equal(choices_at(c, newest(c, &narrow.shape))->choice.algorithm[0], 4);
    kept_choice other = narrow;
    other.shape.sums = SB_SUMS_EXACT;
    assert_int_equal(choices_find(c, &other.shape, INT_MAX), -1);
    other = narrow;
    other.shape.scaling_a = other.shape.scaling_b = SB_SCALE_ROW;
    assert_int_equal(choices_find(c, &other.shape, INT_MAX), -1);
    choices_free(c);
    OWNED char *text = text_of(path);
    assert_non_null(strstr(text, "\nw2 dx,18,24,40,0,"));
    remove(path);
}

TESTS_WITH(bed_create, bed_destroy)
