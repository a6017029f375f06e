/* SPDX-License-Identifier: MIT */
/* The version of the suite and of its library. */
#pragma once

#define STEPBENCH_VERSION "0.4.0"
