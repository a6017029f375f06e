/* SPDX-License-Identifier: MIT */
/* The report by the names of the course's problems: every name of docs/course.md is there, and planted rows give exactly
 * the sentences that they mean. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/error.h"

/* ---- names and links ---- */

/* Whether the section answers a problem or names it among those without rows, with or without its part. */
static bool is_named(const char *course, const char *name)
{
    const char *missing = strstr(course, "\nWithout rows here: ");
    char answered[128], whole[128], part[128];
    snprintf(answered, sizeof answered, "\n### %s (", name);
    snprintf(whole, sizeof whole, "`%s`", name);
    snprintf(part, sizeof part, "`%s (", name);
    return strstr(course, answered) || (missing && (strstr(missing, whole) || strstr(missing, part)));
}

/* The section on the course alone: its problems are named elsewhere, too. Caller frees. */
static char *course_of(char *report)
{
    char *begin = strstr(report, "\n## The problems of CS336's second assignment\n"), *end;
    assert_non_null(begin);
    end = strstr(begin + 1, "\n## ");
    char *text = xasprintf("%.*s", end ? (int)(end - begin) : (int)strlen(begin), begin);
    free(report);
    return text;
}

static void every_problem_is_named(void **state)
{
    (void)state;
    char *course = course_of(file_text("results/h200-x1/report.md")), *problems = file_text("docs/course.md");
    size_t names = 0;
    for (char *line = strtok(problems, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "| `", 3) != 0)
            continue;
        char *cell_end = strstr(line, " | ");
        assert_non_null(cell_end);
        *cell_end = '\0';
        for (char *at = strchr(line, '`'); at; at = strchr(at, '`')) { /* a cell may have several */
            char *name = at + 1, *name_end = strchr(name, '`');
            assert_non_null(name_end);
            *name_end = '\0';
            at = name_end + 1;
            names++;
            if (!is_named(course, name))
                fail_msg("%s of docs/course.md is not in the report", name);
        }
    }
    assert_true(names > 30);
    free(problems);
    free(course);
}

/* ---- sentences ---- */

/* The section of a folder whose only file has these rows. Caller frees. */
static char *course_with(const char *folder, const char *file, const char *rows)
{
    char *dir = folder_path(folder, "box"), *csv = folder_path(dir, file);
    mkdir(dir, 0777);
    file_write(csv, rows);
    char *text = course_of(report_text(dir));
    free(csv);
    free(dir);
    return text;
}

static void expect(const char *text, const char *wanted)
{
    if (!strstr(text, wanted))
        fail_msg("no '%s' in:\n%s", wanted, text);
}

static void expect_none(const char *text, const char *unwanted)
{
    if (strstr(text, unwanted))
        fail_msg("'%s' in:\n%s", unwanted, text);
}

#define STEP_HEADER                                                                                                    \
    "bench,variant,status,reason,size,batch,seq,precision,mode,recompute,fp32_products,layers,warmup,cold,"            \
    "fwd_mean_ms,fwd_std_ms,bwd_mean_ms,bwd_std_ms,step_mean_ms,step_std_ms,host_step_ms,host_step_mean_ms,"           \
    "host_step_std_ms,n_steps,first_step_ms,device,check,utc\n"
#define STEP "bench_transformer,graph,ok,,"
#define TAIL "cuda,1,2026-11-21T10:00:00Z\n"

/* Batches, products, depths and precisions of other sweeps stand beside the rows that are meant. */
static void steps_in_order_and_no_others(void **state)
{
    char *text = course_with(*state, "bench_transformer.csv",
                             STEP_HEADER STEP
                             "2.7b,4,512,bf16,train-step,none,fma,0,5,0,10,0.2,20,1,40,1,0,0,0,10,50," TAIL STEP
                             "large,4,512,bf16,train-step,none,fma,0,5,0,4,0.1,9,0.1,20,2,0,0,0,10,50," TAIL STEP
                             "large,2,512,bf16,train-step,none,fma,0,5,0,777,1,1,1,1,1,0,0,0,10,50," TAIL STEP
                             "large,4,512,bf16,train-step,none,fma,2,5,0,777,1,1,1,1,1,0,0,0,10,50," TAIL STEP
                             "large,4,512,bf16,train-step,block,fma,0,5,0,777,1,1,1,1,1,0,0,0,10,50," TAIL STEP
                             "large,4,512,fp32,train-step,none,fp16x3,0,5,0,777,1,1,1,1,1,0,0,0,10,50," TAIL STEP
                             "small,4,512,bf16,train-step,none,fma,0,5,0,1,0.01,2,0.02,4,0.02,0,0,0,10,50," TAIL);
    expect(text, "| small | bf16 | 1.00 ± 1.0 % | 2.00 ± 1.0 % | 4.00 ± 0.5 % |\n"
                 "| large | bf16 | 4.00 ± 2.5 % | 9.00 ± 1.1 % | 20.0 ± 10.0 % |\n"
                 "| 2.7b | bf16 | 10.0 ± 2.0 % | 20.0 ± 5.0 % | 40.0 ± 2.5 % |\n\n");
    expect(text,
           "The backward takes 2.00 to 2.25 times as long as the forward. The deviation of a step is not small: at "
           "most 10.0 % of its mean (large, bf16).\n");
    expect_none(text, "777");
    expect_none(text, "Without warm-up");
    free(text);
}

/* A first step of 90 ms, the others of 10, leaves 8 of the 10 ms that the mean of 10 steps is too large by. */
static void warm_up(void **state)
{
    char *text = course_with(*state, "bench_transformer.csv",
                             STEP_HEADER STEP
                             "small,4,128,bf16,train-step,none,fma,0,0,1,1,0,1,0,1,0,10,20,30,10,90," TAIL STEP
                             "small,4,128,bf16,train-step,none,fma,0,1,1,1,0,1,0,1,0,10,12,6,10,110," TAIL STEP
                             "small,4,128,bf16,train-step,none,fma,0,2,1,1,0,1,0,1,0,10,10.1,0.1,10,110," TAIL STEP
                             "small,4,128,bf16,train-step,none,fma,0,5,1,1,0,1,0,1,0,10,10,0.1,10,110," TAIL);
    expect(text,
           " Without warm-up the mean step takes 2.00 times as long as after the most; the first step alone explains "
           "80 % of that or more. After 1 step the mean step takes 1.20 times as long as after the most. After 2 "
           "steps the mean step takes 1.01 times as long as after the most: no difference.\n");
    free(text);
}

/* The recording is held against events around the same steps, which it makes longer. */
static void recorded_steps(void **state)
{
#define RECORDED(size, mode, times)                                                                                    \
    "bench_transformer,graph,size=" size " seq=512 precision=bf16 mode=" mode                                          \
    " recompute=none layers=0 d_model=0 variant=graph,steps,0,1,run-a," times "\n"
    char *dir = folder_path(*state, "box"), *profile = folder_path(dir, "profile"),
         *totals = folder_path(profile, "totals.csv");
    mkdir(dir, 0777);
    mkdir(profile, 0777);
    file_write(totals,
               "bench,variant,case,measurement,rank,ranks,run_id,window_ms,event_ms,recorded_event_ms\n" RECORDED(
                   "small", "forward", "1.02,1.01,1") RECORDED("small", "train-step", "4.04,4,4.08"));
    char *text = course_with(*state, "bench_transformer.csv",
                             STEP_HEADER STEP
                             "small,4,512,bf16,train-step,none,fma,0,5,0,1,0.01,2,0.02,4,0.02,0,0,0,10,50," TAIL);
    expect(text, "| forward | small | 512 | bf16 | 1.02 | 1.00 | 1.02 | 1.01 | 0.990 |\n"
                 "| train-step | small | 512 | bf16 | 4.04 | 4.08 | 0.990 | 4.00 | 1.02 |\n");
    expect(text,
           "Of the same steps the two agree: they are at most 2.00 % apart. A recorded step takes 0.990 to 1.02 times "
           "as long as one that is not recorded.\n");
    free(text);
    free(totals);
    free(profile);
    free(dir);
}

#define SUM_HEADER "bench,variant,status,reason,sum,pair,fwd_ms,value,err_abs,device,check,utc\n"
#define SUM "bench_mixed_precision,accumulation,ok,,1000x0.01,"

static void sums(void **state)
{
    char *text =
        course_with(*state, "bench_mixed_precision.csv",
                    SUM_HEADER SUM "fp32+fp32,nan,10.001,0.001," TAIL SUM "fp16+fp16,nan,9.5,0.5," TAIL SUM
                                   "fp32+fp16,nan,10.004,0.004," TAIL SUM "fp32+fp16-cast,nan,10.004,0.004," TAIL);
    expect(
        text,
        "The fp16 sum is off most: it rounds at every addition. An fp32 sum of fp16 numbers is off 4.00 times as far "
        "as one of fp32 numbers, because each number was rounded when it was stored. Casting them to fp32 first "
        "changes nothing: the addition does that by itself.\n");
    free(text);
    text = course_with(*state, "bench_mixed_precision.csv",
                       SUM_HEADER SUM "fp32+fp32,nan,10.6,0.6," TAIL SUM "fp16+fp16,nan,9.5,0.5," TAIL SUM
                                      "fp32+fp16,nan,10.004,0.004," TAIL SUM "fp32+fp16-cast,nan,10.003,0.003," TAIL);
    expect(text, "Here the fp16 sum is not the one that is off most. Casting them to fp32 first gives another sum.\n");
    free(text);
}

/* Every link inside the committed page leads somewhere, those behind each answer among them. */
static void links_lead_somewhere(void **state)
{
    (void)state;
    char *page = file_text("results/h200-x1/report.html");
    int links = 0;
    for (const char *at = page; (at = strstr(at, " href=\"#")) != NULL; links++) {
        at += strlen(" href=\"#");
        char *target = xasprintf(" id=\"%.*s\"", (int)strcspn(at, "\""), at);
        if (!strstr(page, target))
            fail_msg("a link leads to%s, which is nowhere", target);
        free(target);
    }
    assert_true(links > 50);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_problem_is_named),
        cmocka_unit_test(links_lead_somewhere),
        cmocka_unit_test_setup_teardown(steps_in_order_and_no_others, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(warm_up, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(recorded_steps, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(sums, folder_create, folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
