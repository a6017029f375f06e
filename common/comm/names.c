/* SPDX-License-Identifier: MIT */
/* Names of collectives, names and sizes of their dtypes. */
#include "common/comm/internal.h"

const char *const comm_op_names[] = {[COMM_ALL_REDUCE] = "all_reduce",
                                     [COMM_REDUCE_SCATTER] = "reduce_scatter",
                                     [COMM_ALL_GATHER] = "all_gather",
                                     [COMM_BROADCAST] = "broadcast",
                                     [COMM_REDUCE] = "reduce",
                                     [COMM_ALL_TO_ALL] = "all_to_all",
                                     [COMM_BARRIER] = "barrier",
                                     [COMM_SEND] = "send",
                                     [COMM_RECV] = "recv"};

size_t comm_dtype_bytes(comm_dtype t)
{
    return t == COMM_FP32 || t == COMM_INT32 ? 4 : 2;
}

const char *comm_dtype_name(comm_dtype t)
{
    static const char *const names[] = {
        [COMM_FP32] = "fp32", [COMM_BF16] = "bf16", [COMM_FP16] = "fp16", [COMM_INT32] = "int32"};
    return names[t];
}
