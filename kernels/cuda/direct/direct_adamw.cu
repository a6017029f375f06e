/* SPDX-License-Identifier: MIT */
/* Sum of gradients, AdamW and the sending of parameters in one pass; see kernels/shared/direct_adamw.h.
 *
 * Bound: the link, of which each direction carries the gradients that others load and the parameters that are stored:
 * (n-1)/n of 4 + 2 bytes a parameter for fp32 gradients of bf16 parameters, which is 8 ms a billion at 380 GB/s and two
 * ranks. Memory moves 28 bytes for each parameter of a slice, and what the others load and store.
 * A load over the link takes 1 to 2 us, so 600 kB must be on their way: 32 SMs full of threads with 32 bytes each. So a
 * thread starts its loads from other ranks before those from its own memory, and blocks are small enough to fit
 * next to those of other kernels. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/adamw.cuh"
#include "kernels/shared/direct_adamw.h"
#include "kernels/shared/direct_layout.h"

namespace
{

constexpr int THREADS = 256;
/* Bounds the registers of a thread by 64, or 80 where it holds what many ranks sent. */
constexpr int blocks_per_sm(int ranks)
{
    return ranks > 4 ? 3 : 4;
}

template <typename P, typename G, typename M, sb_master KIND, int N>
struct arguments {
    static constexpr int QUADS = N <= 2 ? 2 : 1; /* units of four parameters that a thread has in flight */
    static constexpr bool ALL = N <= 2;          /* ranks is N */
    typename adamw_parameters<P, KIND>::master_type *master;
    M *m, *v;
    P *own; /* params[rank] */
    P *params[N];
    const G *grads[N];
    G *sums;
    const sb_optimizer_state *state;
    adamw_constants constants;
    uint64_t first; /* index in the model of the slice's first parameter */
    uint32_t quads;
    int ranks; /* at most N */
};

template <adamw_rounding ROUNDING, typename P, typename G, typename M, sb_master KIND, int N>
__global__ void __launch_bounds__(THREADS, blocks_per_sm(N))
    direct_adamw_kernel(const __grid_constant__ arguments<P, G, M, KIND, N> a)
{
    constexpr int QUADS = arguments<P, G, M, KIND, N>::QUADS;
    const uint32_t stride = gridDim.x * (THREADS * QUADS);
    for (uint32_t first = blockIdx.x * (THREADS * QUADS) + threadIdx.x; first < a.quads; first += stride) {
        /* start all loads, first those over the link */
        packed<G, 4> g[QUADS][N];
        adamw_parameters<P, KIND> p[QUADS];
        packed<M, 4> m[QUADS], v[QUADS];
        uint32_t at[QUADS];
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            /* Past the end the last quad is read again and not written, so that there is no branch between the loads. */
            at[i] = i == 0 ? first : min(first + i * THREADS, a.quads - 1);
#pragma unroll
            for (int r = 0; r < N; r++)
                if (a.ALL || r < a.ranks)
                    g[i][r].load_streaming(a.grads[r] + 4 * (size_t)at[i]);
        }
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            p[i].load(a.own + 4 * (size_t)at[i], a.master + 4 * (size_t)at[i]);
            m[i].load_streaming(a.m + 4 * (size_t)at[i]);
            v[i].load_streaming(a.v + 4 * (size_t)at[i]);
        }
        const adamw_scalars s = adamw_read(a.state, a.constants);
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            float pf[4], sum[4], mf[4], vf[4];
            const bool inside = first + i * THREADS < a.quads;
            /* the sum of gradients, in the order of ranks */
            g[i][0].unpack(sum);
#pragma unroll
            for (int r = 1; r < N; r++)
                if (a.ALL || r < a.ranks) {
                    float each[4];
                    g[i][r].unpack(each);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        sum[j] += each[j];
                }
            if (a.sums) {
                g[i][0].pack(sum);
                if (inside)
                    g[i][0].store_streaming(a.sums + 4 * (size_t)at[i]);
            }
            /* the update */
            p[i].unpack(pf);
            if (!a.sums && !s.skip) {
                m[i].unpack(mf);
                v[i].unpack(vf);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    adamw_update<ROUNDING>(pf[j], sum[j], mf[j], vf[j], s, a.constants);
                m[i].pack(mf);
                adamw_pack_squares<ROUNDING>(v[i], vf, a.first / SB_STOCHASTIC_GROUP + at[i], s);
                if (inside) {
                    m[i].store_streaming(a.m + 4 * (size_t)at[i]);
                    v[i].store_streaming(a.v + 4 * (size_t)at[i]);
                }
            }
            /* parameters to every rank */
            p[i].pack(pf);
            if (inside) {
                p[i].store(a.own + 4 * (size_t)at[i], a.master + 4 * (size_t)at[i]);
#pragma unroll
                for (int r = 0; r < N; r++)
                    if ((a.ALL || r < a.ranks) && a.params[r] != a.own)
                        p[i].param.store_streaming(a.params[r] + 4 * (size_t)at[i]);
            }
        }
    }
    __threadfence_system(); /* other ranks see these stores before they see that a later gate has opened */
}

template <adamw_rounding ROUNDING, typename P, typename G, typename M, sb_master KIND, int N>
sb_status launch(const sb_direct_adamw *p, cudaStream_t stream)
{
    using A = arguments<P, G, M, KIND, N>;
    const sb_adamw &u = p->update;
    A a = {};
    a.master = (decltype(a.master))u.master;
    a.m = (M *)u.m;
    a.v = (M *)u.v;
    a.own = (P *)p->params[p->rank];
    for (int r = 0; r < p->ranks; r++) {
        a.params[r] = (P *)p->params[r];
        a.grads[r] = (const G *)p->grads[r];
    }
    a.sums = (G *)p->sums;
    a.state = u.state;
    a.constants = adamw_constants_of(&u);
    a.first = u.first;
    a.quads = (uint32_t)(u.n / 4);
    a.ranks = p->ranks;
    int gpu = 0, sms = 0;
    SB_TRY(sb_cuda_status(cudaGetDevice(&gpu), "cudaGetDevice"));
    SB_TRY(sb_cuda_status(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, gpu), "the number of SMs"));
    const int64_t most = u.max_blocks ? u.max_blocks : blocks_per_sm(N) * sms;
    const int64_t wanted = ((int64_t)a.quads + THREADS * A::QUADS - 1) / (THREADS * A::QUADS);
    direct_adamw_kernel<ROUNDING, P, G, M, KIND, N>
        <<<(unsigned)(wanted < most ? wanted : most), THREADS, 0, stream>>>(a);
    return sb_cuda_launched("direct_adamw kernel");
}

template <adamw_rounding ROUNDING, typename P, typename G, typename M, sb_master KIND>
sb_status launch_for_ranks(const sb_direct_adamw *p, cudaStream_t stream)
{
    if (p->ranks == 1)
        return launch<ROUNDING, P, G, M, KIND, 1>(p, stream);
    if (p->ranks == 2)
        return launch<ROUNDING, P, G, M, KIND, 2>(p, stream);
    if (p->ranks <= 4)
        return launch<ROUNDING, P, G, M, KIND, 4>(p, stream);
    return launch<ROUNDING, P, G, M, KIND, 8>(p, stream);
}

template <typename G>
sb_status launch_for_bf16(const sb_direct_adamw *p, cudaStream_t stream)
{
    using B = __nv_bfloat16;
    if (p->update.master_kind == SB_MASTER_NONE)
        return launch_for_ranks<ADAMW_NEAREST, B, G, B, SB_MASTER_NONE>(p, stream);
    if (p->update.stochastic)
        return launch_for_ranks<ADAMW_STOCHASTIC, B, G, B, SB_MASTER_SPLIT>(p, stream);
    return launch_for_ranks<ADAMW_NEAREST, B, G, float, SB_MASTER_SPLIT>(p, stream);
}

/* ---- the gate ---- */

struct gate_arguments {
    unsigned char *boxes[SB_DIRECT_RANKS_MAX];
    const uint32_t *leave;
    int rank, ranks;
};

__device__ __forceinline__ uint32_t *slot_of(unsigned char *box, int source)
{
    return (uint32_t *)(box + DIRECT_GATE_SLOTS) + source;
}

/* A thread for each rank. It takes no room that others would miss while it waits. */
__global__ void __launch_bounds__(32, 1) direct_gate_kernel(const __grid_constant__ gate_arguments a)
{
    uint32_t *passed = (uint32_t *)(a.boxes[a.rank] + DIRECT_GATE_PASSED);
    const uint32_t number = *(volatile uint32_t *)passed + 1;
    const int r = threadIdx.x;
    __syncwarp();
    if (r == 0)
        *(volatile uint32_t *)passed = number;
    if (r >= a.ranks || r == a.rank)
        return;
    __threadfence_system();
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(slot_of(a.boxes[r], a.rank)), "r"(number) : "memory");
    for (unsigned spins = 1;; spins++) {
        uint32_t seen;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(slot_of(a.boxes[a.rank], r)) : "memory");
        if (direct_gate_is_open(seen, number))
            break;
        if (spins % 1024 == 0 && *(const volatile uint32_t *)a.leave)
            break;
    }
    __threadfence_system();
}

} // namespace

extern "C" sb_status sb_cuda_direct_adamw(const sb_direct_adamw *p, void *stream)
{
    const sb_status s = sb_direct_adamw_check(p);
    const sb_adamw &u = p->update;
    const cudaStream_t on = (cudaStream_t)stream;
    if (s != SB_OK || u.n == 0)
        return s;
    if (u.dtype_param != SB_BF16)
        return launch_for_ranks<ADAMW_NEAREST, float, float, float, SB_MASTER_NONE>(p, on);
    return u.dtype_grad == SB_BF16 ? launch_for_bf16<__nv_bfloat16>(p, on) : launch_for_bf16<float>(p, on);
}

extern "C" sb_status sb_cuda_direct_gate(const sb_direct_gate *p, void *stream)
{
    SB_TRY(sb_direct_gate_check(p));
    gate_arguments a = {};
    for (int r = 0; r < p->ranks; r++)
        a.boxes[r] = (unsigned char *)p->mailboxes[r];
    a.leave = p->leave;
    a.rank = p->rank;
    a.ranks = p->ranks;
    direct_gate_kernel<<<1, 32, 0, (cudaStream_t)stream>>>(a);
    return sb_cuda_launched("direct_gate kernel");
}
