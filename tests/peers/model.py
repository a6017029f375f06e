# SPDX-License-Identifier: MIT
"""The language model of the benches in PyTorch: pre-norm RMSNorm, RoPE, SwiGLU of three matrices, an untied head."""
import torch
import torch.nn.functional as F
from torch import nn

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


def naive_attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], device=q.device, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v


class Block(nn.Module):
    def __init__(self, width, inner, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm_attention, self.norm_mlp = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        y = self.norm_attention(x)
        q, k, v = (linear(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.attention == "naive":
            y = naive_attention(q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LanguageModel(nn.Module):
    def __init__(self, size, seq, attention="sdpa", vocab=VOCAB):
        super().__init__()
        width, inner, layers, heads = SIZES[size]
        self.embedding = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, inner, heads, attention) for _ in range(layers))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocab, bias=False)
        angles = torch.outer(torch.arange(seq).float(), 10000.0 ** (-torch.arange(0, width // heads, 2).float() / (width // heads)))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def create(size, seq, attention="sdpa"):
    """On the GPU; matrices are N(0, 0.02)."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LanguageModel(size, seq, attention)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02)
    return model


def batch_of(count, seq, seed=1):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randint(0, VOCAB, (count, seq), device="cuda", generator=generator) for _ in range(2)]


def loss_of(function, inputs, targets):
    return F.cross_entropy(function(inputs).float().flatten(0, 1), targets.flatten())
