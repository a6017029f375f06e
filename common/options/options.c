/* SPDX-License-Identifier: MIT */
/* The parser: merges the bench's table with the common one, reads argv, fills in defaults, validates. */
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/options/internal.h"

#include <stdlib.h>
#include <string.h>

static const option_spec common_options[] = {
    {"device", OPTION_CHOICE, 0, "cuda", .help = "where the work runs", .choices = "cuda|cpu"},
    {"gpu", OPTION_INT, 0, "0", .help = "which of the visible GPUs", .max = 255},
    {"variant", OPTION_CHOICE, OPTION_LIST, "all", .help = "which variants to measure"},
    {"warmup", OPTION_INT, 0, "3", .help = "unmeasured calls before the samples", .max = 1000000, .unit = "calls"},
    {"iters", OPTION_INT, 0, "20", .help = "samples of each measurement", .min = 1, .max = 1000000, .unit = "samples"},
    {"settle", OPTION_REAL, 0, "0.15",
     .help = "repeat a call for this long before its samples, so that clocks settle, and sample for at least "
             "as long; steps are not settled",
     .def_cpu = "0", .max = 3600, .unit = "s"},
    {"max-time", OPTION_REAL, 0, "2", .help = "end a measurement early after this time, but not before 3 samples",
     .max = 86400, .unit = "s", .unset = "0: never"},
    {"timer", OPTION_CHOICE, 0, "auto",
     .help = "auto: graph replay for calls under 1 ms, else events; the host's clock on the CPU",
     .choices = "auto|event|graph|host"},
    {"l2", OPTION_CHOICE, 0, "warm", .help = "cold: flush the L2 cache before every sample", .choices = "warm|cold"},
    {"sensors", OPTION_REAL, 0, "20",
     .help = "time between readings of the GPU's clock, power and energy while samples are taken", .max = 10000,
     .unit = "ms", .unset = "0: never"},
    {"seed", OPTION_INT, 0, "1", .help = "seed of the inputs, mixed with each case", .max = 4294967295},
    {"check", OPTION_FLAG, 0, "1", .help = "verify results before anything is timed"},
    {"csv", OPTION_TEXT, 0, "auto",
     .help = "file to append rows to; auto: results/<machine>/<bench>.csv; none: no file; -: rows go to stdout, "
             "everything else to stderr"},
    {"machine", OPTION_TEXT, 0, "auto", .help = "name of the machine in paths and rows; auto: named after its GPUs"},
    {"resume", OPTION_FLAG, 0, "0",
     .help = "skip cases that already have a row of this commit and GPU (under ./run_all.sh: of its run)"},
    {"timeout", OPTION_REAL, 0, "300", .help = "give up after this time without progress", .max = 1e6, .unit = "s",
     .unset = "0: never"},
    {"profile", OPTION_FLAG, 0, "0",
     .help = "after the last case, run each case once more under a profiler; docs/profile.md says what it "
             "writes"},
    {"dry-run", OPTION_FLAG, 0, "0", .help = "print the cases and measure nothing"},
    {"where", OPTION_FLAG, 0, "0",
     .help = "print the machine's name, its GPUs and the commit, tab-separated, and measure nothing"},
    {"json", OPTION_FLAG, 0, "0", .help = "print each row as a line of JSON on stdout; everything else goes to stderr"},
    {"baseline", OPTION_TEXT, 0, "none",
     .help = "folder of results to compare with: below a row, print the ratio of each of its times to the one there, "
             "by the rules of stepcmp"},
    {"quiet", OPTION_FLAG, 0, "0", .help = "print no table on stdout"},
    {0},
};

typedef void printer(const options *o, FILE *out);
static const struct action {
    const char *name, *letter;
    printer *print;
} actions[] = {
    {"--help", "-h", options_print_help},      {"--version", "-V", options_print_version},
    {"--list", NULL, options_print_list},      {"--list-options", NULL, options_print_table},
    {"--list-runs", NULL, options_print_runs},
};
enum { ACTIONS = sizeof actions / sizeof *actions };

static const struct action *action_find(const char *arg)
{
    for (size_t i = 0; i < ACTIONS; i++)
        if (strcmp(arg, actions[i].name) == 0 || (actions[i].letter && strcmp(arg, actions[i].letter) == 0))
            return &actions[i];
    return NULL;
}

static bool is_own(const bench_info *bench, const char *name)
{
    for (const option_spec *s = bench->options; s && s->name; s++)
        if (option_name_equal(s->name, name))
            return true;
    return false;
}

static char *variant_choices(const bench_info *bench)
{
    char *choices = xstrdup("");
    for (const variant_spec *v = bench->variants; v && v->name; v++) {
        char *longer = xasprintf("%s%s%s", choices, *choices ? "|" : "", v->name);
        free(choices);
        choices = longer;
    }
    return choices;
}

/* The command line; arguments with blanks and the like in quotes. */
static char *command_line(int argc, char **argv)
{
    char *line = xstrdup("");
    for (int i = 0; i < argc; i++) {
        bool plain = argv[i][0] && !argv[i][strspn(argv[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                            "0123456789_-+=.,:/@%")];
        char *longer = xasprintf(plain ? "%s%s%s" : "%s%s'%s'", line, i ? " " : "", argv[i]);
        free(line);
        line = longer;
    }
    return line;
}

static options *options_create(const bench_info *bench, int argc, char **argv, const options_env *env)
{
    options *o = xcalloc(1, sizeof *o);
    o->bench = bench;
    o->layout = env->layout;
    o->command_line = command_line(argc, argv);
    o->variant_choices = variant_choices(bench);
    size_t most = sizeof common_options / sizeof *common_options;
    for (const option_spec *s = bench->options; s && s->name; s++)
        most++;
    o->entries = xcalloc(most, sizeof *o->entries);
    o->params = xcalloc(most, sizeof *o->params);
    o->columns = xcalloc(most, sizeof *o->columns);
    for (const option_spec *s = bench->options; s && s->name; s++)
        o->entries[o->n++] = (option_entry){.spec = *s, .own = true};
    for (const option_spec *s = common_options; s->name; s++)
        if (!is_own(bench, s->name) && (*o->variant_choices || strcmp(s->name, "variant") != 0))
            o->entries[o->n++] = (option_entry){.spec = *s};
    for (size_t i = 0; i < o->n; i++) {
        option_entry *e = &o->entries[i];
        e->spec.def = e->spec.def ? e->spec.def : "";
        e->spec.unit = e->spec.unit ? e->spec.unit : "";
        if (strcmp(e->spec.name, "device") == 0) {
            e->spec.def = env->device_default;
        } else if (strcmp(e->spec.name, "variant") == 0) {
            e->spec.choices = e->spec.choices ? e->spec.choices : o->variant_choices;
            o->variant = e;
        }
    }
    for (size_t i = 0; i < o->n; i++) {
        const option_entry *e = &o->entries[i];
        if (!(e->spec.flags & (OPTION_LIST | OPTION_PARAM)) || e == o->variant)
            continue;
        o->params[o->params_n] = e;
        o->columns[o->params_n] = xstrdup(e->spec.name);
        for (char *c = o->columns[o->params_n++]; *c; c++)
            *c = *c == '-' ? '_' : *c;
    }
    return o;
}

void options_free(options *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n; i++) {
        option_values_free(&o->entries[i].values);
        option_values_free(&o->entries[i].defaults);
    }
    for (size_t i = 0; i < o->params_n; i++)
        free(o->columns[i]);
    free(o->entries);
    free(o->params);
    free(o->columns);
    free(o->variant_choices);
    free(o->command_line);
    free(o);
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= sizeof row / sizeof *row)
        return n;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < other ? replaced : other;
        }
    }
    return row[n];
}

static void consider(const char *name, const char *wrong, const char **nearest, size_t *distance)
{
    size_t d = text_starts(name, wrong) ? 1 : edit_distance(wrong, name);
    if (d < *distance) {
        *distance = d;
        *nearest = name;
    }
}

static bool reject_unknown(const options *o, const char *arg, char *msg, size_t msg_bytes)
{
    if (*arg != '-' || !arg[strspn(arg, "-")]) {
        snprintf(msg, msg_bytes, "'%s' belongs to no option; options are written --name value (--help lists them)",
                 arg);
        return false;
    }
    char wrong[64];
    const char *bare = arg + strspn(arg, "-"), *nearest = NULL;
    snprintf(wrong, sizeof wrong, "%.*s", (int)strcspn(bare, "="), bare);
    size_t distance = 2 + strlen(wrong) / 3;
    for (size_t i = 0; i < o->n; i++)
        consider(o->entries[i].spec.name, wrong, &nearest, &distance);
    for (size_t i = 0; i < ACTIONS; i++)
        consider(actions[i].name + 2, wrong, &nearest, &distance);
    if (nearest)
        snprintf(msg, msg_bytes, "unknown option %s; did you mean --%s? (--help lists all)", arg, nearest);
    else
        snprintf(msg, msg_bytes, "unknown option %s; --help lists all", arg);
    return false;
}

static bool read_arguments(options *o, int argc, char **argv, char *msg, size_t msg_bytes)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *equals = strchr(arg, '=');
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
        option_entry *e = strncmp(name, "--", 2) == 0 ? (option_entry *)option_find(o, name + 2) : NULL;
        if (!e)
            return reject_unknown(o, arg, msg, msg_bytes);
        if (e->given) {
            snprintf(msg, msg_bytes, "--%s is given twice%s", e->spec.name,
                     e->spec.flags & OPTION_LIST ? "; several values are written with commas" : "");
            return false;
        }
        const char *text, *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (equals) {
            text = equals + 1;
        } else if (e->spec.kind == OPTION_FLAG) {
            /* There are no arguments without a name, so what follows is a value, good or bad, or the next option. */
            text = next && *next != '-' ? argv[++i] : "1";
        } else if (next && strncmp(next, "--", 2) != 0) {
            text = argv[++i];
        } else {
            char allowed[512];
            option_allowed(&e->spec, allowed, sizeof allowed);
            snprintf(msg, msg_bytes, "--%s needs a value: %s", e->spec.name, allowed);
            return false;
        }
        if (!option_values_parse(&e->spec, text, &e->values, msg, msg_bytes))
            return false;
        e->given = true;
    }
    return true;
}

static void fill_defaults(options *o, const char *device_default)
{
    const option_entry *device = option_need(o, "device");
    bool on_cpu = strcmp(device->given ? device->values.v[0].text : device_default, "cpu") == 0;
    for (size_t i = 0; i < o->n; i++) {
        option_entry *e = &o->entries[i];
        const char *def = on_cpu && e->spec.def_cpu ? e->spec.def_cpu : e->spec.def;
        char msg[1024];
        if (!option_values_parse(&e->spec, def, &e->defaults, msg, sizeof msg) ||
            (!e->given && !option_values_parse(&e->spec, def, &e->values, msg, sizeof msg)))
            die(EXIT_CODE_FAILURE, "a default of %s is wrong: %s", o->bench->name, msg);
    }
}

static bool check_whole(const options *o, const char *no_cuda_reason, char *msg, size_t msg_bytes)
{
    const option_entry *device = option_need(o, "device");
    if (no_cuda_reason && device->given && strcmp(device->values.v[0].text, "cuda") == 0) {
        snprintf(msg, msg_bytes, "--device cuda can't be used here: %s; use --device cpu", no_cuda_reason);
        return false;
    }
    const double cases = cases_product(o);
    if (cases > OPTION_CASES_MAX) {
        snprintf(msg, msg_bytes, "the lists multiply to %.0f cases; at most %d are allowed", cases, OPTION_CASES_MAX);
        return false;
    }
    return !o->bench->validate || o->bench->validate(o, msg, msg_bytes);
}

options *options_try(const bench_info *bench, int argc, char **argv, const options_env *env, char *msg,
                     size_t msg_bytes)
{
    msg[0] = '\0';
    options *o = options_create(bench, argc, argv, env);
    for (int i = 1; i < argc; i++) {
        const struct action *action = action_find(argv[i]);
        if (action) {
            action->print(o, stdout);
            options_free(o);
            return NULL;
        }
    }
    if (read_arguments(o, argc, argv, msg, msg_bytes)) {
        fill_defaults(o, env->device_default);
        if (check_whole(o, env->no_cuda, msg, msg_bytes))
            return o;
    }
    text_printable(msg);
    options_free(o);
    return NULL;
}

options *options_parse(const bench_info *bench, int argc, char **argv, const options_env *env)
{
    char msg[2048];
    if (argc > 0)
        program_name_set(argv[0]);
    options *o = options_try(bench, argc, argv, env, msg, sizeof msg);
    if (!o && msg[0])
        die(EXIT_CODE_USAGE, "%s", msg);
    if (!o)
        exit(EXIT_CODE_OK);
    return o;
}
