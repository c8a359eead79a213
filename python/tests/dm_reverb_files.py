"""Writes checkpoints in dm-reverb's documented format, for tests of their reader."""

from __future__ import annotations

import pathlib
import struct
import zlib

import numpy as np

_DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9}


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC_TABLE = _crc_table()


def masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(*fields: tuple[int, int | float | bytes | str]) -> bytes:
    """Returns a protobuf message of (field, value) pairs: floats as double, bytes and str with their length."""
    out = bytearray()
    for field, value in fields:
        if isinstance(value, float):
            out += varint(field << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += varint(field << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(field << 3 | 2) + varint(len(data)) + data
    return bytes(out)


def records(*payloads: bytes) -> bytes:
    """Returns a compressed TFRecord file."""
    out = bytearray()
    for payload in payloads:
        length = struct.pack("<Q", len(payload))
        out += length + struct.pack("<I", masked_crc32c(length)) + payload + struct.pack("<I", masked_crc32c(payload))
    return zlib.compress(bytes(out))


def snappy(data: bytes) -> bytes:
    """Returns the data in Snappy's block format, in literals only."""
    out = bytearray(varint(len(data)))
    for start in range(0, len(data), 60):
        part = data[start : start + 60]
        out += bytes([(len(part) - 1) << 2]) + part
    return bytes(out)


def tensor(array: np.ndarray) -> bytes:
    shape = message(*((2, message((1, size))) for size in array.shape))
    return message((1, _DTYPES[array.dtype.name]), (2, shape), (4, snappy(array.tobytes())))


def chunk(key: int, episode: int, *arrays: np.ndarray) -> bytes:
    steps = message((1, episode), (2, 0), (3, len(arrays[0]) - 1))
    return message((1, key), (2, steps), (5, message(*((1, tensor(array)) for array in arrays))))


def item(key: int, table: str, priority: float, seconds: int, columns: list[list[tuple[int, int, int, int]]]) -> bytes:
    """Returns a PrioritizedItem. `columns`: each a list of slices, (chunk key, offset, length, index of the tensor)."""
    trajectory = message(
        *(
            (1, message(*((1, message((1, key), (2, offset), (3, rows), (4, at))) for key, offset, rows, at in slices)))
            for slices in columns
        )
    )
    return message((1, key), (2, table), (5, priority), (6, 2), (7, message((1, seconds))), (8, trajectory))


def spec(dtype: str, *shape: int) -> bytes:
    """Returns a StructuredValue that is a TensorSpec."""
    dims = message(*((2, message((1, size))) for size in shape))
    return message((33, message((2, dims), (3, _DTYPES[dtype]))))


def table(name: str, inserts: int, *, max_size: int = 100, signature: bytes | None = None) -> bytes:
    limiter = message((2, 1.0), (3, -1e300), (4, 1e300), (5, 1), (6, 5), (7, inserts))
    uniform, fifo = message((2, 1)), message((1, 1), (7, 1))
    fields: list = [(1, name), (3, limiter), (4, uniform), (5, fifo), (6, max_size)]
    return message(*fields, *([] if signature is None else [(9, signature)]))


def write(folder: pathlib.Path, *, tables: list[bytes], items: list[bytes], chunks: list[bytes]) -> pathlib.Path:
    """Writes one checkpoint into the folder."""
    folder.mkdir(parents=True)
    (folder / "tables.tfrecord").write_bytes(records(*tables))
    (folder / "items.tfrecord").write_bytes(records(*items))
    (folder / "chunks.tfrecord").write_bytes(records(*chunks))
    (folder / "DONE").touch()
    return folder


def write_small(folder: pathlib.Path) -> pathlib.Path:
    """Writes a table `replay` of {"act": int32[], "obs": float32[2]} with three items of two steps, keys 1 to 3."""
    signature = message(
        (53, message(*((1, message((1, name), (2, value))) for name, value in _SMALL_SIGNATURE.items())))
    )
    observations = np.arange(8, dtype=np.float32).reshape(4, 2)
    actions = np.arange(4, dtype=np.int32)
    return write(
        folder,
        tables=[table("replay", 3, signature=signature)],
        items=[
            item(key, "replay", float(key), 1000 + key, [[(11, key - 1, 2, 1)], [(11, key - 1, 2, 0)]])
            for key in (1, 2, 3)
        ],
        chunks=[chunk(11, 5, observations, actions)],
    )


_SMALL_SIGNATURE = {"obs": spec("float32", -1, 2), "act": spec("int32", -1)}
