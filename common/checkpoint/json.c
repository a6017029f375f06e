/* SPDX-License-Identifier: MIT */
/* Recursive descent over bytes with an end; see json.h. */
#include "common/checkpoint/json.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

enum { LEVELS = 16, MEMBERS = 4096 }; /* a name is compared with all those before it */

typedef struct reader {
    const char *start, *at, *end;
    const char *problem;
} reader;

static bool fail(reader *r, const char *problem)
{
    if (!r->problem)
        r->problem = problem;
    return false;
}

static void blanks(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

static bool take(reader *r, char c)
{
    blanks(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* \u of a byte of ASCII is all that we write. */
static bool escape(reader *r, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return fail(r, "a string that does not end");
    const char c = *r->at++, *place = c ? strchr(from, c) : NULL;
    if (place) {
        *out = to[place - from];
        return true;
    }
    unsigned value = 0;
    if (c != 'u' || r->end - r->at < 4)
        return fail(r, "an escape that is not known");
    for (int i = 0; i < 4; i++) {
        const char digit = *r->at++;
        const char *digits = "0123456789abcdef", *found = digit ? strchr(digits, digit | 32) : NULL;
        if (!found)
            return fail(r, "an escape that is not known");
        value = value * 16 + (unsigned)(found - digits);
    }
    *out = (char)value;
    return (value > 0 && value < 128) || fail(r, "an escape beyond ASCII");
}

/* Caller frees; NULL after a problem. */
static char *string(reader *r)
{
    if (!take(r, '"')) {
        fail(r, "no string where one is due");
        return NULL;
    }
    const char *close = r->at;
    while (close < r->end && *close != '"')
        close += *close == '\\' && r->end - close > 1 ? 2 : 1;
    char *text = xmalloc((size_t)(close - r->at) + 1), *out = text;
    while (r->at < r->end && *r->at != '"' && !r->problem) {
        const char c = *r->at++;
        if (c == '\\')
            escape(r, out);
        else if ((unsigned char)c < 32)
            fail(r, "a control character in a string");
        else
            *out = c;
        out++;
    }
    *out = '\0';
    if (!r->problem && take(r, '"'))
        return text;
    fail(r, "a string that does not end");
    free(text);
    return NULL;
}

static bool number(reader *r, int64_t *out)
{
    const bool negative = take(r, '-');
    uint64_t x = 0;
    const char *first = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (x > (INT64_MAX - 9) / 10)
            return fail(r, "a number that is too large");
        x = x * 10 + (uint64_t)(*r->at - '0');
    }
    *out = negative ? -(int64_t)x : (int64_t)x;
    return r->at > first || fail(r, "no value where one is due");
}

static bool word(reader *r, const char *text)
{
    const size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

static json *value(reader *r, int level);

static void members(reader *r, json *j, char close, int level)
{
    json **last = &j->first;
    while (!r->problem && !(j->count == 0 && take(r, close))) {
        char *name = NULL;
        if (j->kind == JSON_OBJECT) {
            if (j->count == MEMBERS)
                fail(r, "an object of more than 4096 members");
            name = string(r);
            for (const json *m = j->first; m && name; m = m->next)
                if (strcmp(m->name, name) == 0)
                    fail(r, "a name that stands twice");
            if (!take(r, ':'))
                fail(r, "a name without a value");
        }
        json *m = r->problem ? NULL : value(r, level + 1);
        if (!m) {
            free(name);
            return;
        }
        m->name = name;
        *last = m;
        last = &m->next;
        j->count++;
        if (take(r, close))
            return;
        if (!take(r, ','))
            fail(r, "no comma between two values");
    }
}

static json *value(reader *r, int level)
{
    json *j = xcalloc(1, sizeof *j);
    blanks(r);
    const char c = r->at < r->end ? *r->at : '\0';
    if (level > LEVELS) {
        fail(r, "too many levels");
    } else if (c == '{' || c == '[') {
        r->at++;
        j->kind = c == '{' ? JSON_OBJECT : JSON_ARRAY;
        members(r, j, c == '{' ? '}' : ']', level);
    } else if (c == '"') {
        j->kind = JSON_STRING;
        j->text = string(r);
    } else if (word(r, "true") || word(r, "false")) {
        j->kind = JSON_BOOL;
        j->value = c == 't';
    } else {
        j->kind = JSON_INT;
        number(r, &j->value);
    }
    if (!r->problem)
        return j;
    json_free(j);
    return NULL;
}

json *json_parse(const char *text, size_t bytes, char *why, size_t why_bytes)
{
    reader r = {text, text, text + bytes, NULL};
    json *j = value(&r, 0);
    blanks(&r);
    if (j && r.at < r.end)
        fail(&r, "more behind its end");
    if (!r.problem)
        return j;
    snprintf(why, why_bytes, "it has %s at byte %td", r.problem, r.at - r.start);
    json_free(j);
    return NULL;
}

void json_free(json *j)
{
    while (j) {
        json *next = j->next;
        json_free(j->first);
        free(j->name);
        free(j->text);
        free(j);
        j = next;
    }
}

const json *json_find(const json *object, const char *name, json_kind kind)
{
    for (const json *m = object && object->kind == JSON_OBJECT ? object->first : NULL; m; m = m->next)
        if (strcmp(m->name, name) == 0)
            return m->kind == kind ? m : NULL;
    return NULL;
}
