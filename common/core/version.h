/* SPDX-License-Identifier: MIT */
/* The version of the suite and of its library. */
#ifndef STEPBENCH_CORE_VERSION_H
#define STEPBENCH_CORE_VERSION_H

#define STEPBENCH_VERSION "0.3.0"

#endif
