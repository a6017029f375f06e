# SPDX-License-Identifier: MIT
"""libstepbench.so through ctypes: the attention ops of kernels/kernels.h, on any memory.

The structures below repeat that header by hand; `peers.py --self-test` compares them with what a C compiler makes of
it, and calls the CPU's ops with them."""
import ctypes
import os
import subprocess
import tempfile

OK = 0
DTYPES = {"bf16": 0, "fp16": 1, "tf32": 2, "fp32": 3, "bf16x3": 4}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride_b", ctypes.c_int64), ("stride_h", ctypes.c_int64), ("stride_s", ctypes.c_int64)]


class Attention(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("batch", "heads", "heads_kv", "seq_q", "seq_k", "head_dim", "head_dim_v", "dtype")),
        *((name, ctypes.c_bool) for name in ("causal", "deterministic", "forward_only")),
        ("scale", ctypes.c_float),
        *((name, Tensor) for name in ("q", "k", "v", "o")),
        ("lse", ctypes.c_void_p),
        *((name, Tensor) for name in ("d_o", "dq", "dk", "dv")),
        ("saved", ctypes.c_void_p), ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t),
        ("windowed", ctypes.c_bool), ("window_left", ctypes.c_int), ("window_right", ctypes.c_int),
        ("packed", ctypes.c_bool), ("documents", ctypes.c_int),
        ("cu_seqlens_q", ctypes.c_void_p), ("cu_seqlens_k", ctypes.c_void_p),
    ]


Context = ctypes.c_void_p
Problem = ctypes.POINTER(Attention)
Query = ctypes.CFUNCTYPE(ctypes.c_size_t, Context, Problem)
Call = ctypes.CFUNCTYPE(ctypes.c_int, Context, Problem, ctypes.c_void_p)


class AttentionOp(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("summary", ctypes.c_char_p),
                ("supported", ctypes.CFUNCTYPE(ctypes.c_int, Context, Problem)),
                ("saved_bytes", Query), ("forward_workspace", Query), ("backward_workspace", Query),
                ("forward", Call), ("backward", Call)]


class Kernels(ctypes.Structure):
    """The first members; what follows is not used here."""
    _fields_ = [("name", ctypes.c_char_p),
                ("create", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Context))),
                ("destroy", ctypes.CFUNCTYPE(None, Context)),
                ("attention", ctypes.POINTER(AttentionOp))]


def problem_of(dtype, tensors, outputs, lse, **options):
    """Attention of (q, k, v, d_o) to (o, dq, dk, dv), PyTorch's tensors of (B,H,S,D); options by their names in kernels/kernels.h."""
    q, k, v, _ = tensors
    (batch, heads, seq_q, head_dim), (heads_kv, seq_k), head_dim_v = q.shape, k.shape[1:3], v.shape[3]
    problem = Attention(batch, heads, heads_kv, seq_q, seq_k, head_dim, head_dim_v if head_dim_v != head_dim else 0, DTYPES[dtype])
    for name, tensor in zip(("q", "k", "v", "d_o", "o", "dq", "dk", "dv"), (*tensors, *outputs)):
        setattr(problem, name, Tensor(tensor.data_ptr(), *tensor.stride()[:3]))
    problem.lse = lse.data_ptr()
    for name, value in options.items():
        setattr(problem, name, value)
    return problem


def aligned(memory):
    """The first address in a tensor of bytes that a workspace may have; the last 255 of them are for this."""
    return (memory.data_ptr() + 255) // 256 * 256


def default_path():
    """STEPBENCH_LIB, or the link that `make lib` leaves in the root, or what any build leaves below it."""
    for path in (os.environ.get("STEPBENCH_LIB"), f"{ROOT}/libstepbench.so", f"{ROOT}/build/lib/libstepbench.so"):
        if path and os.path.exists(path):
            return path
    return None


def is_of_tree(path, root=ROOT):
    """Whether a library was compiled from the kernels of this tree: rows have the tree's commit. The compiler's lines may differ."""
    build = getattr(ctypes.CDLL(path), "sb_build", None)
    if not build:
        return False
    build.restype = ctypes.c_char_p
    said = subprocess.run(["sh", f"{root}/common/build/identity.sh"], capture_output=True, text=True, check=True).stdout.split()
    return build().decode().split("-")[0] == said[2].split("-")[0]


class Library:
    """One context on the first visible device. Raises RuntimeError with the library's own sentence."""

    def __init__(self, path, device):
        self.library = ctypes.CDLL(path)
        self.library.sb_status_name.restype = self.library.sb_last_message.restype = ctypes.c_char_p
        table = getattr(self.library, f"sb_kernels_{device}")
        table.restype = ctypes.POINTER(Kernels)
        found = table()
        if not found:
            raise RuntimeError(f"{path} was built without CUDA")
        self.kernels, self.context = found.contents, Context()
        self.must(self.kernels.create(0, ctypes.byref(self.context)))
        self.ops, place = {}, 0
        while self.kernels.attention[place].name:
            self.ops[self.kernels.attention[place].name.decode()] = self.kernels.attention[place]
            place += 1

    def must(self, status):
        if status != OK:
            raise RuntimeError(f"{self.library.sb_status_name(status).decode()}: {self.library.sb_last_message().decode()}")

    def bytes_of(self, op, problem):
        """What forward keeps for backward, and the scratch of either."""
        address = ctypes.byref(problem)
        saved, *scratch = (size(self.context, address) for size in (op.saved_bytes, op.forward_workspace, op.backward_workspace))
        return saved, max(scratch)

    def close(self):
        self.kernels.destroy(self.context)
        self.context = Context()


def layout_differences(compiler="cc"):
    """Offsets and sizes where the structures above differ from kernels/kernels.h, as text. None without a compiler."""
    places = []
    for name, structure in (("sb_tensor", Tensor), ("sb_attention", Attention), ("sb_attention_op", AttentionOp), ("sb_kernels", Kernels)):
        places += [(f"offsetof({name}, {field})", getattr(structure, field).offset) for field, _ in structure._fields_]
        if structure is not Kernels:
            places.append((f"sizeof({name})", ctypes.sizeof(structure)))
    prints = "\n".join(f'    printf("%zu\\n", {place});' for place, _ in places)
    program = f'#include <stdio.h>\n#include "kernels/kernels.h"\nint main(void)\n{{\n{prints}\n}}\n'
    with tempfile.TemporaryDirectory() as folder:
        source, binary = f"{folder}/layout.c", f"{folder}/layout"
        with open(source, "w") as file:
            file.write(program)
        try:
            subprocess.run([*compiler.split(), "-std=c11", "-I", ROOT, source, "-o", binary], check=True)
        except FileNotFoundError:
            return None
        numbers = subprocess.run([binary], check=True, capture_output=True, text=True).stdout.split()
    if len(numbers) != len(places):
        return [f"{len(numbers)} numbers for {len(places)} places"]
    return [f"{place}: {number} in C, {here} here" for (place, here), number in zip(places, numbers) if int(number) != here]
