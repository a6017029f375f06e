/* SPDX-License-Identifier: MIT */
/* Reads parsed options by name. Asking for one that was not declared is a bug and ends the program. */
#include "common/core/error.h"
#include "common/options/internal.h"

#include <stdlib.h>
#include <string.h>

bool option_name_equal(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '_' ? '-' : *a) != (*b == '_' ? '-' : *b))
            return false;
    return *a == *b;
}

const option_entry *option_find(const options *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++)
        if (option_name_equal(o->entries[i].spec.name, name))
            return &o->entries[i];
    return NULL;
}

bool options_have(const options *o, const char *name)
{
    return option_find(o, name) != NULL;
}

const option_entry *option_need(const options *o, const char *name)
{
    const option_entry *e = option_find(o, name);
    if (!e)
        die(EXIT_CODE_FAILURE, "bug: %s asks for an option '%s' that it does not declare", o->bench->name, name);
    return e;
}

static const option_value *value_at(const options *o, const char *name, size_t i)
{
    const option_entry *e = option_need(o, name);
    if (i >= e->values.n)
        die(EXIT_CODE_FAILURE, "bug: value %zu of --%s, which has %zu", i, name, e->values.n);
    return &e->values.v[i];
}

static const option_value *single(const options *o, const char *name)
{
    if (option_need(o, name)->spec.flags & OPTION_LIST)
        die(EXIT_CODE_FAILURE, "bug: --%s is a list and was read as one value", name);
    return value_at(o, name, 0);
}

const bench_info *options_bench(const options *o)
{
    return o->bench;
}

int64_t option_int(const options *o, const char *name)
{
    return single(o, name)->i;
}

double option_real(const options *o, const char *name)
{
    return single(o, name)->r;
}

const char *option_text(const options *o, const char *name)
{
    return single(o, name)->text;
}

bool option_flag(const options *o, const char *name)
{
    return single(o, name)->i != 0;
}

int option_choice(const options *o, const char *name)
{
    return (int)single(o, name)->i;
}

bool option_given(const options *o, const char *name)
{
    return option_need(o, name)->given;
}

size_t option_count(const options *o, const char *name)
{
    return option_need(o, name)->values.n;
}

int64_t option_int_at(const options *o, const char *name, size_t i)
{
    return value_at(o, name, i)->i;
}

int64_t option_int_most(const options *o, const char *name)
{
    int64_t most = option_int_at(o, name, 0);
    for (size_t i = 1; i < option_count(o, name); i++)
        most = option_int_at(o, name, i) > most ? option_int_at(o, name, i) : most;
    return most;
}

const char *option_text_at(const options *o, const char *name, size_t i)
{
    return value_at(o, name, i)->text;
}

char *options_describe(const options *o)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    for (size_t i = 0; i < o->n; i++) {
        const option_entry *e = &o->entries[i];
        fprintf(out, "%s%s=", i ? " " : "", e->spec.name);
        for (size_t k = 0; k < e->values.n; k++)
            fprintf(out, "%s%s", k ? "," : "", e->values.v[k].text);
    }
    fclose(out);
    return text;
}

bool options_same_settings(const options *o, const char *described)
{
    OWNED char *all = xasprintf(" %s ", described);
    for (size_t i = 0; i < o->n; i++) {
        const option_entry *e = &o->entries[i];
        OWNED char *one =
            e->spec.flags & OPTION_SETTING ? xasprintf(" %s=%s ", e->spec.name, e->values.v[0].text) : NULL;
        if (one && !strstr(all, one))
            return false;
    }
    return true;
}

const char *options_command_line(const options *o)
{
    return o->command_line;
}

bool row_layout_has(const row_layout *l, const bench_info *bench, const char *column)
{
    const char *const *timed = l->timed;
    while (*timed && strcmp(*timed, column) != 0)
        timed++;
    return !bench->untimed || !*timed;
}

bool options_untimed(const options *o, char *msg, size_t msg_bytes)
{
    if (strcmp(option_text(o, "l2"), "cold") == 0 || strcmp(option_text(o, "timer"), "auto") != 0) {
        snprintf(msg, msg_bytes, "--l2 and --timer have no effect here: nothing is timed");
        return false;
    }
    return true;
}
