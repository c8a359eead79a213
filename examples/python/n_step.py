"""N-step returns: an item has a state, the return of n steps, and the state after them.

Use it to propagate rewards faster than one step at a time. The recorder sums up the rewards and stores the factor of
the value that follows, so that the learner needs no sequences and no flags. At the end of an episode the last items
span fewer steps.

The task is a random walk between two ends, one of which pays. In the output, compare the errors of the learned values
after the same number of samples: more steps reduce the error at first, then too many add noise.

Run it with `python examples/python/n_step.py`.
"""

import sys

import numpy as np

import reverb

STATES = 19  # between the ends; the walk starts in the middle
GAMMA = 1.0
TRUE_VALUES = np.arange(1, STATES + 1) / (STATES + 1) * 2 - 1


def make_table(name: str) -> reverb.Table:
    """Creates a table for one n."""
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Uniform(seed=1),
        remover=reverb.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
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


def main(episodes: int = 200, samples: int = 4000) -> None:
    """Learns the values of the states for different n."""
    lengths = (1, 2, 4, 8, 64)
    server = reverb.Server([make_table(f"n={n}") for n in lengths])
    client = reverb.Client(f"localhost:{server.port}")
    for n in lengths:
        rng = np.random.default_rng(0)  # the same episodes for each n
        steps = 0
        with reverb.recorders.TransitionRecorder(client, f"n={n}", n_step=n, discount=GAMMA) as recorder:
            for _ in range(episodes):
                recorder.reset(STATES // 2)
                for state, reward, next_state, ended in walk(rng):
                    recorder.step(next_state - state, next_state, reward, ended, False)
                    steps += 1
        assert client.server_info()[f"n={n}"].current_size == steps, "every step begins one item"

        values = np.zeros(STATES)
        for _, batch in client.sample_batches(f"n={n}", 10, num_batches=samples // 10):
            states = batch["observation"]
            targets = batch["reward"] + batch["discount"] * values[batch["next_observation"]]
            np.add.at(values, states, 0.1 * (targets - values[states]))
        error = np.sqrt(np.mean((values - TRUE_VALUES) ** 2))
        print(f"n = {n:2}: {steps} items, error of the values after {samples} samples {error:.3f}")
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
