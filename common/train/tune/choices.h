/* SPDX-License-Identifier: MIT */
/* Algorithms of matrix products that were chosen before, so that no product is timed twice: shipped with the program for
 * some GPUs, kept in a CSV file of the machine, and made in this run. Each is good for one version of the library; asking
 * the library (sb_train_ops.matmul_choose) says whether it is the present one. Rivals that have not raced yet are kept
 * with their choice, so that races go on in the next row or the next run. */
#pragma once

#include "common/model/products.h"

typedef struct kept_choice {
    sb_matmul shape; /* pointers do not count, but for whether there is a c */
    sb_matmul_choice choice;
    sb_matmul_choice rivals[CHOICE_RIVALS]; /* nearly as fast, still to race in whole steps; tried == 0: none */
    choice_source source;
    char product[32]; /* for people: "w2 forward" */
} kept_choice;

typedef struct choices choices;

/* `gpu`: its name, which finds the shipped ones. `path`: the CSV file that is read,
 * and extended by choices_add; NULL: none. A file with other columns is written anew with today's. With `retune` nothing is read and shipped ones do not count: every product is timed again. */
choices *choices_open(const char *gpu, const char *path, bool retune);
void choices_free(choices *c);

/* The newest choice for the shape that was added before place `below` (INT_MAX: of all), as a place; -1: none. */
int choices_find(const choices *c, const sb_matmul *shape, int below);
int choices_count(const choices *c);
const kept_choice *choices_at(const choices *c, int place); /* until the next choices_add */
/* `product` is for people: "w2 forward". A file that cannot be written is no failure. */
void choices_add(choices *c, const char *product, const kept_choice *choice);
int choices_trained(choices *c);     /* how many trainers have asked so before, of this process */
bool choices_anew(const choices *c); /* opened with retune */

/* Choices that the program brings along for a GPU, as the text of such a CSV file; NULL: none. */
const char *choices_shipped(const char *gpu);
