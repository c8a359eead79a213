"""Sequences for recurrent networks, as in R2D2: overlapping, with the initial state, and prioritized.

Use it to train a recurrent network from replay. A sequence contains the recurrent state that the actor had at its
first step. That state is stale if the network has changed since, so the learner first runs the network over a few
steps without learning from them (the burn-in). Sequences overlap by half; priorities combine the largest and the mean
error of a sequence.

The network here is one leaky unit with a linear readout, and the task is to remember a signal. In the output, look at
how much the first state affects later ones: less after the burn-in, almost nothing at the end. Then look at the loss,
and at the priorities, which the learner has replaced.

Run it with `python examples/python/r2d2_sequences.py`.
"""

import sys

import numpy as np

import reverb

LENGTH = 16  # steps of a sequence
BURN_IN = 4  # the first steps, which warm up the state
PERIOD = 8  # a sequence begins every 8 steps, so neighbours overlap by 8
EPISODE = 64
ETA = 0.9  # priority = ETA * largest + (1 - ETA) * mean error

SIGNATURE = {
    "state": reverb.TensorSpec((), np.float64),  # of the network, before the first step
    "input": reverb.TensorSpec((LENGTH,), np.float64),
    "target": reverb.TensorSpec((LENGTH,), np.float64),
}


def unroll(state: np.ndarray, inputs: np.ndarray, memory: float) -> np.ndarray:
    """Returns the states [B, T] of a leaky unit for the inputs [B, T]."""
    states = np.empty_like(inputs)
    for t in range(inputs.shape[1]):
        state = memory * state + (1 - memory) * inputs[:, t]
        states[:, t] = state
    return states


def write_episodes(client: reverb.Client, episodes: int, memory: float, rng: np.random.Generator) -> None:
    """Runs the actor, which has an old network and stores its states."""
    with client.trajectory_writer(num_keep_alive_refs=LENGTH) as writer:
        for _ in range(episodes):
            signal = rng.normal(size=EPISODE) + rng.normal()
            state = 0.0
            for t in range(EPISODE):
                # The target of the prediction: a slow average of the signal, which is hidden.
                target = signal[max(0, t - 7) : t + 1].mean()
                writer.append({"state": state, "input": signal[t], "target": target})
                state = memory * state + (1 - memory) * signal[t]
                steps = writer.episode_steps
                if steps >= LENGTH and (steps - LENGTH) % PERIOD == 0:
                    history = writer.history
                    writer.create_item(
                        table="sequences",
                        priority=10.0,  # large, so that each is sampled early; the learner corrects it
                        trajectory={
                            "state": history["state"][-LENGTH],  # one number, not a sequence
                            "input": history["input"][-LENGTH:],
                            "target": history["target"][-LENGTH:],
                        },
                    )
            writer.end_episode()


def main(episodes: int = 60, updates: int = 300) -> None:
    """Writes sequences with an old network, and trains a readout of the states of a newer one."""
    server = reverb.Server(
        [
            reverb.Table(
                name="sequences",
                sampler=reverb.selectors.Prioritized(0.9, seed=1),
                remover=reverb.selectors.Fifo(),
                max_size=100_000,
                rate_limiter=reverb.rate_limiters.MinSize(100),
                signature=SIGNATURE,
            )
        ]
    )
    client = reverb.Client(f"localhost:{server.port}")
    write_episodes(client, episodes, memory=0.5, rng=np.random.default_rng(0))
    print(f"{client.server_info()['sequences'].current_size} sequences of {LENGTH} steps from {episodes} episodes")

    memory = 0.8  # the learner's network has changed to this
    reader = np.zeros(2)
    stale: list[tuple[float, float, float]] = []
    losses = []
    for batch in client.sample_batches("sequences", 32, num_batches=updates, exact=True):
        # [B], [B, LENGTH] and [B, LENGTH]
        state, inputs, targets = (batch.data[name] for name in ("state", "input", "target"))

        states = unroll(state, inputs, memory)
        # The effect of the first state, compared with zero: immediately, after the burn-in, at the end.
        gap = states - unroll(np.zeros_like(state), inputs, memory)
        stale.append((np.abs(state).mean(), np.abs(gap[:, BURN_IN - 1]).mean(), np.abs(gap[:, -1]).mean()))

        learned, wanted = states[:, BURN_IN:], targets[:, BURN_IN:]
        errors = wanted - (reader[0] * learned + reader[1])
        weights = reverb.importance_weights(batch.info, beta=0.6)[:, None]
        reader += 0.3 * np.array([(weights * errors * learned).mean(), (weights * errors).mean()])
        losses.append(float((errors**2).mean()))

        priorities = ETA * np.abs(errors).max(axis=1) + (1 - ETA) * np.abs(errors).mean(axis=1)
        client.update_priorities("sequences", batch.info.key, priorities)

    at_start, burnt_in, at_end = np.mean(stale, axis=0)
    print(f"what the first state decides: {at_start:.3f} at once, {burnt_in:.3f} after {BURN_IN} steps of burn-in, "
          f"{at_end:.3f} at the end")  # fmt: skip
    print(f"loss {np.mean(losses[:10]):.3f} -> {np.mean(losses[-10:]):.3f}")
    priorities = np.array([item.info.priority for item in client.peek("sequences", 10_000)])
    print(f"priorities from {priorities.min():.2f} to {priorities.max():.2f}, mean {priorities.mean():.2f}; "
          f"{(priorities == 10).sum()} sequences were never sampled")  # fmt: skip
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
