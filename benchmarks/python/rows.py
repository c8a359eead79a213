"""The rows of the table: what is measured, on what, what dm-reverb was once seen to do, and what we aim for."""

from __future__ import annotations

import dataclasses
from typing import Any

HOT = 5_000
COLD = 1_000_000


@dataclasses.dataclass(frozen=True)
class Metric:
    """One figure of a row. `goal_calls` is a goal that is a multiple of an empty call of the same run."""

    key: str
    unit: str
    recorded: float | None = None  # dm-reverb 0.14 with TensorFlow 2.15 on two cores of an Ice Lake server
    goal: float | None = None
    goal_calls: float | None = None

    @property
    def is_less_better(self) -> bool:
        return self.unit in ("µs", "s", "MB")


@dataclasses.dataclass(frozen=True)
class Row:
    """One workload. Rows with the same store, size and place are measured on the same tables."""

    name: str
    title: str
    loops: tuple[str, ...]  # each in a process of its own; figures are those of the last
    store: str
    metrics: tuple[Metric, ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    in_process: bool = False
    local: bool = False  # through shared memory; dm-reverb, which has none, over its socket
    sizes: tuple[int, ...] = (HOT, COLD)  # items in each table; the first is called hot, the second cold
    is_filled: bool = True

    @property
    def is_start_up(self) -> bool:
        return not self.loops


def _call(kind: str, recorded: float, *, in_process: bool) -> Row:
    names = {"sample": "client.sample(t, 1)", "insert": "client.insert", "update": "one priority update"}
    goal = {"goal": 15.0} if in_process else {"goal_calls": 1.5}
    return Row(
        name=f"call-{kind}" + ("-inproc" if in_process else ""),
        title=names[kind] + (", in one process" if in_process else ""),
        loops=("call",),
        store="values-400",
        metrics=(Metric("p50_us", "µs", recorded, **goal), Metric("p99_us", "µs")),
        options={"call": kind},
        in_process=in_process,
    )


def _batches(name: str, recorded: float | None, goal: float | None, **options: Any) -> Row:
    in_process = name.endswith("-inproc")
    title = "batches of 256 transitions"
    if options.get("update"):
        title = "prioritized batches of 256 + 256 updates" + (", exact" if options.get("exact") else "")
    return Row(
        name=name,
        title=title + (", in one process" if in_process else ""),
        loops=("batches",),
        store="transitions",
        metrics=(Metric("batches_per_s", "batches/s", recorded, goal),),
        options={"table": "prioritized" if options.get("update") else "uniform", **options},
        in_process=in_process,
    )


def _local(row: Row) -> Row:
    """The same row through shared memory; what dm-reverb reaches over its socket is what it is compared with."""
    metrics = tuple(dataclasses.replace(metric, goal=None, goal_calls=None) for metric in row.metrics)
    return dataclasses.replace(
        row, name=f"{row.name}-local", title=f"{row.title}, same host", local=True, metrics=metrics
    )


# In the order in which they are measured: those that share tables stand together.
_SOCKET_ROWS = (
    Row(
        name="write-400",
        title="TrajectoryWriter, 400 B, an item a step",
        loops=("write",),
        store="values-400",
        metrics=(Metric("items_per_s", "items/s", 31_000, 300_000),),
        options={"store": "values-400"},
    ),
    Row(
        name="sample-400",
        title="for s in client.sample, 400 B",
        loops=("sample",),
        store="values-400",
        metrics=(Metric("items_per_s", "items/s", 5_400, 200_000),),
        options={"table": "uniform"},
    ),
    _call("sample", 527, in_process=False),
    _call("insert", 474, in_process=False),
    _call("update", 168, in_process=False),
    _call("sample", 403, in_process=True),
    _call("insert", 321, in_process=True),
    _call("update", 103, in_process=True),
    Row(
        name="write-40k",
        title="TrajectoryWriter, 40 kB, an item a step",
        loops=("write",),
        store="values-40k",
        metrics=(Metric("bytes_per_s", "GB/s", 0.34, 1.2),),
        options={"store": "values-40k"},
        sizes=(HOT,),
    ),
    Row(
        name="sample-400k",
        title="for s in client.sample, 400 kB",
        loops=("sample",),
        store="values-400k",
        metrics=(Metric("bytes_per_s", "GB/s", 1.0, 1.7),),
        options={"table": "uniform"},
        sizes=(160, HOT),
    ),
    _batches("batches", 205, 2_500),
    _batches("per", 195, 1_500, update=True),
    _batches("per-exact", None, None, update=True, exact=True),
    Row(
        name="dataset",
        title="elements of TrajectoryDataset, transitions",
        loops=("dataset",),
        store="transitions",
        metrics=(Metric("items_per_s", "items/s"),),
        options={"table": "uniform"},
    ),
    Row(
        name="dataset-batches",
        title="TrajectoryDataset(batch_size=256), or .batch(256)",
        loops=("dataset-batches",),
        store="transitions",
        metrics=(Metric("batches_per_s", "batches/s"),),
        options={"table": "uniform"},
    ),
    Row(
        name="transition",
        title="write a 4-column transition, cost in the caller",
        loops=("write-transition",),
        store="transitions",
        metrics=(Metric("mean_us", "µs", 32, 4), Metric("p50_us", "µs"), Metric("p99_us", "µs")),
    ),
    Row(
        name="vector",
        title="VectorWriter, the same of 64 environments, cost of each",
        loops=("write-vector",),
        store="transitions",
        metrics=(Metric("mean_us", "µs", None, None),),
    ),
    _batches("batches-inproc", 518, 8_000),
    _batches("per-inproc", None, 5_000, update=True),
    Row(
        name="actor",
        title="actor step, 84x84x4 uint8 + 3 scalars, with flush",
        loops=("actor",),
        store="frames",
        metrics=(Metric("step_us", "µs", 111, 30), Metric("p99_us", "µs", 1160, 200)),
        sizes=(HOT,),
    ),
    Row(
        name="queue",
        title="queue, 400 B, a producer and a consumer process",
        loops=("produce", "sample"),
        store="queue",
        metrics=(Metric("items_per_s", "items/s", 4_200, 60_000),),
        options={"table": "queue", "skip": 2_000},
        sizes=(1_000,),
        is_filled=False,
    ),
    Row(
        name="start-up",
        title="import; resident after first insert and sample",
        loops=(),
        store="",
        metrics=(Metric("import_s", "s", 1.95, 0.3), Metric("resident_mb", "MB", 492, 80)),
        sizes=(0,),
    ),
)

# Each row over a socket is followed by the same one through shared memory.
ROWS = tuple(
    each for row in _SOCKET_ROWS for each in ((row,) if row.in_process or row.is_start_up else (row, _local(row)))
)
