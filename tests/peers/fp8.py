# SPDX-License-Identifier: MIT
"""Products of float8 in the scalings of bench_mixed_precision --variant float8: torch._scaled_mm, and for squares
torch.nn.functional.scaled_mm, which alone takes their scales as cuBLAS wants them for every k; by blocks, DeepGEMM's as well."""
import importlib.util

import torch
from torch.nn import functional

import clock
from record import reason_of

SHAPES = ((4096, 4800, 1600), (4096, 1600, 1600), (4096, 12800, 1600), (4096, 1600, 6400), (12800, 1600, 4096), (8192, 8192, 8192))
# With some of those above, the twelve products of a layer of xl: these are of its backward.
GRADIENTS = ((4096, 1600, 4800), (4096, 1600, 12800), (4096, 6400, 1600), (4800, 1600, 4096), (1600, 1600, 4096), (1600, 6400, 4096))

# Formats of A and B, blocks of A and B as (rows, columns) with None for all, and whether sums are fast: use_fast_accum.
PRODUCTS = {
    "tensor-fast": ("e4m3", "e4m3", (None, None), (None, None), True),
    "tensor": ("e4m3", "e4m3", (None, None), (None, None), False),
    "tensor-e5m2": ("e5m2", "e4m3", (None, None), (None, None), False),
    "row-fast": ("e4m3", "e4m3", (1, None), (1, None), True),
    "row": ("e4m3", "e4m3", (1, None), (1, None), False),
    "block": ("e4m3", "e4m3", (1, 128), (128, 128), False),
    "block-dw": ("e4m3", "e4m3", (1, 128), (1, 128), False),
}


def up(n, unit):
    return (n + unit - 1) // unit


def cast(x, kind, block):
    """Codes of (rows, k), and a scale for each block, all powers of two, that the largest magnitude of a block fits with."""
    dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]
    most, (rows, k) = torch.finfo(dtype).max, x.shape
    height, width = block[0] or rows, block[1] or k
    padded = torch.nn.functional.pad(x.float(), (0, -k % width, 0, -rows % height))
    blocks = padded.view(up(rows, height), height, up(k, width), width)
    largest = blocks.abs().amax(dim=(1, 3), keepdim=True)
    scales = torch.where(largest > 0, torch.exp2(torch.ceil(torch.log2(largest / most))), 1.0)
    codes = (blocks / scales).clamp(-most, most).view(padded.shape)[:rows, :k].to(dtype)
    return codes.contiguous(), scales[:, 0, :, 0]


def lie(scales, block):
    """A number; a column; blocks of 1x128 with rows together; squares with k together, padded to four, as cuBLAS has them."""
    if block == (None, None):
        return scales.reshape(())
    if block[1] is None:
        return scales.reshape(-1, 1)
    if block == (1, 128):
        return scales.t().contiguous().t()
    padded = torch.zeros(scales.shape[0], up(scales.shape[1], 4) * 4, device=scales.device)
    padded[:, :scales.shape[1]] = scales
    return padded.t()


def error(d, a, b):
    """Relative L2 of the first 64 rows and columns against double sums of the operands in bf16."""
    want = a[:64].double() @ b[:64].double().t()
    return ((d[:64, :64].double() - want).norm() / want.norm()).item()


DEEP = "deep-block"  # DeepGEMM's `block`; with 1x128 blocks on both sides it only adds to a matrix in fp32, which is other work


def deep_product_of(codes, scales, out):
    """A call of DeepGEMM, whose scales lie as it wants them beforehand. It compiles a kernel at the first call of a shape."""
    import deep_gemm
    (codes_a, codes_b), (scales_a, scales_b) = codes, scales
    operands = (codes_a, deep_gemm.get_mn_major_tma_aligned_tensor(scales_a.contiguous())), (codes_b, scales_b.contiguous())
    return lambda: (deep_gemm.fp8_gemm_nt(*operands, out, recipe=(1, 128, 128)), out)[1]


def product_of(name, a, b):
    """A call that multiplies the codes."""
    if name == "bf16":
        out = torch.empty(a.shape[0], b.shape[0], device="cuda", dtype=torch.bfloat16)
        return lambda: torch.mm(a, b.t(), out=out)
    kind_a, kind_b, block_a, block_b, fast = PRODUCTS[name.removeprefix("deep-")]
    codes_a, scales_a = cast(a, kind_a, block_a)
    codes_b, scales_b = cast(b, kind_b, block_b)
    if name == DEEP:
        out = torch.empty(a.shape[0], b.shape[0], device="cuda", dtype=torch.bfloat16)
        return deep_product_of((codes_a, codes_b), (scales_a, scales_b), out)
    scale_a, scale_b = lie(scales_a, block_a), lie(scales_b, block_b)
    if block_b == (128, 128):
        kinds = functional.ScalingType
        return lambda: functional.scaled_mm(codes_a, codes_b.t(), scale_a, kinds.BlockWise1x128, scale_b, kinds.BlockWise128x128,
                                            output_dtype=torch.bfloat16)
    return lambda: torch._scaled_mm(codes_a, codes_b.t(), scale_a, scale_b.t(), out_dtype=torch.bfloat16, use_fast_accum=fast)


def named(name):
    if name == DEEP:
        return "deep_gemm.fp8_gemm_nt"
    return "torch.mm" if name == "bf16" else "torch.nn.functional.scaled_mm" if name == "block" else "torch._scaled_mm"


def fp8(rows, small):
    """What a library refuses, or has no memory for, gets a row that says so."""
    deep = (DEEP,) if importlib.util.find_spec("deep_gemm") else ()
    for m, n, k in ((512, 512, 1024),) if small else (*SHAPES, *GRADIENTS):
        a, b = torch.randn(m, k, device="cuda", dtype=torch.bfloat16), torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        for name in ("bf16", "tensor-e5m2") if (m, n, k) in GRADIENTS else ("bf16", *PRODUCTS, *deep):
            case = dict(bench="fp8", product=name.removeprefix("deep-"), shape=f"{m}x{n}x{k}", mode="graph",
                        policy=f"{named(name)}, operands ready; {clock.SETTLED}")
            try:
                call = product_of(name, a, b)
                wrong = error(call(), a, b)
                graph, calls = clock.capture(call, torch.cuda.Stream())
            except Exception as refused:
                rows.add(**case, note=reason_of(refused))
                continue
            if not wrong < 0.2:
                rows.add(**case, err_rel=wrong, note="its product is wrong, so it was not timed")
                continue
            times = clock.call_times(graph, calls)
            rows.add(**case, **times, tflops=2 * m * n * k / times["median_ms"] / 1e9, err_rel=wrong)
