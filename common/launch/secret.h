/* SPDX-License-Identifier: MIT */
/* How ranks and their coordinator prove to each other that they know the secret of the job, STEPBENCH_SECRET, without
 * sending it: each answers the other's random challenge with a salted hash of the secret (SHA-512 crypt of the C library).
 * That keeps strangers out of a job. It does not hide or protect what is sent afterwards: whoever can alter the traffic of
 * the network can still do harm. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { SECRET_BYTES_MIN = 16, SECRET_BYTES_MAX = 256, SECRET_CHALLENGE_BYTES = 17, SECRET_ANSWER_BYTES = 160 };

typedef enum secret_side { SECRET_OF_RANK, SECRET_OF_COORDINATOR } secret_side;

/* The secret of the environment, "" where there is none. False with a sentence in msg when it is too short or too long, or
 * when this build cannot use one. */
bool secret_find(const char **secret, char *msg, size_t msg_bytes);
/* 96 random bits as text. */
void secret_challenge(char out[SECRET_CHALLENGE_BYTES]);
/* What `side` answers to a challenge. Answers of the two sides differ, so that neither can be sent back. */
void secret_answer(const char *secret, secret_side side, const char *challenge, char out[SECRET_ANSWER_BYTES]);
/* Whether `answer` is right; takes the same time wherever it differs. */
bool secret_proves(const char *secret, secret_side side, const char *challenge, const char answer[SECRET_ANSWER_BYTES]);
