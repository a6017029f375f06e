/* SPDX-License-Identifier: MIT */
/* stepcmp: two folders of results, two CSV files, or two commits of one, compared case by case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/version.h"
#include "common/compare/checkout.h"
#include "common/compare/compare.h"

static const char usage[] =
    "stepcmp: What is slower, faster or the same in another run?\n"
    "\n"
    "usage: stepcmp [OPTION ...] A B\n"
    "\n"
    "A and B are folders of results, CSV files of a bench, or COMMIT:PATH, a folder or file as git has it at a commit\n"
    "(PATH from the root of the repository).\n"
    "\n"
    "A time of B is SAME, FASTER, SLOWER or UNCLEAR, with a 95 % interval of its change. Bytes and counts are equal\n"
    "or CHANGED. A case that was ok in A and failed in B is BROKEN. Cases that only one side has, and those of\n"
    "another method, GPU, library or driver, are named and not compared.\n"
    "\n"
    "  --fail-on slower=PCT   exit 4 when a case is BROKEN, or SLOWER by at least PCT percent; PCT is also what counts "
    "as\n"
    "                         the same (default 3)\n"
    "  --noise PCT            standard deviation from run to run of this machine, where you have measured it (default: "
    "1\n"
    "                         on the same GPU, 3 on another one, 5 on a CPU, below 20 us and for small collectives)\n"
    "  --across LIST          conditions that may differ, such as gpu,driver, of:\n"
    "                         " COMPARE_CONDITIONS "\n"
    "  --format FORMAT        text (default), csv or markdown\n"
    "  --all                  every time on its own line, also SAME and UNCLEAR ones\n"
    "  --version, --help\n"
    "\n"
    "Exit codes: 0, 1 failure, 2 bad input, 4 a bound of --fail-on was missed, 77 nothing could be compared.\n";

/* ---- options ---- */

typedef struct request {
    compare_options compare;
    compare_writer *write;
    const char *paths[2];
    bool gate, all;
} request;

/* "3" or "3%", above 0. */
static double percent_of(const char *option, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || (*end && strcmp(end, "%") != 0) || !(value > 0) || !(value < 1000))
        die(EXIT_CODE_USAGE, "%s wants a percentage above 0, not '%s'", option, text);
    return value / 100;
}

static compare_writer *writer_of(const char *format)
{
    static const struct {
        const char *name;
        compare_writer *write;
    } formats[] = {{"text", compare_write_text}, {"csv", compare_write_csv}, {"markdown", compare_write_markdown}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].name) == 0)
            return formats[i].write;
    die(EXIT_CODE_USAGE, "--format is text, csv or markdown, not '%s'", format);
}

static const char *conditions_of(const char *list)
{
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        if (!compare_is_condition(at, length))
            die(EXIT_CODE_USAGE, "--across takes words of " COMPARE_CONDITIONS ", not '%.*s'", (int)length, at);
        at += length;
        if (!*at)
            return list;
    }
}

static request read_request(int argc, char **argv)
{
    request r = {.compare = {.margin = log1p(0.03), .noise = NAN, .across = ""}, .write = compare_write_text};
    size_t paths = 0;
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        const bool valued = strcmp(option, "--fail-on") == 0 || strcmp(option, "--noise") == 0 ||
                            strcmp(option, "--across") == 0 || strcmp(option, "--format") == 0;
        if (valued && i + 1 == argc)
            die(EXIT_CODE_USAGE, "%s wants a value", option);
        if (strcmp(option, "--all") == 0)
            r.all = true;
        else if (strcmp(option, "--fail-on") == 0) {
            if (strncmp(argv[++i], "slower=", 7) != 0)
                die(EXIT_CODE_USAGE, "--fail-on wants slower=PCT, such as slower=3%%, not '%s'", argv[i]);
            r.compare.margin = log1p(percent_of(option, argv[i] + 7));
            r.gate = true;
        } else if (strcmp(option, "--noise") == 0)
            r.compare.noise = percent_of(option, argv[++i]);
        else if (strcmp(option, "--across") == 0)
            r.compare.across = conditions_of(argv[++i]);
        else if (strcmp(option, "--format") == 0)
            r.write = writer_of(argv[++i]);
        else if (*option == '-' || paths == 2)
            die(EXIT_CODE_USAGE, "'%s' is not an option, nor the first or second path; see --help", option);
        else
            r.paths[paths++] = option;
    }
    if (paths != 2)
        die(EXIT_CODE_USAGE, "two paths are wanted; see --help");
    return r;
}

int main(int argc, char **argv)
{
    program_name_set(argv[0]);
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return EXIT_CODE_OK;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("stepcmp %s\n", STEPBENCH_VERSION);
        return EXIT_CODE_OK;
    }
    const request r = read_request(argc, argv);
    OWNED char *a = checkout_path(r.paths[0]), *b = checkout_path(r.paths[1]);
    comparison *c = compare_paths(a, b, &r.compare);
    r.write(stdout, c, r.paths, r.all);
    const size_t compared = comparison_count(c, COMPARE_TIME) + c->equal + comparison_count(c, COMPARE_CHANGED) +
                            comparison_count(c, COMPARE_BROKEN);
    int code = EXIT_CODE_OK;
    if (!compared) {
        warn("no case of %s could be compared with %s", r.paths[0], r.paths[1]);
        code = EXIT_CODE_UNSUPPORTED;
    } else if (r.gate && comparison_failures(c)) {
        const size_t failures = comparison_failures(c);
        warn("%zu %s broken or slower by at least %.3g %%", failures, failures == 1 ? "case is" : "cases are",
             100 * expm1(c->margin));
        code = EXIT_CODE_GATE;
    }
    comparison_free(c);
    return code;
}
