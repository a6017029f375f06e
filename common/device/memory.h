/* SPDX-License-Identifier: MIT */
/* Device memory with every byte accounted: current and peak of what this program holds. */
#pragma once

#include "common/device/device.h"

typedef struct memory memory;
memory *memory_create(device *d);
void memory_destroy(memory *m); /* frees what is left */
/* 256-byte aligned; NULL when there is no memory (remembered: memory_failed). `tag` is a string constant. */
void *memory_alloc(memory *m, size_t bytes, const char *tag);
void memory_release(memory *m, void *p); /* NULL is fine; keeps the block for reuse by an equal request */
void memory_trim(memory *m);             /* blocks kept for reuse go back to the device; waits for it */
void memory_release_all(memory *m);      /* everything, and back to the device: between cases */
size_t memory_current(const memory *m);
size_t memory_peak(const memory *m);
void memory_peak_reset(memory *m);                                          /* peak = current */
bool memory_failed(const memory *m, size_t *asked_bytes, const char **tag); /* the last alloc that gave NULL */
void memory_failed_clear(memory *m);
