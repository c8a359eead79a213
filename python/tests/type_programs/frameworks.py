"""Batches for PyTorch and JAX, neither of which has to be installed here."""

from collections.abc import Iterator
from typing import Any

import reverb
import reverb.jax
import reverb.torch

client = reverb.Client("localhost:8000")

dataset = reverb.torch.BatchDataset(client, "replay", 256, num_batches=10, pad=True)
reverb.torch.BatchDataset(["a:8000", "b:8000"], "replay", batch_size=256, tensordict=True)
reverb.torch.BatchDataset("localhost:8000", "replay", "256")  # error
reverb.torch.BatchDataset("localhost:8000", "replay")  # error
reverb.torch.BatchDataset("localhost:8000", "replay", 256, batches=10)  # error
length: int = len(dataset)

batches: Iterator[Any] = reverb.torch.prefetch_to_device(client.sample_batches("replay", 256), "cuda", depth=2)
reverb.torch.prefetch_to_device(client.sample_batches("replay", 256))  # error
reverb.torch.prefetch_to_device(client.sample_batches("replay", 256), "cuda", "2")  # error

arrays: Iterator[Any] = reverb.jax.prefetch_to_device(client.sample_batches("replay", 256), size=2, sharding=None)
reverb.jax.prefetch_to_device(5)  # error

buffer = reverb.torch.ReplayBuffer.local(100, alpha=0.7, beta=0.5, batch_size=256)
buffer.update_priority(buffer.sample(8)["index"], 1.0)
nothing: int = buffer.extend(None)  # error
size: int = len(buffer)
reverb.torch.ReplayBuffer(client)  # error
