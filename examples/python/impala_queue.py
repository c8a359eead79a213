"""Nearly on-policy learning from many actors: IMPALA.

Use it with many distant actors: they do not wait for the learner at every step, so their data is slightly stale.
V-trace corrects for that with the action probabilities of the actors, which are part of the items. The table returns
each item once, in any order, and its limiter lets inserts run ahead of samples by at most two batches.

The task is a bandit whose arms pay differently in each context. In the output, look at how stale the actors' policies
were, at how often V-trace clipped, and at the reward.

Run it with `python examples/python/impala_queue.py`.
"""

import contextlib
import multiprocessing
import sys

import numpy as np

import reverb

CONTEXTS, ARMS = 6, 4
UNROLL = 20  # steps of an item
BATCH = 8
SIGNATURE = {
    "context": reverb.TensorSpec((UNROLL,), np.int64),
    "action": reverb.TensorSpec((UNROLL,), np.int64),
    "reward": reverb.TensorSpec((UNROLL,), np.float32),
    "logits": reverb.TensorSpec((UNROLL, ARMS), np.float32),  # of the policy that acted
    "version": reverb.TensorSpec((), np.int64),
}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax over the last dimension."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def pay(context: int, arm: int, rng: np.random.Generator) -> float:
    """Returns the reward: one arm is right in each context."""
    return float(rng.random() < (0.9 if arm == context % ARMS else 0.2))


def act(client: reverb.Client, seed: int, stop) -> None:
    """Runs an actor in its process."""
    rng = np.random.default_rng(seed)
    writer = client.trajectory_writer(num_keep_alive_refs=UNROLL)
    while not stop.is_set():
        (newest,) = next(client.sample("policy", timeout=30))
        policy, version = newest.data
        for _ in range(UNROLL):
            context = int(rng.integers(CONTEXTS))
            action = int(rng.choice(ARMS, p=softmax(policy[context].astype(np.float64))))
            writer.append(
                {
                    "context": context,
                    "action": action,
                    "reward": np.float32(pay(context, action, rng)),
                    "logits": policy[context],
                    "version": int(version),
                }
            )
        history = writer.history
        sequence = {name: history[name][-UNROLL:] for name in SIGNATURE if name != "version"}
        writer.create_item("unrolls", 1.0, {**sequence, "version": history["version"][-1]})
        # Waits for the limiter; checks periodically whether to stop.
        while not stop.is_set():
            with contextlib.suppress(reverb.DeadlineExceededError):
                writer.flush(block_until_num_items=1, timeout_ms=200)
                break
    writer.close()  # discards items that the table did not accept


def learn(batch: dict[str, np.ndarray], policy: np.ndarray, values: np.ndarray) -> float:
    """Performs one V-trace update, in place. Each step of a bandit is an episode, so the trace is one step long."""
    contexts, actions = batch["context"], batch["action"]
    now = softmax(policy)[contexts]
    then = softmax(batch["logits"])
    rows = np.take_along_axis
    ratio = (rows(now, actions[..., None], -1) / rows(then, actions[..., None], -1))[..., 0]
    rho = np.minimum(1.0, ratio)
    advantage = rho * (batch["reward"] - values[contexts])
    slope = -advantage[..., None] * now
    np.put_along_axis(slope, actions[..., None], rows(slope, actions[..., None], -1) + advantage[..., None], -1)
    np.add.at(policy, contexts, (8.0 * slope / contexts.size).astype(np.float32))
    np.add.at(values, contexts, 0.5 * CONTEXTS * advantage / contexts.size)
    return float((ratio > 1).mean())


def main(updates: int = 150) -> None:
    """Runs two actors in separate processes; the learner and the server in this one."""
    server = reverb.Server(
        [
            reverb.Table(
                name="unrolls",
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=320,
                max_times_sampled=1,
                rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                    samples_per_insert=1.0, min_size_to_sample=1, error_buffer=2 * BATCH
                ),
                signature=SIGNATURE,
            ),
            reverb.Table(
                "policy", reverb.selectors.Lifo(), reverb.selectors.Fifo(), 1, reverb.rate_limiters.MinSize(1)
            ),
        ],
    )
    client = reverb.Client(f"localhost:{server.port}")
    policy, values = np.zeros((CONTEXTS, ARMS), np.float32), np.zeros(CONTEXTS)
    client.insert([policy, 0], priorities={"policy": 1.0})

    processes = multiprocessing.get_context("spawn")
    stop = processes.Event()
    actors = [processes.Process(target=act, args=(client, seed, stop)) for seed in range(2)]
    for actor in actors:
        actor.start()
    try:
        lags, rewards = [], []
        batches = client.sample_batches("unrolls", BATCH, num_batches=updates, timeout=60)
        for update, (_, batch) in enumerate(batches, start=1):
            cut = learn(batch, policy, values)
            client.insert([policy, update], priorities={"policy": 1.0})
            lags.append(update - 1 - batch["version"])
            rewards.append(batch["reward"].mean())
            if update % max(1, updates // 3) == 0:
                print(f"update {update:3}: reward {np.mean(rewards[-10:]):.2f}, policies {np.mean(lags[-10:]):.1f} "
                      f"versions behind (at most {np.max(lags[-10:])}), {cut:.0%} of the ratios cut at 1")  # fmt: skip
    finally:
        stop.set()
        for actor in actors:
            actor.join()
    right = sum(int(policy[context].argmax()) == context % ARMS for context in range(CONTEXTS))
    print(f"the right arm in {right} of {CONTEXTS} contexts")
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
