/* SPDX-License-Identifier: MIT */
/* bench_qualify: is every GPU of this node as fast as it should be, and are they all the same?
 *
 * One row is one GPU (or pair, or group) and one measurement, beside what a GPU of its type should reach
 * (reference/<gpu>.csv or --reference) and what its peers reach, with a verdict: ok, slow, busy, broken, or not checked.
 * GPUs are measured one at a time, pair by pair, in groups, and all at once for --sustain seconds. What is slow is
 * measured again before it is called so. The rows of the variant `verdict`, at the end, say it in a word for each GPU.
 * Exit code 0: every GPU is ok; 4: one is not, or is missing; 3: a result was wrong; 77: nothing could be checked.
 * Expect: ok on a healthy, idle node. Limits: one host. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/qualify/outcome.h"
#include "bench/qualify/qualify.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/launch/env.h"
#include "common/model/config.h"

enum { GPUS_MAX = ROOFLINE_GPUS };

static option_spec option_table[] = {
    LAUNCH_RANKS("2", "2"),
    {"dtype", OPTION_CHOICE, OPTION_LIST, "bf16,fp16,tf32,fp32",
     .help = "gemm: precisions; the first one is also measured on all GPUs at once", .def_cpu = "fp32",
     .choices = "bf16|fp16|tf32|fp32"},
    {"rank", OPTION_INT, OPTION_LIST, "0,1", .help = "GPUs to report on", .max = GPUS_MAX - 1},
    {"pair", OPTION_TEXT, OPTION_LIST, "0-1,1-0", .help = "p2p: ordered pairs, as from-to"},
    {"group", OPTION_TEXT, OPTION_LIST, "0..1", .help = "all-reduce: groups of GPUs, as first..last"},
    {"gemm-size", OPTION_INT, OPTION_PARAM, "8192",
     .help = "n of gemm's n x n matrices, a multiple of 16; twice as large on all GPUs at once", .def_cpu = "128",
     .min = 16, .max = 32768},
    {"bytes", OPTION_BYTES, OPTION_PARAM, "256M",
     .help = "size of copies, a multiple of 16; the all-reduce has four times as much", .def_cpu = "1M", .min = 16,
     .max = 1e12, .unit = "bytes"},
    {"seq", OPTION_INT, OPTION_PARAM, "65536", .help = "flash: sequence length", .def_cpu = "128", .min = 1,
     .max = 1048576, .unit = "tokens"},
    {"model", OPTION_CHOICE, OPTION_PARAM, "xl", .help = "step: size of the model", .def_cpu = "tiny",
     .choices = MODEL_SIZE_CHOICES},
    {"sustain", OPTION_REAL, OPTION_PARAM, "60",
     .help = "how long all GPUs train at once; before that, their products run for a quarter of it", .def_cpu = "0.2",
     .max = 3600, .unit = "s"},
    {"plant-error", OPTION_CHOICE, OPTION_PARAM, "none",
     .help = "step: change a byte of the last rank's parameters, which must be found", .choices = "none|bits"},
    {"reference", OPTION_TEXT, 0, "auto",
     .help = "a CSV file of what this GPU should reach; auto: ours, if we have one; none: no reference"},
    {"expect", OPTION_INT, 0, "0", .help = "expected number of GPUs; any other number ends with exit code 4",
     .max = GPUS_MAX, .unit = "GPUs", .unset = "0: any"},
    {"metrics", OPTION_TEXT, 0, "none",
     .help = "also write verdicts and values to this file, as OpenMetrics text for a monitor"},
    {0}};

static const variant_spec variant_table[] = {
    {"health", "what the driver says before anything runs: other programs, ECC, memory repairs, links"},
    {"gemm", "a matrix product, each GPU alone"},
    {"copy", "a copy inside a GPU's memory, alone"},
    {"h2d", "from pinned host memory to a GPU, alone"},
    {"d2h", "from a GPU to pinned host memory, alone"},
    {"launch", "an empty kernel launched by the host, alone"},
    {"flash", "attention forward and backward, one head of 128, alone"},
    {"p2p", "a copy from one GPU to another, pair by pair"},
    {"all-reduce", "the sum over all GPUs, and over each half of them"},
    {"gemm-together", "a larger product on all GPUs at once"},
    {"step", "training steps on all GPUs at once, without communication; their bits are compared"},
    {"verdict", "a word for each GPU"},
    {0}};

/* The first one ends in a unit, which is how readers of the CSV tell where the parameters end. */
static const column_spec column_table[] = {
    {"behind_pct", COLUMN_REAL, true, "how much worse than the reference; negative: better"},
    {"metric", COLUMN_TEXT, false, "what value is, with its unit"},
    {"shape", COLUMN_TEXT, false, "shape, in the words of the reference; past rows must have the same one"},
    {"value", COLUMN_REAL, true, "the better of two measurements where the first one was slow"},
    {"reference", COLUMN_REAL, true,
     "what it should be: of this type of GPU, or the median of the other GPUs or of its past"},
    {"bound", COLUMN_REAL, true, "what it must reach, or, if it is a time, must not exceed"},
    {"against", COLUMN_TEXT, false, "where the bound is from: reference, peers (the other GPUs), past; empty: nowhere"},
    {"again", COLUMN_REAL, false, "second measurement of a suspect; after one on all GPUs at once, by itself"},
    {"verdict", COLUMN_TEXT, true, "ok, slow, busy, broken or not checked"},
    {"why", COLUMN_TEXT, false, "what the verdict rests on"},
    {"uuid", COLUMN_TEXT, false, "UUID of the GPU that the row is about"},
    {"rank_sm_mhz", COLUMN_REAL, false, "its clock while it was measured"},
    {"rank_throttle", COLUMN_TEXT, false, "why its clock was held back then"},
    {"used_pct", COLUMN_REAL, false, "health: share of a second before the start in which other programs kept it busy"},
    {"used_bytes", COLUMN_REAL, false, "health: memory that was taken before the start"},
    {"ecc_uncorrected", COLUMN_REAL, false, "health: uncorrected ECC errors since the driver was loaded"},
    {"links_up", COLUMN_REAL, false, "health: active NVLinks"},
    {"nvlink_errors", COLUMN_REAL, false, "verdict: replays and recoveries of NVLinks while we measured"},
    {"pcie_replays", COLUMN_REAL, false, "verdict: packets that PCIe sent again while we measured"},
    {"xids", COLUMN_TEXT, false, "verdict: Xids of the kernel log, or of the driver while we measured, such as 31+79"},
    {0}};

static bool applies(const char *option, const char *variant)
{
    const bool p2p = text_is(variant, "p2p"), group = text_is(variant, "all-reduce");
    if (text_is(option, "dtype"))
        return text_is(variant, "gemm");
    if (text_is(option, "pair") || text_is(option, "group"))
        return text_is(option, "pair") ? p2p : group;
    if (text_is(option, "rank"))
        return !p2p && !group;
    if (text_is(option, "gemm-size"))
        return text_is(variant, "gemm") || text_is(variant, "gemm-together");
    if (text_is(option, "bytes"))
        return p2p || group || text_is(variant, "copy") || text_is(variant, "h2d") || text_is(variant, "d2h");
    if (text_is(option, "seq"))
        return text_is(variant, "flash");
    if (text_is(option, "model") || text_is(option, "plant-error"))
        return text_is(variant, "step");
    return !text_is(option, "sustain") || text_is(variant, "step") || text_is(variant, "gemm-together");
}

/* ---- options ---- */

static bool wrong(char *msg, size_t msg_bytes, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool wrong(char *msg, size_t msg_bytes, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(msg, msg_bytes, fmt, args);
    va_end(args);
    return false;
}

static bool valid_reference(const char *path, char *msg, size_t msg_bytes)
{
    if (text_is(path, "auto") || text_is(path, "none"))
        return true;
    OWNED_CSV csv *t = csv_read(path);
    if (!t)
        return wrong(msg, msg_bytes, "--reference %s can't be read", path);
    const char *problem = t->problem   ? t->problem
                          : t->dropped ? "a line has another number of cells than the header"
                                       : reference_problem(t);
    if (problem)
        wrong(msg, msg_bytes, "--reference %s is no table of references: %s", path, problem);
    return !problem;
}

/* The file is written at the end, beside itself and renamed: minutes of measuring would be for nothing. */
static bool folder_takes(const char *file)
{
    const char *slash = strrchr(file, '/');
    OWNED char *folder = slash ? xasprintf("%.*s", (int)(slash + 1 - file), file) : xstrdup(".");
    return access(folder, W_OK | X_OK) == 0;
}

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    const int64_t ranks = option_int_at(o, "ranks", 0);
    int first, count;
    if (option_count(o, "ranks") != 1)
        return wrong(msg, msg_bytes, "--ranks takes one number here: a node is qualified as a whole");
    if (option_flag(o, "resume"))
        return wrong(msg, msg_bytes, "--resume has no effect here: a node is qualified in one run");
    if (option_flag(o, "profile"))
        return wrong(msg, msg_bytes, "--profile has no effect here; it is for the other benches");
    if (!output_is_file(option_text(o, "metrics")))
        return wrong(msg, msg_bytes, "--metrics needs a file, which %s is not", option_text(o, "metrics"));
    if (!folder_takes(option_text(o, "metrics")))
        return wrong(msg, msg_bytes, "--metrics %s can't be written: %s", option_text(o, "metrics"), strerror(errno));
    for (size_t i = 0; i < option_count(o, "rank"); i++)
        if (option_int_at(o, "rank", i) >= ranks)
            return wrong(msg, msg_bytes, "--rank %lld is not below --ranks %lld",
                         (long long)option_int_at(o, "rank", i), (long long)ranks);
    for (size_t i = 0; i < option_count(o, "pair"); i++) {
        const char *text = option_text_at(o, "pair", i);
        if (!roofline_pair_parse(text, &first, &count) || (ranks > 1 && (first >= ranks || count >= ranks)))
            return wrong(msg, msg_bytes, "--pair %s needs two ranks below %lld, written as from-to, such as 0-1", text,
                         (long long)ranks);
    }
    for (size_t i = 0; i < option_count(o, "group"); i++)
        if (ranks > 1 && !qualify_group_parse(option_text_at(o, "group", i), (int)ranks, &first, &count))
            return wrong(msg, msg_bytes,
                         "--group %s is not a group of %lld ranks; write it as first..last, such as 0..1",
                         option_text_at(o, "group", i), (long long)ranks);
    if (option_int(o, "gemm-size") % 16 || option_int(o, "bytes") % 16)
        return wrong(msg, msg_bytes, "--gemm-size and --bytes must be multiples of 16");
    return valid_reference(option_text(o, "reference"), msg, msg_bytes);
}

static const bench_run run_table[] = {{RUN_QUICK | RUN_DEFAULT, 1, 200, ""}, {RUN_CPU, 0, 3, ""}, {0}};

static const bench_info info = {
    .name = "bench_qualify",
    .summary = "Is every GPU of this node as fast as it should be, and are they all the same?",
    .notes =
        "One row is one GPU, pair or group, and one measurement; rank r is GPU r. A value is slow when it misses its\n"
        "bound. Bounds come from the reference; with four GPUs or more, from the other GPUs (3.5 robust standard\n"
        "deviations and 3 % behind their median); and from the GPU's own past, if three earlier runs in the CSV file\n"
        "were ok. What is slow is measured again; the better value counts.\n"
        "busy: another program used the GPU before we began. broken: wrong bits, uncorrected ECC errors, memory\n"
        "waiting for repair, a lost link, throttling by the hardware, Xids. not checked: nothing to compare with, or\n"
        "no NVML. The exit code is 0 only if every GPU is ok. --reference FILE has the columns metric, gpus, shape,\n"
        "value and floor; docs/qualify.md explains them.",
    .examples =
        "./bench_qualify\n"
        "./bench_qualify --sustain 10 --variant health,gemm,copy,step,verdict\n"
        "./bench_qualify --reference reference/h200.csv --expect 8 --metrics /var/lib/node_exporter/qualify.prom",
    BENCH_TABLES,
    .validate = validate,
    .applies = applies,
    .order = 200,
    .small = "--iters 3 --warmup 1",
    .section = "qualify",
    .figures = (const char *const[]){"qualify", NULL},
    .apart = true,
};

/* ---- the session ---- */

static gpu_health before[GPUS_MAX]; /* every GPU of the host, before this process opened one */
static int before_n;
static outcome found; /* by rank 0, which has the rows */
static char *metrics; /* of rank 0; NULL: nobody wants them */

static gpu_health health_of(const char *uuid)
{
    for (int i = 0; i < before_n; i++)
        if (text_is(before[i].uuid, uuid))
            return before[i];
    return health_unknown();
}

static void start(session *s)
{
    if (launch_hosts(launch_of(s)) > 1)
        die(EXIT_CODE_USAGE, "a node is qualified by ranks on one host, and these are on %d hosts",
            launch_hosts(launch_of(s)));
    qualify *q = xcalloc(1, sizeof *q);
    const device_info *gpu = device_get_info(s->dev);
    const char *path = option_text(s->opt, "reference");
    q->s = s;
    q->l = launch_of(s);
    q->ranks = launch_size(q->l);
    roofline_start(&q->r, s);
    q->base = (attention_context){q->r.kernels, q->r.ctx};
    q->reference = text_is(path, "none") ? NULL : text_is(path, "auto") ? reference_shipped(gpu->name) : csv_read(path);
    q->known = choices_open(gpu->name, NULL, false);
    q->health = xcalloc((unsigned long)q->ranks, sizeof *q->health);
    q->uuid = xcalloc((unsigned long)q->ranks, sizeof *q->uuid);
    gpu_health mine = health_of(gpu->uuid);
    mine.nvlink_errors = mine.nvlink_crc = mine.pcie_replays = NAN; /* those before us are nobody's fault today */
    launch_gather(q->l, "health", &mine, sizeof mine, q->health);
    launch_gather(q->l, "uuids", gpu->uuid, sizeof *q->uuid, q->uuid);
    s->user = q;
}

static void put_judgement(row *w, bool on_gpu, verdict v, const char *why)
{
    row_text(w, "verdict", verdict_word(v));
    row_text(w, "why", why);
    outcome_count(&found, on_gpu, v, why);
}

static void put_item(const qualify *q, const qualify_set *set, size_t i, row *w)
{
    const qualify_item *item = &set->items[i];
    char why[512];
    qualify_explain(set, item, why, sizeof why);
    row_text(w, "metric", set->metric->name);
    row_text(w, "shape", set->shape);
    row_real(w, "value", item->value);
    row_real(w, "reference", item->j.expected);
    row_real(w, "bound", item->j.bound);
    row_real(w, "behind_pct", item->j.behind_pct);
    row_text(w, "against", item->j.against);
    row_real(w, "again", item->again);
    row_text(w, "uuid", set->by_rank ? q->uuid[i] : "");
    row_real(w, "rank_sm_mhz", item->sm_mhz);
    row_text(w, "rank_throttle", item->throttle);
    put_judgement(w, false, item->j.word, why);
    if (item->status != ROW_OK)
        row_status_set(w, item->status, "%s", item->why);
}

static void put_health(const qualify *q, size_t i, row *w)
{
    char why[512];
    const verdict v = qualify_health(q->health, (size_t)q->ranks, i, "", why, sizeof why);
    row_text(w, "uuid", q->uuid[i]);
    row_real(w, "used_pct", q->health[i].used_pct);
    row_real(w, "used_bytes", q->health[i].used_bytes);
    row_real(w, "ecc_uncorrected", q->health[i].ecc_uncorrected);
    row_real(w, "links_up", q->health[i].links_up);
    put_judgement(w, false, v, why);
}

/* What the driver says now: all ranks together, once. */
static void look_again(qualify *q)
{
    if (q->looked_again)
        return;
    q->looked_again = true;
    const gpu_health was = health_of(q->uuid[launch_rank(q->l)]), now = health_since(&was);
    launch_gather(q->l, "health", &now, sizeof now, q->health);
}

static void put_verdict(qualify *q, int rank, row *w)
{
    char why[1024];
    look_again(q);
    row_text(w, "uuid", q->uuid[rank]);
    row_real(w, "nvlink_errors", q->health[rank].nvlink_errors);
    row_real(w, "pcie_replays", q->health[rank].pcie_replays);
    row_text(w, "xids", q->health[rank].xids);
    const verdict v = qualify_of_gpu(q, rank, why, sizeof why);
    put_judgement(w, true, v, why);
}

static void qualify_run(session *s, const bench_case *c, row *w)
{
    qualify *q = s->user;
    if (text_is(case_variant(c), "health"))
        put_health(q, (size_t)case_int(c, "rank"), w);
    else if (text_is(case_variant(c), "verdict"))
        put_verdict(q, (int)case_int(c, "rank"), w);
    else
        put_item(q, qualify_set_of(q, c), qualify_index(q, c), w);
}

/* ---- the end ---- */

static void print_links(const qualify *q)
{
    char why[512];
    for (size_t s = 0; s < q->sets_n; s++)
        for (size_t i = 0; i < q->sets[s].n && !q->sets[s].by_rank; i++) {
            const qualify_item *item = &q->sets[s].items[i];
            if (!verdict_missed(item->j.word))
                continue;
            qualify_explain(&q->sets[s], item, why, sizeof why);
            if (text_is(q->sets[s].name, "p2p"))
                say("pair %d-%d: %s: %s\n", (int)i / (q->ranks - 1),
                    (int)i % (q->ranks - 1) + ((int)i % (q->ranks - 1) >= (int)i / (q->ranks - 1)),
                    verdict_word(item->j.word), why);
            else
                say("all-reduce %s: %s: %s\n", option_text_at(q->s->opt, "group", i), verdict_word(item->j.word), why);
        }
}

static void finish(session *s)
{
    qualify *q = s->user;
    char why[1024];
    const bool cpu = device_kind_of(s->dev) == DEVICE_CPU;
    const bool print = launch_rank(q->l) == 0 && !option_flag(s->opt, "quiet") && q->sets_n > 0;
    for (int r = 0; print && r < q->ranks; r++) {
        const verdict v = qualify_of_gpu(q, r, why, sizeof why);
        say("%s%s %d: %s; %s\n", r ? "" : "\n", cpu ? "rank" : "GPU", r, verdict_word(v), why);
    }
    if (print)
        print_links(q);
    found.gpus = q->ranks;
    if (launch_rank(q->l) == 0 && !text_is(option_text(s->opt, "metrics"), "none"))
        metrics = outcome_metrics(q);
    for (size_t i = 0; i < q->sets_n; i++)
        free(q->sets[i].items);
    choices_free(q->known);
    csv_free(q->reference);
    free(q->health);
    free(q->uuid);
    roofline_finish(&q->r);
    free(q);
}

/* ---- defaults that depend on how many ranks there are ---- */

/* Where this will run, as far as the arguments and the machine say. */
static bool on_cpu(int argc, char **argv)
{
    bool cpu = device_no_cuda_reason() != NULL;
    for (int i = 1; i < argc; i++)
        if (text_is(argv[i], "--device=cpu") ||
            (text_is(argv[i], "--device") && i + 1 < argc && text_is(argv[i + 1], "cpu")))
            cpu = true;
    return cpu;
}

static const char *default_ranks(bool cpu)
{
    const option_spec *o = option_table;
    while (!text_is(o->name, "ranks"))
        o++;
    return cpu ? o->def_cpu : o->def;
}

static void set_default(const char *name, const char *text)
{
    for (option_spec *o = option_table; o->name; o++)
        if (text_is(o->name, name))
            o->def = o->def_cpu = text;
}

/* --ranks as it will be parsed; one that is wrong is refused later. */
static int ranks_of(int argc, char **argv)
{
    const char *text = default_ranks(on_cpu(argc, argv));
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--ranks=", 8) == 0)
            text = argv[i] + 8;
        else if (text_is(argv[i], "--ranks") && i + 1 < argc)
            text = argv[i + 1];
    const long n = strtol(text, NULL, 10);
    return n >= 1 && n <= GPUS_MAX ? (int)n : 2;
}

static char *every_rank(int n)
{
    char *text = xstrdup("0");
    for (int r = 1; r < n; r++) {
        char *longer = xasprintf("%s,%d", text, r);
        free(text);
        text = longer;
    }
    return text;
}

/* All, and each half where there are four or more. */
static char *every_group(int n)
{
    if (n < 4)
        return xasprintf("0..%d", n > 1 ? n - 1 : 1);
    return xasprintf("0..%d,0..%d,%d..%d", n - 1, n / 2 - 1, n / 2, n - 1);
}

/* A host whose GPUs are gone must not be measured by its CPUs and pass. */
static bool no_gpu(const options *o)
{
    return device_no_cuda_reason() && !option_given(o, "device") && !option_flag(o, "dry-run") &&
           !option_flag(o, "where");
}

static int end(const options *o, int code)
{
    const char *path = option_text(o, "metrics");
    found.expected = (int)option_int(o, "expect");
    code = outcome_code(&found, code);
    if (!text_is(path, "none"))
        outcome_write(path, metrics, &found, code);
    free(metrics);
    return code;
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {start, qualify_run, finish, NULL};
    char gpus[16], ignored[512];
    launch_place place;
    snprintf(gpus, sizeof gpus, "%d", device_visible_gpus() > 0 ? device_visible_gpus() : 1);
    launch_default_ranks(option_table, gpus);
    const int n = ranks_of(argc, argv);
    OWNED char *ranks = every_rank(n), *pairs = roofline_every_pair(n), *groups = every_group(n);
    set_default("rank", ranks);
    set_default("pair", pairs);
    set_default("group", groups);
    if (!launch_place_find(&place, ignored, sizeof ignored))
        place = (launch_place){0}; /* launch_main says so */
    if (place.by && !device_no_cuda_reason())
        before_n = health_watch(before, GPUS_MAX, 1);
    options *o = session_options(&info, argc, argv);
    const bool asks = option_flag(o, "dry-run") || option_flag(o, "where"), none = no_gpu(o);
    if (none)
        snprintf(found.why, sizeof found.why, "there is no GPU (%s); --device cpu tries the program on the CPU",
                 device_no_cuda_reason());
    int code = none ? EXIT_CODE_UNSUPPORTED : launch_main(&info, &hooks, argc, argv);
    if (!asks && (none || (place.by && place.rank == 0))) /* the launcher of other ranks has no rows */
        code = end(o, code);
    options_free(o);
    return code;
}
