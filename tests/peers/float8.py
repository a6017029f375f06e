# SPDX-License-Identifier: MIT
"""Linear layers whose three products are torch._scaled_mm of float8: torchao's tensorwise and rowwise recipes, written out, so that no
other package is needed; and torchao's own, where it is installed. Compiled, their casts become a few kernels."""
import torch
from torch import nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def cast(x, dtype, rowwise):
    """Codes of a (rows, k) matrix, and scales to multiply them by: powers of two, as ours."""
    most = torch.finfo(dtype).max
    largest = x.abs().amax(dim=1, keepdim=True) if rowwise else x.abs().amax()
    scale = torch.exp2(torch.ceil(torch.log2(largest.float().clamp(min=1e-30) / most)))
    return (x.float() / scale).clamp(-most, most).to(dtype).contiguous(), scale


def product(a, kind_a, b, rowwise, fast):
    """a (m, k) by b (n, k): (m, n)."""
    codes_a, scale_a = cast(a, kind_a, rowwise)
    codes_b, scale_b = cast(b, E4M3, rowwise)
    return torch._scaled_mm(codes_a, codes_b.t(), scale_a, scale_b.t() if rowwise else scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)


class Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, rowwise):
        ctx.save_for_backward(x, weight)
        ctx.rowwise = rowwise
        return product(x, E4M3, weight, rowwise, True)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        kind = E4M3 if ctx.rowwise else E5M2
        dx = product(dy, kind, weight.t(), ctx.rowwise, False)
        dw = product(dy.t(), kind, x.t(), ctx.rowwise, False)
        return dx, dw, None


class Linear(nn.Linear):
    rowwise = False

    def forward(self, x):
        return Products.apply(x.flatten(0, -2), self.weight, self.rowwise).unflatten(0, x.shape[:-1])


class RowwiseLinear(Linear):
    rowwise = True


def convert(model, precision, recipe=None):
    """The linear layers of the blocks, by a recipe of torchao where there is one; head and embedding stay in bf16."""
    if recipe:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
        convert_to_float8_training(model.blocks, config=Float8LinearConfig.from_recipe_name(recipe))
        return
    for block in model.blocks:
        for module in block.modules():
            if type(module) is nn.Linear:
                module.__class__ = RowwiseLinear if precision == "fp8-rowwise" else Linear
