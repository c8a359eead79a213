"""The datasets as operations of TensorFlow, and errors in graphs.

    GeneratorDataset(open_stream, the number of the stream again and again, close_stream)
      -> MapDataset(take)
      -> FilterDataset(has samples)
      -> UnbatchDataset, unless the batches are the elements

take() returns a batch without samples if none has arrived for a while. MapDataset runs it on the thread that wants
the element, and not on the threads that TensorFlow's operations share: iterators that wait keep none of those. It
shares the memory of the arrays, which are aligned for it. UnbatchDataset, in C++, cuts them into elements.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from reverb._tensorflow import streams
from reverb._tensorflow.arguments import Settings
from reverb.replay_sample import SampleInfo

# A file to read where there is no error: see raise_not_found().
_NO_ERROR = b"/dev/null"
# The longest name of a file, less some.
_MAX_MESSAGE = 200


def concrete(tf: Any, function: Any, *specs: Any) -> Any:
    """Returns `function` of tensors as a function of a graph, independent of the graph that is being traced."""
    with tf.init_scope():
        return tf.function(function, input_signature=list(specs), autograph=False).get_concrete_function()


def guarded(function: Any, on_error: Any) -> tuple[Any, ...]:
    """Returns (the argument of raise_not_found(), *function()). For an unknown table, the rest is on_error().

    The other exceptions are those that TensorFlow converts: ValueError to InvalidArgumentError, StopIteration to
    OutOfRangeError, and most to UnknownError.
    """
    try:
        return (_NO_ERROR, *function())
    except RuntimeError as error:
        if getattr(error, "code", None) != "NOT_FOUND":
            raise
        return (str(error).encode()[:_MAX_MESSAGE], *on_error())


def raise_not_found(tf: Any, message: Any) -> Any:
    """Returns true, or fails with NotFoundError and the message of guarded(). The result must be used."""
    # Reading a file that does not exist is the one operation that fails with this status and a text of ours. tf.cond()
    # cannot run on the thread of the caller, and a functional If takes longer than reading no byte.
    return tf.equal(tf.io.read_file(message), b"")


def keep(tf: Any, kept: Any) -> None:
    """Keeps the functions that operations refer to by name, as long as the graph that is being traced."""
    if not tf.executing_eagerly():
        traced = tf.compat.v1.get_default_graph()
        traced._reverb_kept = (*getattr(traced, "_reverb_kept", ()), kept)


def run_on_own_thread(tf: Any, body: Any, tensors: list[Any]) -> Any:
    """Returns body(*tensors), a bool, in a graph: run on a thread that no other operation needs."""
    function = concrete(tf, body, *(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors))
    keep(tf, function)
    variant = tf.raw_ops.TensorDataset(components=tensors, output_shapes=[tensor.shape for tensor in tensors])
    variant = tf.raw_ops.MapDataset(
        input_dataset=variant,
        other_arguments=[],
        f=function,
        output_types=[tf.bool],
        output_shapes=[[]],
        use_inter_op_parallelism=False,
    )
    (result,) = tf.raw_ops.DatasetToSingleElement(dataset=variant, output_types=[tf.bool], output_shapes=[[]])
    return result


def _nothing(settings: Settings) -> list[Any]:
    """Returns False, and a batch without samples."""
    info = [np.zeros(0, dtype.as_numpy_dtype) for dtype in SampleInfo.tf_dtypes()]
    columns = [
        np.zeros((0, *(dim or 0 for dim in shape or ())), dtype.as_numpy_dtype)
        for dtype, shape in zip(settings.dtypes, settings.shapes, strict=True)
    ]
    return [np.bool_(False), *info, *columns]


def _take(settings: Settings, number: Any) -> list[Any]:
    batch = streams.take(number)
    return _nothing(settings) if batch is None else [np.bool_(True), *batch[0], *batch[1]]


class Lifetime:
    """Calls open_() when TensorFlow creates an iterator, and close() with its result when it destroys the iterator."""

    def __init__(self, tf: Any, open_: Any, close: Any, *specs: Any) -> None:
        """open_() returns a number, an int64, and takes arguments of these specs; close() returns any number."""
        number = tf.TensorSpec((), tf.int64)
        self._open = concrete(tf, lambda *inputs: tf.numpy_function(open_, list(inputs), tf.int64), *specs)
        self._repeat = concrete(tf, lambda opened: opened, number)
        self._close = concrete(tf, lambda opened: tf.numpy_function(close, [opened], tf.int64), number)

    def dataset(self, tf: Any, *arguments: Any) -> Any:
        """Returns the variant tensor of a dataset that repeats the number of its iterator."""
        return tf.raw_ops.GeneratorDataset(
            init_func_other_args=list(arguments),
            next_func_other_args=[],
            finalize_func_other_args=[],
            init_func=self._open,
            next_func=self._repeat,
            finalize_func=self._close,
            output_types=[tf.int64],
            output_shapes=[[]],
        )


class _Functions:
    """The functions of graphs of all datasets with the same settings, made once."""

    def __init__(self, tf: Any, settings: Settings) -> None:
        self.dtypes = [*SampleInfo.tf_dtypes(), *settings.dtypes]
        self.shapes = [[None] for _ in SampleInfo._fields] + [
            tf.TensorShape(None) if shape is None else [None, *shape] for shape in settings.shapes
        ]
        text = tf.TensorSpec((), tf.string)
        self.lifetime = Lifetime(tf, functools.partial(streams.open_stream, settings), streams.close_stream, text, text)

        def take(stream: Any) -> Any:
            message, has_samples, *columns = tf.numpy_function(
                lambda stream: guarded(lambda: _take(settings, stream), on_error=lambda: _nothing(settings)),
                [stream],
                [tf.string, tf.bool, *self.dtypes],
            )
            for column, shape in zip(columns, self.shapes, strict=True):
                column.set_shape(shape)
            has_samples = tf.logical_and(has_samples, raise_not_found(tf, message))
            return [tf.ensure_shape(has_samples, []), *columns]

        self.take = concrete(tf, take, tf.TensorSpec((), tf.int64))
        specs = [
            tf.TensorSpec((), tf.bool),
            *(tf.TensorSpec(shape, dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)),
        ]
        # FilterDataset does not even call a function that returns one of its arguments.
        self.has_samples = concrete(tf, lambda has_samples, *_: has_samples, *specs)
        self.columns = concrete(tf, lambda _, *columns: columns, *specs)


@functools.cache
def _functions(settings: Settings) -> _Functions:
    import tensorflow

    return _Functions(tensorflow, settings)


def sampling_dataset(tf: Any, settings: Settings, spec: Any, server_address: Any, table: Any) -> Any:
    """Returns the variant tensor of a dataset, and what must live as long as it."""
    functions = _functions(settings)
    variant = functions.lifetime.dataset(tf, tf.convert_to_tensor(server_address), tf.convert_to_tensor(table))
    variant = tf.raw_ops.MapDataset(
        input_dataset=variant,
        other_arguments=[],
        f=functions.take,
        output_types=[tf.bool, *functions.dtypes],
        output_shapes=[[], *functions.shapes],
        use_inter_op_parallelism=False,
        preserve_cardinality=False,
    )
    variant = tf.raw_ops.FilterDataset(
        input_dataset=variant,
        other_arguments=[],
        predicate=functions.has_samples,
        output_types=[tf.bool, *functions.dtypes],
        output_shapes=[[], *functions.shapes],
    )
    variant = tf.raw_ops.MapDataset(
        input_dataset=variant,
        other_arguments=[],
        f=functions.columns,
        output_types=functions.dtypes,
        output_shapes=functions.shapes,
        use_inter_op_parallelism=False,
    )
    if not settings.batch_size:
        variant = tf.raw_ops.UnbatchDataset(
            input_dataset=variant,
            output_types=functions.dtypes,
            output_shapes=[leaf.shape for leaf in tf.nest.flatten(spec)],
        )
    # tf.data would add a prefetch behind the dataset and make the second map a parallel one. Both draw samples that the
    # program does not ask for.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    dataset = tf.data.experimental.from_variant(variant, spec).with_options(options)
    return tf.data.experimental.to_variant(dataset), (functions, dataset)
