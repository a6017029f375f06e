/* SPDX-License-Identifier: MIT */
/* A thread that ends the program when nothing makes progress (exit 5), or when it is asked to stop by SIGINT or
 * SIGTERM (exit 130, 143). Rows written before that stay on disk, and a row being written is finished first. */
#pragma once

#include <stdbool.h>

void watchdog_start(double timeout_s); /* 0: signals only */
void watchdog_stop(void);
void watchdog_rows(const char *path); /* where messages say the rows so far are; NULL: nowhere */
void watchdog_beat(void);             /* something moved; a changed phase counts too */
unsigned long watchdog_beats(void);   /* so far */
void watchdog_hold(void);             /* between hold and release the program is not ended: a row is being written */
void watchdog_release(void);
/* While it is on, a first SIGINT or SIGTERM does not end the program: who set it looks at watchdog_caught and ends it. */
void watchdog_defer(bool on);
int watchdog_caught(void); /* the signal; 0: none */
/* Ends the program as the watchdog does: a row being written is finished, `what` (NULL: nothing) and where the rows are
 * is said, no exit handler runs. */
_Noreturn void watchdog_end(int code, const char *what);
