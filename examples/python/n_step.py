"""N-step returns: an item has a state, the return of n steps, and the state after them.

Use it to propagate rewards faster than one step at a time. The actor sums up the rewards and appends the sum and the
remaining discount as two more columns, so that the learner needs no sequences: the item refers to the observation n
steps ago, the newest one, and the two numbers. At the end of an episode the last items span fewer steps.

The task is a random walk between two ends, one of which pays. In the output, compare the errors of the learned values
after the same number of samples: more steps reduce the error at first, then too many add noise.

Run it with `python examples/python/n_step.py`.
"""

import collections
import sys

import numpy as np

import reverb

STATES = 19  # between the ends; the walk starts in the middle
GAMMA = 1.0
TRUE_VALUES = np.arange(1, STATES + 1) / (STATES + 1) * 2 - 1


def make_table(name: str) -> reverb.Table:
    """Creates a table for one n."""
    number = reverb.TensorSpec((), np.float64)
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Uniform(seed=1),
        remover=reverb.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={
            "state": reverb.TensorSpec((), np.int64),
            "return": number,  # r0 + gamma r1 + ... of n steps
            "discount": number,  # gamma ** n, or 0 if the episode ended
            "next_state": reverb.TensorSpec((), np.int64),
        },
    )


def walk(rng: np.random.Generator):
    """Yields (state, reward, next state, whether the episode ends)."""
    state = STATES // 2
    while True:
        following = state + int(rng.choice((-1, 1)))
        reward = -1.0 if following < 0 else 1.0 if following == STATES else 0.0
        ended = not 0 <= following < STATES
        yield state, reward, min(max(following, 0), STATES - 1), ended
        if ended:
            return
        state = following


class NStepWriter:
    """Creates an item for every step of an episode, n steps later or at its end."""

    def __init__(self, client: reverb.Client, table: str, n: int) -> None:
        self._writer = client.trajectory_writer(num_keep_alive_refs=2 * n + 1)
        self._table = table
        self._n = n
        self._rewards: collections.deque[float] = collections.deque()  # of the last n steps, oldest first
        self._position = 0  # of the newest state

    def reset(self, state: int) -> None:
        """Adds the first state of an episode."""
        self._position = 0
        self._writer.append({"state": state}, partial_step=True)  # stays open for the reward

    def step(self, reward: float, next_state: int, *, ended: bool) -> None:
        """Adds the reward and the next state."""
        self._writer.append({"reward": reward})  # completes the step
        self._writer.append({"state": next_state}, partial_step=True)
        self._position += 1
        self._rewards.append(reward)
        if len(self._rewards) == self._n or ended:
            self._make_item(0.0 if ended else GAMMA ** len(self._rewards))
        if ended:
            while self._rewards:  # the last steps, which have fewer than n rewards
                self._writer.append({})  # a step for their numbers: a column has one value per step
                self._make_item(0.0)
            self._writer.end_episode()

    def _make_item(self, discount: float) -> None:
        """Creates the item of the oldest step that has none."""
        start = self._position - len(self._rewards)
        total = sum(GAMMA**k * reward for k, reward in enumerate(self._rewards))
        # Adds two columns to the open step. Their newest values belong to this item.
        self._writer.append({"return": total, "discount": discount}, partial_step=True)
        history = self._writer.history
        self._writer.create_item(
            table=self._table,
            priority=1.0,
            trajectory={
                "state": history["state"][start],  # positions count from the start of the episode
                "return": history["return"][-1],
                "discount": history["discount"][-1],
                "next_state": history["state"][self._position],
            },
        )
        self._rewards.popleft()

    def close(self) -> None:
        """Flushes and closes the writer."""
        self._writer.close()


def main(episodes: int = 200, samples: int = 4000) -> None:
    """Learns the values of the states for different n."""
    lengths = (1, 2, 4, 8, 64)
    server = reverb.Server([make_table(f"n={n}") for n in lengths])
    client = reverb.Client(f"localhost:{server.port}")
    for n in lengths:
        rng = np.random.default_rng(0)  # the same episodes for each n
        writer = NStepWriter(client, f"n={n}", n)
        steps = 0
        for _ in range(episodes):
            writer.reset(STATES // 2)
            for _, reward, next_state, ended in walk(rng):
                writer.step(reward, next_state, ended=ended)
                steps += 1
        writer.close()
        assert client.server_info()[f"n={n}"].current_size == steps, "every step begins one item"

        values = np.zeros(STATES)
        for _, batch in client.sample_batches(f"n={n}", 10, num_batches=samples // 10):
            targets = batch["return"] + batch["discount"] * values[batch["next_state"]]
            np.add.at(values, batch["state"], 0.1 * (targets - values[batch["state"]]))
        error = np.sqrt(np.mean((values - TRUE_VALUES) ** 2))
        print(f"n = {n:2}: {steps} items, error of the values after {samples} samples {error:.3f}")
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
