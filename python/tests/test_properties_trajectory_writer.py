"""Compares TrajectoryWriter with a simple model over lists."""

import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
import numpy as np
from profiles import bounded
import pytest
import transports

import reverb

# The leaves that a step may have, with their values: any that distinguish steps.
LEAVES = {
    ("count",): lambda n: np.int64(n),
    ("vector",): lambda n: np.array([n, -n, 0.5], np.float32),
    ("deep", "text"): lambda n: np.array(f"{n}", object),
    ("deep", "flags"): lambda n: np.array([[n % 2 == 0], [n % 3 == 0]]),
    ("deep", "more", "byte"): lambda n: np.uint8(n % 256),
}
PATHS = sorted(LEAVES)
KEEP = 5

_servers = contextlib.ExitStack()


@pytest.fixture(scope="module", autouse=True)
def server():
    with _servers:
        table = reverb.Table.queue("queue", 100_000, layout="any")
        _Machine.server = _servers.enter_context(reverb.Server([table]))
        yield


def nest_of(values):
    """Converts {('a', 'b'): 1} to {'a': {'b': 1}}."""
    nest = {}
    for path, value in values.items():
        part = nest
        for key in path[:-1]:
            part = part.setdefault(key, {})
        part[path[-1]] = value
    return nest


def at(nest, path):
    for key in path:
        nest = nest[key]
    return nest


def as_stored(value):
    value = np.asarray(value)
    if value.dtype != object:
        return value.tolist()
    return [each.encode() for each in value.reshape(-1).tolist()] if value.ndim else value.item().encode()


class Model:
    """The steps since the last clearing end; for each column, the positions that it keeps."""

    def __init__(self):
        self.steps = []  # dicts from path to value
        self.is_open = False
        self.episode_steps = 0
        self.kept = {}  # by path: positions in `steps`
        self.keep = {}  # by path: the number kept

    def append(self, values, partial):
        if not self.is_open:
            self.steps.append({})
        self.steps[-1].update(values)
        for path in values:
            kept = self.kept.setdefault(path, [])
            kept.append(len(self.steps) - 1)
            self.forget(path)
        self.is_open = partial
        self.episode_steps += not partial

    def forget(self, path):
        keep = self.keep.get(path, KEEP)
        self.kept[path] = self.kept[path][-keep:]

    def end_episode(self, clear):
        if clear:
            self.steps = []
            self.kept = {path: [] for path in self.kept}
        self.is_open = False
        self.episode_steps = 0

    def column(self, path):
        kept = set(self.kept[path])
        return [step[path] if i in kept else None for i, step in enumerate(self.steps)]


indices = st.one_of(
    st.integers(-7, 7),
    st.lists(st.integers(-7, 7), max_size=4),
    st.builds(
        slice,
        st.none() | st.integers(-7, 7),
        st.none() | st.integers(-7, 7),
        st.sampled_from([None, 1, 2, -1]),
    ),
)


class _Machine(RuleBasedStateMachine):
    server = None
    transport = "in_process"

    @initialize()
    def start(self):
        self.client = transports.connect(self.server, self.transport)
        self.client.reset("queue")
        self.writer = self.client.trajectory_writer(KEEP)
        self.model = Model()
        self.items = []
        self.count = 0
        with pytest.raises(RuntimeError, match="append"):
            self.writer.history

    def teardown(self):
        if not hasattr(self, "writer"):
            return
        self.writer.flush(timeout_ms=30_000)
        assert self.client.server_info()["queue"].current_size == len(self.items)
        if self.items:
            samples = self.client.sample("queue", len(self.items), emit_timesteps=False, timeout=30)
            for sample, (priority, columns) in zip(samples, self.items, strict=True):
                assert sample.info.priority == priority
                assert [column.tolist() for column in sample.data] == columns
        self.writer.close()

    # --- Operations ---

    @rule(paths=st.sets(st.sampled_from(PATHS)), nones=st.booleans(), partial=st.booleans())
    def append(self, paths, nones, partial):
        self.count += 1
        values = {path: LEAVES[path](self.count) for path in paths}
        # A leaf that is None is left out, if the column is known.
        given = {**dict.fromkeys(self.model.kept if nones else ()), **values}
        if self.model.is_open and any(path in self.model.steps[-1] for path in paths):
            with pytest.raises(ValueError, match="has already been set in the active step"):
                self.writer.append(nest_of(given), partial_step=partial)
            return
        self.writer.append(nest_of(given), partial_step=partial)
        self.model.append(values, partial)

    @rule(paths=st.sets(st.sampled_from(PATHS), min_size=1), length=st.integers(1, 12))
    def append_sequence(self, paths, length):
        steps = [{path: LEAVES[path](self.count + i) for path in paths} for i in range(1, length + 1)]
        self.count += length
        given = nest_of({path: np.stack([step[path] for step in steps]) for path in paths})
        if self.model.is_open and any(path in self.model.steps[-1] for path in paths):
            with pytest.raises(ValueError, match="has already been set in the active step"):
                self.writer.append_sequence(given)
            return
        self.writer.append_sequence(given)
        for step in steps:
            self.model.append(step, False)

    @rule(path=st.sampled_from(PATHS), n=st.integers(-1, 6), end=st.none() | st.integers(-7, 7))
    def stack(self, path, n, end):
        if path not in self.model.kept:
            return
        history = at(self.writer.history, path)
        length = len(self.model.steps)
        begin = length - self.model.episode_steps - self.model.is_open  # of the episode
        stop = length if end is None else end + length if end < 0 else end
        rows = [max(row, begin) for row in range(stop - n, stop)]
        keep = self.model.keep.get(path, KEEP)
        is_valid = 1 <= n <= keep and begin < stop <= length and all(row in self.model.kept[path] for row in rows)
        # A stack that will not be kept is rejected from the beginning.
        all_keep = self.writer.max_num_keep_alive_refs
        if end is not None and end < 0 and n - end > all_keep:
            is_valid = False
        if not is_valid:
            with pytest.raises(ValueError):
                history.stack(n, end)
            return
        column = history.stack(n, end)
        expected = [as_stored(self.model.column(path)[row]) for row in rows]
        assert (len(column), column.is_squeezed) == (n, False)
        assert column.numpy().tolist() == expected
        self.writer.create_item("queue", 3, [column])
        self.items.append((3, [expected]))

    @rule(path=st.sampled_from(PATHS))
    @precondition(lambda self: self.model.kept)
    def append_what_does_not_fit(self, path):
        if path not in self.model.kept or not any(path in step for step in self.model.steps):
            return
        other = next(each for each in PATHS if each != path)
        values = {other: LEAVES[other](0), path: np.zeros((7, 7), np.complex64)}
        with pytest.raises(ValueError):
            self.writer.append(nest_of(values))

    @rule(data=st.data(), priority=st.integers(0, 100))
    @precondition(lambda self: self.model.kept)
    def create_item(self, data, priority):
        chosen = data.draw(
            st.lists(st.tuples(st.sampled_from(sorted(self.model.kept)), indices), min_size=1, max_size=3)
        )
        trajectory, expected = [], []
        for path, key in chosen:
            history = at(self.writer.history, path)
            rows = self.rows(path, key)
            if rows is None:
                with pytest.raises((ValueError, IndexError)):
                    history[key]
                continue
            column = history[key]
            values = [self.model.column(path)[row] for row in rows]
            assert len(column) == len(rows)
            assert column.is_squeezed == isinstance(key, int)
            trajectory.append(column)
            stored = [as_stored(value) for value in values]
            expected.append(stored[0] if isinstance(key, int) else stored)
            if rows:
                assert column.numpy().tolist() == expected[-1]
        if not trajectory or any(len(column) == 0 for column in trajectory):
            with pytest.raises(ValueError):
                self.writer.create_item("queue", priority, trajectory)
            return
        self.writer.create_item("queue", priority, trajectory)
        self.items.append((priority, expected))

    def rows(self, path, key):
        """Returns the positions that an index selects; None if it is an error."""
        length = len(self.model.steps)
        if isinstance(key, slice):
            if key.start is not None and key.start < -length:
                return None
            rows = list(range(length))[key]
        else:
            keys = [key] if isinstance(key, int) else key
            if not all(-length <= each < length for each in keys):
                return None
            rows = [each % length for each in keys]
        kept = self.model.kept[path]
        return rows if all(row in kept for row in rows) else None

    @rule(left=st.integers(0, 3))
    def flush(self, left):
        self.writer.flush(left, timeout_ms=30_000)
        if left == 0:
            assert self.client.server_info()["queue"].current_size == len(self.items)

    @rule(clear=st.booleans())
    def end_episode(self, clear):
        self.writer.end_episode(clear, timeout_ms=30_000)
        self.model.end_episode(clear)

    @rule(path=st.sampled_from(PATHS), keep=st.integers(1, 8), chunk=st.none() | st.integers(1, 8))
    def configure(self, path, keep, chunk):
        if chunk is not None and chunk > keep:
            with pytest.raises(ValueError):
                self.writer.configure(path, num_keep_alive_refs=keep, max_chunk_length=chunk)
            return
        try:
            self.writer.configure(path, num_keep_alive_refs=keep, max_chunk_length=chunk)
        except RuntimeError:  # steps of the column are not in a chunk yet
            assert self.model.kept.get(path)
            return
        self.model.keep[path] = keep
        if path in self.model.kept:
            self.model.forget(path)

    # --- Invariants ---

    @invariant()
    def history_is_that_of_the_model(self):
        if not hasattr(self, "writer"):
            return
        assert self.writer.episode_steps == self.model.episode_steps
        assert self.writer.step_is_open == self.model.is_open
        for path in self.model.kept:
            column = at(self.writer.history, path)
            expected = self.model.column(path)
            assert len(column) == len(expected)
            cells = list(column)
            assert [cell is None for cell in cells] == [value is None for value in expected]
            if cells and cells[-1] is not None:
                assert cells[-1].numpy().tolist() == as_stored(expected[-1])


class _InProcess(_Machine):
    transport = "in_process"


class _Local(_Machine):
    transport = "local"


class _Grpc(_Machine):
    transport = "grpc"


TestInProcess = _InProcess.TestCase
TestInProcess.settings = bounded(150, stateful_step_count=40)
TestLocal = _Local.TestCase
TestLocal.settings = bounded(60, stateful_step_count=40)
TestOverGrpc = _Grpc.TestCase
TestOverGrpc.settings = bounded(60, stateful_step_count=40)


def test_a_step_that_fails_configures_nothing():
    writer = _Machine.server.localhost_client().trajectory_writer(4)
    writer.configure(("b",), num_keep_alive_refs=1, max_chunk_length=1)
    writer.append({"a": 1})
    with pytest.raises(ValueError, match="dtype"):
        writer.append({"a": "x", "b": 1})
    for _ in range(3):
        writer.append({"a": 2, "c": 5})
    assert writer.history["c"][-3:].numpy().tolist() == [5, 5, 5]
    writer.close()
