/* SPDX-License-Identifier: MIT */
/* From the text of one option to its values: numbers with suffixes, ranges, lists, words, and what is allowed. */
#include "common/core/error.h"
#include "common/options/internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    const option_spec *spec;
    option_values *out;
    char *msg;
    size_t msg_bytes;
} parser;

static bool is_number(const option_spec *spec)
{
    return spec->kind == OPTION_INT || spec->kind == OPTION_REAL || spec->kind == OPTION_BYTES;
}

static bool has_choice(const char *choices, const char *word)
{
    const size_t length = strlen(word);
    for (const char *choice = choices; *choice;) {
        const size_t choice_length = strcspn(choice, "|");
        if (choice_length == length && strncmp(choice, word, length) == 0)
            return true;
        choice += choice_length + (choice[choice_length] == '|');
    }
    return false;
}

/* In a list the word "all" means every choice, unless a choice has that name. */
static bool means_every(const option_spec *spec, const char *word)
{
    return (spec->flags & OPTION_LIST) && strcmp(word, "all") == 0 && !has_choice(spec->choices, word);
}

void option_accepts(const option_spec *spec, char *out, size_t out_bytes)
{
    static const char *const one[] = {
        [OPTION_INT] = "a whole number", [OPTION_REAL] = "a number", [OPTION_BYTES] = "a number of bytes"};
    static const char *const many[] = {
        [OPTION_INT] = "whole numbers", [OPTION_REAL] = "numbers", [OPTION_BYTES] = "numbers of bytes"};
    bool list = spec->flags & OPTION_LIST;
    if (is_number(spec)) {
        int used = snprintf(out, out_bytes, "%s", (list ? many : one)[spec->kind]);
        if (spec->min < spec->max)
            used += snprintf(out + used, out_bytes - (size_t)used, " from %.15g to %.15g", spec->min, spec->max);
        if (*spec->unit)
            snprintf(out + used, out_bytes - (size_t)used, " %s", spec->unit);
    } else if (spec->kind == OPTION_CHOICE) {
        snprintf(out, out_bytes, "%s%s",
                 means_every(spec, "all") ? "all, or some of "
                 : list                   ? "some of "
                                          : "",
                 spec->choices);
    } else if (spec->kind == OPTION_FLAG) {
        snprintf(out, out_bytes, "%s", list ? "0, 1 or both" : "0 or 1");
    } else {
        snprintf(out, out_bytes, "%s", list ? "words" : "text");
    }
}

void option_allowed(const option_spec *spec, char *out, size_t out_bytes)
{
    static const char *const suffixes[] = {[OPTION_INT] = " (K, M, G: powers of 1024)",
                                           [OPTION_REAL] = "",
                                           [OPTION_BYTES] = " (K, M, G: powers of 1024; KB, MB, GB: of 1000)"};
    char accepts[384];
    option_accepts(spec, accepts, sizeof accepts);
    const char *list = !(spec->flags & OPTION_LIST) ? ""
                       : is_number(spec)            ? ", as a,b,c or lo:hi, lo:hi:+step, lo:hi:*factor"
                                                    : ", as a,b,c";
    snprintf(out, out_bytes, "%s%s%s", accepts, is_number(spec) ? suffixes[spec->kind] : "", list);
}

/* "--seq: <what is wrong>; allowed: ..." */
__attribute__((format(printf, 2, 3))) static bool reject(const parser *p, const char *fmt, ...)
{
    char wrong[256], allowed[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(wrong, sizeof wrong, fmt, args);
    va_end(args);
    option_allowed(p->spec, allowed, sizeof allowed);
    snprintf(p->msg, p->msg_bytes, "--%s: %s; allowed: %s", p->spec->name, wrong, allowed);
    return false;
}

/* Takes over `text`. */
static bool value_add(const parser *p, char *text, int64_t i, double r)
{
    option_values *out = p->out;
    if (out->n == OPTION_VALUES_MAX) {
        free(text);
        return reject(p, "more than %d values", OPTION_VALUES_MAX);
    }
    LIST_ADD(out->v, out->n, out->capacity, (option_value){text, i, r});
    for (size_t k = 0; k + 1 < out->n; k++)
        if (strcmp(out->v[k].text, text) == 0)
            return reject(p, "the value %s is given twice", text);
    return true;
}

static bool out_of_range(const option_spec *spec, double x)
{
    return spec->min < spec->max && !(x >= spec->min && x <= spec->max);
}

static bool add_int(const parser *p, int64_t x)
{
    if (out_of_range(p->spec, (double)x))
        return reject(p, "%" PRId64 " is out of range", x);
    return value_add(p, xasprintf("%" PRId64, x), x, (double)x);
}

static bool add_real(const parser *p, double x)
{
    if (out_of_range(p->spec, x))
        return reject(p, "%.9g is out of range", x);
    return value_add(p, xasprintf("%.9g", x), 0, x);
}

/* 1 for no suffix, 0 for a wrong one. */
static int64_t suffix_factor(option_kind kind, const char *suffix)
{
    static const char letters[] = "KMG";
    if (!*suffix)
        return 1;
    const char *letter = strchr(letters, *suffix);
    if (!letter)
        return 0;
    int64_t base = 1024;
    if (suffix[1]) {
        if (kind != OPTION_BYTES || strcmp(suffix + 1, "B") != 0)
            return 0;
        base = 1000;
    }
    int64_t factor = base;
    for (const char *l = letters; l < letter; l++)
        factor *= base;
    return factor;
}

static bool read_int(const parser *p, const char *text, int64_t *x)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool starts_well = isdigit((unsigned char)*text) || (*text == '-' && isdigit((unsigned char)text[1]));
    int64_t factor = starts_well ? suffix_factor(p->spec->kind, end) : 0;
    if (!factor)
        return reject(p, "'%s' is not a whole number", text);
    if (errno == ERANGE || __builtin_mul_overflow((int64_t)value, factor, x))
        return reject(p, "%s is out of range", text);
    return true;
}

static bool read_real(const parser *p, const char *text, double *x)
{
    char *end;
    *x = strtod(text, &end);
    /* strtod also reads blanks, hexadecimal, inf and nan. */
    if (!*text || *end || text[strspn(text, "+-.0123456789eE")] || !isfinite(*x))
        return reject(p, "'%s' is not a number", text);
    return true;
}

static bool add_int_range(const parser *p, const char *lo_text, const char *hi_text, char op, const char *by_text)
{
    int64_t lo, hi, by = 1;
    if (!read_int(p, lo_text, &lo) || !read_int(p, hi_text, &hi) || (by_text && !read_int(p, by_text, &by)))
        return false;
    if (lo > hi)
        return reject(p, "the range %s:%s runs backwards", lo_text, hi_text);
    if (op == '*' && (by < 2 || lo < 1))
        return reject(p, "a range with *%" PRId64 " from %s never ends; the factor is 2 or more and lo 1 or more", by,
                      lo_text);
    if (op == '+' && by < 1)
        return reject(p, "a range with +%" PRId64 " never ends; the step is 1 or more", by);
    for (int64_t x = lo; x <= hi;) {
        if (!add_int(p, x))
            return false;
        if (op == '*' ? __builtin_mul_overflow(x, by, &x) : __builtin_add_overflow(x, by, &x))
            break;
    }
    return true;
}

static bool add_real_range(const parser *p, const char *lo_text, const char *hi_text, char op, const char *by_text)
{
    double lo, hi, by = 1;
    if (!read_real(p, lo_text, &lo) || !read_real(p, hi_text, &hi) || (by_text && !read_real(p, by_text, &by)))
        return false;
    if (lo > hi)
        return reject(p, "the range %s:%s runs backwards", lo_text, hi_text);
    if (op == '*' && (!(by > 1) || !(lo > 0)))
        return reject(p, "a range with *%g from %s never ends; the factor is above 1 and lo above 0", by, lo_text);
    if (op == '+' && !(by > 0))
        return reject(p, "a range with +%g never ends; the step is above 0", by);
    for (int k = 0; k <= OPTION_VALUES_MAX; k++) {
        double x = op == '*' ? lo * pow(by, k) : lo + k * by;
        if (x > hi + 1e-9 * (op == '*' ? x : by)) /* hi counts when only rounding missed it */
            break;
        if (!add_real(p, fmin(x, hi)))
            return false;
    }
    return true;
}

static bool add_number(const parser *p, char *item)
{
    bool real = p->spec->kind == OPTION_REAL;
    char *colon = strchr(item, ':');
    if (!colon) {
        int64_t i;
        double r;
        return real ? read_real(p, item, &r) && add_real(p, r) : read_int(p, item, &i) && add_int(p, i);
    }
    if (!(p->spec->flags & OPTION_LIST))
        return reject(p, "'%s' is a range, and this option takes one value", item);
    *colon = '\0';
    char *hi = colon + 1, *by = strchr(hi, ':'), op = '+';
    if (by) {
        *by++ = '\0';
        op = *by;
        if (op != '*' && op != '+')
            return reject(p, "'%s' is not the step of a range; write +step or *factor", by);
        by++;
    }
    return (real ? add_real_range : add_int_range)(p, item, hi, op, by);
}

static bool add_choice(const parser *p, const char *word)
{
    const bool all = means_every(p->spec, word);
    size_t before = p->out->n, length = strlen(word);
    int64_t place = 0;
    for (const char *choice = p->spec->choices; *choice; place++) {
        size_t choice_length = strcspn(choice, "|");
        if (all || (choice_length == length && strncmp(choice, word, length) == 0))
            if (!value_add(p, xasprintf("%.*s", (int)choice_length, choice), place, 0))
                return false;
        choice += choice_length + (choice[choice_length] == '|');
    }
    return p->out->n > before || reject(p, "'%s' is not one of the choices", word);
}

static bool add_item(const parser *p, char *item)
{
    if (is_number(p->spec))
        return add_number(p, item);
    if (p->spec->kind == OPTION_CHOICE)
        return add_choice(p, item);
    if (p->spec->kind == OPTION_FLAG) {
        if (strcmp(item, "0") != 0 && strcmp(item, "1") != 0)
            return reject(p, "'%s' is neither 0 nor 1", item);
        return value_add(p, xstrdup(item), *item - '0', *item - '0');
    }
    return value_add(p, xstrdup(item), 0, 0);
}

bool option_values_parse(const option_spec *spec, const char *text, option_values *out, char *msg, size_t msg_bytes)
{
    const parser p = {spec, out, msg, msg_bytes};
    *out = (option_values){0};
    char *copy = xstrdup(text), *rest = copy, *item;
    bool ok = true;
    if (!(spec->flags & OPTION_LIST))
        ok = *text || spec->kind == OPTION_TEXT ? add_item(&p, copy) : reject(&p, "an empty value");
    else
        while (ok && (item = strsep(&rest, ",")))
            ok = *item ? add_item(&p, item) : reject(&p, "an empty value in '%s'", text);
    free(copy);
    if (!ok)
        option_values_free(out);
    return ok;
}

void option_values_free(option_values *values)
{
    for (size_t i = 0; i < values->n; i++)
        free(values->v[i].text);
    free(values->v);
    *values = (option_values){0};
}
