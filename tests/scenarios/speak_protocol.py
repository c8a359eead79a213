#!/usr/bin/env python3
"""Speaks the native protocol as another language would: by docs/protocol.md and the proto file alone.

    speak_protocol.py --server build/dev/tests/scenarios/scenario_server --proto proto [unittest arguments]

Code is generated from the proto file; messages are built and taken apart by hand. Exits with 77 (skipped)
where Python has no gRPC, or protoc or the library xxhash is missing.
"""

import argparse
import ctypes
import importlib
import os
import pathlib
import queue
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3"
PATIENCE = 30.0  # seconds; a test that waits this long has failed
QUIET = 0.25  # how long to look before saying that nothing comes
MIB = 1 << 20

# Numbers of include/reverb/status.h and include/reverb/table_info.h.
CORRUPT_DATA = 5
RATE_LIMITED = 1
TOO_MANY_INSERTS = 3

# The columns of docs/protocol.md.
FLOAT32, INT64, STRING = 1, 9, 7

HEALTH_PROTO = """
syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse { int32 status = 1; }
"""

grpc = None  # the module, once it was found
pb = None  # what was generated from reverb.proto
health_pb = None
server_program = None
xxhash = None


def find_libraries() -> str:
    """Empty when all is here, else what is missing. The system's interpreter takes over if it may have it."""
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
    global pb, health_pb
    (folder / "health.proto").write_text(HEALTH_PROTO)
    for path, file in ((proto, "reverb/v1/reverb.proto"), (folder, "health.proto")):
        subprocess.run(["protoc", f"--proto_path={path}", f"--python_out={folder}", file], check=True)
    sys.path.insert(0, str(folder))
    pb = importlib.import_module("reverb.v1.reverb_pb2")
    health_pb = importlib.import_module("health_pb2")


# --- Data, by hand --------------------------------------------------------------------------------


def checksum(data: bytes) -> int:
    return xxhash.XXH3_64bits(data, len(data))


# --- Checksums of messages ------------------------------------------------------------------------

CHECKSUM_TAG = b"\x71"  # field 14, fixed64
PART_FIELD, DATA_FIELD = 13, 15
LONG_PAYLOAD = 1536


def fields(data: bytes, begin: int, end: int):
    """(number, begin of the value, end of the value) of each field of a message. ValueError for others."""

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
    """What a message's checksum is of: all but long payloads, which have checksums of their own."""
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
    """The message with its checksum in front; `number` is its place on the stream, from 0."""
    try:
        value = checksum(covered(data))
    except (ValueError, KeyError):  # no message: one of our mistakes
        value = checksum(data)
    return CHECKSUM_TAG + struct.pack("<Q", (value + number) % 2**64) + data


def unseal(data: bytes, number: int) -> bytes:
    if seal(data[9:], number) != data:
        raise AssertionError(f"the checksum of message {number} does not hold")
    return data[9:]


class Unsealed(bytes):
    """Bytes that are sent as they are."""


def add_column(chunk, dtype: int, row_shape, rows, rows_per_block: int) -> None:
    """A raw column; `rows` are the bytes of each. Its blocks are appended to the payload."""
    column = chunk.columns.add(dtype=dtype, codec=0, row_shape=row_shape, rows_per_block=rows_per_block)
    for begin in range(0, len(rows), rows_per_block):
        block = b"".join(rows[begin : begin + rows_per_block])
        column.blocks.add(stored_size=len(block), raw_size=len(block), checksum=checksum(block))
        chunk.payload += block


def float_chunk(chunk_id: int, rows, rows_per_block: int = 0):
    """A chunk of one float32 column. `rows` are lists of floats of one length, or floats."""
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
    """A message with an item of one row and its chunk, which is not needed later."""
    chunk = float_chunk(number, [value or float(number)])
    item = make_item(number, table, number, **fields)
    return pb.InsertRequest(items=[item], chunks=[chunk], forget_chunks=[number])


def read_rows(piece) -> list:
    """The bytes of each row of a piece, checked against its header."""
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
    """The rows of a float32 column; those of one element as floats."""
    rows = [list(struct.unpack(f"<{len(row) // 4}f", row)) for row in read_column(column, pieces)]
    return [row[0] if len(row) == 1 else row for row in rows]


# --- A server, and streams to it ------------------------------------------------------------------


class Server:
    def __init__(self, *arguments: str):
        command = [server_program, "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("port "):
            raise AssertionError(f"the server said {line!r} instead of its port")
        self.address = "127.0.0.1:" + line.split()[1]

    def rss(self) -> int:
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("the server is gone")

    def stop(self) -> int:
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


class Stream:
    """A stream of bytes both ways. Messages are serialised here: what is no message can be sent too."""

    END = object()

    def __init__(self, channel, method: str, response_type):
        self._out = queue.SimpleQueue()
        self._in = queue.SimpleQueue()
        self._response_type = response_type
        self._num_sent = self._num_received = 0
        self.last_size = 0  # bytes of the last response, as they count for the credit
        self.last_messages = 0  # that it came in
        self._call = channel.stream_stream(f"/reverb.v1.Reverb/{method}")(iter(self._out.get, self.END))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for data in self._call:
                self._in.put(data)
        except grpc.RpcError:
            pass  # end() tells
        self._in.put(self.END)

    def send(self, message) -> None:
        data = bytes(message) if isinstance(message, bytes) else message.SerializeToString()
        if not isinstance(message, Unsealed):
            data = seal(data, self._num_sent)
            self._num_sent += 1
        self._out.put(data)

    def finish(self) -> None:
        self._out.put(self.END)

    def cancel(self) -> None:
        self._call.cancel()
        self.finish()

    def receive_bytes(self, timeout: float = PATIENCE):
        """The bytes of the next response, its parts put together; None when none comes in time."""
        parts = []
        self.last_size = self.last_messages = 0
        while True:
            data = self._receive_message(timeout)
            if data is None:
                return None
            self.last_size += len(data)
            self.last_messages += 1
            data = unseal(data, self._num_received)
            self._num_received += 1
            message = self._response_type.FromString(data)
            total = getattr(message, "response_bytes", 0)
            if total == 0:
                return data
            parts.append(message.part)
            if sum(map(len, parts)) == total:
                return unseal(b"".join(parts), 0)

    def _receive_message(self, timeout: float):
        try:
            data = self._in.get(timeout=timeout)
        except queue.Empty:
            return None
        if data is self.END:
            raise AssertionError(f"the stream ended with {self._call.code()}: {self._call.details()}")
        return data

    def receive(self, timeout: float = PATIENCE):
        data = self.receive_bytes(timeout)
        if data is None:
            raise AssertionError(f"no response within {timeout} s")
        return self._response_type.FromString(data)

    def end(self):
        """Waits for the end and returns code, text and our own Status from the details."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._in.get(timeout=max(0.0, deadline - time.monotonic())) is self.END:
                    break
            except queue.Empty:
                raise AssertionError(f"the stream has not ended after {PATIENCE} s") from None
        self.finish()
        return self._call.code(), self._call.details(), details_of(self._call)


def details_of(call):
    for key, value in call.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return pb.Status.FromString(value)
    return None


def hello(session: bytes = b"", **fields):
    fields.setdefault("min_version", 1)
    fields.setdefault("max_version", 1)
    return pb.Hello(session_id=session or os.urandom(16), client_name="speak_protocol", **fields)


class InsertStream(Stream):
    def __init__(self, channel, session: bytes = b""):
        super().__init__(channel, "Insert", pb.InsertResponse)
        self.rejections = {}
        self.send(pb.InsertRequest(hello=hello(session)))
        self.first = self.receive()
        self.welcome = self.first.welcome
        self.confirmed = self.first.confirmed_through

    def await_confirmed(self, number: int) -> None:
        while self.confirmed < number:
            response = self.receive()
            if response.confirmed_through < self.confirmed:
                raise AssertionError("confirmations went back")
            self.confirmed = response.confirmed_through
            for rejection in response.rejections:
                self.rejections[rejection.number] = rejection.status


class SampleStream(Stream):
    def __init__(self, channel, window: int = 0):
        super().__init__(channel, "Sample", pb.SampleResponse)
        self.send(pb.SampleRequest(hello=hello(receive_window_bytes=window)))
        data = self.receive_bytes()
        self.welcome_bytes = self.last_size
        self.welcome = pb.SampleResponse.FromString(data).welcome

    def sample(self, table: str, count: int, **fields):
        """Asks and collects until the end: (sample, its response) for each, and the end."""
        self.send(pb.SampleRequest(request_id=1, table=table, count=count, **fields))
        samples = []
        while True:
            data = self.receive_bytes()
            if data is None:
                raise AssertionError(f"{len(samples)} of {count} samples came, then nothing")
            response = pb.SampleResponse.FromString(data)
            samples += [(sample, response) for sample in response.samples]
            self.send(pb.SampleRequest(taken_bytes=self.last_size))
            if response.HasField("end"):
                return samples, response.end


class ProtocolTest(unittest.TestCase):
    ARGUMENTS = ("--table", "replay:fifo", "--table", "jobs:queue=1", "--table", "per:prioritized")

    def setUp(self):
        self.server = Server(*self.ARGUMENTS)
        self.channel = self.connect()

    def tearDown(self):
        self.channel.close()
        code = self.server.stop()
        self.assertEqual(code, 0, "the server did not stop cleanly")

    def connect(self):
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(self.server.address, options=options)

    def call(self, method: str, request, response_type=None):
        """A single call, of our service unless the method is a path."""
        path = method if method.startswith("/") else f"/reverb.v1.Reverb/{method}"
        data = bytes(request) if isinstance(request, bytes) else request.SerializeToString()
        is_ours = path.startswith("/reverb.v1.")
        if is_ours and not isinstance(request, Unsealed):
            data = seal(data, 0)
        answer = self.channel.unary_unary(path)(data, timeout=PATIENCE)
        if is_ours:
            answer = unseal(answer, 0)
        return (response_type or getattr(pb, f"{method}Response")).FromString(answer)

    def call_error(self, method: str, request):
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(method, request)
        error = caught.exception
        return error.code(), error.details(), details_of(error)

    def info(self, table: str):
        for info in self.call("Info", pb.InfoRequest()).tables:
            if info.name == table:
                return info
        self.fail(f"there is no table {table}")

    def check_end(self, end, code, *texts: str, detail=0) -> None:
        got, text, status = end
        self.assertEqual(got, code, text)
        for part in texts:
            self.assertIn(part, text)
        if detail is None:
            return
        self.assertIsNotNone(status, f"no status in the details of: {text}")
        self.assertEqual((status.code, status.detail, status.message), (code.value[0], detail, text))


# --- What goes well -------------------------------------------------------------------------------


class SpeakingTest(ProtocolTest):
    def test_info(self):
        info = self.call("Info", pb.InfoRequest())
        self.assertEqual(len(info.server_life_id), 16)
        self.assertTrue(info.server_name)
        self.assertEqual([table.name for table in info.tables], ["replay", "jobs", "per"])
        jobs = info.tables[1]
        self.assertEqual((jobs.max_size, jobs.max_times_sampled, jobs.current_size), (1, 1, 0))
        self.assertEqual((jobs.rate_limiter.min_diff, jobs.rate_limiter.max_diff), (0, 1))
        self.assertFalse(info.HasField("max_bytes"))

    def test_health(self):
        check = "/grpc.health.v1.Health/Check"
        for service in ("", "reverb.v1.Reverb"):
            request = health_pb.HealthCheckRequest(service=service)
            self.assertEqual(self.call(check, request, health_pb.HealthCheckResponse).status, 1)
        code, text, _ = self.call_error(check, health_pb.HealthCheckRequest(service="another"))
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)
        self.assertIn('"another"', text)

    def test_unknown_method(self):
        code, text, _ = self.call_error("/reverb.v1.Reverb/Nonsense", b"")
        self.assertEqual(code, grpc.StatusCode.UNIMPLEMENTED)
        self.assertIn("Nonsense", text)

    def test_insert_and_sample_rows(self):
        stream = InsertStream(self.channel)
        self.assertEqual(stream.welcome.version, 1)
        self.assertEqual(stream.welcome.applied_through, 0)
        self.assertEqual(stream.welcome.server_life_id, self.call("Info", pb.InfoRequest()).server_life_id)
        self.assertGreater(stream.welcome.limits.max_message_bytes, 0)
        self.assertGreater(stream.welcome.limits.max_chunk_bytes, 0)
        self.assertGreater(stream.welcome.limits.insert_window_bytes, 0)

        # Five rows of three numbers in blocks of two; two items share the chunk, which is sent once. The
        # second item names no table: it goes where the first one goes.
        rows = [[float(10 * i + j) for j in range(3)] for i in range(5)]
        first = make_item(1, "replay", 5, offset=0, length=4)
        second = make_item(2, "", 5, offset=3, length=2)
        request = pb.InsertRequest(items=[first, second], chunks=[float_chunk(5, rows, rows_per_block=2)])
        stream.send(request)
        stream.await_confirmed(2)
        # A third comes later, refers to what is there, and lets it go. A column of two slices, and one row
        # that is handed out without its time.
        third = make_item(3, "replay", 5, offset=4, length=1)
        third.columns[0].slices.add(chunk_id=5, offset=0, length=2)
        third.columns.add(squeeze=True).slices.add(chunk_id=5, offset=2, length=1)
        stream.send(pb.InsertRequest(items=[third], forget_chunks=[5]))
        stream.await_confirmed(3)
        self.assertEqual(stream.rejections, {})
        self.assertEqual(self.info("replay").current_size, 3)
        stream.finish()
        self.assertEqual(stream.end()[0], grpc.StatusCode.OK)

        sampler = SampleStream(self.channel)
        samples, end = sampler.sample("replay", 1)
        self.assertEqual(end.code, 0)
        sample, response = samples[0]
        self.assertEqual((sample.info.key, sample.info.priority, sample.info.table_size), (1001, 1.0, 3))
        self.assertEqual((sample.info.probability, sample.info.times_sampled), (1.0, 1))
        self.assertEqual(read_floats(sample.columns[0], response.pieces), rows[0:4])

        shown = self.call("Inspect", pb.InspectRequest(table="replay", count=10))
        found = {item.info.key: item for item in shown.items}
        self.assertEqual(sorted(found), [1001, 1002, 1003])
        self.assertEqual(read_floats(found[1002].columns[0], shown.pieces), rows[3:5])
        self.assertEqual(read_floats(found[1003].columns[0], shown.pieces), [rows[4], rows[0], rows[1]])
        self.assertEqual([column.squeeze for column in found[1003].columns], [False, True])
        self.assertEqual(read_floats(found[1003].columns[1], shown.pieces), [rows[2]])

    def test_strings_and_several_columns_in_a_chunk(self):
        words = [b"", b"one", "zwölf".encode(), b"\x00\xff"]
        chunk = pb.Chunk(id=1, first_step=-4, last_step=-1, rows=4)
        add_column(chunk, INT64, [], [struct.pack("<q", -i) for i in range(4)], 4)
        encoded = struct.pack("<4I", *map(len, words)) + b"".join(words)
        column = chunk.columns.add(dtype=STRING, rows_per_block=4)
        column.blocks.add(stored_size=len(encoded), raw_size=len(encoded), checksum=checksum(encoded))
        chunk.payload += encoded
        item = make_item(1, "replay", 1, length=4)
        item.columns.add().slices.add(chunk_id=1, chunk_column=1, offset=1, length=3)
        stream = InsertStream(self.channel)
        stream.send(pb.InsertRequest(items=[item], chunks=[chunk]))
        stream.await_confirmed(1)
        samples, end = SampleStream(self.channel).sample("replay", 1)
        self.assertEqual(end.code, 0)
        sample, response = samples[0]
        numbers = [struct.unpack("<q", row)[0] for row in read_column(sample.columns[0], response.pieces)]
        self.assertEqual(numbers, [0, -1, -2, -3])
        self.assertEqual(read_column(sample.columns[1], response.pieces), words[1:])

    def test_one_rejected_item_does_not_disturb_the_others(self):
        stream = InsertStream(self.channel)
        items = [make_item(1, "replay", 1), make_item(2, "nowhere", 1), make_item(3, "per", 1, priority=-1.0)]
        items.append(make_item(4, "replay", 1))
        stream.send(pb.InsertRequest(items=items, chunks=[float_chunk(1, [1.0])]))
        stream.await_confirmed(4)
        self.assertEqual(sorted(stream.rejections), [2, 3])
        self.assertEqual(stream.rejections[2].code, 5)
        self.assertIn('"nowhere"', stream.rejections[2].message)
        self.assertIn('"replay"', stream.rejections[2].message)
        self.assertEqual((stream.rejections[3].code, stream.rejections[3].detail), (3, 4))
        self.assertEqual(self.info("replay").current_size, 2)

    def test_heartbeat_tells_why_items_wait(self):
        stream = InsertStream(self.channel)
        stream.send(pb.InsertRequest(heartbeat=True))
        response = stream.receive()
        self.assertEqual((response.confirmed_through, response.HasField("waiting")), (0, False))
        for number in (1, 2, 3):
            stream.send(one_item(number, "jobs"))
        stream.await_confirmed(1)
        stream.send(pb.InsertRequest(heartbeat=True))
        response = stream.receive()
        self.assertEqual(response.confirmed_through, 1)
        self.assertEqual((response.waiting.table, response.waiting.reason), ("jobs", TOO_MANY_INSERTS))
        self.assertGreater(response.waiting.nanos, 0)
        self.assertIn('"jobs"', response.waiting.text)
        # A table that makes items wait does not hold up items for others, but their confirmation.
        stream.send(one_item(4, "replay"))
        deadline = time.monotonic() + PATIENCE
        while self.info("replay").current_size == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.info("replay").current_size, 1)
        self.assertIsNone(stream.receive_bytes(QUIET))
        samples, end = SampleStream(self.channel).sample("jobs", 3)
        self.assertEqual((end.code, [sample.info.key for sample, _ in samples]), (0, [1001, 1002, 1003]))
        stream.await_confirmed(4)

    def test_same_session_goes_on_where_it_stopped(self):
        session = os.urandom(16)
        stream = InsertStream(self.channel, session)
        for number in (1, 2):
            stream.send(one_item(number, "replay"))
        stream.send(one_item(3, "nowhere"))
        stream.await_confirmed(3)
        # One of these fits, the other one waits: it was received, and is not confirmed.
        for number in (4, 5):
            stream.send(one_item(number, "jobs"))
        stream.await_confirmed(4)
        stream.cancel()

        # The new stream knows no chunks: what 5 and 6 need is sent again, under the same ids.
        again = InsertStream(self.channel, session)
        self.assertEqual(again.welcome.applied_through, 4)
        self.assertEqual([rejection.number for rejection in again.first.rejections], [3])
        for number in (2, 4, 5, 6):
            again.send(one_item(number, "replay" if number in (2, 6) else "jobs"))
        samples, end = SampleStream(self.channel).sample("jobs", 2)
        self.assertEqual((end.code, [sample.info.key for sample, _ in samples]), (0, [1004, 1005]))
        again.await_confirmed(6)
        self.assertEqual((self.info("replay").inserts, self.info("jobs").inserts), (3, 2))
        # The session was away but not forgotten until it said farewell.
        again.finish()
        self.assertEqual(again.end()[0], grpc.StatusCode.OK)
        fresh = InsertStream(self.channel, session)
        self.assertEqual(fresh.welcome.applied_through, 0)

    def test_newer_stream_of_a_session_pushes_the_older_out(self):
        session = os.urandom(16)
        older = InsertStream(self.channel, session)
        newer = InsertStream(self.channel, session)
        self.assertEqual(older.end()[0], grpc.StatusCode.ABORTED)
        newer.send(one_item(1, "replay"))
        newer.await_confirmed(1)

    def test_greeting_may_carry_a_request(self):
        stream = InsertStream(self.channel)
        stream.send(one_item(1, "replay", 1.5))
        stream.await_confirmed(1)
        sampler = Stream(self.channel, "Sample", pb.SampleResponse)
        sampler.send(pb.SampleRequest(hello=hello(), request_id=9, table="replay", count=1))
        welcome = sampler.receive()
        self.assertEqual(welcome.welcome.version, 1)
        response = welcome if welcome.samples else sampler.receive()
        self.assertEqual((response.request_id, response.end.code), (9, 0))
        self.assertEqual(read_floats(response.samples[0].columns[0], response.pieces), [1.5])
        sampler.finish()
        self.assertEqual(sampler.end()[0], grpc.StatusCode.OK)

    def test_requests_are_served_in_order(self):
        stream = InsertStream(self.channel)
        for number in range(1, 5):
            stream.send(one_item(number, "replay"))
        stream.await_confirmed(4)
        sampler = SampleStream(self.channel)
        sampler.send(pb.SampleRequest(request_id=1, table="replay", count=5))
        sampler.send(pb.SampleRequest(request_id=2, table="nowhere", count=5))
        sampler.send(pb.SampleRequest(request_id=3, table="replay", count=0))
        sampler.send(pb.SampleRequest(request_id=4, table="replay", count=1))
        samples, ends = 0, []
        while len(ends) < 4:
            response = sampler.receive()
            if response.request_id == 1:
                samples += len(response.samples)
            if response.HasField("end"):
                ends.append((response.request_id, response.end.code))
        self.assertEqual(samples, 5)
        self.assertEqual(ends, [(1, 0), (2, 5), (3, 3), (4, 0)])

    def test_server_stops_without_credit(self):
        stream = InsertStream(self.channel)
        # Each sample takes more than the 256 KiB that a response of several samples may have.
        size_of_row = 80 * 1024
        chunk = float_chunk(1, [[float(i)] * size_of_row for i in range(3)])
        items = [make_item(number, "replay", 1, offset=number - 1) for number in (1, 2, 3)]
        stream.send(pb.InsertRequest(items=items, chunks=[chunk]))
        stream.await_confirmed(3)
        sampler = SampleStream(self.channel, window=1000)
        self.assertLess(sampler.welcome_bytes, 1000)
        sampler.send(pb.SampleRequest(request_id=1, table="replay", count=6))
        got = 0
        while got < 6:
            data = sampler.receive_bytes()
            self.assertIsNotNone(data, f"nothing more after {got} samples, despite credit")
            response = pb.SampleResponse.FromString(data)
            size = sampler.last_size
            self.assertEqual(len(response.samples), 1)
            self.assertEqual(read_floats(response.samples[0].columns[0], response.pieces), [[0.0] * size_of_row])
            got += 1
            if got <= 2:
                self.assertIsNone(sampler.receive_bytes(QUIET), "the server went on without credit")
            # Less than all: still more than the window is out.
            sampler.send(pb.SampleRequest(taken_bytes=size - 1))
            sampler.send(pb.SampleRequest(taken_bytes=1))
        self.assertTrue(response.HasField("end"))

    def test_large_responses_come_in_parts(self):
        # As any client that leaves gRPC's limit of 4 MiB as it is.
        channel = grpc.insecure_channel(self.server.address, options=[("grpc.use_local_subchannel_pool", 1)])
        stream = InsertStream(channel)
        rows = [[float(i)] * (MIB // 4) for i in range(9)]
        for i, row in enumerate(rows):
            stream.send(pb.InsertRequest(chunks=[float_chunk(i + 1, [row])]))
        item = make_item(1, "replay", 1)
        for i in range(1, len(rows)):
            item.columns[0].slices.add(chunk_id=i + 1, offset=0, length=1)
        stream.send(pb.InsertRequest(items=[item]))
        stream.await_confirmed(1)
        # A window that is smaller than the sample does not keep it away.
        sampler = SampleStream(channel, window=1000)
        for _ in range(2):
            samples, end = sampler.sample("replay", 1)
            self.assertEqual((end.code, sampler.last_messages), (0, 3))
            sample, response = samples[0]
            self.assertEqual(read_floats(sample.columns[0], response.pieces), rows)
        # A client that accepts less is told so.
        modest = Stream(channel, "Sample", pb.SampleResponse)
        modest.send(pb.SampleRequest(hello=hello(max_response_bytes=MIB), table="replay", count=1, request_id=1))
        response = modest.receive()
        if not response.HasField("end"):
            response = modest.receive()
        self.assertEqual((response.end.code, len(response.samples)), (8, 0))
        self.assertIn("item 1001", response.end.message)
        self.assertIn("max_response_bytes", response.end.message)
        channel.close()

    def test_items_that_are_too_large_are_rejected(self):
        server = Server("--table", "replay:fifo", "--max-item-bytes", "10000")
        channel = grpc.insecure_channel(server.address)
        stream = InsertStream(channel)
        self.assertEqual(stream.welcome.limits.max_item_bytes, 10000)
        chunk = float_chunk(1, [[float(i)] * 1000 for i in range(3)])
        items = [make_item(1, "replay", 1, length=3), make_item(2, "replay", 1, length=2)]
        stream.send(pb.InsertRequest(items=items, chunks=[chunk]))
        stream.await_confirmed(2)
        self.assertEqual([*stream.rejections], [1])
        self.assertEqual(stream.rejections[1].code, 8)
        self.assertIn("max_item_bytes", stream.rejections[1].message)
        stream.finish()
        stream.end()
        channel.close()
        self.assertEqual(server.stop(), 0)

    def test_info_needs_no_checksum(self):
        self.assertEqual(len(self.call("Info", Unsealed(b"")).tables), 3)

    def test_limiter_ends_a_request_in_time(self):
        sampler = SampleStream(self.channel)
        samples, end = sampler.sample("jobs", 2, timeout_nanos=0)
        self.assertEqual((samples, end.code, end.detail), ([], 4, RATE_LIMITED))
        self.assertIn('"jobs"', end.message)
        stream = InsertStream(self.channel)
        stream.send(one_item(1, "jobs", 2.5))
        stream.await_confirmed(1)
        # What there is comes before the end that is an error; the stream goes on.
        start = time.monotonic()
        samples, end = sampler.sample("jobs", 2, timeout_nanos=50_000_000)
        self.assertGreaterEqual(time.monotonic() - start, 0.05)
        self.assertEqual((len(samples), end.code, end.detail), (1, 4, RATE_LIMITED))
        sample, response = samples[0]
        self.assertEqual(read_floats(sample.columns[0], response.pieces), [2.5])

    def test_mutate_reset_limiter_inspect(self):
        stream = InsertStream(self.channel)
        for number in range(1, 6):
            stream.send(one_item(number, "per"))
        stream.await_confirmed(5)
        mutate = pb.MutatePrioritiesRequest(table="per", deletes=[1001, 4])
        mutate.updates.add(key=1002, priority=8.0)
        mutate.updates.add(key=5, priority=1.0)  # not there
        self.call("MutatePriorities", mutate)
        shown, cursor, calls = {}, 0, 0
        while calls == 0 or cursor != 0:
            page = self.call("Inspect", pb.InspectRequest(table="per", cursor=cursor, count=3))
            shown.update((item.info.key, item.info.priority) for item in page.items)
            cursor = page.next_cursor
            calls += 1
            self.assertLess(calls, 10, "the cursor leads nowhere")
        self.assertEqual(shown, {1002: 8.0, 1003: 1.0, 1004: 1.0, 1005: 1.0})
        self.assertEqual(self.info("per").samples, 0)

        limiter = pb.RateLimiter(samples_per_insert=1, min_size_to_sample=5, min_diff=-1e300, max_diff=1e300)
        self.call("SetRateLimiter", pb.SetRateLimiterRequest(table="per", rate_limiter=limiter))
        self.assertEqual(self.info("per").rate_limiter.min_size_to_sample, 5)
        _, end = SampleStream(self.channel).sample("per", 1, timeout_nanos=0)
        self.assertEqual(end.code, 4)
        self.call("Reset", pb.ResetRequest(table="per"))
        info = self.info("per")
        self.assertEqual((info.current_size, info.inserts), (0, 0))

        for method, request in (
            ("MutatePriorities", pb.MutatePrioritiesRequest(table="nowhere")),
            ("Reset", pb.ResetRequest(table="nowhere")),
            ("Inspect", pb.InspectRequest(table="nowhere", count=1)),
            ("SetRateLimiter", pb.SetRateLimiterRequest(table="nowhere", rate_limiter=limiter)),
        ):
            with self.subTest(method):
                self.check_end(self.call_error(method, request), grpc.StatusCode.NOT_FOUND, '"nowhere"')
        code, text, _ = self.call_error("SetRateLimiter", pb.SetRateLimiterRequest(table="per"))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, text)
        self.assertIn("rate_limiter", text)
        refused = pb.MutatePrioritiesRequest(table="per")
        refused.updates.add(key=1, priority=-1.0)
        code, text, status = self.call_error("MutatePriorities", refused)
        self.assertEqual((code, status.detail), (grpc.StatusCode.INVALID_ARGUMENT, 4), text)


# --- What newcomers get wrong ---------------------------------------------------------------------


def bad_checksum():
    request = one_item(1, "per")
    request.chunks[0].columns[0].blocks[0].checksum ^= 1
    return request


def payload_too_short():
    request = one_item(1, "per")
    request.chunks[0].payload = request.chunks[0].payload[:-1]
    return request


def too_many_rows():
    request = one_item(1, "per")
    request.items[0].columns[0].slices[0].length = 2
    return request


def no_columns():
    request = one_item(1, "per")
    del request.items[0].columns[:]
    return request


def chunk_twice():
    request = one_item(1, "per")
    request.chunks.add().CopyFrom(request.chunks[0])
    return request


def too_large(size: int):
    return pb.InsertRequest(chunks=[pb.Chunk(id=1, payload=bytes(size))])


class MistakesTest(ProtocolTest):
    LIMIT = 1 * MIB
    ARGUMENTS = (*ProtocolTest.ARGUMENTS, "--max-message-bytes", str(LIMIT))

    def setUp(self):
        super().setUp()
        # The one who does everything right, over the same connection.
        self.good = InsertStream(self.channel)
        self.good_sampler = SampleStream(self.channel)
        self.good_number = 0

    def tearDown(self):
        self.good.finish()
        self.good_sampler.finish()
        super().tearDown()

    def check_good(self) -> None:
        self.good_number += 1
        self.good.send(one_item(self.good_number, "replay", 1.25))
        self.good.await_confirmed(self.good_number)
        samples, end = self.good_sampler.sample("replay", 1)
        self.assertEqual(end.code, 0)
        sample, response = samples[0]
        self.assertEqual(read_floats(sample.columns[0], response.pieces), [1.25])

    def insert_mistakes(self):
        """(what, messages, code, texts, detail). Detail None: gRPC itself refuses, without our details."""
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        corrupt = grpc.StatusCode.DATA_LOSS
        too_much = grpc.StatusCode.RESOURCE_EXHAUSTED
        greeting = pb.InsertRequest(hello=hello())
        in_company = pb.InsertRequest(hello=hello(), heartbeat=True)
        no_session = pb.InsertRequest(hello=pb.Hello(min_version=1, max_version=1))
        short_session = pb.InsertRequest(hello=pb.Hello(min_version=1, max_version=1, session_id=b"short"))
        version_99 = pb.InsertRequest(hello=hello(min_version=99, max_version=99))
        unknown_chunk = pb.InsertRequest(items=[make_item(1, "per", 5)])
        no_table = pb.InsertRequest(items=[make_item(1, "", 1)], chunks=[float_chunk(1, [1.0])])
        forgets = pb.InsertRequest(forget_chunks=[44])
        twice_two = [one_item(2, "per"), one_item(2, "per")]
        twice_two[1].chunks[0].id = twice_two[1].forget_chunks[0] = 9
        twice_two[1].items[0].columns[0].slices[0].chunk_id = 9
        column_out = one_item(1, "per")
        column_out.items[0].columns[0].slices[0].chunk_column = 3
        return [
            ("no greeting", [one_item(1, "per")], invalid, ["InsertRequest", "greet"], 0),
            ("empty first message", [b""], invalid, ["InsertRequest", "greet"], 0),
            ("greeting in company", [in_company], invalid, ["InsertRequest", "greet"], 0),
            ("greeting twice", [greeting, greeting], invalid, ["InsertRequest", "greets again"], 0),
            ("no session", [no_session], invalid, ["session"], 0),
            ("short session", [short_session], corrupt, ["Hello", "16 bytes"], CORRUPT_DATA),
            ("version 99", [version_99], grpc.StatusCode.FAILED_PRECONDITION, ["versions 1 to 1", "99"], 0),
            ("wrong checksum", [greeting, bad_checksum()], corrupt, ["chunk 1, column 0"], CORRUPT_DATA),
            ("short payload", [greeting, payload_too_short()], corrupt, ["chunk 1", "4", "3"], CORRUPT_DATA),
            ("unknown chunk", [greeting, unknown_chunk], invalid, ["item 0 (number 1)", "chunk 5"], 0),
            ("unknown column", [greeting, column_out], invalid, ["item 0 (number 1)", "column"], 0),
            ("too many rows", [greeting, too_many_rows()], invalid, ["item 0 (number 1)"], 0),
            ("no columns", [greeting, no_columns()], invalid, ["item 0 (number 1)"], 0),
            ("no table", [greeting, no_table], invalid, ["item 0 (number 1)", "table"], 0),
            ("chunk twice", [greeting, chunk_twice()], invalid, ["chunk 1"], 0),
            ("forgets what is not there", [greeting, forgets], invalid, ["chunk 44"], 0),
            ("number does not grow", [greeting, *twice_two], invalid, ["number 2"], 0),
            ("number 0", [greeting, one_item(0, "per")], invalid, ["number 0"], 0),
            ("no checksum", [Unsealed(greeting.SerializeToString())], corrupt, ["checksum"], CORRUPT_DATA),
            ("no checksum later", [greeting, Unsealed(b"\x20\x01")], corrupt, ["checksum"], CORRUPT_DATA),
            ("message lost", [greeting, Unsealed(seal(b"\x20\x01", 2))], corrupt, ["lost"], CORRUPT_DATA),
            ("message repeated", [greeting, Unsealed(seal(b"\x20\x01", 0))], corrupt, ["lost"], CORRUPT_DATA),
            ("garbage first", [b"\xff" * 40], corrupt, ["InsertRequest"], CORRUPT_DATA),
            ("garbage later", [greeting, bytes(range(7, 99))], corrupt, ["InsertRequest"], CORRUPT_DATA),
            ("cut off", [greeting, one_item(1, "per").SerializeToString()[:-3]], corrupt, [""], CORRUPT_DATA),
            ("a little too large", [greeting, too_large(self.LIMIT)], too_much, [str(self.LIMIT)], 0),
            ("much too large", [greeting, too_large(8 * self.LIMIT)], too_much, ["larger than max"], None),
            ("too large first", [too_large(8 * self.LIMIT)], too_much, ["larger than max"], None),
        ]

    def sample_mistakes(self):
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        corrupt = grpc.StatusCode.DATA_LOSS
        greeting = pb.SampleRequest(hello=hello())
        request = pb.SampleRequest(request_id=1, table="per", count=1)
        version_99 = pb.SampleRequest(hello=hello(min_version=99, max_version=99))
        return [
            ("no greeting", [request], invalid, ["SampleRequest", "greet"], 0),
            ("greeting twice", [greeting, greeting], invalid, ["SampleRequest", "greet"], 0),
            ("version 99", [version_99], grpc.StatusCode.FAILED_PRECONDITION, ["versions 1 to 1", "99"], 0),
            ("garbage", [greeting, b"\xff" * 40], corrupt, ["SampleRequest"], CORRUPT_DATA),
            (
                "too large",
                [greeting, b"\x1a" + b"\xff\xff\xff\x01" + b"x" * (4 * MIB)],
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                ["larger than max"],
                None,
            ),
        ]

    def mistakes(self):
        for mistake in self.insert_mistakes():
            yield ("Insert", pb.InsertResponse, *mistake)
        for mistake in self.sample_mistakes():
            yield ("Sample", pb.SampleResponse, *mistake)

    def test_each_mistake_ends_its_stream_and_no_other(self):
        for method, response_type, what, messages, code, texts, detail in self.mistakes():
            with self.subTest(f"{method}: {what}"):
                stream = Stream(self.channel, method, response_type)
                for message in messages:
                    stream.send(message)
                end = stream.end()
                self.check_end(end, code, *texts, detail=detail)
                self.check_good()

    def test_mistakes_in_single_calls(self):
        corrupt = grpc.StatusCode.DATA_LOSS
        # Info and Checkpoint have no fields, but what is no message is none for them either.
        for method in ("Info", "Reset", "Inspect", "MutatePriorities", "SetRateLimiter", "Checkpoint"):
            with self.subTest(method):
                end = self.call_error(method, b"\xff" * 40)
                self.check_end(end, corrupt, "message ", detail=CORRUPT_DATA)
                self.check_good()
        request = pb.MutatePrioritiesRequest(table="replay", deletes=range(4 * MIB // 8))
        code, text, _ = self.call_error("MutatePriorities", request)
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self.assertIn("larger than max", text)
        code, text, _ = self.call_error("Checkpoint", pb.CheckpointRequest())
        self.assertNotEqual(code, grpc.StatusCode.UNKNOWN)
        self.assertIn("checkpoint", text)
        self.check_good()

    def hostile_stream(self, rng, mistakes) -> None:
        """A stream with a mistake, and one that is left in the middle of things."""
        channel = self.channel if rng.random() < 0.7 else self.connect()
        method, response_type, _, messages, *_ = rng.choice(mistakes)
        stream = Stream(channel, method, response_type)
        for message in messages:
            stream.send(message)
        if rng.random() < 0.7:
            stream.end()
        else:
            stream.cancel()
        left = Stream(channel, "Insert", pb.InsertResponse)
        left.send(pb.InsertRequest(hello=hello()))
        # A window full of chunks to which nobody refers.
        left.send(pb.InsertRequest(chunks=[float_chunk(i, [[1.0] * 10_000]) for i in range(20)]))
        left.send(pb.InsertRequest(heartbeat=True))
        left.receive()
        left.receive()
        left.cancel()
        if channel is not self.channel:
            channel.close()

    def test_hostile_streams_leave_no_memory_behind(self):
        rng = random.Random(7)
        mistakes = list(self.mistakes())
        for _ in range(20):
            self.hostile_stream(rng, mistakes)
        before = self.server.rss()
        for _ in range(200):
            self.hostile_stream(rng, mistakes)
        growth = self.server.rss() - before
        print(f"server {before / MIB:.1f} MiB {growth / MIB:+.1f} MiB", end=" ... ", file=sys.stderr)
        if not os.environ.get("REVERB_SANITIZED"):
            self.assertLess(growth, 64 * MIB)
        self.check_good()
        # Chunks that nobody refers to went with their streams.
        deadline = time.monotonic() + PATIENCE
        while (live := self.call("Info", pb.InfoRequest()).live_chunks) > self.good_number + 1:
            self.assertLess(time.monotonic(), deadline, f"{live} chunks are still there")
            time.sleep(0.01)

    def test_a_count_beyond_all_limits_does_not_fill_the_memory(self):
        self.check_good()
        before = self.server.rss()
        sampler = SampleStream(self.channel)
        sampler.send(pb.SampleRequest(request_id=1, table="replay", count=1 << 40))
        # Any answer will do: an error, or some samples. But the server must not collect forever.
        growth, answer = 0, None
        deadline = time.monotonic() + 10
        while answer is None and growth < 128 * MIB and time.monotonic() < deadline:
            try:
                answer = sampler.receive_bytes(0.02)
            except AssertionError as end:
                answer = end
            growth = self.server.rss() - before
        sampler.cancel()
        self.assertIsNotNone(answer, f"no answer, and the server has grown by {growth / MIB:.0f} MiB")
        if not os.environ.get("REVERB_SANITIZED"):
            self.assertLess(growth, 64 * MIB)
        self.check_good()


class StreamLimitTest(ProtocolTest):
    ARGUMENTS = (*ProtocolTest.ARGUMENTS, "--max-streams", "3")

    def test_one_stream_too_many_is_refused_and_the_others_go_on(self):
        streams = [InsertStream(self.channel) for _ in range(3)]
        extra = Stream(self.channel, "Insert", pb.InsertResponse)
        extra.send(pb.InsertRequest(hello=hello()))
        self.check_end(extra.end(), grpc.StatusCode.UNAVAILABLE, "max_streams")
        for key, stream in enumerate(streams):
            stream.send(one_item(1, "replay", key=key))
            stream.await_confirmed(1)
            stream.finish()
            self.assertEqual(stream.end()[0], grpc.StatusCode.OK)
        self.assertEqual(self.info("replay").inserts, 3)
        deadline = time.monotonic() + PATIENCE
        while True:  # there is room again, once the server has noticed
            try:
                InsertStream(self.channel).cancel()
                break
            except AssertionError:
                self.assertLess(time.monotonic(), deadline)


class StopTest(ProtocolTest):
    def test_streams_are_told_when_the_server_stops(self):
        writer, sampler = InsertStream(self.channel), SampleStream(self.channel)
        sampler.send(pb.SampleRequest(request_id=1, table="jobs", count=1))
        self.server.process.terminate()
        for stream in (writer, sampler):
            code, text, status = stream.end()
            self.assertEqual(code, grpc.StatusCode.UNAVAILABLE, text)
            self.assertIn("server", text)
        self.assertEqual(self.server.process.wait(PATIENCE), 0)


def main() -> int:
    global server_program
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--proto", required=True, type=pathlib.Path)
    args, rest = parser.parse_known_args()
    missing = find_libraries()
    if missing:
        print(f"skipped: {missing}")
        return SKIPPED
    server_program = args.server
    with tempfile.TemporaryDirectory() as temporary:
        generate(args.proto, pathlib.Path(temporary))
        program = unittest.main(argv=[sys.argv[0], *rest], verbosity=2, exit=False)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
