/* Stands in for kernels/cuda/ in a build without CUDA. */
#include "kernels/kernels.h"

const sb_kernels *sb_kernels_cuda(void)
{
    return NULL;
}
