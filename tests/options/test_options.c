/* SPDX-License-Identifier: MIT */
/* Options: what is accepted, what is refused and in which words, and that help, parser and table agree. */
#include "tests/support/test.h"

#include "common/options/internal.h"

#include <sys/wait.h>

/* Refused, and the sentence contains every one of the '|'-separated words. */
static void refuse(const char *arguments, const char *words)
{
    char msg[1024], copy[256], *rest = copy, *word;
    options *o = sample_parse(arguments, msg, sizeof msg);
    if (o)
        fail_msg("'%s' was accepted", arguments);
    snprintf(copy, sizeof copy, "%s", words);
    while ((word = strsep(&rest, "|")))
        if (!strstr(msg, word))
            fail_msg("'%s' gave \"%s\", which lacks \"%s\"", arguments, msg, word);
}

static void expect_list(const char *arguments, const char *name, const char *expected)
{
    OWNED_OPTIONS options *o = sample_options_of(arguments);
    char text[4096] = "";
    for (size_t i = 0; i < option_count(o, name); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "," : "", option_text_at(o, name, i));
    assert_string_equal(text, expected);
}

TEST(defaults)
{
    OWNED_OPTIONS options *o = sample_options_of("");
    assert_int_equal(option_count(o, "seq"), 4);
    assert_int_equal(option_int_at(o, "seq", 3), 1024);
    assert_string_equal(option_text(o, "device"), "cuda");
    assert_int_equal(option_choice(o, "device"), 0);
    assert_int_equal(option_int(o, "bucket"), 25000000);
    assert_int_equal(option_int(o, "iters"), 7); /* the bench's entry replaced the common one */
    assert_int_equal(option_int(o, "warmup"), 3);
    assert_true(option_real(o, "timeout") == 300);
    assert_true(option_flag(o, "check"));
    assert_false(option_flag(o, "resume"));
    assert_false(option_given(o, "seq"));
    assert_string_equal(option_text(o, "csv"), "auto");
}

TEST(defaults_of_the_cpu)
{
    expect_list("--device cpu", "seq", "128,256");
    expect_list("--device=cpu --seq 512", "seq", "512");
    char msg[256], *argv[] = {"x"};
    OWNED_OPTIONS options *o =
        options_try(&sample_bench, 1, argv, &(options_env){"cpu", "no GPU", NULL}, msg, sizeof msg);
    assert_non_null(o);
    assert_string_equal(option_text(o, "device"), "cpu");
    assert_int_equal(option_choice(o, "device"), 1);
    assert_string_equal(option_text_at(o, "dtype", 0), "fp32");
}

TEST(lists_and_ranges)
{
    expect_list("--seq 5", "seq", "5");
    expect_list("--seq=5,9,7", "seq", "5,9,7");
    expect_list("--seq 2:5", "seq", "2,3,4,5");
    expect_list("--seq 128:1K:*2", "seq", "128,256,512,1024");
    expect_list("--seq 128:1023:*2", "seq", "128,256,512");
    expect_list("--seq 64:256:+64", "seq", "64,128,192,256");
    expect_list("--seq 64:255:+64", "seq", "64,128,192");
    expect_list("--seq 7:7:*2", "seq", "7");
    expect_list("--seq 1,4:6,1K:4K:*2", "seq", "1,4,5,6,1024,2048,4096");
    expect_list("--seq 1M", "seq", "1048576");
    expect_list("--dtype all", "dtype", "bf16,fp16,fp32");
    expect_list("--dtype fp32,bf16", "dtype", "fp32,bf16");
    expect_list("--decay 0.1:0.5:+0.1", "decay", "0.1,0.2,0.3,0.4,0.5");
    expect_list("--decay 0.001:1:*10", "decay", "0.001,0.01,0.1,1");
    expect_list("--decay 1e-3,.5", "decay", "0.001,0.5");
    expect_list("--causal 0,1", "causal", "0,1");
    expect_list("--variant all", "variant", "plain,fast");
    expect_list("--variant fast", "variant", "fast");
    expect_list("--seq 1:4096", "head-dim", "16");
}

/* A choice that is named "all" is what the word means; elsewhere it means all of them. */
TEST(a_choice_named_all)
{
    const option_spec with = {"overlap", OPTION_CHOICE, OPTION_LIST, "none", .help = "", .choices = "auto|all|none"},
                      without = {"way", OPTION_CHOICE, OPTION_LIST, "none", .help = "", .choices = "auto|small|none"};
    char msg[256];
    option_values v;
    assert_true(option_values_parse(&with, "none,all", &v, msg, sizeof msg));
    assert_int_equal(v.n, 2);
    assert_string_equal(v.v[1].text, "all");
    option_values_free(&v);
    assert_true(option_values_parse(&without, "all", &v, msg, sizeof msg));
    assert_int_equal(v.n, 3);
    option_values_free(&v);
    option_accepts(&with, msg, sizeof msg);
    assert_string_equal(msg, "some of auto|all|none");
}

TEST(numbers)
{
    options *o = sample_options_of("--scale -2.5e-3 --bucket 2M --seed 3G --csv=--odd --head_dim 64");
    assert_true(option_real(o, "scale") == -2.5e-3);
    assert_int_equal(option_int(o, "bucket"), 2 << 20);
    assert_int_equal(option_int_at(o, "head-dim", 0), 64);
    assert_string_equal(option_text(o, "csv"), "--odd");
    assert_true(option_given(o, "scale"));
    options_free(o);
    o = sample_options_of("--bucket=3GB");
    assert_true(option_int(o, "bucket") == 3000000000);
    options_free(o);
}

TEST(flags)
{
    static const struct {
        const char *arguments;
        bool resume;
    } table[] = {{"--resume", true},         {"--resume 1", true},      {"--resume=1", true},
                 {"--resume 0", false},      {"--resume=0", false},     {"--resume --quiet", true},
                 {"--resume --seq 1", true}, {"--quiet --resume", true}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        OWNED_OPTIONS options *o = sample_options_of(table[i].arguments);
        assert_int_equal(option_flag(o, "resume"), table[i].resume);
    }
    refuse("--resume yes", "--resume|yes|0 or 1");
    refuse("--resume=2", "--resume|0 or 1");
    refuse("--resume=", "--resume");
}

TEST(refusals)
{
    refuse("--sqe 128", "unknown option --sqe|--seq");
    refuse("--head 64", "--head-dim");
    refuse("--verion", "--version");
    refuse("--zzzzzzzzz", "--zzzzzzzzz|--help");
    refuse("-seq 128", "unknown option -seq|--seq");
    refuse("128", "'128'|--name value");
    refuse("--", "--name value");
    refuse("--seq", "--seq needs a value|1 to 1048576 tokens");
    refuse("--seq --quiet", "--seq needs a value");
    refuse("--seq 0", "--seq|0 is out of range|from 1 to 1048576");
    refuse("--seq 1048577", "out of range");
    refuse("--seq 128,2M", "2097152 is out of range");
    refuse("--seq 12x", "--seq|'12x'");
    refuse("--seq 12KB", "'12KB'"); /* powers of 1000 are for bytes */
    refuse("--seq 1.5", "'1.5'");
    refuse("--seq 0x10", "'0x10'");
    refuse("--seq +5", "'+5'");
    refuse("--seq=", "empty value");
    refuse("--seq 1,,2", "empty value");
    refuse("--seq 1,", "empty value");
    refuse("--seq 99999999999999999999", "out of range");
    refuse("--seq 9999999999G", "out of range");
    refuse("--seq 5,6,5", "5 is given twice");
    refuse("--seq 1:4,2", "2 is given twice");
    refuse("--seq 9:5", "9:5 runs backwards");
    refuse("--seq 1:9:*1", "*1|never ends");
    refuse("--seq 1:9:+0", "+0|never ends");
    refuse("--seq 1:9:2", "+step or *factor");
    refuse("--seq 1:9:*", "''");
    refuse("--seq :9", "''");
    refuse("--seq 1:4097", "more than 4096 values");
    refuse("--seq 1 --seq 2", "--seq is given twice|commas");
    refuse("--iters 1,2", "--iters|'1,2'|a whole number from 1 to 100");
    refuse("--iters 1:2", "takes one value");
    refuse("--decay 2", "2 is out of range|from 0 to 1");
    refuse("--decay 0:1:*2", "never ends");
    refuse("--decay 0:1:+1e-9", "more than 4096");
    refuse("--decay nan", "'nan'");
    refuse("--scale inf", "'inf'");
    refuse("--scale 1e999", "'1e999'");
    refuse("--scale 1.5x", "'1.5x'");
    refuse("--bucket 1KiB", "'1KiB'|KB");
    refuse("--dtype fp8", "--dtype|'fp8'|bf16|fp16|fp32|all");
    refuse("--dtype bf1", "'bf1'");
    refuse("--dtype all,bf16", "bf16 is given twice");
    refuse("--device all", "'all'");
    refuse("--variant slow", "'slow'|plain");
    refuse("--fuse --scale 2", "--fuse 1 goes with --scale 1 only");
    refuse("--seq 1:4096 --head-dim 8:256", "cases");
    char msg[256], *argv[] = {"x", "--device", "cuda"};
    assert_null(options_try(&sample_bench, 3, argv, &(options_env){"cpu", "no NVIDIA GPU", NULL}, msg, sizeof msg));
    assert_non_null(strstr(msg, "no NVIDIA GPU"));
}

static char *printed(void (*print)(const options *, FILE *), const options *o)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    print(o, out);
    fclose(out);
    return text;
}

/* Every option is in the help with its default, and each line of --list-options parses back. */
TEST(texts_agree)
{
    OWNED_OPTIONS options *o = sample_options_of("");
    OWNED char *help = printed(options_print_help, o), *table = printed(options_print_table, o);
    OWNED char *list = printed(options_print_list, o), *version = printed(options_print_version, o);
    assert_non_null(strstr(help, sample_bench.summary));
    assert_non_null(strstr(help, sample_bench.notes));
    assert_non_null(strstr(help, "whole numbers from 1 to 1048576 tokens [default 128:1024:*2; on the CPU 128,256]"));
    assert_non_null(strstr(list, "fast                 all at once"));
    assert_non_null(strstr(list, "median of a forward pass"));
    assert_non_null(strstr(list, "run_id"));
    assert_ptr_equal(strstr(version, "stepbench 0.4.0 (commit "), version);
    assert_non_null(strstr(version, "bench_sample, results schema 3, method 3\n"));
    for (size_t i = 0; i < o->n; i++) {
        char name[64];
        snprintf(name, sizeof name, "\n  --%s ", o->entries[i].spec.name);
        assert_non_null(strstr(help, name));
    }
    size_t lines = 0;
    char *rest = table, *line;
    while ((line = strsep(&rest, "\n")) && *line) {
        char *name = strsep(&line, "\t"), *kind = strsep(&line, "\t"), *def = strsep(&line, "\t");
        assert_non_null(kind);
        if (lines++ == 0)
            continue;
        char name_and_value[256], msg[512], *argv[] = {"x", name_and_value};
        snprintf(name_and_value, sizeof name_and_value, "--%s=%s", name, def);
        OWNED_OPTIONS options *again = options_try(&sample_bench, 2, argv, &sample_with_cuda, msg, sizeof msg);
        if (!again)
            fail_msg("%s: %s", name_and_value, msg);
    }
    assert_int_equal(lines, o->n + 1);
}

TEST(describes_itself)
{
    char msg[256], *argv[] = {"./bench_sample", "--seq", "1,2", "--csv", "a b.csv"};
    OWNED_OPTIONS options *o = options_try(&sample_bench, 5, argv, &sample_with_cuda, msg, sizeof msg);
    assert_string_equal(options_command_line(o), "./bench_sample --seq 1,2 --csv 'a b.csv'");
    OWNED char *text = options_describe(o);
    assert_ptr_equal(strstr(text, "seq=1,2 head-dim=16 dtype=bf16,fp32 "), text);
    assert_non_null(strstr(text, " variant=plain,fast "));
}

/* Exit codes of a whole program, its output thrown away. */
static int exit_code(char *argument)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *argv[] = {"bench_sample", argument};
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(99);
        options_free(options_parse(&sample_bench, 2, argv, &(options_env){"cpu", "none here", NULL}));
        _exit(98);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(exit_codes)
{
    static char *const good[] = {"--help", "-h", "--version", "-V", "--list", "--list-options", "--list-runs"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(exit_code(good[i]), 0);
    assert_int_equal(exit_code("--nonsense"), 2);
    assert_int_equal(exit_code("--seq=0"), 2);
    assert_int_equal(exit_code("--device=cuda"), 2);
    assert_int_equal(exit_code("--seq=1"), 98);
}
