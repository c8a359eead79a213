"""What the tables of a measurement hold, and how they are filled. Only what dm-reverb has too is used here."""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any

import numpy as np

import reverb

# Different values in turn, so that nothing is measured on one block that never leaves the nearest cache.
POOL = 1024
FILL_BURST = 512


def specification(shape: tuple[int, ...], dtype: Any) -> Any:
    """A leaf of a signature: dm-reverb's are TensorFlow's."""
    if hasattr(reverb, "TensorSpec"):
        return reverb.TensorSpec(shape, dtype)
    import tensorflow as tf

    return tf.TensorSpec(shape, dtype)


def random_values(size: int, count: int = POOL) -> list[np.ndarray]:
    """Arrays of float32 that no codec makes smaller."""
    generator = np.random.default_rng(1)
    return [generator.standard_normal(size, dtype=np.float32) for _ in range(count)]


def game_frames(count: int = 512) -> list[np.ndarray]:
    """Stacks of four 84 x 84 frames as of a simple game: a still background, a few moving blocks."""
    generator = np.random.default_rng(2)
    background = np.repeat(np.repeat(generator.integers(0, 256, (12, 12), dtype=np.uint8), 7, 0), 7, 1)
    places = generator.integers(0, 76, (6, 2))
    speeds = generator.integers(-3, 4, (6, 2))
    frames = []
    for step in range(count + 3):
        frame = background.copy()
        for row, column in (places + step * speeds) % 76:
            frame[row : row + 8, column : column + 8] = 200
        frames.append(frame)
    return [np.ascontiguousarray(np.stack(frames[i : i + 4], axis=-1)) for i in range(count)]


class Values:
    """One column of float32 a step; an item is one step."""

    def __init__(self, size: int = 100) -> None:
        self.steps = [{"x": value} for value in random_values(size, max(16, min(POOL, 8_000_000 // size)))]
        self.refs = 1

    signature = None

    def item(self, history: Any) -> Any:
        return {"x": history["x"][-1:]}


class Transitions:
    """Observation, action, reward, and the next observation, which is that of the next step."""

    def __init__(self) -> None:
        generator = np.random.default_rng(3)
        self.steps = [
            {
                "observation": observation,
                "action": generator.standard_normal(6, dtype=np.float32),
                "reward": np.float32(generator.standard_normal()),
            }
            for observation in random_values(100)
        ]
        self.refs = 2

    @property
    def signature(self) -> Any:
        return {
            "observation": specification((100,), np.float32),
            "action": specification((6,), np.float32),
            "reward": specification((), np.float32),
            "next_observation": specification((100,), np.float32),
        }

    def item(self, history: Any) -> Any:
        observation = history["observation"]
        return {
            "observation": observation[-2],
            "action": history["action"][-2],
            "reward": history["reward"][-2],
            "next_observation": observation[-1],
        }


class Frames:
    """Stacks of frames and three scalars; an item is a transition of one step."""

    def __init__(self) -> None:
        self.steps = [
            {
                "observation": frame,
                "action": np.int32(index % 18),
                "reward": np.float32(index % 3),
                "discount": np.float32(0.99),
            }
            for index, frame in enumerate(game_frames())
        ]
        self.refs = 2

    signature = None

    def item(self, history: Any) -> Any:
        observation = history["observation"]
        return {
            "observation": observation[-2],
            "action": history["action"][-2],
            "reward": history["reward"][-2],
            "discount": history["discount"][-2],
            "next_observation": observation[-1],
        }


class SingleFrames(Frames):
    """Stacks of frames and three scalars, without the next observation."""

    def item(self, history: Any) -> Any:
        item = super().item(history)
        del item["next_observation"]
        return item


STORES: dict[str, Callable[[], Any]] = {
    "values-400": lambda: Values(100),
    "values-40k": lambda: Values(10_000),
    "values-400k": lambda: Values(100_000),
    "transitions": Transitions,
    "frames": Frames,
    "frames-28k": SingleFrames,
    "queue": lambda: Values(100),
}


def make_server(store: str, size: int) -> Any:
    """A server with the tables of the store, empty. `size` items fill each of them."""
    if store == "queue":
        return reverb.Server([reverb.Table.queue("queue", size)])
    samplers = {"uniform": reverb.selectors.Uniform(), "prioritized": reverb.selectors.Prioritized(0.6)}
    return reverb.Server(
        [
            reverb.Table(
                name=name,
                sampler=sampler,
                remover=reverb.selectors.Fifo(),
                max_size=size,
                rate_limiter=reverb.rate_limiters.MinSize(1),
                signature=STORES[store]().signature,
            )
            for name, sampler in samplers.items()
        ]
    )


def fill(client: Any, store: str, size: int) -> float:
    """Fills both tables with the same items; how many seconds it took. RuntimeError when they are not full then."""
    content = STORES[store]()
    steps = content.steps
    began = time.perf_counter()
    with client.trajectory_writer(num_keep_alive_refs=content.refs) as writer:
        for index in range(size + content.refs - 1):
            writer.append(steps[index % len(steps)])
            if index + 1 < content.refs:
                continue
            item = content.item(writer.history)
            priority = 0.5 + index % 7
            writer.create_item("uniform", priority, item)
            writer.create_item("prioritized", priority, item)
            if index % FILL_BURST == 0:
                writer.flush(FILL_BURST)
        writer.end_episode()
    took = time.perf_counter() - began
    sizes = {name: info.current_size for name, info in client.server_info().items()}
    if sizes != {"uniform": size, "prioritized": size}:
        raise RuntimeError(f"tables should hold {size} items each and hold {sizes}")
    return took
