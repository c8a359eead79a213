"""Programs in the style of dm-reverb and of libraries on top of it: none of this is an error."""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
import time
from typing import Any, Optional, Union

import numpy as np

import reverb
from reverb import item_selectors
from reverb import rate_limiters
from reverb import replay_sample
from reverb import structured_writer as sw

Step = collections.namedtuple("Step", ["observation", "action", "reward"])


def serve(checkpoint_path: Optional[str] = None) -> reverb.Server:
    checkpointer = None
    if checkpoint_path is not None:
        checkpointer = reverb.platform.checkpointers_lib.DefaultCheckpointer(path=checkpoint_path, group="")
    return reverb.Server(
        tables=[
            reverb.Table(
                name="my_table",
                sampler=reverb.selectors.Prioritized(priority_exponent=0.8),
                remover=reverb.selectors.Fifo(),
                max_size=int(1e6),
                rate_limiter=reverb.rate_limiters.MinSize(2),
                max_times_sampled=0,
                signature={"actions": reverb.TensorSpec(shape=[3, 1], dtype=np.float64)},
            ),
            reverb.Table("variables", item_selectors.Fifo(), item_selectors.Fifo(), 1, rate_limiters.MinSize(1)),
        ],
        port=8000,
        checkpointer=checkpointer,
    )


def write_and_read(client: reverb.Client) -> None:
    print(client.server_info())
    client.insert([0, 1], priorities={"my_table": 1.0})
    with client.writer(max_sequence_length=3) as writer:
        for i in range(3):
            writer.append([i, np.float32(i)])
        writer.create_item("my_table", 3, 1.0)
    print(list(client.sample("my_table", num_samples=2)))
    for sample in client.sample("my_table", num_samples=1):
        print(sample[0].data[0])
        key = sample[0].info.key
        client.mutate_priorities(table="my_table", updates={key: 0.5}, deletes=[key])
    [item] = client.sample("my_table", 1, emit_timesteps=False, unpack_as_table_signature=True)
    print(item.data["actions"].sum(), item.info.key + 1)
    (sample_info, data), *_ = client.sample("my_table", emit_timesteps=False)
    print(sample_info.probability, tuple(data))
    client.reset("my_table")


class NStepAdder:
    """Appends steps, and creates an item for every window."""

    def __init__(self, client: reverb.Client, n_step: int, table: str, priority_fn: Callable[[Any], float]) -> None:
        self._client = client
        self._n_step = n_step
        self._table = table
        self._priority_fn = priority_fn
        self.__writer: Optional[reverb.TrajectoryWriter] = None

    @property
    def _writer(self) -> reverb.TrajectoryWriter:
        if self.__writer is None:
            self.__writer = self._client.trajectory_writer(num_keep_alive_refs=self._n_step + 1)
        return self.__writer

    def add(self, observation: np.ndarray, action: np.ndarray, reward: float) -> None:
        self._writer.append(Step(observation, action, None), partial_step=True)
        self._writer.append(Step(None, None, np.asarray(reward)))
        if self._writer.episode_steps >= self._n_step:
            self._write()

    def _write(self) -> None:
        history = self._writer.history
        trajectory = {
            "observation": history.observation[-self._n_step :],
            "first": history[0][-self._n_step],
            "both": {name: column[:] for name, column in history._asdict().items()},
        }
        self._writer.create_item(self._table, self._priority_fn(trajectory), trajectory)

    def reset(self, timeout_ms: Optional[int] = None) -> None:
        if self.__writer is not None:
            self.__writer.end_episode(clear_buffers=True, timeout_ms=timeout_ms)


def make_iterator(client: reverb.Client, table: str, batch_size: int) -> Iterator[reverb.ReplaySample]:
    while True:
        rows = [next(client.sample(table, emit_timesteps=False)) for _ in range(batch_size)]
        info = reverb.SampleInfo(*map(np.stack, zip(*(row.info for row in rows))))
        yield reverb.ReplaySample(info=info, data=[np.stack(column) for column in zip(*(row.data for row in rows))])


def samples_of(client: reverb.Client) -> Generator[Union[list[replay_sample.ReplaySample], replay_sample.ReplaySample]]:
    yield from client.sample("my_table", num_samples=3)
    for sample in client.sample("my_table", num_samples=3, emit_timesteps=False):
        yield replay_sample.ReplaySample(sample.info, sample.data)


def empty_info() -> reverb.SampleInfo:
    zeros = reverb.SampleInfo.zeros()
    return reverb.SampleInfo(key=(), probability=zeros.probability, table_size=0, priority=None, times_sampled=np.ones(3))


def learn(batches: Iterator[reverb.ReplaySample], client: reverb.Client, beta: float) -> Mapping[str, Any]:
    sample = next(batches)
    keys, probabilities = sample.info[:2]
    weights = (1.0 / probabilities) ** beta
    transitions = Step(*sample.data)
    error = np.abs(transitions.reward) * weights
    client.mutate_priorities("my_table", updates=dict(zip(keys, error)))
    return {"keys": keys, "error": error.mean()}


def transform(samples: Iterable[reverb.ReplaySample], fn: Callable[[Any], Any]) -> Sequence[reverb.ReplaySample]:
    return [sample._replace(data=fn(sample.data)) for sample in samples]


def patterns(step_spec: Any) -> list[sw.Config]:
    pattern = sw.pattern_from_transform(step_spec, lambda x: {"a": x["a"][-1], "b": x["b"][:-1]})
    conditions = [sw.Condition.step_index() >= 2, sw.Condition.is_end_episode()]
    return [sw.create_config(pattern=pattern, table="my_table", conditions=conditions)]


def wait_for(client: reverb.Client) -> None:
    while client.server_info(timeout=5)["my_table"].current_size < 10:
        time.sleep(0.1)  # a simulated program: nothing runs it
    try:
        next(client.sample("my_table", timeout=1.0))
    except reverb.DeadlineExceededError as error:
        print(error)
    except reverb.errors.ReverbError:
        raise
