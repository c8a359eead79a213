"""A dataset of parallel streams, as Acme's `make_reverb_dataset` builds it.

Use it in a learner that is written for tf.data: several iterators sample in parallel, a function prepares each item,
and the results are batched and prefetched. Another table is mixed in with a fixed weight. At the end, the same batches
come from `batch_size=`, which needs none of this.

Run it with `python examples/python/tensorflow/make_dataset.py`; it needs TensorFlow.
"""

import time

import numpy as np
import tensorflow as tf

import reverb

SIGNATURE = {
    "observation": tf.TensorSpec([8], tf.float32),
    "action": tf.TensorSpec([], tf.int64),
    "reward": tf.TensorSpec([], tf.float32),
}


def make_reverb_dataset(address: str, tables: dict[str, float], batch_size: int, num_parallel_calls: int = 4):
    """Returns batches of the tables, mixed by weight."""

    def stream_of(table: str) -> tf.data.Dataset:
        def make(_) -> tf.data.Dataset:
            return reverb.TrajectoryDataset.from_table_signature(
                address, table, max_in_flight_samples_per_worker=2 * batch_size
            )

        return tf.data.Dataset.range(num_parallel_calls).interleave(
            make, cycle_length=num_parallel_calls, num_parallel_calls=num_parallel_calls, deterministic=False
        )

    def prepare(sample: reverb.ReplaySample) -> reverb.ReplaySample:
        return sample._replace(data={**sample.data, "reward": tf.clip_by_value(sample.data["reward"], -1.0, 1.0)})

    streams = [stream_of(table) for table in tables]
    dataset = tf.data.Dataset.sample_from_datasets(streams, list(tables.values())).map(prepare)
    return dataset.batch(batch_size, drop_remainder=True).prefetch(2)


def make_server() -> reverb.Server:
    """Creates a server with a table of experience and one of demonstrations."""
    tables = [
        reverb.Table(
            name,
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=SIGNATURE,
        )
        for name in ("experience", "demonstrations")
    ]
    return reverb.Server(tables)


def main() -> None:
    """Fills two tables and samples both."""
    server = make_server()
    address = f"localhost:{server.port}"
    rng = np.random.default_rng(0)
    with reverb.Client(address).trajectory_writer(num_keep_alive_refs=1) as writer:
        for step in range(2000):
            is_demonstration = step % 2
            writer.append(
                {
                    "observation": rng.normal(size=8).astype(np.float32),
                    "action": is_demonstration,
                    "reward": np.float32(rng.normal() * 3),
                }
            )
            table = "demonstrations" if is_demonstration else "experience"
            writer.create_item(table, 1.0, {name: column[-1] for name, column in writer.history.items()})

    batches = iter(make_reverb_dataset(address, {"experience": 0.75, "demonstrations": 0.25}, batch_size=64))
    shares = []
    for _ in range(50):
        batch = next(batches)
        assert float(tf.reduce_max(tf.abs(batch.data["reward"]))) <= 1.0
        shares.append(float(tf.reduce_mean(tf.cast(batch.data["action"], tf.float32))))
    print(f"demonstrations in the batches: {np.mean(shares):.0%}")
    del batches

    ready = iter(reverb.TrajectoryDataset.from_table_signature(address, "experience", 128, batch_size=64))
    start = time.perf_counter()
    for _ in range(200):
        batch = next(ready)
    print(f"ready batches: {200 / (time.perf_counter() - start):.0f} a second, {batch.data['observation'].shape} each")
    del ready
    server.stop()
    assert 0.2 < np.mean(shares) < 0.3
    print("OK")


if __name__ == "__main__":
    main()
