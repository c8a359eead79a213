"""TFClient: a client whose calls are TensorFlow operations. Not available yet."""

from __future__ import annotations

from reverb._compat import not_yet


class TFClient(not_yet.Unavailable):
    """A client for tf.function. Not available yet: see the error for what to use."""

    _INSTEAD = (
        "use reverb.Client: sample(), insert() and mutate_priorities() take and give NumPy arrays and can be "
        "called from a tf.function through tf.numpy_function()"
    )
