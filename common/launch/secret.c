/* SPDX-License-Identifier: MIT */
/* Challenges and answers by crypt(3); see secret.h. */
#include "common/launch/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/core/error.h"

#ifdef HAVE_CRYPT
#include <crypt.h>
#endif

static const char digits[] = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

bool secret_find(const char **secret, char *msg, size_t msg_bytes)
{
    const char *text = getenv("STEPBENCH_SECRET");
    *secret = text ? text : "";
    const size_t bytes = strlen(*secret);
#ifndef HAVE_CRYPT
    if (bytes > 0)
        snprintf(msg, msg_bytes, "STEPBENCH_SECRET is set, but this build has no crypt(3) to use it with");
    return bytes == 0;
#endif
    if (!text || (bytes >= SECRET_BYTES_MIN && bytes <= SECRET_BYTES_MAX))
        return true;
    snprintf(msg, msg_bytes, "STEPBENCH_SECRET has %zu characters; it must have %d to %d", bytes, SECRET_BYTES_MIN,
             SECRET_BYTES_MAX);
    return false;
}

void secret_challenge(char out[SECRET_CHALLENGE_BYTES])
{
    unsigned char random[SECRET_CHALLENGE_BYTES - 1];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        die(EXIT_CODE_FAILURE, "the system gives no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        out[i] = digits[random[i] % 64];
    out[sizeof random] = 0;
}

void secret_answer(const char *secret, secret_side side, const char *challenge, char out[SECRET_ANSWER_BYTES])
{
    memset(out, 0, SECRET_ANSWER_BYTES);
#ifdef HAVE_CRYPT
    char phrase[SECRET_BYTES_MAX + 16], salt[64];
    OWNED struct crypt_data *work = xcalloc(1, sizeof *work);
    snprintf(phrase, sizeof phrase, "%s%s", side == SECRET_OF_RANK ? "rank:" : "coordinator:", secret);
    snprintf(salt, sizeof salt, "$6$rounds=1000$%.*s", SECRET_CHALLENGE_BYTES - 1, challenge);
    const char *hash = crypt_r(phrase, salt, work);
    if (!hash || strncmp(hash, "$6$", 3) != 0)
        die(EXIT_CODE_FAILURE, "crypt(3) gives no SHA-512 hash: %s", strerror(errno));
    snprintf(out, SECRET_ANSWER_BYTES, "%s", hash);
#else
    (void)secret, (void)side, (void)challenge;
#endif
}

bool secret_proves(const char *secret, secret_side side, const char *challenge, const char answer[SECRET_ANSWER_BYTES])
{
    char right[SECRET_ANSWER_BYTES];
    unsigned char differs = 0;
    secret_answer(secret, side, challenge, right);
    for (size_t i = 0; i < sizeof right; i++)
        differs |= (unsigned char)(right[i] ^ answer[i]);
    return *secret && !differs;
}
