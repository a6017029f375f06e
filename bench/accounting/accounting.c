/* SPDX-License-Identifier: MIT */
/* What the questions of bench_accounting share; see accounting.h. */
#include "bench/accounting/accounting.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/output.h"
#include "common/formulas/model.h"
#include "common/model/config.h"

/* ---- texts ---- */

static void put_plain(FILE *out, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    char *plus = strchr(text, '+'); /* 4.6e+14: no sign */
    if (plus)
        memmove(plus, plus + 1, strlen(plus));
    fputs(text, out);
}

static void put_whole(FILE *out, double value)
{
    char digits[32];
    if (!isfinite(value) || fabs(value) >= 1e18) {
        put_plain(out, value);
        return;
    }
    snprintf(digits, sizeof digits, "%.0f", value);
    for (const char *from = digits; *from; from++)
        fprintf(out, strlen(from) % 3 == 1 && from[1] && *from != '-' ? "%c," : "%c", *from);
}

static void put_number(FILE *out, char kind, double x)
{
    switch (kind) {
    case 'W': put_whole(out, x); break;
    case 'P': put_plain(out, x); break;
    case 'B':
        fprintf(out, x >= 1e9 ? "%.2f GB (%.1f GiB)" : "%.2f MB (%.2f MiB)", x / (x >= 1e9 ? 1e9 : 1e6),
                x / (x >= 1e9 ? 1073741824.0 : 1048576.0));
        break;
    case 'T': fprintf(out, x < 0.01 ? "%.1f us" : "%.2f ms", x * (x < 0.01 ? 1e6 : 1e3)); break;
    case 'R': fprintf(out, "%.4g GB/s", x / 1e9); break;
    default: die(EXIT_CODE_FAILURE, "bug: a text of bench_accounting has %%%c", kind);
    }
}

/* The text with its numbers. Caller frees. */
static char *text_of(const char *fmt, va_list args)
{
    char *text, one[16];
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    for (; *fmt; fmt++) {
        const size_t length = *fmt == '%' ? 1 + strspn(fmt + 1, "+.0123456789") : 0;
        if (!length || fmt[1] == '%')
            fputc(*fmt, out);
        else if (fmt[length] == 's')
            fputs(va_arg(args, const char *), out);
        else if (strchr("fg", fmt[length])) {
            snprintf(one, sizeof one, "%.*s", (int)length + 1, fmt);
            fprintf(out, one, va_arg(args, double));
        } else
            put_number(out, fmt[length], va_arg(args, double));
        fmt += length;
    }
    fclose(out);
    return text;
}

/* ---- derivations ---- */

void accounting_step(const accounting *a, const char *fmt, ...)
{
    if (!a->steps)
        return;
    va_list args;
    va_start(args, fmt);
    OWNED char *text = text_of(fmt, args);
    va_end(args);
    say("  %s\n", text);
}

void accounting_answer(const accounting *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    OWNED char *text = text_of(fmt, args);
    va_end(args);
    row_text(a->w, "answer", text);
    accounting_step(a, "=> %s\n", text);
}

void accounting_real(const accounting *a, const char *column, double value)
{
    row_real(a->w, column, isfinite(value) ? value : NAN);
}

/* ---- what a case is about ---- */

ffn_stack accounting_stack(const accounting *a)
{
    /* An option that means nothing to the variant is 0 there. */
    int64_t matrices = case_int(a->c, "matrices");
    return (ffn_stack){.d_model = case_int(a->c, "d-model"),
                       .d_ff = case_int(a->c, "d-ff"),
                       .blocks = case_int(a->c, "blocks"),
                       .matrices = matrices ? matrices : 3};
}

bool accounting_model_parse(const char *text, accounting_model *m)
{
    const model_config *c = model_size_find(text);
    if (c) {
        transformer_shape shape = {c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, 1, 1};
        double d = c->d_model, kv = model_kv_dim(c);
        *m = (accounting_model){.parameters = (double)model_parameters(c),
                                .matmul_parameters = transformer_matmul_parameters(&shape),
                                .unit_parameters = 2 * d * d + 2 * d * kv + 3 * d * c->d_ff + 2 * d};
        return true;
    }
    char *end;
    double parameters = strtod(text, &end);
    *m = (accounting_model){.parameters = parameters, .matmul_parameters = parameters};
    return end != text && !*end && parameters >= 1 && parameters <= 1e15;
}
