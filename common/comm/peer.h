/* SPDX-License-Identifier: MIT */
/* What GPUs of one host do without a library: collectives of small tensors, and gates; see kernels/shared/direct.h. What is here
 * opens the mailboxes of the ranks to one another, by CUDA's interprocess handles, and makes a rank leave when the job
 * ends. */
#pragma once

#include "common/device/device.h"
#include "common/comm/comm.h"
#include "kernels/shared/direct.h"

/* Memory that ranks of one host open to one another. Every rank of the job calls open, members or not, with what its group of
 * 2 to 8 has to show, which may lie anywhere in an allocation of cudaMalloc. Groups are those of comm_options: each rank
 * gives its own, all have equally many ranks, and no members (NULL) are the first ranks of the job. NULL on all of them,
 * with a sentence, where GPUs don't reach each other's memory. */
typedef struct peer_memory peer_memory;
peer_memory *peer_memory_open(launch *l, device *d, const int *members, int ranks, void *mine, char *why,
                              size_t why_bytes);
/* Whether there is no such memory, and why, before anything is opened; all ranks find the same. */
bool peer_unreachable(launch *l, device *d, int ranks, char *why, size_t why_bytes);
/* When no member uses that of another any more, and before one frees what it has shown. NULL is fine. */
void peer_memory_close(peer_memory *m);
void *const *peer_memory_at(const peer_memory *m); /* of each member, as it is reached here */

/* recv: (ranks, bytes), the slices in their order, which a kernel of this GPU loads; rank: this one's. No rank waits in
 * it. `bytes` is a multiple of 16. */
void peer_all_gather(launch *l, int rank, int ranks, const void *const *slices, void *recv, size_t bytes,
                     int max_blocks, void *stream);

/* A word that kernels of this device (on the CPU, threads) read while they wait: not 0 once the job ends. NULL with a sentence. */
const uint32_t *peer_leave_word(launch *l, device *d, char *why, size_t why_bytes);

typedef struct peers peers;

/* Groups, and what is returned, are as above; messages have at most message_bytes. */
peers *peers_open(launch *l, device *d, const int *members, int ranks, size_t message_bytes, char *why,
                  size_t why_bytes);
/* Every rank of the job together. Waits for the device. */
void peers_close(peers *p);
/* Where members alone end it, who then see to what peers_close has barriers for: nothing is under way when the first one
 * unmaps, and all have unmapped when the first one frees. */
void peers_unmap(peers *p);
void peers_free(peers *p);
sb_dtype peer_dtype(comm_dtype t); /* what the kernels behind these calls know it as; t is no integer */
/* The largest message, in bytes, of the algorithm. */
size_t peers_message_bytes(const peers *p, sb_direct_algorithm algorithm);

/* Members alone, as in comm.h: same calls in the same order, one stream. Sums are in fp32 in the order of ranks and rounded
 * once, with the same bits on all. t is no integer. What count, send and recv are of an algorithm is said in direct.h. */
void peers_collective(peers *p, sb_direct_algorithm algorithm, const void *send, void *recv, size_t count, comm_dtype t,
                      void *stream);
/* Members alone. What follows on the stream sees what all members have enqueued ahead of their gate of the same number. */
void peers_gate(peers *p, void *stream);
