/* SPDX-License-Identifier: MIT */
/* Files of tokens that others have made: llm.c's .bin (a header of 256 int32, then uint16), nanoGPT's .bin
 * (uint16 and nothing else), and .npy with one axis of little-endian 16- or 32-bit integers. What a header says is held
 * against the file's size before any token is read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct token_file token_file;
token_file *tokens_open(const char *path, char *why, size_t why_bytes); /* NULL: a sentence in `why` */
void tokens_close(token_file *f);                                       /* NULL is fine */
int64_t tokens_count(const token_file *f);
const char *tokens_format(const token_file *f); /* "llm.c", "uint16" or "npy" */
/* Tokens first, first + 1, ...; the range is within the file. A number that no int32 holds becomes -1. False when the file has
 * become shorter since it was opened, or its disk fails. */
bool tokens_read(const token_file *f, int64_t first, int n, int32_t *out);
