/* SPDX-License-Identifier: MIT */
/* Checks a trace; see trace.h. JSON is read into a tree first (RFC 8259; escapes are kept as they are). */
#include "tests/support/trace.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

/* ---- JSON ---- */

typedef struct json {
    char kind; /* { [ " 0 */
    char *key; /* of a member of an object */
    char *text;
    double number;
    struct json *child, *next;
} json;

static void json_free(json *j)
{
    while (j) {
        json *next = j->next;
        json_free(j->child);
        free(j->key);
        free(j->text);
        free(j);
        j = next;
    }
}

static const char *blanks(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *read_string(const char *p, char **out)
{
    const char *start = ++p;
    for (; *p != '"'; p++) {
        if ((unsigned char)*p < 0x20)
            return NULL;
        if (*p != '\\')
            continue;
        if (*++p == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++p))
                    return NULL;
        } else if (!*p || !strchr("\"\\/bfnrt", *p)) {
            return NULL;
        }
    }
    *out = xasprintf("%.*s", (int)(p - start), start);
    return p + 1;
}

static const char *read_value(const char *p, json **out);

static const char *read_members(const char *p, json *in)
{
    const char close = in->kind == '{' ? '}' : ']';
    json **end = &in->child;
    p = blanks(p + 1);
    if (*p == close)
        return p + 1;
    for (;;) {
        char *key = NULL;
        if (close == '}') {
            p = blanks(p);
            if (*p != '"' || !(p = read_string(p, &key)) || *(p = blanks(p)) != ':') {
                free(key);
                return NULL;
            }
            p++;
        }
        p = read_value(p, end);
        if (!*end) {
            free(key);
            return NULL;
        }
        (*end)->key = key;
        end = &(*end)->next;
        if (!p)
            return NULL;
        p = blanks(p);
        if (*p == close)
            return p + 1;
        if (*p++ != ',')
            return NULL;
    }
}

/* Behind the value, or NULL. */
static const char *read_value(const char *p, json **out)
{
    json *j = *out = xcalloc(1, sizeof *j);
    p = blanks(p);
    j->kind = *p;
    if (*p == '{' || *p == '[')
        return read_members(p, j);
    if (*p == '"')
        return read_string(p, &j->text);
    const size_t digits = strspn(p, "0123456789.-+eE");
    char *end;
    j->kind = '0';
    j->number = strtod(p, &end);
    return digits && end == p + digits ? end : NULL;
}

static const json *member(const json *j, const char *key)
{
    for (const json *m = j && j->kind == '{' ? j->child : NULL; m; m = m->next)
        if (strcmp(m->key, key) == 0)
            return m;
    return NULL;
}

static const char *text_of(const json *j, const char *key)
{
    const json *m = member(j, key);
    return m && m->kind == '"' ? m->text : "";
}

static double number_of(const json *j, const char *key)
{
    const json *m = member(j, key);
    return m && m->kind == '0' ? m->number : NAN;
}

/* ---- events ---- */

typedef struct box { /* an X event; times in whole nanoseconds, so that touching is exact */
    long long start, end;
    int rank, thread;
    const char *name;
} box;

typedef struct arrow {
    double id, ts;
    bool end;
    int rank;
} arrow;

typedef struct checker {
    trace_summary *out;
    box *boxes;
    arrow *arrows;
    struct {
        int rank, thread;
    } * named;
    size_t box_count, arrow_count, named_count;
    char *why;
    size_t why_bytes;
} checker;

static bool no(checker *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool no(checker *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->why, c->why_bytes, fmt, args);
    va_end(args);
    return false;
}

static bool take_x(checker *c, const json *e, int rank, int thread, double ts)
{
    trace_summary *s = c->out;
    const double dur = number_of(e, "dur");
    const char *category = text_of(e, "cat"), *name = text_of(e, "name");
    const json *args = member(e, "args");
    if (!(ts >= 0) || !(dur >= 0) || !*name || !args || args->kind != '{')
        return no(c, "an X event '%s' lacks a time, a name or arguments", name);
    c->boxes[c->box_count++] = (box){llround(ts * 1e3), llround((ts + dur) * 1e3), rank, thread, name};
    if (strcmp(category, "kernel") == 0 || strcmp(category, "gpu_memcpy") == 0 || strcmp(category, "gpu_memset") == 0) {
        if (isnan(number_of(args, "stream")) || isnan(number_of(args, "correlation")) ||
            isnan(number_of(args, "graph node id")))
            return no(c, "'%s' lacks its stream, correlation or graph node", name);
        s->spans++;
        s->span_us[rank] += dur;
        s->first_us = fmin(s->first_us, ts), s->last_us = fmax(s->last_us, ts + dur);
    } else if (strcmp(category, "user_annotation") == 0 || strcmp(category, "cpu_op") == 0) {
        s->ranges++;
    } else if (strcmp(category, "cuda_runtime") == 0) {
        s->calls++;
    } else {
        return no(c, "'%s' has the category '%s'", name, category);
    }
    return true;
}

static bool take_event(checker *c, const json *e)
{
    const char *kind = text_of(e, "ph");
    const double pid = number_of(e, "pid"), tid = number_of(e, "tid"), ts = number_of(e, "ts");
    c->out->events++;
    if (e->kind != '{' || !(pid >= 0) || pid >= TRACE_RANKS || pid != floor(pid))
        return no(c, "event %d has no rank", c->out->events);
    const int rank = (int)pid;
    c->out->ranks = rank + 1 > c->out->ranks ? rank + 1 : c->out->ranks;
    if (strcmp(kind, "M") == 0) {
        if (!*text_of(e, "name") || !member(e, "args"))
            return no(c, "an M event lacks a name or arguments");
        if (strcmp(text_of(e, "name"), "thread_name") == 0) {
            c->named[c->named_count].rank = rank;
            c->named[c->named_count++].thread = (int)tid;
        }
        return true;
    }
    if (!(ts >= 0))
        return no(c, "event %d, of kind '%s', has no time", c->out->events, kind);
    if (strcmp(kind, "C") == 0) {
        c->out->counters++;
        return member(e, "args") && member(e, "args")->child ? true : no(c, "a counter without values");
    }
    if (isnan(tid))
        return no(c, "event %d, of kind '%s', has no thread", c->out->events, kind);
    if (strcmp(kind, "X") == 0)
        return take_x(c, e, rank, (int)tid, ts);
    if (strcmp(kind, "s") != 0 && strcmp(kind, "f") != 0)
        return no(c, "event %d has the kind '%s'", c->out->events, kind);
    c->arrows[c->arrow_count++] = (arrow){number_of(e, "id"), ts, *kind == 'f', rank};
    return true;
}

static int by_place(const void *a, const void *b)
{
    const box *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    if (x->thread != y->thread)
        return x->thread - y->thread;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

/* What begins inside an event ends inside it. */
static bool nested(checker *c)
{
    const box **open = xcalloc(c->box_count + 1, sizeof *open);
    size_t depth = 0;
    bool ok = true;
    qsort(c->boxes, c->box_count, sizeof *c->boxes, by_place);
    for (size_t i = 0; ok && i < c->box_count; i++) {
        const box *b = &c->boxes[i];
        while (depth && (open[depth - 1]->rank != b->rank || open[depth - 1]->thread != b->thread ||
                         open[depth - 1]->end <= b->start))
            depth--;
        if (depth && b->end > open[depth - 1]->end)
            ok = no(c, "'%s' at %.3f us begins inside '%s' and ends behind it", b->name, (double)b->start / 1e3,
                    open[depth - 1]->name);
        open[depth++] = b;
    }
    free(open);
    return ok;
}

static int by_id(const void *a, const void *b)
{
    const arrow *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->end - y->end;
}

static bool paired(checker *c)
{
    qsort(c->arrows, c->arrow_count, sizeof *c->arrows, by_id);
    for (size_t i = 0; i < c->arrow_count; i += 2) {
        const arrow *s = &c->arrows[i], *f = s + 1;
        if (i + 1 == c->arrow_count || s->end || !f->end || s->id != f->id || s->rank != f->rank || s->ts > f->ts)
            return no(c, "the arrow %.0f of rank %d has not one end behind one start", s->id, s->rank);
    }
    c->out->arrows = (int)(c->arrow_count / 2);
    return true;
}

static bool all_named(checker *c)
{
    for (size_t i = 0; i < c->box_count; i++) {
        size_t k = 0;
        while (k < c->named_count && (c->named[k].rank != c->boxes[i].rank || c->named[k].thread != c->boxes[i].thread))
            k++;
        if (k == c->named_count)
            return no(c, "thread %d of rank %d has no name", c->boxes[i].thread, c->boxes[i].rank);
    }
    return true;
}

bool trace_check(const char *text, trace_summary *out, char *why, size_t why_bytes)
{
    json *root = NULL;
    const char *end = read_value(text, &root);
    const json *events = member(root, "traceEvents");
    size_t n = 0;
    checker c = {.out = out, .why = why, .why_bytes = why_bytes};
    *out = (trace_summary){.first_us = INFINITY, .last_us = -INFINITY};
    bool ok = end && *blanks(end) == '\0' ? true : no(&c, "the trace is no JSON");
    ok = ok && (events && events->kind == '[' ? true : no(&c, "there is no list traceEvents"));
    ok = ok && (!isnan(number_of(root, "baseTimeNanoseconds")) ? true : no(&c, "there is no baseTimeNanoseconds"));
    for (const json *e = ok ? events->child : NULL; e; e = e->next)
        n++;
    c.boxes = xcalloc(n + 1, sizeof *c.boxes);
    c.arrows = xcalloc(n + 1, sizeof *c.arrows);
    c.named = xcalloc(n + 1, sizeof *c.named);
    for (const json *e = ok ? events->child : NULL; ok && e; e = e->next)
        ok = take_event(&c, e);
    ok = ok && nested(&c) && paired(&c) && all_named(&c);
    free(c.boxes);
    free(c.arrows);
    free(c.named);
    json_free(root);
    return ok;
}
