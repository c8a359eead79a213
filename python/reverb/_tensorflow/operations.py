"""The calls of TFClient: direct ones in eager mode, operations of a graph inside tf.function.

A graph runs its operations on threads that all graphs share, and a call of the client may wait for long. Such calls
are therefore the elements of small datasets: TensorFlow takes an element of a dataset on a thread of its own.
"""

from __future__ import annotations

from typing import Any

from reverb._tensorflow import arguments, graph
from reverb.client import Client
from reverb.replay_sample import ReplaySample


def sample(tf: Any, server_address: str, table: Any, data_dtypes: Any) -> ReplaySample:
    """Returns the first step of one sampled item, in the nest of `data_dtypes`."""
    flat = [tf.as_dtype(dtype) for dtype in tf.nest.flatten(data_dtypes)]
    settings = arguments.Settings(
        max_in_flight=1,
        num_workers=1,
        rate_limiter_timeout=None,
        max_samples=1,
        batch_size=0,
        part=arguments.Part.FIRST_STEP,
        dtypes=tuple(flat),
        shapes=(None,) * len(flat),
    )
    spec = arguments.element_spec(tuple(flat), settings, tf)
    variant, kept = graph.sampling_dataset(tf, settings, spec, server_address, table)
    element = tf.data.experimental.from_variant(variant, spec).get_single_element()
    graph.keep(tf, kept)
    return ReplaySample(info=element.info, data=tf.nest.pack_sequence_as(data_dtypes, list(element.data)))


def insert(tf: Any, client: Client, data: Any, tables: Any, priorities: Any) -> Any:
    """Inserts one step, as one item in each table."""
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(data)]

    def write(names: Any, values: Any, *arrays: Any) -> None:
        if len(names) != len(values):
            raise ValueError(f"tables has {len(names)} elements and priorities has {len(values)}; give one for each")
        step = tf.nest.pack_sequence_as(data, list(arrays))
        try:
            client.insert(step, {name.decode(): float(value) for name, value in zip(names, values, strict=True)})
        except RuntimeError as error:
            if getattr(error, "code", None) == "NOT_FOUND":
                raise ValueError(str(error)) from error
            raise

    return _call(tf, write, [tables, priorities, *leaves])


def update_priorities(tf: Any, client: Client, table: Any, keys: Any, priorities: Any) -> Any:
    """Sets the priorities of items."""

    def update(name: Any, numbers: Any, values: Any) -> None:
        if numbers.ndim != 1 or values.ndim != 1 or numbers.shape != values.shape:
            raise ValueError(
                f"keys and priorities must be of rank 1 and of the same shape, got {numbers.shape} and {values.shape}"
            )
        client.update_priorities(name.decode(), numbers, values)

    return _call(
        tf,
        update,
        [
            tf.convert_to_tensor(table),
            tf.convert_to_tensor(keys, dtype=tf.uint64),
            tf.convert_to_tensor(priorities, dtype=tf.float64),
        ],
    )


def _call(tf: Any, function: Any, tensors: list[Any]) -> Any:
    """Calls `function` with the tensors as arrays. Returns None, or the operation of a graph."""
    if tf.executing_eagerly():
        try:
            return function(*(tensor.numpy() for tensor in tensors))
        except (RuntimeError, ValueError, TypeError) as error:
            raise _tensorflow_error(tf, error) from error

    def guarded(*arrays: Any) -> Any:
        return graph.guarded(lambda: function(*arrays) or [], on_error=list)

    def body(*inputs: Any) -> Any:
        (message,) = tf.numpy_function(guarded, list(inputs), [tf.string])
        return tf.ensure_shape(graph.raise_not_found(tf, message), [])

    return graph.run_on_own_thread(tf, body, tensors).op


def _tensorflow_error(tf: Any, error: Exception) -> Exception:
    """Returns the exception that TensorFlow's operations raise for an error of the client."""
    kinds = {
        "NOT_FOUND": tf.errors.NotFoundError,
        "CANCELLED": tf.errors.CancelledError,
        "UNAVAILABLE": tf.errors.UnavailableError,
        "DEADLINE_EXCEEDED": tf.errors.DeadlineExceededError,
    }
    is_argument = isinstance(error, (ValueError, TypeError))
    other = tf.errors.InvalidArgumentError if is_argument else tf.errors.UnknownError
    made: Exception = kinds.get(str(getattr(error, "code", None)), other)(None, None, str(error))
    return made
