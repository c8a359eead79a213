"""Whole episodes as items: trajectories of different lengths in one table.

Use it if the unit is an episode: Monte-Carlo returns, evolution strategies, imitation, decision transformers. The
signature of the table leaves the length open (None), and a learner that needs batches pads them.

Here the table keeps the best fifty episodes of a random walk, and samples them in proportion to their return. In the
output, look at the different lengths, at the mean returns of all, stored and sampled episodes, and at the shape of the
padded batch.

Run it with `python examples/python/whole_episodes.py`.
"""

import numpy as np

import reverb

MAX_STEPS = 60
SIGNATURE = {
    "observation": reverb.TensorSpec((None, 2), np.float32),
    "reward": reverb.TensorSpec((None,), np.float32),
}


def play(rng: np.random.Generator):
    """Runs a walk with drift until it is out of bounds or long enough; yields observations and rewards."""
    position = np.zeros(2, np.float32)
    for _ in range(MAX_STEPS):
        position = position + rng.normal(0.1, 1.0, 2).astype(np.float32)
        if np.abs(position).max() > 5:
            break
        yield position, np.float32(1.0)


def main() -> None:
    """Writes episodes, and samples them whole."""
    table = reverb.Table(
        name="episodes",
        sampler=reverb.selectors.Prioritized(1.0, seed=1),
        remover=reverb.selectors.MinHeap(),  # evicts the worst first
        max_size=50,
        rate_limiter=reverb.rate_limiters.MinSize(50),
        signature=SIGNATURE,
    )
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}")
    rng = np.random.default_rng(0)

    returns = []
    # The writer must keep everything that an item may refer to: a whole episode.
    with client.trajectory_writer(num_keep_alive_refs=MAX_STEPS) as writer:
        while len(returns) < 200:
            for observation, reward in play(rng):
                writer.append({"observation": observation, "reward": reward})
            if writer.episode_steps == 0:
                continue
            history = writer.history
            rewards = history["reward"][:]  # all steps of this episode
            returns.append(float(rewards.numpy().sum()))
            writer.create_item(
                table="episodes",
                priority=returns[-1],
                trajectory={"observation": history["observation"][:], "reward": rewards},
            )
            writer.end_episode()  # clears the history

    kept = [item.info.priority for item in client.peek("episodes", 50)]
    print(f"played {len(returns)} episodes with a mean return of {np.mean(returns):.1f}")
    print(f"kept the best {len(kept)}, with a mean return of {np.mean(kept):.1f}")
    assert sorted(kept) == sorted(returns)[-50:]

    # One array for all of them: zeros after the ends, and the lengths, which identify the real steps.
    batch = next(client.sample_batches("episodes", 16, num_batches=1, pad=True))
    observations, lengths = batch.data["observation"], batch.lengths["observation"]
    print(f"sampled {len(lengths)} with a mean return of {batch.info.priority.mean():.1f}; lengths {lengths}")
    mask = np.arange(lengths.max()) < lengths[:, None]
    assert np.array_equal(batch.data["reward"], mask)  # a reward of 1 for each step, and zeros after the end
    print(f"a padded batch: observations {observations.shape}, {mask.mean():.0%} of it real steps")
    server.stop()


if __name__ == "__main__":
    main()
