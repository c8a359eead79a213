"""Overlapping trajectories: items of three steps that share two of them with the next item.

Use it to learn from short sequences that may begin at any step: n-step returns, recurrent networks, model learning.
Steps are sent and stored once, however many items contain them.

The program writes one episode twice: with a TrajectoryWriter, which selects the columns of an item, and with the older
Writer, whose items are always whole steps. In the output, look at the steps of the items: 0-1-2, 1-2-3, 2-3-4 and so
on, the same for both.

Run it with `python examples/python/overlapping_trajectories.py`.
"""

import numpy as np

import reverb

STEPS = 10
LENGTH = 3


def environment():
    """Yields observations and actions."""
    for step in range(STEPS):
        yield np.array([step, 10 * step], np.float32), step % 2


def main() -> None:
    """Writes an episode in both ways, and compares the tables."""
    # Queues return every item once, in order: the easiest way to look at all of them.
    server = reverb.Server([reverb.Table.queue("columns", 100), reverb.Table.queue("steps", 100)])
    client = reverb.Client(f"localhost:{server.port}")

    # Items may refer to the last three steps, so the writer keeps these.
    with client.trajectory_writer(num_keep_alive_refs=LENGTH) as writer:
        for observation, action in environment():
            writer.append({"observation": observation, "action": action})
            if writer.episode_steps >= LENGTH:
                history = writer.history
                writer.create_item(
                    table="columns",
                    priority=1.5,
                    trajectory={
                        "observations": history["observation"][-LENGTH:],  # [3, 2]
                        "actions": history["action"][-LENGTH:],  # [3]
                    },
                )
    # Leaving the block waits until all items are in the table.

    with client.writer(max_sequence_length=LENGTH) as writer:
        for step, (observation, action) in enumerate(environment()):
            writer.append({"observation": observation, "action": action})
            if step >= LENGTH - 1:
                writer.create_item(table="steps", num_timesteps=LENGTH, priority=1.5)

    items = client.server_info()["columns"].current_size
    print(f"{STEPS} steps make {items} items of {LENGTH} steps:")
    # data is a list of columns, sorted by name: actions, observations.
    for sample in client.sample("columns", num_samples=items, emit_timesteps=False):
        actions, observations = sample.data
        print(f"  steps {observations[:, 0].astype(int)}, actions {actions}")

    # The other table holds the same items. By default an item is returned as a list of its steps.
    starts = []
    for item in client.sample("steps", num_samples=items):
        steps = [int(step.data[1][0]) for step in item]
        assert steps == list(range(steps[0], steps[0] + LENGTH))
        starts.append(steps[0])
    print(f"the older writer made the same: items that begin at steps {starts}")
    server.stop()


if __name__ == "__main__":
    main()
