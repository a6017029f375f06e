/* SPDX-License-Identifier: MIT */
/* Large arrays between a device and the host's own memory, piece by piece through pinned memory: the next piece is copied
 * while the host works on one. A copy to memory that is not pinned runs at a fraction of the link's rate. */
#pragma once

#include "common/device/device.h"

/* Hands over the bytes at `from` in order, `at` counting from its start. All pieces but the last have one size, a multiple
 * of 1 MiB; on the CPU there is one piece, the memory itself. Waits for what is enqueued on the device's stream. */
void pieces_read(device *d, const void *from, size_t bytes,
                 void (*take)(void *arg, const void *piece, size_t at, size_t bytes), void *arg);
/* The other way: `give` fills each piece. What it wrote is there on return. */
void pieces_write(device *d, void *to, size_t bytes, void (*give)(void *arg, void *piece, size_t at, size_t bytes),
                  void *arg);
