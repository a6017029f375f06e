/* SPDX-License-Identifier: MIT */
/* The places of tensors, and the headers that say so; see layout.h. */
#include "common/checkpoint/layout.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

static const char *const suffixes[CHECKPOINT_ARENAS] = {"", ".exp_avg", ".exp_avg_sq", ".master"};

static int64_t align_up(int64_t n)
{
    return (n + CHECKPOINT_ALIGNMENT - 1) / CHECKPOINT_ALIGNMENT * CHECKPOINT_ALIGNMENT;
}

int checkpoint_element(const checkpoint_model *m, checkpoint_arena a)
{
    if (a == CHECKPOINT_MASTER)
        return m->master == SB_MASTER_NONE ? 0 : m->master == SB_MASTER_SPLIT ? 2 : 4;
    return sb_dtype_bytes(a == CHECKPOINT_WEIGHT ? m->param : m->moments);
}

static const char *dtype_name(const checkpoint_model *m, checkpoint_arena a)
{
    if (a == CHECKPOINT_MASTER)
        return m->master == SB_MASTER_SPLIT ? "I16" : "F32";
    const sb_dtype t = a == CHECKPOINT_WEIGHT ? m->param : m->moments;
    return t == SB_BF16 ? "BF16" : t == SB_FP16 ? "F16" : "F32";
}

static void tensor_name(const checkpoint_layout *l, int tensor, checkpoint_arena a, char *out, size_t bytes)
{
    const char *low = a == CHECKPOINT_MASTER && l->model.master == SB_MASTER_SPLIT ? "_low" : "";
    snprintf(out, bytes, "%s%s%s", l->params->tensors[tensor].name, suffixes[a], low);
}

static int file_of(const checkpoint_layout *l, int tensor, checkpoint_arena a)
{
    return 2 * params_unit_of(l->params, &l->params->tensors[tensor]) + (a != CHECKPOINT_WEIGHT);
}

static void write_entry(FILE *out, const char *name, const char *dtype, const char *shape, int64_t from, int64_t to)
{
    fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}", name, dtype, shape,
            (long long)from, (long long)to);
}

/* The tensors of an arena of a unit, from `at` on behind the header; returns their end. */
static int64_t write_arena(checkpoint_layout *l, FILE *out, int unit, checkpoint_arena a, int64_t at)
{
    for (int i = 0; i < l->params->count; i++) {
        const param_tensor *t = &l->params->tensors[i];
        if (params_unit_of(l->params, t) != unit)
            continue;
        char name[96], shape[32];
        const int64_t end = at + t->count * checkpoint_element(&l->model, a);
        tensor_name(l, i, a, name, sizeof name);
        if (param_is_gain(t->kind))
            snprintf(shape, sizeof shape, "%d", t->columns);
        else
            snprintf(shape, sizeof shape, "%d,%d", t->rows, t->columns);
        write_entry(out, name, dtype_name(&l->model, a), shape, at, end);
        l->place[a][i] = at;
        at = end;
    }
    return at;
}

static int64_t write_optimizer(checkpoint_layout *l, FILE *out, int unit)
{
    int64_t at = 0;
    for (checkpoint_arena a = CHECKPOINT_M, pads = 0; a < CHECKPOINT_ARENAS; a++) {
        if (!checkpoint_element(&l->model, a))
            continue;
        const int64_t start = align_up(at);
        if (start > at) {
            char name[16], shape[24];
            snprintf(name, sizeof name, "pad.%d", (int)pads++);
            snprintf(shape, sizeof shape, "%lld", (long long)(start - at));
            write_entry(out, name, "U8", shape, at, start);
        }
        at = write_arena(l, out, unit, a, start);
    }
    return at;
}

static void make_file(checkpoint_layout *l, int unit, bool optimizer)
{
    checkpoint_file *f = &l->file[2 * unit + optimizer];
    char *text;
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    const int64_t data = optimizer ? write_optimizer(l, out, unit) : write_arena(l, out, unit, CHECKPOINT_WEIGHT, 0);
    fprintf(out, "}");
    fclose(out);
    f->header_bytes = align_up((int64_t)bytes + 8);
    f->header = xmalloc((size_t)f->header_bytes);
    const uint64_t length = (uint64_t)f->header_bytes - 8;
    memset(f->header, ' ', (size_t)f->header_bytes);
    memcpy(f->header, &length, sizeof length);
    memcpy(f->header + 8, text, bytes);
    free(text);
    f->bytes = f->header_bytes + data;
    snprintf(f->name, sizeof f->name, "%s-%05d-of-%05d.safetensors", optimizer ? "optim" : "model", unit + 1,
             params_units(l->params));
    l->bytes += f->bytes;
}

checkpoint_layout *checkpoint_layout_create(const checkpoint_model *m)
{
    checkpoint_layout *l = xcalloc(1, sizeof *l);
    l->model = *m;
    l->params = params_create(&m->config);
    l->files = 2 * params_units(l->params);
    l->file = xcalloc((unsigned long)l->files, sizeof *l->file);
    for (int a = 0; a < CHECKPOINT_ARENAS; a++)
        l->place[a] = xcalloc((unsigned long)l->params->count, sizeof *l->place[a]);
    for (int unit = 0; unit < params_units(l->params); unit++) {
        make_file(l, unit, false);
        make_file(l, unit, true);
    }
    for (int i = 0; i < l->params->count; i++) /* from the start of the file */
        for (checkpoint_arena a = 0; a < CHECKPOINT_ARENAS; a++)
            l->place[a][i] += l->file[file_of(l, i, a)].header_bytes;
    return l;
}

void checkpoint_layout_free(checkpoint_layout *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->files; i++)
        free(l->file[i].header);
    for (int a = 0; a < CHECKPOINT_ARENAS; a++)
        free(l->place[a]);
    free(l->file);
    params_free(l->params);
    free(l);
}

const char *checkpoint_at(const checkpoint_layout *l, int file, int64_t offset, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, offset < l->file[file].header_bytes ? "the header" : "padding");
    for (int i = 0; i < l->params->count; i++)
        for (checkpoint_arena a = 0; a < CHECKPOINT_ARENAS; a++) {
            const int64_t bytes = l->params->tensors[i].count * checkpoint_element(&l->model, a);
            if (file_of(l, i, a) == file && offset >= l->place[a][i] && offset < l->place[a][i] + bytes)
                tensor_name(l, i, a, out, out_bytes);
        }
    return out;
}

char *checkpoint_index(const checkpoint_layout *l)
{
    char *text;
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    const int64_t total = l->params->parameters * checkpoint_element(&l->model, CHECKPOINT_WEIGHT);
    fprintf(out, "{\"metadata\":{\"total_size\":%lld},\"weight_map\":{", (long long)total);
    for (int i = 0; i < l->params->count; i++)
        fprintf(out, "%s\n\"%s\":\"%s\"", i ? "," : "", l->params->tensors[i].name,
                l->file[file_of(l, i, CHECKPOINT_WEIGHT)].name);
    fprintf(out, "}}\n");
    fclose(out);
    return text;
}

const char *checkpoint_model_differs(const checkpoint_model *have, const checkpoint_model *want, char *out,
                                     size_t out_bytes)
{
    const model_config *h = &have->config, *w = &want->config;
    const struct {
        const char *name;
        double have, want;
    } numbers[] = {{"d_model", h->d_model, w->d_model},
                   {"layers", h->layers, w->layers},
                   {"d_ff", h->d_ff, w->d_ff},
                   {"heads", h->heads, w->heads},
                   {"heads_kv", h->heads_kv, w->heads_kv},
                   {"vocab", h->vocab, w->vocab},
                   {"rope_theta", h->rope_theta, w->rope_theta},
                   {"norm_eps", h->norm_eps, w->norm_eps}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].have != numbers[i].want) {
            snprintf(out, out_bytes, "the checkpoint is of another model (%s %g, here %g)", numbers[i].name,
                     numbers[i].have, numbers[i].want);
            return out;
        }
    for (checkpoint_arena a = 0; a < CHECKPOINT_ARENAS; a++) {
        static const char *const what[] = {"weights", "moments", "moments", "master weights"};
        const bool none = !checkpoint_element(have, a) || !checkpoint_element(want, a);
        const char *in = checkpoint_element(have, a) ? dtype_name(have, a) : "none";
        const char *here = checkpoint_element(want, a) ? dtype_name(want, a) : "none";
        if (none ? checkpoint_element(have, a) != checkpoint_element(want, a) : strcmp(in, here) != 0) {
            snprintf(out, out_bytes, "the checkpoint has other %s (%s, here %s)", what[a], in, here);
            return out;
        }
    }
    return NULL;
}

/* ---- pieces ---- */

void checkpoint_pieces_add(checkpoint_pieces *p, const checkpoint_layout *l, int tensor, checkpoint_arena a,
                           int64_t from, int64_t to, char *at)
{
    const int element = checkpoint_element(&l->model, a);
    if (!element || from >= to)
        return;
    const int64_t bytes = (to - from) * element;
    LIST_ADD(p->p, p->n, p->room,
             (checkpoint_piece){at, file_of(l, tensor, a), l->place[a][tensor] + from * element, bytes});
    p->bytes += bytes;
}

static int by_place(const void *a, const void *b)
{
    const checkpoint_piece *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                              : (x->offset > y->offset) - (x->offset < y->offset);
}

void checkpoint_pieces_sort(checkpoint_pieces *p)
{
    int n = 0;
    if (p->n)
        qsort(p->p, (size_t)p->n, sizeof *p->p, by_place);
    for (int i = 0; i < p->n; i++) {
        checkpoint_piece *last = n ? &p->p[n - 1] : NULL;
        const checkpoint_piece *x = &p->p[i];
        if (last && last->file == x->file && last->offset + last->bytes == x->offset && last->at + last->bytes == x->at)
            last->bytes += x->bytes;
        else
            p->p[n++] = *x;
    }
    p->n = n;
}

void checkpoint_pieces_free(checkpoint_pieces *p)
{
    free(p->p);
    *p = (checkpoint_pieces){0};
}
