# SPDX-License-Identifier: MIT
"""The language model of the benches in PyTorch: pre-norm RMSNorm, RoPE, SwiGLU of three matrices, an untied head."""
import torch
import torch.nn.functional as F
from torch import nn

import start
from load import SIZES, VOCAB


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight).to(x.dtype)


def rotate(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


class Block(nn.Module):
    """`fused`: one product makes q, k and v, and one gate and up."""

    def __init__(self, width, inner, heads, fused=False):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm_attention, self.norm_mlp = RMSNorm(width), RMSNorm(width)
        if fused:
            self.qkv, self.gate_up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 2 * inner, bias=False)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
            self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.out, self.down = nn.Linear(width, width, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        y = self.norm_attention(x)
        parts = self.qkv(y).chunk(3, -1) if self.fused else (self.q(y), self.k(y), self.v(y))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm_mlp(x)
        gate, up = self.gate_up(y).chunk(2, -1) if self.fused else (self.gate(y), self.up(y))
        return x + self.down(F.silu(gate) * up)


class LanguageModel(nn.Module):
    def __init__(self, size, seq, vocab=VOCAB, fused=False):
        super().__init__()
        width, inner, layers, heads = SIZES[size]
        self.embedding = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, inner, heads, fused) for _ in range(layers))
        self.norm, self.head, self.tail = RMSNorm(width), nn.Linear(width, vocab, bias=False), loss_of_rows
        angles = torch.outer(torch.arange(seq).float(), 10000.0 ** (-torch.arange(0, width // heads, 2).float() / (width // heads)))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets=None):
        """Logits, or the loss where targets are given."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x)) if targets is None else self.tail(self.norm, self.head, x, targets)


def compile_blocks(model, tail):
    """Blocks are alike and compiled once. `tail`: the head's loss is compiled, too."""
    for place, block in enumerate(model.blocks):
        model.blocks[place] = torch.compile(block, dynamic=False)
    if tail:
        model.tail = torch.compile(loss_of_rows, dynamic=False)


def create(size, seq, fused=False, device="cuda"):
    """With the parameters from which the benches start."""
    with torch.device(device):
        model = LanguageModel(size, seq, fused=fused)
    start.fill_parameters(model)
    return model


def batch_of(count, seq, seed=1):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randint(0, VOCAB, (count, seq), device="cuda", generator=generator) for _ in range(2)]


def loss_of(function, inputs, targets, tail=False):
    """`tail`: by the compiled tail of the model within `function`."""
    if tail:
        return function(inputs, targets)
    return F.cross_entropy(function(inputs).float().flatten(0, 1), targets.flatten())


def loss_of_rows(norm, head, rows, targets):
    return F.cross_entropy(head(norm(rows)).float().flatten(0, 1), targets.flatten())
