/* SPDX-License-Identifier: MIT */
/* peer_flash.csv: attention of others, replayed in turn with ours in one process (docs/peers.md). Its ratios are theirs
 * over ours in the same round, so that no row of a bench is needed beside it. */
#ifndef STEPBENCH_REPORT_FLASH_PEERS_H
#define STEPBENCH_REPORT_FLASH_PEERS_H

#include "common/core/csv.h"
#include "common/report/comparison.h"
#include "common/report/document.h"

csv *flash_peers_open(const char *dir); /* NULL when it is absent */
/* Whether a shape gives every processor of the GPU work; one head is made for by nobody, and a class of its own. */
typedef enum flash_load { FLASH_FULL_LOAD, FLASH_PART_LOAD, FLASH_ONE_HEAD } flash_load;
/* Adds the shapes of a dtype. `ratio` is fwd_ratio or bwd_ratio; `causal` "0", "1" or NULL: both. `c` may be NULL. */
void flash_peers_compare(comparison *to, const csv *c, const char *dtype, const char *causal, flash_load load,
                         const char *ratio);
/* What the figure peers_flash draws: a row for each shape that has a ratio; false with errno set. `c` may be NULL. */
bool flash_peers_write_csv(const csv *c, const char *dtype, const char *path);
void flash_peers_write(document *doc, const csv *c); /* a section; nothing when c is NULL */

#endif
