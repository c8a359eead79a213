"""Distributed soft actor-critic with a variable container, as in the appendix of Reverb's paper and in TF-Agents.

Use it if actors run TensorFlow policies in other processes. The server has two tables. One carries transitions to the
learner, which reads them as a `tf.data.Dataset`. The other one, the variable container, has space for one item: the
learner pushes its variables with `TFClient.insert` inside a `tf.function`, and actors pull the latest ones with
`TFClient.sample`. Before the first push they wait.

The task is to push a point to the middle. In the output, look at the return before and after learning, and at the age
of the variables that the actors used.

Run it with `python examples/python/tensorflow/distributed_sac.py`; it needs TensorFlow.
"""

import contextlib
import multiprocessing

import numpy as np
import tensorflow as tf

import reverb

GAMMA, TEMPERATURE, BATCH, EPISODE, UPDATES = 0.9, 0.02, 64, 10, 300
CONTAINER = "reverb_variable_container"
EXPERIENCE = {
    "position": tf.TensorSpec([1], tf.float32),
    "action": tf.TensorSpec([1], tf.float32),
    "reward": tf.TensorSpec([], tf.float32),
    "next_position": tf.TensorSpec([1], tf.float32),
    "version": tf.TensorSpec([], tf.int64),
}


class Policy:
    """A Gaussian around a linear function, squashed by tanh, and the number of its version."""

    def __init__(self) -> None:
        self.weights = {
            "slope": tf.Variable([[0.0]]),
            "bias": tf.Variable([0.0]),
            "log_std": tf.Variable([0.0]),
            "version": tf.Variable(0, dtype=tf.int64),
        }

    def __call__(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns actions and their log probabilities."""
        log_std = tf.clip_by_value(self.weights["log_std"], -3.0, 0.5)
        noise = tf.random.normal(tf.shape(position))
        action = tf.tanh(position @ self.weights["slope"] + self.weights["bias"] + tf.exp(log_std) * noise)
        log_prob = -0.5 * noise**2 - log_std - tf.math.log(1.0 - action**2 + 1e-6)
        return action, tf.reduce_sum(log_prob, axis=-1)


class VariableContainer:
    """Pushes and pulls a nest of variables through a table with space for one item."""

    def __init__(self, address: str) -> None:
        self._client = reverb.TFClient(address)

    @tf.function
    def push(self, variables) -> None:
        """Replaces the variables in the table."""
        self._client.insert(
            data=tf.nest.flatten(variables),
            tables=tf.constant([CONTAINER]),
            priorities=tf.constant([1.0], dtype=tf.float64),
        )

    @tf.function
    def pull(self, variables) -> None:
        """Assigns the latest values; waits for the first ones."""
        flat = tf.nest.flatten(variables)
        sample = self._client.sample(CONTAINER, data_dtypes=[variable.dtype for variable in flat])
        for variable, value in zip(flat, sample.data, strict=True):
            variable.assign(tf.ensure_shape(value, variable.shape))


def make_server() -> reverb.Server:
    """Creates the server with its two tables."""
    fifo = reverb.selectors.Fifo()
    one = reverb.rate_limiters.MinSize(1)
    return reverb.Server(
        [
            reverb.Table(CONTAINER, reverb.selectors.Uniform(), fifo, max_size=1, rate_limiter=one),
            reverb.Table(
                "experience",
                reverb.selectors.Uniform(),
                fifo,
                max_size=100_000,
                rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                    16.0, min_size_to_sample=200, error_buffer=3000.0
                ),
                signature=EXPERIENCE,
            ),
        ]
    )


def move(position: np.ndarray, action: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.float32]:
    """Advances the environment; returns the next position and its reward."""
    following = np.clip(position + 0.5 * action + rng.normal(0, 0.02, 1), -2, 2).astype(np.float32)
    return following, np.float32(-(following[0] ** 2))


def act(address: str, seed: int, stop) -> None:
    """Runs an actor in its process."""
    tf.random.set_seed(seed)
    rng = np.random.default_rng(seed)
    policy, container = Policy(), VariableContainer(address)
    writer = reverb.Client(address).trajectory_writer(num_keep_alive_refs=1)
    choose = tf.function(lambda position: policy(position)[0])
    while not stop.is_set():
        container.pull(policy.weights)
        position = rng.uniform(-2, 2, 1).astype(np.float32)
        for _ in range(EPISODE):
            action = choose(position[None])[0].numpy()
            following, reward = move(position, action, rng)
            writer.append(
                {
                    "position": position,
                    "action": action,
                    "reward": reward,
                    "next_position": following,
                    "version": policy.weights["version"].numpy(),
                }
            )
            writer.create_item("experience", 1.0, {name: writer.history[name][-1] for name in EXPERIENCE})
            position = following
        # Waits for the limiter, and so for the learner; checks periodically whether to stop.
        while not stop.is_set():
            with contextlib.suppress(reverb.DeadlineExceededError):
                writer.end_episode(timeout_ms=200)
                break
    writer.close()


class Learner:
    """Two quadratic critics with targets, and the policy."""

    def __init__(self) -> None:
        self.policy = Policy()
        self._critics = tf.Variable(tf.zeros([6, 2]))
        self._targets = tf.Variable(tf.zeros([6, 2]))

    @staticmethod
    def _features(position: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        one = tf.ones_like(position)
        return tf.concat([one, position, action, position**2, position * action, action**2], axis=-1)

    @tf.function
    def update(self, batch) -> tf.Tensor:
        """Takes one step; returns the mean age of the variables that chose the actions."""
        weights = self.policy.weights
        action, log_prob = self.policy(batch["next_position"])
        values = tf.reduce_min(self._features(batch["next_position"], action) @ self._targets, axis=-1)
        goal = batch["reward"] + GAMMA * (values - TEMPERATURE * log_prob)
        with tf.GradientTape() as tape:
            estimates = self._features(batch["position"], batch["action"]) @ self._critics
            loss = tf.reduce_mean((estimates - goal[:, None]) ** 2)
        self._critics.assign_sub(0.05 * tf.clip_by_norm(tape.gradient(loss, self._critics), 5.0))
        self._targets.assign(0.95 * self._targets + 0.05 * self._critics)
        trained = [weights["slope"], weights["bias"], weights["log_std"]]
        with tf.GradientTape() as tape:
            action, log_prob = self.policy(batch["position"])
            values = tf.reduce_min(self._features(batch["position"], action) @ self._critics, axis=-1)
            loss = tf.reduce_mean(TEMPERATURE * log_prob - values)
        for variable, gradient in zip(trained, tape.gradient(loss, trained), strict=True):
            variable.assign_sub(0.1 * tf.clip_by_norm(gradient, 1.0))
        weights["version"].assign_add(1)
        return tf.reduce_mean(tf.cast(weights["version"] - batch["version"], tf.float32))


def mean_return(policy: Policy) -> float:
    """Returns the mean return of some episodes."""
    rng = np.random.default_rng(7)
    total = 0.0
    for _ in range(20):
        position = rng.uniform(-2, 2, 1).astype(np.float32)
        for _ in range(EPISODE):
            position, reward = move(position, policy(position[None])[0][0].numpy(), rng)
            total += float(reward) / 20
    return total


def main() -> None:
    """Runs the server and the learner here, and two actors in other processes."""
    server = make_server()
    address = f"localhost:{server.port}"
    processes = multiprocessing.get_context("spawn")
    stop = processes.Event()
    actors = [processes.Process(target=act, args=(address, seed, stop), daemon=True) for seed in range(2)]
    for actor in actors:
        actor.start()

    learner, container = Learner(), VariableContainer(address)
    before = mean_return(learner.policy)
    container.push(learner.policy.weights)
    dataset = reverb.TrajectoryDataset.from_table_signature(address, "experience", 2 * BATCH, batch_size=BATCH)
    ages = []
    for step, sample in enumerate(dataset.prefetch(1).take(UPDATES), start=1):
        ages.append(float(learner.update(sample.data)))
        if step % 10 == 0:
            container.push(learner.policy.weights)
    after = mean_return(learner.policy)

    stop.set()
    for actor in actors:
        actor.join(30)
    server.stop()
    print(f"mean return: {before:.1f} before and {after:.1f} after {UPDATES} updates")
    print(f"age of the variables that chose the actions: {np.mean(ages):.0f} updates on average")
    assert after > before, "the policy did not improve"
    print("OK")


if __name__ == "__main__":
    main()
