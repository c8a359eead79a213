"""Creates message classes from the shipped descriptors, if the protobuf package is installed.

tools/dm_reverb_descriptors.py writes the descriptors from proto/dm_reverb. They have their own descriptor pool, so that
they do not collide with the same files in the default pool, which TensorFlow or dm-reverb may have registered. The
classes therefore differ from theirs; messages are exchanged as bytes.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
from typing import Any


def _protobuf(module: str) -> Any:
    try:
        return importlib.import_module(f"google.protobuf.{module}")
    except ImportError as error:
        raise ImportError(
            "reverb's protobuf modules (reverb.cc.schema_pb2 and others) need the package protobuf, which is "
            "not installed: pip install protobuf. Nothing else in reverb does."
        ) from error


@functools.cache
def _pool() -> Any:
    data = pathlib.Path(__file__).with_name("descriptors.binpb").read_bytes()
    files = _protobuf("descriptor_pb2").FileDescriptorSet.FromString(data)
    pool = _protobuf("descriptor_pool").DescriptorPool()
    for file in files.file:  # each comes after those that it imports
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@functools.cache
def _factory() -> Any:
    message_factory = _protobuf("message_factory")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass
    return message_factory.MessageFactory(_pool()).GetPrototype  # protobuf < 4.22


def message_class(full_name: str) -> Any:
    """Returns the class of a message, for example `deepmind.reverb.TableInfo`."""
    return _factory()(_pool().FindMessageTypeByName(full_name))


def define(file_name: str, module: dict[str, Any]) -> None:
    """Adds to a module's namespace what protoc would generate for the file."""
    file = _pool().FindFileByName(file_name)
    module["DESCRIPTOR"] = file
    for name, descriptor in file.message_types_by_name.items():
        module[name] = _factory()(descriptor)
