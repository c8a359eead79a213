"""Quick start: a server with one table, a writer that creates items of three steps, and a loop that samples them.

Run it with `python examples/python/quick_start.py`.
"""

import numpy as np

import reverb


def main() -> None:
    """Writes ten steps, and looks at the resulting items."""
    # A table holds items. Its sampler selects the items to return, its remover selects the items to evict when it is
    # full, and its rate limiter blocks callers: here samples wait until there are two items.
    table = reverb.Table(
        name="replay",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverb.rate_limiters.MinSize(2),
    )
    # A queue returns every item once, in order, and blocks inserts while it is full.
    events = reverb.Table.queue("events", max_size=10)
    server = reverb.Server(tables=[table, events])  # on any free port; use port=8000 for a fixed one

    # Any process, on any machine, could create this client. Within the server's process it needs no socket.
    client = reverb.Client(f"localhost:{server.port}")

    # Steps are any nest of arrays and numbers. The writer keeps the last three, for items to refer to.
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(10):
            writer.append(
                {
                    "observation": np.full((4,), step, np.float32),
                    "action": np.int32(step % 2),
                    "reward": 0.1 * step,
                }
            )
            if writer.episode_steps >= 3:
                # history has a column for each leaf. A slice keeps time as the first dimension, an index removes it.
                history = writer.history
                writer.create_item(
                    table="replay",
                    priority=1.0,
                    trajectory={
                        "observations": history["observation"][-3:],
                        "actions": history["action"][-3:],
                        "last_reward": history["reward"][-1],
                    },
                )
        writer.end_episode()  # all items are in the table when this returns

    print(f"the table holds {client.server_info()['replay'].current_size} items")

    # The columns of an item are sorted by name: actions, last_reward, observations. A table with a signature returns
    # them with their names; see prioritized_replay.py.
    for sample in client.sample("replay", num_samples=3, emit_timesteps=False):
        actions, last_reward, observations = sample.data
        print(f"item {sample.info.key:#018x} was drawn with probability {sample.info.probability:.3f}:")
        print(f"  steps {observations[:, 0].astype(int)}, actions {actions}, last reward {last_reward:.1f}")

    # A single step needs no writer.
    client.insert({"event": "episode ended", "steps": 10}, priorities={"events": 1.0})
    (step,) = next(client.sample("events"))  # the item, as a list of its steps
    print(f"an event: {step.data}, and {events.info.current_size} are left")

    server.stop()


if __name__ == "__main__":
    main()
