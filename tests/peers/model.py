# SPDX-License-Identifier: MIT
"""The language model of the benches in PyTorch: pre-norm RMSNorm, RoPE, SwiGLU of three matrices, an untied head."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import start
from load import SIZES, VOCAB, vocab_of


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
    """`fused`: one product makes q, k and v, and one gate and up. With `recompute` set, the backward repeats the MLP's forward."""
    recompute = False

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
        return x + (checkpoint(self.mlp, x, use_reentrant=False) if self.recompute else self.mlp(x))

    def mlp(self, x):
        y = self.norm_mlp(x)
        gate, up = self.gate_up(y).chunk(2, -1) if self.fused else (self.gate(y), self.up(y))
        return self.down(F.silu(gate) * up)


class Tail(nn.Module):
    """Norm and head: logits, or the loss where targets are given."""

    def __init__(self, width, vocab):
        super().__init__()
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, x, targets=None):
        logits = self.head(self.norm(x))
        return logits if targets is None else F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


PART_ROWS = 4096  # as ours has them at once where the vocabulary is large


def entropy_of(logits, targets, scale):
    """The sum over rows of their cross-entropy, times `scale`, and its gradient."""
    x = logits.float()
    total = torch.logsumexp(x, -1, keepdim=True)
    picked = targets.unsqueeze(1)
    loss = (total - x.gather(1, picked)).sum() * scale
    one = torch.arange(x.shape[1], device=x.device) == picked
    return loss, ((torch.exp(x - total) - one.float()) * scale).to(logits.dtype)


class LossInParts(torch.autograd.Function):
    """Of a part of the rows after the other, each with its gradients, so that all logits are never there together."""

    @staticmethod
    def forward(ctx, rows, weight, targets, entropy):
        d_rows, d_weight, loss = torch.empty_like(rows), None, torch.zeros((), device=rows.device)
        for part, ids, d_part in zip(*(t.split(PART_ROWS) for t in (rows, targets, d_rows))):
            part_loss, d_logits = entropy(part @ weight.t(), ids, 1 / len(rows))
            loss += part_loss
            torch.mm(d_logits, weight, out=d_part)
            d_weight = d_logits.t() @ part if d_weight is None else d_weight.addmm_(d_logits.t(), part)
        ctx.save_for_backward(d_rows, d_weight)
        return loss

    @staticmethod
    def backward(ctx, grad):
        d_rows, d_weight = ctx.saved_tensors
        return d_rows * grad, d_weight.mul_(grad), None, None


class TailInParts(Tail):
    def forward(self, x, targets):
        return LossInParts.apply(self.norm(x).flatten(0, 1), self.head.weight, targets.flatten(), self.entropy)


class LanguageModel(nn.Module):
    def __init__(self, size, seq, vocab=0, fused=False):
        super().__init__()
        width, inner, layers, heads = SIZES[size]
        vocab = vocab or vocab_of(size)
        self.embedding, self.tail = nn.Embedding(vocab, width), Tail(width, vocab)
        self.blocks = nn.ModuleList(Block(width, inner, heads, fused) for _ in range(layers))
        angles = torch.outer(torch.arange(seq).float(), 10000.0 ** (-torch.arange(0, width // heads, 2).float() / (width // heads)))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets=None):
        """Logits, or the loss where targets are given."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.tail(x, targets)


def compile_blocks(model, tail, parts=False):
    """Blocks are alike and compiled once. `tail`: the head's loss is compiled, too, with `parts` for some rows at a time."""
    for place, block in enumerate(model.blocks):
        model.blocks[place] = torch.compile(block, dynamic=False)
    if parts:
        model.tail.__class__ = TailInParts
        model.tail.norm, model.tail.entropy = torch.compile(model.tail.norm, dynamic=False), torch.compile(entropy_of, dynamic=False)
    elif tail:
        model.tail = torch.compile(model.tail, dynamic=False)


def create(size, seq, fused=False, device="cuda"):
    """With the parameters from which the benches start."""
    with torch.device(device):
        model = LanguageModel(size, seq, fused=fused)
    start.fill_parameters(model)
    return model


def round_parameters(model):
    """To bf16; RoPE's angles stay in fp32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()


def batch_of(count, seq, seed=1):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randint(0, VOCAB, (count, seq), device="cuda", generator=generator) for _ in range(2)]


def loss_of(function, inputs, targets, tail=False):
    """`tail`: by the compiled tail of the model within `function`."""
    if tail:
        return function(inputs, targets)
    return F.cross_entropy(function(inputs).float().flatten(0, 1), targets.flatten())
