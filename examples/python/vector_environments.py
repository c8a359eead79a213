"""Vector environments: one call writes one step of many of them.

Use it with environments that step together: Gymnasium's vector environments, EnvPool, simulators on an accelerator.
The first dimension of values is the environment, as in the output of such environments. Each environment still has its
own episodes, chunks and items: an item never combines two of them, and never extends across the start of an episode.
The environments here reset themselves like those of Gymnasium: the step after the last one of an episode returns the
first observation of the next. For environments that return what Gymnasium's do, reverb.recorders uses a VectorWriter
for you.

The program writes the same transitions twice: with one VectorWriter, and with a TrajectoryWriter for each environment
in a Python loop. In the output, compare the time per step, and the counts: the same items, and one terminal item for
each episode that ended.

Run it with `python examples/python/vector_environments.py`.
"""

import sys
import time

import numpy as np

import reverb

ENVIRONMENTS = 32


class Walks:
    """Random walks that step together, each until it is out of bounds."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._observations = np.zeros((ENVIRONMENTS, 4), np.float32)
        self._ended = np.zeros(ENVIRONMENTS, bool)

    def reset(self) -> np.ndarray:
        """Returns the first observations."""
        return self._observations

    def step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps all; returns observations, rewards and which episodes end. Episodes that had ended restart instead."""
        begins = self._ended
        moved = self._observations + self._rng.normal(size=(ENVIRONMENTS, 4)).astype(np.float32)
        self._observations = np.where(begins[:, None], np.float32(0), moved)
        self._ended = np.abs(self._observations).max(axis=1) > 8
        return self._observations, -np.abs(self._observations).mean(axis=1), self._ended


def transition(history) -> dict:
    """Returns the contents of an item, for one environment or for all."""
    return {
        "observation": history["observation"][-2],
        "reward": history["reward"][-1],
        "terminated": history["terminated"][-1],
        "next_observation": history["observation"][-1],
    }


def write_together(client: reverb.Client, steps: int) -> float:
    """Uses one writer for all environments; returns the elapsed seconds."""
    walks = Walks()
    start = time.perf_counter()
    with client.vector_writer(num_envs=ENVIRONMENTS, num_keep_alive_refs=2) as writer:
        writer.append({"observation": walks.reset()})
        for _ in range(steps):
            observations, rewards, ends = walks.step()
            writer.append({"observation": observations, "reward": rewards, "terminated": ends})
            # Creates an item in every environment whose episode has two steps; skips those that have just started.
            writer.create_items("together", 1.0, transition(writer.history))
            writer.end_episode(ends)  # ends the selected episodes; the others continue
    return time.perf_counter() - start


def write_one_by_one(client: reverb.Client, steps: int) -> float:
    """Uses a writer for each environment; returns the elapsed seconds."""
    walks = Walks()
    start = time.perf_counter()
    writers = [client.trajectory_writer(num_keep_alive_refs=2) for _ in range(ENVIRONMENTS)]
    for writer, observation in zip(writers, walks.reset(), strict=True):
        writer.append({"observation": observation})
    for _ in range(steps):
        observations, rewards, ends = walks.step()
        for i, writer in enumerate(writers):
            writer.append({"observation": observations[i], "reward": rewards[i], "terminated": ends[i]})
            if writer.episode_steps >= 2:
                writer.create_item("one_by_one", 1.0, transition(writer.history))
            if ends[i]:
                writer.end_episode()
    for writer in writers:
        writer.flush()
        writer.close()
    return time.perf_counter() - start


def main(steps: int = 500) -> None:
    """Writes in both ways."""
    server = reverb.Server(
        [
            reverb.Table(
                name=name,
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=1_000_000,
                rate_limiter=reverb.rate_limiters.MinSize(1),
            )
            for name in ("together", "one_by_one")
        ]
    )
    client = reverb.Client(f"localhost:{server.port}")
    for name, write in (("together", write_together), ("one_by_one", write_one_by_one)):
        seconds = write(client, steps)
        info = client.server_info()[name]
        terminal = sum(bool(item.data["terminated"]) for item in client.peek(name, info.current_size))
        print(f"{name:10}: {info.current_size} transitions of {info.num_episodes} episodes, {terminal} terminal, "
              f"{1e6 * seconds / steps / ENVIRONMENTS:.1f} us for a step of an environment")  # fmt: skip
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
