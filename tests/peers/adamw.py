# SPDX-License-Identifier: MIT
"""AdamW of PyTorch in the ways that a step can have it: the library's fused one, and one compiled from its formula, which makes each
tensor's update a single kernel and may keep an fp32 value in two halves."""
import torch

LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01  # as the benches'


def moved(w, m, v, grad, rates):
    """rates: lr / (1 - beta1^t), 1 / (1 - beta2^t)."""
    grad = grad.float()
    m = BETA1 * m + (1 - BETA1) * grad
    v = BETA2 * v + (1 - BETA2) * grad * grad
    return w * (1 - LR * DECAY) - rates[0] * m / (torch.sqrt(v * rates[1]) + EPS), m, v


def update_whole(p, rest, m, v, grad, rates):
    """Weights and moments of fp32."""
    w, new_m, new_v = moved(p, m, v, grad, rates)
    p.copy_(w)
    m.copy_(new_m)
    v.copy_(new_v)


def update_halves(p, rest, m, v, grad, rates):
    """bf16 weights: the nearest to an fp32 value, of which `rest` (int16) is the difference of the bits. 26 bytes are moved."""
    w = ((p.view(torch.int16).int() << 16) + rest.int()).view(torch.float32)
    w, new_m, new_v = moved(w, m, v, grad, rates)
    bits = w.view(torch.int32)
    high = bits + 0x8000 >> 16
    p.copy_(high.to(torch.int16).view(torch.bfloat16))
    rest.copy_((bits - (high << 16)).to(torch.int16))
    m.copy_(new_m)
    v.copy_(new_v)


def local(tensor):
    """What this rank has of a sharded one."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Compiled:
    """Updates after the backward or, with `beside`, on another stream as soon as a gradient is complete."""

    def __init__(self, parameters, halves, beside=False, device="cuda"):
        torch._dynamo.config.recompile_limit = 64  # a kernel for each shape
        self.parameters = list(parameters)
        self.update = torch.compile(update_halves if halves else update_whole, dynamic=False)
        zeros = lambda p, dtype=torch.float32: torch.zeros(local(p).shape, dtype=dtype, device=p.device)
        self.state = {p: (zeros(p, torch.int16) if halves else None, zeros(p), zeros(p)) for p in self.parameters}
        self.count, self.rates = torch.zeros((), device=device), torch.zeros(2, device=device)
        self.stream, self.done, self.hooks = None, [], []
        if beside:
            self.stream = torch.cuda.Stream()
            self.compile_all()
            self.hooks = [p.register_post_accumulate_grad_hook(self.update_beside) for p in self.parameters]

    def close(self):
        """A hook holds what it updates, which holds the hook, where Python's collector does not look."""
        for hook in self.hooks:
            hook.remove()

    @torch.no_grad()
    def compile_all(self):
        """On other tensors: gradients become complete in threads of autograd, which are no place to compile in."""
        for p in {p.shape: p for p in self.parameters}.values():
            self.update(p.detach().clone(), *(t if t is None else t.clone() for t in self.state[p]), torch.zeros_like(p), self.rates)

    @torch.no_grad()
    def begin(self):
        """A step begins: what all tensors share."""
        self.count += 1
        self.rates.copy_(torch.stack((LR / (1 - BETA1**self.count), 1 / (1 - BETA2**self.count))))

    @torch.no_grad()
    def update_one(self, p):
        self.update(local(p.detach()), *self.state[p], local(p.grad), self.rates)

    def update_beside(self, p):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.update_one(p)
        self.done.append(p.grad)  # its memory is not free before the streams have joined

    def step(self):
        if self.stream:
            torch.cuda.current_stream().wait_stream(self.stream)
            self.done.clear()
        else:
            for p in self.parameters:
                self.update_one(p)


class Fused(torch.optim.AdamW):
    """The library's own."""

    def __init__(self, parameters, capturable):
        super().__init__(parameters, lr=LR, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY, fused=True, capturable=capturable)

    def begin(self):
        pass

    def close(self):
        pass
