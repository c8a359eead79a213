"""On-policy learning through a queue: PPO.

Use it if all experience is used once, by the policy that generated it or a slightly newer one. The queue returns each
item exactly once, in order. It holds one batch: while the learner is busy the actors wait, so the next policy
generates their next data. Parameters go back through a table of size 1.

The task is a corridor with the reward at its right end; the policy and the values are tables of numbers. In the
output, look at the return, at the share of fragments from the newest policy, and at the counts at the end: every
inserted fragment was sampled once or is still in the queue.

Run it with `python examples/python/ppo_queue.py`.
"""

import contextlib
import sys
import threading

import numpy as np

import reverb

CELLS = 8
FRAGMENT = 16  # steps of an item
BATCH = 16  # items of an update
GAMMA, LAMBDA, CLIP, EPOCHS, RATE = 0.95, 0.95, 0.2, 4, 1.0

COLUMNS = {"cell": np.int64, "action": np.int64, "reward": np.float64, "discount": np.float64, "log_prob": np.float64}
# One more step than is used for learning, for the value of the fragment's last state.
SIGNATURE = {name: reverb.TensorSpec((FRAGMENT + 1,), dtype) for name, dtype in COLUMNS.items()}
SIGNATURE["version"] = reverb.TensorSpec((), np.int64)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the log softmax over the last dimension."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def act(client: reverb.Client, seed: int, stop: threading.Event) -> None:
    """Acts, and writes consecutive fragments."""
    rng = np.random.default_rng(seed)
    cell = 0
    writer = client.trajectory_writer(num_keep_alive_refs=FRAGMENT + 1)
    while not stop.is_set():
        (newest,) = next(client.sample("policy", timeout=30))
        logits, version = newest.data
        for _ in range(FRAGMENT):
            log_probs = log_softmax(logits[cell])
            action = int(rng.random() < np.exp(log_probs[1]))
            following = min(max(cell + 2 * action - 1, 0), CELLS - 1)
            ended = following == CELLS - 1
            writer.append(
                {
                    "cell": cell,
                    "action": action,
                    "reward": 1.0 if ended else -0.02,
                    "discount": 0.0 if ended else GAMMA,
                    "log_prob": log_probs[action],
                    "version": int(version),
                }
            )
            cell = int(rng.integers(CELLS - 1)) if ended else following
        if writer.episode_steps > FRAGMENT:
            history = writer.history
            trajectory = {name: history[name][-FRAGMENT - 1 :] for name in COLUMNS}
            writer.create_item("fragments", 1.0, {**trajectory, "version": history["version"][-1]})
        while not stop.is_set():  # waits while the queue is full
            with contextlib.suppress(reverb.DeadlineExceededError):
                writer.flush(timeout_ms=200)
                break
    writer.close()


def learn(batch: dict[str, np.ndarray], logits: np.ndarray, values: np.ndarray) -> None:
    """Performs a few steps of PPO on one batch, in place."""
    cells, actions = batch["cell"][:, :-1], batch["action"][:, :-1]
    rewards, discounts = batch["reward"][:, :-1], batch["discount"][:, :-1]
    errors = rewards + discounts * values[batch["cell"][:, 1:]] - values[cells]
    advantages = np.zeros_like(errors)
    running = np.zeros(len(errors))
    for t in reversed(range(FRAGMENT)):
        running = errors[:, t] + LAMBDA * discounts[:, t] * running
        advantages[:, t] = running
    returns = advantages + values[cells]
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(EPOCHS):
        log_probs = log_softmax(logits)
        ratio = np.exp(log_probs[cells, actions] - batch["log_prob"][:, :-1])
        # Clips the objective where the policy has already changed enough.
        active = np.where(scaled > 0, ratio < 1 + CLIP, ratio > 1 - CLIP)
        slope = active * ratio * scaled / scaled.size
        gradient = np.zeros_like(logits)
        np.add.at(gradient, (cells, actions), slope)
        np.add.at(gradient, cells, -slope[..., None] * np.exp(log_probs)[cells])
        logits += RATE * CELLS * gradient
    np.add.at(values, cells, 0.5 * CELLS * (returns - values[cells]) / cells.size)


def main(updates: int = 40) -> None:
    """Runs two actors and a learner as threads; the code would be the same for processes."""
    server = reverb.Server(
        [
            reverb.Table.queue("fragments", max_size=BATCH, signature=SIGNATURE),
            reverb.Table(
                "policy", reverb.selectors.Lifo(), reverb.selectors.Fifo(), 1, reverb.rate_limiters.MinSize(1)
            ),
        ]
    )
    client = reverb.Client(f"localhost:{server.port}")
    logits, values = np.zeros((CELLS, 2)), np.zeros(CELLS)
    client.insert([logits, 0], priorities={"policy": 1.0})
    stop = threading.Event()
    actors = [threading.Thread(target=act, args=(client, seed, stop)) for seed in range(2)]
    for actor in actors:
        actor.start()

    batches = client.sample_batches("fragments", BATCH, num_batches=updates, timeout=60)
    for update, (_, batch) in enumerate(batches, start=1):
        learn(batch, logits, values)
        client.insert([logits, update], priorities={"policy": 1.0})
        if update == 1 or update % 10 == 0:
            lag = update - 1 - batch["version"]
            print(f"update {update:3}: reward per step {batch['reward'].mean():+.3f}, "
                  f"{(lag == 0).mean():.0%} by the newest policy, the oldest is {lag.max()} behind")  # fmt: skip
    stop.set()
    for actor in actors:
        actor.join()

    print("the policy in the corridor:", "".join("<>"[int(row.argmax())] for row in logits[:-1]))
    info = client.server_info()["fragments"]
    inserted, sampled = (getattr(info.rate_limiter_info, f"{side}_stats").completed for side in ("insert", "sample"))
    print(f"{inserted} fragments inserted, {sampled} sampled, {info.current_size} in the queue")
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
