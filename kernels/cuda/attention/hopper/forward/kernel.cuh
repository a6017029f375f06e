/* SPDX-License-Identifier: MIT */
/* FlashAttention forward for Hopper: the kernel. Launched by host.cu.
 *
 * Tile: one, two or (D <= 96) three consumer warpgroups of 64 query rows each, as the host's model of their times says; key
 * blocks of BN = 128 (96 for three groups at D 80 and 96, 64 for fp32 at D > 64 and for D 256).
 * D is the number of columns computed, 16 to 256; in shared memory a tile has whole panels of 64, K and V of three groups at
 * D 80 and 96 of 32, which TMA fills up with zeros that no product reads.
 * Shared memory, bytes: D 128, two groups: Q 2 x 32K, K 2 x 32K, V 2 x 32K = 192K (fp32: Q 64K, the same K and V); D 80
 * and 96 as D 128, with three groups Q 2 x 48K, K and V 3 x 18K each in panels of 32 columns = 204K; D 256: Q 64K, K and V
 * 2 x 32K each = 192K; D <= 64, three groups: Q 2 x 24K, K and V 2 x 16K each = 112K; one group, D 128: Q 16K, K and V
 * 3 x 32K each = 208K (fp32: Q 32K).
 * Registers of a consumer thread: D 128: scores 64, operands of P 32, O 64, Q 32 = 192 of 232; D 64: 64, two sets of 32, 32;
 * D 256: 32, 16, 128; fp32: 32, 32, 64 and 64 for one block's P V; three groups: D 64: 64, 32, 32 = 128 of 160, D 96: 48,
 * 24, 48, D 80: 48, 24, 40, 20.
 *
 * Schedule (FlashAttention-3, arXiv 2407.08608, section 3): a producer warp loads by TMA through mbarrier rings; a
 * consumer issues the scores of block j, then P V of block j+1 (keys are walked from the diagonal to 0), does the
 * softmax of j while P V runs, then rescales O if a maximum has moved. The groups take turns at issuing, so that one's
 * softmax runs under the others' products. A group passes the blocks that none of its rows sees.
 *
 * At D 80 to 128, with two groups, and with three at D 80, Q is an operand from registers: that spares shared memory a third
 * of what scores read, and so power, which bounds long sequences. Numbers that steer a loop are told to be the same in every
 * lane (uniform): otherwise ptxas takes the loop for a divergent one and moves every descriptor to uniform registers before
 * each product.
 *
 * Many tiles: blocks stay and take one after the other, so that the next tile's loads run under this one's end. The producer
 * decodes them, whose divisions nobody waits for, and O leaves by TMA from the rows of Q that it came from, while the next
 * tile is computed; the slot of Q is given back after that.
 * Few tiles: a cluster of blocks shares one tile, each takes a range of its keys, and they merge their partial O, max
 * and sum through distributed shared memory: results are the same on every run. D 256 does without: its partial O is
 * larger than K and V, and its tiles are long enough. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_FORWARD_KERNEL_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_FORWARD_KERNEL_CUH

#include "kernels/cuda/attention/hopper/forward/loads.cuh"
#include "kernels/cuda/attention/hopper/forward/merge.cuh"
#include "kernels/cuda/attention/hopper/forward/softmax.cuh"
#include "kernels/cuda/hopper/warp.cuh"

namespace flash_sm90
{

template <class T, int PLANES, int D, int BN, int GROUPS, bool CAUSAL, bool CLUSTERS>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1) flash_forward(const __grid_constant__ forward_params p)
{
    using mem = forward_memory<PLANES, D, BN, GROUPS, CLUSTERS>;
    using tile_q = typename mem::tile_q;
    using tile_kv = typename mem::tile_kv;
    constexpr bool Q_REGISTERS = PLANES == 1 && D > 64 && D <= (GROUPS < 3 ? 128 : 80);
    constexpr bool TILE_STORES = PLANES == 1 && mem::Q_STAGES == 2; /* O leaves by way of Q: see store_tile_rows */
    /* Operands of P in two sets by turns: one is written while P V reads the other, so that the conversions run among the
     * exponentials and not behind them. (3.5 to 5 % at D 64. With less room in registers, so everywhere else, ptxas puts a
     * wait behind each product instead.) */
    constexpr bool TWO_SETS = PLANES == 1 && D <= 64 && GROUPS < 3;
    constexpr int PRODUCER_REGISTERS = GROUPS == 1 ? 64 : GROUPS == 2 ? 40 : 32;
    constexpr int CONSUMER_REGISTERS = GROUPS == 1 ? 240 : GROUPS == 2 ? 232 : 160;
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t base = smem_u32(smem);
    const forward_barriers bar = {base + mem::BARRIERS};
    const int warpgroup = uniform(threadIdx.x / 128);
    const int split = CLUSTERS ? cluster_size() : 1, rank = CLUSTERS ? cluster_rank() : 0;
    volatile forward_job *const job_slots = (volatile forward_job *)(smem + mem::JOBS);

    if (threadIdx.x == 0)
        forward_init<mem, GROUPS>(p, bar);
    __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            forward_produce<mem, BN, CAUSAL>(p, bar, base, job_slots, split, rank);
        if (split > 1) { /* the block's shared memory must outlive its readers */
            __syncwarp();
            cluster_wait();
            cluster_wait();
        }
        return;
    }

    registers_raise<CONSUMER_REGISTERS>();
    const int wg = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int row_local = wg * 64 + warp * 16 + lane / 4; /* and + 8 */
    const int column = 2 * (lane % 4);
    const int offset = p.seq_k - p.seq_q; /* causal: query i sees keys j <= i + offset */
    const bool leader = lane == 0;
    const float c = p.scale_log2;

    wait_for_previous_kernel();
    if (GROUPS > 1 && wg == GROUPS - 1)
        named_arrive(TURN_BARRIER, 256); /* the first turn is group 0's */
    ring<mem::Q_STAGES> q;
    ring<mem::STAGES> k, v;
    ring<2> turn;
    auto next_job = [&] {
        mbarrier_wait(bar.job_full(turn.slot), turn.parity);
        const volatile forward_job &slot = job_slots[turn.slot];
        forward_job job = {};
        job.bh = read_uniform(slot.bh), job.b = read_uniform(slot.b), job.h = read_uniform(slot.h);
        job.row_first = read_uniform(slot.row_first);
        job.block_begin = read_uniform(slot.block_begin), job.block_end = read_uniform(slot.block_end);
        __syncwarp();
        if (leader)
            mbarrier_arrive(bar.job_empty(turn.slot));
        turn.next();
        return job;
    };
    auto take_turn = [&] {
        if (GROUPS > 1)
            named_sync(TURN_BARRIER + wg, 256);
    };
    auto pass_turn = [&] {
        if (GROUPS > 1)
            named_arrive(TURN_BARRIER + (wg + 1) % GROUPS, 256);
    };
    auto release_k = [&] {
        if (leader)
            mbarrier_arrive(bar.k_empty(k.slot));
        k.next();
    };
    auto release_v = [&] {
        if (leader)
            mbarrier_arrive(bar.v_empty(v.slot));
        v.next();
    };
    auto release_q = [&] {
        __syncwarp(); /* Q in registers: every lane has read its own */
        if (leader)
            mbarrier_arrive(bar.q_empty(q.slot));
        q.next();
    };

    using out = typename memory_type<T, PLANES>::type;
    float s[BN / 2], o[D / 2], factor[2], inverse[2];
    float part[PLANES == 1 ? 1 : D / 2]; /* fp32: P V of one block, added by rounding (see mma_rs_rounded) */
    using operands = uint32_t[PLANES][BN / 4];
    operands prob, next_prob; /* next_prob: if TWO_SETS */
    uint32_t query[Q_REGISTERS ? D / 16 : 1][4];
    row_state rows;
    bool leaving = false; /* if TILE_STORES: O of the tile before leaves from the other slot of Q */

    /* End of the blocks that a row of this group sees. */
    auto own_end = [&](const forward_job &job) {
        const int row = job.row_first + wg * 64;
        return row < p.seq_q ? min(job.block_end, forward_blocks<64, BN, CAUSAL>(p, row)) : job.block_begin;
    };
    auto target_of = [&](const forward_job &job) {
        return merge_target{(out *)p.o + job.b * p.o_stride_b + job.h * p.o_stride_h,
                            p.o_stride_s,
                            p.lse + (int64_t)job.bh * p.seq_q,
                            job.row_first,
                            p.seq_q,
                            p.head_dim,
                            p.scale,
                            c};
    };
    auto issue_scores = [&] {
        const uint32_t k_addr = base + mem::K + k.slot * tile_kv::BYTES;
        wgmma_fence();
        if constexpr (Q_REGISTERS) {
            const uint64_t b0 = tile_kv::descriptor(k_addr, 16);
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                wgmma_any<T, BN, 0>(s, query[i], b0 + (tile_kv::step(i) >> 4), i != 0);
        } else {
            mma_abt<T, tile_q, tile_kv, BN, D>(s, base + mem::Q + q.slot * tile_q::BYTES + wg * 64 * ROW_BYTES, k_addr);
        }
        wgmma_commit();
    };
    auto issue_values = [&](auto &sum, const operands &from, int accumulate) {
        mbarrier_wait(bar.v_full(v.slot), v.parity);
        wgmma_fence();
        mma_rs<T, tile_kv, D>(sum, from, base + mem::V + v.slot * tile_kv::BYTES, accumulate);
        wgmma_commit();
    };
    auto pin_operands = [&](operands &x) {
#pragma unroll
        for (int i = 0; i < PLANES; i++)
            pin(x[i]);
    };
    auto scores_to_probabilities = [&](const forward_job &job, int j) {
        const int row = job.row_first + row_local;
        const bool tail = (j + 1) * BN > p.seq_k || (CAUSAL && (j + 1) * BN > job.row_first + wg * 64 + offset + 1);
        if (tail) {
            int limit[2];
#pragma unroll
            for (int r = 0; r < 2; r++)
                limit[r] = min(p.seq_k, CAUSAL ? row + 8 * r + offset + 1 : p.seq_k) - j * BN - column;
            mask_block<BN>(s, limit);
        }
        return softmax_block<PLANES == 1, BN>(s, rows, factor, c);
    };
    auto start_rows = [&] {
#pragma unroll
        for (int r = 0; r < 2; r++)
            rows.max[r] = -INFINITY, rows.sum[r] = 0;
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0;
    };
    auto wait_for_queries = [&] {
        mbarrier_wait(bar.q_full(q.slot), q.parity);
        if constexpr (Q_REGISTERS)
            load_queries<tile_q>(query, base + mem::Q + q.slot * tile_q::BYTES + wg * 64 * ROW_BYTES);
        if constexpr (TILE_STORES) {
            if (leaving) {
                tma_store_wait_read();
                __syncwarp();
                if (leader)
                    mbarrier_arrive(bar.q_empty(q.slot ^ 1));
            }
            leaving = true;
        } else if constexpr (Q_REGISTERS) {
            release_q();
        }
    };

    for (forward_job job = next_job(); job.bh >= 0; job = next_job()) {
        const int last = own_end(job), row = job.row_first + row_local;
        start_rows();
        if (job.block_begin < job.block_end) {
            wait_for_queries();
            for (int j = job.block_end - 1; j >= last; j--) { /* no row of this group sees these keys */
                mbarrier_wait(bar.k_full(k.slot), k.parity);  /* else the arrival might count for the loads before */
                release_k();
                if (j > job.block_begin) {
                    take_turn();
                    pass_turn();
                }
                mbarrier_wait(bar.v_full(v.slot), v.parity);
                release_v();
            }
            if (last > job.block_begin) {
                mbarrier_wait(bar.k_full(k.slot), k.parity);
                issue_scores();
                wgmma_wait<0>();
                pin(s);
                release_k();
                scores_to_probabilities(job, last - 1);
                to_operand<T, PLANES, BN / 4>(prob, s);
            }
            /* Scores of block j under P V of block j + 1, whose P is in `from`; leaves P of block j in `to`. */
            auto step = [&](int j, operands &from, operands &to) {
                mbarrier_wait(bar.k_full(k.slot), k.parity);
                take_turn();
                pin_operands(from);
                pin(o);
                issue_scores();
                if constexpr (PLANES == 1)
                    issue_values(o, from, 1);
                else
                    issue_values(part, from, 0);
                pass_turn();
                wgmma_wait<1>();
                pin(s);
                release_k();
                const bool moved = scores_to_probabilities(job, j);
                auto values_are_there = [&] {
                    wgmma_wait<0>();
                    if constexpr (PLANES == 1)
                        pin(o);
                    else
                        pin(part);
                    pin_operands(from);
                };
                if constexpr (TWO_SETS)
                    to_operand<T, PLANES, BN / 4>(to, s);
                /* A wait on each side of a branch: one behind the softmax ptxas moves in front of it. (fp32 has no
                 * registers for more than one way to O.) */
                if (moved) {
                    values_are_there();
#pragma unroll
                    for (int i = 0; i < D / 2; i++)
                        o[i] = (PLANES == 1 ? o[i] : o[i] + part[i]) * factor[i >> 1 & 1];
                } else {
                    values_are_there();
                }
                release_v();
                if constexpr (!TWO_SETS)
                    to_operand<T, PLANES, BN / 4>(to, s);
            };
            int j = last - 2;
            if constexpr (TWO_SETS) {
                for (; j > job.block_begin; j -= 2) {
                    step(j, prob, next_prob);
                    step(j - 1, next_prob, prob);
                }
                if (j == job.block_begin) {
                    step(j, prob, next_prob);
#pragma unroll
                    for (int i = 0; i < BN / 4; i++)
                        prob[0][i] = next_prob[0][i];
                }
            } else {
                for (; j >= job.block_begin; j--)
                    step(j, prob, prob);
            }
            if constexpr (!Q_REGISTERS && !TILE_STORES)
                release_q();
            if (last > job.block_begin) {
                pin_operands(prob);
                pin(o);
                issue_values(o, prob, 1);
                wgmma_wait<0>();
                pin(o);
                release_v();
#pragma unroll
                for (int r = 0; r < 2; r++)
                    rows.sum[r] = quad_sum(rows.sum[r]);
            }
        }
        if constexpr (CLUSTERS) {
            if (split > 1) { /* a cluster has one job */
                merge_cluster<mem, out, D, GROUPS>(smem, split, rank, target_of(job), o, rows, row_local);
                break;
            }
        }
        finish_rows(target_of(job), rows, row, inverse);
        if constexpr (TILE_STORES) {
            if (job.block_begin < job.block_end) {
                const int first = uniform(wg * 64 + warp * 16);
                store_tile_rows<T, tile_q, D>(base + mem::Q + q.slot * tile_q::BYTES + first * ROW_BYTES, &p.o_map, o,
                                              inverse, job.row_first + first, job.h, job.b);
                q.next();
                continue;
            }
        }
        store_rows<out, D>(target_of(job), o, inverse, row);
    }
    if (TILE_STORES)
        tma_store_wait_read(); /* the block's shared memory must outlive them */
    if (GROUPS > 1 && wg == 0)
        named_sync(TURN_BARRIER, 256); /* takes the turn that is left over */
}

template <class T, int PLANES, int D, int BN, int GROUPS, bool CLUSTERS>
forward_instance make_forward_instance()
{
    return {D,
            GROUPS,
            BN,
            forward_memory<PLANES, D, BN, GROUPS, CLUSTERS>::PANEL,
            forward_memory<PLANES, D, BN, GROUPS, CLUSTERS>::BYTES,
            CLUSTERS,
            flash_forward<T, PLANES, D, BN, GROUPS, false, CLUSTERS>,
            flash_forward<T, PLANES, D, BN, GROUPS, true, CLUSTERS>};
}

} // namespace flash_sm90
#endif
