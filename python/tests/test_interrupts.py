"""Tests signals from other processes: Ctrl-C ends every wait at once, and all objects remain usable."""

from __future__ import annotations

import os
import signal
import time

import conditions
import interpreters
import pytest
import transports

# The limit for a call to end after a signal: 100 ms by the documentation, more on a busy machine.
AT_ONCE = 5.0

# A program that waits in one call after another. It prints the name of each call, and then its outcome.
WAITS = """
import logging
logging.getLogger("reverb").setLevel(logging.CRITICAL)

server = make_server(make_table(), make_table("empty"), make_table("full", reverb.rate_limiters.Queue(1)))
client = connect(server, TRANSPORT)
nowhere = reverb.Client("localhost:1")
silent = reverb.Client("192.0.2.1:8000")  # a reserved network: packets are lost
client.insert(0, {"full": 1.0, "table": 1.0})
kept = []  # writers; a dropped writer waits a second for its items

def trajectory_writer(client=client, **arguments):
    writer = client.trajectory_writer(1, **arguments)
    kept.append(writer)
    writer.append(1)
    writer.create_item("full", 1.0, writer.history[-1:])
    return writer

def legacy_writer():
    writer = client.writer(1, max_in_flight_items=1)
    kept.append(writer)
    writer.append([1])
    writer.create_item("full", 1, 1.0)
    return writer

def structured_writer():
    pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
    writer = client.structured_writer([reverb.structured.create_config(pattern, "full", [])])
    kept.append(writer)
    writer.append({"x": 1})
    return writer

def legacy_in_a_block():
    with legacy_writer(): pass

def trajectory_in_a_block():
    with trajectory_writer(): pass

def crowded_legacy_writer():
    writer = legacy_writer()
    while True:
        writer.append([1])
        writer.create_item("full", 1, 1.0)

LOCAL = {
    "sample": lambda: next(client.sample("empty")),
    "samples": lambda: next(client.sample("empty", 5)),
    "unpacked sample": lambda: next(client.sample("empty", unpack_as_table_signature=True)),
    "insert": lambda: client.insert(1, {"full": 1.0}),
    "flush": lambda: trajectory_writer().flush(),
    "flush with a time-out": lambda: trajectory_writer().flush(timeout_ms=60_000),
    "end_episode": lambda: trajectory_writer().end_episode(),
    "the end of a block": trajectory_in_a_block,
    "legacy flush": lambda: legacy_writer().flush(),
    "legacy close": lambda: legacy_writer().close(),
    "legacy block": legacy_in_a_block,
    "legacy create_item": crowded_legacy_writer,
    "structured flush": lambda: structured_writer().flush(),
    "structured end_episode": lambda: structured_writer().end_episode(),
}
AWAY = {
    "server_info": nowhere.server_info,
    "server_info with a time-out": lambda: nowhere.server_info(timeout=60),
    "server_info, packets vanish": silent.server_info,
    "insert at no server": lambda: nowhere.insert(1, {"table": 1.0}),
    "insert, packets vanish": lambda: silent.insert(1, {"table": 1.0}),
    "sample at no server": lambda: next(nowhere.sample("table")),
    "samples at no server": lambda: next(nowhere.sample("table", 5)),
    "a writer with no server": lambda: nowhere.trajectory_writer(1),
    "a legacy writer with no server": lambda: nowhere.writer(1),
    "flush with no server": lambda: trajectory_writer(nowhere, validate_items=False).flush(),
    "reset with no server": lambda: nowhere.reset("table"),
    "priorities with no server": lambda: nowhere.mutate_priorities("table", {1: 1.0}),
    "more priorities with no server": lambda: nowhere.update_priorities("table", [1], [1.0]),
    "peek with no server": lambda: nowhere.peek("table"),
    "server.wait": server.wait,  # the last one, because it stops the server
}

def wait_in(calls):
    for name, call in calls.items():
        print("in", name, flush=True)
        try:
            call()
            print("returned", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        except BaseException as error:
            print("raised", repr(error), flush=True)
        gc.collect()
    print("done", flush=True)
"""


def interrupt_all(code, transport):
    """Sends SIGINT to each wait of the process and returns how long each took to end."""
    process = interpreters.start(WAITS.replace("TRANSPORT", repr(transport)) + code)
    took = {}
    try:
        while (line := interpreters.line(process)).startswith("in "):
            name = line.removeprefix("in ")
            conditions.wait_until_blocked(process.pid)
            process.send_signal(signal.SIGINT)
            start = time.monotonic()
            outcome = interpreters.line(process)
            took[name] = time.monotonic() - start
            assert outcome == "interrupted", f"{name}: {outcome}"
        assert line == "done", line
        interpreters.finish(process, seconds=20)
    finally:
        process.kill()
        process.communicate()
    return took


@pytest.mark.parametrize("transport", transports.ALL)
def test_every_wait_ends(transport):
    took = interrupt_all(
        """
wait_in(LOCAL)
# Everything is still usable.
client.insert(5, {"table": 1.0})
assert next(client.sample("table"))
with client.trajectory_writer(1) as writer:
    writer.append(1)
    writer.create_item("table", 1.0, writer.history[-1:])
client.set_rate_limiter("full", reverb.rate_limiters.MinSize(1))
kept.clear()
server.stop()
""",
        transport,
    )
    assert len(took) == 14
    late = {name: f"{seconds:.2f} s" for name, seconds in took.items() if seconds > AT_ONCE}
    assert not late


def test_every_wait_for_a_server_ends():
    took = interrupt_all("wait_in(AWAY)", "grpc")
    assert len(took) == 15
    late = {name: f"{seconds:.2f} s" for name, seconds in took.items() if seconds > AT_ONCE}
    assert not late


@pytest.mark.parametrize("transport", transports.ALL)
def test_interrupted_objects_remain_usable(transport):
    """Uses the same iterator and the same writer after Ctrl-C."""
    process = interpreters.start(f"""
server = make_server(make_table(), reverb.Table.queue("full", 1, layout="any"))
client = connect(server, {transport!r})
client.insert(0, {{"full": 1.0}})
samples = client.sample("table", 2)
writer = client.trajectory_writer(1)
writer.append(1)
writer.create_item("full", 1.0, writer.history[-1:])
for call in (lambda: next(samples), writer.flush, writer.flush, lambda: next(samples)):
    print("in", flush=True)
    try: call()
    except KeyboardInterrupt: print("interrupted", flush=True)
client.insert(7, {{"table": 1.0}})
print([int(next(samples)[0].data[0]) for _ in range(2)])
next(client.sample("full"))          # makes room
writer.flush()
writer.append(2)
print(int(next(client.sample("full"))[0].data[0]))
server.stop()
""")
    try:
        for _ in range(4):
            assert interpreters.line(process) == "in"
            conditions.wait_until_blocked(process.pid)
            process.send_signal(signal.SIGINT)
            assert interpreters.line(process) == "interrupted"
        assert interpreters.finish(process, seconds=20) == "[7, 7]\n1\n"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("transport", transports.ALL)
def test_a_handler_that_returns_ends_nothing(transport):
    process = interpreters.start(f"""
seen = []
signal.signal(signal.SIGINT, lambda *_: (seen.append(1), print("seen", flush=True)))
server = make_server()
client = connect(server, {transport!r})
samples = client.sample("table", 2)
go = threading.Event()
thread = threading.Thread(target=lambda: (go.wait(), client.insert(3, {{"table": 1.0}})))
thread.start()
signal.signal(signal.SIGTERM, lambda *_: go.set())
print("ready", flush=True)
print([int(next(samples)[0].data[0]) for _ in range(2)], len(seen))
thread.join()
server.stop()
""")
    try:
        assert interpreters.line(process) == "ready"
        for _ in range(5):
            conditions.wait_until_blocked(process.pid)
            process.send_signal(signal.SIGINT)
            start = time.monotonic()
            assert interpreters.line(process) == "seen"
            assert time.monotonic() - start < AT_ONCE
        process.send_signal(signal.SIGTERM)
        assert interpreters.finish(process, seconds=20) == "[3, 3] 5\n"
    finally:
        process.kill()
        process.communicate()


def test_the_handler_runs_in_the_main_thread_while_others_wait():
    process = interpreters.start("""
server = make_server()
client = server.localhost_client()
where, stopped = [], []
signal.signal(signal.SIGINT, lambda *_: where.append(threading.current_thread() is threading.main_thread()))
def work():
    try: next(client.sample("table", timeout=30))
    except RuntimeError: stopped.append(1)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
conditions.wait_for_waiters(client, 3)
print("ready", flush=True)
while not where: time.sleep(0.01)  # signals arrive here
assert all(thread.is_alive() for thread in threads)
server.stop()
for thread in threads: thread.join()
print(where, len(stopped))
""")
    try:
        assert interpreters.line(process) == "ready"
        process.send_signal(signal.SIGINT)
        assert interpreters.finish(process, seconds=20) == "[True] 3\n"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("transport", transports.ALL)
def test_many_interrupts_at_random_points(transport):
    """Interrupts calls at random points, many times: no crash, no deadlock, no confirmed item lost."""
    out = interpreters.run(
        f"""
server = make_server(make_table(max_size=100_000), reverb.Table.queue("queue", 2, layout="any"))
client = connect(server, {transport!r})
writer = client.trajectory_writer(2)
confirmed = interrupted = 0
def hail():
    rng = np.random.default_rng(7)
    for _ in range(100):
        time.sleep(rng.uniform(0.001, 0.012))  # until a random moment
        os.kill(os.getpid(), signal.SIGINT)
    done.set()
done = threading.Event()
thread = threading.Thread(target=hail)
started = 0
armed = False
def handler(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, handler)
thread.start()
while not done.is_set():
    try:
        armed = True
        started += 1
        client.insert(started, {{"table": 1.0}})
        confirmed += 1
        next(client.sample("table"))
        writer.append({{"x": np.zeros(10)}})
        writer.create_item("table", 1.0, {{"x": writer.history["x"][-1:]}})
        writer.flush()
        confirmed += 1
        for _ in client.sample("table", 3): pass
        client.server_info()
        armed = False
    except KeyboardInterrupt:
        interrupted += 1
signal.signal(signal.SIGINT, signal.SIG_IGN)
thread.join()
writer.flush()
size = client.server_info()["table"].current_size
assert confirmed <= size <= 2 * started, (confirmed, size, started)
print(interrupted > 0)
server.stop()
""",
        seconds=40,
        quiet=False,
    )
    assert out == "True\n"


def test_other_signals_keep_their_meaning():
    process = interpreters.start("""
server = make_server()
print("ready", flush=True)
server.wait()
""")
    assert interpreters.line(process) == "ready"
    conditions.wait_until_blocked(process.pid)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_the_package_installs_no_handlers():
    out = interpreters.run("""
before = [signal.getsignal(number) for number in signal.valid_signals()]
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
server = make_server()
for transport in ("in_process", "local", "grpc"):
    client = connect(server, transport)
    client.insert(1, {"table": 1.0})
    next(client.sample("table"))
try: server.wait(timeout=0.1)
except reverb.DeadlineExceededError: pass
print([signal.getsignal(number) for number in signal.valid_signals()] == before,
      signal.pthread_sigmask(signal.SIG_BLOCK, []) == blocked)
server.stop()
""")
    assert out == "True True\n"


def test_a_stopped_process_goes_on():
    """Waits continue after SIGSTOP and SIGCONT, which terminals and clusters send."""
    process = interpreters.start("""
server = make_server()
client = connect(server, "grpc")
threading.Timer(0.6, client.insert, (1, {"table": 1.0})).start()
print("ready", flush=True)
print(len(next(client.sample("table", timeout=30))))
server.stop()
""")
    assert interpreters.line(process) == "ready"
    for _ in range(3):
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.1)  # stopped for longer than any wake-up interval
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.05)  # runs for a while
    assert interpreters.finish(process, seconds=40, quiet=False) == "1\n"
