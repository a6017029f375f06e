/* SPDX-License-Identifier: MIT */
/* The CUDA context: what the ops ask of their device, its cuBLAS handle, and errors as sb_status. Not part of the API. */
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "kernels/shared/internal.h"

SB_C_BEGIN

struct sb_context {
    int ordinal;
    int cc_major, cc_minor;
    int sm_count;
    int smem_optin_bytes; /* the most shared memory a block may ask for */
    bool starts_early;    /* see primitives/early.cuh: the device can, and the code was compiled for one that can */
    cublasHandle_t cublas;
    void *cublas_workspace; /* our own: cuBLAS then allocates nothing inside an op or a stream capture */
    size_t cublas_workspace_bytes;
    int clusters[4]; /* see hopper/cluster_split.h; 0: not asked yet */
    unsigned *zeros; /* 64 device words for kernels that hand out work; every kernel leaves them zero */
    struct matmul_plans *matmul_plans;                     /* see matmul/plan.h; NULL: no matmul yet */
    void (*matmul_plans_free)(struct matmul_plans *plans); /* set with them, since this folder calls no other */
};

sb_status sb_cuda_create(int ordinal, sb_context **out);
void sb_cuda_destroy(sb_context *ctx);

/* Whether a device of this compute capability, the current one, runs code that waits: only that may start early. */
cudaError_t sb_cuda_starts_early(int cc_major, bool *early);

/* SB_OK, or SB_DEVICE_ERROR with "<what>: <the library's text>". */
sb_status sb_cuda_status(cudaError_t e, const char *what);
sb_status sb_cublas_status(cublasStatus_t s, const char *what);
/* Status of the last launch; call it after every launch. */
sb_status sb_cuda_launched(const char *kernel);

/* Makes the cuBLAS handle enqueue on `stream` with our workspace. */
sb_status sb_cublas_stream(sb_context *ctx, void *stream);
/* cuBLAS's names for a dtype. */
cudaDataType_t sb_cublas_type(sb_dtype t);
cublasComputeType_t sb_cublas_compute(sb_dtype t);

SB_C_END
