# SPDX-License-Identifier: MIT
# stepbench, built where it lies, and its programs on the PATH (docs/packages.md):
#   docker build -t stepbench .
#   docker build -t stepbench-cpu --build-arg BASE=debian:bookworm-slim .
ARG BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04
# hadolint ignore=DL3006
FROM ${BASE}
# No GPU is seen while an image is built, so the types are named: A100; RTX 4090 and L40S; H100 and H200.
ARG CUDA_ARCH=80,89,90a
WORKDIR /stepbench
COPY . .
RUN bash common/build/setup.sh git ca-certificates && rm -rf /var/lib/apt/lists/*
RUN git config --global --add safe.directory /stepbench \
    && make -j"$(nproc)" SETUP=0 CUDA_ARCH="${CUDA_ARCH}" \
    && make SETUP=0 CUDA_ARCH="${CUDA_ARCH}" install
ENV SETUP=0 CUDA_ARCH=${CUDA_ARCH}
CMD ["./run_all.sh", "--quick"]
