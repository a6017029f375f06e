/* SPDX-License-Identifier: MIT */
/* The table on stdout: above it what differs from the defaults, in it the parameters that vary, variant, status, then the columns meant for the console. */
#include "common/core/output.h"
#include "common/rows/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REAL_WIDTH = 9, INT_WIDTH = 12 /* the bytes of the largest GPU */, STATUS_WIDTH = 6 };

static size_t wider(size_t width, const char *text)
{
    return strlen(text) > width ? strlen(text) : width;
}

static int param_width(const options *o, size_t param)
{
    size_t width = strlen(options_param_name(o, param));
    for (size_t i = 0; i < options_param_values(o, param); i++)
        width = wider(width, options_param_value(o, param, i));
    return (int)width;
}

static int variant_width(const options *o)
{
    size_t width = strlen("variant");
    for (size_t i = 0; i < options_variant_count(o); i++)
        width = wider(width, options_variant(o, i));
    return (int)width;
}

/* Whether the parameter means something to any of the chosen variants. */
static bool asked_for(const options *o, size_t param)
{
    const size_t variants = options_variant_count(o);
    bool any = variants == 0;
    for (size_t i = 0; !any && i < variants; i++)
        any = options_param_applies(o, param, options_variant(o, i));
    return any;
}

static bool varies(const options *o, size_t param)
{
    return options_param_values(o, param) > 1 && asked_for(o, param);
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
    say("%s on %s (%s), machine %s\n", options_bench(o)->name, r->info.device_name, r->info.device, r->info.machine);
    bool any = false;
    for (size_t i = 0; i < options_param_count(o); i++)
        if (options_param_values(o, i) == 1 && asked_for(o, i) &&
            !options_param_is_default(o, i, options_param_value(o, i, 0))) {
            say("%s%s=%s", any ? " " : "", options_param_name(o, i), options_param_value(o, i, 0));
            any = true;
        }
    say(any ? "\n\n" : "\n");
    for (size_t i = 0; i < options_param_count(o); i++)
        if (varies(o, i))
            say("%*s  ", param_width(o, i), options_param_name(o, i));
    say("%-*s  %-*s", variant_width(o), "variant", STATUS_WIDTH, "status");
    for (const column_spec *s = options_bench(o)->columns; s && s->name; s++)
        if (s->console)
            say("  %*s", column_width(s), s->name);
    say("\n");
}

void console_row(const row *w)
{
    const options *o = w->r->o;
    if (!w->r->table_started)
        print_heading(w->r);
    for (size_t i = 0; i < options_param_count(o); i++)
        if (varies(o, i))
            say("%*s  ", param_width(o, i),
                options_param_is_unset(o, i, case_param(w->c, i)) ? "-" : case_param(w->c, i));
    say("%-*s  ", variant_width(o), case_variant(w->c));
    if (w->status != ROW_OK) {
        say("%-*s  %s\n", STATUS_WIDTH, row_status_names[w->status], w->reason);
        return;
    }
    say("%-*s", STATUS_WIDTH, row_status_names[w->status]);
    for (size_t i = 0; i < w->r->columns; i++) {
        const column_spec *s = &options_bench(o)->columns[i];
        char text[64];
        if (!s->console)
            continue;
        if (s->kind == COLUMN_TEXT)
            snprintf(text, sizeof text, "%s", w->cells[i] ? w->cells[i] : "-");
        else
            number_text(w->cells[i], s->kind, text, sizeof text);
        say("  %*s", column_width(s), text);
    }
    say("%s%s\n", *w->reason ? "  " : "", w->reason);
}
