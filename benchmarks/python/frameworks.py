"""Measures batches of reverb.torch and reverb.jax beside those of sample_batches(), which stay in NumPy.

    PYTHONPATH=python build/framework-torch/bin/python benchmarks/python/frameworks.py
    PYTHONPATH=python python3 benchmarks/python/frameworks.py --device cuda      # where there is a GPU

Batches of 256 transitions of 832 B and of 256 stacks of frames of 28 kB, from a server in another process. The sides
take turns, slice by slice; `ratio` is the median over rounds of the ratio of two neighbouring slices. A slice ends when
its last batch has arrived on the device. Measures the frameworks that are installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
import contextlib
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import stores

import reverb

BATCH = 256
SIZES = {"transitions": 5_000, "frames-28k": 5_000}


class Side:
    """One way to take batches."""

    def __init__(
        self, name: str, batches: Iterator[Any], synchronize: Callable[[Any], None] = lambda batch: None
    ) -> None:
        self.name = name
        self._batches = batches
        self._synchronize = synchronize

    def check(self) -> None:
        """RuntimeError if a batch is not what it should be."""
        batch = next(self._batches)
        self._synchronize(batch)
        shape = tuple(batch.data["observation"].shape)
        if shape[0] != BATCH or len(batch.info.key) != BATCH:
            raise RuntimeError(f"{self.name}: a batch should have {BATCH} items, and has the shape {shape}")

    def run(self, seconds: float) -> float:
        """Returns the batches per second of one slice."""
        batches = self._batches
        warm = time.perf_counter() + seconds / 10
        while time.perf_counter() < warm:
            self._synchronize(next(batches))
        count = 0
        began = time.perf_counter()
        end = began + seconds
        while time.perf_counter() < end:
            batch = next(batches)
            count += 1
        self._synchronize(batch)
        return count / (time.perf_counter() - began)


def torch_sides(client: Any, device: str) -> list[Side]:
    import torch

    import reverb.torch

    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    moved = reverb.torch.prefetch_to_device(client.sample_batches("uniform", BATCH), device)
    dataset = iter(reverb.torch.BatchDataset(client, "uniform", BATCH))
    return [Side("torch dataset", dataset), Side(f"torch to {device}", moved, lambda batch: synchronize())]


def jax_sides(client: Any, device: str) -> list[Side]:
    import jax

    import reverb.jax

    target = jax.devices("gpu" if device == "cuda" else device)[0]
    moved = reverb.jax.prefetch_to_device(client.sample_batches("uniform", BATCH), sharding=target)
    return [Side(f"jax to {device}", moved, lambda batch: jax.block_until_ready(batch.data) and None)]


SIDES = {"torch": torch_sides, "jax": jax_sides}


@contextlib.contextmanager
def serve(store: str) -> Iterator[Any]:
    """Gives a client of a server in another process, with full tables."""
    child = subprocess.Popen(
        [sys.executable, pathlib.Path(__file__).resolve(), "--serve", store],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        address = child.stdout.readline().strip() if child.stdout else ""
        client = reverb.Client(address)
        stores.fill(client, store, SIZES[store])
        yield client
    finally:
        child.communicate()  # the end of its input ends it


def measure(client: Any, store: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    plain = Side("sample_batches", client.sample_batches("uniform", BATCH))
    sides = [side for name in arguments.frameworks for side in SIDES[name](client, arguments.device)]
    for side in (plain, *sides):
        side.check()
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    ratios: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(arguments.rounds):
        for side in sides:
            before, rate, after = (each.run(arguments.seconds) for each in (plain, side, plain))
            rates[side.name].append(rate)
            ratios[side.name].append(rate / ((before + after) / 2))
    return [
        {
            "store": store,
            "side": side.name,
            "batches_per_s": statistics.median(rates[side.name]),
            "ratio": statistics.median(ratios[side.name]),
            "ratios": [round(ratio, 3) for ratio in ratios[side.name]],
        }
        for side in sides
    ]


def main() -> None:
    installed = [name for name in SIDES if importlib.util.find_spec(name)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="frameworks", action="append", choices=SIDES, help="default: those installed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--store", dest="stores", action="append", choices=SIZES, help="default: all")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a slice (1)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one record a line in place of the table")
    parser.add_argument("--serve", choices=SIZES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        server = stores.make_server(arguments.serve, SIZES[arguments.serve])
        print(f"localhost:{server.port}", flush=True)
        sys.stdin.read()
        server.stop()
        return
    arguments.frameworks = arguments.frameworks or installed
    if not arguments.frameworks:
        raise SystemExit("neither torch nor jax is installed")
    for store in arguments.stores or SIZES:
        with serve(store) as client:
            for record in measure(client, store, arguments):
                if arguments.json:
                    print(json.dumps(record), flush=True)
                else:
                    low, high = np.min(record["ratios"]), np.max(record["ratios"])
                    line = f"{store:12} {record['side']:14} {record['batches_per_s']:9.0f} batches/s"
                    print(f"{line}  {record['ratio']:.2f}x sample_batches ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
