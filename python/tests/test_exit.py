"""Tests the interpreter's exit with servers, clients, writers and threads in any state."""

from __future__ import annotations

import interpreters
import pytest
import transports

SECONDS = 20  # limit for a process that must not hang

EXITS = {
    "nothing is dropped": "pass",
    "in the middle of samples": "iterator = client.sample('table', 100); next(iterator)",
    "with items that nobody confirms": """
        writer = client.trajectory_writer(1)
        for i in range(10):
            writer.append(i)
            writer.create_item("queue", 1.0, writer.history[-1:])
    """,
    "with items of a legacy writer that nobody confirms": """
        writer = client.writer(1, max_in_flight_items=1)
        for i in range(3):  # two fit into the table, one is in flight
            writer.append([i])
            writer.create_item("queue", 1, 1.0)
    """,
    "with a column of a writer that was dropped": """
        writer = client.trajectory_writer(1)
        for i in range(4):
            writer.append(i)
            writer.create_item("queue", 1.0, writer.history[-1:])
        column = writer.history[-1]
        del writer
    """,
    "after samples that timed out": """
        samples = client.sample("empty", 5, timeout=0.1)
        try: next(samples)
        except reverb.ReverbError: pass
    """,
    "with the server dropped first": "del server",
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
        sys.setswitchinterval(1e-4)  # the threads notice the exit while they wait for the GIL
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
    "a daemon thread flushes": """
        writer = client.trajectory_writer(1)
        for i in range(4):
            writer.append(i)
            writer.create_item("queue", 1.0, writer.history[-1:])
        threading.Thread(target=writer.flush, daemon=True).start()
        conditions.wait_for_waiters(client, 1)
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
            time.sleep(0.3)  # the end of the main thread cannot be observed
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

# A writer that is dropped with unconfirmed items logs how many.
LOSES_ITEMS = (
    "with items that nobody confirms",
    "with items of a legacy writer that nobody confirms",
    "with a column of a writer that was dropped",
    "a daemon thread flushes",
)


@pytest.mark.parametrize("transport", transports.ALL)
@pytest.mark.parametrize("what", EXITS)
def test_exit(what, transport):
    indented = "\n".join(line.removeprefix("        ") for line in EXITS[what].splitlines())
    code = f"""
server = make_server(make_table(), make_table("empty"), reverb.Table.queue("queue", 2, layout="any"))
client = connect(server, {transport!r})
client.insert(1, {{"table": 1.0}})
{indented}
"""
    interpreters.run(code, seconds=SECONDS, quiet=what not in LOSES_ITEMS)


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
        time.sleep(0.1)  # the start of the wait cannot be observed
        """,
        seconds=SECONDS,
        quiet=False,  # the writer logs that its item is lost
    )


def test_development_mode():
    """Runs with Python's checks of its memory, of the GIL and of unclosed resources."""
    code = """
        for transport in ("in_process", "local", "grpc"):
            with make_server() as server:
                client = connect(server, transport)
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
    """An import in a sub-interpreter works or is refused; it does not crash."""
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
