/* SPDX-License-Identifier: MIT */
/* The sweep. A combination is a mixed-radix number: each digit picks a value of one parameter that means something
 * to the variant. The last parameter changes fastest, except that those with OPTION_ADJACENT change faster still.
 * The variant is the fastest digit of all, or the slowest one where bench_info.applies is set. */
#include "common/core/error.h"
#include "common/options/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bench_case {
    const options *o;
    const option_value **picked; /* [params_n] */
    const char *variant;
    char *key, *name;
    char **settled; /* [params_n] what a row has in place of "not set"; NULL: as picked */
};

bool options_param_applies(const options *o, size_t param, const char *variant)
{
    return !o->bench->applies || o->bench->applies(o->params[param]->spec.name, variant);
}

/* Combinations of the parameters that mean something to a variant. */
static double combinations(const options *o, const char *variant)
{
    double n = 1;
    for (size_t i = 0; i < o->params_n; i++)
        n *= options_param_applies(o, i, variant) ? (double)o->params[i]->values.n : 1;
    return n;
}

static size_t variants_count(const options *o)
{
    return o->variant ? o->variant->values.n : 1;
}

static const char *variant_at(const options *o, size_t i)
{
    return o->variant ? o->variant->values.v[i].text : "";
}

double cases_product(const options *o)
{
    double n = 0;
    for (size_t i = 0; i < variants_count(o); i++)
        n += combinations(o, variant_at(o, i));
    return n;
}

size_t cases_count(const options *o)
{
    return (size_t)cases_product(o); /* at most OPTION_CASES_MAX */
}

/* The variant of case *index, and in *index which of its combinations it is. Variants that have parameters of their own
 * are not compared side by side: each one's cases stay together. */
static const char *take_variant(const options *o, size_t *index)
{
    size_t variants = variants_count(o);
    if (!o->bench->applies) {
        size_t digit = *index % variants;
        *index /= variants;
        return variant_at(o, digit);
    }
    for (size_t i = 0; i < variants; i++) {
        size_t n = (size_t)combinations(o, variant_at(o, i));
        if (*index < n)
            return variant_at(o, i);
        *index -= n;
    }
    die(EXIT_CODE_FAILURE, "bug: no case %zu", *index);
}

bool options_param_is_default(const options *o, size_t i, const char *value)
{
    const option_values *defaults = &o->params[i]->defaults;
    return defaults->n == 1 && strcmp(defaults->v[0].text, value) == 0;
}

bool options_param_is_unset(const options *o, size_t i, const char *value)
{
    const char *unset = o->params[i]->spec.unset;
    return unset && strcspn(unset, ":") == strlen(value) && strncmp(unset, value, strlen(value)) == 0;
}

/* "a=1 b=2 variant=x": of all parameters that mean something to the variant, or without those that go without saying. */
static char *joined(const options *o, const char *const *values, const char *variant, bool all)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    const char *blank = "";
    for (size_t i = 0; i < o->params_n; i++)
        if (options_param_applies(o, i, variant) && (all || !options_param_is_default(o, i, values[i]))) {
            fprintf(out, "%s%s=%s", blank, options_param_name(o, i), values[i]);
            blank = " ";
        }
    if (all || *variant)
        fprintf(out, "%svariant=%s", blank, variant);
    else if (!*blank)
        fputs("the default case", out);
    fclose(out);
    return text;
}

char *case_key_of(const options *o, const char *const *values, const char *variant)
{
    return joined(o, values, variant, true);
}

/* Once the other values are picked, on which it may depend. */
static void settle(bench_case *c)
{
    c->settled = xcalloc(c->o->params_n, sizeof *c->settled);
    for (size_t i = 0; i < c->o->params_n; i++) {
        const option_spec *s = &c->o->params[i]->spec;
        if (s->settled && options_param_is_unset(c->o, i, c->picked[i]->text))
            c->settled[i] = xasprintf("%" PRId64, s->settled(c, s->name));
    }
}

bench_case *case_at(const options *o, size_t index)
{
    static const option_value nothing = {.text = "", .r = NAN};
    if (index >= cases_count(o))
        die(EXIT_CODE_FAILURE, "bug: case %zu of %zu", index, cases_count(o));
    bench_case *c = xcalloc(1, sizeof *c);
    c->o = o;
    c->picked = xcalloc(o->params_n, sizeof *c->picked);
    c->variant = take_variant(o, &index);
    OWNED const char **texts = xcalloc(o->params_n, sizeof *texts);
    for (int adjacent = 1; adjacent >= 0; adjacent--)
        for (size_t i = o->params_n; i-- > 0;) {
            if (((o->params[i]->spec.flags & OPTION_ADJACENT) != 0) != adjacent)
                continue;
            const option_values *values = &o->params[i]->values;
            bool means = options_param_applies(o, i, c->variant);
            c->picked[i] = means ? &values->v[index % values->n] : &nothing;
            texts[i] = c->picked[i]->text;
            index /= means ? values->n : 1;
        }
    c->key = joined(o, texts, c->variant, true);
    c->name = joined(o, texts, c->variant, false);
    settle(c);
    return c;
}

void case_free(bench_case *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->o->params_n; i++)
        free(c->settled[i]);
    free(c->settled);
    free(c->picked);
    free(c->key);
    free(c->name);
    free(c);
}

static const option_value *case_value(const bench_case *c, const char *name)
{
    const option_entry *e = option_need(c->o, name);
    for (size_t i = 0; i < c->o->params_n; i++)
        if (c->o->params[i] == e)
            return c->picked[i];
    if (e == c->o->variant)
        die(EXIT_CODE_FAILURE, "bug: the variant of a case is read by case_variant");
    return &e->values.v[0];
}

bool case_has(const bench_case *c, const char *name)
{
    return options_have(c->o, name);
}

int64_t case_int(const bench_case *c, const char *name)
{
    return case_value(c, name)->i;
}

double case_real(const bench_case *c, const char *name)
{
    return case_value(c, name)->r;
}

const char *case_text(const bench_case *c, const char *name)
{
    return case_value(c, name)->text;
}

const char *case_variant(const bench_case *c)
{
    return c->variant;
}

const char *case_key(const bench_case *c)
{
    return c->key;
}

const char *case_name(const bench_case *c)
{
    return c->name;
}

size_t options_param_count(const options *o)
{
    return o->params_n;
}

bool options_param_is_text(const options *o, size_t i)
{
    return o->params[i]->spec.kind == OPTION_CHOICE || o->params[i]->spec.kind == OPTION_TEXT;
}

const char *options_param_name(const options *o, size_t i)
{
    return o->columns[i];
}

size_t options_param_values(const options *o, size_t i)
{
    return o->params[i]->values.n;
}

const char *options_param_value(const options *o, size_t i, size_t value)
{
    return o->params[i]->values.v[value].text;
}

size_t options_variant_count(const options *o)
{
    return o->variant ? o->variant->values.n : 0;
}

const char *options_variant(const options *o, size_t i)
{
    return o->variant->values.v[i].text;
}

const char *case_param(const bench_case *c, size_t i)
{
    return c->picked[i]->text;
}

const char *case_cell(const bench_case *c, size_t i)
{
    return c->settled[i] ? c->settled[i] : c->picked[i]->text;
}
