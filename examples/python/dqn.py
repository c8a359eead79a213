"""Actor and learner in two processes: Q-learning in a corridor, with a replay table and a table of parameters.

The actor acts with the latest parameters, and writes transitions. The learner samples them, trains, and publishes its
parameters. A rate limiter synchronises the two: about eight samples for each transition; the faster one waits. The
networks are replaced by a table of numbers; everything else is as in a real program.

Run it with `python examples/python/dqn.py`.
"""

import multiprocessing
import sys

import numpy as np

import reverb

CELLS = 8  # a corridor; the reward is at its right end
BATCH = 32
GAMMA = 0.9

SIGNATURE = {
    "observation": reverb.TensorSpec((), np.int64),
    "action": reverb.TensorSpec((), np.int64),
    "reward": reverb.TensorSpec((), np.float32),
    "discount": reverb.TensorSpec((), np.float32),
    "next_observation": reverb.TensorSpec((), np.int64),
}


def make_server(signature: dict[str, reverb.TensorSpec]) -> reverb.Server:
    """Creates the server: transitions go one way, parameters the other."""
    return reverb.Server(
        tables=[
            reverb.Table(
                name="replay",
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=10_000,
                rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                    samples_per_insert=8.0, min_size_to_sample=100, error_buffer=800.0
                ),
                signature=signature,
            ),
            # One item, which may be sampled any number of times: the latest parameters.
            reverb.Table(
                name="parameters",
                sampler=reverb.selectors.Lifo(),
                remover=reverb.selectors.Fifo(),
                max_size=1,
                rate_limiter=reverb.rate_limiters.MinSize(1),
                signature=reverb.TensorSpec((CELLS, 2), np.float32),
            ),
        ],
        host="localhost",
    )


def report(client: reverb.Client, q: np.ndarray) -> None:
    """Prints the ratio that the limiter maintained, and the learned policy."""
    limiter = client.server_info()["replay"].rate_limiter_info
    inserts, samples = limiter.insert_stats.completed, limiter.sample_stats.completed
    print(f"{inserts} transitions, {samples} samples: {samples / inserts:.1f} samples per insert")
    policy = "".join("<>"[int(np.argmax(values))] for values in q[:-1])
    print(f"the policy in the corridor: {policy}")


def act(client: reverb.Client, stop) -> None:
    """Plays until `stop` is set."""
    rng = np.random.default_rng(0)
    # An item consists of the values of two steps: an observation and the next one.
    writer = client.trajectory_writer(num_keep_alive_refs=2)
    while not stop.is_set():
        # Waits until the learner has published parameters.
        (newest,) = next(client.sample("parameters", timeout=30))
        (q,) = newest.data
        cell = 0
        writer.append({"observation": cell}, partial_step=True)  # the action is not known yet
        for _ in range(50):
            explore = rng.random() < 0.3 or q[cell, 0] == q[cell, 1]
            action = int(rng.integers(2)) if explore else int(np.argmax(q[cell]))
            cell = min(cell + 1, CELLS - 1) if action else max(cell - 1, 0)
            done = cell == CELLS - 1
            writer.append(
                {
                    "action": action,
                    "reward": np.float32(1.0 if done else -0.01),
                    "discount": np.float32(0.0 if done else GAMMA),
                }
            )  # completes the step
            writer.append({"observation": cell}, partial_step=True)  # opens the next step
            history = writer.history
            writer.create_item(
                table="replay",
                priority=1.0,
                trajectory={
                    "observation": history["observation"][-2],
                    "action": history["action"][-2],
                    "reward": history["reward"][-2],
                    "discount": history["discount"][-2],
                    "next_observation": history["observation"][-1],
                },
            )
            if done:
                break
        try:
            writer.end_episode(timeout_ms=1000)  # waits for the limiter, and so for the learner
        except reverb.DeadlineExceededError:
            continue  # sending continues; check whether to stop
    writer.close()


def learn(client: reverb.Client, updates: int) -> np.ndarray:
    """Trains for a number of updates, and returns the parameters."""
    q = np.zeros((CELLS, 2), np.float32)
    target = q.copy()
    client.insert(q, priorities={"parameters": 1.0})
    batches = client.sample_batches("replay", BATCH, num_batches=updates, timeout=60)
    for update, batch in enumerate(batches, start=1):
        # One array per column, with one row per transition.
        s, a, r, discount, s_next = (
            batch.data[name] for name in ("observation", "action", "reward", "discount", "next_observation")
        )
        error = r + discount * target[s_next].max(axis=1) - q[s, a]
        np.add.at(q, (s, a), 0.05 * error)
        if update % 20 == 0:
            target = q.copy()
            client.insert(q, priorities={"parameters": 1.0})
    return q


def run_learner(client: reverb.Client, updates: int, result) -> None:
    """Runs the learner in its process."""
    result.put(learn(client, updates))


def main(updates: int = 400) -> None:
    """Starts both processes, and reports the result."""
    server = make_server(SIGNATURE)
    client = reverb.Client(f"localhost:{server.port}")  # the processes receive it by pickling
    processes = multiprocessing.get_context("spawn")
    stop, result = processes.Event(), processes.Queue()
    actor = processes.Process(target=act, args=(client, stop))
    learner = processes.Process(target=run_learner, args=(client, updates, result))
    actor.start()
    learner.start()
    q = result.get(timeout=120)
    stop.set()
    for process in (learner, actor):
        process.join()
    report(client, q)
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
