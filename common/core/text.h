/* SPDX-License-Identifier: MIT */
/* Comparing words, and finding them. */
#pragma once

#include <stdbool.h>
#include <string.h>

static inline bool text_is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Whether a list parted by blanks has the word. */
static inline bool text_has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}
