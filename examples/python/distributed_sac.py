"""Distributed soft actor-critic with a variable container, as in the appendix of Reverb's paper.

Use it if actors are separate processes, on this or on other machines: they only need one address. The server has two
tables. One carries experience from the actors to the learner, limited to eight samples per insert. The other one, the
variable container, has space for one item and carries the latest parameters back: the learner's insert replaces the
previous item, and actors sample it as often as they like. Before the first insert they wait.

The policy is a Gaussian around a linear function, the critics are quadratic, the task is to push a point to the
middle. In the output, look at the age of the parameters that the actors used, at the samples per insert, and at the
return.

Run it with `python examples/python/distributed_sac.py`.
"""

import contextlib
import multiprocessing
import sys

import numpy as np

import reverb

GAMMA, TEMPERATURE, BATCH, EPISODE = 0.9, 0.05, 64, 20
MIN_SIZE = 200
SAMPLES_PER_INSERT = 8.0
TOLERANCE = 0.1  # allowed deviation of samples from inserts, relative to the initial number

NUMBER = reverb.TensorSpec((), np.float64)
EXPERIENCE = {
    "position": NUMBER,
    "action": NUMBER,
    "reward": NUMBER,
    "next_position": NUMBER,
    "version": reverb.TensorSpec((), np.int64),  # of the parameters that chose the action
}
VARIABLES = {
    "policy": {"mean": reverb.TensorSpec((2,), np.float64), "log_std": NUMBER},
    "version": reverb.TensorSpec((), np.int64),
}


def make_server() -> reverb.Server:
    """Creates the server with its two tables."""
    return reverb.Server(
        tables=[
            reverb.Table(
                name="VARIABLE_CONTAINER",
                sampler=reverb.selectors.Uniform(),  # any selector works: there is one item
                remover=reverb.selectors.Fifo(),
                max_size=1,
                max_times_sampled=0,  # no limit
                rate_limiter=reverb.rate_limiters.MinSize(1),
                signature=VARIABLES,
            ),
            reverb.Table(
                name="experience",
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=100_000,
                rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                    min_size_to_sample=MIN_SIZE,
                    samples_per_insert=SAMPLES_PER_INSERT,
                    error_buffer=MIN_SIZE * TOLERANCE * SAMPLES_PER_INSERT,
                ),
                signature=EXPERIENCE,
            ),
        ]
    )


def publish(client: reverb.Client, mean: np.ndarray, log_std: float, version: int) -> None:
    """Replaces the parameters for the actors."""
    variables = {"policy": {"mean": mean, "log_std": log_std}, "version": version}
    client.insert(variables, priorities={"VARIABLE_CONTAINER": 1.0}, timeout=30)


def newest(client: reverb.Client) -> dict:
    """Returns the latest parameters; waits for the first ones."""
    (step,) = next(client.sample("VARIABLE_CONTAINER", unpack_as_table_signature=True, timeout=30))
    return step.data


def move(position: float, action: float, rng: np.random.Generator) -> tuple[float, float]:
    """Advances the environment; returns the next position and its reward."""
    position = float(np.clip(position + 0.5 * action + rng.normal(0, 0.02), -2, 2))
    return position, -(position**2)


def act(client: reverb.Client, seed: int, stop) -> None:
    """Runs an actor in its process."""
    rng = np.random.default_rng(seed)
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    while not stop.is_set():
        variables = newest(client)
        mean, std = variables["policy"]["mean"], np.exp(variables["policy"]["log_std"])
        position = rng.uniform(-2, 2)
        for _ in range(EPISODE):
            action = float(np.tanh(mean[0] + mean[1] * position + std * rng.normal()))
            following, reward = move(position, action, rng)
            writer.append(
                {
                    "position": position,
                    "action": action,
                    "reward": reward,
                    "next_position": following,
                    "version": variables["version"],
                }
            )
            history = writer.history
            writer.create_item("experience", 1.0, {name: history[name][-1] for name in EXPERIENCE})
            position = following
        # Waits for the limiter, and so for the learner; checks periodically whether to stop.
        while not stop.is_set():
            with contextlib.suppress(reverb.DeadlineExceededError):
                writer.end_episode(timeout_ms=200)
                break
    writer.close()


def features(s: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Returns the features of the critics, [B, 6]."""
    return np.stack([np.ones_like(s), s, a, s * s, s * a, a * a], axis=1)


def slopes(s: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Returns the derivative of the features with respect to the action."""
    return np.stack([np.zeros_like(s), np.zeros_like(s), np.ones_like(s), np.zeros_like(s), s, 2 * a], axis=1)


def log_prob(noise: np.ndarray, log_std: float, a: np.ndarray) -> np.ndarray:
    """Returns the log probability of the action a = tanh(mean + std * noise)."""
    return -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - a**2 + 1e-6)


def learn(client: reverb.Client, updates: int) -> tuple[np.ndarray, list[float]]:
    """Trains and publishes; returns the policy's parameters and the ages of the actors' parameters."""
    rng = np.random.default_rng(0)
    mean, log_std = np.zeros(2), 0.0
    critics = np.zeros((2, 6))
    targets = critics.copy()
    ages = []
    publish(client, mean, log_std, 0)
    batches = client.sample_batches("experience", BATCH, num_batches=updates, timeout=60)
    for update, (_, batch) in enumerate(batches, start=1):
        s, a, r, s_next, version = (batch[name] for name in EXPERIENCE)
        ages.append(float(np.mean(update // 10 - version)))

        noise = rng.normal(size=BATCH)
        a_next = np.tanh(mean[0] + mean[1] * s_next + np.exp(log_std) * noise)
        value = (features(s_next, a_next) @ targets.T).min(axis=1) - TEMPERATURE * log_prob(noise, log_std, a_next)
        seen = features(s, a)
        for critic in critics:
            critic += 0.05 * seen.T @ (r + GAMMA * value - seen @ critic) / BATCH
        targets += 0.02 * (critics - targets)

        # Follows the gradient of the worse critic, and increases the entropy.
        std = np.exp(log_std)
        mine = np.tanh(mean[0] + mean[1] * s + std * noise)
        worse = critics[(features(s, mine) @ critics.T).argmin(axis=1)]
        by_action = (worse * slopes(s, mine)).sum(axis=1)
        by_input = by_action * (1 - mine**2) - TEMPERATURE * 2 * mine
        mean += 0.02 * np.array([by_input.mean(), (by_input * s).mean()])
        log_std = float(np.clip(log_std + 0.02 * ((by_input * noise * std).mean() + TEMPERATURE), -3, 0))
        if update % 10 == 0:
            publish(client, mean, log_std, update // 10)
    return mean, ages


def play(mean: np.ndarray) -> float:
    """Returns the mean return of a few episodes without noise in the policy."""
    rng = np.random.default_rng(1)
    total = 0.0
    for _ in range(20):
        position = rng.uniform(-2, 2)
        for _ in range(EPISODE):
            position, reward = move(position, float(np.tanh(mean[0] + mean[1] * position)), rng)
            total += reward
    return total / 20


def main(updates: int = 1500) -> None:
    """Runs two actors in separate processes; the learner and the server in this one."""
    server = make_server()
    client = reverb.Client(f"localhost:{server.port}")
    processes = multiprocessing.get_context("spawn")
    stop = processes.Event()
    actors = [processes.Process(target=act, args=(client, seed, stop)) for seed in range(2)]
    for actor in actors:
        actor.start()
    try:
        mean, ages = learn(client, updates)
    finally:
        stop.set()
        for actor in actors:
            actor.join()

    limiter = client.server_info()["experience"].rate_limiter_info
    inserts, samples = limiter.insert_stats.completed, limiter.sample_stats.completed
    print(f"{updates // 10} versions of the parameters; what was sampled was written {np.mean(ages[:100]):.1f} "
          f"versions earlier at first, {np.mean(ages[-100:]):.1f} at the end")  # fmt: skip
    print(f"{inserts} transitions, {samples} samples: {samples / inserts:.1f} samples per insert, "
          f"aim {SAMPLES_PER_INSERT:g}")  # fmt: skip
    print(f"return: {play(np.zeros(2)):.1f} before, {play(mean):.1f} after")
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
