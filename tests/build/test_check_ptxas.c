/* SPDX-License-Identifier: MIT */
/* The check for kernels that must not spill (common/build/check_ptxas.sh), on made-up logs: it ends the build where the
 * list was measured, and warns in one line elsewhere; and what of it need not be asked again (judged.sh). Run from the
 * project's root. */
#include "tests/support/test.h"

static const char list[] =
    "# kernels\nmeasured 13.0 sm_90 sm_90a\njudged 0123\nadamw_kernel # of both\nsoftmax_kernel\n";

#define KERNEL(name, arch, bytes)                                                                                      \
    "ptxas info    : Compiling entry function '" name "' for '" arch "'\n"                                             \
    "ptxas info    : Function properties for " name "\n"                                                               \
    "    16 bytes stack frame, " bytes " bytes spill stores, " bytes " bytes spill loads\n"                            \
    "ptxas info    : Used 64 registers\n"

/* Checks this log as `name`: the exit code, and what is said in *said; caller frees. */
static int check(const char *folder, const char *before, const char *name, const char *log, char **said)
{
    int code;
    OWNED char *list_path = folder_path(folder, "list.txt"), *log_path = folder_path(folder, name),
               *command = xasprintf("unset WERROR; %s bash common/build/check_ptxas.sh %s '%s' '%s' 2>&1", before,
                                    strstr(before, "SOME") ? "--some" : "", list_path, log_path);
    file_write(list_path, list);
    file_write(log_path, log);
    *said = command_text(command, &code);
    return code;
}

TEST_IN_FOLDER(a_spill_ends_the_build_where_it_was_measured)
{
    static const struct {
        const char *before, *name, *log;
        int code;
        const char *said; /* a part; NULL: nothing is said */
    } table[] = {
        {"NVCC_VERSION=13.0", "a.txt",
         KERNEL("1_adamw_kernelE", "sm_90", "0") KERNEL("1_softmax_kernelE", "sm_90", "0"), 0, NULL},
        {"NVCC_VERSION=13.0", "a.txt",
         KERNEL("1_adamw_kernelE", "sm_90", "8") KERNEL("1_softmax_kernelE", "sm_90", "0"), 1,
         "1_adamw_kernelE (sm_90) is listed as spill-free: 16 bytes stack frame, 8 bytes spill stores"},
        {"NVCC_VERSION=13.0", "a.txt",
         KERNEL("1_adamw_kernelE", "sm_80", "0") KERNEL("1_softmax_kernelE", "sm_90a", "4"), 1,
         "1_softmax_kernelE (sm_90a) is listed"},
        /* What is not listed may spill. */
        {"NVCC_VERSION=13.0 SOME=1", "a.txt", KERNEL("1_copy_kernelE", "sm_90", "64"), 0, NULL},
        /* Other architectures and toolkits: a line for each architecture. */
        {"NVCC_VERSION=13.0", "a.txt",
         KERNEL("1_adamw_kernelE", "sm_80", "8") KERNEL("2_adamw_kernelE", "sm_80", "16")
             KERNEL("1_softmax_kernelE", "sm_80", "4"),
         0,
         "warning: sm_80: 3 instances of kernels that spill nothing on sm_90 with nvcc 13.0 spill up to 16 bytes a "
         "thread with nvcc 13.0 (adamw_kernel, softmax_kernel): right"},
        {"NVCC_VERSION=13.5 SOME=1", "a.txt", KERNEL("1_adamw_kernelE", "sm_90", "8"), 0,
         "warning: sm_90: 1 instances"},
        {"NVCC_VERSION=13.5 SOME=1 WERROR=-Werror", "a.txt", KERNEL("1_adamw_kernelE", "sm_90", "8"), 1, "is listed"},
        {"NVCC_VERSION=13.0 SOME=1 WERROR=-Werror", "a.txt", KERNEL("1_adamw_kernelE", "sm_120", "8"), 0,
         "warning: sm_120: 1 instances"},
        /* A pattern that fits nothing guards nothing. */
        {"NVCC_VERSION=13.0", "a.txt", KERNEL("1_adamw_kernelE", "sm_80", "0"), 1, "no kernel matches softmax_kernel"},
        {"NVCC_VERSION=13.0 SOME=1", "a.txt", KERNEL("1_adamw_kernelE", "sm_80", "0"), 0, NULL},
        /* ptxas serialized what should overlap. */
        {"NVCC_VERSION=13.0 SOME=1", "matmul.hopper.a.txt", "ptxas info : (C7510) Potential Performance Loss: wgmma\n",
         1, "Potential Performance Loss"},
        {"NVCC_VERSION=13.5 SOME=1", "matmul.hopper.a.txt", "ptxas info : (C7510) Potential Performance Loss: wgmma\n",
         0, "serialized wgmma"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *said;
        const int code = check(*state, table[i].before, table[i].name, table[i].log, &said);
        const char *newline = strchr(said, '\n');
        if (code != table[i].code || (table[i].said ? !strstr(said, table[i].said) : *said != '\0') ||
            (newline && newline[1]))
            fail_msg("case %zu: exit code %d: %s", i, code, said);
        free(said);
    }
}

/* Whether judged.sh, in a tree of a few files with an nvcc of its own, finds its hash; first it may write that. */
static bool judged(const char *tree, const char *option)
{
    OWNED char *command = xasprintf("PATH='%s/bin':$PATH bash '%s/common/build/judged.sh' %s", tree, tree, option);
    return system(command) == 0;
}

TEST_IN_FOLDER(what_was_judged_is_these_sources_by_these_flags)
{
    static const struct {
        const char *path, *before, *after;
    } parts[] = {
        {"Makefile", "COMPILE_CU := nvcc -O3 $(NVCCFLAGS)\nall:\n", "COMPILE_CU := nvcc -O2 $(NVCCFLAGS)\nall:\n"},
        {"kernels/cuda/a.cu", "1", "2"},
        {"kernels/cuda/a.cuh", "1", "2"},
        {"common/core/numeric.h", "1", "2"},
        {"bin/nvcc", "#!/bin/sh\necho release 13.0", "#!/bin/sh\necho release 13.1"},
    };
    OWNED char *folders = xasprintf("cd '%s' && mkdir -p bin common/build common/core kernels/cuda && "
                                    "touch common/core/rng.h bin/nvcc && chmod +x bin/nvcc",
                                    (char *)*state),
               *script = folder_path(*state, "common/build/judged.sh"), *text = file_text("common/build/judged.sh"),
               *list_path = folder_path(*state, "kernels/cuda/spill_free.txt");
    assert_int_equal(system(folders), 0);
    file_write(script, text);
    file_write(list_path, "judged 0\nadamw_kernel\n");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        OWNED char *path = folder_path(*state, parts[i].path);
        file_write(path, parts[i].before);
    }
    assert_false(judged(*state, ""));
    assert_true(judged(*state, "--write"));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        OWNED char *path = folder_path(*state, parts[i].path);
        file_write(path, parts[i].after);
        if (judged(*state, ""))
            fail_msg("%s has changed since", parts[i].path);
        file_write(path, parts[i].before);
        assert_true(judged(*state, ""));
    }
    file_write(list_path, "adamw_kernel\n");
    assert_false(judged(*state, "--write"));
}

TEST_IN_FOLDER(each_architecture_has_its_line)
{
    char *said;
    assert_int_equal(check(*state, "NVCC_VERSION=13.0 SOME=1", "a.txt",
                           KERNEL("1_adamw_kernelE", "sm_80", "8") KERNEL("1_adamw_kernelE", "sm_90", "0")
                               KERNEL("1_adamw_kernelE", "sm_120", "20"),
                           &said),
                     0);
    assert_non_null(
        strstr(said, "sm_80: 1 instances of kernels that spill nothing on sm_90 with nvcc 13.0 spill up to 8 bytes"));
    assert_non_null(
        strstr(said, "sm_120: 1 instances of kernels that spill nothing on sm_90 with nvcc 13.0 spill up to 20 bytes"));
    assert_null(strstr(said, "sm_90:"));
    free(said);
}
