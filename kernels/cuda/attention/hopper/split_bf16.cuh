/* fp32 tensors as two bf16 planes, hi = bf16(x) and lo = bf16(x - hi), each rounded to nearest. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_SPLIT_BF16_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_SPLIT_BF16_CUH

#include "kernels/kernels.h"

enum { PLANES_MAX_TENSORS = 4 };

/* A (B, H, S, D) fp32 tensor to bf16 planes [2][B][H][S][D], contiguous. */
struct planes_tensor {
    sb_tensor from;
    void *to;
    int heads, seq;
};
/* Up to PLANES_MAX_TENSORS tensors of the same batch and head_dim in one launch. */
sb_status planes_split(const planes_tensor *tensors, int count, int batch, int head_dim, void *stream);
/* Bytes of both planes, rounded up to 256. */
size_t planes_bytes(int batch, int heads, int seq, int head_dim);
/* The planes as one (2B, H, S, D) tensor, plane p of batch b at index p*B + b. */
sb_tensor planes_view(const planes_tensor *t, int head_dim);

#endif
