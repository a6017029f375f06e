/* SPDX-License-Identifier: MIT */
/* Collectives between peers without a GPU: their protocol, emulated (tests/support/peer_machine.h) with slow ranks and fast ones; a
 * planted mistake; their sizes; and how they are refused. */
#include "tests/support/test.h"

#include "common/comm/peer.h"
#include "kernels/shared/direct_adamw.h"
#include "kernels/shared/direct_layout.h"
#include "tests/support/peer_machine.h"
#include "tests/support/ranks.h"

/* ---- the protocol ---- */

static void expect_right(int ranks, int slow, uint32_t epoch, uint32_t stale)
{
    const peer_outcome got = peer_machine_run(ranks, 120, slow, false, epoch, stale);
    if (got.overwritten || got.wrong || !got.states_right)
        fail_msg("%d ranks, rank %d slow: %d packets overwritten unread, %d elements wrong, states %s", ranks, slow,
                 got.overwritten, got.wrong, got.states_right ? "right" : "wrong");
}

TEST(nothing_is_overwritten_before_it_is_read)
{
    for (int ranks = 2; ranks <= PEER_MACHINE_RANKS; ranks++)
        for (int slow = -1; slow < (ranks < 4 ? ranks : 1); slow++)
            expect_right(ranks, slow, 0, 0);
}

TEST(epochs_go_round)
{
    expect_right(3, -1, UINT32_MAX - 40, 1u << 31);
}

/* With one half a rank that is quick sends what the next call needs onto what a slow one has not read. */
TEST(one_half_would_not_do)
{
    assert_true(peer_machine_run(3, 400, 0, true, 0, 0).overwritten > 0);
}

/* ---- sizes ---- */

TEST(places_are_apart_and_inside)
{
    for (int ranks = 2; ranks <= SB_DIRECT_RANKS_MAX; ranks++)
        for (size_t message = 1; message < 700; message += 37) {
            const size_t bytes = sb_direct_mailbox_bytes(message, ranks), capacity = direct_capacity(bytes, ranks);
            const size_t slots = (bytes - DIRECT_HEADER_BYTES) / DIRECT_PACKET_BYTES;
            OWNED char *taken = xcalloc(slots, 1);
            for (uint32_t epoch = 6; epoch < 8; epoch++)
                for (int r = 0; r < ranks; r++)
                    for (size_t i = 0; i < capacity; i++) {
                        const size_t at = direct_half(epoch, ranks, capacity) + direct_region(r, capacity) + i;
                        assert_true(at < slots && !taken[at]++);
                    }
            const size_t packets = direct_packets(message);
            assert_true(packets * DIRECT_PAYLOAD_BYTES >= message);
            assert_true(packets <= capacity && 2 * direct_slice(packets, ranks) <= capacity);
            for (int a = SB_DIRECT_ONE_SHOT; a <= SB_DIRECT_REDUCE_SCATTER; a++) {
                const size_t most = sb_direct_message_bytes(bytes, ranks, (sb_direct_algorithm)a);
                const size_t full = direct_packets(most), slice = direct_slice(full, ranks);
                const size_t region = a == SB_DIRECT_ONE_SHOT ? full : a == SB_DIRECT_TWO_SHOT ? 2 * slice : slice;
                assert_true(most >= message && region <= capacity);
            }
        }
}

TEST(grids_cover_a_message_once)
{
    for (size_t n = 1; n < 1 << 20; n += n < 600 ? 1 : n / 7) {
        unsigned blocks, threads;
        direct_grid(n, &blocks, &threads);
        assert_true(blocks >= 1 && blocks <= DIRECT_BLOCKS_MAX);
        assert_true(threads >= 32 && threads <= DIRECT_THREADS_MAX && threads % 32 == 0);
        assert_true((size_t)(blocks - 1) * threads < n); /* no block without work */
        assert_true((size_t)blocks * threads >= n || blocks == DIRECT_BLOCKS_MAX);
    }
}

/* ---- the gate ---- */

TEST(a_gate_opens_once_its_number_was_begun)
{
    for (uint32_t number = UINT32_MAX - 3; number != 4; number++) { /* numbers go round */
        assert_false(direct_gate_is_open(number - 1, number));
        assert_true(direct_gate_is_open(number, number));
        assert_true(direct_gate_is_open(number + 1, number)); /* another rank may be one ahead */
    }
}

TEST(a_header_has_room_for_the_gate)
{
    assert_true(DIRECT_GATE_PASSED >= (int)sizeof(uint64_t)); /* behind the state of the all-reduces */
    assert_true(DIRECT_GATE_SLOTS >= DIRECT_GATE_PASSED + (int)sizeof(uint32_t));
    assert_true(DIRECT_GATE_SLOTS + SB_DIRECT_RANKS_MAX * (int)sizeof(uint32_t) <= DIRECT_HEADER_BYTES);
    assert_true(sb_direct_mailbox_bytes(0, 2) >= DIRECT_HEADER_BYTES);
}

/* ---- what is refused ---- */

static void refused(const sb_direct_collective *p, sb_status want, const char *sentence)
{
    assert_int_equal(sb_direct_check(p), want);
    text_has(sb_last_message(), sentence);
}

TEST(wrong_arguments_are_refused)
{
    _Alignas(128) static char boxes[3][128], in[64], out[64];
    static const uint32_t leave = 0;
    const sb_direct_collective good = {.rank = 1,
                                       .ranks = 3,
                                       .dtype = SB_BF16,
                                       .n = 8,
                                       .in = in,
                                       .out = out,
                                       .mailboxes = {boxes[0], boxes[1], boxes[2]},
                                       .mailbox_bytes = sb_direct_mailbox_bytes(64, 3),
                                       .leave = &leave};
    sb_direct_collective p = good;
    assert_int_equal(sb_direct_check(&p), SB_OK);
    p.out = in;
    assert_int_equal(sb_direct_check(&p), SB_OK);
    p.out = in + 4;
    refused(&p, SB_INVALID, "overlap");
    p.out = out + 2;
    refused(&p, SB_INVALID, "in and out must be 4-byte aligned");
    p = good, p.leave = (const uint32_t *)(in + 2);
    refused(&p, SB_INVALID, "leave 4-byte");
    p = good, p.ranks = 1;
    refused(&p, SB_UNSUPPORTED, "2 to 8 ranks, not 1");
    p = good, p.rank = 3;
    refused(&p, SB_INVALID, "rank 3");
    p = good, p.dtype = SB_TF32;
    refused(&p, SB_UNSUPPORTED, "fp32, bf16 or fp16");
    p = good, p.algorithm = 4;
    refused(&p, SB_INVALID, "no algorithm 4");
    p = good, p.n = 1000;
    refused(&p, SB_UNSUPPORTED, "1000 elements");
    p = good, p.n = SIZE_MAX / 2;
    refused(&p, SB_UNSUPPORTED, "elements");
    p = good, p.mailbox_bytes = 0;
    refused(&p, SB_UNSUPPORTED, "mailboxes of 0");
    p = good, p.mailboxes[2] = NULL;
    refused(&p, SB_INVALID, "rank 2 is NULL");
    p = good, p.mailboxes[0] = boxes[0] + 64;
    refused(&p, SB_INVALID, "128-byte aligned");
    p = good, p.leave = NULL;
    refused(&p, SB_INVALID, "leave is NULL");
    p = (sb_direct_collective){.rank = 1, .ranks = 3, .mailbox_bytes = good.mailbox_bytes, .dtype = SB_FP32};
    assert_int_equal(sb_direct_check(&p), SB_OK); /* no elements */
#ifndef HAVE_CUDA
    assert_int_equal(sb_cuda_direct_collective(&good, NULL), SB_UNSUPPORTED);
    assert_string_equal(sb_last_message(), "built without CUDA");
#endif
}

/* An all-gather of slices in place: the input is this rank's slice of the output, and of a reduce-scatter the other way. */
TEST(slices_may_be_in_place)
{
    _Alignas(128) static char boxes[3][128], all[96];
    static const uint32_t leave = 0;
    sb_direct_collective p = {.algorithm = SB_DIRECT_ALL_GATHER,
                              .rank = 1,
                              .ranks = 3,
                              .dtype = SB_BF16,
                              .n = 5, /* slices begin between two words */
                              .in = all + 10,
                              .out = all,
                              .mailboxes = {boxes[0], boxes[1], boxes[2]},
                              .mailbox_bytes = sb_direct_mailbox_bytes(10, 3),
                              .leave = &leave};
    assert_int_equal(sb_direct_check(&p), SB_OK);
    p.in = all + 20;
    refused(&p, SB_INVALID, "overlap");
    p.in = all + 30;
    assert_int_equal(sb_direct_check(&p), SB_OK);
    p.algorithm = SB_DIRECT_REDUCE_SCATTER, p.in = all, p.out = all + 10;
    assert_int_equal(sb_direct_check(&p), SB_OK);
    p.out = all;
    refused(&p, SB_INVALID, "overlap");
    p.out = all + 31;
    refused(&p, SB_INVALID, "in and out must be 2-byte aligned");
    p.n = 4, p.out = all + 34;
    refused(&p, SB_INVALID, "4-byte aligned");
    p.n = 1000, p.out = all + 40;
    refused(&p, SB_UNSUPPORTED, "1000 elements");
}

TEST(wrong_gathers_are_refused)
{
    _Alignas(128) static char slices[3][64], out[192];
    const sb_direct_all_gather good = {
        .rank = 1, .ranks = 3, .slices = {slices[0], slices[1], slices[2]}, .out = out, .bytes = 64};
    const struct {
        sb_direct_all_gather call;
        sb_status status;
        const char *says;
    } wrong[] = {
        {{.ranks = 9}, SB_UNSUPPORTED, "1 to 8 ranks, not 9"},
        {{.rank = 3, .ranks = 3}, SB_INVALID, "rank 3 is none of the 3"},
        {{.ranks = 2, .bytes = 24}, SB_INVALID, "multiple of 16"},
        {{.ranks = 2, .max_blocks = -1}, SB_INVALID, "-1 thread blocks"},
        {{.ranks = 1, .slices = {slices[0]}, .bytes = 16}, SB_INVALID, "out is NULL"},
        {{.ranks = 1, .slices = {slices[0] + 8}, .out = out, .bytes = 16}, SB_INVALID, "rank 0 is not 16-byte"},
        {{.ranks = 2, .slices = {slices[0]}, .out = out, .bytes = 16}, SB_INVALID, "rank 1 is NULL"},
        {{.ranks = 1, .slices = {out + 32}, .out = out, .bytes = 64}, SB_INVALID, "overlaps the slice of rank 0"}};
    assert_int_equal(sb_direct_gather_check(&good), SB_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(sb_direct_gather_check(&wrong[i].call), wrong[i].status);
        text_has(sb_last_message(), wrong[i].says);
    }
#ifndef HAVE_CUDA
    assert_int_equal(sb_cuda_direct_all_gather(&good, NULL), SB_UNSUPPORTED);
#endif
}

TEST(wrong_gates_are_refused)
{
    _Alignas(128) static char boxes[2][128];
    static const uint32_t leave = 0;
    const sb_direct_gate good = {.rank = 1, .ranks = 2, .mailboxes = {boxes[0], boxes[1]}, .leave = &leave};
    sb_direct_gate p = good;
    assert_int_equal(sb_direct_gate_check(&p), SB_OK);
    p.ranks = 1;
    assert_int_equal(sb_direct_gate_check(&p), SB_UNSUPPORTED);
    p = good, p.rank = 2;
    assert_int_equal(sb_direct_gate_check(&p), SB_INVALID);
    p = good, p.leave = NULL;
    assert_int_equal(sb_direct_gate_check(&p), SB_INVALID);
    p = good, p.mailboxes[0] = boxes[0] + 4;
    assert_int_equal(sb_direct_gate_check(&p), SB_INVALID);
#ifndef HAVE_CUDA
    assert_int_equal(sb_cuda_direct_gate(&good, NULL), SB_UNSUPPORTED);
#endif
}

static void pass_refused(const sb_direct_adamw *p, sb_status want, const char *sentence)
{
    assert_int_equal(sb_direct_adamw_check(p), want);
    text_has(sb_last_message(), sentence);
}

TEST(wrong_passes_are_refused)
{
    _Alignas(16) static char memory[8][64];
    static const sb_optimizer_state optimizer;
    const sb_direct_adamw good = {.rank = 1,
                                  .ranks = 2,
                                  .update = {.state = &optimizer,
                                             .dtype_param = SB_BF16,
                                             .dtype_grad = SB_FP32,
                                             .dtype_moments = SB_FP32,
                                             .master_kind = SB_MASTER_SPLIT,
                                             .n = 16,
                                             .master = memory[0],
                                             .m = memory[1],
                                             .v = memory[2],
                                             .beta1 = 0.9,
                                             .beta2 = 0.95,
                                             .eps = 1e-8},
                                  .params = {memory[3], memory[4]},
                                  .grads = {memory[5], memory[6]}};
    sb_direct_adamw p = good;
    assert_int_equal(sb_direct_adamw_check(&p), SB_OK);
    p.ranks = p.rank = 1;
    pass_refused(&p, SB_INVALID, "rank 1 is none of the 1");
    p = good, p.ranks = 9;
    pass_refused(&p, SB_UNSUPPORTED, "1 to 8 ranks, not 9");
    p = good, p.update.n = 6;
    pass_refused(&p, SB_UNSUPPORTED, "a multiple of 4");
    p = good, p.update.n = (size_t)1 << 32;
    pass_refused(&p, SB_UNSUPPORTED, "below 2^32");
    p = good, p.update.dtype_param = SB_FP16, p.update.master_kind = SB_MASTER_FP32;
    pass_refused(&p, SB_UNSUPPORTED, "no kernel");
    p = good, p.update.dtype_moments = SB_BF16;
    pass_refused(&p, SB_UNSUPPORTED, "no kernel");
    p = good, p.grads[0] = NULL;
    pass_refused(&p, SB_INVALID, "gradients of rank 0 are NULL");
    p = good, p.params[1] = NULL;
    pass_refused(&p, SB_INVALID, "param");
    p = good, p.params[0] = memory[3] + 8;
    pass_refused(&p, SB_INVALID, "16 bytes");
    p = good, p.sums = memory[6] + 4;
    pass_refused(&p, SB_INVALID, "sums must be aligned");
    p = good, p.update.beta1 = 1;
    pass_refused(&p, SB_INVALID, "beta");
    p = good, p.update.n = 0, p.params[0] = NULL;
    assert_int_equal(sb_direct_adamw_check(&p), SB_OK);
#ifndef HAVE_CUDA
    assert_int_equal(sb_cuda_direct_adamw(&good, NULL), SB_UNSUPPORTED);
    assert_string_equal(sb_last_message(), "built without CUDA");
#endif
}

/* ---- ranks that have no GPU ---- */

static option_spec option_table[] = {LAUNCH_RANKS("2", "2"), {0}};
static const variant_spec variant_table[] = {{"open", "mailboxes"}, {0}};
static const column_spec column_table[] = {{"opened", COLUMN_INT, true, "1 when they were"}, {0}};
static const bench_info info = TOY_BENCH("bench_peers", "Do peers open?");

static void peers_run(session *s, const bench_case *c, row *w)
{
    char why[512];
    peers *p = peers_open(launch_of(s), s->dev, NULL, (int)case_int(c, "ranks"), 1 << 20, why, sizeof why);
    row_int(w, "opened", p != NULL);
    if (!p)
        row_status_set(w, ROW_SKIP, "%s", why);
    peers_close(p);
}

TEST_IN_RANKS_FOLDER(without_gpus_it_is_skipped)
{
    assert_int_equal(ranks_run("bench_peers", "--device cpu --csv rows.csv --ranks 2,3"), EXIT_CODE_UNSUPPORTED);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 2);
    assert_non_null(strstr(ranks_text("rows.csv"), "skip,ranks on CPUs have no GPU's memory to reach"));
}

static int peers_main(int argc, char **argv)
{
    return launch_main(&info, &(session_hooks){.run = peers_run}, argc, argv);
}
PROGRAM("bench_peers", peers_main)
