/* SPDX-License-Identifier: MIT */
/* Attention of others, in turn with ours on the same machine. */
#include "common/core/error.h"
#include "common/report/flash_peers.h"
#include "common/report/section.h"

static void write_section(document *doc, const char *dir)
{
    csv *in_turn = flash_peers_open(dir);
    flash_peers_write(doc, in_turn);
    csv_free(in_turn);
}

static void compare(comparisons *to, const char *dir)
{
    static const char *const dtypes[] = {"bf16", "fp32"}, *const loads[] = {"full loads",
                                                                            "loads that leave processors idle",
                                                                            "one head"};
    static const char *const passes[][2] = {{"forward", "fwd_ratio"}, {"backward", "bwd_ratio"}};
    csv *in_turn = flash_peers_open(dir);
    for (size_t d = 0; in_turn && d < 2; d++)
        for (size_t l = 0; l < 3; l++)
            for (size_t p = 0; p < 2; p++)
                flash_peers_compare(
                    comparisons_begin(to, xasprintf("attention, %s, %s, %s", passes[p][0], dtypes[d], loads[l])),
                    in_turn, dtypes[d], NULL, (flash_load)l, passes[p][1]);
    csv_free(in_turn);
}

const report_section section_pytorch = {.order = 130, .write = write_section, .compare = compare};
