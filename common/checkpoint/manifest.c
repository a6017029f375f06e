/* SPDX-License-Identifier: MIT */
/* Writes and reads manifests; see manifest.h. Reals are hexadecimal floats, hashes and seeds 16 hexadecimal digits. */
#include "common/checkpoint/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/hash.h"
#include "common/checkpoint/json.h"
#include "common/core/error.h"

static const char format[] = "stepbench checkpoint 1", hash_name[] = ",\n\"hash\":\"";
enum { HASH_DIGITS = 16 };
static const double most_parameters = 1e13;

/* ---- runs ---- */

int64_t checkpoint_blocks(int64_t bytes)
{
    return (bytes + CHECKPOINT_BLOCK - 1) / CHECKPOINT_BLOCK;
}

checkpoint_run *checkpoint_runs_add(checkpoint_runs *runs, int file, int64_t offset, int64_t bytes)
{
    uint64_t *hashes = xcalloc((unsigned long)checkpoint_blocks(bytes), sizeof *hashes);
    LIST_ADD(runs->r, runs->n, runs->room, (checkpoint_run){file, offset, bytes, hashes});
    return &runs->r[runs->n - 1];
}

void checkpoint_runs_free(checkpoint_runs *runs)
{
    for (int i = 0; i < runs->n; i++)
        free(runs->r[i].hashes);
    free(runs->r);
    *runs = (checkpoint_runs){0};
}

static int by_place(const void *a, const void *b)
{
    const checkpoint_run *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                              : (x->offset > y->offset) - (x->offset < y->offset);
}

/* The stretches of data that the files of a model have; `at` means nothing. */
static checkpoint_pieces data_of(const checkpoint_layout *l)
{
    checkpoint_pieces all = {0};
    for (int i = 0; i < l->params->count; i++)
        for (checkpoint_arena a = 0; a < CHECKPOINT_ARENAS; a++)
            checkpoint_pieces_add(&all, l, i, a, 0, l->params->tensors[i].count,
                                  (char *)(uintptr_t)l->place[a][i]); /* NOLINT: a place in no memory */
    checkpoint_pieces_sort(&all);
    return all;
}

bool checkpoint_runs_cover(checkpoint_runs *runs, const checkpoint_layout *l, char *why, size_t why_bytes)
{
    checkpoint_pieces all = data_of(l);
    char what[96];
    int e = 0, i = 0;
    int64_t done = 0; /* of stretch e */
    qsort(runs->r, (size_t)runs->n, sizeof *runs->r, by_place);
    for (; i < runs->n && e < all.n; i++) {
        const checkpoint_run *r = &runs->r[i];
        const checkpoint_piece *x = &all.p[e];
        if (r->file != x->file || r->offset != x->offset + done || r->bytes < 1 || r->bytes > x->bytes - done)
            break;
        done += r->bytes;
        e += done == x->bytes;
        done = done == x->bytes ? 0 : done;
    }
    const bool ok = i == runs->n && e == all.n;
    if (!ok && e < all.n) {
        const int64_t at = all.p[e].offset + done;
        const int ahead = i < runs->n ? runs->r[i].file - all.p[e].file : 1;
        const bool twice = ahead < 0 || (ahead == 0 && runs->r[i].offset < at);
        snprintf(why, why_bytes, "%s at byte %lld (%s) was %s", l->file[all.p[e].file].name, (long long)at,
                 checkpoint_at(l, all.p[e].file, at, what, sizeof what), twice ? "written twice" : "not written");
    } else if (!ok) {
        snprintf(why, why_bytes, "more was written than the model has");
    }
    checkpoint_pieces_free(&all);
    return ok;
}

/* ---- writing ---- */

static void write_model(FILE *out, const checkpoint_model *m)
{
    const model_config *c = &m->config;
    fprintf(out,
            "\"model\":{\"name\":\"%s\",\"vocab\":%d,\"d_model\":%d,\"d_ff\":%d,\"layers\":%d,\"heads\":%d,"
            "\"heads_kv\":%d,\"rope_theta\":\"%a\",\"norm_eps\":\"%a\",\"weights\":\"%s\",\"moments\":\"%s\","
            "\"master\":%d},\n",
            c->name, c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, c->rope_theta, c->norm_eps,
            sb_dtype_name(m->param), sb_dtype_name(m->moments), m->master);
}

static void write_state(FILE *out, const checkpoint_state *s)
{
    const sb_optimizer_state *o = &s->optimizer;
    fprintf(out, "\"step\":%" PRId64 ",\n\"seed\":\"%016" PRIx64 "\",\n", s->step, s->seed);
    fprintf(out,
            "\"optimizer\":{\"step\":%" PRId64 ",\"skipped\":%" PRId64 ",\"lr\":\"%a\",\"loss_scale\":\"%a\","
            "\"correction1\":\"%a\",\"correction2\":\"%a\",\"grad_scale\":\"%a\",\"grad_factor\":\"%a\","
            "\"good_steps\":%d},\n",
            o->step, o->skipped, o->lr, o->loss_scale, o->correction1, o->correction2, o->grad_scale, o->grad_factor,
            o->good_steps);
    fprintf(out, "\"data\":{\"file\":");
    text_json(out, s->data.file);
    fprintf(out,
            ",\"hash\":\"%016" PRIx64 "\",\"seed\":\"%016" PRIx64 "\",\"window\":%" PRId64 ",\"samples\":%" PRId64
            "},\n",
            s->data.hash, s->data.seed, s->data.window, s->data.samples);
    fprintf(out, "\"schedule\":{\"kind\":");
    text_json(out, s->schedule.kind);
    fprintf(out,
            ",\"lr\":\"%a\",\"min_lr\":\"%a\",\"warmup\":%" PRId64 ",\"steps\":%" PRId64 ",\"position\":%" PRId64
            "},\n",
            s->schedule.lr, s->schedule.min_lr, s->schedule.warmup, s->schedule.steps, s->schedule.position);
    fprintf(out, "\"updates\":");
    text_json(out, s->updates);
    fprintf(out, ",\n\"strategy\":");
    text_json(out, s->strategy);
    fprintf(out, ",\"ranks\":%d,\n", s->ranks);
}

char *checkpoint_manifest_write(const checkpoint_layout *l, const checkpoint_state *s, const checkpoint_runs *runs)
{
    char *text;
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "{\"format\":\"%s\",\n", format);
    write_model(out, &l->model);
    write_state(out, s);
    fprintf(out, "\"files\":[");
    for (int f = 0, i = 0; f < l->files; f++) {
        fprintf(out, "%s\n{\"name\":\"%s\",\"bytes\":%" PRId64 ",\"runs\":[", f ? "," : "", l->file[f].name,
                l->file[f].bytes);
        for (bool first = true; i < runs->n && runs->r[i].file == f; i++, first = false) {
            const checkpoint_run *r = &runs->r[i];
            fprintf(out, "%s{\"offset\":%" PRId64 ",\"bytes\":%" PRId64 ",\"hashes\":[", first ? "" : ",", r->offset,
                    r->bytes);
            for (int64_t b = 0; b < checkpoint_blocks(r->bytes); b++)
                fprintf(out, "%s\"%016" PRIx64 "\"", b ? "," : "", r->hashes[b]);
            fprintf(out, "]}");
        }
        fprintf(out, "]}");
    }
    fprintf(out, "]");
    fflush(out);
    const uint64_t hash = checkpoint_hash(text, bytes);
    fprintf(out, "%s%016" PRIx64 "\"}\n", hash_name, hash);
    fclose(out);
    return text;
}

/* ---- reading: the first thing that is missing or wrong is named ---- */

typedef struct getter {
    const json *from;
    const char *missing;
} getter;

static int64_t get_int(getter *g, const char *name, int64_t least, int64_t most)
{
    const json *j = json_find(g->from, name, JSON_INT);
    if (j && j->value >= least && j->value <= most)
        return j->value;
    g->missing = g->missing ? g->missing : name;
    return least;
}

static const char *get_text(getter *g, const char *name)
{
    const json *j = json_find(g->from, name, JSON_STRING);
    if (!j)
        g->missing = g->missing ? g->missing : name;
    return j ? j->text : "";
}

static void get_copy(getter *g, const char *name, char *out, size_t out_bytes)
{
    const char *text = get_text(g, name);
    const size_t bytes = strlen(text) + 1;
    *out = '\0';
    if (bytes > out_bytes)
        g->missing = g->missing ? g->missing : name;
    else
        memcpy(out, text, bytes);
}

static double get_real(getter *g, const char *name)
{
    char *end;
    const char *text = get_text(g, name);
    const double x = strtod(text, &end);
    if (!*text || *end)
        g->missing = g->missing ? g->missing : name;
    return x;
}

static bool hash_of(const char *text, uint64_t *out)
{
    const bool ok = strlen(text) == HASH_DIGITS && strspn(text, "0123456789abcdef") == HASH_DIGITS;
    *out = ok ? strtoull(text, NULL, 16) : 0;
    return ok;
}

static uint64_t get_hash(getter *g, const char *name)
{
    uint64_t x;
    if (!hash_of(get_text(g, name), &x))
        g->missing = g->missing ? g->missing : name;
    return x;
}

static sb_dtype get_dtype(getter *g, const char *name)
{
    const char *text = get_text(g, name);
    for (sb_dtype t = SB_BF16; t <= SB_FP32; t++)
        if (strcmp(sb_dtype_name(t), text) == 0)
            return t;
    g->missing = g->missing ? g->missing : name;
    return SB_FP32;
}

static bool read_model(const json *j, checkpoint_model *m, char *why, size_t why_bytes)
{
    getter g = {json_find(j, "model", JSON_OBJECT), NULL};
    const int most = 1 << 24;
    const model_config *named = model_size_find(get_text(&g, "name"));
    m->config = (model_config){.name = named ? named->name : "custom",
                               .vocab = (int)get_int(&g, "vocab", 1, most),
                               .d_model = (int)get_int(&g, "d_model", 1, most),
                               .d_ff = (int)get_int(&g, "d_ff", 1, most),
                               .layers = (int)get_int(&g, "layers", 1, 4096),
                               .heads = (int)get_int(&g, "heads", 0, most),
                               .heads_kv = (int)get_int(&g, "heads_kv", 0, most),
                               .rope_theta = (float)get_real(&g, "rope_theta"),
                               .norm_eps = (float)get_real(&g, "norm_eps")};
    m->param = get_dtype(&g, "weights");
    m->moments = get_dtype(&g, "moments");
    m->master = (sb_master)get_int(&g, "master", SB_MASTER_NONE, SB_MASTER_FP32);
    const model_config *c = &m->config;
    const double about = 2. * c->vocab * c->d_model + (double)c->layers * c->d_model * (4. * c->d_model + 3. * c->d_ff);
    char problem[160];
    if (g.missing)
        snprintf(why, why_bytes, "its model has no usable %s", g.missing);
    else if (model_config_problem(c, problem, sizeof problem) || about > most_parameters)
        snprintf(why, why_bytes, "its dimensions do not make a model");
    else
        return true;
    return false;
}

static bool read_state(const json *j, checkpoint_state *s, char *why, size_t why_bytes)
{
    getter g = {j, NULL};
    *s = (checkpoint_state){.step = get_int(&g, "step", 0, INT64_MAX), .seed = get_hash(&g, "seed")};
    s->ranks = (int)get_int(&g, "ranks", 1, 1 << 20);
    get_copy(&g, "strategy", s->strategy, sizeof s->strategy);
    if (json_find(j, "updates", JSON_STRING))
        get_copy(&g, "updates", s->updates, sizeof s->updates);
    g.from = json_find(j, "optimizer", JSON_OBJECT);
    s->optimizer = (sb_optimizer_state){.step = get_int(&g, "step", 0, INT64_MAX),
                                        .skipped = get_int(&g, "skipped", 0, INT64_MAX),
                                        .lr = (float)get_real(&g, "lr"),
                                        .loss_scale = (float)get_real(&g, "loss_scale"),
                                        .correction1 = (float)get_real(&g, "correction1"),
                                        .correction2 = (float)get_real(&g, "correction2"),
                                        .grad_scale = (float)get_real(&g, "grad_scale"),
                                        .grad_factor = (float)get_real(&g, "grad_factor"),
                                        .good_steps = (int)get_int(&g, "good_steps", 0, INT32_MAX)};
    g.from = json_find(j, "data", JSON_OBJECT);
    get_copy(&g, "file", s->data.file, sizeof s->data.file);
    s->data.hash = get_hash(&g, "hash");
    s->data.seed = get_hash(&g, "seed");
    s->data.window = get_int(&g, "window", 0, INT64_MAX);
    s->data.samples = get_int(&g, "samples", 0, INT64_MAX);
    g.from = json_find(j, "schedule", JSON_OBJECT);
    get_copy(&g, "kind", s->schedule.kind, sizeof s->schedule.kind);
    s->schedule.lr = get_real(&g, "lr");
    s->schedule.min_lr = get_real(&g, "min_lr");
    s->schedule.warmup = get_int(&g, "warmup", 0, INT64_MAX);
    s->schedule.steps = get_int(&g, "steps", 0, INT64_MAX);
    s->schedule.position = get_int(&g, "position", 0, INT64_MAX);
    if (g.missing)
        snprintf(why, why_bytes, "it has no usable %s", g.missing);
    return !g.missing;
}

static bool read_run(const json *j, int file, const checkpoint_layout *l, checkpoint_runs *runs)
{
    getter g = {j, NULL};
    const int64_t offset = get_int(&g, "offset", 0, l->file[file].bytes);
    const int64_t bytes = get_int(&g, "bytes", 1, l->file[file].bytes);
    const json *hashes = json_find(j, "hashes", JSON_ARRAY), *h = hashes ? hashes->first : NULL;
    if (g.missing || !hashes || hashes->count != checkpoint_blocks(bytes))
        return false;
    checkpoint_run *r = checkpoint_runs_add(runs, file, offset, bytes);
    bool ok = true;
    for (int64_t b = 0; h; h = h->next, b++)
        ok = ok && h->kind == JSON_STRING && hash_of(h->text, &r->hashes[b]);
    return ok;
}

static bool read_files(const json *j, checkpoint_manifest *m, char *why, size_t why_bytes)
{
    const checkpoint_layout *l = m->layout;
    const json *files = json_find(j, "files", JSON_ARRAY), *f = files ? files->first : NULL;
    bool ok = files && files->count == l->files;
    for (int i = 0; ok && f; f = f->next, i++) {
        getter g = {f, NULL};
        const json *runs = json_find(f, "runs", JSON_ARRAY);
        ok = strcmp(get_text(&g, "name"), l->file[i].name) == 0 && runs &&
             get_int(&g, "bytes", 0, INT64_MAX) == l->file[i].bytes && !g.missing;
        for (const json *r = ok ? runs->first : NULL; r && ok; r = r->next)
            ok = read_run(r, i, l, &m->runs);
    }
    if (!ok)
        snprintf(why, why_bytes, "its files are not those of its model");
    return ok && checkpoint_runs_cover(&m->runs, l, why, why_bytes);
}

/* The text without its hash; 0: it is not what was written. */
static size_t hashed_bytes(const char *text, size_t bytes)
{
    const size_t tail = strlen(hash_name) + HASH_DIGITS + strlen("\"}\n");
    uint64_t want;
    char digits[HASH_DIGITS + 1] = "";
    if (bytes < tail || memcmp(text + bytes - tail, hash_name, strlen(hash_name)) != 0)
        return 0;
    memcpy(digits, text + bytes - tail + strlen(hash_name), HASH_DIGITS);
    return hash_of(digits, &want) && want == checkpoint_hash(text, bytes - tail) ? bytes - tail : 0;
}

bool checkpoint_manifest_read(const char *text, size_t bytes, checkpoint_manifest *out, char *why, size_t why_bytes)
{
    *out = (checkpoint_manifest){0};
    if (!hashed_bytes(text, bytes)) {
        snprintf(why, why_bytes, "it is damaged or cut: its last line is not its hash");
        return false;
    }
    json *j = json_parse(text, bytes, why, why_bytes);
    getter g = {j, NULL};
    checkpoint_model model;
    bool ok = j;
    if (ok && strcmp(get_text(&g, "format"), format) != 0) {
        snprintf(why, why_bytes, "its format is not '%s'", format);
        ok = false;
    }
    ok = ok && read_model(j, &model, why, why_bytes) && read_state(j, &out->state, why, why_bytes);
    if (ok) {
        out->layout = checkpoint_layout_create(&model);
        ok = read_files(j, out, why, why_bytes);
    }
    json_free(j);
    return ok;
}

void checkpoint_manifest_free(checkpoint_manifest *m)
{
    checkpoint_runs_free(&m->runs);
    checkpoint_layout_free(m->layout);
    *m = (checkpoint_manifest){0};
}
