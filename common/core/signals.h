/* SPDX-License-Identifier: MIT */
/* Handlers of signals. One that was ignored when the program started stays ignored: `nohup` and the background jobs of a
 * shell say so, and the program must live on when the terminal closes or Ctrl-C goes to another job. */
#pragma once

void signal_catch(int number, void (*handler)(int number), int flags); /* flags are those of sigaction(2) */
void signal_release(int number);                                       /* back to what the system does by default */
