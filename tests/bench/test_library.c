/* SPDX-License-Identifier: MIT */
/* A bench that the loader gives another libstepbench than its own measures nothing and names both. The other one is a copy
 * in which the hash of its sources, or the name of the function that tells it, is another. Run from the project's root. */
#include "tests/support/test.h"

#include <sys/stat.h>

#include "common/core/build_info.h"
#include "common/session/library.h"
#include "tests/support/bench_run.h"

#define SMALL "--seq 16 --head-dim 16 --dtype fp32 --variant flash --batch 1 --heads 1 --iters 3 --warmup 0"

/* This program's library in `folder`, with `with` wherever `what`, of the same length, stands. */
static void copy_with(const char *folder, const char *what, const char *with)
{
    OWNED char *to = folder_path(folder, "libstepbench.so.0");
    FILE *in = fopen(build_library(), "rb"), *out = fopen(to, "wb");
    struct stat info;
    assert_true(in && out && fstat(fileno(in), &info) == 0);
    const size_t bytes = (size_t)info.st_size, n = strlen(what);
    char *all = xmalloc(bytes), *at = all;
    assert_true(n == strlen(with) && fread(all, 1, bytes, in) == bytes);
    size_t found = 0;
    for (; (at = memmem(at, bytes - (size_t)(at - all), what, n)); at += n, found++)
        memcpy(at, with, n);
    assert_true(found > 0 && fwrite(all, 1, bytes, out) == bytes);
    assert_int_equal(fclose(out), 0);
    fclose(in);
    free(all);
}

static void expect(const char *folder, const char *way, int code)
{
    OWNED char *environment = xasprintf("ASAN_OPTIONS=verify_asan_link_order=0 %s=\"%s%s${%s:+:$%s}\"", way, folder,
                                        strcmp(way, "LD_PRELOAD") == 0 ? "/libstepbench.so.0" : "", way, way);
    OWNED_CSV csv *rows = bench_rows(folder, "bench_flash", environment, SMALL, code);
    assert_int_equal(rows ? rows->rows : 0, code == EXIT_CODE_OK);
}

static void expect_refused(const char *folder, const char *way, const char *loaded)
{
    OWNED char *out = folder_path(folder, "out.txt"),
               *want = xasprintf(
                   "bench_flash: the kernels that were loaded, %s/libstepbench.so.0 (%s), are not those of this "
                   "program's build, %s (%s): run make, or leave LD_LIBRARY_PATH and LD_PRELOAD out\n",
                   folder, loaded, build_library(), build_kernels());
    expect(folder, way, EXIT_CODE_USAGE);
    OWNED char *said = file_text(out);
    assert_string_equal(said, want);
}

/* Every test of a run has the same environment: they test what was built. */
TEST(these_tests_have_their_own_library)
{
    library_check();
    assert_string_not_equal(build_kernels(), "unknown");
}

TEST_IN_FOLDER(another_library_is_refused)
{
    copy_with(*state, build_kernels(), "0123456789ab-0123456789ab");
    expect_refused(*state, "LD_LIBRARY_PATH", "0123456789ab-0123456789ab");
    expect_refused(*state, "LD_PRELOAD", "0123456789ab-0123456789ab");
    copy_with(*state, "sb_build", "sb_older"); /* from before libraries said it */
    expect_refused(*state, "LD_LIBRARY_PATH", "unknown");
}

TEST_IN_FOLDER(a_library_may_have_moved)
{
    copy_with(*state, build_kernels(), build_kernels());
    expect(*state, "LD_LIBRARY_PATH", EXIT_CODE_OK);
}
