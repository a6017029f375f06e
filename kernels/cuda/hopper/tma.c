/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/hopper/tma.h"

#include <cuda_runtime_api.h>

#include "kernels/shared/internal.h"

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Asked of the running driver, so that nothing links against libcuda. */
static encode_fn find_encode(void)
{
    static encode_fn found;
    if (!found) {
        void *f = NULL;
        enum cudaDriverEntryPointQueryResult how;
#if CUDART_VERSION >= 12050
        const cudaError_t e =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &how);
#else
        const cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &how);
#endif
        if (e == cudaSuccess && how == cudaDriverEntryPointSuccess)
            found = (encode_fn)f;
    }
    return found;
}

static sb_status encode(CUtensorMap *map, CUtensorMapDataType type, int rank, void *data, const cuuint64_t *extent,
                        const cuuint64_t *stride_bytes, const cuuint32_t *box, CUtensorMapSwizzle swizzle)
{
    const cuuint32_t step[5] = {1, 1, 1, 1, 1};
    encode_fn f = find_encode();
    if (!f)
        return sb_error(SB_DEVICE_ERROR, "the driver has no cuTensorMapEncodeTiled (CUDA 12 or newer is needed)");
    CUresult r = f(map, type, (cuuint32_t)rank, data, extent, stride_bytes, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS)
        return sb_error(SB_DEVICE_ERROR, "cuTensorMapEncodeTiled gave error %d", (int)r);
    return SB_OK;
}

static CUtensorMapDataType type_of(sb_dtype dtype)
{
    return dtype == SB_FP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

/* Rows of a box that are 128 or 64 bytes long have the swizzle of that length. */
static CUtensorMapSwizzle swizzle_of(int columns)
{
    return columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
           : columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                           : CU_TENSOR_MAP_SWIZZLE_NONE;
}

sb_status tma_map_tensor(CUtensorMap *map, sb_dtype dtype, const sb_tensor *t, int batch, int heads, int seq,
                         int head_dim, int rows)
{
    return tma_map_panels(map, dtype, t, batch, heads, seq, head_dim, rows, 64);
}

sb_status tma_map_panels(CUtensorMap *map, sb_dtype dtype, const sb_tensor *t, int batch, int heads, int seq,
                         int head_dim, int rows, int columns)
{
    const cuuint64_t extent[4] = {(cuuint64_t)head_dim, (cuuint64_t)seq, (cuuint64_t)heads, (cuuint64_t)batch};
    const cuuint64_t stride_bytes[3] = {2 * (cuuint64_t)t->stride_s, 2 * (cuuint64_t)t->stride_h,
                                        2 * (cuuint64_t)t->stride_b};
    const cuuint32_t box[4] = {(cuuint32_t)columns, (cuuint32_t)rows, 1, 1};
    return encode(map, type_of(dtype), 4, t->data, extent, stride_bytes, box, swizzle_of(columns));
}

sb_status tma_map_matrix(CUtensorMap *map, sb_dtype dtype, const void *data, int64_t rows, int64_t columns, int64_t ld,
                         int box_rows, int box_columns)
{
    const cuuint64_t extent[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t stride_bytes[1] = {2 * (cuuint64_t)ld};
    const cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    return encode(map, type_of(dtype), 2, (void *)data, extent, stride_bytes, box, swizzle_of(box_columns));
}

sb_status tma_map_rows(CUtensorMap *map, const float *data, int64_t rows, int64_t columns, int width)
{
    const cuuint64_t extent[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t stride_bytes[1] = {4 * (cuuint64_t)columns};
    const cuuint32_t box[2] = {(cuuint32_t)width, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)data, extent, stride_bytes, box,
                  CU_TENSOR_MAP_SWIZZLE_NONE);
}
