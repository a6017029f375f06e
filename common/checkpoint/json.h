/* SPDX-License-Identifier: MIT */
/* A reader of the JSON that manifests are made of: objects, arrays, strings, whole numbers of 64 bits, true and false.
 * It trusts nothing: whatever the bytes, it gives a tree or a sentence with the place. Refused are other numbers,
 * duplicate names, trailing bytes, more than 16 levels, and objects of more than 4096 members. Written here because that is all
 * that is needed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum json_kind { JSON_OBJECT, JSON_ARRAY, JSON_STRING, JSON_INT, JSON_BOOL } json_kind;

typedef struct json {
    json_kind kind;
    char *name;    /* in an object, else NULL */
    char *text;    /* of a string: no zero byte in it */
    int64_t value; /* of a number or bool */
    struct json *first, *next;
    int count; /* of members or elements */
} json;

json *json_parse(const char *text, size_t bytes, char *why, size_t why_bytes); /* NULL with a sentence */
void json_free(json *j);                                                       /* NULL is fine */
const json *json_find(const json *object, const char *name, json_kind kind);   /* NULL: not there, or of another kind */
