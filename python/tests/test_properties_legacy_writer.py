"""Tests that Writer agrees with slices of a list."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
from profiles import bounded
import pytest
import transports

import reverb

operations = st.lists(
    st.one_of(
        st.tuples(st.just("append")),
        st.tuples(st.just("append_sequence"), st.integers(0, 5)),
        st.tuples(st.just("create_item"), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("create_item"), st.integers(1, 4), st.integers(0, 9)),
        st.tuples(st.just("flush")),
    ),
    max_size=30,
)


@pytest.fixture(scope="module", params=transports.ALL)
def client(request):
    with reverb.Server([reverb.Table.queue("queue", 100_000), reverb.Table.queue("other", 100_000)]) as server:
        yield transports.connect(server, request.param)


@bounded(150)
@given(
    operations=operations,
    max_sequence_length=st.integers(1, 8),
    chunk_length=st.none() | st.integers(1, 8),
    delta_encoded=st.booleans(),
    max_in_flight_items=st.sampled_from([None, 1, 2, 25]),
)
def test_items_are_the_last_steps(
    client, operations, max_sequence_length, chunk_length, delta_encoded, max_in_flight_items
):
    for table in ("queue", "other"):
        client.reset(table)
    if chunk_length is not None:
        chunk_length = min(chunk_length, max_sequence_length)
    writer = client.writer(max_sequence_length, delta_encoded, chunk_length, max_in_flight_items)
    steps, items = [], {"queue": [], "other": []}

    def step(i):
        return {"image": np.arange(4, dtype=np.int16).reshape(2, 2) + i, "name": f"step {i}", "number": float(i)}

    for name, *arguments in operations:
        if name == "append":
            writer.append(step(len(steps)))
            steps.append(len(steps))
        elif name == "append_sequence":
            (count,) = arguments
            new = [step(len(steps) + i) for i in range(count)]
            sequence = {
                "image": np.zeros((0, 2, 2), np.int16),
                "name": np.empty(0, object),
                "number": np.zeros(0),
            }
            if new:
                sequence = {key: np.stack([each[key] for each in new]) for key in sequence}
            writer.append_sequence(sequence)
            steps += range(len(steps), len(steps) + count)
        elif name == "create_item":
            length, priority = arguments
            table = "queue" if priority % 3 else "other"
            if 1 <= length <= min(len(steps), max_sequence_length):
                writer.create_item(table, length, priority)
                items[table].append((steps[-length:], float(priority)))
            else:
                with pytest.raises(ValueError):
                    writer.create_item(table, length, priority)
        else:
            writer.flush()
            sizes = {name: info.current_size for name, info in client.server_info().items()}
            assert sizes == {name: len(each) for name, each in items.items()}
    writer.close()
    with pytest.raises(RuntimeError):
        writer.append(step(0))
    for table, expected in items.items():
        assert client.server_info()[table].current_size == len(expected)
        if not expected:
            continue
        samples = client.sample(table, len(expected), emit_timesteps=False, timeout=30)
        for sample, (numbers, priority) in zip(samples, expected, strict=True):
            image, name, number = sample.data
            assert number.tolist() == numbers
            assert name.tolist() == [f"step {i}".encode() for i in numbers]
            assert image[:, 1, 1].tolist() == [i + 3 for i in numbers]
            assert sample.info.priority == priority


@bounded(60)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), chunk_length=st.integers(1, 12))
def test_steps_come_one_by_one(client, lengths, chunk_length):
    client.reset("queue")
    with client.writer(12, chunk_length=chunk_length) as writer:
        for i in range(12):
            writer.append([i, np.full(2, -i)])
        for length in lengths:
            writer.create_item("queue", length, 1.0)
    for item, length in zip(client.sample("queue", len(lengths), timeout=30), lengths, strict=True):
        assert [int(step.data[0]) for step in item] == list(range(12 - length, 12))
        assert {id(step.info) for step in item} == {id(item[0].info)}
