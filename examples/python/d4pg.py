"""D4PG as in the appendix of Reverb's paper: n-step transitions, drawn uniformly, the oldest replaced first.

Use it as the simplest replay table: any item may be sampled any number of times until it is evicted, and the learner
waits only for the first item. Nothing synchronises actor and learner: the samples per insert in the output depend on
their speeds. distributed_sac.py shows a rate limiter that controls the ratio.

The critic learns a distribution of returns over fixed atoms, linear in polynomial features; the actor is a linear
function followed by tanh; the task is to push a point to the middle. In the output, compare the return before and
after.

Run it with `python examples/python/d4pg.py`.
"""

import sys
import threading

import numpy as np

import reverb

TABLE_NAME = "replay"
MAX_REPLAY_SIZE = 10_000
N_STEP = 3
GAMMA = 0.9
EPISODE = 20
STEP_SECONDS = 0.0002
BATCH = 64
ATOMS = np.linspace(-12.0, 0.0, 25)


def move(position: float, action: float, rng: np.random.Generator) -> tuple[float, float]:
    """Advances the environment; returns the next position and its reward."""
    position = float(np.clip(position + 0.5 * action + rng.normal(0, 0.02), -2, 2))
    return position, -(position**2)


def policy(parameters: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Returns the actions for the given positions."""
    return np.tanh(parameters[0] + parameters[1] * positions)


def play(parameters: np.ndarray, seed: int) -> float:
    """Returns the mean return of a few episodes without exploration."""
    rng = np.random.default_rng(seed)
    total = 0.0
    for _ in range(20):
        position = rng.uniform(-2, 2)
        for _ in range(EPISODE):
            position, reward = move(position, float(policy(parameters, np.float64(position))), rng)
            total += reward
    return total / 20


def act(client: reverb.Client, parameters: np.ndarray, stop: threading.Event) -> None:
    """Plays with noise, and writes transitions over N_STEP steps."""
    rng = np.random.default_rng(0)
    with reverb.recorders.TransitionRecorder(client, TABLE_NAME, n_step=N_STEP, discount=GAMMA) as recorder:
        while not stop.is_set():
            position = rng.uniform(-2, 2)
            recorder.reset(position)
            for step in range(EPISODE):
                # A simulator takes its time. A thread that never waits would hold the interpreter lock for 5 ms at
                # each NumPy call of the learner; such actors should run in a separate process.
                stop.wait(STEP_SECONDS)
                action = float(np.clip(policy(parameters, np.float64(position)) + rng.normal(0, 0.4), -1, 1))
                position, reward = move(position, action, rng)
                # Episodes are truncated, not terminated: the value of the last state counts.
                recorder.step(action, position, reward, False, step == EPISODE - 1)


def features(positions: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Returns the features of the critic, [B, 6]."""
    s, a = positions, actions
    return np.stack([np.ones_like(s), s, a, s * s, s * a, a * a], axis=1)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax over the last dimension."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def project(returns: np.ndarray, discounts: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Projects the distribution of return + discount * atom onto the atoms."""
    shifted = np.clip(returns[:, None] + discounts[:, None] * ATOMS, ATOMS[0], ATOMS[-1])
    closeness = 1 - np.abs(shifted[:, None, :] - ATOMS[:, None]) / (ATOMS[1] - ATOMS[0])
    return (np.maximum(closeness, 0) * probabilities[:, None, :]).sum(axis=-1)


def learn(client: reverb.Client, parameters: np.ndarray, updates: int) -> None:
    """Trains the critic, and the policy's parameters in place."""
    critic = np.zeros((6, len(ATOMS)))
    target = critic.copy()
    for _, batch in client.sample_batches(TABLE_NAME, BATCH, num_batches=updates, timeout=60):
        s, a, returns, discounts, s_next = (
            batch[name] for name in ("observation", "action", "reward", "discount", "next_observation")
        )
        a_next = policy(parameters, s_next)
        wanted = project(returns, discounts, softmax(features(s_next, a_next) @ target))
        seen = features(s, a)
        critic -= 0.05 * seen.T @ (softmax(seen @ critic) - wanted) / BATCH
        target += 0.02 * (critic - target)

        # Follows the gradient of the critic's mean with respect to the policy's action.
        mine = policy(parameters, s)
        probabilities = softmax(features(s, mine) @ critic)
        mean = probabilities @ ATOMS
        by_action = np.stack([np.zeros_like(s), np.zeros_like(s), np.ones_like(s), np.zeros_like(s), s, 2 * mine], 1)
        slope = (probabilities * (ATOMS - mean[:, None]) * (by_action @ critic)).sum(axis=1) * (1 - mine**2)
        parameters += 0.02 * np.array([slope.mean(), (slope * s).mean()])


def main(updates: int = 1500) -> None:
    """Runs an actor and a learner as threads."""
    table = reverb.Table(
        name=TABLE_NAME,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=MAX_REPLAY_SIZE,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}")
    parameters = np.array([0.0, 0.1])  # shared: the actor reads the parameters that the learner writes
    print(f"return before: {play(parameters, seed=1):.1f}")

    stop = threading.Event()
    actor = threading.Thread(target=act, args=(client, parameters, stop))
    actor.start()
    learn(client, parameters, updates)
    stop.set()
    actor.join()

    limiter = client.server_info()[TABLE_NAME].rate_limiter_info
    inserts, samples = limiter.insert_stats.completed, limiter.sample_stats.completed
    print(f"return after {updates} updates: {play(parameters, seed=1):.1f}")
    print(f"{inserts} transitions, {samples} samples: {samples / inserts:.1f} per insert, as it happened")
    server.stop()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
