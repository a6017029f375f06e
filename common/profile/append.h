/* SPDX-License-Identifier: MIT */
/* A file that several processes add to. */
#pragma once

#include <stdbool.h>

/* Adds text to a file that other processes may be adding to. A new file becomes head, text, tail; in one that is there
 * and ends in tail, joint and text go before the tail. False with errno; EINVAL: the file is something else. */
bool append_text(const char *path, const char *head, const char *joint, const char *text, const char *tail);
