"""Signatures: nests of specs, and their encoding.

A signature is a nest of specs: dicts (str keys), lists, tuples, namedtuples. The native code encodes and decodes it
(include/reverb/signature.h). Specs are returned as reverb's classes, or as TensorFlow's if TensorFlow is already
imported in the process.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
import re
import sys
from typing import Any

from reverb import _core, _tree
from reverb._specs import BoundedTensorSpec, TensorSpec, bfloat16_dtype


def encode_signature(signature: Any) -> bytes | None:
    """Returns the bytes that a server keeps for a nest of specs; None for an empty nest, which means no signature.

    ValueError for a leaf that is not a spec and for a nest beyond the limits; TypeError for keys that are not str and
    for dtypes that cannot be stored.
    """
    return None if is_empty(signature) else _core.encode_signature(signature)


def decode_signature(data: bytes | None) -> Any:
    """Returns the nest of specs that encode_signature() encoded; None for no bytes.

    Namedtuples have the class that namedtuple_class() returns for their name and fields. DecodeError if the bytes are
    not a signature.
    """
    return localize(_core.decode_signature(data)) if data else None


def is_empty(signature: Any) -> bool:
    """Returns whether `signature` is None or an empty container, which means "no signature"."""
    if signature is None:
        return True
    return _tree.is_nested(signature) and not any(True for _ in _tree.children(signature))


# --- TensorFlow's specs --------------------------------------------------------------------------------


def _tensorflow() -> Any | None:
    """Returns the module if it is already imported, and completely."""
    module = sys.modules.get("tensorflow")
    return module if hasattr(module, "TensorSpec") and hasattr(module, "as_dtype") else None


def to_tensorflow(spec: TensorSpec, tensorflow: Any) -> Any:
    """Returns the spec as TensorFlow's class."""
    if spec.dtype.kind == "O":
        name = "string"
    else:
        name = "bfloat16" if spec.dtype == bfloat16_dtype() else spec.dtype.name
    dtype = tensorflow.as_dtype(name)
    if isinstance(spec, BoundedTensorSpec):
        # Not a public name of TensorFlow, but signatures use it.
        module = sys.modules.get("tensorflow.python.framework.tensor_spec")
        bounded = getattr(module, "BoundedTensorSpec", None)
        if bounded is not None:
            return bounded(spec.shape, dtype, spec.minimum, spec.maximum, spec.name)
    return tensorflow.TensorSpec(spec.shape, dtype, spec.name)


def localize(signature: Any) -> Any:
    """Returns the nest with TensorFlow's specs if TensorFlow is imported, else unchanged."""
    tensorflow = _tensorflow()
    if tensorflow is None or signature is None:
        return signature
    return _tree.map_structure(
        lambda leaf: to_tensorflow(leaf, tensorflow) if isinstance(leaf, TensorSpec) else leaf, signature
    )


# --- Namedtuples ---------------------------------------------------------------------------------------

_new_namedtuple: Any = collections.namedtuple  # Any: the fields are not constant
_namedtuples: dict[tuple[str, tuple[str, ...]], type[Any]] = {}


def namedtuple_class(name: str, fields: Sequence[str]) -> type[Any]:
    """Returns the namedtuple class of that name and those fields, always the same one.

    Signatures that are decoded twice thus have one type, which caches keyed by structure rely on. Instances can be
    pickled. Invalid names are replaced as by `collections.namedtuple(rename=True)`.
    """
    key = (name, tuple(fields))
    known = _namedtuples.get(key)
    if known is not None:
        return known
    safe = name if name.isidentifier() else re.sub(r"\W", "_", f"_{name}")
    try:
        made = _new_namedtuple(safe, key[1], rename=True)
    except ValueError:  # a keyword
        made = _new_namedtuple(f"{safe}_", key[1], rename=True)
    made.__reduce__ = lambda self: (_make_namedtuple, (*key, tuple(self)))
    made.__module__ = __name__
    return _namedtuples.setdefault(key, made)


def _make_namedtuple(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return namedtuple_class(name, fields)(*values)
