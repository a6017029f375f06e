/* SPDX-License-Identifier: MIT */
/* What the files of coordinator.h share; no other file includes it. */
#pragma once

#include "common/launch/coordinator.h"
#include "common/launch/control.h"

enum { MORE_STRANGERS = 256, STRANGER_SECONDS = 5, TEXT_BYTES = 4096 };
typedef struct member { /* one connection; a rank once it has said hello */
    channel c;
    bool used, joined, left, gone; /* left: said bye; gone: its channel or process has ended */
    bool proved;                   /* it knows the secret, or need not */
    bool met;                      /* it came through the listener, at `since` */
    double since;
    char challenge[SECRET_CHALLENGE_BYTES]; /* that it must answer */
    control_hello hello;
    char *options;
    control_gather asked; /* the exchange it waits in */
    char *given;          /* NULL: none */
    rank_view view;
    double beat_at, move_at;
} member;

struct coordinator {
    coordinator_options o;
    char where[300];
    member *ranks, *strangers; /* [o.ranks], [places]: who has said hello, and who not yet */
    int places;
    int listeners[COORDINATOR_LISTENERS], listeners_n;
    bool welcomed, ending;
    int code;
    double since, stepped; /* when it was made, and its last step */
    double told;           /* when ranks that do not see its process were last told that it runs */
    struct {
        bool set;
        double until;
        int code;
        char text[TEXT_BYTES];
    } suspicion; /* ends the job unless a better reason shows up first */
};

void coordinator_member_close(member *m);
void coordinator_tell_end(member *m, int code, const char *text);
/* A stranger's first words: it proves that it knows the secret, or is turned away. */
void coordinator_meet(coordinator *h, int fd);
void coordinator_take_proof(coordinator *h, member *stranger, const void *data, size_t bytes);
/* A stranger's hello: it becomes a rank, is turned away, or ends the job. */
void coordinator_join(coordinator *h, member *stranger, const void *data, size_t bytes);
/* Ends the job when ranks have not joined in time. */
void coordinator_check_joining(coordinator *h, double now);
void coordinator_check_strangers(coordinator *h, double now); /* closes those that take too long */
void coordinator_take_status(member *m, const void *data, size_t bytes);
void coordinator_check_stuck(coordinator *h, double now); /* ends the job when it stands still */
void coordinator_forgive_gap(coordinator *h, double now, double expected_s);
