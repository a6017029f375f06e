/* SPDX-License-Identifier: MIT */
/* A checkpoint's weights for other programs: model.safetensors and config.json in a folder. "cs336" has the names of the
 * course's state_dict; "llama" those of transformers' LlamaForCausalLM, whose RoPE pairs element i of a head with i + half
 * where ours pairs 2i with 2i + 1, so that the rows of q and k change places within each head. */
#pragma once

#include "common/checkpoint/load.h"

#define CHECKPOINT_EXPORTS "cs336|llama"
/* An exit code, with a sentence unless it is 0. The folder is made; nothing in it is overwritten. */
int checkpoint_export(const checkpoint *c, const char *to, const char *folder, char *why, size_t why_bytes);
