"""Wrong use of the native protocol: each mistake ends its own stream and harms no other."""

import os
import random
import sys
import time

from protocol_client import InsertStream, ProtocolTest, SampleStream, Stream, hello, wait_until
from protocol_messages import (
    Unsealed,
    float_chunk,
    grpc,
    make_item,
    one_item,
    pb,
    read_floats,
    seal,
)

# Numbers of include/reverb/status.h and include/reverb/table_info.h.
CORRUPT_DATA = 5
MIB = 1 << 20


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
        # Correct streams over the same connection.
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
        """Yields (name, messages, code, texts, detail). Detail None: gRPC itself rejects, without a Status."""
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
            ("much too large", [greeting, too_large(8 * self.LIMIT)], too_much, ["at most", str(self.LIMIT)], 0),
            ("too large first", [too_large(8 * self.LIMIT)], too_much, ["at most", str(self.LIMIT)], 0),
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
                ["at most", str(self.LIMIT)],
                0,
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
        # Info and Checkpoint have no fields, but also reject bytes that are not a message.
        tables = ("CreateTable", "RemoveTable", "ChangeTable")
        for method in ("Info", "Reset", "Inspect", "MutatePriorities", "SetRateLimiter", "Checkpoint", *tables):
            with self.subTest(method):
                end = self.call_error(method, b"\xff" * 40)
                self.check_end(end, corrupt, "message ", detail=CORRUPT_DATA)
                self.check_good()
        request = pb.MutatePrioritiesRequest(table="replay", deletes=range(4 * MIB // 8))
        code, text, _ = self.call_error("MutatePriorities", request)
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self.assertIn(f"at most {self.LIMIT}", text)
        code, text, _ = self.call_error("Checkpoint", pb.CheckpointRequest())
        self.assertNotEqual(code, grpc.StatusCode.UNKNOWN)
        self.assertIn("checkpoint", text)
        self.check_good()

    def hostile_stream(self, rng, mistakes) -> None:
        """Opens a stream with a mistake, and one that is abandoned."""
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
        # A window full of chunks that no item refers to.
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
        # Unused chunks are dropped with their streams.
        wait_until(
            "the end of the chunks", lambda: self.call("Info", pb.InfoRequest()).live_chunks <= self.good_number + 1
        )

    def test_a_count_beyond_all_limits_does_not_fill_the_memory(self):
        self.check_good()
        before = self.server.rss()
        sampler = SampleStream(self.channel)
        sampler.send(pb.SampleRequest(request_id=1, table="replay", count=1 << 40))
        # The server may answer with an error or with some samples, but must not collect without limit.
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
