/* SPDX-License-Identifier: MIT */
/* The list of attention cases. */
#include "tests/gpu/cases.h"

#include "common/core/error.h"

#include <stdio.h>
#include <string.h>

static const char *const layout_names[] = {"bhsd", "bshd", "padded"};
static const char *const value_names[] = {"normal", "peaked", "increasing", "decreasing", "outlier", "identical"};

typedef struct list {
    test_case *items;
    int n;
} list;

/* Adds the case in every dtype up to `last`. */
static void add_to(list *l, test_case c, sb_dtype last)
{
    char seq[32], width[32], scale[32] = "", window[32] = "", documents[32] = "";
    if (c.seq_q == c.seq_k)
        snprintf(seq, sizeof seq, "%d", c.seq_q);
    else
        snprintf(seq, sizeof seq, "%dx%d", c.seq_q, c.seq_k);
    if (c.head_dim_v)
        snprintf(width, sizeof width, "%d/%d", c.head_dim, c.head_dim_v);
    else
        snprintf(width, sizeof width, "%d", c.head_dim);
    if (c.scale != 0)
        snprintf(scale, sizeof scale, "-scale%g", c.scale);
    if (c.windowed)
        snprintf(window, sizeof window, "-window%d,%d", c.window_left, c.window_right);
    if (c.documents)
        snprintf(documents, sizeof documents, "-documents%d", c.documents);
    snprintf(c.name, sizeof c.name, "b%d-h%d/%d-s%s%s-d%s-%s%s-%s-%s%s", c.batch, c.heads, c.heads_kv, seq, documents,
             width, c.causal ? "causal" : "full", window, layout_names[c.layout], value_names[c.values], scale);
    l->items = xrealloc(l->items, sizeof *l->items * (unsigned long)(l->n + 5));
    for (int dtype = SB_BF16; dtype <= (int)last; dtype++) {
        c.dtype = (sb_dtype)dtype;
        l->items[l->n++] = c;
    }
}

static void add(list *l, test_case c)
{
    add_to(l, c, SB_BF16X3);
}

static test_case one_head(int seq_q, int seq_k, int head_dim, bool causal)
{
    return (test_case){
        .batch = 1, .heads = 1, .heads_kv = 1, .seq_q = seq_q, .seq_k = seq_k, .head_dim = head_dim, .causal = causal};
}

/* Both sides of every tile edge, at the head dims of the two main kernels. */
static void add_sequence_lengths(list *l)
{
    static const int seqs[] = {1, 63, 64, 65, 127, 128, 129, 191, 257, 1023};
    for (size_t i = 0; i < sizeof seqs / sizeof *seqs; i++)
        for (int causal = 0; causal < 2; causal++)
            for (int d = 64; d <= 128; d += 64) {
                test_case c = one_head(seqs[i], seqs[i], d, causal);
                c.repeats = seqs[i] == 257 || (seqs[i] == 1023 && causal);
                c.small = causal && (seqs[i] == 1 || seqs[i] == 65 || seqs[i] == 129);
                add(l, c);
            }
    add(l, one_head(2049, 2049, 128, true)); /* more tiles than any pipeline is deep */
    add(l, one_head(2049, 2049, 64, false));
    for (int d = 64; d <= 128; d += 64) { /* more tiles than multiprocessors: blocks that stay take several */
        test_case c = one_head(257, 257, d, true);
        c.batch = 2;
        c.heads = c.heads_kv = 40;
        c.repeats = true;
        add(l, c);
    }
}

static void add_head_dims(list *l)
{
    for (int d = 16; d <= 128; d += 8) {
        test_case c = one_head(129, 129, d, d % 16 == 0);
        c.heads = c.heads_kv = 2;
        c.repeats = d == 80;
        c.small = d == 16 || d == 40 || d == 80 || d == 96;
        add(l, c);
        if (d == 80 || d == 96) {
            c.causal = !c.causal;
            add(l, c);
        }
    }
}

/* Heads enough for the instances of few columns and no clusters, at both sides of the edges of their tiles. */
static void add_many_heads(list *l)
{
    static const int dims[] = {16, 32, 72, 80, 96}, seqs[] = {129, 193, 257};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t k = 0; k < sizeof seqs / sizeof *seqs; k++) {
            test_case c = one_head(seqs[k], seqs[k], dims[i], (i + k) % 2);
            c.batch = 3;
            c.heads = 45;
            c.heads_kv = 15;
            c.repeats = dims[i] == 16 && seqs[k] == 257;
            add(l, c);
        }
    for (size_t i = 1; i < sizeof dims / sizeof *dims; i++) /* the running maximum moves, or does not */
        for (int values = VALUES_PEAKED; values <= VALUES_OUTLIER; values++) {
            test_case c = one_head(257, 257, dims[i], (i + (size_t)values) % 2);
            c.heads = c.heads_kv = 135;
            c.values = (case_values)values;
            add(l, c);
        }
}

/* Heads and steps enough for the Hopper backward that pairs key tiles: even and odd numbers of tiles, which are full or end
 * in the first tile of a pair or in the second, diagonals at different places of them, and every width that it has. */
static void add_paired_tiles(list *l)
{
    static const struct {
        int seq_q, seq_k, head_dim, heads_kv, group;
        bool causal;
    } shapes[] = {{3100, 3100, 128, 14, 1, true}, {3900, 4000, 96, 9, 1, true}, {193, 257, 128, 44, 4, false},
                  {130, 384, 96, 44, 5, false},   {193, 129, 80, 66, 7, false}, {129, 129, 104, 66, 4, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        test_case c = one_head(shapes[i].seq_q, shapes[i].seq_k, shapes[i].head_dim, shapes[i].causal);
        c.heads_kv = shapes[i].heads_kv;
        c.heads = c.heads_kv * shapes[i].group;
        c.layout = (case_layout)(i % 3);
        c.repeats = i != 4; /* more pairs than run at once, in order with one sum and with two */
        add_to(l, c, SB_FP16);
        if (shapes[i].head_dim == 104) { /* flash_pair takes few heads, too */
            c.heads_kv = 2, c.heads = 2 * shapes[i].group;
            c.repeats = false, c.small = true;
            add_to(l, c, SB_FP16);
        }
    }
}

/* Few heads and many key tiles: the deterministic Hopper backward shares several sums of dQ among them, and its first round
 * starts at the diagonal; the wide kernel at head_dim 64 and above, with 16 and 32 bits, also with grouped queries, the one for
 * pairs at every width. Above 128 there are several sums, too, and all start together. */
static void add_early_adders(list *l)
{
    static const struct {
        int seq_q, seq_k, head_dim, heads_kv, group;
        sb_dtype last;
        int head_dim_v; /* 0: head_dim */
    } shapes[] = {{1499, 5500, 128, 1, 1, SB_FP16, 0},   {1500, 11500, 64, 1, 1, SB_FP16, 0},
                  {1100, 4100, 128, 2, 1, SB_BF16X3, 0}, {2900, 3100, 64, 2, 1, SB_BF16X3, 0},
                  {1300, 4300, 96, 1, 2, SB_FP16, 0},    {1000, 12000, 80, 2, 1, SB_FP16, 0},
                  {999, 11900, 96, 2, 1, SB_FP16, 0},    {1001, 12001, 120, 2, 1, SB_FP16, 0},
                  {1200, 6100, 256, 1, 1, SB_FP16, 0},   {1301, 5000, 192, 2, 1, SB_FP16, 0},
                  {1500, 9000, 192, 1, 1, SB_FP16, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        test_case c = one_head(shapes[i].seq_q, shapes[i].seq_k, shapes[i].head_dim, true);
        c.head_dim_v = shapes[i].head_dim_v;
        c.heads_kv = shapes[i].heads_kv;
        c.heads = c.heads_kv * shapes[i].group;
        c.layout = (case_layout)(i % 3);
        c.repeats = true;
        add_to(l, c, shapes[i].last);
    }
}

static void add_unequal_lengths(list *l)
{
    static const int pairs[][2] = {{65, 257}, {257, 65},   {1, 300},    {300, 1}, {64, 128}, {128, 64},
                                   {7, 1023}, {129, 1023}, {1023, 130}, {500, 3}, {500, 17}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int causal = 0; causal < 2; causal++) {
            test_case c = one_head(pairs[i][0], pairs[i][1], (i + (size_t)causal) % 2 ? 128 : 64, causal);
            c.heads = c.heads_kv = 2;
            c.repeats = pairs[i][0] == 129 && causal;
            c.small = causal && i < 3;
            add(l, c);
        }
}

/* head_dim above 128: lengths at the edges of tiles of 128 queries and 64 keys forward, and of 64, 32 and 16 backward. */
static void add_wide_heads(list *l)
{
    static const int dims[] = {136, 192, 256};
    static const int pairs[][2] = {{1, 1},    {63, 63},   {65, 65}, {129, 129}, {257, 191},
                                   {65, 257}, {113, 177}, {1, 300}, {300, 1},   {31, 15}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
            for (int causal = 0; causal < 2; causal++) {
                test_case c = one_head(pairs[k][0], pairs[k][1], dims[i], causal);
                c.heads = k % 2 ? 6 : 2;
                c.heads_kv = 2;
                c.layout = (case_layout)((i + k) % 3);
                c.repeats = (k == 4 || k == 5) && causal;
                c.small = k == 3 && causal;
                add(l, c);
            }
        test_case c = one_head(257, 257, dims[i], true); /* more tiles than multiprocessors */
        c.batch = 2;
        c.heads = 40;
        c.heads_kv = 20;
        c.repeats = dims[i] == 256;
        add(l, c);
        add(l, one_head(1500, 2300, dims[i], false)); /* many steps */
    }
    for (int values = VALUES_PEAKED; values <= VALUES_IDENTICAL; values++) {
        test_case c = one_head(257, 257, 256, values % 2);
        c.values = (case_values)values;
        add(l, c);
    }
    add(l, one_head(1023, 1023, 256, true));
}

/* Values of another width: those of multi-head latent attention at the edges of tiles, and pairs in which either is the wider, which
 * the large backward takes above 128 columns and the portable one below; windows and documents of both kinds. */
static void add_value_widths(list *l)
{
    static const int pairs[][2] = {{1, 1},     {63, 64}, {65, 65}, {127, 129}, {129, 129}, {257, 191},
                                   {113, 177}, {1, 300}, {300, 1}, {31, 15},   {513, 513}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        for (int causal = 0; causal < 2; causal++) {
            test_case c = one_head(pairs[k][0], pairs[k][1], 192, causal);
            c.head_dim_v = 128;
            c.heads = k % 2 ? 8 : 2;
            c.heads_kv = 2;
            c.layout = (case_layout)(k % 3);
            c.repeats = (k == 4 || k == 5) && causal;
            c.small = k == 4 && causal;
            add(l, c);
        }
    test_case many = one_head(257, 257, 192, true); /* more tiles than multiprocessors */
    many.head_dim_v = 128, many.batch = 2, many.heads = 40, many.heads_kv = 20, many.repeats = true;
    add(l, many);
    for (int causal = 0; causal < 2; causal++) { /* many steps; a cluster may share a tile */
        test_case c = one_head(1500, 2300, 192, causal);
        c.head_dim_v = 128;
        add(l, c);
    }
    static const int widths[][2] = {{192, 64}, {136, 128}, {160, 104}, {128, 64},  {64, 128}, {96, 64}, {72, 16},
                                    {16, 72},  {256, 128}, {128, 256}, {256, 192}, {40, 96},  {80, 88}, {144, 192}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int causal = 0; causal < 2; causal++) {
            test_case c = one_head(causal ? 129 : 200, causal ? 191 : 200, widths[i][0], causal);
            c.head_dim_v = widths[i][1];
            c.heads = 4;
            c.heads_kv = i % 2 ? 2 : 4;
            c.layout = (case_layout)(i % 3);
            c.small = i == 4 && causal;
            add(l, c);
        }
    static const int marked[][2] = {{192, 128}, {64, 32}, {96, 128}};
    for (size_t i = 0; i < sizeof marked / sizeof *marked; i++) {
        test_case c = one_head(300, 300, marked[i][0], true);
        c.head_dim_v = marked[i][1];
        c.heads = 4;
        c.heads_kv = 2;
        test_case window = c, documents = c;
        window.windowed = true, window.window_left = 70, window.window_right = -1;
        add(l, window);
        static const int ends[] = {0, 64, 65, 200, 300};
        documents.documents = 4;
        for (int k = 1; k <= documents.documents; k++)
            documents.cu_seqlens_q[k] = documents.cu_seqlens_k[k] = ends[k];
        documents.small = i == 0;
        add(l, documents);
    }
}

/* Rows of scores that unfused's softmax holds in ever more registers, and at last not at all. Increasing values keep the
 * probabilities of the longest out of fp16's subnormal numbers. */
static void add_long_rows(list *l)
{
    add(l, one_head(3, 8200, 16, true));
    add(l, one_head(2, 33000, 16, false));
    test_case c = one_head(2, 66000, 16, true);
    c.values = VALUES_INCREASING;
    add(l, c);
}

static void add_heads_and_layouts(list *l)
{
    static const struct {
        int heads, heads_kv;
    } groups[] = {{3, 3}, {6, 2}, {8, 1}};
    for (int group = 0; group < 3; group++)
        for (int layout = CASE_BHSD; layout <= CASE_PADDED; layout++)
            for (int batch = 1; batch <= 3; batch += 2) {
                test_case c = one_head(129, 129, group == 1 ? 128 : 64, (group + layout + batch / 2) % 2);
                c.batch = batch;
                c.heads = groups[group].heads;
                c.heads_kv = groups[group].heads_kv;
                c.layout = (case_layout)layout;
                c.repeats = group > 0 && batch == 3 && layout == CASE_BSHD;
                add(l, c);
            }
    test_case c = one_head(65, 97, 80, true);
    c.batch = 2;
    c.heads = 6;
    c.heads_kv = 2;
    c.layout = CASE_BSHD;
    c.small = true;
    add(l, c);
    c.layout = CASE_PADDED;
    add(l, c);
}

/* More heads in all than a grid has blocks along y or z. */
static void add_very_many_heads(list *l)
{
    static const struct {
        int batch, heads, heads_kv, seq, head_dim;
    } shapes[] = {{33000, 2, 2, 3, 16}, {65537, 1, 1, 1, 64}, {16400, 4, 2, 1, 72}, {17, 4096, 4096, 2, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        test_case c = one_head(shapes[i].seq, shapes[i].seq, shapes[i].head_dim, i % 2);
        c.batch = shapes[i].batch, c.heads = shapes[i].heads, c.heads_kv = shapes[i].heads_kv;
        add(l, c);
    }
}

static void add_values(list *l)
{
    for (int values = VALUES_PEAKED; values <= VALUES_IDENTICAL; values++)
        for (int causal = 0; causal < 2; causal++)
            for (int d = 64; d <= 128; d += 64) {
                test_case c = one_head(257, 257, d, causal);
                c.values = (case_values)values;
                add(l, c);
            }
    test_case c = one_head(191, 191, 64, true);
    c.scale = 0.3f;
    add(l, c);
    c.scale = 0.05f;
    add(l, c);
}

/* Sliding windows: edges at, before and behind those of tiles of 64, 128 and 256; more than one tile is left out at each end;
 * spans above 2048, where the narrow backward adds in any order; keys that no query sees and queries that see no key; the head
 * groups, layouts and widths that the kernels tell apart. */
static void add_windows(list *l)
{
    static const struct {
        int seq_q, seq_k, head_dim, left, right;
        bool causal;
    } shapes[] = {{257, 257, 64, 0, -1, true},      {257, 257, 128, 0, 0, false},    {1023, 1023, 64, 64, -1, true},
                  {1023, 1023, 128, 63, -1, true},  {1023, 1023, 128, 200, 0, true}, {1024, 1024, 64, 127, 0, true},
                  {1024, 1024, 128, 128, 0, true},  {700, 700, 64, 40, 17, false},   {700, 700, 128, 130, 257, false},
                  {700, 700, 64, -1, 30, false},    {700, 700, 128, -1, 70, false},  {700, 700, 64, 30, -1, false},
                  {700, 700, 128, 300, -1, false},  {300, 300, 64, -1, -1, false},   {300, 300, 128, 5000, 5000, false},
                  {129, 1023, 64, 200, -1, true},   {64, 1024, 128, 10, -1, true},   {64, 1024, 64, 10, 5, false},
                  {1023, 130, 64, 50, -1, true},    {1023, 130, 128, 50, 20, false}, {500, 17, 128, 3, 3, false},
                  {500, 17, 64, 3, 3, false},       {1, 300, 64, 100, -1, true},     {300, 1, 128, 0, 100, false},
                  {2049, 2049, 128, 500, -1, true}, {2049, 2049, 64, 500, -1, true}, {129, 129, 16, 33, 9, false},
                  {129, 129, 40, 33, -1, true},     {193, 193, 72, 33, -1, true},    {257, 257, 80, 65, 1, false},
                  {385, 385, 96, 100, -1, true},    {385, 385, 120, 100, 40, false}, {2500, 2500, 64, 2100, -1, true},
                  {2300, 2300, 64, -1, 30, false},  {129, 129, 136, 33, 9, false},   {257, 257, 192, 64, -1, true},
                  {500, 500, 256, 100, 40, false},  {1023, 1023, 256, 65, -1, true}, {129, 700, 256, 200, -1, true},
                  {700, 130, 192, 50, 20, false},   {500, 17, 256, 3, 3, false},     {300, 1, 256, 0, 100, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        test_case c = one_head(shapes[i].seq_q, shapes[i].seq_k, shapes[i].head_dim, shapes[i].causal);
        c.windowed = true, c.window_left = shapes[i].left, c.window_right = shapes[i].right;
        c.heads_kv = 1 + i % 2;
        c.heads = c.heads_kv * (1 + (int)i / 2 % 3);
        c.layout = (case_layout)(i % 3);
        c.repeats = i % 4 == 0 || i == 5 || (i >= 17 && i < 20); /* the deterministic mode, too */
        c.small = i == 7 || i == 29 || shapes[i].head_dim == 136;
        add(l, c);
    }
    for (int d = 64; d <= 128; d += 64) { /* more jobs than multiprocessors */
        test_case c = one_head(513, 513, d, true);
        c.batch = 2;
        c.heads = 40;
        c.heads_kv = 20;
        c.windowed = true, c.window_left = 129, c.window_right = -1;
        c.repeats = true;
        add_to(l, c, SB_FP16);
        c.causal = false, c.window_left = 70, c.window_right = 50;
        add_to(l, c, SB_FP16);
    }
    for (int values = VALUES_PEAKED; values <= VALUES_IDENTICAL; values++)
        for (int d = 64; d <= 128; d += 64) {
            test_case c = one_head(513, 513, d, values % 2);
            c.windowed = true, c.window_left = 150, c.window_right = values % 2 ? -1 : 33;
            c.values = (case_values)values;
            add(l, c);
        }
}

/* Packed documents: lengths on both sides of the edges of tiles of 64, 128 and 192, none of which begins where one does; without
 * queries, without keys, without both, at the ends and in between; more queries than keys, one token alone; with every mask, the
 * head groups, layouts and widths. */
static void add_documents(list *l)
{
    static const struct {
        int n, q[CASE_DOCUMENTS], k[CASE_DOCUMENTS]; /* lengths */
    } sets[] = {{5, {70, 1, 129, 63, 40}, {70, 1, 129, 63, 40}},
                {7, {0, 100, 0, 30, 64, 200, 0}, {0, 150, 20, 0, 64, 77, 9}},
                {4, {193, 128, 300, 65}, {193, 128, 300, 65}},
                {3, {1, 1, 700}, {257, 1, 700}},
                {1, {257}, {257}},
                {8, {16, 17, 15, 300, 3, 5, 1, 90}, {300, 17, 31, 129, 3, 6, 400, 90}}};
    static const int dims[] = {64, 128, 16, 80, 40, 120}, widest[] = {136, 192, 256};
    static const int masks[][3] = {{1, -1, -1}, {0, -1, -1}, {1, 40, -1}, {0, 33, 9}}; /* causal, left, right */
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        for (size_t mask = 0; mask < sizeof masks / sizeof *masks; mask++)
            for (size_t wide = 0; wide < 3; wide++) {
                const int d = wide < 2 ? dims[(i + mask) % 3 * 2 % 6 + wide] : widest[(i + mask) % 3];
                test_case c = one_head(0, 0, d, masks[mask][0]);
                c.documents = sets[i].n;
                for (int k = 0; k < c.documents; k++) {
                    c.cu_seqlens_q[k + 1] = c.seq_q += sets[i].q[k];
                    c.cu_seqlens_k[k + 1] = c.seq_k += sets[i].k[k];
                }
                c.windowed = masks[mask][1] >= 0;
                c.window_left = masks[mask][1], c.window_right = masks[mask][2];
                c.heads_kv = 1 + (i + mask) % 2;
                c.heads = c.heads_kv * (1 + (int)(i + wide) % 3);
                c.layout = (case_layout)((i + mask + wide) % 3);
                c.repeats = i % 2 == mask % 2;
                c.small = i == 1 && mask < 3;
                add_to(l, c, wide < 2 ? SB_BF16X3 : SB_FP16); /* no flash takes the widest of fp32 */
            }
    for (int causal = 0; causal < 2; causal++) { /* long ones: the narrow backward adds in any order */
        test_case c = one_head(4730, 4730, 64, causal);
        c.documents = 2;
        c.cu_seqlens_q[1] = c.cu_seqlens_k[1] = 2301;
        c.cu_seqlens_q[2] = c.cu_seqlens_k[2] = 4730;
        c.repeats = true;
        add_to(l, c, causal ? SB_FP16 : SB_BF16);
    }
    for (int d = 64; d <= 128; d += 64) { /* more tiles than multiprocessors */
        test_case c = one_head(700, 700, d, true);
        static const int ends[] = {0, 300, 301, 556, 700};
        c.documents = 4;
        for (int k = 1; k <= c.documents; k++)
            c.cu_seqlens_q[k] = c.cu_seqlens_k[k] = ends[k];
        c.heads = 80;
        c.heads_kv = 40;
        c.repeats = true;
        add_to(l, c, SB_FP16);
    }
}

test_case *cases_create(int *n)
{
    list l = {0};
    add_sequence_lengths(&l);
    add_head_dims(&l);
    add_many_heads(&l);
    add_paired_tiles(&l);
    add_early_adders(&l);
    add_unequal_lengths(&l);
    add_wide_heads(&l);
    add_value_widths(&l);
    add_windows(&l);
    add_documents(&l);
    add_long_rows(&l);
    add_heads_and_layouts(&l);
    add_very_many_heads(&l);
    add_values(&l);
    *n = l.n;
    return l.items;
}
