/* SPDX-License-Identifier: MIT */
/* choices.sh with a made-up GPU and program: it runs what needs one GPU, the last choice of a shape counts, and the file has
 * neither times nor rivals nor what the row above says already. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

TEST_IN_FOLDER(runs_of_one_gpu)
{
    const char *folder = *state;
    OWNED char *here = shell_path(".");
    folder_program(folder, "nvidia-smi", "#!/bin/sh\necho 'NVIDIA X1 Fast'\n");
    folder_program(
        folder, "bench",
        "#!/bin/sh\n"
        "[ \"$1\" = --list-runs ] && {\n"
        "    printf 'name\\tbench\\nrun\\tdefault\\t1\\t9\\t--seq 1\\nrun\\tfull\\t1\\t9\\t\\n'\n"
        "    printf 'run\\tdefault\\t2\\t9\\t--ranks 2\\nrun\\tcpu\\t0\\t9\\t--seq 3\\n'; exit; }\n"
        "echo \"asked $*\" >>asked.txt\n"
        "for file in results/choices-*; do file=$file/gemm_choices.csv; done\n"
        "[ -s \"$file\" ] || echo product,m,n,k,dtype,dtype_out,transpose_a,transpose_b,lda,ldb,ldc,ldd,adds,"
        "split,dtype_b,scaling_a,scaling_b,sums,workspace_bytes,library,algorithm_name,ms,first_ms,tried,rival,"
        "algorithm >\"$file\"\n"
        "echo \"x,1,2,3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,9,chosen by $2,0.5,1,7,0,010$200\" >>\"$file\"\n"
        "echo \"x,1,2,3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,9,rival,0.5,1,7,1,0700\" >>\"$file\"\n"
        "echo \"x,9,2,3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,9,chosen by $2,0.5,1,7,0,010$200\" >>\"$file\"\n");
    OWNED char *command =
        xasprintf("cd '%s' && mkdir -p common/train/tune/choices && touch common/train/tune/shipped.c && "
                  "PATH=\"$PWD:$PATH\" bash '%s/common/build/choices.sh' \"$PWD/bench\" >out.txt 2>&1",
                  folder, here);
    assert_int_equal(system(command), 0);
    char *path = folder_path(folder, "asked.txt"), *asked = file_text(path);
    assert_non_null(strstr(asked, "asked --seq 1 --warmup 0 --retune "));
    assert_non_null(strstr(asked, "asked --warmup 0 --retune "));
    assert_null(strstr(asked, "--ranks"));
    assert_null(strstr(asked, "--seq 3"));
    free(asked);
    free(path);
    path = folder_path(folder, "common/train/tune/choices/x1-fast.csv");
    OWNED char *kept = file_text(path);
    assert_string_equal(kept,
                        "library,algorithm,algorithm_name,workspace_bytes,dtype,dtype_out,transpose_a,transpose_b,"
                        "adds,split,dtype_b,scaling_a,scaling_b,sums,n,k,m,lda,ldb,ldc,ldd\n"
                        "9,01,chosen by 0,0,0,0,0,0,0,0,0,0,0,0,2,3,1,0,0,0,0\n,,,,,,,,,,,,,,,,9,,,,\n");
    free(path);
}
