/* SPDX-License-Identifier: MIT */
/* GPUs that a build has no code for, and drivers that are older than it: one sentence and exit code 2 before anything runs.
 * With CUDA, the runtime's answers are made up (--wrap in the Makefile), so no GPU is needed. */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "common/device/device.h"

TEST(which_code_runs_where)
{
    static const struct {
        int major, minor;
        const char *archs;
        bool runs;
    } table[] = {
        {9, 0, "90", true},         {8, 0, "80,90", true},      {8, 0, "90", false},        {9, 0, "80", false},
        {8, 9, "80", true},         {8, 9, "86", true},         {8, 0, "86", false},        {10, 0, "90", false},
        {10, 0, "90,100", true},    {10, 3, "100", true},       {12, 0, "100", false},      {12, 1, "120", true},
        {10, 3, "100a", false},     {10, 0, "100a", true},      {10, 3, "100f", true},      {12, 0, "100f", false},
        {10, 0, "90,90+ptx", true}, {8, 0, "90,90+ptx", false}, {12, 0, "80+ptx,80", true}, {12, 0, "100f+ptx", false},
        {10, 3, "100a+ptx", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const device_info gpu = {.compute_major = table[i].major, .compute_minor = table[i].minor};
        if (!device_misfit(&gpu, table[i].archs) != table[i].runs)
            fail_msg("code for %s %s on %d.%d", table[i].archs, table[i].runs ? "does not run" : "runs", table[i].major,
                     table[i].minor);
    }
}

TEST(the_sentence_says_what_to_do)
{
    assert_string_equal(
        device_misfit(&(device_info){.name = "NVIDIA A100", .compute_major = 8}, "90"),
        "NVIDIA A100 has compute capability 8.0, and this build is for 90; make CUDA_ARCH=80 builds for this GPU");
    assert_string_equal(
        device_misfit(&(device_info){.name = "Tesla T4", .compute_major = 7, .compute_minor = 5}, "75"),
        "Tesla T4 has compute capability 7.5, and the kernels need 8.0 or above; --device cpu measures the CPU");
}

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>

cudaError_t __wrap_cudaGetDeviceCount(int *count);
cudaError_t __wrap_cudaDriverGetVersion(int *version);
cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *p, int ordinal);
cudaError_t __wrap_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int ordinal); /* its name in CUDA 12 */

static cudaError_t driver_says;

cudaError_t __wrap_cudaGetDeviceCount(int *count)
{
    *count = 1;
    return driver_says;
}

cudaError_t __wrap_cudaDriverGetVersion(int *version)
{
    *version = 11080;
    return cudaSuccess;
}

cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *p, int ordinal)
{
    (void)ordinal;
    memset(p, 0, sizeof *p);
    strcpy(p->name, "Tesla T4");
    p->major = 7, p->minor = 5;
    return cudaSuccess;
}

cudaError_t __wrap_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int ordinal)
{
    return __wrap_cudaGetDeviceProperties(p, ordinal);
}

/* A process that opens the GPU, or looks at it, ends with exit code 2 and says this. */
static void expect_end(const char *folder, bool look, const char *part)
{
    OWNED char *path = folder_path(folder, "err");
    int status;
    const pid_t child = fork();
    if (child == 0) {
        device_info info;
        if (!freopen(path, "w", stderr))
            _exit(99);
        if (look)
            device_look(DEVICE_CUDA, 0, &info);
        else
            device_open(DEVICE_CUDA, 0);
        _exit(98);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    OWNED char *said = file_text(path);
    if (WEXITSTATUS(status) != EXIT_CODE_USAGE || !strstr(said, part) || strchr(said, '\n') != strrchr(said, '\n'))
        fail_msg("exit code %d: %s", WEXITSTATUS(status), said);
}

TEST_IN_FOLDER(a_program_ends_before_it_runs)
{
    static const char old_driver[] = "the NVIDIA driver is for CUDA 11.8 at most, and this build needs ";
    driver_says = cudaErrorInsufficientDriver;
    expect_end(*state, false, old_driver);
    expect_end(*state, true, old_driver);
    driver_says = cudaSuccess;
    expect_end(*state, false, "Tesla T4 has compute capability 7.5");
}
#endif
