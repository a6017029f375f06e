/* SPDX-License-Identifier: MIT */
/* Short names and lanes of kernels, and names that stay. */
#include "tests/support/test.h"

#include "common/record/names.h"

TEST(kernels_have_short_names)
{
    static const struct {
        const char *kernel, *name;
        record_lane lane;
    } cases[] = {
        {"_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE", "all_reduce",
         LANE_COMMUNICATION},
        {"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter",
         LANE_COMMUNICATION},
        {"_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE", "all_gather", LANE_COMMUNICATION},
        {"ncclDevKernel_Broadcast_RING_LL", "broadcast", LANE_COMMUNICATION},
        {"ncclDevKernel_SendRecv", "send_recv", LANE_COMMUNICATION},
        {"ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce", LANE_COMMUNICATION},
        {"ncclSomethingNew", "ncclSomethingNew", LANE_COMMUNICATION},
        {"_ZN46_GLOBAL__N__2b4441d7_14_direct_copy_cu_4720e4b24direct_all_reduce_kernelIfEEvPT_", "all_reduce",
         LANE_COMMUNICATION},
        {"_ZN50_GLOBAL__N__2b4441d7_17_direct_packets_cu_4720e4bd26one_shot_all_reduce_kernelILi2EEEvNS_9argumentsE",
         "all_reduce", LANE_COMMUNICATION},
        {"_ZN50_GLOBAL__N__14490d15_17_direct_packets_cu_b37b8ffb21reduce_scatter_kernelIfLi8EEEvNS_9argumentsE",
         "reduce_scatter", LANE_COMMUNICATION},
        {"_ZN50_GLOBAL__N__14490d15_17_direct_packets_cu_b37b8ffb17all_gather_kernelILi8EEEvNS_9argumentsE",
         "all_gather", LANE_COMMUNICATION},
        {"_ZN40_GLOBAL__N__2b4441d7_8_adamw_cu_4720e4bd12adamw_kernelI6__halfffL9sb_master0EEEvNS_7streamsE", "adamw",
         LANE_COMPUTE},
        {"void (anonymous namespace)::adamw_kernel<float, 4>(int)", "adamw", LANE_COMPUTE},
        {"_ZN12flash_hopper13flash_forwardI13__nv_bfloat16Li1ELi64EEEvNS_14forward_paramsE", "flash forward",
         LANE_COMPUTE},
        {"_ZN12flash_hopper22flash_backward_prepareI6__halfEEvNS_14prepare_paramsE", "flash backward", LANE_COMPUTE},
        {"_ZN14flash_portable7forwardINS_4tf32ELi16EEEv12sb_attention", "flash forward", LANE_COMPUTE},
        {"_ZN14flash_portable9row_statsIfEEv12sb_attention", "flash backward", LANE_COMPUTE},
        {"_ZN7cutlass7Kernel2I57cutlass_80_tensorop_s16816gemm_bf16_256x64_32x4_tn_align8EEvNT_6ParamsE", "gemm",
         LANE_COMPUTE},
        {"nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "gemm", LANE_COMPUTE},
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tt_n_tilesize64x128x64", "gemm", LANE_COMPUTE},
        {"_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiEEvNS_18cublasSplitKParamsIT_EE", "gemm", LANE_COMPUTE},
        {"_ZN11matmul_fp3218matmul_fp32_kernelILb0ELb0EEEvNS_6paramsE", "gemm", LANE_COMPUTE},
        {"_ZN43_GLOBAL__N__1dd81297_10_rmsnorm_cu_3c14e01d22rmsnorm_forward_kernelIffLb0EEEv10sb_rmsnormf",
         "rmsnorm_forward", LANE_COMPUTE},
        {"_Z16token_bin_kernelPKii10token_sort", "token_bin", LANE_COMPUTE},
        {"_ZL11rope_kernelPf", "rope", LANE_COMPUTE},
        {"_Z99short", "_Z99short", LANE_COMPUTE},
        {"_Z", "_Z", LANE_COMPUTE},
        {"", "", LANE_COMPUTE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = NULL;
        assert_int_equal(record_classify(cases[i].kernel, &name), cases[i].lane);
        assert_string_equal(name, cases[i].name);
    }
}

TEST(equal_names_are_one)
{
    char text[32];
    const char *first = record_name("name 7");
    for (int i = 0; i < 2000; i++) { /* the table grows */
        snprintf(text, sizeof text, "name %d", i);
        assert_string_equal(record_name(text), text);
    }
    assert_ptr_equal(record_name("name 7"), first);
}
