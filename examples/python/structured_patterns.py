"""Patterns: define once which items to create, and let the writer create them as steps are appended.

Use it if rules determine the items from the steps, which is common: transitions, n-step transitions, periodic
sequences, items at the end of an episode. The structured writer evaluates the conditions at every step in native code,
so the actor's loop consists of one append. Several configs may write to one table or to several, and share the data.

In the output, look at the steps in the items of each pattern, for one episode of ten steps.

Run it with `python examples/python/structured_patterns.py`.
"""

import numpy as np

import reverb
from reverb import structured

# The structure of a step; the values do not matter here.
STEP = {"observation": None, "reward": None, "is_goal": None, "td_error": None}
STEP_SPEC = {
    "observation": reverb.TensorSpec((), np.int64),
    "reward": reverb.TensorSpec((), np.float32),
    "is_goal": reverb.TensorSpec((), np.bool_),
    "td_error": reverb.TensorSpec((), np.float32),
}


def make_configs() -> list[structured.Config]:
    """Returns the rules. `ref` represents the steps: ref[...][-1] is the newest value, ref[...][-2:] the last two."""
    condition = structured.Condition
    transition = structured.pattern_from_transform(
        STEP,
        lambda ref: {
            "observation": ref["observation"][-2],
            "reward": ref["reward"][-2],
            "next_observation": ref["observation"][-1],
        },
    )

    def window(length: int) -> structured.Pattern:
        return structured.pattern_from_transform(
            STEP, lambda ref: {"observation": ref["observation"][-length:], "td_error": ref["td_error"][-length:]}
        )

    return [
        # At every step that has a predecessor.
        structured.create_config(transition, table="transitions"),
        # Four steps, at every second step; the priority is computed from a column of the steps: 0.9 * the maximum +
        # 0.1 * the mean of |td_error|.
        structured.create_config(
            window(4),
            table="sequences",
            conditions=[condition.step_index() >= 3, condition.step_index() % 2 == 1],
            priority=structured.td_error(0.9, STEP, lambda step: step["td_error"]),
        ),
        # The steps that lead to a goal, as marked in the data.
        structured.create_config(window(2), table="goals", conditions=[condition.data(STEP)["is_goal"] == 1]),
        # The last three steps of the episode, whatever its length.
        structured.create_config(window(3), table="endings", conditions=[condition.is_end_episode()]),
    ]


def main() -> None:
    """Writes one episode, and prints the resulting items."""
    configs = make_configs()
    server = reverb.Server(
        [
            # The configs and the steps determine the signature of a table.
            reverb.Table.queue(
                config.table, max_size=100, signature=structured.infer_signature([config], step_spec=STEP_SPEC)
            )
            for config in configs
        ]
    )
    client = reverb.Client(f"localhost:{server.port}")

    with client.structured_writer(configs) as writer:
        for step in range(10):
            writer.append(
                {
                    "observation": step,
                    "reward": np.float32(0.5),
                    "is_goal": step in (4, 8),
                    "td_error": np.float32(step),
                }
            )
        writer.end_episode()  # waits until all items are in their tables

    for table, info in client.server_info().items():
        shown = []
        for sample in client.sample(table, info.current_size, emit_timesteps=False, unpack_as_table_signature=True):
            steps = [int(value) for value in np.atleast_1d(sample.data["observation"])]
            if "next_observation" in sample.data:
                steps.append(int(sample.data["next_observation"]))
            shown.append("-".join(map(str, steps)) + (f" ({sample.info.priority:.1f})" if table == "sequences" else ""))
        print(f"{table:12} {len(shown)} items: {', '.join(shown)}")
    server.stop()


if __name__ == "__main__":
    main()
