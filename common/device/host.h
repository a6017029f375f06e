/* SPDX-License-Identifier: MIT */
/* Facts about the host: its processor and memory. */
#pragma once

#include <stddef.h>

void host_cpu_model(char *out, size_t bytes); /* "Intel(R) Xeon(R) Platinum 8480+"; else the architecture's name */
int host_cores(void);                         /* of the machine that are online */
int host_cores_allowed(void);                 /* that this process is bound to, by mpirun for example */
/* CPUs' worth of time that the control group of this process, or one that it is in, may use; NAN without a quota. `root` is ""
 * but for tests: what stands before /proc and /sys. */
double host_cpu_quota(const char *root);
size_t host_memory_bytes(void);    /* of the machine, or of the control group if that is less */
size_t host_available_bytes(void); /* that could be allocated now without swapping */
