"""Tests reverb.mix: batches from servers, checkpoints and other iterables."""

import itertools
import pickle

from conditions import next_in_time
from conftest import make_table
from hypothesis import example, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

import reverb
from reverb import checkpointers, checkpoints
from reverb.replay_sample import PaddedBatch


def insert(client, values, table="table"):
    for value in values:
        client.insert({"x": np.float32(value), "n": {"y": np.int64(value)}}, {table: abs(float(value)) + 1})


@pytest.fixture
def reader(tmp_path):
    """Ten items: 100 to 109."""
    with reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(tmp_path)) as server:
        insert(server.localhost_client(), range(100, 110))
        server.localhost_client().checkpoint()
    return checkpoints.read(tmp_path, "table")


def batches_of(values, size=4, dtype=np.float32, name="x"):
    """Returns batches as sample_batches() does."""
    made = []
    for first in range(0, len(values), size):
        some = np.array(values[first : first + size])
        n = len(some)
        info = reverb.SampleInfo(
            some.astype(np.uint64), np.full(n, 0.5), np.full(n, 2), np.ones(n), np.zeros(n, np.int32)
        )
        data = {name: some.astype(dtype)[:, None], "n": {"y": some.astype(np.int64)[:, None]}}
        made.append(reverb.ReplaySample(info, data))
    return made


def test_online_and_offline(client, reader):
    insert(client, range(10))
    batches = list(reverb.mix({client: 0.75, reader: 0.25}, batch_size=8, table="table", num_batches=6))
    assert len(batches) == 6
    assert [batch.source.tolist() for batch in batches] == [[0] * 6 + [1] * 2] * 6
    offline = [x for batch in batches for x in batch.data["x"][batch.source == 1, 0].tolist()]
    assert offline == [100 + i % 10 for i in range(12)]  # repeated from the start
    for batch in batches:
        assert isinstance(batch, reverb.ReplaySample)
        assert batch.data["x"].shape == (8, 1)
        assert batch.data["x"].dtype == np.float32
        np.testing.assert_array_equal(batch.data["n"]["y"], batch.data["x"].astype(np.int64))
        np.testing.assert_array_equal(batch.info.priority, np.abs(batch.data["x"][:, 0]) + 1)
        assert batch.info.table_size.tolist() == [10] * 8
        assert batch.info.probability[6:].tolist() == [0.1] * 2
    # Priorities go to the server that the items are from.
    online = batches[0].info.key[batches[0].source == 0]
    client.update_priorities("table", online, np.full(len(online), 50.0))
    assert 50.0 in {sample.info.priority for sample in client.peek("table", 10)}


def test_shares_that_are_not_whole_numbers_of_items(client, reader):
    insert(client, range(10))
    batches = reverb.mix([(client, 2 / 3), (reader, 1 / 3)], batch_size=4, table="table", num_batches=30)
    counts = [int((batch.source == 1).sum()) for batch in batches]
    assert sum(counts) == 40
    assert set(counts) == {1, 2}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=12), st.integers(1, 40), st.integers(1, 60))
@example([0.0125, 0.0125, 0.0125, 1, 1], 3, 60)  # giving items to the source furthest behind is off by 1.06
def test_no_source_is_ever_off_by_an_item(weights, batch_size, num_batches):
    shares = np.array(weights) / np.sum(weights)
    sources = [(batches_of(range(7)), float(share)) for share in shares]
    totals = np.zeros(len(shares))
    for step, batch in enumerate(reverb.mix(sources, batch_size, num_batches=num_batches), 1):
        totals += np.bincount(batch.source, minlength=len(shares))
        assert len(batch.source) == batch_size
        assert np.all(np.abs(totals - shares * batch_size * step) < 1)


def test_annealed_shares(reader):
    online = batches_of(range(5))
    schedule = lambda step: max(0.0, 1 - step / 4)  # noqa: E731
    batches = reverb.mix([(online, None), (reader, schedule)], batch_size=8, num_batches=6)
    assert [int((batch.source == 1).sum()) for batch in batches] == [8, 6, 4, 2, 0, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 16))
def test_annealed_totals_follow_the_shares(schedule, batch_size):
    sources = [(batches_of([1]), lambda step: schedule[step]), (batches_of([2]), None)]
    batches = reverb.mix(sources, batch_size, num_batches=len(schedule))
    taken = np.cumsum([(batch.source == 0).sum() for batch in batches])
    assert np.all(np.abs(taken - np.cumsum(np.array(schedule) * batch_size)) <= 0.5 + 1e-6)


def test_a_share_of_zero_gives_nothing():
    # Rounding owes the first source something when its share ends, but it may have nothing by then.
    shares = [(0.4, 0.6, 0.0), (0.0, 0.8, 0.2), (0.0, 0.35, 0.65)]
    sources = [(batches_of([i]), lambda step, i=i: shares[step][i]) for i in range(3)]
    chosen = [batch.source.tolist() for batch in reverb.mix(sources, 1, num_batches=3)]
    assert chosen == [[1], [1], [2]]


def test_the_end_of_a_source(reader):
    def generator():
        yield from batches_of(range(10))

    # What cannot be repeated ends it; an incomplete batch is dropped.
    batches = list(reverb.mix([(generator(), 0.5), (reader, 0.5)], batch_size=6))
    assert [batch.data["x"][:3, 0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    once = reverb.mix([(batches_of(range(100)), 0.5), (reader, 0.5)], batch_size=6, repeat=False)
    assert len(list(once)) == 3
    assert list(once) == []
    forever = reverb.mix([(batches_of(range(5)), 1.0)], batch_size=3)
    assert [batch.data["x"][0, 0] for batch in itertools.islice(forever, 5)] == [0, 3, 1, 4, 2]
    nothing = reverb.ReplaySample(reverb.SampleInfo(*[np.zeros(0)] * 5), {"x": np.zeros((0, 1), np.float32)})
    for empty in ([], [nothing], [nothing, nothing]):
        with pytest.raises(ValueError, match="empty"):
            next(reverb.mix([(empty, 1.0)], batch_size=2))


def test_batches_belong_to_the_caller(reader):
    given = batches_of(range(4))
    for shuffle in (False, True):
        for batch in reverb.mix([(given, 1.0)], batch_size=4, num_batches=2, shuffle=shuffle, seed=1):
            assert sorted(batch.data["x"][:, 0].tolist()) == [0, 1, 2, 3]
            batch.data["x"] += 100
            batch.info.priority[:] = 7
    assert given[0].data["x"][:, 0].tolist() == [0, 1, 2, 3]
    assert given[0].info.priority.tolist() == [1] * 4
    (batch,) = reverb.mix({reader: 1}, batch_size=4, num_batches=1)
    batch.data["x"] += 1


def test_batches_without_items_are_skipped():
    full, (nothing,) = batches_of(range(4), 2), [reverb.ReplaySample(reverb.SampleInfo(*[np.zeros(0)] * 5), {})]
    batches = reverb.mix([([full[0], nothing, full[1]], 1.0)], batch_size=3, num_batches=2)
    assert [batch.data["x"][:, 0].tolist() for batch in batches] == [[0, 1, 2], [3, 0, 1]]


def test_an_empty_table_of_a_checkpoint(tmp_path):
    with reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(tmp_path)) as server:
        server.localhost_client().checkpoint()
    with pytest.raises(ValueError, match="empty"):
        next(reverb.mix({checkpoints.read(tmp_path, "table"): 1}, batch_size=2))


def test_a_wait_that_times_out_loses_nothing(client, reader):
    batches = reverb.mix([(reader, 0.5), ((client, "queue"), 0.5)], batch_size=4, timeout=0.05)
    insert(client, [1], "queue")
    with pytest.raises(reverb.DeadlineExceededError):
        next(batches)
    insert(client, [2], "queue")
    batch = next_in_time(batches)
    assert batch.data["x"][:, 0].tolist() == [100, 101, 1, 2]
    batches.close()
    with pytest.raises(StopIteration):
        next(batches)


def test_the_end_of_a_source_takes_nothing_from_a_queue(client, reader):
    insert(client, range(10), "queue")
    # The reader ends with the fifth batch; the empty queue must not be waited for.
    batches = reverb.mix([((client, "queue"), 0.5), (reader, 0.5)], batch_size=4, repeat=False, timeout=10)
    assert len(list(batches)) == 5
    assert client.server_info()["queue"].current_size == 0
    insert(client, range(3), "queue")
    batches = reverb.mix([((client, "queue"), 0.5), (batches_of([]), 0.5)], batch_size=4, repeat=False)
    assert list(batches) == []
    batches = reverb.mix([((client, "queue"), 0.5), (batches_of([]), 0.5)], batch_size=4)
    with pytest.raises(ValueError, match="empty"):
        next(batches)
    batches.close()
    assert client.server_info()["queue"].current_size == 3
    # The same with an iterator over batches of the queue.
    taken = client.sample_batches("queue", 2, timeout=10)
    assert list(reverb.mix([(taken, 0.5), (batches_of([]), 0.5)], batch_size=4, repeat=False)) == []
    assert client.server_info()["queue"].current_size == 3


# --- Items of different lengths ---


def write_lengths(client, lengths, table="table"):
    """Writes items {"x": [n], "text": [n], "last": []}: the numbers from 1 to n, and n."""
    with client.trajectory_writer(num_keep_alive_refs=10) as writer:
        for length in lengths:
            for step in range(1, length + 1):
                writer.append({"x": np.int32(step), "text": str(step).encode(), "last": np.full(2, step)})
            history = writer.history
            item = {"x": history["x"][:], "text": history["text"][:], "last": history["last"][-1]}
            writer.create_item(table, 1.0, item)
            writer.end_episode()


@pytest.fixture
def make_reader(tmp_path):
    """make_reader(lengths, ...) returns a reader of such items."""

    def make(lengths, **more):
        with reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(tmp_path)) as server:
            write_lengths(server.localhost_client(), lengths)
            server.localhost_client().checkpoint()
        return checkpoints.read(tmp_path, "table", **more)

    return make


def check_padded(batch, lengths):
    """Checks a batch of items of write_lengths(): as long as the longest, and filled with zeros."""
    longest = max(lengths)
    assert batch.lengths["x"].tolist() == batch.lengths["text"].tolist() == lengths
    assert batch.lengths["last"].tolist() == [1] * len(lengths)
    assert all(column.flags.c_contiguous for column in batch.data.values())
    assert batch.data["x"].tolist() == [[*range(1, n + 1), *[0] * (longest - n)] for n in lengths]
    assert batch.data["text"].tolist() == [
        [*(str(i).encode() for i in range(1, n + 1)), *[b""] * (longest - n)] for n in lengths
    ]
    assert batch.data["last"].tolist() == [[n, n] for n in lengths]


def test_padding(client, make_reader):
    reader = make_reader([2, 1, 4])
    write_lengths(client, [3, 5, 1, 2], "queue")
    batches = reverb.mix([((client, "queue"), 0.5), (reader, 0.5)], batch_size=4, pad=True)
    check_padded(next(batches), [3, 5, 2, 1])
    check_padded(next(batches), [1, 2, 4, 2])
    batches.close()
    # Readers say themselves that they pad; then everything is padded.
    write_lengths(client, [3, 5, 1, 2], "queue")
    padded = checkpoints.read(reader.path, "table", batch_size=7, pad=True)
    check_padded(next(reverb.mix([((client, "queue"), 0.5), (padded, 0.5)], batch_size=4)), [3, 5, 2, 1])
    # So do batches, of which only as much padding is left as necessary.
    (whole,) = list(padded)
    assert whole.data["x"].shape == (3, 4)
    batches = reverb.mix([([whole], 1.0)], batch_size=2, num_batches=3)
    for lengths in ([2, 1], [4, 2], [1, 4]):
        check_padded(next(batches), lengths)
    again = list(reverb.mix([(reverb.mix({reader: 1}, 3, num_batches=2, pad=True), 1)], batch_size=2))
    for batch, lengths in zip(again, ([2, 1], [4, 2], [1, 4]), strict=True):
        check_padded(batch, lengths)


def test_padding_in_random_order(make_reader):
    reader = make_reader([2, 1, 4, 3])
    (batch,) = reverb.mix({reader: 1}, 4, num_batches=1, pad=True, shuffle=True, seed=2)
    assert sorted(batch.lengths["x"].tolist()) == [1, 2, 3, 4]
    assert batch.lengths["x"].tolist() != [2, 1, 4, 3]
    check_padded(batch, batch.lengths["x"].tolist())
    copy = pickle.loads(pickle.dumps(batch))
    assert copy.lengths["x"].tolist() == batch.lengths["x"].tolist()
    assert next(reverb.mix({make_reader([2]): 1}, 1)).lengths is None


def test_lengths_that_need_padding(client, make_reader):
    write_lengths(client, [3, 3], "queue")
    reader = make_reader([2, 2])
    batches = reverb.mix([((client, "queue"), 0.5), (reader, 0.5)], batch_size=4)
    with pytest.raises(ValueError, match=r"column 'text': object\[3\] and object\[2\]; pad=True"):
        next(batches)
    # Columns without time are not padded.
    one = next(reverb.mix({reader: 1}, 2, pad=True))
    other = reverb.MixedBatch(one.info, {**one.data, "last": np.zeros((2, 3), np.int64)})
    other.lengths = one.lengths
    with pytest.raises(ValueError, match=r"column 'last': int64\[2\] and int64\[3\]; .*same dtype and shape"):
        next(reverb.mix([([one], 0.5), ([other], 0.5)], batch_size=4))


def test_random_order_within_a_batch(reader):
    def draw(seed):
        sources = [(batches_of(range(5)), 0.5), (reader, 0.5)]
        return [
            batch.data["x"][:, 0].tolist() for batch in reverb.mix(sources, 8, num_batches=3, shuffle=True, seed=seed)
        ]

    assert draw(1) == draw(1) != draw(2)
    assert sorted(draw(1)[0]) == [0, 1, 2, 3, 100, 101, 102, 103]
    sources = [(batches_of(range(5)), 0.5), (reader, 0.5)]
    for batch in reverb.mix(sources, 8, num_batches=3, shuffle=True, seed=1):
        np.testing.assert_array_equal(batch.source == 1, batch.data["x"][:, 0] >= 100)
        np.testing.assert_array_equal(batch.data["n"]["y"][:, 0], batch.data["x"][:, 0])


def test_each_pass_over_a_shuffled_reader_differs(reader, tmp_path):
    shuffled = checkpoints.read(tmp_path, "table", shuffle=True, seed=1)
    first, second = (batch.data["x"][:, 0].tolist() for batch in reverb.mix({shuffled: 1}, 10, num_batches=2))
    assert sorted(first) == sorted(second)
    assert first != second


# --- Mistakes ---


def test_sources_that_do_not_fit(client, reader):
    insert(client, range(3))
    for other, words in (
        (batches_of(range(5), name="z"), r"structure.*'x'.*'z'"),
        (batches_of(range(5), dtype=np.float64), r"column 'x'.*float32\[1\] and float64\[1\]"),
        (
            [reverb.ReplaySample(b.info, {**b.data, "x": b.data["x"][:, 0]}) for b in batches_of(range(5))],
            r"\[1\] and .*\[\]",
        ),
    ):
        batches = reverb.mix([(client, 0.5), (other, 0.5)], 4, table="table")
        for _ in range(2):  # nothing is lost, and nothing hangs
            with pytest.raises(ValueError, match=words):
                next(batches)


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.75, 0.5), "add up to 1.25"),
        ((0.5, 0.25), "add up to 0.75"),
        ((1.5, -0.5), "between 0 and 1"),
        ((float("nan"), 0.5), "between 0 and 1"),
        ((None, None), "only one"),
    ],
)
def test_wrong_shares(reader, shares, words):
    with pytest.raises(ValueError, match=words):
        reverb.mix([(reader, shares[0]), (batches_of([1]), shares[1])], 4)


def test_wrong_shares_of_a_later_batch(reader):
    batches = reverb.mix([(reader, lambda step: 0.5 + step), (batches_of([1]), None)], 4)
    next(batches)
    with pytest.raises(ValueError, match="batch 1"):
        next(batches)


def test_wrong_arguments(client, reader, tmp_path):
    with pytest.raises(ValueError, match="table="):
        reverb.mix({client: 1}, 4)
    with pytest.raises(ValueError, match="at least one"):
        reverb.mix({}, 4)
    # A source without a share is not iterated over: it could be endless.
    assert len(next(reverb.mix({reader: 1}.items(), 4)).source) == 4
    for sources in (itertools.repeat(1), reader, iter([(reader, 1)]), "table"):
        with pytest.raises(TypeError, match=rf"sources must be a dict .*list of pairs.*got a {type(sources).__name__}"):
            reverb.mix(sources, 4)
    for sources in ([reader], [(reader, 0.5), (reader,)], [itertools.repeat(1)]):
        with pytest.raises(TypeError, match=rf"source {len(sources) - 1} must be a pair \(source, share\), got a"):
            reverb.mix(sources, 4)
    for size in (0, -1):
        with pytest.raises(ValueError, match="batch_size"):
            reverb.mix({reader: 1}, size)
    with pytest.raises(TypeError, match=r"batch_size must be an int, got 4.0 of type float"):
        reverb.mix({reader: 1}, 4.0)
    for wrong in ("half", None):
        with pytest.raises(TypeError, match=rf"share of source 0 must be a number, .*returned {wrong!r} for batch 0"):
            next(reverb.mix([(reader, lambda step, wrong=wrong: wrong), (reader, None)], 4))
    for source in (3, "table", b"x", None):
        with pytest.raises(TypeError, match="source 0"):
            reverb.mix([(source, 1)], 4)
    with pytest.raises(TypeError, match="share"):
        reverb.mix({reader: "half"}, 4)
    with pytest.raises(TypeError, match="int"):
        next(reverb.mix([([1, 2], 1)], 4))
    with pytest.raises(ValueError, match="nowhere"):
        next(reverb.mix({(client, "nowhere"): 1}, 4))
    info, data = batches_of([1, 2])[0]
    wrong = PaddedBatch(info, data)
    wrong.lengths = {"x": np.array([1, 1])}
    with pytest.raises(ValueError, match=r"source 0.*lengths.*structure of its data"):
        next(reverb.mix([([wrong], 1)], 2))


def test_batches_can_be_pickled(reader):
    batch = next(reverb.mix({reader: 1}, 4))
    copy = pickle.loads(pickle.dumps(batch))
    np.testing.assert_array_equal(copy.data["x"], batch.data["x"])
    assert copy.source.tolist() == [0] * 4
