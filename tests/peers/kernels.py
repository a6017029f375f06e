# SPDX-License-Identifier: MIT
"""PyTorch's products, copies and fused AdamW: the peers of bench_roofline and of the optimizer's update."""
import torch

import adamw as optimizers
import clock


def gemm(rows, small):
    """C = A B^T of squares on N(0,1) numbers, and a copy; tf32 is asked for by PyTorch's switch."""
    for dtype in ("bf16", "fp16", "tf32", "fp32"):
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        for size in (1024,) if small else (1024, 2048, 4096, 8192):
            kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
            a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
            c = torch.empty(size, size, device="cuda", dtype=kind)
            times = clock.call_times(*clock.capture(lambda: torch.mm(a, b.t(), out=c), torch.cuda.Stream()))
            rows.add(bench="gemm", dtype=dtype, size=size, mode="graph", policy=f"torch.mm, A B^T, warm; {clock.SETTLED}", **times,
                     tflops=2 * size**3 / times["median_ms"] / 1e9)
    torch.backends.cuda.matmul.allow_tf32 = False
    for size in (1 << 26,) if small else (1 << 26, 1 << 28, 1 << 30):
        a = torch.randn(size // 4, device="cuda")
        b = torch.empty_like(a)
        times = clock.call_times(*clock.capture(lambda: b.copy_(a), torch.cuda.Stream()))
        rows.add(bench="copy", dtype="fp32", size=size, mode="graph", policy=f"Tensor.copy_, bytes read and written; {clock.SETTLED}",
                 **times, gb_s=2 * size / times["median_ms"] / 1e6)


def adamw(rows, small):
    """fp32 weights, gradients and moments: 16 bytes read and 12 written for each parameter."""
    count = 50_000_000 if small else 500_000_000
    weight = torch.nn.Parameter(torch.randn(count, device="cuda"))
    weight.grad = torch.randn(count, device="cuda")
    compiled = optimizers.Compiled([weight], halves=False)
    for impl, policy, step in (("fused", "torch.optim.AdamW", torch.optim.AdamW([weight], lr=1e-4, fused=True).step),
                               ("compiled", "torch.compile of AdamW's formula", lambda: (compiled.begin(), compiled.step()))):
        times = clock.spread(clock.samples_ms(step, 3, 10, clock.SETTLE_S))
        rows.add(bench="adamw", impl=impl, params=count, mode="event", policy=f"{policy}, all fp32; {clock.SETTLED}", **times,
                 gb_s=28 * count / times["median_ms"] / 1e6)
