"""Frame stacking without duplicates: items of four frames each, every frame sent and stored once.

Use it for agents that see the last few images, like those that play Atari. Appending stacks of four frames would store
each frame four times (eight times with the next observation). Append single frames instead, and let items refer to
four or five of them. At the start of an episode, where frames are missing, items refer to the first one several times,
which needs no memory either.

In the output, look at the positions of the frames in an item, and at the bytes.

Run it with `python examples/python/frame_stacking.py`.
"""

import numpy as np

import reverb

SIDE = 84
STACK = 4
SPEC = reverb.TensorSpec((STACK, SIDE, SIDE), np.uint8)
SIGNATURE = {
    "observation": SPEC,
    "action": reverb.TensorSpec((), np.int64),
    "reward": reverb.TensorSpec((), np.float32),
    "next_observation": SPEC,
}


def frame(step: int) -> np.ndarray:
    """Returns a noisy image whose first pixel is the step."""
    image = np.random.default_rng(step).integers(0, 255, (SIDE, SIDE), np.uint8)  # noise does not compress
    image[0, 0] = step
    return image


def stack_at(step: int) -> list[int]:
    """Returns the positions of the frames at a step: [0, 0, 0, 0], [0, 0, 0, 1], ..., [3, 4, 5, 6]."""
    return [max(0, step - back) for back in reversed(range(STACK))]


def main(steps: int = 100) -> None:
    """Writes an episode of frames, and reads stacks."""
    table = reverb.Table(
        name="replay",
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=SIGNATURE,
        max_times_sampled=1,  # with a Fifo sampler: every item once, in order
    )
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}")

    # The oldest frame of a stack and the newest of the next one are four steps apart.
    with client.trajectory_writer(num_keep_alive_refs=STACK + 1) as writer:
        writer.append({"frame": frame(0)}, partial_step=True)  # the first observation; the step stays open
        for step in range(steps):
            writer.append({"action": step % 4, "reward": np.float32(step)})  # the action; completes the step
            writer.append({"frame": frame(step + 1)}, partial_step=True)  # the next observation
            history = writer.history
            writer.create_item(
                table="replay",
                priority=1.0,
                # A list of positions in the episode; they may repeat.
                trajectory={
                    "observation": history["frame"][stack_at(step)],
                    "action": history["action"][step],
                    "reward": history["reward"][step],
                    "next_observation": history["frame"][stack_at(step + 1)],
                },
            )
            writer.flush(block_until_num_items=20)

    stored_frames = steps + 1
    item_frames = 2 * STACK * steps
    samples = client.sample("replay", steps, emit_timesteps=False, unpack_as_table_signature=True)
    for step, sample in enumerate(samples):
        shown = sample.data["observation"][:, 0, 0], sample.data["next_observation"][:, 0, 0]
        assert [list(positions) for positions in shown] == [stack_at(step), stack_at(step + 1)]
        if step < 5:
            print(f"item {step}: frames {shown[0]} -> {shown[1]}, action {int(sample.data['action'])}")
    print(f"the {steps} items show {item_frames} frames, {item_frames * SIDE * SIDE / 1e6:.1f} MB;")
    print(f"written were {stored_frames}, {stored_frames * SIDE * SIDE / 1e6:.1f} MB")
    server.stop()


if __name__ == "__main__":
    main()
