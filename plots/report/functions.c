/* SPDX-License-Identifier: MIT */
/* What SQL of the report has beside SQLite's own functions. A number that is NULL gives NULL, so that a text with it can be left out.
 *   show(x)           a real number with three digits, anything else as it is
 *   n(x) n4(x)        three digits, four digits
 *   bytes(x)          in MiB or GiB;  signed_pct(x)  "+1.20 %";  gib() mib()  their sizes
 *   pm(mean, std)     "1.23 ± 0.04";  span(low, high)  "1.10 to 1.37";  range(x, low, high)  "1.23 [1.20, 1.25]"
 *   counted(n, word)  "1 case", "2 cases";  code(x)  in the type of code;  link(text, address)
 *   only(condition)   '' or NULL: leaves out an optional part;  beside(a, b)  equal, or one is not known
 *   case_name(bench, variant, options)  "flash, S 65536, D 128": no default values;  shape(bench, options)  what all rows share
 *   asked(name, size, d_model, d_ff, layers, heads, heads_kv, vocab)  the dimension `name`; 0 when the size has it by itself
 *   attention_bound(dtype, backward)  the check's bound;  median(x), an aggregate;  size_place(size);  peak_tflops(gpu, dtype)  peak_gb_s(gpu)  by the data sheet */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/core/text.h"
#include "common/formulas/model.h"
#include "common/model/config.h"
#include "plots/report/db.h"
#include "plots/report/document.h"
#include "plots/report/template.h"

/* A function of SQL: `to` takes its answer, and v has its n arguments. */
#define UNUSED __attribute__((unused))
#define SQL(name) static void name(sqlite3_context *to, UNUSED int n, UNUSED sqlite3_value **v)

static const double MIB = 1048576.0, GIB = 1073741824.0;

static bool is_null(sqlite3_value *v)
{
    return sqlite3_value_type(v) == SQLITE_NULL;
}

static const char *text_of(sqlite3_value *v)
{
    const char *text = (const char *)sqlite3_value_text(v);
    return text ? text : "";
}

static void give(sqlite3_context *to, char *text)
{
    sqlite3_result_text(to, text, -1, free);
}

/* ---- numbers ---- */

char *number_text(double x)
{
    static const double from[] = {99.95, 9.995, 0.9995, 0.09995, 0.009995};
    const double size = fabs(x);
    int digits = 0;
    if (size == 0)
        return xstrdup("0");
    if (size < 9.995e-4)
        return xasprintf("%.1e", x);
    while (digits < 5 && size < from[digits])
        digits++;
    return xasprintf("%.*f", digits, x);
}

static char *digits4(double x)
{
    const double size = fabs(x);
    return xasprintf("%.*f", size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3, x);
}

SQL(sql_n)
{
    if (!is_null(v[0]))
        give(to, number_text(sqlite3_value_double(v[0])));
}

SQL(sql_n4)
{
    if (!is_null(v[0]))
        give(to, digits4(sqlite3_value_double(v[0])));
}

SQL(sql_show)
{
    if (sqlite3_value_type(v[0]) == SQLITE_FLOAT)
        sql_n(to, n, v);
    else
        sqlite3_result_value(to, v[0]);
}

SQL(sql_bytes)
{
    if (is_null(v[0]))
        return;
    const double x = sqlite3_value_double(v[0]);
    const bool small = x < 0.1 * GIB;
    OWNED char *number = number_text(x / (small ? MIB : GIB));
    give(to, xasprintf("%s %s", number, small ? "MiB" : "GiB"));
}

SQL(sql_signed_pct)
{
    if (is_null(v[0]))
        return;
    OWNED char *number = number_text(sqlite3_value_double(v[0]));
    give(to, xasprintf("%s%s %%", *number == '-' ? "" : "+", number));
}

SQL(sql_gib)
{
    sqlite3_result_double(to, GIB);
}

SQL(sql_mib)
{
    sqlite3_result_double(to, MIB);
}

SQL(sql_pm)
{
    if (is_null(v[0]))
        return;
    OWNED char *mean = number_text(sqlite3_value_double(v[0]));
    OWNED char *deviation = is_null(v[1]) ? xstrdup("-") : number_text(sqlite3_value_double(v[1]));
    give(to, xasprintf("%s ± %s", mean, deviation));
}

SQL(sql_span)
{
    if (is_null(v[0]) || is_null(v[1]))
        return;
    OWNED char *low = number_text(sqlite3_value_double(v[0])), *high = number_text(sqlite3_value_double(v[1]));
    give(to, strcmp(low, high) == 0 ? xstrdup(low) : xasprintf("%s to %s", low, high));
}

static void range(sqlite3_context *to, sqlite3_value **v, char *(*digits)(double))
{
    if (is_null(v[0]))
        return;
    OWNED char *x = digits(sqlite3_value_double(v[0]));
    OWNED char *low = is_null(v[1]) ? NULL : digits(sqlite3_value_double(v[1])),
               *high = is_null(v[2]) ? NULL : digits(sqlite3_value_double(v[2]));
    give(to, low && high ? xasprintf("%s [%s, %s]", x, low, high) : xstrdup(x));
}

SQL(sql_range)
{
    range(to, v, number_text);
}

SQL(sql_range4)
{
    range(to, v, digits4);
}

SQL(sql_counted)
{
    if (!is_null(v[0]))
        give(to, xasprintf("%s %s%s", text_of(v[0]), text_of(v[1]), sqlite3_value_int64(v[0]) == 1 ? "" : "s"));
}

SQL(sql_sqrt)
{
    if (!is_null(v[0]) && sqlite3_value_double(v[0]) >= 0)
        sqlite3_result_double(to, sqrt(sqlite3_value_double(v[0])));
}

/* ---- texts ---- */

SQL(sql_code)
{
    if (!is_null(v[0]))
        give(to, xasprintf("%c%s%c", DOC_CODE, text_of(v[0]), DOC_CODE_END));
}

SQL(sql_link)
{
    if (!is_null(v[0]) && !is_null(v[1]))
        give(to, xasprintf("%c%s%c%s%c", DOC_LINK, text_of(v[0]), DOC_LINK_ADDRESS, text_of(v[1]), DOC_LINK_END));
}

SQL(sql_only)
{
    if (sqlite3_value_int(v[0]))
        sqlite3_result_text(to, "", 0, SQLITE_STATIC);
}

SQL(sql_beside)
{
    const char *a = text_of(v[0]), *b = text_of(v[1]);
    sqlite3_result_int(to, !*a || !*b || strcmp(a, b) == 0);
}

SQL(sql_size_place)
{
    int i = 0;
    while (model_sizes[i].name && strcmp(model_sizes[i].name, text_of(v[0])) != 0)
        i++;
    sqlite3_result_int(to, i);
}

/* A row without a size, or with a dimension that is not known, gives the dimension as it is. */
SQL(sql_asked)
{
    enum { NAME, SIZE, FIRST };
    static const char *const names[] = {"d_model", "d_ff", "layers", "heads", "heads_kv", "vocab"};
    const model_config *size = model_size_find(text_of(v[SIZE]));
    model_config c = {0};
    int *const fields[] = {&c.d_model, &c.d_ff, &c.layers, &c.heads, &c.heads_kv, &c.vocab};
    int asked = FIRST;
    bool known = size;
    for (int i = FIRST; i < n; i++) {
        *fields[i - FIRST] = sqlite3_value_int(v[i]);
        const bool of_heads = fields[i - FIRST] == &c.heads || fields[i - FIRST] == &c.heads_kv;
        known = known && (*fields[i - FIRST] > 0 || (of_heads && !size->heads));
        asked = strcmp(names[i - FIRST], text_of(v[NAME])) == 0 ? i : asked;
    }
    const int *field = fields[asked - FIRST];
    if (known)
        c = model_config_departures(size, &c);
    if (known)
        sqlite3_result_int(to, *field);
    else
        sqlite3_result_value(to, v[asked]);
}

static void give_known(sqlite3_context *to, double x)
{
    if (isfinite(x))
        sqlite3_result_double(to, x);
}

SQL(sql_peak_tflops)
{
    give_known(to, peak_tflops(text_of(v[0]), text_of(v[1])));
}

SQL(sql_peak_gb_s)
{
    give_known(to, peak_gb_s(text_of(v[0])));
}

SQL(sql_attention_bound)
{
    sqlite3_result_double(to, check_attention_bound(text_of(v[0]), sqlite3_value_int(v[1])).rel_l2);
}

/* ---- parameters ---- */

enum { MOST = 64 };
typedef struct parameters {
    int n;
    char *name[MOST], *value[MOST]; /* value NULL: it differs among rows, or is not given */
} parameters;

/* A number, or a text between quotes, from *at on. Caller frees; NULL for null. */
static char *json_value(const char **at)
{
    char *value = xmalloc(strlen(*at) + 1), *to = value;
    const bool quoted = **at == '"';
    *at += quoted;
    while (**at && (quoted ? **at != '"' : **at != ',' && **at != '}')) {
        *at += quoted && **at == '\\';
        *to++ = *(*at)++;
    }
    *at += quoted;
    *to = '\0';
    if (!quoted && to - value > 2 && strcmp(to - 2, ".0") == 0)
        to[-2] = '\0'; /* a real number that is whole */
    if (!quoted && strcmp(value, "null") == 0) {
        free(value);
        return NULL;
    }
    return value;
}

/* Reads what json_object wrote: {"name":value,...}. */
static parameters parameters_of(const char *json)
{
    parameters p = {0};
    for (const char *at = *json ? json + 1 : json; *at == '"' && p.n < MOST; at += *at == ',') {
        p.name[p.n] = json_value(&at);
        at++;
        p.value[p.n++] = json_value(&at);
    }
    return p;
}

static void parameters_free(parameters *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->name[i]);
        free(p->value[i]);
    }
    p->n = 0;
}

static bool is_same(const char *a, const char *b)
{
    char *a_end, *b_end;
    const double x = strtod(a, &a_end), y = strtod(b, &b_end);
    return strcmp(a, b) == 0 || (*a && *b && !*a_end && !*b_end && x == y);
}

/* Whether a value goes without saying: it is the option's default. What names a case is always said, and so is an option whose
 * default is a sweep. */
static bool is_plain(const char *bench, const char *name, const char *value)
{
    static size_t first, end; /* of the bench asked for last */
    size_t n;
    const known_column *c = known_columns(&n);
    if (text_has_word("size seq batch ranks head_dim dtype precision", name))
        return false;
    if (first == end || strcmp(c[first].table, bench) != 0) {
        for (first = 0; first < n && strcmp(c[first].table, bench) != 0; first++)
            continue;
        for (end = first; end < n && strcmp(c[end].table, bench) == 0; end++)
            continue;
    }
    for (size_t k = first; k < end; k++)
        if (c[k].place == 'p' && strcmp(c[k].name, name) == 0)
            return is_same(c[k].plain, value);
    return false;
}

static void add_parameter(FILE *out, const char *separator, const char *name, const char *value)
{
    const bool zero = strcmp(value, "0") == 0;
    if (strcmp(name, "causal") == 0 || strcmp(name, "deterministic") == 0)
        fprintf(out, "%s%s%s", separator, zero ? "not " : "", name);
    else if (strcmp(name, "heads") == 0 || strcmp(name, "ranks") == 0)
        fprintf(out, "%s%s %.*s", separator, value, (int)strlen(name) - (strcmp(value, "1") == 0), name);
    else if (text_has_word("size precision dtype mode", name))
        fprintf(out, "%s%s", separator, value);
    else
        fprintf(out, "%s%s %s", separator,
                strcmp(name, "seq") == 0        ? "S"
                : strcmp(name, "head_dim") == 0 ? "D"
                                                : name,
                value);
}

static char *named(const char *bench, const char *first, const parameters *p)
{
    char *text;
    size_t length;
    FILE *out = text_stream(&text, &length);
    fputs(first, out);
    bool any = *first;
    for (int i = 0; i < p->n; i++)
        if (p->value[i] && !is_plain(bench, p->name[i], p->value[i])) {
            add_parameter(out, any ? ", " : "", p->name[i], p->value[i]);
            any = true;
        }
    fclose(out);
    return text;
}

SQL(sql_case_name)
{
    parameters p = parameters_of(text_of(v[2]));
    give(to, named(text_of(v[0]), text_of(v[1]), &p));
    parameters_free(&p);
}

typedef struct shared {
    bool begun;
    char *bench;
    parameters p;
} shared;

SQL(shape_step)
{
    shared *s = sqlite3_aggregate_context(to, sizeof *s);
    if (!s || is_null(v[1]))
        return;
    parameters p = parameters_of(text_of(v[1]));
    if (!s->begun) {
        *s = (shared){true, xstrdup(text_of(v[0])), p};
        return;
    }
    for (int i = 0; i < s->p.n; i++)
        if (i >= p.n || (s->p.value[i] && (!p.value[i] || strcmp(p.value[i], s->p.value[i]) != 0))) {
            free(s->p.value[i]);
            s->p.value[i] = NULL;
        }
    parameters_free(&p);
}

static void shape_end(sqlite3_context *to)
{
    shared *s = sqlite3_aggregate_context(to, 0);
    if (!s || !s->begun)
        return;
    give(to, named(s->bench, "", &s->p));
    free(s->bench);
    parameters_free(&s->p);
}

/* ---- median ---- */

SQL(median_step)
{
    samples *s = sqlite3_aggregate_context(to, sizeof *s);
    if (s && !is_null(v[0]))
        samples_add(s, sqlite3_value_double(v[0]));
}

static void median_end(sqlite3_context *to)
{
    samples *s = sqlite3_aggregate_context(to, 0);
    if (!s || !s->n)
        return;
    sqlite3_result_double(to, stats_of(s).median);
    samples_free(s);
}

void db_functions(sqlite3 *db)
{
    static const struct {
        const char *name;
        int arguments;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
    } all[] = {{"show", 1, sql_show},
               {"n", 1, sql_n},
               {"n4", 1, sql_n4},
               {"bytes", 1, sql_bytes},
               {"signed_pct", 1, sql_signed_pct},
               {"gib", 0, sql_gib},
               {"mib", 0, sql_mib},
               {"pm", 2, sql_pm},
               {"span", 2, sql_span},
               {"range", 3, sql_range},
               {"range4", 3, sql_range4},
               {"counted", 2, sql_counted},
               {"sqrt", 1, sql_sqrt},
               {"code", 1, sql_code},
               {"link", 2, sql_link},
               {"only", 1, sql_only},
               {"beside", 2, sql_beside},
               {"size_place", 1, sql_size_place},
               {"asked", 8, sql_asked},
               {"peak_tflops", 2, sql_peak_tflops},
               {"peak_gb_s", 1, sql_peak_gb_s},
               {"attention_bound", 2, sql_attention_bound},
               {"case_name", 3, sql_case_name}};
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sqlite3_create_function(db, all[i].name, all[i].arguments, flags, NULL, all[i].run, NULL, NULL);
    sqlite3_create_function(db, "shape", 2, flags, NULL, NULL, shape_step, shape_end);
    sqlite3_create_function(db, "median", 1, flags, NULL, NULL, median_step, median_end);
}
