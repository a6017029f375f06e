/* SPDX-License-Identifier: MIT */
/* Parts of an op that a profile shows separately: the scores, the softmax and the value product of an attention that has
 * them. A profiler listens; without one, a part costs a load. Not part of the API. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* fn is called on the thread that runs or enqueues a part: with its name at the start ("scores", "softmax", "value"),
 * with NULL at the end. NULL: stop listening. */
void sb_parts_listen(void (*fn)(const char *part));
void sb_part_begin(const char *part);
void sb_part_end(void);

#ifdef __cplusplus
}
#endif
