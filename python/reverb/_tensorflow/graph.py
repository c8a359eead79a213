"""The datasets as operations of TensorFlow, and errors in graphs.

    GeneratorDataset(open_stream, the number of the stream again and again, close_stream)
      -> MapDataset(take)
      -> UnbatchDataset, or FilterDataset if the batches are the elements

take() returns a batch, which is empty if nothing has arrived for a while. MapDataset runs it on the thread that wants
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

# The result of calls that may fail with a status that Python's exceptions cannot express in a graph.
_OK = np.int32(0)
_NOT_FOUND = np.int32(5)
# The longest name of a file, less some.
_MAX_MESSAGE = 200


def concrete(tf: Any, function: Any, *specs: Any) -> Any:
    """Returns `function` of tensors as a function of a graph, independent of the graph that is being traced."""
    with tf.init_scope():
        return tf.function(function, input_signature=list(specs), autograph=False).get_concrete_function()


def guarded(function: Any, *arguments: Any, on_error: Any) -> tuple[Any, ...]:
    """Returns (code, message, *function()). For an unknown table: its code and message, and on_error().

    The other exceptions are those that TensorFlow converts: ValueError to InvalidArgumentError, StopIteration to
    OutOfRangeError, and most to UnknownError.
    """
    try:
        return (_OK, b"", *function(*arguments))
    except RuntimeError as error:
        if getattr(error, "code", None) != "NOT_FOUND":
            raise
        return (_NOT_FOUND, str(error).encode()[:_MAX_MESSAGE], *on_error())


def raise_status(tf: Any, code: Any, message: Any) -> Any:
    """Returns an operation that fails with NotFoundError if the code of guarded() says so."""
    then, otherwise = _status_branches()
    # Not tf.cond(), which becomes control flow that MapDataset cannot run on the thread of its caller.
    (nothing,) = tf.raw_ops.If(
        cond=tf.equal(code, _OK), input=[message], Tout=[tf.string], then_branch=then, else_branch=otherwise
    )
    return nothing


@functools.cache
def _status_branches() -> tuple[Any, Any]:
    import tensorflow as tf

    text = tf.TensorSpec((), tf.string)
    # Reading a file that does not exist is the one operation that fails with this status and a text of ours.
    return concrete(tf, lambda message: tf.identity(message), text), concrete(tf, tf.io.read_file, text)


def keep(tf: Any, kept: Any) -> None:
    """Keeps the functions that operations refer to by name, as long as the graph that is being traced."""
    if not tf.executing_eagerly():
        traced = tf.compat.v1.get_default_graph()
        traced._reverb_kept = (*getattr(traced, "_reverb_kept", ()), kept)


def run_on_own_thread(tf: Any, body: Any, tensors: list[Any]) -> Any:
    """Returns body(*tensors), an int32, in a graph: run on a thread that no other operation needs."""
    function = concrete(tf, body, *(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors))
    keep(tf, function)
    variant = tf.raw_ops.TensorDataset(components=tensors, output_shapes=[tensor.shape for tensor in tensors])
    variant = tf.raw_ops.MapDataset(
        input_dataset=variant,
        other_arguments=[],
        f=function,
        output_types=[tf.int32],
        output_shapes=[[]],
        use_inter_op_parallelism=False,
    )
    (result,) = tf.raw_ops.DatasetToSingleElement(dataset=variant, output_types=[tf.int32], output_shapes=[[]])
    return result


def _empty(settings: Settings) -> list[Any]:
    """Returns a batch without samples."""
    info = [np.zeros(0, dtype.as_numpy_dtype) for dtype in SampleInfo.tf_dtypes()]
    columns = [
        np.zeros((0, *(dim or 0 for dim in shape or ())), dtype.as_numpy_dtype)
        for dtype, shape in zip(settings.dtypes, settings.shapes, strict=True)
    ]
    return info + columns


def _take(settings: Settings, number: Any) -> list[Any]:
    batch = streams.take(number)
    return _empty(settings) if batch is None else [*batch[0], *batch[1]]


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
            code, message, *columns = tf.numpy_function(
                lambda stream: guarded(_take, settings, stream, on_error=lambda: _empty(settings)),
                [stream],
                [tf.int32, tf.string, *self.dtypes],
            )
            for column, shape in zip(columns, self.shapes, strict=True):
                column.set_shape(shape)
            with tf.control_dependencies([raise_status(tf, code, message)]):
                return [tf.identity(column) for column in columns]

        self.take = concrete(tf, take, tf.TensorSpec((), tf.int64))
        self.has_samples = concrete(
            tf,
            lambda *columns: tf.size(columns[0]) > 0,
            *(tf.TensorSpec(shape, dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)),
        )


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
        output_types=functions.dtypes,
        output_shapes=functions.shapes,
        use_inter_op_parallelism=False,
        preserve_cardinality=False,
    )
    flat = [
        [*([settings.batch_size] if settings.batch_size else []), *shape[1:]]
        if not isinstance(shape, tf.TensorShape)
        else shape
        for shape in functions.shapes
    ]
    if settings.batch_size:
        variant = tf.raw_ops.FilterDataset(
            input_dataset=variant,
            other_arguments=[],
            predicate=functions.has_samples,
            output_types=functions.dtypes,
            output_shapes=flat,
        )
    else:
        variant = tf.raw_ops.UnbatchDataset(input_dataset=variant, output_types=functions.dtypes, output_shapes=flat)
    # tf.data would add a prefetch behind the dataset, which draws samples that the program does not ask for.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.experimental.from_variant(variant, spec).with_options(options)
    return tf.data.experimental.to_variant(dataset), (functions, dataset)
