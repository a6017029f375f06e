/* SPDX-License-Identifier: MIT */
/* Comparing words, and finding them. */
#pragma once

#include <stdbool.h>
#include <string.h>

static inline bool text_is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static inline bool text_starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static inline bool text_ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

/* A file of the tree as part of the program, so that it finds the text wherever it lies. */
#define TEXT_OF_FILE(symbol, path)                                                                                     \
    extern const char symbol[] __attribute__((visibility("hidden")));                                                  \
    __asm__(".pushsection .rodata\n" #symbol ":\n.incbin \"" path "\"\n.byte 0\n.popsection\n")

/* Whether a list parted by blanks has the word. */
static inline bool text_has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}
