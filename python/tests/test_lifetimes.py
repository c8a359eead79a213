"""Things that are dropped: in any order, in cycles, in threads, at the interpreter's exit, with the server gone."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
import time
import weakref

from conditions import stays_true_for, wait_for_waiters, wait_until
from conftest import join, make_table
import interpreters
import numpy as np
import pytest

import reverb

SECONDS = 20  # for what must not hang


class Waiter:
    """Runs call() in a thread, and has what it raised."""

    def __init__(self, call):
        self.error = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test looks at it
            self.error = error

    def is_running(self):
        return self._thread.is_alive()

    def join(self):
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "still waiting"
        return self.error


def num_threads():
    return len(os.listdir("/proc/self/task"))


def num_files():
    return len(os.listdir("/proc/self/fd"))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def full_table(name="table"):
    """Takes one item, and then makes inserts wait."""
    return make_table(name, max_size=10, limiter=reverb.rate_limiters.Queue(1))


# --- Order ---

PARTS = ["writer", "legacy", "structured", "iterator", "column", "client", "server", "table"]


def make_parts(in_process):
    table = make_table()
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}", in_process=in_process)
    writer = client.trajectory_writer(2)
    writer.append({"x": np.arange(3)})
    writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
    writer.append({"x": np.arange(3)})
    legacy = client.writer(2)
    legacy.append([1])
    legacy.create_item("table", 1, 1.0)
    pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
    structured = client.structured_writer([reverb.structured.create_config(pattern, "table", [])])
    structured.append({"x": np.int64(1)})
    client.insert({"x": np.arange(3)}, {"table": 1.0})
    iterator = client.sample("table", 3, emit_timesteps=False)
    next(iterator)
    return {
        "writer": writer,
        "legacy": legacy,
        "structured": structured,
        "iterator": iterator,
        "column": writer.history["x"],
        "client": client,
        "server": server,
        "table": table,
    }


def some_orders():
    """Each part first, each part last, and both with the rest turned round."""
    orders = []
    for part in PARTS:
        rest = [other for other in PARTS if other != part]
        orders += [(part, *rest), (*rest, part), (part, *reversed(rest)), (*reversed(rest), part)]
    return list(dict.fromkeys(orders))


@pytest.mark.parametrize("in_process", [True, False], ids=["in_process", "socket"])
def test_any_order(in_process):
    start = time.monotonic()
    orders = some_orders()
    for order in orders[:: 1 if in_process else 3]:
        parts = make_parts(in_process)
        for name in order:
            del parts[name]
        assert not parts
    assert time.monotonic() - start < 90


@pytest.mark.parametrize("in_process", [True, False], ids=["in_process", "socket"])
def test_cycles_are_collected(in_process):
    class Holder:
        pass

    before = [num_threads(), num_files()]
    for _ in range(3):
        holder = Holder()
        holder.parts = make_parts(in_process)
        holder.me = holder
        del holder
        gc.collect()
    gc.collect()
    # What the process keeps for all of its servers and clients is made once; the rest has gone.
    wait_until(lambda: num_threads() <= before[0] + 20)
    wait_until(lambda: num_files() <= before[1] + 20)


def own_structured_writer(client):
    pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
    return client.structured_writer([reverb.structured.create_config(pattern, "table", [])])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda client: client.sample("table", 3), id="samples"),
        pytest.param(lambda client: client.sample("table", 3, unpack_as_table_signature=True), id="unpacked samples"),
        pytest.param(lambda client: client.trajectory_writer(1), id="trajectory writer"),
        pytest.param(lambda client: client.writer(1), id="legacy writer"),
        pytest.param(own_structured_writer, id="structured writer"),
        pytest.param(lambda client: client.server_info, id="method"),
    ],
)
def test_what_a_client_keeps_of_its_own_is_collected(make):
    """Cycles through native objects."""
    with reverb.Server([make_table()]) as server:
        client = reverb.Client(f"localhost:{server.port}", in_process=False)
        client.insert({"x": 1}, {"table": 1.0})
        client.own = make(client)
        if hasattr(client.own, "append"):
            client.own.append({"x": 1})
        elif hasattr(client.own, "__next__"):
            next(client.own)
        there = weakref.ref(client)
        del client
        gc.collect()
        assert there() is None


def test_values_are_not_kept():
    with reverb.Server([make_table()]) as server:
        writer = server.localhost_client().trajectory_writer(2)
        for make in (lambda: np.zeros(10), lambda: np.zeros((5, 2)).T, lambda: np.array(["a", b"b"], object)):
            value = make()
            there = weakref.ref(value)
            writer.append({"x": value})
            del value
            assert there() is None
            writer = server.localhost_client().trajectory_writer(2)
        text, none = f"a text of our own: {os.getpid()}", sys.getrefcount(None)
        before = sys.getrefcount(text)
        for _ in range(1000):
            writer.append({text: text, "array": np.zeros(2), "number": 1})
            writer.create_item("table", 1.0, {text: writer.history[text][-1:]})
        writer.flush()
        writer.close()
        del writer
        gc.collect()
        assert sys.getrefcount(text) == before
        assert sys.getrefcount(None) < none + 500


def test_a_sample_outlives_everything():
    with reverb.Server([make_table()]) as server:
        client = server.localhost_client()
        client.insert(np.arange(100_000), {"table": 1.0})
        (step,) = next(client.sample("table"))
        trajectory = next(client.sample("table", emit_timesteps=False))
    del client, server
    gc.collect()
    np.testing.assert_array_equal(step.data[0], np.arange(100_000))
    trajectory.data[0][0, 0] = 7  # it can be written to, and is ours alone
    assert step.data[0][0] == 0


def test_a_column_outlives_its_writer():
    with reverb.Server([make_table()]) as server:
        writer = server.localhost_client().trajectory_writer(2)
        writer.append({"x": np.arange(3)})
        column, reference = writer.history["x"], writer.history["x"][-1]
        writer.close()
        del writer
    gc.collect()
    with contextlib.suppress(RuntimeError, ValueError):  # what it held may have gone; that it is asked must be harmless
        np.testing.assert_array_equal(reference.numpy(), np.arange(3))
    len(column)
    repr(column)


def test_a_table_outlives_its_server():
    table = make_table()
    server = reverb.Server([table])
    server.localhost_client().insert(1, {"table": 1.0})
    server.stop()
    del server
    gc.collect()
    assert table.info.current_size in (0, 1)
    assert "Table(" in repr(table)
    table.can_insert(1)


def test_a_client_finds_the_next_server_on_the_port():
    first = reverb.Server([make_table()])
    client, port = first.localhost_client(), first.port
    client.insert(1, {"table": 1.0})
    first.stop()
    del first
    with reverb.Server([make_table()], port=port):
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                client.insert(2, {"table": 1.0}, timeout=5)
                break
            except (RuntimeError, reverb.DeadlineExceededError):
                assert time.monotonic() < deadline
        assert next(client.sample("table"))[0].data[0] == 2


# --- Nothing is left behind ---


@pytest.mark.parametrize("in_process", [True, False], ids=["in_process", "socket"])
def test_no_thread_file_or_memory_is_left(in_process):
    def once():
        with reverb.Server([make_table(), make_table("other")]) as server:
            client = reverb.Client(f"localhost:{server.port}", in_process=in_process)
            with client.trajectory_writer(2) as writer:
                writer.append({"x": np.zeros(1000)})
                writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
            next(client.sample("table"))
            iterator = client.sample("table", 10)
            next(iterator)
            with pytest.raises(reverb.DeadlineExceededError):
                next(client.sample("other", timeout=0.01))

    def counts():
        gc.collect()
        return num_threads(), num_files()

    for _ in range(5):
        once()
    time.sleep(0.2)  # lets background threads end, so that the limits below are tight
    threads, files = counts()
    memory = resident()
    for _ in range(25):
        once()
    wait_until(lambda: num_threads() <= threads + 2)
    wait_until(lambda: num_files() <= files + 2)
    assert resident() - memory < 64 * 2**20


def test_clients_and_writers_come_and_go_at_one_server():
    with reverb.Server([make_table()]) as server:

        def once():
            client = reverb.Client(f"localhost:{server.port}", in_process=False)
            writer = client.trajectory_writer(1)
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
            writer.flush()
            next(client.sample("table"))

        for _ in range(5):
            once()
        time.sleep(0.2)  # lets background threads end, so that the limits below are tight
        gc.collect()
        threads, files = num_threads(), num_files()
        for _ in range(50):
            once()
        gc.collect()
        wait_until(lambda: num_threads() <= threads + 2)
        wait_until(lambda: num_files() <= files + 2)


def test_samples_that_are_dropped_give_their_memory_back():
    with reverb.Server([make_table(max_size=4)]) as server:
        client = server.localhost_client()
        for _ in range(4):
            client.insert(np.random.default_rng(0).random(2**17), {"table": 1.0})  # 1 MiB
        for _ in client.sample("table", 50, emit_timesteps=False):
            pass
        before = resident()
        for _ in client.sample("table", 500, emit_timesteps=False):
            pass
        assert resident() - before < 100 * 2**20


# --- Errors in the middle ---


@pytest.mark.parametrize("in_process", [True, False], ids=["in_process", "socket"])
def test_an_exception_inside_with(in_process):
    def with_trajectory_writer(kind):
        with client.trajectory_writer(1) as writer:
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
            raise kind

    def with_writer(kind):
        with client.writer(1) as writer:
            writer.append([1])
            writer.create_item("table", 1, 1.0)
            raise kind

    with reverb.Server([make_table()]) as server:
        client = reverb.Client(f"localhost:{server.port}", in_process=in_process)
        for kind in (ValueError, KeyError, GeneratorExit, SystemExit, KeyboardInterrupt):
            with pytest.raises(kind):
                with_trajectory_writer(kind)
            with pytest.raises(kind):
                with_writer(kind)
        client.insert(1, {"table": 1.0})  # all goes on
        assert next(client.sample("table"))


def test_an_exception_inside_the_server_block_stops_it():
    with contextlib.suppress(ZeroDivisionError), reverb.Server([make_table()]) as server:
        client = reverb.Client(f"localhost:{server.port}", in_process=False)
        client.insert(1, {"table": 1.0})
        raise ZeroDivisionError
    with pytest.raises((RuntimeError, reverb.DeadlineExceededError)):
        client.insert(1, {"table": 1.0}, timeout=0.5)


def test_a_frame_of_an_exception_keeps_nothing_waiting():
    """A traceback holds the frame, the frame holds the writer: dropping both is harmless in either order."""
    caught = None
    with reverb.Server([make_table()]) as server:
        try:
            writer = server.localhost_client().trajectory_writer(1)
            writer.append(1)
            writer.create_item("nowhere", 1.0, writer.history[-1:])
        except ValueError as error:
            caught = error
    del writer, server
    assert caught is not None
    del caught
    gc.collect()


# --- The server stops while somebody waits ---


def waiting_sample(client):
    next(client.sample("empty"))


def waiting_samples(client):
    next(client.sample("empty", 5))


def waiting_insert(client):
    client.insert(1, {"table": 1.0})


def waiting_flush(client):
    writer = client.trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1:])
    writer.flush()


def waiting_end_episode(client):
    writer = client.trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1:])
    writer.end_episode()


def waiting_close(client):
    writer = client.writer(1)
    writer.append([1])
    writer.create_item("table", 1, 1.0)
    writer.close()


def waiting_structured_flush(client):
    pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
    writer = client.structured_writer([reverb.structured.create_config(pattern, "table", [])])
    writer.append({"x": 1})
    writer.flush()


WAITING = [
    waiting_sample,
    waiting_samples,
    waiting_insert,
    waiting_flush,
    waiting_end_episode,
    waiting_close,
    waiting_structured_flush,
]


@pytest.mark.parametrize("call", WAITING)
def test_a_stop_ends_what_waits_in_its_process(call):
    with reverb.Server([full_table(), make_table("empty")]) as server:
        client = server.localhost_client()
        client.insert(0, {"table": 1.0})
        waiter = Waiter(lambda: call(client))
        wait_for_waiters(client, 1)
        assert waiter.is_running(), waiter.error
        server.stop()
        error = waiter.join()
    assert isinstance(error, RuntimeError), repr(error)
    assert str(error)


def test_what_waits_over_a_socket_goes_on_with_the_next_server():
    """A connection that breaks is made anew: those who wait are not told, unless nobody comes in their time.

    A single insert is: whoever does one at a time counts on knowing what became of it.
    """
    first = reverb.Server([full_table(), make_table("empty")])
    clients = [reverb.Client(f"localhost:{first.port}", in_process=False) for _ in WAITING]
    clients[0].insert(0, {"table": 1.0})
    waiters = [
        Waiter(lambda call=call, client=client: call(client)) for call, client in zip(WAITING, clients, strict=True)
    ]
    impatient = Waiter(lambda: clients[0].insert(1, {"table": 1.0}, timeout=0.8))
    wait_for_waiters(clients[0], len(WAITING) + 1)
    assert all(waiter.is_running() for waiter in waiters)
    first.stop()
    assert isinstance(impatient.join(), RuntimeError)
    with reverb.Server([make_table(), make_table("empty")], port=first.port) as second:
        second.localhost_client().insert(0, {"empty": 1.0})
        errors = {call.__name__: waiter.join() for call, waiter in zip(WAITING, waiters, strict=True)}
    insert_error = errors.pop("waiting_insert")
    assert isinstance(insert_error, RuntimeError)
    assert str(insert_error).startswith("Error when confirming that all items written to table.")
    assert errors == dict.fromkeys(errors)


def test_a_stop_ends_wait():
    server = reverb.Server([make_table()])
    waiter = Waiter(server.wait)
    assert stays_true_for(0.1, waiter.is_running)
    server.stop()
    assert waiter.join() is None


def test_a_dropped_server_stops():
    server = reverb.Server([make_table("empty")])
    client = server.localhost_client()
    waiter = Waiter(lambda: waiting_sample(client))
    wait_for_waiters(client, 1)
    del server
    gc.collect()
    assert isinstance(waiter.join(), RuntimeError)


def test_closing_an_iterator_ends_the_wait_of_another_thread():
    with reverb.Server([make_table("empty")]) as server:
        for in_process, num in itertools.product([True, False], [1, 5]):
            client = reverb.Client(f"localhost:{server.port}", in_process=in_process)
            wait_for_waiters(client, 0)
            iterator = client.sample("empty", num)
            waiter = Waiter(lambda iterator=iterator: next(iterator))
            wait_for_waiters(client, 1)
            iterator.close()
            assert isinstance(waiter.join(), StopIteration)


def test_closing_a_writer_ends_the_wait_of_another_thread():
    with reverb.Server([full_table()]) as server:
        for in_process in (True, False):
            client = reverb.Client(f"localhost:{server.port}", in_process=in_process)
            if in_process:
                client.insert(0, {"table": 1.0})
            writer = client.trajectory_writer(1)
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
            wait_for_waiters(client, 1)
            waiter = Waiter(writer.flush)
            assert stays_true_for(0.1, waiter.is_running)
            writer.close()
            waiter.join()


# --- A server that is dead ---


@pytest.mark.parametrize("in_process", [True, False], ids=["in_process", "socket"])
def test_dropping_a_writer_of_a_dead_server_does_not_freeze_others(in_process):
    server = reverb.Server([full_table()])
    client = reverb.Client(f"localhost:{server.port}", in_process=in_process)
    client.insert(0, {"table": 1.0})
    writer = client.trajectory_writer(1)
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1:])
    server.stop()
    beats, stop = [], threading.Event()

    def beat():
        while not stop.wait(0.01):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    start = time.monotonic()
    del writer
    gc.collect()
    took = time.monotonic() - start
    stop.set()
    join(thread)
    assert took < 5
    longest = max((after - before for before, after in itertools.pairwise([start, *beats])), default=took)
    assert longest < 1, f"other threads stood still for {longest:.1f} s"


def test_a_killed_server_is_no_trouble_for_those_who_drop_their_things():
    server = interpreters.start("""
        server = make_server()
        print(server.port, flush=True)
        server.wait()
        """)
    try:
        port = int(interpreters.line(server))
        client = reverb.Client(f"localhost:{port}")
        client.insert(0, {"table": 1.0})
        writer = client.trajectory_writer(1)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
        iterator = client.sample("table", 10)
        next(iterator)
    finally:
        server.kill()
        server.communicate()
    writer.append(2)
    writer.create_item("table", 1.0, writer.history[-1:])
    with pytest.raises((reverb.DeadlineExceededError, RuntimeError)):
        writer.flush(timeout_ms=200)
    with pytest.raises(reverb.DeadlineExceededError):
        client.server_info(timeout=0.2)
    start = time.monotonic()
    del writer, iterator, client
    gc.collect()
    assert time.monotonic() - start < 5


# --- The interpreter's exit ---

EXITS = {
    "nothing is dropped": "pass",
    "in the middle of samples": "iterator = client.sample('table', 100); next(iterator)",
    "with items that nobody confirms": """
        writer = client.trajectory_writer(1)
        for i in range(10):
            writer.append(i)
            writer.create_item("queue", 1.0, writer.history[-1:])
    """,
    "with a cycle": """
        class Holder: pass
        holder = Holder()
        holder.me, holder.things = holder, [server, client, client.sample("table"), client.trajectory_writer(1)]
    """,
    "held by a module": "sys.modules['numpy'].held = [server, client, client.trajectory_writer(1)]",
    "held by a thread's locals": "threading.local().held = [server, client]",
    "by sys.exit": "writer = client.trajectory_writer(1); sys.exit(0)",
    "while atexit uses it": """
        import atexit
        atexit.register(lambda: client.insert(1, {"table": 1.0}))
    """,
    "daemon threads sample": """
        def sample():
            while True:
                next(client.sample("table"))
        for _ in range(4): threading.Thread(target=sample, daemon=True).start()
        conditions.wait_until(lambda: server.tables[0].info.rate_limiter_info.sample_stats.completed >= 100)
        sys.setswitchinterval(1e-4)  # so that they notice the end while they wait for their turn
        sum(range(100_000))
    """,
    "daemon threads wait": """
        def swallow(call):
            try: call()
            except RuntimeError: pass
        for call in (lambda: next(client.sample("empty")), lambda: next(client.sample("empty", 5)), server.wait,
                     lambda: [client.insert(1, {"queue": 1.0}) for _ in range(5)]):
            threading.Thread(target=swallow, args=(call,), daemon=True).start()
        conditions.wait_for_waiters(client, 3)
    """,
    "daemon threads write": """
        def write():
            writer = client.trajectory_writer(2)
            while True:
                writer.append({"x": np.zeros(100)})
                writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
        for _ in range(4): threading.Thread(target=write, daemon=True).start()
        conditions.wait_until(lambda: server.tables[0].info.current_size >= 100)
        sys.setswitchinterval(1e-4)
        sum(range(100_000))
    """,
    "a thread outlives the main one": """
        def work():
            time.sleep(0.3)  # until the main thread has ended, which nothing shows
            client.insert(1, {"table": 1.0})
            assert next(client.sample("table"))
        threading.Thread(target=work).start()
    """,
    "a thread waits until the server stops": """
        def work():
            try: next(client.sample("empty", timeout=1.5))
            except (RuntimeError, reverb.DeadlineExceededError): pass
        threading.Thread(target=work).start()
        threading.Timer(0.3, server.stop).start()
    """,
    "the server is stopped, its users are not": """
        iterator = client.sample("table", 100); next(iterator)
        writer = client.trajectory_writer(1)
        server.stop()
    """,
}


@pytest.mark.parametrize("in_process", [True, False], ids=["in_process", "socket"])
@pytest.mark.parametrize("what", EXITS)
def test_exit(what, in_process):
    indented = "\n".join(line.removeprefix("        ") for line in EXITS[what].splitlines())
    code = f"""
server = make_server(make_table(), make_table("empty"), reverb.Table.queue("queue", 2))
client = connect(server, {in_process})
client.insert(1, {{"table": 1.0}})
{indented}
"""
    # A writer that is dropped with items that are not confirmed says so.
    interpreters.run(code, seconds=SECONDS, quiet=what != "with items that nobody confirms")


def test_exit_with_no_server_to_be_found():
    interpreters.run(
        """
        client = reverb.Client("localhost:1")
        writer = client.trajectory_writer(1, validate_items=False)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        iterator = client.sample("table", 10, timeout=0.2)
        try: next(iterator)
        except reverb.DeadlineExceededError: pass
        threading.Thread(target=client.server_info, daemon=True).start()
        time.sleep(0.1)  # until the call waits, which nothing shows
        """,
        seconds=SECONDS,
        quiet=False,  # the writer says that its item is lost
    )


def test_development_mode():
    """Python's own checks: of its memory, of calls without the GIL, of what is never closed."""
    code = """
        for in_process in (True, False):
            with make_server() as server:
                client = connect(server, in_process)
                for i in range(50):
                    client.insert({"x": np.zeros(100), "s": "text"}, {"table": 1.0})
                for step in client.sample("table", 50): pass
                with client.trajectory_writer(2) as writer:
                    for i in range(50):
                        writer.append({"x": np.zeros(100), "y": [i, "text"]})
                        writer.create_item("table", 1.0, {"x": writer.history["x"][-1:], "y": writer.history["y"][0][-1]})
                client.server_info()
                next(client.sample("table", unpack_as_table_signature=True))
            threads = [threading.Thread(target=gc.collect) for _ in range(3)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """
    interpreters.run(code, PYTHONDEVMODE="1", PYTHONMALLOC="debug", seconds=SECONDS)


def test_sub_interpreters_are_refused_or_work():
    """Whatever the interpreter does about extensions in others of its kind, it is no crash."""
    interpreters.run(
        """
        try: import _xxsubinterpreters as interpreters
        except ImportError:
            try: import _interpreters as interpreters
            except ImportError: sys.exit(0)
        number = interpreters.create()
        try: interpreters.run_string(number, "import reverb")
        except Exception as error: print(error)
        """,
        seconds=SECONDS,
        quiet=False,
    )
