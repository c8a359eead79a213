"""Tests signals, fork and threads, each in a separate process. Interrupted waits: test_interrupts.py."""

import os
import signal
import subprocess
import sys
import textwrap

import interpreters

START = """
import os, signal, sys, threading, time
import numpy as np
import conditions
import reverb

server = reverb.Server([reverb.Table.queue("queue", 1), reverb.Table.queue("empty", 1)])
client = reverb.Client(f"localhost:{server.port}", in_process=True)
client.insert(0, {"queue": 1.0})

def full_writer():
    writer = client.trajectory_writer(1)
    for i in range(3):
        writer.append(i)
        writer.create_item("queue", 1.0, writer.history[-1])
    return writer
"""


def run(code, *, timeout=30):
    program = START + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=timeout, env=interpreters.environment()
    )


def test_ctrl_c_ends_a_load(tmp_path):
    result = run(
        f"""
        def start():
            table = reverb.Table(
                "t", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 10**6, reverb.rate_limiters.MinSize(1)
            )
            checkpointer = reverb.checkpointers.DefaultCheckpointer({str(tmp_path)!r})
            return reverb.Server([table], checkpointer=checkpointer)

        full = start()
        filler = full.localhost_client()
        with filler.vector_writer(num_envs=1000, num_keep_alive_refs=1) as writer:
            for _ in range(100):
                writer.append(np.zeros(1000))
                writer.create_items("t", 1.0, writer.history[-1])
            writer.flush()
        filler.checkpoint()
        full.stop()

        signal.signal(signal.SIGALRM, signal.default_int_handler)
        loaded = None
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            loaded = start()
        except KeyboardInterrupt:
            print("interrupted", loaded)
        whole = start()
        print(whole.localhost_client().server_info()["t"].current_size)
        """,
        timeout=120,
    )
    assert result.stdout == "interrupted None\n100000\n", result


def test_what_a_signal_handler_raises_is_passed_on():
    result = run(
        """
        class Alarm(Exception): pass
        def handler(*_): raise Alarm("ring")
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            next(client.sample("empty"))
        except Alarm as error:
            print("caught", error)
        """
    )
    assert result.stdout == "caught ring\n", result


def test_a_handler_that_does_not_raise_ends_nothing():
    result = run(
        """
        signal.signal(signal.SIGALRM, lambda *_: client.insert(7, {"empty": 1.0}))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        print(next(client.sample("empty"))[0].data)
        """
    )
    assert result.stdout == "[array(7)]\n", result


def test_other_threads_run_while_one_waits():
    result = run(
        """
        threading.Thread(target=lambda: next(client.sample("empty")), daemon=True).start()
        conditions.wait_for_waiters(client, 1)
        start = time.monotonic()
        count = 0
        while time.monotonic() - start < 0.3:
            count += 1
        print(count > 1000)
        """
    )
    assert result.stdout == "True\n", result


def test_an_exception_ends_the_interpreter_too():
    result = run("writer = full_writer()\nraise SystemError('on purpose')")
    assert result.returncode == 1
    assert "on purpose" in result.stderr


# --- fork ---


def test_the_error_in_a_forked_child_suggests_spawn():
    result = run(
        """
        client = reverb.Client(f"localhost:{server.port}", in_process=False, local=False)
        writer = client.trajectory_writer(1)
        writer.append(1)
        samples = client.sample("queue", 2)
        pid = os.fork()
        if pid == 0:
            status = 0
            for call in (
                lambda: client.insert(0, {"queue": 1.0}),
                lambda: next(samples),
                lambda: client.server_info(1),
                lambda: writer.append(2),
                lambda: writer.flush(),
                lambda: reverb.Client("localhost:1").server_info(1),
                lambda: reverb.Server([reverb.Table.queue("q", 1)]),
                lambda: server.wait(),
            ):
                try:
                    call()
                    status = 1
                except RuntimeError as error:
                    if "spawn" not in str(error):
                        status = 2
            writer.close()
            server.stop()
            del writer, samples
            sys.exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        print(client.server_info()["queue"].current_size)
        """
    )
    assert result.stdout == "0\n1\n", result


def test_fork_before_the_first_use_is_fine():
    program = """
import os, sys
import reverb
table = reverb.Table.queue("q", 10)
pid = os.fork()
server = reverb.Server([table])
client = server.localhost_client()
client.insert(3, {"q": 1.0})
assert int(next(client.sample("q"))[0].data[0]) == 3
if pid == 0:
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


def test_multiprocessing_with_spawn(tmp_path):
    program = tmp_path / "spawned.py"
    program.write_text(
        """
import multiprocessing
import reverb

def work(client, i):
    client.insert(i, {"q": 1.0})

if __name__ == "__main__":
    server = reverb.Server([reverb.Table.queue("q", 10)])
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(server.localhost_client(), i)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    print(sorted(int(s[0].data[0]) for s in server.localhost_client().sample("q", 2)))
"""
    )
    result = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert result.stdout == "[0, 1]\n", result


def test_a_server_process_ends_by_ctrl_c():
    program = "import reverb; s = reverb.Server([reverb.Table.queue('q', 1)]); print(s.port, flush=True); s.wait()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=10)
    assert b"KeyboardInterrupt" in error
