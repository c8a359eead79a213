"""Group-relative policy optimisation (GRPO) on a row table, with every part in a process of its own.

    python examples/python/grpo_rows.py            # 120 updates
    python examples/python/grpo_rows.py 20         # fewer

Prompts go through a queue to four rollout processes, which answer each prompt eight times with the newest policy and
put the answers into a row table: a group of eight rows. A reward process claims the answers and adds a column to their
rows. Two trainer ranks claim whole groups that have all columns, half a batch each, compute the gradient together and
publish the next version of the policy. Rows that are more than one version old are dropped, and reservations bound how
far the rollouts run ahead.

The task: an answer to prompt p has 3 + p % 3 tokens, and is right if token i is (p + i) % 10. The policy is a table of
logits, which NumPy trains in less than a minute on two cores.
"""

from __future__ import annotations

from collections import Counter
import logging
import multiprocessing
import sys
import time

import numpy as np

import reverb
from reverb.integrations.queue import Queue, ShutDown

PROMPTS, TOKENS, LONGEST = 12, 10, 5
GROUP, BATCH = 8, 128  # rows
RANKS, WORKERS = 2, 4
LEARNING_RATE = 60.0


def length_of(prompt: int) -> int:
    """Returns the number of tokens of an answer."""
    return 3 + prompt % 3


def reward_of(prompt: int, answer: np.ndarray) -> float:
    """Returns the fraction of tokens that are right."""
    return float(np.mean(answer == (prompt + np.arange(len(answer))) % TOKENS))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the logarithms of the probabilities."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def until_removed(function, *arguments) -> None:
    """Runs a part of the program until the main process removes the row table, which ends all calls for it."""
    try:
        function(*arguments)
    except ShutDown:
        pass
    except RuntimeError as error:
        if getattr(error, "code", None) != "NOT_FOUND":
            raise


# --- Rollouts ---


def rollout(worker: int, address: str, prompts: Queue) -> None:
    """Answers prompts with the newest policy."""
    client = reverb.Client(address, name=f"rollout-{worker}")
    rows, weights = client.rows("rollouts"), client.rows("weights")
    random = np.random.default_rng(worker)
    for number in range(sys.maxsize):
        prompt = prompts.get()
        # Waits until the trainer needs more rows.
        with rows.reserve(GROUP) as slots:
            policy = weights.get("policy", ["logits"])
            logprobs = log_softmax(policy["logits"][0][prompt, : length_of(prompt)])
            noise = random.gumbel(size=(GROUP, *logprobs.shape))
            answers = (logprobs + noise).argmax(axis=-1)
            rows.put(
                [f"{worker}/{number}/{i}" for i in range(GROUP)],
                {
                    "tokens": list(answers),
                    "logprobs": [np.take_along_axis(logprobs, answer[:, None], -1)[:, 0] for answer in answers],
                },
                tags=[{"prompt": prompt}] * GROUP,
                version=policy.tags[0]["version"],
                groups=[f"{worker}/{number}"] * GROUP,
                reservation=slots,
            )


# --- Rewards ---


def judge(address: str) -> None:
    """Adds the reward to each row."""
    rows = reverb.Client(address, name="judge").rows("rollouts")
    while True:
        # Takes what is there, at least one row. A group need not be complete.
        with rows.claim("reward", 64, at_least=1, needs=["tokens"], whole_groups=False) as batch:
            answers = zip(batch.tags, batch["tokens"], strict=True)
            rewards = [reward_of(tags["prompt"], answer) for tags, answer in answers]
            rows.put(batch.keys, {"reward": rewards}, tags=[{"reward": each} for each in rewards], create=False)


# --- Training ---


def gradient_of(logits: np.ndarray, batch: reverb.RowBatch) -> np.ndarray:
    """Returns the clipped policy gradient of GRPO: advantages are relative to the group, ratios to the old policy."""
    rewards = batch["reward"].values
    groups = {group: [i for i, other in enumerate(batch.groups) if other == group] for group in batch.groups}
    gradient = np.zeros_like(logits)
    for members in groups.values():
        mean, deviation = rewards[members].mean(), rewards[members].std()
        for i in members:
            prompt, answer, old = batch.tags[i]["prompt"], batch["tokens"][i], batch["logprobs"][i]
            advantage = (rewards[i] - mean) / (deviation + 1e-4)
            new = log_softmax(logits[prompt, : len(answer)])
            ratio = np.exp(new[np.arange(len(answer)), answer] - old)
            is_clipped = (ratio > 1.2) if advantage > 0 else (ratio < 0.8)
            weight = np.where(is_clipped, 0.0, ratio) * advantage / len(answer)
            gradient[prompt, : len(answer)] -= weight[:, None] * np.exp(new)
            gradient[prompt, np.arange(len(answer)), answer] += weight
    return gradient / BATCH


def train(rank: int, updates: int, address: str, to_first: Queue, from_first: Queue, report: Queue) -> None:
    """Claims this rank's part of each batch, and computes the updates together with the other ranks."""
    client = reverb.Client(address, name=f"rank-{rank}")
    rows, weights = client.rows("rollouts"), client.rows("weights")
    logits = np.zeros((PROMPTS, LONGEST, TOKENS))
    waited, lags, means = 0.0, Counter(), []
    for version in range(1, updates + 1):
        started = time.monotonic()
        batch = rows.claim("train", BATCH, needs=["tokens", "logprobs", "reward"], ranks=RANKS, rank=rank, lease=120.0)
        waited += time.monotonic() - started
        lags.update((batch.version - batch.versions).tolist())
        means.append(float(batch["reward"].values.mean()))
        gradient = gradient_of(logits, batch)
        batch.ack()
        # The sum over the ranks, as an all-reduce would compute it.
        if rank == 0:
            for _ in range(RANKS - 1):
                gradient += to_first.get()
            logits += LEARNING_RATE * gradient
            weights.put(["policy"], {"logits": [logits]}, tags=[{"version": version}], overwrite=True)
            rows.set_version(version)
            if version % 20 == 0:
                print(f"update {version}: mean reward {np.mean(means[-20:]):.2f}", flush=True)
            for _ in range(RANKS - 1):
                from_first.put(logits)
        else:
            to_first.put(gradient)
            logits = from_first.get()
    report.put((rank, waited, dict(lags), means, logits))


def main(updates: int) -> None:
    """Starts the server and the processes, and prints how it went."""
    server = reverb.Server(
        [
            reverb.RowTable(
                "rollouts",
                group_size=GROUP,
                consumers=["reward", "train"],
                staleness=reverb.Staleness(max_lag=1, when_stale="drop", batch=BATCH),
            ),
            reverb.RowTable("weights"),
        ],
        host="localhost",
    )
    address = f"localhost:{server.port}"
    client = reverb.Client(address)
    rows = client.rows("rollouts")
    initial = np.zeros((PROMPTS, LONGEST, TOKENS))
    client.rows("weights").put(["policy"], {"logits": [initial]}, tags=[{"version": 0}])
    prompts, to_first, from_first, report = (
        Queue(size, address=address, name=name)
        for name, size in (("prompts", 64), ("to_first", 0), ("from_first", 0), ("report", 0))
    )

    context = multiprocessing.get_context("spawn")
    parts = [context.Process(target=until_removed, args=(judge, address))]
    for worker in range(WORKERS):
        parts.append(context.Process(target=until_removed, args=(rollout, worker, address, prompts)))
    for rank in range(RANKS):
        arguments = (train, rank, updates, address, to_first, from_first, report)
        parts.append(context.Process(target=until_removed, args=arguments))
    feeder = context.Process(target=until_removed, args=(feed, prompts))
    started = time.monotonic()
    for part in (*parts, feeder):
        part.start()

    reports = sorted(report.get() for _ in range(RANKS))
    seconds = time.monotonic() - started
    info = rows.info()
    # The others end when they find their tables removed, and the server would log each such call.
    logging.getLogger("reverb").setLevel(logging.ERROR)
    client.remove_row_table("rollouts")
    prompts.shutdown(immediate=True)
    for part in (*parts, feeder):
        part.join()

    lags, waited = Counter(), []
    for _, wait, lag, _, _ in reports:
        lags.update(lag)
        waited.append(wait)
    rewards = np.mean([means for *_, means, _ in reports], axis=0)
    tenth = max(1, updates // 10)
    policy = reports[0][4]
    right = sum(reward_of(p, policy[p, : length_of(p)].argmax(axis=-1)) == 1.0 for p in range(PROMPTS))
    print(f"{updates} updates of {BATCH} rows with {RANKS} ranks in {seconds:.1f} s")
    print(f"mean reward: {rewards[:tenth].mean():.2f} at first, {rewards[-tenth:].mean():.2f} at the end")
    print(f"the most likely answer is right for {right} of {PROMPTS} prompts")
    print("staleness: " + ", ".join(f"{lags[lag]} rows of lag {lag}" for lag in sorted(lags)))
    print(f"dropped as stale: {info['dropped_stale']} of {info['created']} rows; refused: {info['refused']}")
    print("waiting: " + ", ".join(f"rank {rank} {wait:.1f} s for rows" for rank, wait in enumerate(waited)))
    server.stop()


def feed(prompts: Queue) -> None:
    """Puts random prompts into the queue."""
    random = np.random.default_rng(0)
    while True:
        prompts.put(int(random.integers(PROMPTS)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
