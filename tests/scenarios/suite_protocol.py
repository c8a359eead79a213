"""Correct use of the native protocol: what docs/protocol.md promises."""

import os
import struct
import time

from protocol_client import (
    PATIENCE,
    QUIET,
    InsertStream,
    ProtocolTest,
    SampleStream,
    Server,
    Stream,
    hello,
    wait_until,
)
from protocol_messages import (
    INT64,
    STRING,
    Unsealed,
    add_column,
    checksum,
    float_chunk,
    grpc,
    health_pb,
    make_item,
    one_item,
    pb,
    read_column,
    read_floats,
)

# Numbers of include/reverb/status.h and include/reverb/table_info.h.
RATE_LIMITED = 1
TOO_MANY_INSERTS = 3
MIB = 1 << 20


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
        # second item names no table: it goes to the table of the first one.
        rows = [[float(10 * i + j) for j in range(3)] for i in range(5)]
        first = make_item(1, "replay", 5, offset=0, length=4)
        second = make_item(2, "", 5, offset=3, length=2)
        request = pb.InsertRequest(items=[first, second], chunks=[float_chunk(5, rows, rows_per_block=2)])
        stream.send(request)
        stream.await_confirmed(2)
        # A third item refers to the same chunk and releases it. It has a column of two slices, and a column
        # of one row without the time dimension.
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
        # A table whose items wait delays the confirmation of items for other tables, but not their insertion.
        stream.send(one_item(4, "replay"))
        wait_until("the item of the other table", lambda: self.info("replay").current_size == 1)
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
        # One of these fits; the other one was received and waits, unconfirmed.
        for number in (4, 5):
            stream.send(one_item(number, "jobs"))
        stream.await_confirmed(4)
        stream.cancel()

        # The new stream knows no chunks: those of 5 and 6 are sent again, with the same ids.
        again = InsertStream(self.channel, session)
        self.assertEqual(again.welcome.applied_through, 4)
        self.assertEqual([rejection.number for rejection in again.first.rejections], [3])
        for number in (2, 4, 5, 6):
            again.send(one_item(number, "replay" if number in (2, 6) else "jobs"))
        samples, end = SampleStream(self.channel).sample("jobs", 2)
        self.assertEqual((end.code, [sample.info.key for sample, _ in samples]), (0, [1004, 1005]))
        again.await_confirmed(6)
        self.assertEqual((self.info("replay").inserts, self.info("jobs").inserts), (3, 2))
        # The server keeps a disconnected session until it closes.
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
            # A partial acknowledgement: more than the window is still in flight.
            sampler.send(pb.SampleRequest(taken_bytes=size - 1))
            sampler.send(pb.SampleRequest(taken_bytes=1))
        self.assertTrue(response.HasField("end"))

    def test_large_responses_come_in_parts(self):
        # A client with gRPC's default limit of 4 MiB.
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
        # A sample that exceeds the window is sent all the same.
        sampler = SampleStream(channel, window=1000)
        for _ in range(2):
            samples, end = sampler.sample("replay", 1)
            self.assertEqual((end.code, sampler.last_messages), (0, 3))
            sample, response = samples[0]
            self.assertEqual(read_floats(sample.columns[0], response.pieces), rows)
        # A client with a smaller limit gets an error.
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
        # Available samples are sent before the error; the stream remains usable.
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
        mutate.updates.add(key=5, priority=1.0)  # no such key
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

    def test_tables_come_and_go(self):
        limiter = pb.RateLimiter(samples_per_insert=1, min_size_to_sample=1, min_diff=-1e300, max_diff=1e300)
        fifo = pb.Selector(kind=1)
        table = pb.TableInfo(name="new", sampler=fifo, remover=fifo, max_size=3, rate_limiter=limiter)
        self.call("CreateTable", pb.CreateTableRequest(table=table))
        self.call("CreateTable", pb.CreateTableRequest(table=table, exist_ok=True))
        end = self.call_error("CreateTable", pb.CreateTableRequest(table=table))
        self.check_end(end, grpc.StatusCode.ALREADY_EXISTS, '"new"')
        stream = InsertStream(self.channel)
        for number in (1, 2):
            stream.send(one_item(number, "new", key=number))
        stream.await_confirmed(2)
        self.call("ChangeTable", pb.ChangeTableRequest(table="new", max_size=1, max_age_nanos=10**18))
        info = self.info("new")
        self.assertEqual((info.current_size, info.max_size, info.max_age_nanos), (1, 1, 10**18))
        self.call("ChangeTable", pb.ChangeTableRequest(table="new", max_age_nanos=0))
        self.assertEqual((self.info("new").max_size, self.info("new").max_age_nanos), (1, 0))
        self.call("RemoveTable", pb.RemoveTableRequest(table="new"))
        for method, request in (
            ("RemoveTable", pb.RemoveTableRequest(table="new")),
            ("ChangeTable", pb.ChangeTableRequest(table="new", max_size=2)),
        ):
            with self.subTest(method):
                self.check_end(self.call_error(method, request), grpc.StatusCode.NOT_FOUND, '"new"')
        for wrong in (
            pb.TableInfo(name="new", remover=fifo, max_size=3, rate_limiter=limiter),
            pb.TableInfo(name="new", sampler=fifo, remover=fifo, max_size=3),
            pb.TableInfo(sampler=fifo, remover=fifo, max_size=3, rate_limiter=limiter),
        ):
            code, text, _ = self.call_error("CreateTable", pb.CreateTableRequest(table=wrong))
            self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, text)
        stream.cancel()


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
        while True:  # the server accepts a stream again, once it has noticed the end of another
            try:
                InsertStream(self.channel).cancel()
                break
            except AssertionError:
                self.assertLess(time.monotonic(), deadline)


class StopTest(ProtocolTest):
    def test_streams_end_with_a_reason_when_the_server_stops(self):
        writer, sampler = InsertStream(self.channel), SampleStream(self.channel)
        sampler.send(pb.SampleRequest(request_id=1, table="jobs", count=1))
        self.server.process.terminate()
        for stream in (writer, sampler):
            code, text, status = stream.end()
            self.assertEqual(code, grpc.StatusCode.UNAVAILABLE, text)
            self.assertIn("server", text)
        self.assertEqual(self.server.process.wait(PATIENCE), 0)
