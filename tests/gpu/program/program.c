/* SPDX-License-Identifier: MIT */
/* See program.h. */
#include "tests/gpu/program/program.h"

#include "common/core/error.h"
#include "common/session/library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ZONE_BYTES = 256,
    REPEATS = 20,
    FEW_REPEATS = 2,
    MAX_REPEATS = 100000,
    MAX_THREADS = 32,
    LINE = 100,
    INDENT = 19
};

/* ---- options ---- */

/* "bf16, fp16, tf32" in lines of LINE characters, the first of which begins at `column`. */
static void print_names(FILE *to, int column, const char *const *names)
{
    for (int i = 0; names[i]; i++) {
        const int length = (int)strlen(names[i]) + (names[i + 1] != NULL);
        if (i > 0 && column + 1 + length > LINE) {
            fprintf(to, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (i > 0) {
            fputc(' ', to);
            column++;
        }
        fprintf(to, "%s%s", names[i], names[i + 1] ? "," : "");
        column += length;
    }
    fputc('\n', to);
}

static void usage(FILE *to, const char *program, const char *const *ops, const char *const *dtypes)
{
    const char *slash = strrchr(program, '/');
    fprintf(to,
            "usage: %s [options]\n"
            "  --small          few small shapes, in buffers without zones: for compute-sanitizer\n"
            "  --op NAME        one op only: ",
            slash ? slash + 1 : program);
    print_names(to, INDENT + 13, ops);
    fprintf(to, "  --dtype NAME     ");
    print_names(to, INDENT, dtypes);
    fputs("  --case TEXT      only cases whose name contains TEXT\n"
          "  --repeats N      calls that must agree in every bit, where a case asks for repeats (default: 20)\n"
          "  --list           print the op, dtype and name of each case and stop\n"
          "  --device NAME    cuda (default), or cpu: the CPU backend through the same checks\n",
          to);
}

static const char *one_of(const char *option, const char *value, const char *const *names)
{
    char allowed[512] = "";
    for (int i = 0; names[i]; i++) {
        if (value && strcmp(value, names[i]) == 0)
            return names[i];
        const size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", i ? ", " : "", names[i]);
    }
    die(EXIT_CODE_USAGE, "%s %s: allowed are %s", option, value ? value : "(nothing)", allowed);
}

arguments arguments_parse(int argc, char **argv, const char *const *ops, const char *const *dtypes)
{
    static const char *const devices[] = {"cuda", "cpu", NULL};
    arguments x = {.kind = DEVICE_CUDA};
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = argv[i + 1]; /* argv ends with NULL */
        if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            usage(stdout, argv[0], ops, dtypes);
            exit(EXIT_CODE_OK);
        } else if (strcmp(option, "--small") == 0) {
            x.small = true;
            continue;
        } else if (strcmp(option, "--list") == 0) {
            x.list = true;
            continue;
        } else if (strcmp(option, "--op") == 0) {
            x.op = one_of(option, value, ops);
        } else if (strcmp(option, "--dtype") == 0) {
            x.dtype = one_of(option, value, dtypes);
        } else if (strcmp(option, "--device") == 0) {
            x.kind = one_of(option, value, devices) == devices[0] ? DEVICE_CUDA : DEVICE_CPU;
        } else if (strcmp(option, "--repeats") == 0) {
            char *end = NULL;
            const long n = value ? strtol(value, &end, 10) : 0;
            if (n < 2 || n > MAX_REPEATS || *end)
                die(EXIT_CODE_USAGE, "--repeats %s: allowed are 2 to %d", value ? value : "(nothing)", MAX_REPEATS);
            x.repeats = (int)n;
        } else if (strcmp(option, "--case") == 0) {
            if (!value)
                die(EXIT_CODE_USAGE, "--case needs a part of a case's name; --list prints the names");
            x.name = value;
        } else {
            usage(stderr, argv[0], ops, dtypes);
            die(EXIT_CODE_USAGE, "unknown option %s", option);
        }
        i++;
    }
    library_check();
    return x;
}

bool arguments_want(const arguments *x, const char *op, const char *dtype, const char *name, bool small)
{
    return (!x->small || small) && (!x->op || strcmp(x->op, op) == 0) && (!x->dtype || strcmp(x->dtype, dtype) == 0) &&
           (!x->name || strstr(name, x->name));
}

/* ---- the runner ---- */

runner runner_open(const arguments *x, const char *program)
{
    if (x->kind == DEVICE_CUDA && device_no_cuda_reason())
        die(EXIT_CODE_UNSUPPORTED, "%s", device_no_cuda_reason());
    runner r = {.dev = device_open(x->kind, 0),
                .kernels = x->kind == DEVICE_CUDA ? sb_kernels_cuda() : sb_kernels_cpu(),
                .program = program,
                .small = x->small,
                .slab = slab_create(),
                .zone_bytes = x->small ? 0 : ZONE_BYTES,
                .repeats = x->repeats              ? x->repeats
                           : x->small              ? 1
                           : x->kind == DEVICE_CPU ? FEW_REPEATS
                                                   : REPEATS,
                .extra_options = x->kind == DEVICE_CUDA ? x->small ? " --small" : ""
                                 : x->small             ? " --small --device cpu"
                                                        : " --device cpu"};
    if (r.kernels->create(0, &r.ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "%s", sb_last_message());
    return r;
}

int runner_close(runner *r, const char *worst)
{
    int passed = 0, failed = 0, skipped = 0;
    printf("%-18s %-10s %7s %7s %7s  %s\n", "op", "dtype", "passed", "failed", "skipped", worst);
    for (int i = 0; i < r->n_tallies; i++) {
        const tally *t = &r->tallies[i];
        printf("%-18s %-10s %7d %7d %7d", t->op, t->dtype, t->passed, t->failed, t->skipped);
        if (t->worst > 0)
            printf("  %.2e", t->worst);
        if (t->forward_only)
            printf("  %d of forward alone", t->forward_only);
        if (t->skipped)
            printf("  skipped: %s", t->skip_reason);
        putchar('\n');
        passed += t->passed;
        failed += t->failed;
        skipped += t->skipped;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    slab_free(r);
    r->kernels->destroy(r->ctx);
    device_close(r->dev);
    free(r->tallies);
    if (passed + failed == 0) {
        warn("nothing ran: no case matches what was asked for");
        return EXIT_CODE_USAGE;
    }
    return failed ? EXIT_CODE_VERIFY : EXIT_CODE_OK;
}

void runner_progress(int done, int all, const char *what)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%d of %d %s%s", done, all, what, done == all ? "\n" : "");
}

/* ---- threads ---- */

typedef struct crew {
    int n, next;
    void (*work)(void *, int);
    void *context;
    pthread_mutex_t lock;
} crew;

static void *work_on(void *arg)
{
    crew *c = arg;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        const int i = c->next++;
        pthread_mutex_unlock(&c->lock);
        if (i >= c->n)
            return NULL;
        c->work(c->context, i);
    }
}

void in_parallel(int n, void (*work)(void *, int), void *context)
{
    crew c = {n, 0, work, context, PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MAX_THREADS];
    int started = 0;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    while (started < MAX_THREADS && started < cores - 1 && pthread_create(&threads[started], NULL, work_on, &c) == 0)
        started++;
    work_on(&c);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
