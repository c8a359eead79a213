"""Behaviour cloning from a checkpoint: experience on disk as a dataset, read without a server.

Use it to learn offline from existing experience: demonstrations, the replay of an earlier run, a checkpoint of
dm-reverb. `client.checkpoint()` makes the server write all tables and returns the path; `reverb.checkpoints.read`
returns the items as NumPy arrays, one at a time or, as here, in shuffled batches, in the structure of the table's
signature.

The program records whole episodes of an expert that keeps a point near the middle, stops the server, and fits a policy
to the checkpoint alone. In the output, look at the contents of the checkpoint, at how often the clone agrees with the
expert, and at the returns.

Run it with `python examples/python/behaviour_cloning.py`.
"""

import sys
import tempfile

import numpy as np

import reverb

EPISODE = 50
SIGNATURE = {
    "observation": reverb.TensorSpec((None, 2), np.float32),  # position and speed
    "action": reverb.TensorSpec((None,), np.int64),
}


def expert(observation: np.ndarray) -> int:
    """Pushes to the right if the point is, or soon will be, too far to the left."""
    return int(observation[0] + 1.5 * observation[1] < 0)


def play(policy, rng: np.random.Generator):
    """Yields observations, actions and rewards of an episode."""
    position, speed = rng.uniform(-1, 1), 0.0
    for _ in range(EPISODE):
        observation = np.array([position, speed], np.float32)
        action = policy(observation)
        speed += (0.1 if action else -0.1) + rng.normal(0, 0.02)
        position += speed
        yield observation, action, -abs(position)


def mean_return(policy) -> float:
    """Returns the mean return of a few new episodes."""
    rng = np.random.default_rng(1)
    return float(np.mean([sum(reward for _, _, reward in play(policy, rng)) for _ in range(20)]))


def record(root: str, episodes: int) -> str:
    """Serves a table while the expert plays; returns the path of the checkpoint."""
    table = reverb.Table(
        name="demonstrations",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=SIGNATURE,
    )
    with reverb.Server([table], checkpointer=reverb.checkpointers.DefaultCheckpointer(root)) as server:
        client = reverb.Client(f"localhost:{server.port}")
        rng = np.random.default_rng(0)
        with client.trajectory_writer(num_keep_alive_refs=EPISODE) as writer:
            for _ in range(episodes):
                for observation, action, _ in play(expert, rng):
                    writer.append({"observation": observation, "action": action})
                history = writer.history
                writer.create_item(
                    table="demonstrations",
                    priority=1.0,
                    trajectory={"observation": history["observation"][:], "action": history["action"][:]},
                )
                writer.end_episode()
        return client.checkpoint()  # durable when this returns


def clone(path: str) -> np.ndarray:
    """Fits the expert's actions to its observations by logistic regression; returns three weights."""
    # Each pass has another order. The checkpoint may be larger than the memory: a batch of episodes is read at a time.
    demonstrations = reverb.checkpoints.read(path, "demonstrations", batch_size=10, shuffle=True, seed=0)
    weights = np.zeros(3)
    for _ in range(100):
        for batch in demonstrations:
            features, actions = steps_of(batch)
            probabilities = 1 / (1 + np.exp(-features @ weights))
            weights += 2.0 * features.T @ (actions - probabilities) / len(actions)
    agrees = np.concatenate(
        [(features @ weights > 0) == actions for features, actions in map(steps_of, demonstrations)]
    )
    print(f"the clone agrees with the expert in {agrees.mean():.1%} of {len(agrees)} steps")
    return weights


def steps_of(batch: reverb.ReplaySample) -> tuple[np.ndarray, np.ndarray]:
    """Returns the observations, with a constant, and the actions of all steps of some episodes."""
    observations, actions = batch.data["observation"].reshape(-1, 2), batch.data["action"].reshape(-1)
    return np.column_stack([observations, np.ones(len(observations))]), actions


def main(episodes: int = 50) -> None:
    """Records the expert, and learns from the checkpoint."""
    with tempfile.TemporaryDirectory() as root:
        path = record(root, episodes)
        info = reverb.checkpoints.info(path)
        table = info.tables["demonstrations"]
        print(f"the checkpoint has {table.current_size} episodes in {info.num_chunks} chunks, {info.file_bytes} bytes")
        weights = clone(path)
    print(f"return of the expert {mean_return(expert):.1f}, "
          f"of the clone {mean_return(lambda o: int(o @ weights[:2] + weights[2] > 0)):.1f}, "
          f"of one that only ever pushes to the left {mean_return(lambda _: 0):.1f}")  # fmt: skip


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
