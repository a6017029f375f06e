/* SPDX-License-Identifier: MIT */
/* Bytes of a state that never was; see saved_state.h. */
#include "tests/checkpoint/saved_state.h"

#include "tests/support/test.h"

const checkpoint_model saved_model = {.config = {.name = "custom",
                                                 .vocab = 250,
                                                 .d_model = 24,
                                                 .d_ff = 40,
                                                 .layers = 2,
                                                 .heads = 2,
                                                 .heads_kv = 1,
                                                 .rope_theta = 10000,
                                                 .norm_eps = 1e-5f},
                                      .param = SB_BF16,
                                      .moments = SB_FP32,
                                      .master = SB_MASTER_SPLIT};

static char byte_at(int64_t step, int file, int64_t offset)
{
    const uint64_t x = ((uint64_t)step * 1000003 + (uint64_t)file) * 0x9e3779b97f4a7c15u + (uint64_t)offset;
    return (char)(x * 0xbf58476d1ce4e5b9u >> 56);
}

saved_rank saved_rank_create(const checkpoint_layout *l, int rank, int ranks)
{
    saved_rank r = {0};
    int64_t at = 0;
    for (int pass = 0; pass < 2; pass++) { /* first its size, then its places */
        if (pass)
            r.memory = xcalloc((unsigned long)at + 1, 1);
        checkpoint_pieces_free(&r.pieces);
        at = 0;
        for (int i = 0; i < l->params->count; i++)
            for (checkpoint_arena a = 0; a < CHECKPOINT_ARENAS; a++) {
                const int64_t n = l->params->tensors[i].count, from = n * rank / ranks, to = n * (rank + 1) / ranks;
                checkpoint_pieces_add(&r.pieces, l, i, a, from, to, r.memory + at);
                at += (to - from) * checkpoint_element(&l->model, a);
            }
    }
    checkpoint_pieces_sort(&r.pieces);
    return r;
}

void saved_rank_free(saved_rank *r)
{
    checkpoint_pieces_free(&r->pieces);
    free(r->memory);
}

void saved_fill(const saved_rank *r, int64_t step)
{
    for (int i = 0; i < r->pieces.n; i++) {
        const checkpoint_piece *p = &r->pieces.p[i];
        for (int64_t b = 0; b < p->bytes; b++)
            p->at[b] = byte_at(step, p->file, p->offset + b);
    }
}

void saved_expect(const saved_rank *r, int64_t step)
{
    for (int i = 0; i < r->pieces.n; i++) {
        const checkpoint_piece *p = &r->pieces.p[i];
        for (int64_t b = 0; b < p->bytes; b++)
            if (p->at[b] != byte_at(step, p->file, p->offset + b))
                fail_msg("byte %lld of file %d is not that of step %lld", (long long)(p->offset + b), p->file,
                         (long long)step);
    }
}

checkpoint_state saved_note(int64_t step, int ranks)
{
    return (checkpoint_state){
        .step = step,
        .optimizer = {.step = step, .skipped = 3, .lr = 1e-3f, .loss_scale = 1024, .good_steps = 7},
        .seed = 0xfedcba9876543210u,
        .data = {"a \"file\"\n\\.bin", 5, 6, 129, step * 8},
        .schedule = {"cosine", 6e-4, 6e-5, 100, 1000, step},
        .updates = "bf16, --clip 1",
        .strategy = "fsdp",
        .ranks = ranks};
}

checkpoint_saved saved_steps(const checkpoint_model *m, const checkpoint_save_options *o, int ranks,
                             const int64_t *steps, int n, void (*after)(int64_t step))
{
    device *d = device_open(DEVICE_CPU, 0);
    checkpoint_layout *l = checkpoint_layout_create(m);
    saved_rank *r = xcalloc((unsigned long)ranks, sizeof *r);
    checkpoint_saver **s = xcalloc((unsigned long)ranks, sizeof *s);
    checkpoint_saved saved = {0};
    char why[400];
    for (int i = 0; i < ranks; i++) {
        checkpoint_save_options mine = *o;
        mine.rank = i, mine.ranks = ranks;
        r[i] = saved_rank_create(l, i, ranks);
        s[i] = checkpoint_saver_create(&mine, d, l, &r[i].pieces, why, sizeof why);
        assert_non_null(s[i]);
    }
    for (int k = 0; k < n; k++) {
        const checkpoint_state state = saved_note(steps[k], ranks);
        for (int i = ranks - 1; i >= 0; i--) { /* rank 0 last: with sync it waits for the others */
            saved_fill(&r[i], steps[k]);
            checkpoint_save(s[i], &state);
        }
        for (int i = ranks - 1; i >= 0; i--)
            saved = checkpoint_save_wait(s[i]);
        if (after)
            after(steps[k]);
    }
    for (int i = ranks - 1; i >= 0; i--) {
        checkpoint_saver_free(s[i]);
        saved_rank_free(&r[i]);
    }
    free(s);
    free(r);
    checkpoint_layout_free(l);
    device_close(d);
    return saved;
}

checkpoint_saved saved_by(const checkpoint_model *m, const checkpoint_save_options *o, int ranks, int64_t step)
{
    return saved_steps(m, o, ranks, &step, 1, NULL);
}
