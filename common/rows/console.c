/* SPDX-License-Identifier: MIT */
/* The table on stdout: the parameters that vary, variant, status, then the columns meant for the console. */
#include "common/options/internal.h"
#include "common/rows/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REAL_WIDTH = 9, INT_WIDTH = 12 /* the bytes of the largest GPU */, STATUS_WIDTH = 6 };

static int widest(const char *name, const option_values *values)
{
    size_t width = strlen(name);
    for (size_t i = 0; i < values->n; i++)
        if (strlen(values->v[i].text) > width)
            width = strlen(values->v[i].text);
    return (int)width;
}

/* Whether the parameter means something to any of the chosen variants. */
static bool asked_for(const options *o, size_t param)
{
    bool any = !o->variant;
    for (size_t i = 0; !any && i < o->variant->values.n; i++)
        any = param_applies(o, param, o->variant->values.v[i].text);
    return any;
}

static bool varies(const options *o, size_t param)
{
    return o->params[param]->values.n > 1 && asked_for(o, param);
}

static int variant_width(const options *o)
{
    return o->variant ? widest("variant", &o->variant->values) : (int)strlen("variant");
}

static int column_width(const column_spec *column)
{
    int width = (int)strlen(column->name), least = column->kind == COLUMN_INT ? INT_WIDTH : REAL_WIDTH;
    return width < least ? least : width;
}

/* Four significant digits; no exponent where a reader would have to count zeros. */
static void number_text(const char *cell, column_kind kind, char *out, size_t out_bytes)
{
    double x = cell ? strtod(cell, NULL) : NAN;
    double size = fabs(x);
    if (!isfinite(x))
        snprintf(out, out_bytes, "%s", isnan(x) ? "-" : "inf");
    else if (kind == COLUMN_INT)
        snprintf(out, out_bytes, "%s", cell);
    else if (x == 0 || (size >= 1e-3 && size < 1e7)) {
        int decimals = x == 0 ? 0 : 3 - (int)floor(log10(size));
        snprintf(out, out_bytes, "%.*f", decimals < 0 ? 0 : decimals, x);
    } else
        snprintf(out, out_bytes, "%.3e", x);
}

static void print_heading(const row_writer *r)
{
    const options *o = r->o;
    printf("%s on %s (%s), machine %s\n", o->bench->name, r->device_name, r->device, r->machine);
    bool any = false;
    for (size_t i = 0; i < o->params_n; i++)
        if (o->params[i]->values.n == 1 && asked_for(o, i)) {
            printf("%s%s=%s", any ? " " : "", o->columns[i], o->params[i]->values.v[0].text);
            any = true;
        }
    printf(any ? "\n\n" : "\n");
    for (size_t i = 0; i < o->params_n; i++)
        if (varies(o, i))
            printf("%*s  ", widest(o->columns[i], &o->params[i]->values), o->columns[i]);
    printf("%-*s  %-*s", variant_width(o), "variant", STATUS_WIDTH, "status");
    for (const column_spec *s = o->bench->columns; s && s->name; s++)
        if (s->console)
            printf("  %*s", column_width(s), s->name);
    printf("\n");
}

void console_row(const row *w)
{
    const options *o = w->r->o;
    if (!w->r->table_started)
        print_heading(w->r);
    for (size_t i = 0; i < o->params_n; i++)
        if (varies(o, i))
            printf("%*s  ", widest(o->columns[i], &o->params[i]->values), case_param(w->c, i));
    printf("%-*s  ", variant_width(o), case_variant(w->c));
    if (w->status != ROW_OK) {
        printf("%-*s  %s\n", STATUS_WIDTH, row_status_names[w->status], w->reason);
        return;
    }
    printf("%-*s", STATUS_WIDTH, row_status_names[w->status]);
    for (size_t i = 0; i < w->r->columns; i++) {
        const column_spec *s = &o->bench->columns[i];
        char text[64];
        if (!s->console)
            continue;
        if (s->kind == COLUMN_TEXT)
            snprintf(text, sizeof text, "%s", w->cells[i] ? w->cells[i] : "-");
        else
            number_text(w->cells[i], s->kind, text, sizeof text);
        printf("  %*s", column_width(s), text);
    }
    printf("%s%s\n", *w->reason ? "  " : "", w->reason);
}
