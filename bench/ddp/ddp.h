/* SPDX-License-Identifier: MIT */
/* The face of this folder for the benches of data parallelism. They are one driver (main.c), and differ by their variants,
 * columns and defaults of options. A case is a model, a number of ranks and a strategy of parallel/strategy.h (its
 * variant): checked on a slice (verify.c), then timed together with its compute-only step, which is the same step without
 * communication (time.c), and written down (row.c). */
#pragma once

#include "bench/ddp/row.h"

/* clang-format off */
#define DDP_NOTES                                                                                                      \
    "batch is per rank and micro-batch; global_batch is batch x ranks x micro-batches. Before a case is\n"             \
    "timed, a slice of its model (at most two blocks, 32768 tokens of its vocabulary, small batches, buckets of\n"     \
    "the same size or a quarter of its gradients) takes three steps on all its ranks, and on one rank that computes\n" \
    "their batches one after another.\n"                                                                               \
    "With two ranks and fp32 gradients both must agree in every bit; checksums of the parameters must agree between\n" \
    "ranks after each step.\n"                                                                                         \
    "\n"                                                                                                               \
    "What communication costs:\n"                                                                                      \
    "  exposed_ms      step_ms - compute_ms, that of the same step without communication, in alternating blocks\n"     \
    "  comm_alone_ms   time of the step's collectives with nothing else running\n"                                     \
    "  tail_ms         time for which compute waits for sums after the backward\n"                                     \
    "  contention_ms   exposed_ms - tail_ms: by how much collectives slow down compute that runs meanwhile\n"          \
    "  hidden_pct      100 (1 - exposed_ms / comm_alone_ms): the share of that time that the step does not pay for\n"  \
    "  overlapped_pct  share of the communication in a recorded step during which compute ran (--timeline 1)\n"        \
    "Overlapped communication still slows compute down, so hidden_pct is the smaller one. Gradients are sent and\n"    \
    "summed in wire_dtype: that of --grad-dtype, or of --reduce-dtype where the bench has it.\n"
/* clang-format on */

/* A bench's table of variants has room for all strategies; those for which `mine` is true are added behind what it holds. */
enum { DDP_VARIANTS = 16 };
void ddp_add_variants(variant_spec table[DDP_VARIANTS], bool (*mine)(const strategy *s));

/* main of a bench. Sets defaults in its table of options. */
int ddp_main(const bench_info *info, option_spec *table, int argc, char **argv);
