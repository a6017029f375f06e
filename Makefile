# SPDX-License-Identifier: MIT
# Builds stepbench; `make help` prints the lines that start with two hashes.
#
# Objects, probe results, the library and test programs go to $(BUILD). The benches, and a link to the library, land in
# the project's root, or in $(BUILD) when that is not `build`, so that two builds never overwrite each other's programs.
#
# The kernels are one shared library, $(BUILD)/lib/libstepbench.so.0: with all their instantiations they outweigh
# everything else a hundred times, so no program holds a copy. Host code is a static archive: a program takes from it
# only what it uses, calls it without indirection, and depends on one library of ours alone.

## make               build every bench and the report writer
## make test          set up, build, run every test on the CPU, lint
## make test-asan     the same tests under AddressSanitizer and UBSan, in a build folder of their own
## make test-tsan     the tests of threads and ranks under ThreadSanitizer
## make test-mutants  plant the faults of tests/mutants/list.txt, one at a time, each of which a test must find; MUTANTS=ci
##                    takes a few, MUTANTS="word ..." those whose titles have one of the words
## make test-gpu      test every CUDA op against the CPU reference, then under compute-sanitizer; needs a GPU
## make test-archs    compile the portable kernels for every other architecture, or for ARCHS=80; needs no GPU
## make lib           libstepbench.so: the ops alone; its header is kernels/kernels.h
## make install       install programs, library, headers, documents, completion and manual pages to PREFIX (default /usr/local),
##                    below DESTDIR if set
## make man           a manual page for each program, in BUILD/man; needs help2man
## make test-launchers  start ranks by Open MPI, by Slurm, as pods do and across network namespaces, as far as this host has these
## make test-install  install to a temporary folder; there, build and run a C program, draw figures, write a report, complete options
## make dist          stepbench-<version>.tar.gz of the last commit, which builds and runs its tests without git
## make plots         figures of every machine in results/, or of RESULTS=results/<machine>
## make report        report.md and report.html of each of these machines
## make report-all    results/report-all.html (and .md): all machines side by side
## make check-results RESULTS=results/<machine>
##                    say whether these results can be sent, with a sentence for each reason why not
## make pack RESULTS=results/<machine>
##                    check these results, and pack them as <machine>.tar.gz, to be sent
## make unpack FILE=<machine>.tar.gz
##                    unpack to results/ what somebody sent, however hostile, and check it
## make columns       docs/columns.md: every column of every bench, as --list explains it
## make judged        build, and record that no kernel spilled, so that CI need not check it again
## make choices       time all matrix products of bench_transformer on this GPU, for common/train/tune/choices/; takes minutes
## make print-config  what was found on this machine, and the compiler lines
## make setup, lint, format, tidy (clang-tidy over the C code), clean
## Variables: BUILD=build  CUDA_ARCH=80,90 (default: the GPUs present, or 90a if there are none)  CUDA=0 (leave CUDA out)
##   PTX=1 (PTX of the lowest CUDA_ARCH too, for GPUs that come later)  LINEINFO=1 (source lines for profilers)
##   SETUP=0 (install nothing)  V=1 (whole command lines)  CC CXX NVCC OPT CFLAGS CPPFLAGS NVCCFLAGS LDFLAGS
##   WERROR=-Werror (warnings end the build, as in CI)  CUDA_HOME NCCL_HOME MPI_HOME GLOO_HOME OPENBLAS_HOME SQLITE_HOME CMOCKA_HOME

# A stranger's file may have any name: to make and to the shell it is text. This comes before the first $(shell), which gets
# what is exported from make 4.4 on. With CDPATH set, cd prints, and may go elsewhere.
unexport FILE RESULTS CDPATH
BUILD   ?= build
# -g1: functions and lines, all that a backtrace needs, in a third of the size of -g.
OPT     ?= -O3 -g1
# A newer compiler's new warning must end nobody's build: only CI fails over warnings.
WERROR  ?= $(if $(filter true,$(CI)),-Werror)
SETUP   ?= 1
LINT    ?= lint
CUDA    ?= 1
PREFIX  ?= /usr/local
VERSION := $(shell sed -n 's/.*STEPBENCH_VERSION "\(.*\)"/\1/p' common/core/version.h)
ifeq ($(origin CC),default)
CC := cc
endif
ifeq ($(origin CXX),default)
CXX := c++
endif
ifneq ($(words $(BUILD)),1)
$(error BUILD must be one path without spaces)
endif
# Nobody sends the folders of all machines, and to check them takes a minute.
ifneq ($(filter pack,$(MAKECMDGOALS)),)
ifeq ($(strip $(value RESULTS)),)
$(error make pack packs the results of one machine: name it by RESULTS=results/<machine>)
endif
endif

SCRIPTS := common/build
BIN     := $(if $(filter build ./build,$(BUILD)),.,$(BUILD))
Q       := $(if $(filter 1,$(V)),,@)
say      = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' $(1) $(2))
jobs     = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 2))

.PHONY: all lib dist man install test-install test-launchers test test-asan test-tsan test-mutants test-archs arch-kernels tsan-tests test-gpu run-tests gpu-tests run-gpu-tests plots report report-all check-results pack unpack choices judged \
        columns lint format tidy print-config setup clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:
all:

# ---- goals that come before the probe, or need none: set-up may install what the probe looks for ----

setup:
	@SETUP='$(SETUP)' bash $(SCRIPTS)/setup.sh

test: setup
	@$(MAKE) $(jobs) --no-print-directory run-tests

# CUDA=0: no CUDA code runs in these tests, and compiling it twice would cost minutes.
test-asan: setup
	@$(MAKE) $(jobs) --no-print-directory run-tests BUILD=$(BUILD)/asan SANITIZE=1 CUDA=0 OPT='-O1 -g1'

test-tsan: setup
	@$(MAKE) $(jobs) --no-print-directory tsan-tests BUILD=$(BUILD)/tsan SANITIZE=thread CUDA=0 OPT='-O1 -g1'

test-mutants: setup
	@CC='$(CC)' CXX='$(CXX)' bash tests/mutants/run.sh $(BUILD)/mutants $(MUTANTS)

# Warnings of ptxas are few, and told once for each architecture. No GPU is looked for.
ARCHS ?= 80,86,89,100,120
test-archs:
	@$(MAKE) $(jobs) --no-print-directory arch-kernels BUILD=$(BUILD)/archs CUDA_ARCH='$(ARCHS)'

test-gpu:
	@bash $(SCRIPTS)/run_gpu_tests.sh --gpu-present
	@$(MAKE) $(jobs) --no-print-directory run-gpu-tests

format:
	clang-format -i $$(git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cc')

clean:
	rm -rf $(BUILD)
ifeq ($(BIN),.)
	rm -f $(patsubst bench/%.c,%,$(wildcard bench/bench_*.c)) stepcmp stepckpt libstepbench.so libstepbench.so.*
endif

# git writes the commit into common/build/commit as it packs.
dist:
	@git diff --quiet HEAD -- || echo 'make dist: what is not committed is not in it' >&2
	git archive --format=tar.gz --prefix=stepbench-$(VERSION)/ -o stepbench-$(VERSION).tar.gz HEAD

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

ifneq ($(filter-out setup test test-asan test-tsan test-mutants test-archs test-gpu dist format clean help,$(or $(MAKECMDGOALS),all)),)

# ---- what this machine has: probed once, and again when something the probe depends on has changed ----

PROBE := CC='$(CC)' CXX='$(CXX)' CUDA='$(CUDA)' CUDA_ARCH='$(CUDA_ARCH)' NVCC='$(NVCC)' CUDA_HOME='$(CUDA_HOME)' \
         NCCL_HOME='$(NCCL_HOME)' MPI_HOME='$(MPI_HOME)' GLOO_HOME='$(GLOO_HOME)' \
         OPENBLAS_HOME='$(OPENBLAS_HOME)' SQLITE_HOME='$(SQLITE_HOME)' CMOCKA_HOME='$(CMOCKA_HOME)' bash $(SCRIPTS)/probe.sh

# The script compares what the answers depend on, not times of files: where a clock was set back, make would begin anew
# for ever.
$(BUILD)/config.mk: FORCE
	@$(PROBE) --if-changed $(BUILD) $(if $(filter print-config,$(MAKECMDGOALS)),>/dev/null)
# What the environment has by these names is somebody else's.
$(foreach name,EXTRA SANITIZERS,$(eval $(name) :=))
include $(BUILD)/config.mk

# ---- compilers and flags; each line is kept in a stamp file, so that a changed flag rebuilds what it touches ----

ifeq ($(SANITIZE),1)
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifeq ($(SANITIZE),thread)
SANITIZERS := -fsanitize=thread -fno-omit-frame-pointer
endif
COMPILE_C  := $(strip $(CC) -std=c11 -D_GNU_SOURCE -I. -include $(BUILD)/config.h $(CUDA_CFLAGS) $(BLAS_CFLAGS) \
              $(CPPFLAGS) $(OPT) -fno-math-errno -fno-trapping-math -fPIC -Wall -Wextra $(WERROR) $(SANITIZERS) $(CFLAGS))
COMPILE_CC := $(strip $(CXX) -std=c++17 -D_GNU_SOURCE -I. -include $(BUILD)/config.h $(CPPFLAGS) $(OPT) -fPIC -Wall \
              -Wextra $(WERROR) $(SANITIZERS) $(CXXFLAGS))
# Source lines would be two thirds of the kernels' size.
COMPILE_CU := $(strip $(FOUND_NVCC) -std=c++17 -O3 $(if $(filter 1,$(LINEINFO)),-lineinfo) -Xptxas -v \
              -Xcompiler -fPIC,-Wall -I. -include $(BUILD)/config.h $(NVCCFLAGS))
GENCODE    := $(strip $(GENCODE_SASS) $(if $(filter 1,$(PTX)),$(GENCODE_PTX)))
comma := ,
empty :=
BUILT_FOR  := $(CUDA_ARCHS)$(if $(filter 1,$(PTX)),$(PTX_ARCH:%=$(comma)%+ptx))
GENCODE_SM90 := -gencode=arch=compute_90a,code=sm_90a
# --as-needed: a program that uses no cuBLAS or OpenBLAS does not load it.
LINK := $(strip $(CC) $(OPT) $(SANITIZERS) $(LDFLAGS) -Wl,--as-needed)
KERNEL_LIBS := $(strip $(if $(HAVE_CUDA),$(CUBLAS_LIBS) $(CUDART_LIBS) -lstdc++) $(BLAS_LIBS) -lpthread -ldl -lm)
# A sanitizer's library has crypt_r, too, which calls that of libcrypt: --as-needed would leave libcrypt out.
CRYPT := $(if $(SANITIZERS),$(if $(CRYPT_LIBS),-Wl$(comma)--no-as-needed $(CRYPT_LIBS) -Wl$(comma)--as-needed),$(CRYPT_LIBS))
LIBS := $(strip $(if $(HAVE_CUDA),$(NCCL_LIBS)) $(GLOO_LIBS) $(if $(HAVE_GLOO),-lstdc++) $(CRYPT) $(KERNEL_LIBS))

quote = '$(subst ','\'',$(1))'
# What the results say of the build, and what tells its library from others.
BUILT_BY   := $(CC_VERSION): $(COMPILE_C)$(if $(HAVE_CUDA), | nvcc $(NVCC_VERSION): $(COMPILE_CU) $(GENCODE))
IDENTITY   := $(shell STEPBENCH_COMMIT=$(call quote,$(STEPBENCH_COMMIT)) sh $(SCRIPTS)/identity.sh $(call quote,$(BUILT_BY)))
NO_COMMIT  := $(wordlist 4,$(words $(IDENTITY)),$(IDENTITY))
KERNELS_ID := -DSTEPBENCH_KERNELS='"$(word 3,$(IDENTITY))"'
BUILD_INFO := -DSTEPBENCH_COMMIT='"$(word 1,$(IDENTITY))"' -DSTEPBENCH_DIRTY=$(word 2,$(IDENTITY)) $(KERNELS_ID) \
              -DSTEPBENCH_LIBRARY='"$(BUILD)/lib/libstepbench.so.$(VERSION)"' \
              -DSTEPBENCH_COMPILER='"$(subst ",,$(subst ',,$(subst \,,$(BUILT_BY))))"'

stamp = $(BUILD)/$(1).flags: FORCE ; @mkdir -p $$(@D); printf '%s\n' $(call quote,$(2)) | cmp -s - $$@ || \
        printf '%s\n' $(call quote,$(2)) >$$@

# ---- sources: found by wildcard, so a new file needs no line here ----

COMMON_C  := $(filter-out common/comm/gloo_absent.c,$(wildcard common/*/*.c common/*/*/*.c)) \
             $(wildcard common/comm/$(if $(HAVE_GLOO),gloo.cc,gloo_absent.c))
KERNEL_C := $(filter-out kernels/shared/cuda_absent.c,$(wildcard kernels/shared/*.c)) $(wildcard kernels/cpu/*.c)
kernels_of = $(sort $(foreach depth,* */* */*/* */*/*/*,$(wildcard kernels/cuda/$(depth).$(1))))
ifdef HAVE_CUDA
KERNEL_C  += $(call kernels_of,c)
KERNEL_CU := $(call kernels_of,cu)
PTXAS_OK  := $(BUILD)/ptxas/ok
else
KERNEL_C  += kernels/shared/cuda_absent.c
endif
object   = $(addprefix $(BUILD)/,$(addsuffix .o,$(1)))
COMMON_O := $(call object,$(COMMON_C))
KERNEL_O := $(call object,$(KERNEL_C) $(KERNEL_CU))

# Beside the programs, whose names start with bench_ or test_, lie the helpers that every one of them is linked with.
BENCHES    := $(patsubst bench/%.c,$(BIN)/%,$(wildcard bench/bench_*.c))
BENCH_O    := $(call object,$(wildcard bench/*/*.c))
# Those of scripts, documents and peers run next to nothing that is instrumented. SKIP_TESTS names sources to leave out.
TESTS      := $(patsubst %.c,$(BUILD)/%,$(filter-out $(SKIP_TESTS) tests/gpu/% $(if $(HAVE_SQLITE),,tests/report/%) $(if $(SANITIZERS),tests/build/% tests/docs/% tests/peers/%),\
                $(wildcard tests/*/test_*.c)))
TEST_O     := $(call object,$(wildcard tests/support/*.c))
GPU_TESTS  := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/gpu/test_*.c))
GPU_TEST_O := $(call object,$(filter-out tests/gpu/test_%,$(wildcard tests/gpu/*.c tests/gpu/*/*.c)) tests/support/model_values.c)
# The report: text with SQL, put into the program. Only it needs SQLite.
REPORT_TEXT := $(wildcard plots/report/sections/*.sql plots/figures/*.sql) plots/report/style.css plots/report/script.js $(BUILD)/schema.tsv
REPORT_C    := plots/report.c $(wildcard plots/report/*.c)
REPORT_O    := $(call object,$(REPORT_C)) $(BUILD)/report_text.o
STEPCMP_O   := $(call object,plots/stepcmp.c)
STEPCKPT_O  := $(call object,plots/stepckpt.c)
REPORT      := $(if $(HAVE_SQLITE),$(BUILD)/report)
PROGRAMS   := $(BENCHES) $(REPORT) $(BIN)/stepcmp $(BIN)/stepckpt

NO_REPORT   := SQLite was not found, so build/report is not built; install libsqlite3-dev, or set SQLITE_HOME
needs_report = @$(if $(HAVE_SQLITE),,echo 'make $@: $(NO_REPORT)' >&2; exit 1)
# The shell's arguments become the folders of results: RESULTS if it is the name of one, else its words, else all in results/.
set_folders = LC_ALL=C; export LC_ALL; results=$(call quote,$(value RESULTS)); \
    if [ -d "$$results" ]; then set -- "$$results"; else set -- $$results; fi; \
    if [ $$\# = 0 ]; then for dir in results/*/; do \
        case $$dir in results/published/ | results/small/) continue ;; esac; \
        ! ls "$$dir"bench_*.csv >/dev/null 2>&1 || set -- "$$@" "$$dir"; \
    done; fi; \
    [ $$\# != 0 ] || { echo 'make $@: results/ holds no bench_*.csv yet; run a bench first' >&2; exit 1; }

all: $(PROGRAMS)
	@$(if $(HAVE_SQLITE),,echo 'make: $(NO_REPORT)')

# ---- compile ----

$(eval $(call stamp,cc,$(COMPILE_C)))
$(eval $(call stamp,c++,$(COMPILE_CC)))
$(eval $(call stamp,nvcc,$(COMPILE_CU) $(GENCODE)))
$(eval $(call stamp,nvcc_hopper,$(COMPILE_CU) $(GENCODE_SM90)))
$(eval $(call stamp,link,$(LINK) $(LIBS) $(CMOCKA_LIBS)))
$(eval $(call stamp,build_info,$(BUILD_INFO)))
$(eval $(call stamp,kernels_id,$(KERNELS_ID)))
$(eval $(call stamp,members,$(COMMON_O)))
$(eval $(call stamp,kernels,$(KERNEL_O)))
$(eval $(call stamp,report_text,$(REPORT_TEXT)))

$(BUILD)/%.c.o: %.c $(BUILD)/cc.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(COMPILE_C) $(EXTRA) -MMD -MP -c $< -o $@

$(BUILD)/tests/%.c.o: EXTRA += $(CMOCKA_CFLAGS)
# Test programs run for seconds, and -O3 takes as long again to compile them.
$(addsuffix .c.o,$(TESTS)): EXTRA += $(if $(filter -O3,$(OPT)),-O1)
$(call object,$(REPORT_C) $(wildcard tests/report/*.c)): EXTRA += $(SQLITE_CFLAGS)

$(BUILD)/%.cc.o: %.cc $(BUILD)/c++.flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(COMPILE_CC) $(EXTRA) -MMD -MP -c $< -o $@

# Without optimizations these loops would be most of the tests' time.
$(BUILD)/kernels/cpu/%.c.o: EXTRA := $(if $(filter -O1,$(OPT)),-O3)

# What the report knows: the columns of every bench, and its texts.
$(BUILD)/schema.tsv: $(BENCHES) plots/report/tables.txt $(SCRIPTS)/schema.sh
	@bash $(SCRIPTS)/schema.sh $(BIN) plots/report/tables.txt >$@
$(BUILD)/report_text.c: $(REPORT_TEXT) $(BUILD)/report_text.flags
	@{ printf '#include "plots/report/embedded.h"\n\n'; n=0; \
	   for file in $(REPORT_TEXT); do n=$$((n + 1)); \
	       printf 'extern const char text_%d[];\n__asm__(".pushsection .rodata\\ntext_%d:\\n.incbin \"%s\"\\n.byte 0\\n.popsection\\n");\n' \
	           $$n $$n $$file; \
	   done; \
	   printf '\nconst embedded embedded_files[] = {'; n=0; \
	   for file in $(REPORT_TEXT); do n=$$((n + 1)); name=$${file##*/}; case $$file in plots/figures/*) name=figures/$$name ;; esac; \
       printf '{"%s", text_%d},\n' $$name $$n; done; \
	   printf '{0}};\n'; } >$@
$(BUILD)/report_text.o: $(BUILD)/report_text.c $(BUILD)/cc.flags
	$(Q)$(COMPILE_C) -MMD -MP -c $< -o $@

# Once a build, and not whenever make runs.
no_commit = $(shell printf '%s\n' $(call quote,stepbench: rows will name the commit $(word 1,$(IDENTITY)): $(NO_COMMIT)) >&2)
$(BUILD)/common/core/build_info.c.o: EXTRA = $(BUILD_INFO)$(if $(NO_COMMIT),$(no_commit))
$(BUILD)/common/core/build_info.c.o: $(BUILD)/build_info.flags
$(BUILD)/common/device/device.c.o: EXTRA := -DNO_CUDA='"$(NO_CUDA)"'
$(BUILD)/common/device/device.c.o: $(BUILD)/config.mk
$(BUILD)/common/device/misfit.c.o: EXTRA := -DCUDA_ARCHS='"$(BUILT_FOR)"'
$(BUILD)/common/device/misfit.c.o: $(BUILD)/config.mk $(BUILD)/nvcc.flags
$(BUILD)/kernels/shared/build.c.o: EXTRA := $(KERNELS_ID)
$(BUILD)/kernels/shared/build.c.o: $(BUILD)/kernels_id.flags
$(BUILD)/common/train/tune/shipped.c.o: $(wildcard common/train/tune/choices/*.csv)
$(BUILD)/common/qualify/reference.c.o: $(wildcard reference/*.csv)
$(BUILD)/bench/mesh/published.c.o: results/published/mesh.csv
$(BUILD)/common/record/cupti.c.o $(BUILD)/common/record/cupti_library.c.o: EXTRA := $(CUPTI_CFLAGS)
$(BUILD)/common/comm/nccl.c.o: EXTRA := $(NCCL_CFLAGS)
$(BUILD)/common/comm/gloo.cc.o: EXTRA := $(GLOO_CFLAGS)

# What ptxas says of registers and spills is kept in a file; anything else it or nvcc says is shown.
ptxas_log = $(BUILD)/ptxas/$(subst /,.,$(patsubst kernels/cuda/%,%,$*)).txt
# Hopper kernels use wgmma and TMA, which exist only for sm_90a: those below a folder hopper/. The others are built for
# every architecture asked for.
HOPPER_CU   := $(foreach k,$(KERNEL_CU),$(if $(findstring /hopper/,$(k)),$(k)))
PORTABLE_CU := $(filter-out $(HOPPER_CU),$(KERNEL_CU))
$(call object,$(HOPPER_CU)): $(BUILD)/nvcc_hopper.flags
$(call object,$(PORTABLE_CU)): $(BUILD)/nvcc.flags
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D) $(BUILD)/ptxas
	$(call say,NVCC,$<)
	$(Q)$(if $(HURRIES),$(subst -O3,-O0,$(COMPILE_CU)),$(COMPILE_CU)) $(if $(findstring /hopper/,$*),$(GENCODE_SM90),$(GENCODE)) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ \
	    2>$(ptxas_log) || { cat $(ptxas_log) >&2; exit 1; }
	@grep -vE '^ptxas info |bytes stack frame|^$$' $(ptxas_log) >&2 || true

# An nvcc that hurries spills, and is not asked whether it does; its host code need not be fast, either.
HURRIES := $(findstring -Ofc,$(NVCCFLAGS))
# Fails when a kernel listed as spill-free spills where it must not, or when ptxas had to serialize the tensor-core pipeline.
check_ptxas = NVCC_VERSION='$(NVCC_VERSION)' WERROR='$(or $(STRICT),$(WERROR))' bash $(SCRIPTS)/check_ptxas.sh $(1) kernels/cuda/spill_free.txt \
              $(foreach k,$(patsubst kernels/cuda/%.cu,%,$(2)),$(BUILD)/ptxas/$(subst /,.,$(k)).txt)
$(BUILD)/ptxas/ok: $(call object,$(KERNEL_CU)) kernels/cuda/spill_free.txt $(SCRIPTS)/check_ptxas.sh
	@mkdir -p $(@D)
	@$(if $(HURRIES),,$(call check_ptxas,,$(KERNEL_CU)))
	@touch $@
# Writes into spill_free.txt what has been seen not to spill, by any toolkit, so that CI may compile it in a hurry.
JUDGES := $(and $(HAVE_CUDA),$(filter 90,$(subst $(comma), ,$(CUDA_ARCHS))),$(if $(NVCCFLAGS),,yes))
judged: STRICT := yes
judged: $(if $(JUDGES),$(BUILD)/ptxas/ok)
	@$(if $(JUDGES),,echo 'make judged: only a build with CUDA for sm_90 and without NVCCFLAGS tells what spills' >&2; exit 2)
	@$(call check_ptxas,,$(KERNEL_CU))
	@NVCC='$(FOUND_NVCC)' bash $(SCRIPTS)/judged.sh --write
# make test-archs: host code tells no architecture from another, and Hopper kernels are for one only.
$(BUILD)/ptxas/portable: $(call object,$(PORTABLE_CU)) kernels/cuda/spill_free.txt $(SCRIPTS)/check_ptxas.sh
	@mkdir -p $(@D)
	@$(if $(HURRIES),,$(call check_ptxas,--some,$(PORTABLE_CU)))
	@touch $@

-include $(patsubst %.o,%.d,$(COMMON_O) $(KERNEL_O) \
           $(REPORT_O) $(STEPCMP_O) $(STEPCKPT_O) $(BENCH_O) $(TEST_O) $(call object,$(wildcard bench/*.c tests/*/*.c tests/*/*/*.c)))

# ---- link ----

# The host code of every program: each takes from it only what it uses.
$(BUILD)/common.a: $(COMMON_O) $(BUILD)/members.flags
	@rm -f $@
	$(Q)$(AR) qcs $@ $(COMMON_O) # q: members of different rooms may share a name

# The kernels and what they use of common/core. Nothing here needs NCCL or Gloo.
SONAME  := libstepbench.so.$(firstword $(subst ., ,$(VERSION)))
LIBRARY := $(BUILD)/lib/libstepbench.so.$(VERSION)
PUBLIC_HEADERS  := kernels/types.h kernels/float8.h kernels/train.h kernels/kernels.h
PRIVATE_HEADERS := $(filter-out $(PUBLIC_HEADERS),$(shell grep -rhoE '"kernels/[^"]+\.h"' --include='*.[ch]' \
                     bench common tests | tr -d '"' | sort -u))
$(BUILD)/libstepbench.map: $(PUBLIC_HEADERS) $(PRIVATE_HEADERS) $(SCRIPTS)/exports.sh common/core/version.h
	@bash $(SCRIPTS)/exports.sh $(VERSION) $(PUBLIC_HEADERS) -- $(PRIVATE_HEADERS) | cmp -s - $@ || \
	    bash $(SCRIPTS)/exports.sh $(VERSION) $(PUBLIC_HEADERS) -- $(PRIVATE_HEADERS) >$@
$(LIBRARY): $(KERNEL_O) $(BUILD)/common/core/rng.c.o $(BUILD)/kernels.flags $(BUILD)/link.flags \
            $(BUILD)/libstepbench.map $(PTXAS_OK)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(LINK) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=$(BUILD)/libstepbench.map -Wl,-Bsymbolic \
	    -Wl,--no-undefined $(filter %.o,$^) -o $@ $(KERNEL_LIBS)
$(BUILD)/lib/$(SONAME): $(LIBRARY)
	@ln -sf $(<F) $@
$(BUILD)/lib/libstepbench.so: $(BUILD)/lib/$(SONAME)
	@ln -sf $(<F) $@

lib: $(BIN)/libstepbench.so
$(BIN)/libstepbench.so: $(BUILD)/lib/libstepbench.so
	@ln -sf $(if $(filter .,$(BIN)),$(BUILD)/lib,lib)/$(<F) $@

# Programs find the library beside them; the last folder is where it lies once installed. They are not linked again when
# only the library's insides have changed.
define link_program
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(LINK) $(filter %.o,$^) $(filter %.a,$^) $(LIBRARY) -o $@ $(foreach d,$(LIBRARY_FROM_HERE),'-Wl,-rpath,$$ORIGIN/$(d)') $(1) $(LIBS)
endef
PROGRAM_NEEDS := $(BUILD)/common.a $(BUILD)/link.flags $(BUILD)/libstepbench.map | $(BUILD)/lib/libstepbench.so

$(BENCHES) $(BIN)/stepcmp $(BIN)/stepckpt: LIBRARY_FROM_HERE := $(if $(filter .,$(BIN)),$(BUILD)/lib,lib) ../lib
$(BUILD)/report: LIBRARY_FROM_HERE := lib ../lib
$(TESTS) $(GPU_TESTS): LIBRARY_FROM_HERE := ../../lib

$(BENCHES): $(BIN)/%: $(BUILD)/bench/%.c.o $(BENCH_O) $(PROGRAM_NEEDS)
	$(call link_program)
# A section with an error in its SQL is no program.
$(BUILD)/report: $(REPORT_O) $(PROGRAM_NEEDS)
	$(call link_program,$(SQLITE_LIBS))
	@$@ --lint || { rm -f $@; exit 1; }
$(BIN)/stepcmp: $(STEPCMP_O) $(PROGRAM_NEEDS)
	$(call link_program)
$(BIN)/stepckpt: $(STEPCKPT_O) $(PROGRAM_NEEDS)
	$(call link_program)
# TEST_LINKER is gold where it works: it links 200 test programs in a third of the time.
$(TESTS): %: %.c.o $(TEST_O) $(PROGRAM_NEEDS)
	$(call link_program,$(TEST_LINKER) $(CMOCKA_LIBS))
$(BUILD)/tests/kernels/test_flash_choice: $(call object,tests/gpu/cases.c tests/gpu/program/dtypes.c)
# What the report is made of, without its main; a test of the engine brings texts of its own.
REPORT_PARTS := $(filter-out $(call object,plots/report.c) $(BUILD)/report_text.o,$(REPORT_O))
REPORT_TESTS := $(addprefix $(BUILD)/tests/report/test_,acceptance report_engine report_document html)
$(REPORT_TESTS): $(REPORT_PARTS)
$(filter-out %_engine,$(REPORT_TESTS)): $(BUILD)/report_text.o
$(REPORT_TESTS): LIBS += $(SQLITE_LIBS)
# Tests that are a bench, too: its main under another name.
$(BUILD)/tests/bench/%_main.o: bench/bench_%.c $(BUILD)/bench/bench_%.c.o
	@mkdir -p $(@D)
	$(Q)$(COMPILE_C) -Dmain=bench_main_$* -c $< -o $@
# bench_allreduce with graphs and calls of its own.
$(BUILD)/tests/bench/test_collective_graph: $(BUILD)/tests/bench/allreduce_main.o $(filter $(BUILD)/bench/collective/%,$(BENCH_O))
$(BUILD)/tests/bench/test_collective_graph: LIBS += $(addprefix -Wl$(comma)--wrap=,\
    comm_all_reduce comm_all_gather comm_reduce_scatter comm_broadcast \
    device_has_graphs device_graph_begin device_graph_end device_graph_launch device_graph_destroy)
# Host names that have addresses of both families.
$(BUILD)/tests/launch/test_launch: LIBS += -Wl,--wrap=getaddrinfo
# Rows between ranks with copy engines that take their time.
$(BUILD)/tests/comm/test_windows: LIBS += -Wl,--wrap=device_stream_copy
$(BUILD)/tests/context/test_moves: LIBS += -Wl,--wrap=device_stream_copy -Wl,--wrap=context_attend
# bench_roofline with a device that never closes.
$(BUILD)/tests/bench/test_close: $(BUILD)/tests/bench/roofline_main.o $(filter $(BUILD)/bench/roofline/%,$(BENCH_O))
$(BUILD)/tests/bench/test_close: LIBS += -Wl,--wrap=device_close
# Tests of checkpoints share a state that no trainer made.
$(addprefix $(BUILD)/tests/checkpoint/test_,checkpoint crash kills stepckpt): $(BUILD)/tests/checkpoint/saved_state.c.o
# Saves whose writes are counted, and of a device that is behind.
$(BUILD)/tests/checkpoint/test_checkpoint: LIBS += $(addprefix -Wl$(comma)--wrap=,pwrite device_stream_follow device_sync)
# Packed documents of bench_flash beside those of its peers.
$(BUILD)/tests/peers/test_peers: $(call object,bench/attention/documents.c)
# Saves whose changes of files are recorded, and replayed up to any point.
$(BUILD)/tests/checkpoint/test_crash: LIBS += $(addprefix -Wl$(comma)--wrap=,open mkdir rename renameat2 unlink ftruncate fsync pwrite)
# GPUs and drivers that are not here.
$(BUILD)/tests/device/test_misfit: LIBS += $(addprefix -Wl$(comma)--wrap=,\
    cudaGetDeviceCount cudaDriverGetVersion cudaGetDeviceProperties cudaGetDeviceProperties_v2)
# Four benches with a GPU's sensors on the CPU.
$(BUILD)/tests/bench/test_energy: $(patsubst %,$(BUILD)/tests/bench/%_main.o,transformer flash roofline run) $(BENCH_O)
$(BUILD)/tests/bench/test_energy: LIBS += -Wl,--wrap=device_cpu_open
$(GPU_TESTS): %: %.c.o $(GPU_TEST_O) $(PROGRAM_NEEDS)
	$(call link_program)

# The first line of --help says what a program asks. Examples, what values an option takes, further ways to call a program and words
# with their meaning have lines of their own.
man: $(PROGRAMS)
	@command -v help2man >/dev/null || { echo 'make man: help2man is missing; on Debian or Ubuntu: apt-get install help2man' >&2; exit 1; }
	@mkdir -p $(BUILD)/man
	$(if $(REPORT),@ln -sf ../report $(BUILD)/man/stepbench-report)
	@for program in $(BENCHES) $(BIN)/stepcmp $(BIN)/stepckpt $(REPORT:%/report=%/man/stepbench-report); do name=$${program##*/}; \
	    help2man --no-info --version-string="$$name (stepbench) $(VERSION)" --name="$$($$program --help | sed -n '1s/^[^:]*: *//p')" \
	        $$program | sed -E -e 's|^\\&\./|.br\n&|' -e 's|^.*\[default .*\]$$|.br\n&|' -e "s/^($$name [a-z]+ [A-Z[]|[a-z]+  )/.br\n&/" \
	            >$(BUILD)/man/$$name.1 || exit; \
	done

# A path as the shell takes it: it may hold spaces, and a leading ~ stands for home.
INSTALL_TO := $(subst '~/,~/',$(call quote,$(DESTDIR)$(PREFIX)))
BINDIR     := $(INSTALL_TO)/bin
LIBDIR     := $(INSTALL_TO)/lib
DATADIR    := $(INSTALL_TO)/share
INCLUDEDIR := $(INSTALL_TO)/include/stepbench
COMPLETIONS := $(DATADIR)/bash-completion/completions
install: $(PROGRAMS) lib $(if $(shell command -v help2man),man)
	install -d $(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR)/kernels
	install -m 755 $(BENCHES) $(BINDIR)
	install -m 755 $(BIN)/stepcmp $(BIN)/stepckpt $(BINDIR)
	$(if $(HAVE_SQLITE),install -m 755 $(BUILD)/report $(BINDIR)/stepbench-report)
	install -m 755 $(LIBRARY) $(LIBDIR)
	ln -sf $(notdir $(LIBRARY)) $(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(LIBDIR)/libstepbench.so
	install -m 644 $(PUBLIC_HEADERS) $(INCLUDEDIR)/kernels
	sed -e 's|@PREFIX@|$(subst $(empty) ,\\ ,$(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' $(SCRIPTS)/stepbench.pc.in >$(LIBDIR)/pkgconfig/stepbench.pc
	install -d $(DATADIR)/stepbench/plots $(DATADIR)/doc/stepbench $(DATADIR)/man/man1 $(COMPLETIONS)
	cp -R reference packages $(DATADIR)/stepbench
	cp -R plots/draw.sh plots/style.gp plots/figures plots/shared $(DATADIR)/stepbench/plots
	install -m 755 packages/stepbench-plots $(BINDIR)
	cp -R README.md LICENSE CHANGELOG.md docs $(DATADIR)/doc/stepbench
	install -m 644 packages/completion.bash $(COMPLETIONS)/stepbench
	for bench in $(notdir $(BENCHES)); do ln -sf stepbench $(COMPLETIONS)/$$bench; done
	! [ -d $(BUILD)/man ] || install -m 644 $(BUILD)/man/*.1 $(DATADIR)/man/man1
	chmod -R u=rwX,go=rX $(LIBDIR)/pkgconfig/stepbench.pc $(DATADIR)/stepbench $(DATADIR)/doc/stepbench # whatever the umask

test-launchers: $(PROGRAMS) lib
	@bash tests/launch/launchers.sh $(BIN)

test-install: $(PROGRAMS) lib
	@CC='$(CC)' BUILD='$(BUILD)' bash $(SCRIPTS)/test_install.sh

# ---- run ----

# Headers are compiled with what finds those of libraries; a library that is not here has none.
LINT_NEEDS = OBJECTS='$(BUILD)' CC='$(CC)' CXX='$(CXX)' CUDA_CFLAGS='$(CUDA_CFLAGS)' HAVE_CUPTI='$(HAVE_CUPTI)' \
             HAVE_SQLITE='$(HAVE_SQLITE)' HAVE_CMOCKA='$(HAVE_CMOCKA)' \
             LIBRARY_CFLAGS='$(strip $(CUPTI_CFLAGS) $(SQLITE_CFLAGS) $(CMOCKA_CFLAGS))'

run-tests: $(PROGRAMS) $(if $(HAVE_CMOCKA),$(TESTS))
	@$(if $(HAVE_CMOCKA),,echo 'make test: cmocka was not found; install libcmocka-dev, or set CMOCKA_HOME' >&2; exit 1)
	@STEPBENCH_BIN=$(BIN) $(LINT_NEEDS) \
	    bash $(SCRIPTS)/run_tests.sh $(BUILD)/tests $(if $(SANITIZERS),,$(LINT)) $(TESTS)

# Gloo itself is built without it: what it does inside is left out.
tsan-tests: $(addprefix $(BUILD)/tests/,device/test_cpu_stream launch/test_launch comm/test_comm record/test_record \
            comm/test_peer comm/test_windows context/test_moves parallel/test_parallel replica/test_copies step/test_offload data/test_data)
	@TSAN_OPTIONS='suppressions=$(CURDIR)/$(SCRIPTS)/tsan.supp exitcode=66' \
	    bash $(SCRIPTS)/run_tests.sh $(BUILD)/tests $^

arch-kernels: $(if $(HAVE_CUDA),$(BUILD)/ptxas/portable)
	@$(if $(HAVE_CUDA),echo 'compiled for $(CUDA_ARCHS)',echo 'make test-archs: there is no CUDA toolkit (see above)' >&2; exit 77)

gpu-tests: $(GPU_TESTS)
# The tests of the whole model run on any device.
MODEL_TESTS := $(if $(HAVE_CMOCKA),$(addprefix $(BUILD)/tests/,train/test_model train/test_model_modes train/test_model_update train/test_float8 step/test_offload))
run-gpu-tests: $(if $(HAVE_CUDA),gpu-tests $(MODEL_TESTS))
	@MODEL_TESTS='$(MODEL_TESTS)' HAVE_CUDA='$(HAVE_CUDA)' CUDA_HOME='$(FOUND_CUDA_HOME)' bash $(SCRIPTS)/run_gpu_tests.sh $(GPU_TESTS)

tidy: $(BUILD)/config.mk
	@command -v clang-tidy >/dev/null || { echo 'make tidy: clang-tidy is not installed' >&2; exit 1; }
	@git ls-files '*.c' | grep -v '^kernels/cuda/' | xargs -P "$$(nproc)" -n 12 sh -c \
	    'clang-tidy --quiet "$$@" -- $(filter-out $(CC) $(WERROR) $(SANITIZERS),$(COMPILE_C)) -DNO_CUDA=\"\" -DCUDA_ARCHS=\"\" 2>/dev/null' tidy

# Objects of the host's code: a link circle may go through any of them. Those of kernels count where they were built.
lint: $(filter %.c.o %.cc.o,$(COMMON_O) $(KERNEL_O) $(BENCH_O) $(if $(HAVE_SQLITE),$(REPORT_O)) $(STEPCMP_O) $(STEPCKPT_O) $(call object,$(wildcard bench/*.c)))
	@$(LINT_NEEDS) bash $(SCRIPTS)/lint.sh

plots: $(REPORT) $(BENCHES)
	$(needs_report)
	@$(set_folders); for dir; do BENCHES=$(BIN) REPORT=$(BUILD)/report sh plots/draw.sh "$${dir%/}" || exit; done

report: $(REPORT)
	$(needs_report)
	@$(set_folders); for dir; do $(BUILD)/report "$${dir%/}" || exit; done

report-all: $(REPORT)
	$(needs_report)
	@$(set_folders); $(BUILD)/report --all results "$$@"

# A machine's results as one file, to be sent, and such a file from somebody else, into results/.
pack: check-results
	@$(set_folders); for dir; do bash $(SCRIPTS)/results.sh pack "$$dir" || exit; done

unpack:
	@into=$$(bash $(SCRIPTS)/results.sh unpack $(call quote,$(value FILE)) results) && $(MAKE) --no-print-directory check-results RESULTS="$$into"

# A bench with its least number of GPUs, by its lists of runs; one that runs apart is in no list of run_all.sh.
check-results: $(REPORT) $(BENCHES)
	$(needs_report)
	@$(set_folders); for dir; do \
	    $(BUILD)/report --check "$${dir%/}" $$(for bench in $(BENCHES); do \
	        $$bench --list-runs | awk -F '\t' -v name=$${bench##*/} '$$1 == "apart" { apart = 1 } \
	            $$1 == "run" && $$2 ~ /default/ && (!n || $$3 < n) { n = $$3 } END { if (n && !apart) print name ":" n }'; \
	    done) || code=$$?; \
	done; exit $${code:-0}

choices: $(BIN)/bench_transformer
	@bash $(SCRIPTS)/choices.sh $(abspath $<)

columns: $(BENCHES)
	@bash $(SCRIPTS)/columns.sh $(BIN) >docs/columns.md

print-config:
	@cat $(BUILD)/config.txt
	@printf '%s\n' '' $(call quote,$(COMPILE_C)) $(if $(HAVE_CUDA),$(call quote,$(COMPILE_CU) $(GENCODE)))

endif
