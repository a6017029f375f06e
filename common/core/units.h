/* SPDX-License-Identifier: MIT */
/* Powers of 1024, as numbers that sizes in bytes are divided by. */
#pragma once

#define MIB 1048576.0
#define GIB 1073741824.0
