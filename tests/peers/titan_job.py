# SPDX-License-Identifier: MIT
"""Imported by torchtitan (--experimental.custom_import, --job.custom_config_module): its Llama 3 reads uniform random tokens of the model's
vocabulary, where it would read a data set through a tokenizer, and gradients may be reduced in bf16, which FSDP2 can do and torchtitan's
parser refuses. Model, sharding, compilation, optimizer and loss stay torchtitan's."""
import dataclasses
from typing import Literal

import torch
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import IterableDataset
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.models.llama3 import get_train_spec, llama3_args
from torchtitan.protocols.train_spec import register_train_spec


@dataclasses.dataclass
class Training:
    mixed_precision_reduce: Literal["float32", "bfloat16"] = "float32"


@dataclasses.dataclass
class JobConfig:
    """torchtitan takes over what differs from its own."""
    training: Training = dataclasses.field(default_factory=Training)


class RandomTokens(IterableDataset, Stateful):
    """Each rank has its own."""

    def __init__(self, vocab, seq, rank):
        self.vocab, self.seq = vocab, seq
        self.generator = torch.Generator().manual_seed(1 + rank)

    def __iter__(self):
        while True:
            tokens = torch.randint(self.vocab, (self.seq + 1,), generator=self.generator)
            yield {"input": tokens[:-1]}, tokens[1:]

    def state_dict(self):
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])


def loader(dp_world_size, dp_rank, tokenizer, job_config, infinite=True):
    """torchtitan gives these arguments by name."""
    training = job_config.training
    tokens = RandomTokens(llama3_args[job_config.model.flavor].vocab_size, training.seq_len, dp_rank)
    settings = {**dataclasses.asdict(training.dataloader), "batch_size": training.local_batch_size}
    return ParallelAwareDataloader(tokens, dp_rank=dp_rank, dp_world_size=dp_world_size, **settings)


register_train_spec("llama3", dataclasses.replace(get_train_spec(), build_dataloader_fn=loader, build_tokenizer_fn=None,
                                                  build_validator_fn=None, state_dict_adapter=None))
