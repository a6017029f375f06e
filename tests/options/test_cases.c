/* SPDX-License-Identifier: MIT */
/* The sweep: order and keys of the cases, benches with few options, variants with options of their own. */
#include "tests/support/test.h"

TEST(sweep)
{
    OWNED_OPTIONS options *o = sample_options_of("--seq 128,256 --dtype bf16,fp32 --scale 2");
    static const char *const expected[] = {
        "seq=128 head_dim=16 dtype=bf16 decay=0.5 causal=1 scale=2 variant=plain",
        "seq=128 head_dim=16 dtype=bf16 decay=0.5 causal=1 scale=2 variant=fast",
        "seq=128 head_dim=16 dtype=fp32 decay=0.5 causal=1 scale=2 variant=plain",
        "seq=128 head_dim=16 dtype=fp32 decay=0.5 causal=1 scale=2 variant=fast",
        "seq=256 head_dim=16 dtype=bf16 decay=0.5 causal=1 scale=2 variant=plain",
        "seq=256 head_dim=16 dtype=bf16 decay=0.5 causal=1 scale=2 variant=fast",
        "seq=256 head_dim=16 dtype=fp32 decay=0.5 causal=1 scale=2 variant=plain",
        "seq=256 head_dim=16 dtype=fp32 decay=0.5 causal=1 scale=2 variant=fast",
    };
    assert_int_equal(cases_count(o), 8);
    for (size_t i = 0; i < 8; i++) {
        OWNED_CASE bench_case *c = case_at(o, i);
        assert_string_equal(case_key(c), expected[i]);
    }
    OWNED_CASE bench_case *c = case_at(o, 7);
    assert_int_equal(case_int(c, "seq"), 256);
    assert_int_equal(case_int(c, "iters"), 7); /* a single option, by the same way */
    assert_true(case_real(c, "decay") == 0.5);
    assert_string_equal(case_text(c, "dtype"), "fp32");
    assert_string_equal(case_variant(c), "fast");
    assert_int_equal(options_param_count(o), 6);
    assert_string_equal(options_param_name(o, 1), "head_dim");
    assert_string_equal(case_param(c, 0), "256");
}

static int64_t all_heads(const bench_case *c, const char *option)
{
    (void)option;
    return case_has(c, "seq") ? 10 * case_int(c, "seq") : 0;
}

/* A reader's name leaves out the only default, also that of the CPU, but not one value of several defaults. */
TEST(names_for_readers)
{
    static const option_spec own[] = {
        {"seq", OPTION_INT, OPTION_LIST, "1,2", .def_cpu = "2", .help = "", .min = 1, .max = 9},
        {"dtype", OPTION_TEXT, OPTION_LIST, "a,b", .help = ""},
        {"heads-kv", OPTION_INT, OPTION_LIST, "0", .help = "", .max = 9, .unset = "0: as many as --heads",
         .settled = all_heads},
        {0}};
    static const variant_spec variants[] = {{"only", ""}, {0}};
    static const struct {
        const char *arguments, *cuda, *cpu; /* the first case's name */
    } known[] = {{"--seq=2", "seq=2 dtype=a variant=only", "dtype=a variant=only"},
                 {"--dtype=a", "seq=1 dtype=a variant=only", "dtype=a variant=only"},
                 {"--heads-kv=3,0", "seq=1 dtype=a heads_kv=3 variant=only", "dtype=a heads_kv=3 variant=only"}};
    bench_info bench = {.name = "bench_small", .summary = "Small?", .options = own, .variants = variants};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (int cpu = 0; cpu < 2; cpu++) {
            char msg[256], *argv[] = {"x", (char *)known[i].arguments};
            OWNED_OPTIONS options *o =
                options_try(&bench, 2, argv, cpu ? &sample_on_cpu : &sample_with_cuda, msg, sizeof msg);
            OWNED_CASE bench_case *c = case_at(o, 0);
            assert_string_equal(case_name(c), cpu ? known[i].cpu : known[i].cuda);
            const char *cell = i == 2 ? "3" : *case_text(c, "seq") == '2' ? "20" : "10"; /* as its row has it */
            assert_string_equal(case_cell(c, 2), cell);
            assert_string_equal(case_param(c, 2), i == 2 ? "3" : "0"); /* as it was asked for */
            assert_true(options_param_is_unset(o, 2, "0"));
            assert_false(options_param_is_unset(o, 2, "") || options_param_is_unset(o, 2, "3"));
            assert_false(options_param_is_unset(o, 0, "0"));
        }
    bench.variants = NULL;
    bench.options = own + 2;
    char msg[256], *argv[] = {"x"};
    OWNED_OPTIONS options *o = options_try(&bench, 1, argv, &sample_on_cpu, msg, sizeof msg);
    OWNED_CASE bench_case *c = case_at(o, 0);
    assert_string_equal(case_name(c), "the default case");
}

/* A bench may have an option table, variants or neither, and its own idea of --variant. */
TEST(small_benches)
{
    static const option_spec own[] = {{"variant", OPTION_CHOICE, OPTION_LIST, "b", .help = "which", .choices = "a|b"},
                                      {0}};
    static const variant_spec variants[] = {{"a", "first"}, {"b", "second"}, {0}};
    bench_info bench = {.name = "bench_small", .summary = "Small?"};
    char msg[256], *argv[] = {"x"}, *argv_variant[] = {"x", "--variant", "a"};
    options *o = options_try(&bench, 1, argv, &sample_on_cpu, msg, sizeof msg);
    assert_int_equal(cases_count(o), 1);
    bench_case *c = case_at(o, 0);
    assert_string_equal(case_key(c), "variant=");
    case_free(c);
    options_free(o);
    assert_null(options_try(&bench, 3, argv_variant, &sample_on_cpu, msg, sizeof msg));

    bench.variants = variants;
    bench.options = own;
    o = options_try(&bench, 1, argv, &sample_on_cpu, msg, sizeof msg);
    assert_int_equal(options_param_count(o), 0);
    assert_int_equal(cases_count(o), 1);
    c = case_at(o, 0);
    assert_string_equal(case_variant(c), "b");
    case_free(c);
    options_free(o);
}

/* Values that are compared follow each other, wherever their option stands in the table. */
TEST(adjacent_values)
{
    static const option_spec own[] = {{"exact", OPTION_FLAG, OPTION_LIST | OPTION_ADJACENT, "0,1", .help = "whether"},
                                      {"seq", OPTION_INT, OPTION_LIST, "1,2", .help = "how many", .min = 1, .max = 9},
                                      {0}};
    static const variant_spec variants[] = {{"a", "first"}, {"b", "second"}, {0}};
    const bench_info bench = {.name = "bench_small", .summary = "Small?", .options = own, .variants = variants};
    static const char *const expected[] = {
        "exact=0 seq=1 variant=a", "exact=0 seq=1 variant=b", "exact=1 seq=1 variant=a", "exact=1 seq=1 variant=b",
        "exact=0 seq=2 variant=a", "exact=0 seq=2 variant=b", "exact=1 seq=2 variant=a", "exact=1 seq=2 variant=b"};
    char msg[256], *argv[] = {"x"};
    OWNED_OPTIONS options *o = options_try(&bench, 1, argv, &sample_on_cpu, msg, sizeof msg);
    assert_int_equal(cases_count(o), 8);
    for (size_t i = 0; i < 8; i++) {
        OWNED_CASE bench_case *c = case_at(o, i);
        assert_string_equal(case_key(c), expected[i]);
    }
}

static bool seq_is_for_fast(const char *option, const char *variant)
{
    return strcmp(option, "seq") != 0 || strcmp(variant, "fast") == 0;
}

/* An option that means nothing to a variant does not multiply its cases. */
TEST(sweep_of_unlike_variants)
{
    bench_info bench = sample_bench;
    bench.applies = seq_is_for_fast;
    char msg[256], *argv[] = {"x", "--seq", "1,2", "--dtype", "bf16"};
    OWNED_OPTIONS options *o = options_try(&bench, 5, argv, &sample_on_cpu, msg, sizeof msg);
    static const char *const expected[] = {
        "head_dim=16 dtype=bf16 decay=0.5 causal=1 scale=1 variant=plain",
        "seq=1 head_dim=16 dtype=bf16 decay=0.5 causal=1 scale=1 variant=fast",
        "seq=2 head_dim=16 dtype=bf16 decay=0.5 causal=1 scale=1 variant=fast",
    };
    assert_int_equal(cases_count(o), 3);
    for (size_t i = 0; i < 3; i++) {
        OWNED_CASE bench_case *c = case_at(o, i);
        assert_string_equal(case_key(c), expected[i]);
        assert_int_equal(case_int(c, "seq"), i);
        assert_string_equal(case_param(c, 0), i == 0 ? "" : i == 1 ? "1" : "2");
    }
}

/* ---- a bench whose variants have options of their own ---- */

static bool of_its_own(const char *option, const char *variant)
{
    return strcmp(option, variant) == 0;
}

TEST(lists_of_other_variants_do_not_multiply)
{
    static const option_spec table[] = {
        {"left", OPTION_INT, OPTION_LIST, "1:1200", .help = "a list", .min = 1, .max = 9999},
        {"right", OPTION_INT, OPTION_LIST, "1:1300", .help = "a list", .min = 1, .max = 9999},
        {0}};
    static const variant_spec variants[] = {{"left", "has left alone"}, {"right", "has right alone"}, {0}};
    static const column_spec columns[] = {{0}};
    const bench_info bench = {.name = "bench_sides",
                              .summary = "",
                              .notes = "",
                              .examples = "",
                              .options = table,
                              .variants = variants,
                              .columns = columns,
                              .applies = of_its_own};
    char name[] = "bench_sides", *argv[] = {name, NULL}, msg[256];
    OWNED_OPTIONS options *o = options_try(&bench, 1, argv, &sample_on_cpu, msg, sizeof msg);
    if (!o)
        fail_msg("refused: %s", msg); /* 1200 x 1300 would be too many */
    assert_int_equal(cases_count(o), 2500);
    static const struct {
        size_t at;
        const char *key;
    } known[] = {{0, "left=1 variant=left"},
                 {1199, "left=1200 variant=left"},
                 {1200, "right=1 variant=right"},
                 {2499, "right=1300 variant=right"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        OWNED_CASE bench_case *c = case_at(o, known[i].at);
        assert_string_equal(case_key(c), known[i].key);
    }
}
