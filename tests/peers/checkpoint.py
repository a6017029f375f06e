# SPDX-License-Identifier: MIT
"""torch.distributed.checkpoint, one process per GPU: the peer of bench_checkpoint. The state is fp32 weights and AdamW's two fp32 moments,
12 bytes a parameter as in our bf16 policy; on several GPUs it is sharded by FSDP2, on one it is whole.

usage: python3 -m torch.distributed.run --standalone --nproc_per_node N checkpoint.py FOLDER [--small] [--cases WORDS]
WORDS as of peers.py, such as 'xl async-pinned'. On two GPUs small takes 70 s; of xl, async-pinned takes 130, blocking 75, async 100."""
import gc
import os
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import model as models
import ranks
from ranks import slowest
from record import chosen, reason_of

WAYS = ("async-pinned", "blocking", "async")
CASES, SEQ = {"small": 3, "xl": 2}, 512  # and so many saves of a way, behind one that is not counted
XL_BYTES = 50 << 30  # in /dev/shm: a checkpoint and the memory in which a save is staged


class Run:
    """A model that takes steps, and its state as torch.distributed.checkpoint wants it."""

    def __init__(self, size, seq, batch):
        self.model = models.create(size, seq)
        if dist.get_world_size() > 1:
            ranks.shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.inputs, self.targets = models.batch_of(batch, seq, seed=1 + dist.get_rank())

    def step(self, before_update=None):
        with torch.autocast("cuda", torch.bfloat16, enabled=dist.get_world_size() == 1):
            loss = models.loss_of(self.model, self.inputs, self.targets)
        loss.backward()
        if before_update:
            before_update()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()

    def state(self):
        weights, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": weights, "optim": optimizer}

    def bytes(self):
        mine = sum(t.to_local().nbytes if hasattr(t, "to_local") else t.nbytes
                   for t in self.model.parameters()) * 3
        total = torch.tensor(float(mine), device="cuda", dtype=torch.float64)
        dist.all_reduce(total)
        return int(total.item())


class Way:
    """How a save begins, what an update waits for, and when the checkpoint is there."""

    def __init__(self, name):
        self.name, self.group, self.stager, self.pending = name, dist.new_group(backend="gloo"), None, None
        if name == "async-pinned":
            from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
            self.stager = DefaultStager(StagingOptions(use_pinned_memory=True, use_shared_memory=True, use_async_staging=True,
                                                       use_non_blocking_copy=True))
            # PyTorch 2.11 closes a stager's memory behind each save: pinned pages are given back, and the next save ends with a
            # KeyError, since the table of what is copied how is empty. Here the memory stays until the last save.
            memory = self.stager._state_dict_stager
            self.free, memory.close = memory.close, lambda: None

    def begin(self, state, folder):
        if self.name == "blocking":
            dcp.save(state, checkpoint_id=folder)
        elif self.stager:
            from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
            self.pending = dcp.async_save(state, checkpoint_id=folder, process_group=self.group, async_stager=self.stager,
                                          async_checkpointer_type=AsyncCheckpointerType.PROCESS)
        else:
            self.pending = dcp.async_save(state, checkpoint_id=folder, process_group=self.group)

    def before_update(self):
        if hasattr(self.pending, "staging_completion"):
            self.pending.staging_completion.result()

    def finish(self):
        if self.pending is not None:
            getattr(self.pending, "upload_completion", self.pending).result()
        self.pending = None

    def close(self):
        if self.stager:
            self.stager.close()
            self.free()


def measure(run, way_name, saves, place):
    """The first save is not counted: pinned memory, plans and processes are made there."""
    way = Way(way_name)
    plain, stalls, durable = [], [], []
    for _ in range(8):
        start = time.perf_counter()
        run.step()
        plain.append(slowest((time.perf_counter() - start) * 1e3))
    step_ms = statistics.median(plain[3:])
    for save in range(saves + 1):
        folder = os.path.join(place, f"{way_name}-{save}")
        dist.barrier()
        start = time.perf_counter()
        way.begin(run.state(), folder)
        run.step(way.before_update)
        stalls.append(slowest((time.perf_counter() - start) * 1e3) - step_ms)
        way.finish()
        durable.append(slowest((time.perf_counter() - start) * 1e3))
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
    way.close()
    return {"stall_ms": statistics.median(stalls[1:]), "stall_min_ms": min(stalls[1:]), "stall_max_ms": max(stalls[1:]), "stall_first_ms": stalls[0], "step_ms": step_ms,
            "durable_ms": statistics.median(durable[1:])}


def one_size(rows, size, ways, batch, place):
    run = Run(size, SEQ, batch)
    run.step()
    gc.collect()
    gc.disable()
    state_bytes = run.bytes()
    for way in ways:
        try:
            cells = measure(run, way, CASES[size], place)
            cells.update(state_bytes=state_bytes, durable_gb_s=state_bytes / cells["durable_ms"] / 1e6)
        except Exception as error:  # the same on every rank, or the group's timeout ends it
            cells = {"note": reason_of(error)}
        if rows:
            rows.add(bench="checkpoint", way=way, ranks=dist.get_world_size(), size=size, seq=SEQ, batch_per_rank=batch, precision="bf16",
                     fs="tmpfs", policy="torch.distributed.checkpoint", **cells)
    gc.enable()
    del run
    gc.collect()
    torch.cuda.empty_cache()


def main():
    one_gpu = int(os.environ["WORLD_SIZE"]) == 1
    room = shutil.disk_usage("/dev/shm").free
    place = f"/dev/shm/stepbench-peer-{os.environ.get('TORCHELASTIC_RUN_ID', 'run')}"
    with ranks.job("checkpoint", sys.argv[1], "cpu:gloo,cuda:nccl", 300) as rows:
        sizes = ["small"] if "--small" in sys.argv or room < XL_BYTES else CASES
        cases = [(size, way) for size in sizes for way in WAYS]
        cases = chosen(cases, sys.argv[sys.argv.index("--cases") + 1] if "--cases" in sys.argv else "") or cases
        for size in dict(cases):
            one_size(rows, size, [way for of, way in cases if of == size], 4 if one_gpu else 2, place)
        if rows:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
