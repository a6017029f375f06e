/* SPDX-License-Identifier: MIT */
/* What a program keeps from case to case, found by kind and key: small values, each at an address that stays until
 * it is dropped. A list: made for tens of values, not for thousands. */
#pragma once

#include <stddef.h>

typedef struct cache cache;

cache *cache_create(void);
void cache_free(cache *c); /* and all values; NULL is fine */

void *cache_find(const cache *c, const char *kind, const char *key); /* NULL: there is none */
/* A new value of `bytes` zero bytes. `destroy` frees what it points to, before it is freed itself; may be NULL. */
void *cache_add(cache *c, const char *kind, const char *key, size_t bytes, void (*destroy)(void *value));
void cache_drop(cache *c, const char *kind); /* all values of a kind */
