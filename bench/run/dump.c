/* SPDX-License-Identifier: MIT */
/* Writes a run's start, tokens and options for another program; see dump.h. */
#include "bench/run/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/error.h"

static FILE *file_of(run *x, const char *folder, const char *name)
{
    OWNED char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        launch_fail(x->k.l, EXIT_CODE_USAGE, "--dump: %s can't be written: %s", path, strerror(errno));
    return f;
}

static void close_file(run *x, FILE *f, const char *name)
{
    if (!file_close(f))
        launch_fail(x->k.l, EXIT_CODE_FAILURE, "--dump: %s can't be written: %s", name, strerror(errno));
}

/* safetensors: the length of a JSON header, the header, the tensors. */
static void write_start(run *x, const char *folder, const float *values)
{
    const params *p = trainer_params(x->r->t);
    char *header;
    unsigned long bytes;
    FILE *h = text_stream(&header, &bytes);
    int64_t at = 0;
    for (int i = 0; i < p->count; i++) {
        const param_tensor *t = &p->tensors[i];
        const int64_t end = at + t->count * (int64_t)sizeof(float);
        fprintf(h, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i ? "," : "{", t->name);
        if (param_is_gain(t->kind))
            fprintf(h, "%d", t->columns);
        else
            fprintf(h, "%d,%d", t->rows, t->columns);
        fprintf(h, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)end);
        at = end;
    }
    fprintf(h, "}");
    fclose(h);
    const uint64_t length = bytes;
    FILE *f = file_of(x, folder, "start.safetensors");
    fwrite(&length, sizeof length, 1, f);
    fwrite(header, 1, bytes, f);
    for (int i = 0; i < p->count; i++)
        fwrite(values + p->tensors[i].first, sizeof *values, (size_t)p->tensors[i].count, f);
    close_file(x, f, "start.safetensors");
    free(header);
}

static void write_tokens(run *x, const char *folder)
{
    const int64_t global = x->batch * x->ranks, width = x->k.o.seq + 1;
    char dict[128], head[10] = "\x93NUMPY\x01";
    const int length =
        snprintf(dict, sizeof dict, "{'descr': '<i4', 'fortran_order': False, 'shape': (%lld, %lld, %lld), }\n",
                 (long long)x->steps, (long long)global, (long long)width);
    head[8] = (char)length;
    FILE *f = file_of(x, folder, "tokens.npy");
    fwrite(head, 1, sizeof head, f);
    fwrite(dict, 1, (size_t)length, f);
    OWNED int32_t *window = xmalloc((size_t)width * sizeof *window);
    for (int64_t i = 0; i < x->steps * global; i++) {
        if (!data_sample(x->data, x->overfit ? i % global : i, window))
            launch_fail(x->k.l, EXIT_CODE_FAILURE, "--data %s: " DATA_UNREADABLE, case_text(x->k.c, "data"));
        fwrite(window, sizeof *window, (size_t)width, f);
    }
    close_file(x, f, "tokens.npy");
}

static void write_options(run *x, const char *folder)
{
    const step_options *o = &x->k.o;
    const model_config *c = &o->config;
    const bool moves = x->rung >= RUNG_SCHEDULE;
    FILE *f = file_of(x, folder, "run.json");
    fprintf(f, "{\"vocab\":%d,\"d_model\":%d,\"d_ff\":%d,\"layers\":%d,\"heads\":%d,\"heads_kv\":%d,\"seq\":%d,",
            c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, o->seq);
    fprintf(f, "\"steps\":%lld,\"global_batch\":%lld,\"precision\":\"%s\",\"rope_theta\":%.9g,", (long long)x->steps,
            (long long)x->batch * x->ranks, o->precision->name, c->rope_theta);
    fprintf(f, "\"schedule\":\"%s\",\"lr\":%.17g,\"min_lr\":%.17g,\"lr_warmup\":%lld,",
            moves ? x->schedule.name : "constant", x->schedule.lr, x->schedule.min_lr,
            moves ? (long long)x->schedule.warmup : 0);
    fprintf(f, "\"betas\":[%.17g,%.17g],\"eps\":%.17g,\"weight_decay\":%.17g,\"clip\":%.17g}\n", o->beta1, o->beta2,
            o->eps, o->weight_decay, o->clip_norm);
    close_file(x, f, "run.json");
}

void run_dump(run *x, const char *folder)
{
    if (!*folder || !x->r->member || !x->data)
        return;
    OWNED float *values = xcalloc((size_t)x->r->plan->elements, sizeof *values);
    replica_read_params(x->r, values);
    if (launch_rank(x->k.l) == 0) {
        mkdir(folder, 0777);
        write_start(x, folder, values);
        write_tokens(x, folder);
        write_options(x, folder);
    }
}
