"""Tests fork(): what works in a child works, everything else raises an error at once; the parent is not affected.

A child uses clients of its parent through the local endpoint of the server. Over gRPC, and with writers, iterators and
servers of the parent, it gets an error.
"""

from __future__ import annotations

import subprocess
import sys

import interpreters
import pytest

# Programs with a server and clients of all kinds in the parent; child(function) forks, runs the function in the
# child, and returns the exit status (0 if it returned None) within twenty seconds.
PARENT = """
server = make_server(make_table(), make_table("empty"), reverb.Table.queue("queue", 1, layout="any"))
inner, local, remote = (connect(server, transport) for transport in ("in_process", "local", "grpc"))
inner.insert(1, {"table": 1.0, "queue": 1.0})

def child(function):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a child that hangs is ended by SIGALRM
        status = 70
        try:
            status = function() or 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def refused(call):
    start = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        assert "spawn" in str(error), error
    else:
        raise AssertionError("not refused")
    assert time.monotonic() - start < 5

def parent_is_fine():
    for client in (inner, local, remote):
        client.insert(2, {"table": 1.0}, timeout=20)
        assert next(client.sample("table", timeout=20))
        assert [len(steps) for steps in client.sample("table", 3, timeout=20)] == [1, 1, 1]
        assert client.server_info(timeout=20)["table"].current_size >= 1
"""


# Python 3.12 and later warn about fork() in a process with threads, which these tests do on purpose.
NO_WARNING = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}


def run(code, **arguments):
    return interpreters.run(PARENT + code, seconds=60, **NO_WARNING, **arguments)


@pytest.mark.parametrize("clients", ["inner", "local", "inner, local"])
def test_a_child_uses_the_clients_of_its_parent(clients):
    """In the child, the client of the parent's own process is one of a server on the same host."""
    run(f"""
clients = [{clients}]
def use():
    for client in clients:
        client.insert(5, {{"table": 1.0}}, timeout=20)
        assert client.transports(timeout=20) == ["local"]
        assert client.server_info(timeout=20)["table"].current_size >= 2
        with client.trajectory_writer(2) as writer:
            for i in range(3):
                writer.append({{"x": np.full(1000, i)}})
                writer.create_item("table", 1.0, {{"x": writer.history["x"][-1:]}})
            writer.flush(timeout_ms=20_000)
        keys = [sample.info.key for sample in client.sample("table", 4, emit_timesteps=False, timeout=20)]
        assert len(keys) == 4
        client.update_priorities("table", keys, np.full(4, 2.0), timeout=20)
        assert next(client.sample("table", timeout=20))
        assert len(client.peek("table", 2)) == 2
for _ in range(3):
    assert child(use) == 0
assert child(lambda: child(use)) == 0, "a grandchild"
assert [client.transports() for client in (inner, local, remote)] == [["in-process"], ["local"], ["gRPC"]]
parent_is_fine()
""")


def test_children_and_parent_at_the_same_time():
    """Each process has connections of its own: nothing is lost, and no answer goes to the wrong process."""
    run("""
def work(number):
    with local.trajectory_writer(1) as writer:
        for i in range(50):
            writer.append({"x": np.full(100, 1000 * number + i)})
            writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
    for i in range(20):
        local.insert({"x": np.full(100, 1000 * number + 100 + i)}, {"table": 1.0}, timeout=20)
local.reset("table")
pids = []
for number in range(1, 4):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try: work(number)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(70)
        os._exit(0)
    pids.append(pid)
work(0)
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
wanted = [1000 * number + i for number in range(4) for i in (*range(50), *range(100, 120))]
items = local.peek("table", 1000)
assert sorted(int(item.data["x"].flat[0]) for item in items) == wanted
""")


def test_a_client_that_was_not_used_before_works_in_the_child():
    """A process that has used neither gRPC nor a server may even use gRPC in the child."""
    program = """
import subprocess
server = subprocess.Popen([sys.executable, "-c", '''
import reverb, sys
with reverb.Server([reverb.Table.queue("queue", 10)]) as server:
    print(server.port, flush=True)
    sys.stdin.read()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
port = int(server.stdout.readline())
clients = [reverb.Client(f"localhost:{port}"), reverb.Client(f"localhost:{port}", local=False)]
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    for client in clients: client.insert(1, {"queue": 1.0}, timeout=15)
    print([client.transports(timeout=15) for client in clients], flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print([client.transports(timeout=15) for client in clients], flush=True)
server.stdin.close()
server.wait(20)
"""
    assert interpreters.run(program, **NO_WARNING).splitlines() == ["[['local'], ['gRPC']]"] * 2


def test_a_writer_logs_in_the_child():
    run("""
import logging
lines = []
class Keep(logging.Handler):
    def emit(self, record): lines.append(record.getMessage())
logging.getLogger("reverb").addHandler(Keep())
def use():
    writer = local.trajectory_writer(1)
    writer.append(1)
    writer.create_item("queue", 1.0, writer.history[-1:])  # the queue is full
    writer.close()
    assert any("not confirmed" in line for line in lines), lines
logging.getLogger("reverb").setLevel(logging.INFO)
assert child(use) == 0
""")


def test_every_other_use_in_the_child_is_refused():
    run("""
writer, remote_writer = inner.trajectory_writer(2), remote.trajectory_writer(2)
for each in (writer, remote_writer):
    each.append({"x": 1})
local_writer, local_samples = local.trajectory_writer(2), local.sample("table", 5)
local_writer.append({"x": 1})
next(local_samples)
legacy = remote.writer(2)
legacy.append([1])
pattern = reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
structured = remote.structured_writer([reverb.structured.create_config(pattern, "table", [])])
structured.append({"x": 1})
samples, started = remote.sample("table", 5), remote.sample("table", 5)
next(started)
column = remote_writer.history["x"]
uses = {
    "insert": lambda: remote.insert(1, {"table": 1.0}),
    "sample": lambda: next(remote.sample("table")),
    "a new iterator": lambda: next(samples),
    "an old iterator": lambda: next(started),
    "peek": lambda: remote.peek("table"),
    "server_info": lambda: remote.server_info(),
    "mutate_priorities": lambda: remote.mutate_priorities("table", {1: 1.0}),
    "update_priorities": lambda: remote.update_priorities("table", [1], [1.0]),
    "reset": lambda: remote.reset("table"),
    "checkpoint": lambda: remote.checkpoint(),
    "append": lambda: writer.append({"x": 2}),
    "append over a socket": lambda: remote_writer.append({"x": 2}),
    "a local writer": lambda: local_writer.append({"x": 2}),
    "a local iterator": lambda: next(local_samples),
    "create_item": lambda: remote_writer.create_item("table", 1.0, {"x": column[-1:]}),
    "flush": lambda: remote_writer.flush(),
    "end_episode": lambda: writer.end_episode(),
    "legacy append": lambda: legacy.append([2]),
    "legacy create_item": lambda: legacy.create_item("table", 1, 1.0),
    "legacy flush": lambda: legacy.flush(),
    "structured append": lambda: structured.append({"x": 1}),
    "structured flush": lambda: structured.flush(),
    "a new writer": lambda: remote.trajectory_writer(1),
    "a new legacy writer": lambda: remote.writer(1),
    "a new client over gRPC": lambda: connect(server, "grpc").server_info(),
    "a new server": lambda: make_server(),
    "server.wait": lambda: server.wait(),
    "table.info": lambda: server.tables[0].info,
    "table.can_sample": lambda: server.tables[0].can_sample(1),
    "a new limiter": lambda: server.tables[0].set_rate_limiter(reverb.rate_limiters.MinSize(2)),
}
for name, use in uses.items():
    assert child(lambda: refused(use)) == 0, name
def everything():
    for use in uses.values(): refused(use)
assert child(everything) == 0
parent_is_fine()
for each in (writer, local_writer, remote_writer):
    each.append({"x": 3})
    each.create_item("table", 1.0, {"x": each.history["x"][-2:]})
    each.flush()
    each.end_episode()
assert len([next(started) for _ in range(4)]) == 4
assert len([next(local_samples) for _ in range(4)]) == 4
legacy.close()
""")


def test_the_child_may_drop_and_end_everything():
    run("""
writer = remote.trajectory_writer(2)
writer.append({"x": 1})
writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
legacy, samples = remote.writer(2), remote.sample("table", 5)
next(samples)
def drop():
    global writer, legacy, samples, server, inner, local, remote
    del writer, legacy, samples, inner, local, remote, server
    gc.collect()
def end():
    import logging
    logging.disable(logging.CRITICAL)
    server.stop()
    writer.close()
    samples.close()
    try: legacy.close(timeout=1)
    except (RuntimeError, ValueError): pass  # a second close() is an error
def leave_with_blocks():
    try:
        with server, writer: raise KeyError
    except (KeyError, RuntimeError): pass
for function in (drop, end, leave_with_blocks):
    assert child(function) == 0, function
writer.flush()
legacy.close()
assert next(samples)
parent_is_fine()
""")


def test_a_child_that_ends_as_any_program_does():
    """Ends the child without _exit(), so that finalization, atexit and destructors run."""
    run("""
writer = remote.trajectory_writer(2)
writer.append({"x": 1})
for how in ("return", "sys.exit", "raise"):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (1 if how == "raise" else 0), how
if pid == 0:
    if how == "sys.exit": sys.exit(0)
    if how == "raise":
        sys.stderr = open(os.devnull, "w")
        raise KeyError("on purpose")
else:
    parent_is_fine()
    writer.flush()
""")


@pytest.mark.parametrize("ends_by", ["os._exit(0)", "os.execv('/bin/true', ['true'])"])
def test_fork_and_exit_or_exec(ends_by):
    """Runs subprocess after use of the package, as many libraries do."""
    run(f"""
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        {ends_by}
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
import subprocess
for _ in range(3): subprocess.run(["true"], check=True)
parent_is_fine()
""")


def test_fork_while_threads_are_busy():
    run(
        """
stop = threading.Event()
table = server.tables[0]
def waiting(client):
    try: next(client.sample("empty"))
    except RuntimeError: pass
def sampling(client):
    while not stop.is_set(): next(client.sample("table"))
def inserting(client):
    while not stop.is_set(): client.insert(1, {"table": 1.0})
def writing(client):
    writer = client.trajectory_writer(2)
    while not stop.is_set():
        writer.append({"x": np.zeros(100)})
        writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
    writer.flush()
waiter = threading.Thread(target=waiting, args=(inner,))
threads = [threading.Thread(target=work, args=(client,)) for work in (sampling, inserting, writing)
           for client in (inner, local, remote)]
for thread in (waiter, *threads): thread.start()
conditions.wait_until(lambda: table.info.num_unique_samples >= 5 and table.info.current_size >= 100)
for _ in range(20):
    assert child(lambda: refused(lambda: remote.insert(1, {"table": 1.0}))) == 0
    assert child(lambda: next(local.sample("table", timeout=15)) and None) == 0
    assert child(lambda: inner.insert(1, {"table": 1.0}, timeout=15)) == 0
    assert child(lambda: refused(lambda: table.info)) == 0
stop.set()
for thread in threads: thread.join()
parent_is_fine()
server.stop()
waiter.join()
""",
        quiet=False,
    )  # the waiting thread logs after a while


def test_fork_from_a_thread_while_the_main_one_waits():
    run("""
outcomes = []
def fork():
    conditions.wait_for_waiters(inner, 1)
    outcomes.append(child(lambda: refused(lambda: remote.server_info())))
    outcomes.append(child(lambda: refused(lambda: next(samples))))
    outcomes.append(child(lambda: local.server_info(timeout=15) and None))
    remote.insert(5, {"empty": 1.0})
samples = inner.sample("empty")
thread = threading.Thread(target=fork)
thread.start()
assert int(next(samples)[0].data[0]) == 5
thread.join()
assert outcomes == [0, 0, 0], outcomes
parent_is_fine()
""")


def test_use_in_a_grandchild_is_refused():
    run("""
assert child(lambda: child(lambda: refused(lambda: remote.insert(1, {"table": 1.0})))) == 0
parent_is_fine()
""")


def test_what_needs_no_threads_works_in_the_child():
    run("""
import pickle
steps = next(inner.sample("table"))
def work():
    assert int(steps[0].data[0]) == 1
    steps[0].data[0][...] = 2
    repr(server), repr(inner), inner.server_address, server.port
    pickle.dumps(remote)
    reverb.TensorSpec((1,), np.float32)
    reverb.rate_limiters.MinSize(1)
    reverb.selectors.Uniform()
    reverb.structured.pattern_from_transform({"x": None}, lambda step: {"y": step["x"][-1:]})
assert child(work) == 0
assert int(steps[0].data[0]) == 1
""")


def test_fork_before_the_first_use():
    interpreters.run("""
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        pids = []
        break
    pids.append(pid)
signal.alarm(30)
table = make_table()
server = make_server(table)
for transport in ("in_process", "local", "grpc"):
    client = connect(server, transport)
    client.insert(1, {"table": 1.0})
    assert len(list(client.sample("table", 3))) == 3
server.stop()
for pid in pids:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")


# --- Gymnasium ---


def test_environments_of_an_async_vector_env_write_themselves():
    """Gymnasium forks a process for each environment, which uses the client of the program."""
    pytest.importorskip("gymnasium")
    run("""
import gymnasium
class Counting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1e9, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, number): self.number = number
    def reset(self, *, seed=None, options=None):
        self.steps, self.writer = 0, client.trajectory_writer(1)
        return np.zeros(1), {}
    def step(self, action):
        self.steps += 1
        self.writer.append({"env": self.number, "step": self.steps})
        self.writer.create_item("table", 1.0, self.writer.history["step"][-1:])
        self.writer.flush(timeout_ms=15_000)
        client.insert(np.int64(100 * self.number + self.steps), {"queue": 1.0}, timeout=15)
        return np.full(1, self.steps, np.float64), 0.0, False, False, {}
for client in (inner, local):
    client.reset("table")
    client.reset("queue")
    seen = []
    def drain(): seen.extend(int(next(inner.sample("queue", timeout=30))[0].data[0]) for _ in range(3 * 5))
    thread = threading.Thread(target=drain)
    thread.start()
    envs = gymnasium.vector.AsyncVectorEnv([lambda number=number: Counting(number) for number in range(3)],
                                           context="fork", shared_memory=True)
    envs.reset()
    for step in range(5):
        observations, *_ = envs.step(np.zeros(3, np.int64))
        assert observations.tolist() == [[step + 1]] * 3
    envs.close()
    thread.join()
    assert sorted(seen) == [100 * number + step for number in range(3) for step in range(1, 6)]
    assert client.server_info()["table"].current_size == 15
parent_is_fine()
""")


# --- multiprocessing ---

WORKERS = """
import multiprocessing
import queue
import sys

import numpy as np
import reverb


def use(client, results):
    try:
        client.insert(np.arange(3), {"table": 1.0}, timeout=20)
        results.put("inserted")
    except RuntimeError as error:
        results.put(str(error))


def serve(results):
    table = reverb.Table("table", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 10, reverb.rate_limiters.MinSize(1))
    with reverb.Server([table]) as server:
        client = server.localhost_client()
        client.insert(1, {"table": 1.0})
        results.put(len(list(client.sample("table", 2))))


def main(method):
    context = multiprocessing.get_context(method)
    results = context.Queue()
    if method == "fork":  # a child may use the package if the parent has not used it
        worker = context.Process(target=serve, args=(results,))
        worker.start()
        assert results.get(timeout=30) == 2
        worker.join(30)
        assert worker.exitcode == 0
    table = reverb.Table("table", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 10, reverb.rate_limiters.MinSize(1))
    with reverb.Server([table]) as server:
        client = server.localhost_client()
        client.insert(np.arange(3), {"table": 1.0})
        workers = [context.Process(target=use, args=(client, results)) for _ in range(2)]
        for worker in workers:
            worker.start()
        answers = {results.get(timeout=60) for _ in workers}
        for worker in workers:
            worker.join(30)
            assert worker.exitcode == 0, worker.exitcode
        assert answers == {"inserted"}, answers
        assert table.info.current_size == 3
        if method == "fork":  # over gRPC
            worker = context.Process(target=use, args=(reverb.Client(client.server_address, local=False), results))
            worker.start()
            assert "spawn" in results.get(timeout=60)
            worker.join(30)
            assert worker.exitcode == 0
        client.insert(np.arange(3), {"table": 1.0})
        if method == "fork":
            with context.Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]


if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path, method):
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    result = subprocess.run(
        [sys.executable, str(program), method],
        env=interpreters.environment(**NO_WARNING),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
