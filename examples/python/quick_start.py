"""Quick start: a server with one table, a writer that makes items of three steps, and a loop that samples them.

Run it with `python examples/python/quick_start.py`.
"""

import numpy as np

import reverb


def main() -> None:
    """Writes ten steps, and looks at what came of them."""
    # A table holds items. Its sampler picks what is handed out, its remover what goes when it is full, and its
    # rate limiter makes callers wait: here samples wait until there are two items.
    table = reverb.Table(
        name="replay",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverb.rate_limiters.MinSize(2),
    )
    # A queue hands every item out once, in order, and makes inserts wait while it is full.
    events = reverb.Table.queue("events", max_size=10)
    server = reverb.Server(tables=[table, events])  # on any free port; port=8000 for one of your own

    # Any process, on any machine, could make this client. In the process of the server it needs no socket.
    client = reverb.Client(f"localhost:{server.port}")

    # Steps are any nest of arrays and numbers. A writer keeps the last three of them, for items to refer to.
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
                # history has a column for each leaf. A slice keeps time as the first dimension, an index drops it.
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

    # The columns of an item come in the order of the sorted names: actions, last_reward, observations. A table with a
    # signature gives them back under their names; see prioritized_replay.py.
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
