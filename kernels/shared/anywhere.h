/* SPDX-License-Identifier: MIT */
/* SB_ANYWHERE: a small function that the host and the device both have, compiled from one text. Not part of the API. */
#pragma once

#ifdef __CUDACC__
#define SB_ANYWHERE __host__ __device__ __forceinline__
#else
#define SB_ANYWHERE static inline
#endif
