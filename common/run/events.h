/* SPDX-License-Identifier: MIT */
/* Scalars as TensorBoard reads them: a file of TFRecords (length, its masked CRC-32C, data, its masked CRC-32C), each an Event of
 * tensorflow/core/util/event.proto with the five fields that a scalar needs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct events events;
/* NULL with errno set when the file can't be made. */
events *events_open(const char *path, double wall_s);
void events_scalar(events *e, double wall_s, int64_t step, const char *tag, double value);
void events_flush(events *e);
bool events_close(events *e); /* false: something could not be written; NULL is fine */
/* Reads a file again, record by record: the first thing that is wrong goes to `why`. */
bool events_check(const char *path, char *why, size_t why_bytes);
/* Appends the scalars of another such file up to `last`, and stops where that one is cut or damaged. */
void events_copy(events *e, const char *path, int64_t last);
void events_plant(events *e); /* records from here on have a wrong CRC, which events_check must find */
