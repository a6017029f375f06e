/* SPDX-License-Identifier: MIT */
/* The figures of a folder of results. */
#pragma once

#include "plots/report/document.h"

/* Those whose names begin with `prefix`, where plots/<machine>/ beside results/ has them. */
void add_figures(document *doc, const char *folder, const char *prefix);
