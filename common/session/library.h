/* SPDX-License-Identifier: MIT */
/* Whether the kernels that the loader found are those of this program: LD_LIBRARY_PATH goes before the program's own
 * folder, and a row names the commit of the program. */
#pragma once

/* Dies (exit 2) unless libstepbench was compiled from the sources, and by the compiler lines, of this program's build. */
void library_check(void);
