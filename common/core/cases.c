/* The sweep: a place in it is a mixed-radix number whose last digit is the variant and whose other digits pick a value
 * of each parameter, the last parameter fastest. With bench_info.applies a place is a case only when every parameter
 * that means nothing to its variant is at its first value. */
#include "common/core/error.h"
#include "common/core/options_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bench_case {
    const options *o;
    const option_value **picked; /* [params_n] */
    const char *variant;
    char *key;
};

static size_t places_count(const options *o)
{
    size_t n = o->variant ? o->variant->values.n : 1;
    for (size_t i = 0; i < o->params_n; i++)
        n *= o->params[i]->values.n;
    return n;
}

static bool applies(const options *o, size_t param, const char *variant)
{
    return !o->bench->applies || o->bench->applies(o->params[param]->spec.name, variant);
}

static const char *take_variant(const options *o, size_t *place)
{
    if (!o->variant)
        return "";
    size_t digit = *place % o->variant->values.n;
    *place /= o->variant->values.n;
    return o->variant->values.v[digit].text;
}

static bool is_case(const options *o, size_t place)
{
    const char *variant = take_variant(o, &place);
    for (size_t i = o->params_n; i-- > 0; place /= o->params[i]->values.n)
        if (place % o->params[i]->values.n != 0 && !applies(o, i, variant))
            return false;
    return true;
}

size_t cases_count(const options *o)
{
    size_t places = places_count(o), n = 0;
    if (!o->bench->applies)
        return places;
    for (size_t place = 0; place < places; place++)
        n += is_case(o, place);
    return n;
}

/* Variants that have parameters of their own are not compared side by side: each one's cases stay together. */
static size_t place_of(const options *o, size_t index)
{
    size_t variants = o->variant ? o->variant->values.n : 1, places = places_count(o);
    if (!o->bench->applies)
        return index;
    for (size_t variant = 0; variant < variants; variant++)
        for (size_t place = variant; place < places; place += variants)
            if (is_case(o, place) && index-- == 0)
                return place;
    die(EXIT_CODE_FAILURE, "bug: no case %zu", index);
}

char *case_key_of(const options *o, const char *const *values, const char *variant)
{
    char *key = NULL;
    size_t bytes;
    FILE *out = open_memstream(&key, &bytes);
    if (!out)
        die(EXIT_CODE_FAILURE, "no host memory left for a case");
    for (size_t i = 0; i < o->params_n; i++)
        if (applies(o, i, variant))
            fprintf(out, "%s=%s ", options_param_name(o, i), values[i]);
    fprintf(out, "variant=%s", variant);
    fclose(out);
    return key;
}

bench_case *case_at(const options *o, size_t index)
{
    static const option_value nothing = {.text = "", .r = NAN};
    if (index >= cases_count(o))
        die(EXIT_CODE_FAILURE, "bug: case %zu of %zu", index, cases_count(o));
    size_t place = place_of(o, index);
    bench_case *c = xcalloc(1, sizeof *c);
    c->o = o;
    c->picked = xcalloc(o->params_n, sizeof *c->picked);
    c->variant = take_variant(o, &place);
    const char **texts = xcalloc(o->params_n, sizeof *texts);
    for (size_t i = o->params_n; i-- > 0;) {
        const option_values *values = &o->params[i]->values;
        c->picked[i] = applies(o, i, c->variant) ? &values->v[place % values->n] : &nothing;
        texts[i] = c->picked[i]->text;
        place /= values->n;
    }
    c->key = case_key_of(o, texts, c->variant);
    free(texts);
    return c;
}

void case_free(bench_case *c)
{
    if (!c)
        return;
    free(c->picked);
    free(c->key);
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

size_t options_param_count(const options *o)
{
    return o->params_n;
}

const char *options_param_name(const options *o, size_t i)
{
    return o->columns[i];
}

const char *case_param(const bench_case *c, size_t i)
{
    return c->picked[i]->text;
}
