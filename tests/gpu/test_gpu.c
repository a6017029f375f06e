/* Every CUDA op against the CPU's fp64 reference: odd shapes, masks, head groups, layouts, hard values, dtypes; nothing
 * written outside of the outputs; the same bits on every run. Prints a line for each failure and a table.
 *
 * Run: build/tests/gpu/test_gpu [--small] [--op NAME] [--dtype NAME] [--case TEXT] [--list] [--device cuda|cpu]
 * Exit code 0, 2 for bad input, 3 when a case failed, 77 when there is no GPU. */
#include "common/core/error.h"
#include "tests/gpu/runner.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ZONE_BYTES = 256, REPEATS = 20, REPEATS_SMALL = 2, BATCH = 64, MAX_THREADS = 32 };

typedef struct arguments {
    bool small, list;
    device_kind kind;
    const char *op, *dtype, *name;
} arguments;

static void usage(FILE *to)
{
    fputs("usage: test_gpu [options]\n"
          "  --small          few small shapes, in buffers without zones: for compute-sanitizer\n"
          "  --op NAME        one op only: unfused, fused, flash, flash_portable, reference, gemm, fill_normal, copy, "
          "nothing\n"
          "  --dtype NAME     bf16, fp16, tf32 or fp32\n"
          "  --case TEXT      only cases whose name contains TEXT\n"
          "  --list           print the names of the cases and stop\n"
          "  --device NAME    cuda (default), or cpu: the CPU backend through the same checks\n",
          to);
}

static const char *one_of(const char *option, const char *value, const char *const names[], int n)
{
    char allowed[256] = "";
    for (int i = 0; i < n; i++) {
        if (value && strcmp(value, names[i]) == 0)
            return names[i];
        strcat(strcat(allowed, i ? ", " : ""), names[i]);
    }
    die(EXIT_CODE_USAGE, "%s %s: allowed are %s", option, value ? value : "(nothing)", allowed);
}

static arguments parse(int argc, char **argv)
{
    static const char *const ops[] = {"unfused", "fused",       "flash", "flash_portable", "reference",
                                      "gemm",    "fill_normal", "copy",  "nothing"};
    static const char *const dtypes[] = {"bf16", "fp16", "tf32", "fp32", "bytes"}, *const devices[] = {"cuda", "cpu"};
    arguments x = {.kind = DEVICE_CUDA};
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = argv[i + 1]; /* argv ends with NULL */
        if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            usage(stdout);
            exit(EXIT_CODE_OK);
        } else if (strcmp(option, "--small") == 0) {
            x.small = true;
            continue;
        } else if (strcmp(option, "--list") == 0) {
            x.list = true;
            continue;
        } else if (strcmp(option, "--op") == 0) {
            x.op = one_of(option, value, ops, sizeof ops / sizeof *ops);
        } else if (strcmp(option, "--dtype") == 0) {
            x.dtype = one_of(option, value, dtypes, sizeof dtypes / sizeof *dtypes);
        } else if (strcmp(option, "--device") == 0) {
            x.kind = one_of(option, value, devices, 2) == devices[0] ? DEVICE_CUDA : DEVICE_CPU;
        } else if (strcmp(option, "--case") == 0) {
            if (!value)
                die(EXIT_CODE_USAGE, "--case needs a part of a case's name; --list prints the names");
            x.name = value;
        } else {
            usage(stderr);
            die(EXIT_CODE_USAGE, "unknown option %s", option);
        }
        i++;
    }
    return x;
}

/* Keeps the cases that were asked for; their number. */
static int select_cases(const arguments *x, test_case *cases, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if ((!x->small || cases[i].small) && (!x->name || strstr(cases[i].name, x->name)) &&
            (!x->dtype || strcmp(x->dtype, case_dtype_names[cases[i].dtype]) == 0))
            cases[kept++] = cases[i];
    return kept;
}

/* ---- expected values, by as many threads as there are cores ---- */

typedef struct work {
    problem **problems;
    int n, next;
    pthread_mutex_t lock;
} work;

static void *prepare(void *arg)
{
    work *w = arg;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        int i = w->next++;
        pthread_mutex_unlock(&w->lock);
        if (i >= w->n)
            return NULL;
        if (problem_cpu_affordable(w->problems[i]))
            problem_expect_from_cpu(w->problems[i]);
    }
}

static void prepare_all(problem **problems, int n)
{
    work w = {problems, n, 0, PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MAX_THREADS];
    int n_threads = 0;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    while (n_threads < MAX_THREADS && n_threads < cores && pthread_create(&threads[n_threads], NULL, prepare, &w) == 0)
        n_threads++;
    prepare(&w);
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
}

static bool is_attention(const char *op)
{
    return !op || strcmp(op, "reference") == 0 || strstr(op, "fused") || strncmp(op, "flash", 5) == 0;
}

static void run_cases(runner *r, const arguments *x, const test_case *cases, int n)
{
    for (int first = 0; first < n; first += BATCH) {
        const int count = n - first < BATCH ? n - first : BATCH;
        problem *problems[BATCH];
        for (int i = 0; i < count; i++)
            problems[i] = problem_create(&cases[first + i]);
        prepare_all(problems, count);
        for (int i = 0; i < count; i++) {
            run_attention(r, problems[i], x->op);
            problem_free(problems[i]);
        }
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "\r%d of %d attention cases%s", first + count, n, first + count == n ? "\n" : "");
    }
}

static int summary(const runner *r)
{
    int passed = 0, failed = 0, skipped = 0;
    printf("%-16s %-6s %7s %7s %7s  %s\n", "op", "dtype", "passed", "failed", "skipped",
           "worst rel_l2 of o, dq, dk, dv on N(0,1)");
    for (int i = 0; i < r->n_tallies; i++) {
        const tally *t = &r->tallies[i];
        printf("%-16s %-6s %7d %7d %7d", t->op, t->dtype, t->passed, t->failed, t->skipped);
        if (t->worst > 0)
            printf("  %.2e", t->worst);
        if (t->skipped)
            printf("  skipped: %s", t->skip_reason);
        putchar('\n');
        passed += t->passed;
        failed += t->failed;
        skipped += t->skipped;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    if (passed + failed == 0) {
        warn("nothing ran: no case matches what was asked for");
        return EXIT_CODE_USAGE;
    }
    return failed ? EXIT_CODE_VERIFY : EXIT_CODE_OK;
}

int main(int argc, char **argv)
{
    program_name_set(argv[0]);
    const arguments x = parse(argc, argv);
    int n = 0;
    test_case *cases = cases_create(&n);
    n = select_cases(&x, cases, n);
    if (x.list) {
        for (int i = 0; i < n; i++)
            printf("%s %s\n", case_dtype_names[cases[i].dtype], cases[i].name);
        return EXIT_CODE_OK;
    }
    if (x.kind == DEVICE_CUDA && device_no_cuda_reason())
        die(EXIT_CODE_UNSUPPORTED, "%s", device_no_cuda_reason());

    runner r = {.dev = device_open(x.kind, 0),
                .program = argv[0],
                .zone_bytes = x.small ? 0 : ZONE_BYTES,
                .repeats = x.small ? REPEATS_SMALL : REPEATS,
                .extra_options = x.small ? " --small" : ""};
    r.kernels = x.kind == DEVICE_CUDA ? sb_kernels_cuda() : sb_kernels_cpu();
    if (r.kernels->create(0, &r.ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "%s", sb_last_message());
    run_basic(&r, x.op, x.dtype, x.name, x.small);
    if (is_attention(x.op))
        run_cases(&r, &x, cases, n);
    const int code = summary(&r);
    r.kernels->destroy(r.ctx);
    device_close(r.dev);
    free(r.tallies);
    free(cases);
    return code;
}
