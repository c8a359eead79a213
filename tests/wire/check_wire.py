#!/usr/bin/env python3
"""Checks our encoding of the protocol against the protobuf library.

    check_wire.py --program build/dev/tests/wire/wire_samples --proto proto

The program writes a message of every type. The protobuf library parses each, compares its fields with the expected
ones, finds no unknown field, and serializes it again; the program reads that back. For messages with a field list the
program also writes the number, type and value of each field, and reverb.proto must have exactly these fields.
Exits with 77 (skipped) where protoc or Python's protobuf is missing.
"""

import argparse
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3"


def fail(text: str) -> None:
    raise SystemExit(f"check_wire: {text}")


def find_protobuf() -> bool:
    """Returns True if protobuf is available. Otherwise restarts in the system's interpreter, if that has it."""
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


def proto_type(field) -> str:
    """Returns the type of a field as wire_samples writes it."""
    kinds = importlib.import_module("google.protobuf.descriptor").FieldDescriptor
    names = {getattr(kinds, name): name[5:].lower() for name in dir(kinds) if name.startswith("TYPE_")}
    is_message = field.message_type is not None
    name = field.message_type.name if is_message else names[field.type]
    if field.label == field.LABEL_REPEATED:
        return "repeated_" + name
    return ("optional_" if field.has_presence and not is_message else "") + name


def shown(field, value) -> str:
    """Returns a value as wire_samples writes it."""
    if field.label == field.LABEL_REPEATED:
        return str(len(value)) if field.message_type is not None else ",".join(map(str, value))
    if field.message_type is not None:
        return "message"
    if isinstance(value, str | bytes):
        return "x" + (value.encode() if isinstance(value, str) else value).hex()
    return f"{value:.17g}" if isinstance(value, float) else str(int(value))


def check_fields(message, lines: list[str]) -> None:
    """Compares a message and its type with the fields that the program wrote."""
    listed: dict[str, set[str]] = {}  # the names in the lists, by message
    for line in lines:
        path, number, type_name, want = line.split(" ")
        if number == "0":
            continue  # computed, not sent
        *parents, last = re.findall(r"[^.]+", path)
        owner = message
        for parent in parents:
            name, _, index = parent.rstrip("]").partition("[")
            owner = getattr(owner, name)[int(index)] if index else getattr(owner, name)
        name, _, index = last.rstrip("]").partition("[")
        listed.setdefault(owner.DESCRIPTOR.name, set()).add(name)
        field = owner.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            fail(f"reverb.proto: {owner.DESCRIPTOR.name} has no field {name}")
        expect(f"reverb.proto: {owner.DESCRIPTOR.name}.{name}: number", field.number, int(number))
        if index:
            continue  # an element, whose fields follow
        expect(f"reverb.proto: {owner.DESCRIPTOR.name}.{name}: type", proto_type(field), type_name)
        if want == "absent":
            expect(path, owner.HasField(name), False)
        elif not (field.has_presence and field.message_type is None) or owner.HasField(name):
            expect(path, shown(field, getattr(owner, name)), want)
        else:
            fail(f"{path} is absent")

    def check_names(descriptor, seen: set[str]) -> None:
        if descriptor.name in seen:
            return
        seen.add(descriptor.name)
        names = {field.name for field in descriptor.fields} - {"checksum"}
        expect(f"{descriptor.name}: fields in reverb.proto", names, listed.get(descriptor.name, set()))
        for field in descriptor.fields:
            if field.message_type is not None:
                check_names(field.message_type, seen)

    check_names(message.DESCRIPTOR, set())


def check(name: str, message) -> None:
    if name == "InsertRequest.hello":
        expect("hello", (message.hello.min_version, message.hello.max_version), (1, 3))
        expect("hello.client_name", message.hello.client_name, "client_name")
    elif name == "InsertRequest.items":
        check_items(message)
    elif name == "SampleResponse.all":
        expect("welcome.version", message.welcome.version, 1)
        expect("end", (message.end.code, message.end.detail, message.end.message), (4, 1, "late"))
        check_samples(message.samples, message.pieces)
    elif name == "SampleResponse.shared":
        expect("samples", len(message.samples), 0)
        expect("keys", len(set(message.infos.key)), 4)
        expect("priorities", len(message.infos.priority), 4)
        slices = [(part.chunk_id, part.offset, part.length) for c in message.shared_columns for part in c.slices]
        expect("shared columns", slices, [(0, 0, 1), (1, 0, 1)])
        expect("rows of pieces", [piece.rows for piece in message.pieces], [4, 4])
    elif name == "InspectResponse.all":
        expect("next_cursor", message.next_cursor, 12)
        check_samples(message.items, message.pieces)
    elif name == "RowsRequest.all":
        expect("keys", [row.key for row in message.rows], ["a", "b", "c"])
        expect(
            "tags",
            [(tag.name, tag.kind, tag.text) for tag in message.rows[0].tags],
            [("split", 3, "math"), ("done", 0, "")],
        )
        expect("columns", list(message.call.columns), ["tokens", "reward"])
        expect("numbers of rows with data", [chunk.id for chunk in message.chunks], [1, 2])
        expect("chunks", [len(chunk.columns) for chunk in message.chunks], [2, 2])
    elif name == "RowsResponse.all":
        expect(
            "rows",
            [(row.key, list(row.num_segments)) for row in message.rows],
            [("a", [1, 1]), ("b", [1, 1]), ("c", [0, 0])],
        )
        expect("rows of pieces", [piece.rows for piece in message.pieces], [1, 1, 1, 1])
        for number, piece in enumerate(message.pieces):
            check_column(piece.column, piece.rows, len(piece.payload), f"piece {number}")
        expect("lease_id", message.result.lease_id, 5)
    elif name == "CallRequest.all":
        expect("call", (message.method, message.request), (3, b"abc"))
    elif name == "CallResponse.all":
        expect("status", (message.status.code, message.status.detail, message.status.message), (10, 2, "so"))
        expect("response", message.response, b"abc")
    elif name in ("ResetRequest.all", "RemoveTableRequest.all"):
        expect("table", message.table, "replay")
    elif name == "CheckpointResponse.all":
        expect("path", message.path, "/a/b")
    elif name == "Status.all":
        expect("status", (message.code, message.detail, message.message), (10, 2, "so"))
    else:
        fail(f"{name}: its content is not checked; add it to check()")


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
        files = sorted(file for file in messages.iterdir() if file.suffix != ".fields")
        for file in files:
            message = getattr(module, file.name.split(".")[0])()
            ours = file.read_bytes()
            message.ParseFromString(ours)
            fields = file.with_name(file.name + ".fields")
            if fields.exists():
                check_fields(message, fields.read_text().splitlines())
            else:
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
