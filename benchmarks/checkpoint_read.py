"""Compares reading a checkpoint in batches with a plain sequential read of its files.

    PYTHONPATH=python benchmarks/checkpoint_read.py            a checkpoint of 1 GiB in a temporary folder
    PYTHONPATH=python benchmarks/checkpoint_read.py --gib 8 --folder /data

Prints, for large items (640 kB) and small ones (2 kB), in order and shuffled, the speed of the plain read with a cold
cache, of read() with a cold cache, and of read() with the files in the cache. The cache is emptied with
posix_fadvise(), which does not reach the cache of a virtual machine's host: compare runs, not single figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import os
import pathlib
import tempfile
import time

import numpy as np

import reverb

# name: shape of an observation, steps of an item, items of a batch
KINDS = {"large": ((64, 64, 4), 10, 32), "small": ((512,), 1, 256)}


def write(root: pathlib.Path, kind: str, gib: float) -> None:
    """Writes a checkpoint with so much random data, which does not compress."""
    shape, length, _ = KINDS[kind]
    table = reverb.Table(
        "t", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 10**9, reverb.rate_limiters.MinSize(1)
    )
    random = np.random.default_rng(0)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(root))
    with reverb.Server([table], checkpointer=checkpointer) as server:
        client = server.localhost_client()
        with client.trajectory_writer(num_keep_alive_refs=length) as writer:
            for i in range(int(gib * 2**30 / (4 * np.prod(shape)))):
                step = {"obs": random.standard_normal(shape, np.float32), "act": np.int64(i), "reward": np.float32(i)}
                writer.append(step)
                if (i + 1) % length == 0:
                    writer.create_item("t", 1.0, {name: writer.history[name][-length:] for name in step})
        client.checkpoint()


def drop_cache(files: list[pathlib.Path]) -> None:
    """Removes the files from the system's cache."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_plainly(files: list[pathlib.Path]) -> None:
    """Reads the files from start to end."""
    buffer = bytearray(1 << 20)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def speed(files: list[pathlib.Path], read: Callable[[], object]) -> float:
    """Returns MiB of the files per second."""
    start = time.perf_counter()
    read()
    return sum(file.stat().st_size for file in files) / (time.perf_counter() - start) / 2**20


def main() -> None:
    """Runs all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--folder")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for kind, (_, _, batch_size) in KINDS.items():
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            root = pathlib.Path(folder)
            write(root, kind, arguments.gib)
            files = sorted((root / "segments").iterdir())
            for shuffle in (False, True):
                reader = reverb.checkpoints.read(root, "t", batch_size=batch_size, shuffle=shuffle, seed=1)
                for _ in range(arguments.rounds):
                    drop_cache(files)
                    plain = speed(files, lambda files=files: read_plainly(files))
                    drop_cache(files)
                    cold, warm = (speed(files, lambda reader=reader: sum(1 for _ in reader)) for _ in range(2))
                    print(
                        f"{kind} items, {'shuffled' if shuffle else 'in order'}: plain {plain:.0f} MiB/s, read() "
                        f"{cold:.0f} MiB/s ({cold / plain:.2f} x), from the cache {warm:.0f} MiB/s"
                    )


if __name__ == "__main__":
    main()
