/* SPDX-License-Identifier: MIT */
/* The verdicts of bench_qualify on planted values: a slow GPU, a slow pair, load, a wrong bit, what the driver reports;
 * and the reference tables that are part of the program. */
#include "tests/support/test.h"

#include "common/qualify/reference.h"

static const qualify_metric *metric(const char *name)
{
    const qualify_metric *m = qualify_metric_find(name);
    assert_non_null(m);
    return m;
}

TEST(against_a_reference)
{
    const qualify_metric *gemm = metric("gemm_bf16_tflops"), *step = metric("step_ms");
    const qualify_reference value = {780, NAN}, floor = {52, 48}, only_floor = {NAN, 335}, ms = {40, NAN};
    const double rates[] = {780, 718, 717, 900, NAN};
    assert_int_equal(qualify_judge(gemm, &value, rates, 1, 0).word, VERDICT_OK);
    assert_int_equal(qualify_judge(gemm, &value, rates + 1, 1, 0).word, VERDICT_OK);
    const judgement slow = qualify_judge(gemm, &value, rates + 2, 1, 0);
    assert_int_equal(slow.word, VERDICT_SLOW);
    assert_string_equal(slow.against, "reference");
    assert_float_equal(slow.bound, 717.6, 1e-9);
    assert_float_equal(slow.behind_pct, 100 * 63.0 / 780, 1e-9);
    assert_int_equal(qualify_judge(gemm, &value, rates + 3, 1, 0).word, VERDICT_OK);
    assert_int_equal(qualify_judge(gemm, &value, rates + 4, 1, 0).word, VERDICT_NOT_CHECKED);
    assert_int_equal(qualify_judge(gemm, NULL, rates, 1, 0).word, VERDICT_NOT_CHECKED);

    const double copies[] = {48.5, 47.9};
    assert_int_equal(qualify_judge(metric("h2d_gb_s"), &floor, copies, 1, 0).word, VERDICT_OK);
    assert_int_equal(qualify_judge(metric("h2d_gb_s"), &floor, copies + 1, 1, 0).word, VERDICT_SLOW);
    const double links[] = {336, 334};
    assert_int_equal(qualify_judge(metric("p2p_gb_s"), &only_floor, links, 1, 0).word, VERDICT_OK);
    assert_int_equal(qualify_judge(metric("p2p_gb_s"), &only_floor, links + 1, 1, 0).word, VERDICT_SLOW);

    const double times[] = {42.7, 42.9, 20}; /* of a time, more is worse */
    assert_int_equal(qualify_judge(step, &ms, times, 1, 0).word, VERDICT_OK);
    assert_int_equal(qualify_judge(step, &ms, times + 1, 1, 0).word, VERDICT_SLOW);
    assert_int_equal(qualify_judge(step, &ms, times + 2, 1, 0).word, VERDICT_OK);
}

/* The name of the one who is slow. */
static int slow_one(const char *name, const double *values, size_t n)
{
    int found = -1;
    for (size_t i = 0; i < n; i++)
        if (qualify_judge(metric(name), NULL, values, n, i).word == VERDICT_SLOW) {
            assert_int_equal(found, -1);
            found = (int)i;
        }
    return found;
}

TEST(a_slow_gpu_among_its_peers)
{
    const double healthy[] = {700, 690, 705, 698}, planted[] = {700, 690, 650, 698}, near[] = {700, 699, 683, 700};
    const double eight[] = {700, 690, 705, 698, 702, 668, 694, 701};
    const double steps[] = {40, 40.2, 39.9, 44}, lost[] = {700, NAN, 600, 701, 699, 698}, three[] = {700, 700, 500};
    assert_int_equal(slow_one("gemm_together_tflops", healthy, 4), -1);
    assert_int_equal(slow_one("gemm_together_tflops", planted, 4), 2);
    assert_int_equal(slow_one("gemm_together_tflops", near, 4), -1); /* 2.4 % is not 3 % */
    assert_int_equal(slow_one("gemm_together_tflops", eight, 8), 5);
    assert_int_equal(slow_one("step_ms", steps, 4), 3);
    assert_int_equal(slow_one("gemm_together_tflops", lost, 6), 2); /* who was not measured counts for nobody */
    assert_int_equal(slow_one("gemm_together_tflops", three, 3), -1);
    assert_int_equal(qualify_judge(metric("gemm_together_tflops"), NULL, three, 3, 0).word, VERDICT_NOT_CHECKED);
    const judgement j = qualify_judge(metric("step_ms"), NULL, steps, 4, 3);
    assert_string_equal(j.against, "peers");
    assert_float_equal(j.expected, 40.1, 1e-9);
    /* Within the reference's bound, and still not like the others. */
    const qualify_reference wide = {700, 500};
    assert_int_equal(qualify_judge(metric("gemm_together_tflops"), &wide, planted, 4, 2).word, VERDICT_SLOW);
}

TEST(slower_than_its_past)
{
    const qualify_metric *gemm = metric("gemm_bf16_tflops");
    const double past[] = {700, 100, 710, 705};
    const judgement ok = {VERDICT_OK, "reference", 780, 600, 10}, unknown = {VERDICT_NOT_CHECKED, "", NAN, NAN, NAN};
    assert_int_equal(qualify_judge_past(gemm, ok, 640, past, 4).word, VERDICT_SLOW); /* 702.5 less 8 % is 646 */
    assert_string_equal(qualify_judge_past(gemm, ok, 640, past, 4).against, "past");
    assert_int_equal(qualify_judge_past(gemm, ok, 650, past, 4).word, VERDICT_OK);
    assert_string_equal(qualify_judge_past(gemm, ok, 650, past, 4).against, "reference");
    assert_int_equal(qualify_judge_past(gemm, ok, 10, past, 2).word, VERDICT_OK); /* two runs are no past */
    assert_int_equal(qualify_judge_past(gemm, unknown, 650, past, 4).word, VERDICT_OK);
    assert_int_equal(qualify_judge_past(gemm, unknown, NAN, past, 4).word, VERDICT_NOT_CHECKED);
}

TEST(a_slow_pair)
{
    double pairs[12];
    bool slow[16] = {false};
    for (int i = 0; i < 12; i++)
        pairs[i] = 376 + i % 3;
    pairs[5] = 180;
    assert_int_equal(slow_one("p2p_gb_s", pairs, 12), 5);
    slow[1 * 4 + 2] = true; /* one pair names no GPU */
    for (size_t i = 0; i < 4; i++)
        assert_false(qualify_links_slow(slow, 4, i));
    for (size_t k = 0; k < 4; k++)
        slow[2 * 4 + k] = slow[k * 4 + 2] = k != 2; /* all pairs of GPU 2 */
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(qualify_links_slow(slow, 4, i), i == 2);
    const bool both[4] = {false, true, true, false};
    assert_false(qualify_links_slow(both, 2, 0));
}

TEST(a_wrong_bit)
{
    bool odd[5];
    const uint64_t same[] = {7, 7, 7, 7}, one[] = {7, 7, 6, 7}, two[] = {7, 6}, split[] = {1, 1, 2, 2};
    const uint64_t most[] = {1, 2, 1, 3, 1};
    assert_false(qualify_odd(same, 4, odd));
    assert_false(odd[0] || odd[1] || odd[2] || odd[3]);
    assert_true(qualify_odd(one, 4, odd));
    assert_true(!odd[0] && !odd[1] && odd[2] && !odd[3]);
    assert_true(qualify_odd(two, 2, odd) && odd[0] && odd[1]); /* nobody knows which */
    assert_true(qualify_odd(split, 4, odd) && odd[0] && odd[3]);
    assert_true(qualify_odd(most, 5, odd) && !odd[0] && odd[1] && !odd[2] && odd[3] && !odd[4]);
    assert_false(qualify_odd(same, 1, odd));
}

/* The word for GPU 2 of so many after a change. */
static verdict health_with(size_t n, void (*change)(gpu_health *h), const char *throttle, char *why, size_t bytes)
{
    gpu_health gpus[8];
    for (size_t i = 0; i < n; i++)
        gpus[i] = (gpu_health){.uuid = "GPU-x",
                               .used_bytes = 0.6e9,
                               .links = 18,
                               .links_up = 18,
                               .pcie_width = 16,
                               .pcie_width_max = 16,
                               .seconds = 60,
                               .xids_known = true,
                               .who = "pid 7, alice, train"};
    change(&gpus[2]);
    for (size_t i = 0; i < n; i++)
        if (i != 2) {
            assert_int_equal(qualify_health(gpus, n, i, "power_cap", why, bytes), VERDICT_OK);
            assert_string_equal(why, "");
        }
    return qualify_health(gpus, n, 2, throttle, why, bytes);
}

/* A GPU of which a change is what the driver says. */
#define CHANGE(name, ...)                                                                                              \
    static void name(gpu_health *h)                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }

CHANGE(nothing, (void)h)
CHANGE(load, h->used_pct = 97)
CHANGE(taken, h->used_bytes = 3 * 0x1p30)
CHANGE(ecc, h->ecc_uncorrected = 2)
CHANGE(pending, h->remap_pending = 1)
CHANGE(failed, h->remap_failed = 1)
CHANGE(link_down, h->links_up = 17)
CHANGE(narrow, h->pcie_width = 8)
CHANGE(no_nvml, *h = health_unknown())
CHANGE(link_replays, h->nvlink_errors = 3)
CHANGE(few_checksums, h->nvlink_crc = 6000) /* 100 a second are what a good link may have */
CHANGE(many_checksums, h->nvlink_crc = 6001)
CHANGE(few_replays, h->pcie_replays = 8) /* 8 a minute */
CHANGE(many_replays, h->pcie_replays = 9)
CHANGE(program_xid, snprintf(h->xids, sizeof h->xids, "31+13+43"))
CHANGE(hardware_xid, snprintf(h->xids, sizeof h->xids, "31+79"))
CHANGE(all_at_once, load(h), ecc(h), narrow(h))

TEST(what_the_driver_says)
{
    static const struct {
        void (*change)(gpu_health *h);
        const char *throttle;
        verdict word;
        const char *why;
    } cases[] = {{nothing, "", VERDICT_OK, ""},
                 {nothing, "power_cap+sw_thermal", VERDICT_OK, ""},
                 {nothing, "power_cap+hw_thermal", VERDICT_BROKEN, "hw_thermal"},
                 {nothing, "hw_slowdown", VERDICT_BROKEN, "hw_slowdown"},
                 {nothing, "power_brake", VERDICT_BROKEN, "power_brake"},
                 {load, "", VERDICT_BUSY, "97 % busy"},
                 {load, "", VERDICT_BUSY, "there was pid 7, alice, train"},
                 {taken, "", VERDICT_BUSY, "3.0 GiB"},
                 {link_replays, "", VERDICT_SLOW, "sent again or recovered 3 times"},
                 {few_checksums, "", VERDICT_OK, ""},
                 {many_checksums, "", VERDICT_SLOW, "6001 wrong checksums in 60 s"},
                 {few_replays, "", VERDICT_OK, ""},
                 {many_replays, "", VERDICT_SLOW, "9 packets again in 60 s"},
                 {program_xid, "", VERDICT_OK, ""},
                 {hardware_xid, "", VERDICT_BROKEN, "Xid 79"},
                 {ecc, "", VERDICT_BROKEN, "2 uncorrected ECC errors"},
                 {pending, "", VERDICT_BROKEN, "waiting to be replaced"},
                 {failed, "", VERDICT_BROKEN, "could not be replaced"},
                 {link_down, "", VERDICT_BROKEN, "17 NVLinks are up, 18 on another GPU"},
                 {narrow, "", VERDICT_SLOW, "8 of 16 lanes"},
                 {no_nvml, "", VERDICT_NOT_CHECKED, "NVML"},
                 {all_at_once, "", VERDICT_BROKEN, "busy before"}};
    char why[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t n = 4; n <= 8; n += 4) {
            assert_int_equal(health_with(n, cases[i].change, cases[i].throttle, why, sizeof why), cases[i].word);
            if (!strstr(why, cases[i].why) || (!*cases[i].why && *why))
                fail_msg("case %zu of %zu GPUs: '%s' does not say '%s'", i, n, why, cases[i].why);
        }
}

TEST(a_word_for_all)
{
    assert_int_equal(verdict_join(VERDICT_OK, VERDICT_NOT_CHECKED), VERDICT_OK);
    assert_int_equal(verdict_join(VERDICT_NOT_CHECKED, VERDICT_NOT_CHECKED), VERDICT_NOT_CHECKED);
    assert_int_equal(verdict_join(VERDICT_OK, VERDICT_SLOW), VERDICT_SLOW);
    assert_int_equal(verdict_join(VERDICT_BUSY, VERDICT_SLOW), VERDICT_BUSY);
    assert_int_equal(verdict_join(VERDICT_BUSY, VERDICT_BROKEN), VERDICT_BROKEN);
    assert_false(verdict_missed(VERDICT_OK) || verdict_missed(VERDICT_NOT_CHECKED));
    assert_true(verdict_missed(VERDICT_SLOW) && verdict_missed(VERDICT_BUSY) && verdict_missed(VERDICT_BROKEN));
}

/* A bound that nothing misses is none, and one that healthy GPUs miss is a nuisance. */
TEST(every_bound_is_between_half_and_all)
{
    const char *gpu, *text;
    size_t files = 0;
    for (; (text = reference_file(files, &gpu)); files++) {
        OWNED_CSV csv *t = csv_parse(text);
        assert_null(reference_problem(t));
        assert_int_equal(t->dropped, 0);
        for (size_t r = 0; r < t->rows; r++) {
            const qualify_metric *m = metric(csv_cell(t, r, "metric"));
            const qualify_reference ref = {csv_real(t, r, "value"), csv_real(t, r, "floor")};
            const double share = qualify_bound(m, &ref) / ref.value;
            if (isfinite(ref.value) &&
                (m->lower_is_better ? !(share >= 1 && share <= 2) : !(share >= 0.5 && share <= 1)))
                fail_msg("%s, %s: the bound is %g of the value", gpu, m->name, share);
            assert_true(*csv_cell(t, r, "source") && strlen(csv_cell(t, r, "date")) == 10);
        }
    }
    assert_true(files >= 4);
}

/* What bench_roofline measured of a metric in the shape of a reference; NAN if it did not. */
static double roofline_value(const csv *rows, const char *name, const char *shape)
{
    static const char *const dtypes[] = {"bf16", "fp16", "tf32", "fp32"};
    char product[32], size[32];
    for (size_t r = 0; r < rows->rows; r++) {
        const char *const variant = csv_cell(rows, r, "variant");
        const bool is_copy = strcmp(variant, "copy") == 0;
        snprintf(size, sizeof size, "%s=%.12s", is_copy ? "bytes" : "n", csv_cell(rows, r, is_copy ? "bytes" : "size"));
        if (strcmp(name, "launch_us") == 0 && strcmp(variant, "launch") == 0)
            return csv_real(rows, r, "time_us");
        if (strcmp(size, shape) != 0)
            continue;
        if (is_copy && strcmp(name, "copy_gb_s") == 0)
            return csv_real(rows, r, "gb_s");
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && strcmp(variant, "gemm") == 0; d++) {
            snprintf(product, sizeof product, "gemm_%s_tflops", dtypes[d]);
            if (strcmp(name, product) == 0 && csv_is(rows, r, "dtype", dtypes[d]))
                return csv_real(rows, r, "tflops");
        }
    }
    return NAN;
}

/* A reference that was measured in another way than the program does now makes healthy GPUs slow. */
TEST(references_agree_with_the_rows_they_name)
{
    const char *const path = "results/h200-x1/bench_roofline.csv";
    OWNED_CSV csv *t = reference_shipped("NVIDIA H200"), *rows = csv_read(path);
    int found = 0;
    assert_non_null(rows);
    for (size_t r = 0; r < t->rows; r++) {
        const char *const name = csv_cell(t, r, "metric");
        if (!csv_is(t, r, "source", path))
            continue;
        const double value = csv_real(t, r, "value"), row = roofline_value(rows, name, csv_cell(t, r, "shape"));
        if (!(fabs(value / row - 1) < 0.04))
            fail_msg("%s: the reference is %g, %s has %g", name, value, path, row);
        found++;
    }
    assert_int_equal(found, 6);
}

TEST(finding_a_reference)
{
    qualify_reference ref;
    csv *t = reference_shipped("NVIDIA H200");
    assert_non_null(t);
    assert_null(reference_shipped("NVIDIA H200 NVL"));
    assert_true(reference_find(t, "gemm_bf16_tflops", 1, "n=8192", &ref) && ref.value > 600);
    assert_false(reference_find(t, "gemm_bf16_tflops", 1, "n=4096", &ref)); /* another shape is another thing */
    assert_true(isnan(ref.value) && isnan(ref.floor));
    assert_true(reference_find(t, "launch_us", 1, "any", &ref));
    assert_true(reference_find(t, "all_reduce_gb_s", 4, "bytes=1073741824", &ref) && ref.value > 340);
    assert_false(reference_find(t, "all_reduce_gb_s", 3, "bytes=1073741824", &ref));
    assert_false(reference_find(NULL, "launch_us", 1, "", &ref));
    csv_free(t);
    t = csv_parse("metric,gpus,shape,value\nlaunch_us,1,,3\n");
    assert_non_null(reference_problem(t));
    csv_free(t);
    t = csv_parse("metric,gpus,shape,value,floor\nlunch_us,1,,3,\n");
    assert_non_null(reference_problem(t));
    csv_free(t);
    t = csv_parse("metric,gpus,shape,value,floor\nlaunch_us,1,,,\n");
    assert_non_null(reference_problem(t));
    csv_free(t);
}
