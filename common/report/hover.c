/* SPDX-License-Identifier: MIT */
/* Titles for the points of a figure; see hover.h. */
#include "common/report/hover.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/table.h"

static const double pixel = 0.01;                     /* what gnuplot rounds to */
static const double on_a_tic = 0.03, off_a_tic = 0.6; /* pixels: the same place; a tic out of line */
static const double baseline = 0.325;             /* of the font's size: a label's text stands so far below its tic */
static const char tic_colour[] = "rgb(51,51,51)"; /* plots/style.gp gives it to labels of tics alone */

/* ---- scales ---- */

/* "4k" is 4096, as length_text of plots/style.gp writes it. */
static bool number_of(const char *label, double *value, bool *kilo)
{
    char *end;
    *value = strtod(label, &end);
    *kilo = strcmp(end, "k") == 0;
    *value *= *kilo ? 1024 : 1;
    return end != label && (!*end || *kilo);
}

typedef struct scale {
    bool log, kilo;
    double from, per_pixel, origin; /* value (or its logarithm) = from + per_pixel (place - origin) */
} scale;

static double on_scale(const scale *s, double at)
{
    const double x = s->from + s->per_pixel * (at - s->origin);
    return s->log ? exp(x) : x;
}

/* Through the two ends; all other tics must lie on it. */
static bool fits(const hover_axis *a, const double *values, bool logarithmic, scale *s)
{
    size_t low = 0, high = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (logarithmic && !(values[i] > 0))
            return false;
        low = a->at[i] < a->at[low] ? i : low;
        high = a->at[i] > a->at[high] ? i : high;
    }
    const double from = logarithmic ? log(values[low]) : values[low],
                 to = logarithmic ? log(values[high]) : values[high];
    *s = (scale){.log = logarithmic, .from = from, .origin = a->at[low]};
    s->per_pixel = (to - from) / (a->at[high] - a->at[low]);
    for (size_t i = 0; i < a->n; i++) {
        const double x = logarithmic ? log(values[i]) : values[i];
        if (!(fabs((x - from) / s->per_pixel - (a->at[i] - s->origin)) < off_a_tic))
            return false;
    }
    return true;
}

static bool scale_of(const hover_axis *a, scale *s)
{
    double values[HOVER_TICS];
    bool kilo = false, any_kilo = false;
    for (size_t i = 0; i < a->n; i++) {
        if (!number_of(a->label[i], &values[i], &kilo))
            return false;
        any_kilo = any_kilo || kilo;
    }
    if (a->n < 3 || (!fits(a, values, false, s) && !fits(a, values, true, s)))
        return false;
    s->kilo = any_kilo;
    return true;
}

/* With as many digits as a hundredth of a pixel gives, at most four. */
static void print(const scale *s, double at, char *out, size_t out_bytes)
{
    const double x = on_scale(s, at), step = fabs(on_scale(s, at + pixel) - x);
    const int sure = (int)floor(log10(fmax(fabs(x), step) / step)), digits = sure < 1 ? 1 : sure > 3 ? 3 : sure;
    if (s->kilo && x >= 1000)
        snprintf(out, out_bytes, "%.*gk", digits, x / 1024);
    else if (fabs(x) >= 1000)
        snprintf(out, out_bytes, "%.0f", x);
    else
        snprintf(out, out_bytes, "%.*g", digits, x);
}

bool hover_value(const hover_axis *a, double at, char *out, size_t out_bytes)
{
    scale s;
    const bool scaled = scale_of(a, &s);
    for (size_t i = 0; i < a->n; i++)
        if (fabs(a->at[i] - at) < (scaled ? on_a_tic : off_a_tic)) {
            snprintf(out, out_bytes, "%s", a->label[i]);
            return true;
        }
    if (scaled)
        print(&s, at, out, out_bytes);
    return scaled;
}

/* ---- reading a figure ---- */

enum {
    KEYS = 64,
    KEY_ABOVE = 100,
    KEY_NEAR = 40
}; /* the key is a row within the first pixels, its text beside its point */

typedef struct mark { /* a point, or the text of the key */
    double x, y;
    char shape[24], colour[24], text[64];
} mark;

typedef struct reader {
    hover_axis x, y;
    bool pointed; /* points since the last tic: the next tic is another panel's */
    char unit[64];
    mark texts[KEYS], keys[KEYS];
    size_t texts_n, keys_n;
} reader;

/* An attribute of the tag that begins at `tag`, between quotes of either kind; "" when there is none. */
static void attribute(const char *tag, const char *name, char *out, size_t out_bytes)
{
    const size_t length = strcspn(tag, ">"), n = strlen(name);
    out[0] = '\0';
    for (const char *at = tag; (at = strstr(at, name)) && at < tag + length; at += n)
        if (at[-1] == ' ' && at[n] == '=' && (at[n + 1] == '"' || at[n + 1] == '\'')) {
            const char *end = strchr(at + n + 2, at[n + 1]);
            if (end)
                snprintf(out, out_bytes, "%.*s", (int)(end - at - (long)n - 2), at + n + 2);
            return;
        }
}

static bool place_of(const char *tag, double *x, double *y, bool *turned)
{
    char transform[96];
    attribute(tag, "transform", transform, sizeof transform);
    *turned = strstr(transform, "rotate");
    return sscanf(transform, "translate(%lf,%lf)", x, y) == 2;
}

/* What stands in the first <text> behind the tag, without tags. */
static void text_behind(const char *tag, char *out, size_t out_bytes)
{
    const char *at = strstr(tag, "<text>"), *end = at ? strstr(at, "</text>") : NULL;
    size_t n = 0;
    for (bool inside = false; at && end && at < end; at++) {
        inside = inside || *at == '<';
        if (!inside && n + 1 < out_bytes)
            out[n++] = *at;
        inside = inside && *at != '>';
    }
    out[n] = '\0';
}

static void add_tic(reader *r, hover_axis *a, double at, const char *label)
{
    if (r->pointed) {
        r->x.n = r->y.n = 0;
        r->pointed = false;
    }
    if (a->n == HOVER_TICS || strlen(label) >= sizeof a->label[0])
        return;
    a->at[a->n] = at;
    snprintf(a->label[a->n++], sizeof a->label[0], "%s", label);
}

static void read_text(reader *r, const char *tag)
{
    char fill[32], anchor[16], size[16], text[64];
    double x, y;
    bool turned;
    if (!place_of(tag, &x, &y, &turned))
        return;
    attribute(tag, "fill", fill, sizeof fill);
    attribute(tag, "text-anchor", anchor, sizeof anchor);
    attribute(tag, "font-size", size, sizeof size);
    text_behind(tag, text, sizeof text);
    if (!*text)
        return;
    if (strcmp(fill, tic_colour) == 0) {
        if (strcmp(anchor, "middle") == 0)
            add_tic(r, &r->x, x, text);
        else if (strcmp(anchor, "end") == 0 && !turned)
            add_tic(r, &r->y, y - baseline * atof(size), text);
    } else if (turned) {
        snprintf(r->unit, sizeof r->unit, "%s", text);
    } else if (y < KEY_ABOVE && strcmp(anchor, "start") == 0 && r->texts_n < KEYS) {
        r->texts[r->texts_n] = (mark){.x = x, .y = y};
        snprintf(r->texts[r->texts_n++].text, sizeof text, "%s", text);
    }
}

/* A point of the key takes the nearest text to its right; true when it is one. */
static bool read_key(reader *r, mark *m)
{
    const mark *best = NULL;
    for (size_t i = 0; i < r->texts_n; i++) {
        const mark *t = &r->texts[i];
        const double right = t->x - m->x;
        if (right > 0 && right < KEY_NEAR && fabs(t->y - m->y) < 10 && (!best || right <= best->x - m->x))
            best = t;
    }
    if (m->y >= KEY_ABOVE || !best)
        return false;
    snprintf(m->text, sizeof m->text, "%s", best->text);
    if (r->keys_n < KEYS)
        r->keys[r->keys_n++] = *m;
    return true;
}

/* The newest key of this shape and colour: panels may have keys of their own. */
static const char *series_of(const reader *r, const mark *m)
{
    for (size_t i = r->keys_n; i-- > 0;)
        if (strcmp(r->keys[i].shape, m->shape) == 0 && strcmp(r->keys[i].colour, m->colour) == 0)
            return r->keys[i].text;
    return "";
}

/* Writes a point with its title, if it has one. */
static void write_point(FILE *out, reader *r, const char *tag, size_t length)
{
    mark m = {0};
    bool turned;
    char x[48], y[48];
    attribute(tag, "xlink:href", m.shape, sizeof m.shape);
    attribute(tag, "color", m.colour, sizeof m.colour);
    const bool placed = place_of(tag, &m.x, &m.y, &turned) && length > 2 && tag[length - 2] == '/';
    const bool key = placed && read_key(r, &m);
    r->pointed = r->pointed || (placed && !key);
    if (!placed || key || !hover_value(&r->x, m.x, x, sizeof x) || !hover_value(&r->y, m.y, y, sizeof y)) {
        fwrite(tag, 1, length, out);
        return;
    }
    const char *series = series_of(r, &m);
    fprintf(out, "%.*s><title>%s%s%s: %s%s%s</title></use>", (int)length - 2, tag, series, *series ? ", " : "", x, y,
            *r->unit ? " " : "", r->unit);
}

char *hover_titles(const char *svg)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    reader *r = xcalloc(1, sizeof *r);
    while (*svg) {
        const size_t plain = strcspn(svg, "<");
        fwrite(svg, 1, plain, out);
        svg += plain;
        const char *end = *svg ? strchr(svg, '>') : NULL;
        const size_t length = end ? (size_t)(end + 1 - svg) : strlen(svg);
        if (strncmp(svg, "<use ", 5) == 0) {
            write_point(out, r, svg, length);
        } else {
            if (strncmp(svg, "<g transform=", 13) == 0)
                read_text(r, svg);
            fwrite(svg, 1, length, out);
        }
        svg += length;
    }
    free(r);
    fclose(out);
    return text;
}
