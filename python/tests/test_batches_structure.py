"""Tests Client.sample_batches for tables without a signature: batches have the structure that the writers used."""

from __future__ import annotations

import collections
import logging

from conftest import make_table
import numpy as np
import pytest
import transports

import reverb

Pair = collections.namedtuple("Pair", ["second", "first"])


def one_batch(client, table="table", size=2, **arguments):
    return next(client.sample_batches(table, size, num_batches=1, **arguments))


def write(client, make_item, *, steps=3, table="table"):
    """Writes an item of the history {"x", "y": {"z"}} after each step, with the structure of make_item(history)."""
    with client.trajectory_writer(2) as writer:
        for i in range(steps):
            writer.append({"x": np.full(2, i, np.float32), "y": {"z": np.int64(i)}})
            writer.create_item(table, 1.0, make_item(writer.history))


NESTS = {
    "dict": lambda h: {"b": h["x"][-1:], "a": h["y"]["z"][-1]},
    "nested": lambda h: {"obs": {"pixels": h["x"][-1], "more": [h["y"]["z"][-1:]]}, "empty": {}, "act": (h["x"][-1],)},
    "list": lambda h: [h["x"][-1], h["y"]["z"][-1]],
    "tuple": lambda h: (h["x"][-1], [h["y"]["z"][-1]]),
    "namedtuple": lambda h: Pair(second=h["x"][-1], first={"z": h["y"]["z"][-1]}),
    "one column": lambda h: h["x"][-1:],
    "names": lambda h: {"ä/b": h["x"][-1], "": h["y"]["z"][-1], "A": h["x"][-1]},
}


def without_values(nest):
    """Returns the nest with the shape of each array; namedtuples as their name and fields."""
    if isinstance(nest, dict):
        return {key: without_values(value) for key, value in nest.items()}
    if hasattr(nest, "_fields"):
        return (type(nest).__name__, *((name, without_values(getattr(nest, name))) for name in nest._fields))
    if isinstance(nest, (list, tuple)):
        return type(nest)(without_values(value) for value in nest)
    return nest.shape


def without_first_dimension(nest):
    """Returns the nest of shapes of one item, given that of a batch."""
    if isinstance(nest, dict):
        return {key: without_first_dimension(value) for key, value in nest.items()}
    if isinstance(nest, tuple) and nest and all(isinstance(value, int) for value in nest):
        return nest[1:]
    if isinstance(nest, (list, tuple)):
        return type(nest)(without_first_dimension(value) for value in nest)
    return nest


@pytest.mark.parametrize("name", NESTS)
def test_a_batch_has_the_structure_that_the_writer_used(client, name):
    write(client, NESTS[name])
    batch = one_batch(client, size=3)
    expected = {
        "dict": {"a": (3,), "b": (3, 1, 2)},
        "nested": {"act": ((3, 2),), "empty": {}, "obs": {"more": [(3, 1)], "pixels": (3, 2)}},
        "list": [(3, 2), (3,)],
        "tuple": ((3, 2), [(3,)]),
        "namedtuple": ("Pair", ("second", (3, 2)), ("first", {"z": (3,)})),
        "one column": (3, 1, 2),
        "names": {"": (3,), "A": (3, 2), "ä/b": (3, 2)},
    }
    assert without_values(batch.data) == expected[name]
    # client.sample() returns flat lists, as in dm-reverb, unless it is asked for names.
    for flat in ({}, {"unpack_as_table_signature": True}):
        assert isinstance(next(client.sample("table", emit_timesteps=False, **flat)).data, list)
    sample = next(client.sample("table", emit_timesteps=False, names=True))
    assert without_values(sample.data) == without_first_dimension(expected[name])
    (item,) = client.peek("table")
    data = item.data[0] if name == "one column" else item.data  # a list, as there are no names
    assert without_values(data) == without_first_dimension(expected[name])


def test_steps_and_several_samples_have_names(two_clients):
    for client in two_clients:
        client.insert({"x": 1, "y": {"z": 2.0}}, {"table": 1.0})
        ((step,), (other,)) = client.sample("table", 2, names=True)
        assert step.data == other.data == {"x": 1, "y": {"z": 2.0}}
    client.insert({"x": 1}, {"any": 1.0})
    client.insert([1, 2], {"any": 1.0})
    assert isinstance(next(client.sample("any", names=True))[0].data, list)
    assert [type(item.data) for item in client.peek("any", 2)] == [list, list]
    with pytest.raises(ValueError, match='Could not find table "nowhere"'):
        next(client.sample("nowhere", names=True))


def test_a_peek_and_a_sample_have_the_structure_of_the_signature(serve, connect):
    client = connect(serve(make_table(signature={"a": reverb.TensorSpec((None,), np.int64)})))
    client.insert({"b": 1}, {"table": 1.0})
    assert set(client.peek("table")[0].data) == {"a"}
    assert set(next(client.sample("table", names=True))[0].data) == {"a"}


def test_errors_name_the_column(two_clients):
    client = two_clients[0]
    with client.trajectory_writer(2) as writer:
        for length in (1, 2):
            writer.append({"reward": 1.0, "action": 1})
            history = writer.history
            nest = {"reward": history["reward"][-length:], "action": history["action"][-1:]}
            writer.create_item("table", 1.0, nest)
            writer.create_item("queue", 1.0, nest)
    expected = r"sample 1 \(key \d+\), column 'reward': it is float64\[2\] while the batch has float64\[1\]; set `pad`"
    with pytest.raises(ValueError, match=expected):
        one_batch(client, "queue")


def test_values_are_where_they_belong(client):
    write(client, lambda h: {"b": h["x"][-1], "a": {"z": h["y"]["z"][-1]}}, steps=1)
    data = one_batch(client).data
    np.testing.assert_array_equal(data["a"]["z"], [0, 0])
    np.testing.assert_array_equal(data["b"], np.zeros((2, 2), np.float32))
    assert data["b"].dtype == np.float32


def test_insert_sends_its_structure(client):
    for i in range(3):
        client.insert({"obs": np.full(2, i), "info": (i, Pair(1.0, 2.0))}, {"table": 1.0, "queue": 1.0})
    expected = {"info": ((3, 1), ("Pair", ("second", (3, 1)), ("first", (3, 1)))), "obs": (3, 1, 2)}
    assert without_values(one_batch(client, size=3).data) == expected
    assert without_values(one_batch(client, "queue", size=3).data) == expected


def test_insert_of_a_single_value(client):
    client.insert(np.float32(2), {"table": 1.0})
    assert one_batch(client).data.tolist() == [[2.0], [2.0]]


def test_the_legacy_writer_sends_its_structure(client):
    with client.writer(2) as writer:
        for i in range(3):
            writer.append({"x": i, "y": [np.zeros(2)]})
        writer.create_item("table", 2, 1.0)
    assert without_values(one_batch(client).data) == {"x": (2, 2), "y": [(2, 2, 2)]}


def test_the_vector_writer_sends_its_structure(client):
    with client.vector_writer(num_envs=3, num_keep_alive_refs=1) as writer:
        writer.append({"x": np.arange(3), "y": np.zeros((3, 2))})
        writer.create_items("table", 1.0, {"then": {"y": writer.history["y"][-1]}, "now": writer.history["x"][-1:]})
    assert without_values(one_batch(client, size=3).data) == {"now": (3, 1), "then": {"y": (3, 2)}}


def test_the_structured_writer_sends_its_structure(client):
    pattern = reverb.structured.pattern_from_transform(
        {"x": None, "y": None}, lambda ref: {"last": ref["x"][-1], "both": Pair(ref["x"][-2:], ref["y"][-1])}
    )
    config = reverb.structured.create_config(pattern, table="table")
    with client.structured_writer([config]) as writer:
        for i in range(3):
            writer.append({"x": i, "y": np.zeros(2)})
    expected = {"both": ("Pair", ("second", (2, 2)), ("first", (2, 2))), "last": (2,)}
    assert without_values(one_batch(client).data) == expected


def test_padded_batches_have_it_too(client):
    with client.trajectory_writer(3) as writer:
        for length in (1, 3):
            for i in range(length):
                writer.append({"x": i})
            writer.create_item("table", 1.0, {"nest": [writer.history["x"][-length:]]})
            writer.end_episode()
    batches = client.sample_batches("table", 8, pad=True)
    batch = next(batches)
    assert without_values(batch.data) == {"nest": [(8, int(batch.lengths["nest"][0].max()))]}
    assert without_values(batch.lengths) == {"nest": [(8,)]}


@pytest.fixture(params=transports.ALL)
def two_clients(serve, request):
    """Two clients of a server with the tables "table" and "queue", and with "any" and "any_queue" of layout="any"."""
    server = serve(
        make_table(), reverb.Table.queue("queue", 100), make_table("any", layout="any"),
        reverb.Table.queue("any_queue", 100, layout="any"),
    )  # fmt: skip
    return [transports.connect(server, request.param) for _ in range(2)]


def test_the_table_keeps_its_first_layout(two_clients):
    client, other = two_clients
    write(client, lambda h: {"x": h["x"][-1]})
    # The same layout from another writer, and other lengths, are not a difference.
    write(other, lambda h: {"x": h["x"][-1]})
    write(client, lambda h: {"x": h["x"][-1:]})
    expected = (
        r'table "table": the item has the layout \{y: float32\}, but the table has \{x: float32\}, that of its first '
        r'item; .* layout="any"'
    )
    for each in (client, other):
        with pytest.raises(ValueError, match=expected):
            write(each, lambda h: {"y": h["x"][-1]})
    with pytest.raises(ValueError, match=r"\{x: int64\}, but the table has \{x: float32\}"):
        write(client, lambda h: {"x": h["y"]["z"][-1]})
    with pytest.raises(ValueError, match=r"layout \{x: float32, y: float32\}"):
        write(client, lambda h: {"x": h["x"][-1], "y": h["x"][-1]})
    assert client.server_info()["table"].current_size == 9


def test_batches_stay_dicts_after_a_refused_item(two_clients):
    client, other = two_clients
    batches = client.sample_batches("queue", 1)
    client.insert({"x": 1}, {"queue": 1.0})
    assert set(next(batches).data) == {"x"}
    with pytest.raises(ValueError, match="layout"):
        other.insert({"y": 1}, {"queue": 1.0})
    with pytest.raises(ValueError, match="layout"):
        other.insert([1, 2], {"queue": 1.0})
    client.insert({"x": 2}, {"queue": 1.0})  # the queue was drained in between
    assert next(batches).data["x"].tolist() == [[2]]
    with pytest.raises(ValueError, match="layout"):
        other.insert({"y": 1}, {"queue": 1.0})


def test_a_refused_item_ends_its_writer_and_no_earlier_item_is_lost(two_clients):
    client = two_clients[0]
    writer = client.trajectory_writer(1)
    writer.append({"x": 1})
    writer.create_item("table", 1.0, {"x": writer.history["x"][-1]})
    writer.create_item("queue", 1.0, {"z": writer.history["x"][-1]})
    expected = r"\{y: int64\}, but the table has \{x: int64\}.*make a new one"
    with pytest.raises(ValueError, match=expected):  # in one process already when it is created
        writer.create_item("table", 1.0, {"y": writer.history["x"][-1]})
        writer.flush()
    with pytest.raises(ValueError, match=expected):
        writer.end_episode()
    writer.close()
    info = client.server_info()
    assert (info["table"].current_size, info["queue"].current_size) == (1, 1)
    assert without_values(one_batch(client).data) == {"x": (2,)}
    assert without_values(one_batch(client, "queue", size=1).data) == {"z": (1,)}


def test_a_list_is_like_a_tuple(client):
    client.insert([1, 2.0], {"table": 1.0})
    client.insert((1, 2.0), {"table": 1.0})
    assert without_values(one_batch(client).data) == [(2, 1), (2, 1)]


def test_any_layout_is_accepted_on_request(two_clients, caplog):
    client, other = two_clients
    assert (client.server_info()["any"].layout, client.server_info()["table"].layout) == ("any", "first")
    client.insert({"x": 1}, {"any": 1.0})
    assert isinstance(one_batch(client, "any").data, dict)
    with caplog.at_level(logging.INFO, logger="reverb"):
        for _ in range(2):
            other.insert({"y": 1}, {"any": 1.0})
    assert isinstance(one_batch(client, "any").data, list)
    assert len([record for record in caplog.records if "different layout" in record.getMessage()]) == 1


def test_a_reset_makes_room_for_another(client):
    client.insert({"x": 1}, {"table": 1.0})
    with pytest.raises(ValueError, match="layout"):
        client.insert({"y": 1}, {"table": 1.0})
    client.reset("table")
    for _ in range(2):  # the writer that sent it before the reset sends it again
        client.insert({"x": 1}, {"table": 1.0})
    assert set(one_batch(client).data) == {"x"}
    client.reset("table")
    client.insert({"y": 1.5}, {"table": 1.0})
    assert set(one_batch(client).data) == {"y"}


def test_items_that_do_not_match_are_flat(two_clients):
    client = two_clients[0]
    numbers = {1: 1, 2: 2, 3: 3}  # such keys cannot be encoded
    for step in (numbers, {"x": 1, "y": 2}, numbers, {"x": 1, "y": 2}):
        client.insert(step, {"any_queue": 1.0})
    kinds = [type(batch.data) for batch in client.sample_batches("any_queue", 1, num_batches=4)]
    assert kinds == [list, dict, list, dict]


def test_unknown_names_are_not_compared(client):
    client.insert({1: 1, 2: 2}, {"table": 1.0})  # such keys cannot be encoded
    assert isinstance(one_batch(client).data, list)
    client.insert({"x": 1, "y": 2}, {"table": 1.0})
    assert set(one_batch(client).data) == {"x", "y"}
    client.insert({1: 1, 2: 2}, {"table": 1.0})
    with pytest.raises(ValueError, match=r"layout \[int64\], but the table has \{x: int64, y: int64\}"):
        client.insert({1: 1}, {"table": 1.0})


@pytest.mark.parametrize("value", ["all", "", None, 1, b"any"])
def test_a_layout_is_one_of_two_words(value):
    with pytest.raises(ValueError, match="must be 'first' or 'any'"):
        make_table(layout=value)


def test_replace_keeps_the_layout():
    table = make_table(layout="any")
    assert table.replace(max_size=5).info.layout == "any"
    assert table.replace(layout="first").info.layout == "first"
    assert reverb.Table.stack("s", 5, layout="any").info.layout == "any"


def test_structures_that_cannot_be_encoded_are_flat(client):
    deep = 1
    for _ in range(100):
        deep = [deep]
    for nest in ({1: 1.0}, deep, {"x" * 2000: 1}, {f"{i:01000}": 1 for i in range(100)}):
        client.reset("table")
        client.insert(nest, {"table": 1.0})
        assert isinstance(one_batch(client).data, list)


def test_a_signature_takes_precedence(serve, connect):
    table = make_table(signature={"a": reverb.TensorSpec((None,), np.int64)})
    client = connect(serve(table))
    client.insert({"b": 1}, {"table": 1.0})
    assert set(one_batch(client).data) == {"a"}


def test_a_checkpoint_keeps_it(tmp_path):
    def start():
        tables = [make_table("one"), make_table("two", layout="any"), make_table("none")]
        return reverb.Server(tables, checkpointer=reverb.checkpointers.DefaultCheckpointer(str(tmp_path)))

    with start() as first:
        client = first.localhost_client()
        client.insert({"x": 1, "y": Pair(1, 2)}, {"one": 1.0, "two": 1.0})
        client.insert([1, 2, 3], {"two": 1.0})
        client.checkpoint()
    (item,) = (item for item in reverb.checkpoints.read(tmp_path, "one"))
    assert without_values(item.data) == {"x": (1,), "y": ("Pair", ("second", (1,)), ("first", (1,)))}
    assert isinstance(next(reverb.checkpoints.read(tmp_path, "one", flat=True)).data, list)
    assert [type(item.data) for item in reverb.checkpoints.read(tmp_path, "two")] == [list, list]
    assert reverb.checkpoints.info(tmp_path).tables["two"].layout == "any"
    with start() as second:
        client = second.localhost_client()
        expected = {"x": (2, 1), "y": ("Pair", ("second", (2, 1)), ("first", (2, 1)))}
        assert without_values(one_batch(client, "one").data) == expected
        assert isinstance(one_batch(client, "two").data, list)
        with pytest.raises(ValueError, match=r"\{x: float64, y: Pair\(second=int64, first=int64\)\}, but the table has"):
            client.insert({"x": 1.5, "y": Pair(1, 2)}, {"one": 1.0})
        client.insert({"z": 1}, {"none": 1.0})
        assert set(one_batch(client, "none").data) == {"z"}
        client.checkpoint()
    with start() as third:
        client = third.localhost_client()
        assert isinstance(one_batch(client, "two").data, list)
        assert set(one_batch(client, "one").data) == {"x", "y"}


def test_a_reconnected_writer_sends_it_again():
    """Uses a socket, and a server that restarts without its state."""
    with reverb.Server([make_table()]) as server:
        port = server.port
        client = reverb.Client(f"localhost:{port}", in_process=False, local=False)
        writer = client.trajectory_writer(1)
        writer.append({"x": 1})
        writer.create_item("table", 1.0, {"x": writer.history["x"][-1]})
        writer.flush()
    with reverb.Server([make_table()], port):
        writer.append({"x": 2})
        writer.create_item("table", 1.0, {"x": writer.history["x"][-1]})
        writer.flush()
        assert without_values(one_batch(client).data) == {"x": (2,)}
        writer.close()


@pytest.mark.parametrize("transport", transports.ALL)
def test_several_servers(serve, transport):
    servers = [serve(make_table()) for _ in range(2)]
    singles = [transports.connect(server, transport) for server in servers]
    both = reverb.Client([f"localhost:{server.port}" for server in servers], **transports.OPTIONS[transport])
    for client in singles:
        client.insert({"x": 1}, {"table": 1.0})
    assert without_values(one_batch(both, size=4).data) == {"x": (4, 1)}
    singles[1].reset("table")
    singles[1].insert({"y": 1}, {"table": 1.0})
    assert isinstance(one_batch(both, size=4).data, list)
    singles[1].reset("table")
    singles[1].insert({"x": 1}, {"table": 1.0})
    assert isinstance(one_batch(both, size=4).data, dict)
