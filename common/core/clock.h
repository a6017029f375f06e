/* SPDX-License-Identifier: MIT */
/* The host's clock. CPU events, spans and the launcher's deadlines all read this one, so that their times can be
 * compared. */
#pragma once

double host_seconds(void); /* CLOCK_MONOTONIC: never jumps; the same for every process of one machine */

double process_seconds(void); /* since this process began to run, on that clock */
