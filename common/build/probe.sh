#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: probe.sh [--if-changed] BUILD
# Finds each tool and library by compiling and linking a tiny program, each alone. Writes BUILD/config.mk (for make),
# BUILD/config.h (HAVE_...) and BUILD/config.txt, and prints the last. With --if-changed it does nothing where
# BUILD/probe.inputs, what the answers depend on, is as it was.
# From the environment: CC CXX NVCC CUDA CUDA_ARCH CUDA_HOME NCCL_HOME MPI_HOME GLOO_HOME OPENBLAS_HOME SQLITE_HOME CMOCKA_HOME
set -u
export LC_ALL=C

replace_if_changed() { # FILE; its new text is stdin
    local text
    text=$(cat)
    if [ ! -e "$1" ] || [ "$(cat "$1")" != "$text" ]; then printf '%s\n' "$text" >"$1"; fi
}

inputs() {
    for name in CC CXX NVCC CUDA CUDA_ARCH CUDA_HOME NCCL_HOME MPI_HOME GLOO_HOME OPENBLAS_HOME SQLITE_HOME CMOCKA_HOME; do
        echo "$name=${!name:-}"
    done
    # Tools and libraries come and go with packages and toolkits; a GPU may be handed to a container later.
    for tool in $CC $CXX ld.gold "${NVCC:-nvcc}" /usr/local/cuda/bin/nvcc mpicc gnuplot; do
        path=$(command -v "$tool" 2>/dev/null) && stat -L -c '%n %Y' "$path" 2>/dev/null
    done
    stat -c '%n %Y' /var/lib/dpkg/status 2>/dev/null
    ls -d /dev/nvidia[0-9]* 2>/dev/null
    cksum "${BASH_SOURCE[0]}"
}

found=$(inputs)
if [ "$1" = --if-changed ]; then
    shift
    if [ -e "$1/config.mk" ] && [ -e "$1/config.h" ] && [ "$(cat "$1/probe.inputs" 2>/dev/null)" = "$found" ]; then
        exit 0
    fi
fi

build=$1
work=$build/probe
why=$({ mkdir -p "$work" && echo probe >"$work/writable"; } 2>&1) || {
    echo "the build folder $build can't be written: ${why##*: }; set BUILD to another" >&2
    exit 2
}
mk='' h='' table=''
set_mk() { mk+="$1 := ${2% }"$'\n'; }
row() { table+=$(printf '  %-13s %-8s %s' "$1" "$2" "$3")$'\n'; }
have() { # NAME
    set_mk "HAVE_$1" 1
    h+="#define HAVE_$1 1"$'\n'
}

# try NAME SUFFIX COMMAND...: builds the program on stdin, kept as $work/NAME.SUFFIX; "@" in COMMAND is its path.
try() {
    local source=$work/$1.$2
    shift 2
    cat >"$source"
    "${@/#@/$source}" -o "$source.out" >"$source.log" 2>&1
}

# library NAME LABEL CFLAGS LIBS: a C program on stdin; when it links, make gets HAVE_NAME, NAME_CFLAGS and NAME_LIBS.
library() {
    # shellcheck disable=SC2086 # flags are meant to be split
    try "$1" c $CC $3 @ $4 || return
    have "$1"
    set_mk "$1_CFLAGS" "$3"
    set_mk "$1_LIBS" "$4"
    row "$2" found "$(brief "$4")"
}
brief() { # LINK FLAGS: the libraries, and the first folder they come from
    local names folder
    names=$(tr ' ' '\n' <<<"$1" | grep -E '^-l' | grep -vxE -- '-l(pthread|dl|rt|m)' | tr '\n' ' ')
    folder=$(tr ' ' '\n' <<<"$1" | sed -n 's/^-L//p' | head -n 1)
    echo "${names:-header only }${folder:+in $folder}" | sed 's/ $//'
}

# Compiler flags for the first folder that exists, and those for the usual places below a *_HOME.
include_flags() { for dir; do [ -d "$dir" ] && printf -- '-isystem %s ' "$dir" && return; done; }
library_flags() { for dir; do [ -d "$dir" ] && printf -- '-L%s -Wl,-rpath,%s ' "$dir" "$dir" && return; done; }
home_cflags() { [ -z "$1" ] || include_flags "$1/include"; }
home_libs() { [ -z "$1" ] || library_flags "$1/lib64" "$1/lib"; }

# A place that was named and is wrong must not be made up for by another copy that the compiler finds by itself.
for name in NCCL_HOME GLOO_HOME MPI_HOME OPENBLAS_HOME SQLITE_HOME CMOCKA_HOME; do
    home=${!name:-}
    [ -z "$home" ] || [ -n "$(home_cflags "$home")$(home_libs "$home")" ] || {
        [ -d "$home" ] && why='has neither include nor lib' || why='is not a folder'
        echo "$name=$home $why; name the folder that holds its include and lib, or leave $name empty" >&2
        exit 2
    }
done

# ---- compilers ----

if ! try cc c $CC @ <<<'int main(void) { return 0; }'; then
    echo "no working C compiler: '$CC' builds no program; install build-essential, or set CC" >&2
    sed 's/^/  /' "$work/cc.c.log" >&2
    exit 1
fi
cc_version=$($CC --version | head -n 1)
set_mk CC_VERSION "$cc_version"
row 'C compiler' found "$CC: $cc_version"

# CC links the test programs, C++ in them or not: another compiler's gold says nothing about what this one's finds.
if try gold cc $CC -fuse-ld=gold @ -lstdc++ <<<'#include <string>
    int main(int argc, char **argv) { return std::string(argv[0]).size() == (size_t)argc; }'; then
    set_mk TEST_LINKER -fuse-ld=gold
fi

cuda=${CUDA:-1}
cuda_home=${CUDA_HOME:-}
if [ -n "${NVCC:-}" ]; then
    nvcc=$(command -v "$NVCC") || why="NVCC=$NVCC is no program"
elif [ -n "$cuda_home" ]; then
    nvcc=$(command -v "$cuda_home/bin/nvcc") || why="CUDA_HOME=$cuda_home has no bin/nvcc"
else
    nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || why='none on PATH or in /usr/local/cuda/bin'
fi
if [ -z "$cuda_home" ]; then
    [ -n "$nvcc" ] && cuda_home=$(dirname "$(dirname "$(readlink -f "$nvcc")")") || cuda_home=/usr/local/cuda
fi
target=$cuda_home/targets/$(uname -m | sed 's/aarch64/sbsa/')-linux
cuda_cflags=$(include_flags "$cuda_home/include" "$target/include")
cuda_ldflags=$(library_flags "$cuda_home/lib64" "$target/lib")
backend=1

if [ "$cuda" = 0 ]; then
    row CUDA off 'CUDA=0 disables --device cuda and all that needs the CUDA toolkit'
    backend=0
else
    # With Hopper's own features: a toolkit before 12.0 does not know them.
    if [ -n "$nvcc" ] && ! try nvcc cu "$nvcc" -std=c++17 -gencode=arch=compute_90a,code=sm_90a -c @ \
        <<<'__global__ void k(float *x) { *x += 1; }'; then
        why="$nvcc builds nothing for sm_90a, CUDA 12.0 and newer do: $(grep -m 1 . "$work/nvcc.cu.log")"
        nvcc=''
    fi
    if [ -n "$nvcc" ]; then
        nvcc_version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
        set_mk FOUND_NVCC "$nvcc"
        set_mk FOUND_CUDA_HOME "$cuda_home"
        set_mk NVCC_VERSION "$nvcc_version"
        row nvcc found "$nvcc $nvcc_version"
    else
        row nvcc missing "disables --device cuda ($why)"
        backend=0
    fi

    runtime='#include <cuda_runtime.h>
        int main(void) { int n; return cudaRuntimeGetVersion(&n); }'
    # The shared one: programs and libstepbench.so must not each bring a runtime of their own.
    library CUDART 'CUDA runtime' "$cuda_cflags" "${cuda_ldflags}-lcudart" <<<"$runtime" ||
        { row 'CUDA runtime' missing 'disables --device cuda (libcudart.so is needed)'; backend=0; }

    library CUBLAS cuBLAS "$cuda_cflags" "${cuda_ldflags}-lcublas -lcublasLt" <<<'#include <cublas_v2.h>
        #include <cublasLt.h>
        int main(void) { cublasHandle_t h; return cublasCreate(&h) + (int)cublasLtGetVersion(); }' ||
        { row cuBLAS missing 'disables --device cuda (unfused attention and the GEMM ceilings need it)'; backend=0; }

    library NVTX NVTX "$cuda_cflags" -ldl <<<'#include <nvtx3/nvToolsExt.h>
        int main(void) { nvtxRangePushA("probe"); return nvtxRangePop() > 0; }' ||
        row NVTX missing 'disables the named ranges in nsys and ncu'

    # The driver brings the library, so programs open it at run time; this only tells what they would find here.
    if try NVML c $CC @ -ldl <<<'#include <dlfcn.h>
        int main(void) { void *l = dlopen("libnvidia-ml.so.1", RTLD_NOW); return !l || !dlsym(l, "nvmlInit_v2"); }' &&
        "$work/NVML.c.out"; then
        have NVML
        row NVML found 'libnvidia-ml.so.1, opened at run time'
    else
        row NVML missing 'no driver here: clocks, power and throttle reasons are unknown (looked for again at run time)'
    fi

    library CUPTI CUPTI "$cuda_cflags$(include_flags "$cuda_home/extras/CUPTI/include")" \
        "$cuda_ldflags$(library_flags "$cuda_home/extras/CUPTI/lib64")-lcupti" <<<'#include <cupti.h>
        int main(void) { CUpti_ActivityKernel10 k = {0}; return cuptiActivityEnableRuntimeApi(k.gridX, 0) != CUPTI_SUCCESS; }' ||
        row CUPTI missing 'disables kernel traces (that of CUDA 12 lacks records that are read)'

    library NCCL NCCL "$(home_cflags "${NCCL_HOME:-}")$cuda_cflags" \
        "$(home_libs "${NCCL_HOME:-}")$cuda_ldflags-lnccl" <<<'#include <nccl.h>
        int main(void) { int version; return ncclGetVersion(&version) != ncclSuccess; }' ||
        row NCCL missing 'disables collectives between GPUs'
fi

# ---- libraries of the host ----

blas='#include <cblas.h>
    int main(void) { double x = 1; return cblas_ddot(1, &x, 1, &x, 1) != 1; }'
library BLAS BLAS "$(home_cflags "${OPENBLAS_HOME:-}")" "$(home_libs "${OPENBLAS_HOME:-}")-lopenblas" <<<"$blas" ||
    library BLAS BLAS '' -lcblas <<<"$blas" || library BLAS BLAS '' -lblas <<<"$blas" ||
    row BLAS missing 'the CPU backend uses its own, slower GEMM'

if try GLOO cc $CXX -std=c++17 $(home_cflags "${GLOO_HOME:-}") @ $(home_libs "${GLOO_HOME:-}") -lgloo -lpthread \
    <<<'#include <gloo/rendezvous/hash_store.h>
    int main() { gloo::rendezvous::HashStore store; store.set("probe", {}); return 0; }'; then
    have GLOO
    set_mk GLOO_CFLAGS "$(home_cflags "${GLOO_HOME:-}")"
    set_mk GLOO_LIBS "$(home_libs "${GLOO_HOME:-}")-lgloo"
    row Gloo found "$(brief "$(home_libs "${GLOO_HOME:-}")-lgloo")"
else
    row Gloo missing 'disables collectives between CPUs'
fi

library CRYPT 'crypt(3)' '' -lcrypt <<<'#define _GNU_SOURCE
    #include <crypt.h>
    int main(void) { struct crypt_data d = {0}; return !crypt_r("x", "$6$rounds=1000$salt", &d); }' ||
    row 'crypt(3)' missing 'ranks on several hosts cannot prove that they belong together (install libcrypt-dev)'

if [ -n "${MPI_HOME:-}" ]; then
    mpi_cflags=$(home_cflags "$MPI_HOME") mpi_libs="$(home_libs "$MPI_HOME")-lmpi"
else # its compiler wrapper knows where it is; Open MPI and MPICH both answer -show with "cc flags..."
    mpi_flags=$(mpicc -show 2>/dev/null | cut -s -d ' ' -f 2- | tr ' ' '\n')
    mpi_cflags=$(grep -E '^-(I|pthread)' <<<"$mpi_flags" | tr '\n' ' ')
    mpi_libs=$(grep -E '^-([Ll]|Wl,)' <<<"$mpi_flags" | tr '\n' ' ')
fi
library MPI MPI "$mpi_cflags" "$mpi_libs" <<<'#include <mpi.h>
    int main(void) { int major, minor; return MPI_Get_version(&major, &minor); }' ||
    row MPI missing 'disables nothing: ranks that mpirun starts find one another by TCP'

library SQLITE SQLite "$(home_cflags "${SQLITE_HOME:-}")" "$(home_libs "${SQLITE_HOME:-}")-lsqlite3" <<<'#include <sqlite3.h>
    int main(void) { return sqlite3_libversion_number() < 3032000; }' ||
    row SQLite missing 'disables the report (build/report); install libsqlite3-dev'

library CMOCKA cmocka "$(home_cflags "${CMOCKA_HOME:-}")" "$(home_libs "${CMOCKA_HOME:-}")-lcmocka" \
    <<<'#include <setjmp.h>
    #include <stdarg.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <cmocka.h>
    static void test(void **state) { (void)state; }
    int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test)};
        return cmocka_run_group_tests(tests, NULL, NULL);
    }' || row cmocka missing 'disables make test'

if gnuplot=$(command -v gnuplot) && version=$("$gnuplot" --version 2>/dev/null); then
    row gnuplot found "$gnuplot: $version"
else
    row gnuplot missing 'disables the figures'
fi

# ---- CUDA architectures: the user's, else those of the GPUs present, else Hopper ----

if [ "$backend" = 1 ]; then
    have CUDA
    set_mk CUDA_CFLAGS "$cuda_cflags"
    from=CUDA_ARCH
    archs=$(tr ',;' '  ' <<<"${CUDA_ARCH:-}" | sed -E 's/(sm|compute)_//g; s/\.//g')
    for arch in $archs; do
        if ! [[ $arch =~ ^(8[0-9]|9[0-9]|1[0-9][0-9])[af]?$ ]]; then
            echo "CUDA_ARCH=$CUDA_ARCH: '$arch' is not allowed; allowed are 80 and above, such as CUDA_ARCH=80,90" >&2
            exit 2
        fi
    done
    if [ -z "$archs" ]; then
        from='the GPUs present'
        archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | grep -xE '[0-9]+' |
            awk '$1 >= 80' | sort -un)
    fi
    if [ -z "$archs" ]; then
        from='no GPU of compute capability 8.0 or above here'
        archs=90a
    fi
    # One sentence here, rather than one of nvcc for every file.
    known=$("$nvcc" --list-gpu-arch 2>/dev/null | sed 's/compute_//')
    for arch in $archs; do
        if [ -n "$known" ] && ! grep -qx "${arch%[af]}" <<<"$known"; then
            echo "nvcc $nvcc_version cannot compile for $arch, which is from $from; it can for $(echo $known | tr ' ' ,):" \
                "name one of them with CUDA_ARCH, or install another CUDA toolkit" >&2
            exit 2
        fi
    done
    # Portable files need no feature of 90a. Machine code for each; PTX=1 adds PTX of the lowest for GPUs that come later.
    portable=$(tr ' ' '\n' <<<"$archs" | grep . | sed 's/^90a$/90/' | sort -uV)
    gencode=''
    for arch in $portable; do gencode+="-gencode=arch=compute_$arch,code=sm_$arch "; done
    lowest=$(head -n 1 <<<"$portable")
    set_mk CUDA_ARCHS "$(paste -sd, <<<"$portable")"
    set_mk GENCODE_SASS "$gencode"
    set_mk PTX_ARCH "$lowest"
    set_mk GENCODE_PTX "-gencode=arch=compute_$lowest,code=compute_$lowest"
    row 'CUDA_ARCH' "$(tr '\n' ',' <<<"$portable" | sed 's/,$//')" "from $from; Hopper kernels always for 90a"
elif [ "$cuda" != 0 ] && [ -n "$cuda_cflags" ]; then
    set_mk CUDA_CFLAGS "$cuda_cflags" # NVTX and NVML are used without the backend
fi

if [ "$backend" = 0 ]; then # what a program says when asked for CUDA
    [ "$cuda" = 0 ] && why='CUDA=0 was given to make' || why='make did not find all it needs (make print-config lists it)'
    set_mk NO_CUDA "$why"
fi

printf '/* Written by common/build/probe.sh. */\n%s' "$h" | replace_if_changed "$build/config.h"
{
    echo "Found on this machine (make print-config prints this again):"
    printf '%s' "$table"
} >"$build/config.txt"
printf '%s' "$mk" >"$build/config.mk"
printf '%s\n' "$found" >"$build/probe.inputs"
cat "$build/config.txt"
