/* SPDX-License-Identifier: MIT */
/* What the questions of bench_accounting share; see accounting.h. */
#include "bench/accounting/accounting.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/output.h"
#include "common/formulas/model.h"
#include "common/model/config.h"

/* ---- derivations ---- */

void accounting_step(const accounting *a, const char *fmt, ...)
{
    if (!a->steps)
        return;
    va_list args;
    va_start(args, fmt);
    say("  ");
    vfprintf(output(), fmt, args);
    say("\n");
    va_end(args);
}

void accounting_answer(const accounting *a, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    row_text(a->w, "answer", text);
    accounting_step(a, "=> %s\n", text);
}

void accounting_real(const accounting *a, const char *column, double value)
{
    row_real(a->w, column, isfinite(value) ? value : NAN);
}

/* ---- texts ---- */

enum { TEXTS = 32, TEXT_BYTES = 64 };

static char *next_text(void)
{
    static char texts[TEXTS][TEXT_BYTES];
    static unsigned next;
    return texts[next++ % TEXTS];
}

const char *accounting_whole(double value)
{
    char digits[TEXT_BYTES], *text = next_text(), *to = text;
    if (!isfinite(value) || fabs(value) >= 1e18)
        return accounting_plain(value);
    snprintf(digits, sizeof digits, "%.0f", value);
    for (const char *from = digits; *from; from++) {
        *to++ = *from;
        size_t left = strlen(from) - 1;
        if (left && left % 3 == 0 && *from != '-')
            *to++ = ',';
    }
    *to = '\0';
    return text;
}

const char *accounting_size(double bytes)
{
    char *text = next_text();
    bool large = bytes >= 1e9;
    snprintf(text, TEXT_BYTES, large ? "%.2f GB (%.1f GiB)" : "%.2f MB (%.2f MiB)", bytes / (large ? 1e9 : 1e6),
             bytes / (large ? 1073741824.0 : 1048576.0));
    return text;
}

const char *accounting_plain(double value)
{
    char *text = next_text();
    snprintf(text, TEXT_BYTES, "%.6g", value);
    char *plus = strchr(text, '+'); /* 4.6e+14: no sign */
    if (plus)
        memmove(plus, plus + 1, strlen(plus));
    return text;
}

const char *accounting_time(double seconds)
{
    char *text = next_text();
    bool small = seconds < 0.01;
    snprintf(text, TEXT_BYTES, small ? "%.1f us" : "%.2f ms", seconds * (small ? 1e6 : 1e3));
    return text;
}

const char *accounting_rate(double bytes_per_s)
{
    char *text = next_text();
    snprintf(text, TEXT_BYTES, "%.4g GB/s", bytes_per_s / 1e9);
    return text;
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
