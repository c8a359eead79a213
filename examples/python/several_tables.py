"""Several tables over the same data: one writer, items of different lengths and priorities, steps stored once.

Use it if parts of an agent need different views of experience: a model learns from sequences, a critic from
transitions, and another part needs the best moments again. A table is a view with its own order, its own bound and its
own limiter; tables share the underlying steps, which are freed with the last item that needs them.

In the output, compare the views of the same two hundred steps: random pairs, triples by priority, and a short list of
the best steps of all, in which a better step always replaces the worst.

Run it with `python examples/python/several_tables.py`.
"""

import numpy as np

import reverb

STEPS = 200


def make_server() -> reverb.Server:
    """Creates three tables, as three views."""
    return reverb.Server(
        tables=[
            reverb.Table(
                name="pairs",
                sampler=reverb.selectors.Uniform(seed=1),
                remover=reverb.selectors.Fifo(),
                max_size=1000,
                rate_limiter=reverb.rate_limiters.MinSize(1),
            ),
            reverb.Table(
                name="triples",
                sampler=reverb.selectors.Prioritized(1.0, seed=1),
                remover=reverb.selectors.Fifo(),
                max_size=1000,
                rate_limiter=reverb.rate_limiters.MinSize(1),
            ),
            # Returns the item with the highest priority, and evicts the lowest: keeps the ten best of all time.
            reverb.Table(
                name="best",
                sampler=reverb.selectors.MaxHeap(),
                remover=reverb.selectors.MinHeap(),
                max_size=10,
                rate_limiter=reverb.rate_limiters.MinSize(1),
            ),
        ]
    )


def main() -> None:
    """Writes an episode, and samples it from each table."""
    server = make_server()
    client = reverb.Client(f"localhost:{server.port}")
    rng = np.random.default_rng(0)
    rewards = rng.gamma(1.0, 1.0, STEPS).astype(np.float32)

    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(STEPS):
            writer.append({"step": step, "reward": rewards[step]})
            history = writer.history
            if writer.episode_steps >= 2:
                writer.create_item("pairs", 1.0, {"steps": history["step"][-2:], "rewards": history["reward"][-2:]})
            if writer.episode_steps >= 3:
                # A separate priority for each table; here the sum of the rewards in the item.
                priority = history["reward"][-3:].numpy().sum()
                writer.create_item(
                    "triples", priority, {"steps": history["step"][-3:], "rewards": history["reward"][-3:]}
                )
            writer.create_item("best", rewards[step], {"step": history["step"][-1], "reward": history["reward"][-1]})

    for name, info in sorted(client.server_info().items()):
        print(f'table "{name}": {info.current_size} items of {info.num_episodes} episode')

    def mean_reward(table: str, column: int) -> float:
        samples = client.sample(table, 2000, emit_timesteps=False)
        return float(np.mean([sample.data[column].mean() for sample in samples]))

    print(f"mean reward of the steps: {rewards.mean():.2f}")
    print(f"  of pairs, drawn uniformly:      {mean_reward('pairs', 0):.2f}")
    print(f"  of triples, drawn by priority:  {mean_reward('triples', 0):.2f}")

    best = sorted((float(item.data["reward"]) for item in client.peek("best", 10)), reverse=True)
    assert np.allclose(best, np.sort(rewards)[-10:][::-1])
    print("the ten best steps:", " ".join(f"{reward:.1f}" for reward in best))

    # Emptying a table, or changing its priorities, does not affect the others.
    top = next(client.sample("best", emit_timesteps=False))
    client.mutate_priorities("best", deletes=[top.info.key])
    client.reset("triples")
    sizes = {name: info.current_size for name, info in sorted(client.server_info().items())}
    print(f"after a deletion and a reset: {sizes}")
    server.stop()


if __name__ == "__main__":
    main()
