"""Messages of the native protocol, encoded and decoded by hand.

The code is generated from the proto file at run time: call find_libraries() and generate() before importing
a module that takes `grpc` or `pb` from here.
"""

import ctypes
import importlib
import os
import pathlib
import shutil
import struct
import subprocess
import sys

SYSTEM_PYTHON = "/usr/bin/python3"

# The columns of docs/protocol.md.
FLOAT32, INT64, STRING = 1, 9, 7

HEALTH_PROTO = """
syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse { int32 status = 1; }
"""

grpc = None  # the module, once found
pb = None  # generated from reverb.proto
health_pb = None
xxhash = None


def find_libraries() -> str:
    """Returns what is missing, or an empty string. Tries the system's interpreter before giving up."""
    global grpc, xxhash
    try:
        grpc = importlib.import_module("grpc")
        importlib.import_module("google.protobuf")
    except ImportError:
        if not os.environ.get("SPEAK_PROTOCOL_TRIED") and os.access(SYSTEM_PYTHON, os.X_OK):
            os.environ["SPEAK_PROTOCOL_TRIED"] = "1"
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
        return "Python has no gRPC or no protobuf (packages python3-grpcio, python3-protobuf)"
    if shutil.which("protoc") is None:
        return "protoc is not installed (package protobuf-compiler)"
    try:
        xxhash = ctypes.CDLL("libxxhash.so.0")
    except OSError:
        return "libxxhash.so.0 cannot be loaded (package libxxhash-dev)"
    xxhash.XXH3_64bits.restype = ctypes.c_uint64
    xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return ""


def generate(proto: pathlib.Path, folder: pathlib.Path) -> None:
    """Generates `pb` and `health_pb` in `folder` and imports them."""
    global pb, health_pb
    (folder / "health.proto").write_text(HEALTH_PROTO)
    for path, file in ((proto, "reverb/v1/reverb.proto"), (folder, "health.proto")):
        subprocess.run(["protoc", f"--proto_path={path}", f"--python_out={folder}", file], check=True)
    sys.path.insert(0, str(folder))
    pb = importlib.import_module("reverb.v1.reverb_pb2")
    health_pb = importlib.import_module("health_pb2")


# --- Data ---------------------------------------------------------------------------------------


def checksum(data: bytes) -> int:
    return xxhash.XXH3_64bits(data, len(data))


# --- Checksums of messages ------------------------------------------------------------------------

CHECKSUM_TAG = b"\x71"  # field 14, fixed64
PART_FIELD, DATA_FIELD = 13, 15
LONG_PAYLOAD = 1536


def fields(data: bytes, begin: int, end: int):
    """Yields (number, begin of the value, end of the value) of each field. ValueError if it is no message."""

    def varint(at: int):
        value = shift = 0
        while True:
            if at >= end or shift > 63:
                raise ValueError("no varint")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value, at

    at = begin
    while at < end:
        tag, at = varint(at)
        if tag & 7 == 2:
            size, at = varint(at)
            value_end = at + size
        elif tag & 7 == 0:
            value_end = varint(at)[1]
        else:
            value_end = at + {1: 8, 5: 4}[tag & 7]
        if value_end > end:
            raise ValueError("cut short")
        yield tag >> 3, at, value_end
        at = value_end


def covered(data: bytes) -> bytes:
    """Returns the bytes that the checksum covers: all but long payloads, which have their own checksums."""
    left_out = []
    for number, begin, end in fields(data, 0, len(data)):
        if number == PART_FIELD and end - begin >= LONG_PAYLOAD:
            left_out.append((begin, end))
        if number == DATA_FIELD:
            for inner, inner_begin, inner_end in fields(data, begin, end):
                if inner == DATA_FIELD and inner_end - inner_begin >= LONG_PAYLOAD:
                    left_out.append((inner_begin, inner_end))
    parts, at = [], 0
    for begin, end in left_out:
        parts.append(data[at:begin])
        at = end
    return b"".join([*parts, data[at:]])


def seal(data: bytes, number: int) -> bytes:
    """Returns the message with its checksum in front; `number` is its position on the stream, from 0."""
    try:
        value = checksum(covered(data))
    except (ValueError, KeyError):  # not a message: a deliberate mistake
        value = checksum(data)
    return CHECKSUM_TAG + struct.pack("<Q", (value + number) % 2**64) + data


def unseal(data: bytes, number: int) -> bytes:
    if seal(data[9:], number) != data:
        raise AssertionError(f"the checksum of message {number} does not hold")
    return data[9:]


class Unsealed(bytes):
    """Bytes that are sent without a checksum."""


def add_column(chunk, dtype: int, row_shape, rows, rows_per_block: int) -> None:
    """Adds a raw column to `chunk`; `rows` holds the bytes of each row."""
    column = chunk.columns.add(dtype=dtype, codec=0, row_shape=row_shape, rows_per_block=rows_per_block)
    for begin in range(0, len(rows), rows_per_block):
        block = b"".join(rows[begin : begin + rows_per_block])
        column.blocks.add(stored_size=len(block), raw_size=len(block), checksum=checksum(block))
        chunk.payload += block


def float_chunk(chunk_id: int, rows, rows_per_block: int = 0):
    """Returns a chunk of one float32 column. `rows` are floats, or lists of floats of the same length."""
    rows = [row if isinstance(row, list) else [row] for row in rows]
    width = len(rows[0])
    chunk = pb.Chunk(id=chunk_id, episode_id=7, first_step=0, last_step=len(rows) - 1, rows=len(rows))
    packed = [struct.pack(f"<{width}f", *row) for row in rows]
    add_column(chunk, FLOAT32, [width] if width > 1 else [], packed, rows_per_block or len(rows))
    return chunk


def make_item(number: int, table: str, chunk_id: int, offset: int = 0, length: int = 1, **fields):
    item = pb.Item(number=number, key=fields.pop("key", 1000 + number), table=table, **fields)
    item.priority = item.priority or 1.0
    item.columns.add().slices.add(chunk_id=chunk_id, chunk_column=0, offset=offset, length=length)
    return item


def one_item(number: int, table: str, value: float = 0.0, **fields):
    """Returns a message with an item of one row and its chunk, which no later item uses."""
    chunk = float_chunk(number, [value or float(number)])
    item = make_item(number, table, number, **fields)
    return pb.InsertRequest(items=[item], chunks=[chunk], forget_chunks=[number])


def read_rows(piece) -> list:
    """Returns the bytes of each row of a piece, checked against its header."""
    column = piece.column
    if column.codec != 0 or column.delta:
        raise AssertionError("what was sent raw came back in another form")
    sizes = {FLOAT32: 4, INT64: 8}
    width = 1
    for dim in column.row_shape:
        width *= dim
    rows, at, left = [], 0, piece.rows
    for block in column.blocks:
        stored = piece.payload[at : at + block.stored_size]
        at += block.stored_size
        if len(stored) != block.stored_size or block.stored_size != block.raw_size:
            raise AssertionError("a block is not as its header says")
        if checksum(stored) != block.checksum:
            raise AssertionError("the checksum of a block does not hold")
        count = min(left, column.rows_per_block)
        left -= count
        if column.dtype == STRING:
            lengths = struct.unpack_from(f"<{count * width}I", stored)
            begin = 4 * count * width
            for length in lengths:
                rows.append(stored[begin : begin + length])
                begin += length
        else:
            size = sizes[column.dtype] * width
            rows += [stored[i * size : (i + 1) * size] for i in range(count)]
    if at != len(piece.payload) or left != 0:
        raise AssertionError(f"{at} of {len(piece.payload)} bytes of a piece described, {left} rows missing")
    return rows


def read_column(column, pieces) -> list:
    rows = []
    for part in column.slices:
        if part.chunk_column != 0:
            raise AssertionError("a slice of a sample names a column other than 0")
        rows += read_rows(pieces[part.chunk_id])[part.offset : part.offset + part.length]
    return rows


def read_floats(column, pieces) -> list:
    """Returns the rows of a float32 column; rows of one element as floats."""
    rows = [list(struct.unpack(f"<{len(row) // 4}f", row)) for row in read_column(column, pieces)]
    return [row[0] if len(row) == 1 else row for row in rows]
