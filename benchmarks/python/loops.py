"""What a measurement does over and over. A loop is opened once and run in slices, each of which gives figures by name.

Runs on dm-reverb as well. Where the two have different calls for the same job, a loop says which it uses.
"""

from __future__ import annotations

from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
import reverb
import stores

BATCH = 256
# Of one slice; what comes after it is not recorded.
MOST_CALLS = 400_000


class NotAvailableError(Exception):
    """This package cannot do what the row measures."""


def percentile(values: list[int], share: float) -> float:
    """Of nanoseconds, in microseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e3


class Calls:
    """Times of single calls, kept without allocating while they are taken."""

    def __init__(self) -> None:
        self.times = [0] * MOST_CALLS
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        if self.count < MOST_CALLS:
            self.times[self.count] = nanoseconds
            self.count += 1

    def figures(self) -> dict[str, float]:
        times = self.times[: self.count]
        return {"p50_us": percentile(times, 0.5), "p99_us": percentile(times, 0.99)}


# --- Writing ---


class Write:
    """One item a step, `flush(200)` every 64, all confirmed inside the time."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._content = stores.STORES[options["store"]]()
        self._writer = client.trajectory_writer(num_keep_alive_refs=self._content.refs)
        self._next = 0
        self._bytes = self._content.steps[0]["x"].nbytes

    def run(self, seconds: float) -> dict[str, float]:
        writer, steps = self._writer, self._content.steps
        count = 0
        began = perf_counter()
        end = began + seconds
        while perf_counter() < end:
            for _ in range(64):
                writer.append(steps[self._next % len(steps)])
                self._next += 1
                writer.create_item("uniform", 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(200)
            count += 64
        writer.flush()
        took = perf_counter() - began
        return {"items_per_s": count / took, "bytes_per_s": count * self._bytes / took}


class Actor:
    """What an actor pays for a step: append, create_item, `flush(200)` every 64 steps, and the last flush."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._content = stores.Frames()
        self._writer = client.trajectory_writer(num_keep_alive_refs=2)
        self._writer.append(self._content.steps[0])
        self._next = 1

    def run(self, seconds: float) -> dict[str, float]:
        writer, content, steps = self._writer, self._content, self._content.steps
        calls = Calls()
        count = 0
        began = perf_counter()
        end = began + seconds
        while perf_counter() < end:
            for _ in range(64):
                step = steps[self._next % len(steps)]
                self._next += 1
                start = perf_counter_ns()
                writer.append(step)
                appended = perf_counter_ns()
                writer.create_item("uniform", 1.0, content.item(writer.history))
                calls.add(appended - start)
                calls.add(perf_counter_ns() - appended)
            start = perf_counter_ns()
            writer.flush(200)
            calls.add(perf_counter_ns() - start)
            count += 64
        writer.flush()
        return {"step_us": (perf_counter() - began) / count * 1e6, **calls.figures()}


class WriteTransition:
    """What the caller waits for a small transition: append and create_item. Flushes between bursts are not counted."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._content = stores.Transitions()
        self._writer = client.trajectory_writer(num_keep_alive_refs=2)
        self._writer.append(self._content.steps[0])
        self._next = 1

    def run(self, seconds: float) -> dict[str, float]:
        writer, steps = self._writer, self._content.steps
        spent = 0
        calls = Calls()
        end = perf_counter() + seconds
        while perf_counter() < end:
            for _ in range(64):
                step = steps[self._next % len(steps)]
                self._next += 1
                start = perf_counter_ns()
                writer.append(step)
                history = writer.history
                writer.create_item(
                    "uniform",
                    1.0,
                    {
                        "observation": history["observation"][-2],
                        "action": history["action"][-2],
                        "reward": history["reward"][-2],
                        "next_observation": history["observation"][-1],
                    },
                )
                took = perf_counter_ns() - start
                spent += took
                calls.add(took)
            writer.flush()
        return {"mean_us": spent / calls.count / 1e3, **calls.figures()}


class Produce:
    """Keeps a queue full from a thread of its own; nothing is measured here."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        import threading

        self._writer = client.trajectory_writer(num_keep_alive_refs=1)
        self._steps = stores.Values(100).steps
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        writer, steps = self._writer, self._steps
        while True:
            for index in range(64):
                writer.append(steps[index])
                writer.create_item("queue", 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(200)

    def run(self, seconds: float) -> dict[str, float]:
        return {}


class WriteVector:
    """The same of many environments, in one call a step; what each of them costs the caller."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        if not hasattr(reverb, "VectorWriter"):
            raise NotAvailableError("reverb.VectorWriter is not in this package")
        raise NotAvailableError("the row is not written yet")


# --- Sampling ---


class Sample:
    """One item after the other out of one iterator."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._samples = client.sample(options["table"], 10**8, emit_timesteps=False)
        first = next(self._samples)
        self._bytes = first.data[0].nbytes
        self._step = max(1, min(64, 1_000_000 // self._bytes))
        # What has been fetched ahead while another side was measured goes first.
        self._skip = options.get("skip", 0)

    def run(self, seconds: float) -> dict[str, float]:
        samples, step = self._samples, self._step
        for _ in range(self._skip):
            next(samples)
        warm = perf_counter() + seconds / 10
        while perf_counter() < warm:
            next(samples)
        count = 0
        began = perf_counter()
        end = began + seconds
        while (now := perf_counter()) < end:
            for _ in range(step):
                next(samples)
            count += step
        took = now - began
        return {"items_per_s": count / took, "bytes_per_s": count * self._bytes / took}


class _OurBatches:
    def __init__(self, client: Any, table: str, exact: bool) -> None:
        if not hasattr(client, "sample_batches"):
            raise NotAvailableError("client.sample_batches is not in this package")
        self._client = client
        self._table = table
        self._batches = client.sample_batches(table, BATCH, exact=exact)

    def take(self) -> Any:
        return next(self._batches)

    def update(self, batch: Any, priorities: np.ndarray) -> None:
        self._client.update_priorities(self._table, batch.info.key, priorities)


class _TheirBatches:
    """TrajectoryDataset.batch, with as many samples in flight as two batches."""

    def __init__(self, client: Any, table: str, exact: bool) -> None:
        if exact:
            raise NotAvailableError("datasets of dm-reverb always fetch ahead")
        self._client = client
        self._table = table
        dataset = reverb.TrajectoryDataset.from_table_signature(
            client.server_address, table, max_in_flight_samples_per_worker=2 * BATCH
        )
        self._batches = iter(dataset.batch(BATCH, drop_remainder=True).prefetch(4))

    def take(self) -> Any:
        return next(self._batches)

    def update(self, batch: Any, priorities: np.ndarray) -> None:
        keys = batch.info.key.numpy().tolist()
        self._client.mutate_priorities(self._table, updates=dict(zip(keys, priorities.tolist(), strict=True)))


def is_ours() -> bool:
    return hasattr(reverb, "__version__")


class Batches:
    """Batches of 256 transitions, one after the other; with `update`, as many new priorities after each."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        kind = _OurBatches if is_ours() else _TheirBatches
        self._batches = kind(client, options["table"], options.get("exact", False))
        self._is_updating = options.get("update", False)
        first = self._batches.take()
        shapes = {name: tuple(leaf.shape) for name, leaf in first.data.items()}
        wanted = {"observation": (256, 100), "action": (256, 6), "reward": (256,), "next_observation": (256, 100)}
        if shapes != wanted:
            raise RuntimeError(f"a batch should have the shapes {wanted} and has {shapes}")

    def run(self, seconds: float) -> dict[str, float]:
        batches, is_updating = self._batches, self._is_updating
        priorities = np.random.default_rng(4).random((16, BATCH)) + 0.1
        warm = perf_counter() + seconds / 10
        while perf_counter() < warm:
            batches.take()
        count = 0
        began = perf_counter()
        end = began + seconds
        while (now := perf_counter()) < end:
            batch = batches.take()
            if is_updating:
                batches.update(batch, priorities[count % 16])
            count += 1
        return {"batches_per_s": count / (now - began)}


# --- Single calls ---


class Call:
    """One call at a time, each waited for."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        values = stores.Values(100).steps
        kind = options["call"]
        if kind == "sample":

            def once(index: int) -> None:
                for _ in client.sample("uniform", 1):
                    pass

        elif kind == "insert":

            def once(index: int) -> None:
                client.insert(values[index % len(values)], {"uniform": 1.0})

        else:
            keys = [sample.info.key for sample in client.sample("prioritized", 1000, emit_timesteps=False)]

            def once(index: int) -> None:
                client.mutate_priorities("prioritized", {keys[index % len(keys)]: 1.0 + index % 5})

        self._once = once

    def run(self, seconds: float) -> dict[str, float]:
        once, calls, index = self._once, Calls(), 0
        end = perf_counter() + seconds
        while perf_counter() < end:
            start = perf_counter_ns()
            once(index)
            calls.add(perf_counter_ns() - start)
            index += 1
        return calls.figures()


LOOPS = {
    "write": Write,
    "actor": Actor,
    "write-transition": WriteTransition,
    "write-vector": WriteVector,
    "produce": Produce,
    "sample": Sample,
    "batches": Batches,
    "call": Call,
}
