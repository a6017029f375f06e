/* SPDX-License-Identifier: MIT */
/* Joining a job: ranks say who they are, and all must agree on what they run; see coordinator.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/launch/coordinator_internal.h"

/* The first "name=value" in which two texts of options differ. */
static void first_difference(const char *a, const char *b, char *out, size_t out_bytes)
{
    size_t start = 0;
    for (size_t i = 0; a[i] == b[i] && a[i]; i++)
        if (a[i] == ' ')
            start = i + 1;
    snprintf(out, out_bytes, "'%.*s' against '%.*s'", (int)strcspn(a + start, " "), a + start,
             (int)strcspn(b + start, " "), b + start);
}

/* False: the job has ended over it. */
static bool agree(coordinator *h, const member *first, const member *m)
{
    const int a = first->hello.rank, b = m->hello.rank;
    char difference[512];
    if (m->hello.binary != first->hello.binary) {
        coordinator_end(h, EXIT_CODE_USAGE,
                        "rank %d (host %s) runs another build of the program than rank %d (host %s)", b,
                        m->hello.host_name, a, first->hello.host_name);
    } else if (strcmp(m->options, first->options) != 0) {
        first_difference(m->options, first->options, difference, sizeof difference);
        coordinator_end(h, EXIT_CODE_USAGE, "rank %d has other options than rank %d: %s", b, a, difference);
    }
    return !h->ending;
}

static void welcome_all(coordinator *h)
{
    OWNED control_place *places = xcalloc((unsigned long)h->o.ranks, sizeof *places);
    const size_t bytes = (size_t)h->o.ranks * sizeof *places;
    const double now = host_seconds();
    for (int r = 0; r < h->o.ranks; r++) {
        if (!h->ranks[r].joined)
            return;
        places[r].host = h->ranks[r].hello.host;
    }
    for (int r = 0; r < h->o.ranks; r++) {
        h->ranks[r].beat_at = h->ranks[r].move_at = now;
        channel_put(&h->ranks[r].c, CONTROL_WELCOME, places, bytes, NULL, 0);
    }
    h->welcomed = true;
}

static void turn_away(member *m, int code, const char *text)
{
    coordinator_tell_end(m, code, text);
    coordinator_member_close(m);
    m->used = false;
}

/* ---- strangers ---- */

/* Where all places are taken, the one that has said nothing for longest gives up its place; a rank among them tries again. */
static member *place_of_stranger(coordinator *h)
{
    member *oldest = NULL;
    for (int i = 0; i < h->places; i++) {
        member *m = &h->strangers[i];
        if (!m->used)
            return m;
        if (m->met && (!m->proved || !*h->o.secret) && (!oldest || m->since < oldest->since))
            oldest = m;
    }
    if (oldest)
        coordinator_member_close(oldest);
    return oldest;
}

void coordinator_meet(coordinator *h, int fd)
{
    control_challenge first = {.version = CONTROL_VERSION, .secret = *h->o.secret != 0};
    member *m = place_of_stranger(h);
    if (!m) {
        close(fd);
        return;
    }
    *m = (member){.used = true, .met = true, .proved = !first.secret, .since = host_seconds()};
    if (first.secret)
        secret_challenge(m->challenge);
    memcpy(first.challenge, m->challenge, sizeof first.challenge);
    channel_open(&m->c, fd, m->proved ? CONTROL_HELLO_BYTES : CONTROL_STRANGER_BYTES);
    channel_put(&m->c, CONTROL_CHALLENGE, &first, sizeof first, NULL, 0);
}

void coordinator_take_proof(coordinator *h, member *stranger, const void *data, size_t bytes)
{
    control_proof proof, own = {.challenge = ""};
    if (bytes == sizeof proof)
        memcpy(&proof, data, sizeof proof);
    if (bytes != sizeof proof || !secret_proves(h->o.secret, SECRET_OF_RANK, stranger->challenge, proof.answer)) {
        turn_away(stranger, EXIT_CODE_USAGE, "STEPBENCH_SECRET is not that of rank 0");
        return;
    }
    proof.challenge[sizeof proof.challenge - 1] = 0;
    secret_answer(h->o.secret, SECRET_OF_COORDINATOR, proof.challenge, own.answer);
    stranger->proved = true;
    stranger->c.limit = CONTROL_HELLO_BYTES;
    channel_put(&stranger->c, CONTROL_PROVED, &own, sizeof own, NULL, 0);
}

void coordinator_check_strangers(coordinator *h, double now)
{
    for (int i = 0; i < h->places; i++) {
        member *m = &h->strangers[i];
        if (m->used && m->met && now - m->since > STRANGER_SECONDS) {
            coordinator_member_close(m);
            m->used = false;
        }
    }
}

/* ---- hello ---- */

void coordinator_join(coordinator *h, member *stranger, const void *data, size_t bytes)
{
    control_hello hello;
    if (bytes >= sizeof hello)
        memcpy(&hello, data, sizeof hello);
    if (bytes < sizeof hello || hello.version != CONTROL_VERSION || bytes != sizeof hello + hello.options_bytes) {
        turn_away(stranger, EXIT_CODE_USAGE, "rank 0 runs another version of the program");
        return;
    }
    hello.host_name[sizeof hello.host_name - 1] = 0;
    if (hello.run_id != h->o.run_id) {
        turn_away(stranger, EXIT_CODE_USAGE,
                  "another job listens on this port; give each job a STEPBENCH_PORT of its own");
        return;
    }
    stranger->hello = hello;
    if (hello.size != h->o.ranks || hello.rank < 0 || hello.rank >= h->o.ranks) {
        coordinator_end(h, EXIT_CODE_USAGE,
                        "a rank (host %s) was told to be rank %d of %d, but rank 0 has a job of %d ranks",
                        hello.host_name, hello.rank, hello.size, h->o.ranks);
        return;
    }
    member *m = &h->ranks[hello.rank];
    if (m->used) {
        coordinator_end(h, EXIT_CODE_USAGE, "rank %d was started twice, on hosts %s and %s", hello.rank,
                        m->hello.host_name, hello.host_name);
        return;
    }
    *m = *stranger;
    memset(stranger, 0, sizeof *stranger);
    m->joined = true;
    channel_put(&m->c, CONTROL_ALIVE, NULL, 0, NULL, 0);
    m->c.limit = CONTROL_RANK_BYTES;
    m->options = xasprintf("%.*s", (int)hello.options_bytes, (const char *)data + sizeof hello);
    for (int r = 0; r < h->o.ranks; r++)
        if (h->ranks[r].joined && r != hello.rank) {
            if (!agree(h, r < hello.rank ? &h->ranks[r] : m, r < hello.rank ? m : &h->ranks[r]))
                return;
            break;
        }
    welcome_all(h);
}

void coordinator_check_joining(coordinator *h, double now)
{
    char missing[512] = "";
    if (h->welcomed || h->ending || !(h->o.timeout_s > 0) || now - h->since < h->o.timeout_s)
        return;
    int count = 0;
    for (int r = 0; r < h->o.ranks; r++) {
        size_t used = strlen(missing);
        if (!h->ranks[r].joined)
            snprintf(missing + used, sizeof missing - used, "%s%d", count++ ? ", " : "", r);
    }
    coordinator_end(h, EXIT_CODE_TIMEOUT, "rank%s %s of %d did not join within --timeout %g s%s%s",
                    count > 1 ? "s" : "", missing, h->o.ranks, h->o.timeout_s, *h->where ? "; rank 0 listens at " : "",
                    h->where);
}
