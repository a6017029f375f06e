/* SPDX-License-Identifier: MIT */
/* The memory of a step as a file that PyTorch's memory viewer (pytorch.org/memory_viz) opens: the pickle that
 * torch.cuda.memory._dump_snapshot writes, made without Python. Fields and meanings are those that its MemoryViz.js and
 * torch/cuda/_memory_viz.py read. */
#pragma once

#include "common/arena/arena.h"

/* `events` in program order: those of a step, and one for each block outside the arena (offset -1) before them. Each
 * becomes an allocation, or a request to free and its completion, with the tensor's name, block and kind as its frame
 * and its kind as its category. The arena is one segment, every block outside it a segment of its own; addresses are
 * made up, and time_us counts events. False with errno when the file can't be written. */
bool snapshot_write(const char *path, const arena_event *events, size_t count, int64_t arena_bytes);
