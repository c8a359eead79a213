#!/usr/bin/env python3
"""Checks our encoding of the protocol against the protobuf library.

    check_wire.py --program build/dev/tests/wire/wire_samples --proto proto

The program writes a message of every type; the protobuf library parses each, compares fields with what is
known of them, finds no field that it does not know, and serialises anew; the program reads that back.
Exits with 77 (skipped) where protoc or Python's protobuf is missing.
"""

import argparse
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3"


def fail(text: str) -> None:
    raise SystemExit(f"check_wire: {text}")


def find_protobuf() -> bool:
    """True when it is here. Else the system's interpreter, which may have it, takes over."""
    try:
        importlib.import_module("google.protobuf")
        return True
    except ImportError:
        pass
    tried = os.environ.get("CHECK_WIRE_TRIED")
    if not tried and os.access(SYSTEM_PYTHON, os.X_OK):
        os.environ["CHECK_WIRE_TRIED"] = "1"
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    return False


def expect(name: str, got, want) -> None:
    if got != want:
        fail(f"{name} is {got!r}, not {want!r}")


def example_id(first: int) -> bytes:
    return bytes(range(first, first + 16))


def check_hello(hello) -> None:
    expect("hello.min_version", hello.min_version, 1)
    expect("hello.max_version", hello.max_version, 3)
    expect("hello.session_id", hello.session_id, example_id(7))
    expect("hello.client_name", hello.client_name, "actor-17")
    expect("hello.receive_window_bytes", hello.receive_window_bytes, 1 << 40)
    expect("hello.max_response_bytes", hello.max_response_bytes, 1 << 41)


def check_welcome(welcome) -> None:
    expect("welcome.version", welcome.version, 1)
    expect("welcome.server_life_id", welcome.server_life_id, example_id(100))
    expect("welcome.applied_through", welcome.applied_through, 1_000_000_007)
    expect("welcome.limits.insert_window_bytes", welcome.limits.insert_window_bytes, 1 << 26)
    expect("welcome.limits.max_item_bytes", welcome.limits.max_item_bytes, 1 << 27)


def check_column(column, rows: int, payload_size: int, where: str) -> None:
    expect(f"{where}: blocks", len(column.blocks), -(-rows // column.rows_per_block))
    expect(f"{where}: stored bytes", sum(block.stored_size for block in column.blocks), payload_size)
    for block in column.blocks:
        if block.stored_size > block.raw_size:
            fail(f"{where}: a block is stored larger than it is")


def check_items(request) -> None:
    expect("numbers", [item.number for item in request.items], [1, 2, 3, 4])
    expect("tables", [item.table for item in request.items], ["first", "", "second", ""])
    expect("priorities", {item.priority for item in request.items}, {0.25})
    expect("forget_chunks", list(request.forget_chunks), [1, 3])
    expect("heartbeat", request.heartbeat, True)
    expect("structures", list(request.structures), [b"\x01\x02\x01\x00"])
    expect(
        "structure",
        [item.structure if item.HasField("structure") else None for item in request.items],
        [None, 1, None, None],
    )
    chunks = {chunk.id: chunk for chunk in request.chunks}
    expect("chunks sent once", len(chunks), len(request.chunks))
    for chunk in request.chunks:
        expect("first_step", chunk.first_step, -3)
        expect("last_step", chunk.last_step, 16)
        expect("rows", chunk.rows, 20)
        expect("columns", len(chunk.columns), 12)
        expect("row_shape", list(chunk.columns[2].row_shape), [20, 20])
        stored = sum(block.stored_size for column in chunk.columns for block in column.blocks)
        expect("payload", len(chunk.payload), stored)
    for item in request.items:
        for column in item.columns:
            for part in column.slices:
                if part.chunk_id not in chunks or part.offset + part.length > 20:
                    fail(f"item {item.number} has a slice of rows that are not there")


def check_samples(samples, pieces) -> None:
    expect("samples", len(samples), 4)
    for number, piece in enumerate(pieces):
        check_column(piece.column, piece.rows, len(piece.payload), f"piece {number}")
    for sample in samples:
        expect("columns", len(sample.columns), 12)
        for column in sample.columns:
            for part in column.slices:
                if part.offset + part.length > pieces[part.chunk_id].rows:
                    fail("a sample has a slice of rows that are not there")


def check_info(info) -> None:
    expect("server_life_id", info.server_life_id, example_id(1))
    expect("max_bytes", (info.HasField("max_bytes"), info.max_bytes), (True, 0))
    expect("times", (info.now_nanos, info.started_nanos), (18 * 10**17, 18 * 10**17 - 10**9))
    waiter = info.waiters[0]
    expect("waiter", (waiter.table, waiter.is_insert, waiter.reason, waiter.count), ("replay", True, 3, 8))
    expect("waiter", (waiter.client_name, waiter.address), ("actor-17", "192.0.2.1:1234"))
    table = info.tables[0]
    expect("name", table.name, "replay")
    expect("sampler", (table.sampler.kind, table.sampler.priority_exponent), (6, 0.8))
    expect("max_times_sampled", table.max_times_sampled, -1)
    expect("rate_limiter.max_diff", table.rate_limiter.max_diff, 50)
    expect("current_size", table.current_size, 101)
    expect("deletes", table.deletes, 107)
    expect("idle_nanos", table.idle_nanos, 121)
    expect("waits", [(w.reason, w.count, w.total_nanos) for w in table.waits], [(i, i, 1000 * i) for i in range(1, 6)])
    expect("closed", table.closed, True)
    expect("user_data", table.user_data, b"bounds\0and more")
    expect("structure", table.structure, b"\x01\x02\x01\x00")
    plain = info.tables[1]
    expect("structure", (plain.HasField("structure"), plain.structure), (True, b""))


def check(name: str, message) -> None:
    if name == "InsertRequest.hello":
        check_hello(message.hello)
    elif name == "InsertRequest.items":
        check_items(message)
    elif name == "InsertResponse.all":
        check_welcome(message.welcome)
        expect("confirmed_through", message.confirmed_through, 300)
        rejections = [(r.number, r.status.code, r.status.detail) for r in message.rejections]
        expect("rejections", rejections, [(299, 5, 0), (300, 3, 4)])
        expect("waiting", (message.waiting.reason, message.waiting.nanos), (3, 1_500_000_000))
    elif name == "SampleRequest.all":
        check_hello(message.hello)
        expect("timeout", (message.HasField("timeout_nanos"), message.timeout_nanos), (True, 0))
        expect("numbers", (message.request_id, message.count), (5, 1000))
        expect("even_columns", message.even_columns, True)
    elif name == "SampleResponse.all":
        check_welcome(message.welcome)
        expect("end", (message.end.code, message.end.detail, message.end.message), (4, 1, "late"))
        check_samples(message.samples, message.pieces)
    elif name == "SampleResponse.even":
        expect("columns of samples", [len(sample.columns) for sample in message.samples], [0, 0, 0, 0])
        slices = [(part.chunk_id, part.offset, part.length) for c in message.even_columns for part in c.slices]
        expect("even columns", slices, [(0, 0, 1), (1, 0, 1)])
        expect("rows of pieces", [piece.rows for piece in message.pieces], [4, 4])
    elif name == "InspectResponse.all":
        expect("next_cursor", message.next_cursor, 12)
        check_samples(message.items, message.pieces)
    elif name == "InspectRequest.all":
        expect("numbers", (message.cursor, message.count), (1000, 50))
    elif name == "MutatePrioritiesRequest.all":
        expect("updates", [(u.key, u.priority) for u in message.updates], [(1, 2.5), (2**64 - 1, 0), (0, 0)])
        expect("deletes", list(message.deletes), [3, 0, 2**63])
    elif name == "SetRateLimiterRequest.all":
        expect("max_diff", message.rate_limiter.max_diff, 1e300)
    elif name == "InfoResponse.all":
        check_info(message)
    elif name == "ResetRequest.all":
        expect("table", message.table, "replay")
    elif name == "CheckpointResponse.all":
        expect("path", message.path, "/a/b")
    elif name == "Status.all":
        expect("status", (message.code, message.detail, message.message), (10, 2, "so"))
    else:
        fail(f"{name}: nobody said what is in it")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--proto", required=True, type=pathlib.Path)
    args = parser.parse_args()
    if shutil.which("protoc") is None:
        print("skipped: protoc is not installed (package protobuf-compiler)")
        return SKIPPED
    if not find_protobuf():
        print("skipped: Python has no protobuf (package python3-protobuf)")
        return SKIPPED

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        proto = args.proto / "reverb/v1/reverb.proto"
        subprocess.run(["protoc", f"--proto_path={args.proto}", f"--python_out={folder}", proto], check=True)
        sys.path.insert(0, str(folder))
        module = importlib.import_module("reverb.v1.reverb_pb2")

        messages = folder / "messages"
        messages.mkdir()
        subprocess.run([args.program, "write", messages], check=True)
        files = sorted(messages.iterdir())
        for file in files:
            message = getattr(module, file.name.split(".")[0])()
            ours = file.read_bytes()
            message.ParseFromString(ours)
            check(file.name, message)
            theirs = message.SerializeToString(deterministic=True)
            # Unknown fields would be written back; without them the length must be the same.
            message.DiscardUnknownFields()
            expect(f"{file.name}: bytes without unknown fields", message.ByteSize(), len(ours))
            file.write_bytes(theirs)
        if subprocess.run([args.program, "read", messages], check=False).returncode != 0:
            fail("the program does not read what protobuf wrote")
    print(f"{len(files)} messages agree with protobuf")
    return 0


if __name__ == "__main__":
    sys.exit(main())
