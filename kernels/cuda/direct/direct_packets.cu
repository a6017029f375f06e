/* SPDX-License-Identifier: MIT */
/* All-reduces, all-gathers and reduce-scatters of GPUs that store into each other's memory; see kernels/shared/direct.h for
 * what, kernels/shared/direct_layout.h for where.
 *
 * Bound: a small message takes as long as one packet, about 2 us from launch to end: load, store over the link, poll, add.
 * Half of it is the launch, so calls of at most a packet a thread start before the kernel ahead of them in the stream has
 * ended, and wait there. Larger ones lose by it, 4 MiB a tenth: their blocks may share multiprocessors with those that wait.
 * Two-shot takes two such trips, an all-gather or reduce-scatter one. A large one sends 16/12 of its bytes, (n-1) times
 * one-shot, 2 (n-1)/n times two-shot, (n-1)/n times an all-gather or reduce-scatter.
 * A thread does packet i of the message, or of each slice, on every rank: it waits only for the
 * threads with its own number, so no block waits for one that might not have started for lack of room. */
#include "kernels/cuda/primitives/early.cuh"
#include "kernels/cuda/primitives/vector.cuh"
#include "kernels/shared/direct.h"
#include "kernels/shared/direct_layout.h"

namespace
{

struct alignas(DIRECT_PACKET_BYTES) packet {
    uint32_t w[DIRECT_WORDS], epoch;
};

struct words {
    uint32_t w[DIRECT_WORDS];
};

struct arguments {
    const uint32_t *in;
    uint32_t *out;
    unsigned long long *state;
    const uint32_t *leave;
    const packet *mine;                  /* own mailbox, after the header */
    packet *to[SB_DIRECT_RANKS_MAX - 1]; /* own region in the mailbox of rank + 1, rank + 2, ... */
    uint32_t packets, slice, capacity;
    uint32_t whole; /* words of 4 bytes in the message; a 16-bit element may be left */
    bool odd;
    int rank;
    bool keep; /* all-gather: the own slice is in its place */
};

/* ---- a packet's way ---- */

/* Stores words and epoch in one access, so that no reader sees one without the other. */
__device__ __forceinline__ void send(packet *to, const words &x, uint32_t epoch)
{
    const uint64_t low = x.w[0] | (uint64_t)x.w[1] << 32, high = x.w[2] | (uint64_t)epoch << 32;
    asm volatile("{\n\t"
                 ".reg .b128 packet;\n\t"
                 "mov.b128 packet, {%1, %2};\n\t"
                 "st.relaxed.sys.global.b128 [%0], packet;\n\t"
                 "}" ::"l"(to),
                 "l"(low), "l"(high)
                 : "memory");
}

__device__ __forceinline__ uint32_t poll(const packet *from, words &x)
{
    uint64_t low, high;
    asm volatile("{\n\t"
                 ".reg .b128 packet;\n\t"
                 "ld.relaxed.sys.global.b128 packet, [%2];\n\t"
                 "mov.b128 {%0, %1}, packet;\n\t"
                 "}"
                 : "=l"(low), "=l"(high)
                 : "l"(from)
                 : "memory");
    x.w[0] = (uint32_t)low;
    x.w[1] = (uint32_t)(low >> 32);
    x.w[2] = (uint32_t)high;
    return (uint32_t)(high >> 32);
}

/* The packets of the sources in the mask, at `from` in their regions. False: it is told to leave. */
template <int N>
__device__ __forceinline__ bool receive(const arguments &a, const packet *from, uint32_t epoch, unsigned sources,
                                        words (&x)[N])
{
    for (unsigned spins = 1;; spins++) {
        bool all = true;
#pragma unroll
        for (int r = 0; r < N; r++)
            if (sources >> r & 1)
                all &= poll(from + direct_region(r, a.capacity), x[r]) == epoch;
        if (all)
            return true;
        if (spins % 1024 == 0 && *(const volatile uint32_t *)a.leave)
            return false;
    }
}

template <int N>
__device__ __forceinline__ void send_to_all(const arguments &a, size_t at, const words &x, uint32_t epoch)
{
#pragma unroll
    for (int k = 0; k < N - 1; k++)
        send(a.to[k] + at, x, epoch);
}

/* ---- elements ---- */

/* All but the last packet are whole. */
__device__ __forceinline__ words load_words(const arguments &a, uint32_t i)
{
    const uint32_t *from = a.in + (size_t)i * DIRECT_WORDS;
    const uint32_t left = a.whole - i * DIRECT_WORDS;
    if (left >= DIRECT_WORDS)
        return {from[0], from[1], from[2]};
    words x = {};
#pragma unroll
    for (int k = 0; k < DIRECT_WORDS; k++)
        if (k < left)
            x.w[k] = from[k];
        else if (k == left && a.odd)
            x.w[k] = *(const uint16_t *)(from + k);
    return x;
}

__device__ __forceinline__ void store_words(const arguments &a, uint32_t i, const words &x)
{
    uint32_t *to = a.out + (size_t)i * DIRECT_WORDS;
    const uint32_t left = a.whole - i * DIRECT_WORDS;
#pragma unroll
    for (int k = 0; k < DIRECT_WORDS; k++)
        if (k < left)
            to[k] = x.w[k];
        else if (k == left && a.odd)
            *(uint16_t *)(to + k) = (uint16_t)x.w[k];
}

/* In the order of ranks, rounded once; x[rank] is `own`. */
template <typename T, int N>
__device__ __forceinline__ words add(const words (&x)[N], const words &own, int rank)
{
    constexpr int E = word<T>::N;
    words sum;
#pragma unroll
    for (int k = 0; k < DIRECT_WORDS; k++) {
        float total[E], each[E];
        word<T>::unpack(rank == 0 ? own.w[k] : x[0].w[k], total);
#pragma unroll
        for (int r = 1; r < N; r++) {
            word<T>::unpack(r == rank ? own.w[k] : x[r].w[k], each);
#pragma unroll
            for (int e = 0; e < E; e++)
                total[e] += each[e];
        }
        sum.w[k] = word<T>::pack(total);
    }
    return sum;
}

/* ---- kernels ---- */

/* All threads of the block; see kernels/shared/direct_layout.h. A block without others needs no atomic access, which takes longer
 * than the load of its packet beside it. */
__device__ __forceinline__ uint32_t begin_call(const arguments &a)
{
    __shared__ uint32_t epoch;
    if (gridDim.x == 1) {
        const unsigned long long before = *(const volatile unsigned long long *)a.state;
        __syncthreads(); /* all have read it */
        if (threadIdx.x == 0)
            *a.state = direct_after_one_block(before);
        return direct_epoch(before);
    }
    if (threadIdx.x == 0) {
        const unsigned long long before = atomicAdd(a.state, 1ull);
        if (direct_is_last(before, gridDim.x))
            atomicAdd(a.state, (unsigned long long)direct_turn(gridDim.x));
        epoch = direct_epoch(before);
    }
    __syncthreads();
    return epoch;
}

/* A packet is sent one step ahead of what is waited for, and loaded two steps ahead, so that the link waits for
 * neither. */
template <typename T, int N>
__global__ void __launch_bounds__(DIRECT_THREADS_MAX, 1) one_shot_all_reduce_kernel(const __grid_constant__ arguments a)
{
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    const unsigned others = ((1u << N) - 1) & ~(1u << a.rank);
    words own = {}, next = {}, x[N];
    wait_if_early();
    if (first < a.packets)
        own = load_words(a, first); /* on its way while the epoch is fetched */
    if (first + stride < a.packets)
        next = load_words(a, first + stride);
    const uint32_t epoch = begin_call(a);
    const size_t half = direct_half(epoch, N, a.capacity);
    if (first < a.packets)
        send_to_all<N>(a, half + first, own, epoch);
    for (uint32_t i = first; i < a.packets; i += stride) {
        if (i + stride < a.packets)
            send_to_all<N>(a, half + i + stride, next, epoch);
        const words mine = own;
        own = next;
        if (i + 2 * stride < a.packets)
            next = load_words(a, i + 2 * stride);
        if (!receive<N>(a, a.mine + half + i, epoch, others, x))
            return;
        store_words(a, i, add<T, N>(x, mine, a.rank));
    }
}

/* Packet i of the slices of the ranks after this one. */
template <int N>
__device__ __forceinline__ void load_parts(const arguments &a, uint32_t i, words (&x)[N - 1])
{
#pragma unroll
    for (int k = 0; k < N - 1; k++) {
        const uint32_t at = (uint32_t)((a.rank + 1 + k) % N) * a.slice + i;
        if (at < a.packets)
            x[k] = load_words(a, at);
    }
}

template <int N>
__device__ __forceinline__ void send_parts(const arguments &a, size_t half, uint32_t i, const words (&x)[N - 1],
                                           uint32_t epoch)
{
#pragma unroll
    for (int k = 0; k < N - 1; k++)
        if ((uint32_t)((a.rank + 1 + k) % N) * a.slice + i < a.packets)
            send(a.to[k] + half + i, x[k], epoch);
}

/* The ranks of the mask whose slice has a packet i. */
template <int N>
__device__ __forceinline__ unsigned with_packet(const arguments &a, uint32_t i, unsigned ranks)
{
    unsigned mask = 0;
#pragma unroll
    for (int r = 0; r < N; r++)
        mask |= r * a.slice + i < a.packets ? ranks & 1u << r : 0;
    return mask;
}

template <typename T, int N>
__global__ void __launch_bounds__(DIRECT_THREADS_MAX, 1) two_shot_all_reduce_kernel(const __grid_constant__ arguments a)
{
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    const unsigned others = ((1u << N) - 1) & ~(1u << a.rank);
    words part[N - 1], x[N];
    wait_if_early();
    if (first < a.slice)
        load_parts<N>(a, first, part);
    const uint32_t epoch = begin_call(a);
    const size_t half = direct_half(epoch, N, a.capacity);
    for (uint32_t i = first; i < a.slice; i += stride) {
        send_parts<N>(a, half, i, part, epoch);
        if (i + stride < a.slice)
            load_parts<N>(a, i + stride, part);
    }
    for (uint32_t i = first; i < a.slice; i += stride) {
        const uint32_t at = a.rank * a.slice + i;
        if (at >= a.packets)
            break;
        const words own = load_words(a, at);
        if (!receive<N>(a, a.mine + half + i, epoch, others, x))
            return;
        const words sum = add<T, N>(x, own, a.rank);
        send_to_all<N>(a, half + a.slice + i, sum, epoch);
        store_words(a, at, sum);
    }
    for (uint32_t i = first; i < a.slice; i += stride) {
        const unsigned from = with_packet<N>(a, i, others);
        if (!receive<N>(a, a.mine + half + a.slice + i, epoch, from, x))
            return;
#pragma unroll
        for (int r = 0; r < N; r++)
            if (from >> r & 1)
                store_words(a, r * a.slice + i, x[r]);
    }
}

/* ---- slices ---- */

/* Packet i of slice r. One that has an odd number of 16-bit elements may begin between two words, and goes by elements. Of
 * slices `packets` and `whole` say the size. */
__device__ __forceinline__ words load_slice(const arguments &a, int r, uint32_t i)
{
    const uint32_t at = i * DIRECT_WORDS;
    words x = {};
    if (a.odd) {
        const uint16_t *from = (const uint16_t *)a.in + (size_t)r * (2 * a.whole + 1) + 2 * at;
        const uint32_t left = 2 * (a.whole - at) + 1;
#pragma unroll
        for (int e = 0; e < 2 * DIRECT_WORDS; e++)
            if (e < left)
                x.w[e / 2] |= (uint32_t)from[e] << e % 2 * 16;
        return x;
    }
    const uint32_t *from = a.in + (size_t)r * a.whole + at;
#pragma unroll
    for (int k = 0; k < DIRECT_WORDS; k++)
        if (k < a.whole - at)
            x.w[k] = from[k];
    return x;
}

__device__ __forceinline__ void store_slice(const arguments &a, int r, uint32_t i, const words &x)
{
    const uint32_t at = i * DIRECT_WORDS;
    if (a.odd) {
        uint16_t *to = (uint16_t *)a.out + (size_t)r * (2 * a.whole + 1) + 2 * at;
        const uint32_t left = 2 * (a.whole - at) + 1;
#pragma unroll
        for (int e = 0; e < 2 * DIRECT_WORDS; e++)
            if (e < left)
                to[e] = (uint16_t)(x.w[e / 2] >> e % 2 * 16);
        return;
    }
    uint32_t *to = a.out + (size_t)r * a.whole + at;
#pragma unroll
    for (int k = 0; k < DIRECT_WORDS; k++)
        if (k < a.whole - at)
            to[k] = x.w[k];
}

template <int N>
__global__ void __launch_bounds__(DIRECT_THREADS_MAX, 1) all_gather_kernel(const __grid_constant__ arguments a)
{
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    const unsigned others = ((1u << N) - 1) & ~(1u << a.rank);
    words own = {}, x[N];
    wait_if_early();
    if (first < a.packets)
        own = load_slice(a, 0, first);
    const uint32_t epoch = begin_call(a);
    const size_t half = direct_half(epoch, N, a.capacity);
    for (uint32_t i = first; i < a.packets; i += stride) {
        send_to_all<N>(a, half + i, own, epoch);
        if (!a.keep)
            store_slice(a, a.rank, i, own);
        if (i + stride < a.packets)
            own = load_slice(a, 0, i + stride);
    }
    for (uint32_t i = first; i < a.packets; i += stride) {
        if (!receive<N>(a, a.mine + half + i, epoch, others, x))
            return;
#pragma unroll
        for (int r = 0; r < N; r++)
            if (others >> r & 1)
                store_slice(a, r, i, x[r]);
    }
}

/* Packet i of the slices of the ranks after this one. */
template <int N>
__device__ __forceinline__ void load_slices(const arguments &a, uint32_t i, words (&x)[N - 1])
{
#pragma unroll
    for (int k = 0; k < N - 1; k++)
        x[k] = load_slice(a, (a.rank + 1 + k) % N, i);
}

template <typename T, int N>
__global__ void __launch_bounds__(DIRECT_THREADS_MAX, 1) reduce_scatter_kernel(const __grid_constant__ arguments a)
{
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    const unsigned others = ((1u << N) - 1) & ~(1u << a.rank);
    words part[N - 1], x[N];
    wait_if_early();
    if (first < a.packets)
        load_slices<N>(a, first, part);
    const uint32_t epoch = begin_call(a);
    const size_t half = direct_half(epoch, N, a.capacity);
    for (uint32_t i = first; i < a.packets; i += stride) {
#pragma unroll
        for (int k = 0; k < N - 1; k++)
            send(a.to[k] + half + i, part[k], epoch);
        if (i + stride < a.packets)
            load_slices<N>(a, i + stride, part);
    }
    for (uint32_t i = first; i < a.packets; i += stride) {
        const words own = load_slice(a, a.rank, i);
        if (!receive<N>(a, a.mine + half + i, epoch, others, x))
            return;
        store_slice(a, 0, i, add<T, N>(x, own, a.rank));
    }
}

/* ---- launching ---- */

/* Whether kernels may start early on the current device; each thread asks once for the device that it uses. */
sb_status starts_early(bool *early)
{
    static thread_local int asked = -1;
    static thread_local bool answer;
    int device = 0, cc_major = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess && device != asked) {
        e = cudaDeviceGetAttribute(&cc_major, cudaDevAttrComputeCapabilityMajor, device);
        if (e == cudaSuccess)
            e = sb_cuda_starts_early(cc_major, &answer);
        asked = e == cudaSuccess ? device : -1;
    }
    *early = answer;
    return sb_cuda_status(e, "function attributes");
}

template <typename T, int N>
sb_status launch(const sb_direct_collective *p, const arguments &a, cudaStream_t stream)
{
    unsigned blocks, threads;
    bool early;
    const struct {
        void (*kernel)(arguments);
        const char *name;
    } of[] = {{one_shot_all_reduce_kernel<T, N>, "one-shot all-reduce"},
              {two_shot_all_reduce_kernel<T, N>, "two-shot all-reduce"},
              {all_gather_kernel<N>, "all-gather between GPUs"},
              {reduce_scatter_kernel<T, N>, "reduce-scatter between GPUs"}};
    const uint32_t positions = p->algorithm == SB_DIRECT_TWO_SHOT ? a.slice : a.packets;
    direct_grid(positions, &blocks, &threads);
    SB_TRY(starts_early(&early));
    early = early && positions <= blocks * threads;
    launch_early_if(early, of[p->algorithm].kernel, blocks, threads, 0, stream, a);
    return sb_cuda_launched(of[p->algorithm].name);
}

template <typename T>
sb_status launch_for_ranks(const sb_direct_collective *p, const arguments &a, cudaStream_t stream)
{
    switch (p->ranks) {
    case 2: return launch<T, 2>(p, a, stream);
    case 3: return launch<T, 3>(p, a, stream);
    case 4: return launch<T, 4>(p, a, stream);
    case 5: return launch<T, 5>(p, a, stream);
    case 6: return launch<T, 6>(p, a, stream);
    case 7: return launch<T, 7>(p, a, stream);
    default: return launch<T, 8>(p, a, stream);
    }
}

packet *slots_of(void *mailbox)
{
    return (packet *)((char *)mailbox + DIRECT_HEADER_BYTES);
}

} // namespace

sb_status sb_cuda_direct_collective(const sb_direct_collective *p, void *stream)
{
    const sb_status s = sb_direct_check(p);
    if (s != SB_OK || p->n == 0)
        return s;
    const size_t bytes = p->n * (size_t)sb_dtype_bytes(p->dtype),
                 capacity = direct_capacity(p->mailbox_bytes, p->ranks);
    arguments a = {};
    a.in = (const uint32_t *)p->in;
    a.out = (uint32_t *)p->out;
    a.state = (unsigned long long *)p->mailboxes[p->rank];
    a.leave = p->leave;
    a.mine = slots_of(p->mailboxes[p->rank]);
    for (int k = 0; k < p->ranks - 1; k++)
        a.to[k] = slots_of(p->mailboxes[(p->rank + 1 + k) % p->ranks]) + direct_region(p->rank, capacity);
    a.packets = (uint32_t)direct_packets(bytes);
    a.slice = (uint32_t)direct_slice(a.packets, p->ranks);
    a.capacity = (uint32_t)capacity;
    a.whole = (uint32_t)(bytes / 4);
    a.odd = bytes % 4 != 0;
    a.rank = p->rank;
    a.keep = (const char *)p->in == (char *)p->out + (size_t)p->rank * bytes;
    switch (p->dtype) {
    case SB_FP32: return launch_for_ranks<float>(p, a, (cudaStream_t)stream);
    case SB_BF16: return launch_for_ranks<__nv_bfloat16>(p, a, (cudaStream_t)stream);
    default: return launch_for_ranks<__half>(p, a, (cudaStream_t)stream);
    }
}
