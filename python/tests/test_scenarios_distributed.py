"""Scenarios: programs of several processes: a server, actors, learners, and the end of each of them."""

import os
import pickle
import subprocess
import sys
import threading
import time

from conditions import wait_for_waiters, wait_until, wait_until_blocked
from conftest import join, make_table
import numpy as np
from processes import free_port, pool
import pytest

import reverb
from reverb import rate_limiters, selectors


@pytest.fixture(autouse=True, params=["local", "grpc"])
def transport(request, monkeypatch):
    """All processes of a test use this transport: they inherit the variable."""
    monkeypatch.setenv("REVERB_LOCAL", "1" if request.param == "local" else "0")


# --- A server, four actors and a learner, started in any order ---


def run_server(results, stop, port):
    server = reverb.Server(
        tables=[
            reverb.Table("replay", selectors.Uniform(), selectors.Fifo(), 10_000, rate_limiters.MinSize(50)),
            reverb.Table.queue("done", 100),
        ],
        port=port,
    )
    assert server.port == port
    stop.wait(60)
    results.put(("server", server.localhost_client().server_info()["replay"].current_size))
    server.stop()


def run_actor(results, stop, client, actor, steps):
    with client.trajectory_writer(num_keep_alive_refs=4) as writer:
        for i in range(steps):
            writer.append({"actor": actor, "step": np.int32(i), "pixels": np.full((8, 8), i, np.uint8)})
            if writer.episode_steps >= 4:
                history = writer.history
                writer.create_item("replay", 1.0 + actor, {name: history[name][-4:] for name in sorted(history)})
            if i % 25 == 24:
                writer.end_episode(timeout_ms=30_000)
    client.insert(actor, {"done": 1.0}, timeout=30)


def run_learner(results, stop, client):
    seen = set()
    for sample in client.sample("replay", 400, emit_timesteps=False, timeout=60):
        actor, pixels, step = sample.data
        assert pixels.shape == (4, 8, 8)
        assert pixels[:, 0, 0].tolist() == step.tolist()
        assert len(set(actor.tolist())) == 1
        assert sample.info.priority == 1.0 + actor[0]
        seen.add(int(actor[0]))
    client.mutate_priorities("replay", updates={sample.info.key: 9.0})
    results.put(("learner", sorted(seen)))


def has_loaded_reverb(pid):
    with open(f"/proc/{pid}/maps") as file:
        return "/_core." in file.read()


def test_actors_and_a_learner_may_start_before_the_server():
    port = free_port()
    client = reverb.Client(f"localhost:{port}")
    assert pickle.loads(pickle.dumps(client)).server_address == client.server_address
    with pool() as processes:
        early = [processes.start(run_actor, client, actor, 100) for actor in range(2)]
        early.append(processes.start(run_learner, client))
        for process in early:
            wait_until(lambda process=process: has_loaded_reverb(process.pid), what="the start of a process")
            wait_until_blocked(process.pid)
        processes.start(run_server, port)
        for actor in range(2, 4):
            processes.start(run_actor, client, actor, 100)
        finished = {int(sample[0].data[0]) for sample in client.sample("done", 4, timeout=60)}
        assert finished == {0, 1, 2, 3}
        ((who, seen),) = processes.take(1)
        assert who == "learner"
        assert set(seen) <= finished
        codes = processes.join()
        assert codes == [0] * 6
        # 25 steps to an episode: 22 items.
        assert processes.take(1) == [("server", 4 * 4 * 22)]


# --- Parameters in a table of one item ---


def weights(version):
    return {
        "dense": (np.full((4, 3), version, np.float32), np.full(3, version, np.float32)),
        "step": np.int64(version),
    }


def weights_signature():
    spec = reverb.TensorSpec
    return {"dense": (spec((4, 3), np.float32), spec((3,), np.float32)), "step": spec((), np.int64)}


def run_collector(results, stop, client, collector, versions):
    """Acts with the newest parameters, and writes its experience to the table."""
    writer = client.trajectory_writer(2)
    last = 0
    while last < versions:
        # Blocks until the first push.
        (step,) = next(client.sample("variables", unpack_as_table_signature=True, timeout=60))
        matrix, bias = step.data["dense"]
        version = int(step.data["step"])
        assert matrix.shape == (4, 3)
        assert (matrix == version).all()
        assert (bias == version).all()
        assert version >= last, "a collector saw older parameters than before"
        last = version
        writer.append({"collector": collector, "version": version})
        writer.create_item("experience", 1.0, {name: column[-1] for name, column in writer.history.items()})
        writer.flush(5)
    writer.end_episode()
    results.put(collector)


def test_collectors_wait_for_parameters_and_see_them_grow(serve):
    versions = 30
    server = serve(
        make_table("experience", sampler=selectors.Uniform(), max_size=1_000_000),
        make_table("variables", sampler=selectors.Uniform(), max_size=1, signature=weights_signature()),
    )
    client = reverb.Client(f"localhost:{server.port}", in_process=False)
    with pool() as processes:
        for collector in range(2):
            processes.start(run_collector, client, collector, versions)
        wait_for_waiters(client, 2)
        for version in range(1, versions + 1):
            client.insert(weights(version), {"variables": 1.0})
            assert client.server_info()["variables"].current_size == 1
            time.sleep(0.01)  # simulates training, so that collectors see several versions
        assert sorted(processes.take(2)) == [0, 1]
        assert processes.join() == [0, 0]
    assert client.server_info()["experience"].current_size >= 2


def test_requested_parameters_are_the_newest(serve, connect):
    """Uses a new iterator for each sample, or one without prefetch."""
    client = connect(serve(make_table("weights", max_size=1, sampler=selectors.Uniform())))
    exact = client.sample("weights", 1000, exact=True, timeout=20)
    for version in range(40):
        client.insert([version], {"weights": 1.0})
        assert next(exact)[0].data[0] == version
        assert next(client.sample("weights", timeout=20))[0].data[0] == version


def test_a_second_sample_is_at_most_one_version_old(serve, connect):
    client = connect(serve(make_table("weights", max_size=1, sampler=selectors.Uniform())))
    for version in range(0, 40, 2):
        client.insert([version], {"weights": 1.0})
        reader = client.sample("weights", 2, timeout=20)
        assert next(reader)[0].data[0] == version
        client.insert([version + 1], {"weights": 1.0})
        assert next(reader)[0].data[0] >= version


def test_parameters_of_another_structure_are_refused(serve, connect):
    client = connect(serve(make_table("variables", max_size=1, signature=weights_signature())))
    client.insert({"dense": list(weights(1)["dense"]), "step": np.int64(1)}, {"variables": 1.0})  # a list for a tuple
    with pytest.raises(ValueError, match="variables"):
        client.insert(weights(1)["dense"], {"variables": 1.0})
    with pytest.raises(ValueError, match="int32"):
        client.insert({**weights(1), "step": np.int32(1)}, {"variables": 1.0})
    with pytest.raises(ValueError, match='Could not find table "elsewhere"'):
        next(client.sample("elsewhere", unpack_as_table_signature=True))
    with pytest.raises(KeyError):
        client.server_info()["elsewhere"]


# --- A server that ends and restarts ---


def run_until_the_server_is_gone(results, stop, client):
    writer = client.trajectory_writer(2)
    writer.append(np.zeros(1000))
    writer.create_item("queue", 1.0, writer.history[-1])
    writer.flush()
    results.put("written")
    stop.wait(30)
    writer.append(np.zeros(1000))
    writer.create_item("queue", 1.0, writer.history[-1])
    start = time.monotonic()
    try:
        writer.flush(0, timeout_ms=500)
        results.put("flush returned")
    except reverb.DeadlineExceededError:
        results.put("deadline" if time.monotonic() - start < 5 else "late deadline")
    # The interpreter exits with items that are never sampled.


def test_a_writer_whose_server_is_gone_ends_by_deadline_and_lets_the_interpreter_end(serve):
    server = serve(reverb.Table.queue("queue", 10))
    client = reverb.Client(f"localhost:{server.port}", in_process=False)
    with pool() as processes:
        process = processes.start(run_until_the_server_is_gone, client)
        assert processes.take(1) == ["written"]
        server.stop()
        processes.stop.set()
        assert processes.take(1) == ["deadline"]
        start = time.monotonic()
        process.join(20)
        assert process.exitcode == 0
        assert time.monotonic() - start < 10


def test_producers_survive_the_restart_of_a_server(serve):
    """Writes many small items of bytes; the producer recognises the error by its text, and continues."""
    port = free_port()

    def start():
        return reverb.Server(
            [reverb.Table("data", selectors.Uniform(), selectors.Uniform(), 1000, rate_limiters.Queue(20), 1)], port
        )

    server = start()
    client = reverb.Client(f"localhost:{port}", in_process=False)
    failures, produced, done = [], [], threading.Event()

    def produce(number):
        i = 0
        while not done.is_set():
            try:
                record = {"inputs": f"{number}/{i}".encode(), "targets": bytes([i % 256]) * 10}
                client.insert(record, {"data": 1.0}, timeout=1)
                produced.append((number, i))
                i += 1
            except RuntimeError as error:
                if "Error when confirming that all items written to table." not in str(error):
                    raise
                failures.append(error)
                time.sleep(0.05)  # the pause before a retry
            except reverb.DeadlineExceededError:
                continue

    producers = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(3)]
    for producer in producers:
        producer.start()
    try:
        first = [sample[0].data[0].item() for sample in client.sample("data", 30, timeout=30)]
        server.stop()
        server = start()
        second = [sample[0].data[0].item() for sample in client.sample("data", 30, timeout=30)]
    finally:
        done.set()
        join(*producers)
        server.stop()
    assert len(set(first)) == len(set(second)) == 30
    assert all(b"/" in name for name in first + second)


def test_a_process_that_ends_without_closing_anything_ends_well(serve):
    server = serve(make_table("table"), reverb.Table.queue("full", 1))
    code = f"""
import reverb, numpy as np
client = reverb.Client("localhost:{server.port}")
server = reverb.Server([reverb.Table.queue("own", 5)])
own = server.localhost_client()
writers = [client.trajectory_writer(2), own.trajectory_writer(2), client.writer(2), own.writer(2)]
for writer in writers[:2]:
    writer.append(1.0)
    writer.create_item("table" if writer is writers[0] else "own", 1.0, writer.history[-1:])
client.insert(1.0, {{"table": 1.0}})
samples = client.sample("table", 100)
next(samples)
waiting = own.sample("own", 3, timeout=0.01)
try:
    next(waiting); next(waiting)
except reverb.DeadlineExceededError:
    pass
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


# --- Several writers of one client, and other learners ---


def test_steps_as_dicts_with_several_writers_of_one_client(serve, connect):
    length = 16
    client = connect(serve(make_table("replay", sampler=selectors.Uniform(), max_size=100_000)))
    writers = [client.trajectory_writer(length) for _ in range(3)]
    items = [0] * 3
    for i in range(60):
        for number, writer in enumerate(writers):
            writer.append({"image": np.full((2, 2), i, np.uint8), "reward": np.float32(number), "is_first": i == 0})
            history = writer.history
            assert len(history["image"]) == i + 1
            if len(history["image"]) >= length:
                writer.create_item("replay", 1.0, {name: column[-length:] for name, column in history.items()})
                items[number] += 1
                if items[number] % 10 == 0:
                    writer.flush()
    for writer in writers:
        writer.flush()
    info = client.server_info()["replay"]
    assert info.current_size == sum(items) == 3 * 45
    assert info.num_episodes == 3
    for sample in client.sample("replay", 50, emit_timesteps=False, timeout=20):
        image, is_first, reward = sample.data
        assert image.shape == (length, 2, 2)
        assert np.diff(image[:, 0, 0].astype(int)).tolist() == [1] * (length - 1)
        assert len(set(reward.tolist())) == 1
        assert is_first.tolist() == [value == 0 for value in image[:, 0, 0]]


def test_a_huge_first_priority_makes_new_items_known_by_key(serve, connect):
    client = connect(serve(make_table("replay", sampler=selectors.Prioritized(1.0, seed=8))))
    keys = []
    for i in range(20):
        client.insert(i, {"replay": 1e12})
        sample = next(client.sample("replay", exact=True))[0]  # almost certainly the new one
        assert sample.data == [i]
        keys.append(sample.info.key)
        client.mutate_priorities("replay", updates={sample.info.key: 0.1 * (i + 1)})
    assert len(set(keys)) == 20
    stored = {s.info.key: s.info.priority for s in client.peek("replay", 20)}
    assert stored == {key: pytest.approx(0.1 * (i + 1)) for i, key in enumerate(keys)}


def test_dicts_of_bytes_sampled_once_each(serve, connect):
    server = serve(reverb.Table("data", selectors.Uniform(), selectors.Uniform(), 10_000, rate_limiters.MinSize(1), 1))
    client = connect(server)
    records = [{"inputs": bytes(range(i)), "targets": b"\xff\x00" * i} for i in range(50)]
    for record in records:
        client.insert(record, {"data": 1.0})
    seen = [tuple(value.item() for value in step.data) for (step,) in client.sample("data", 50, timeout=20)]
    assert sorted(seen) == sorted((record["inputs"], record["targets"]) for record in records)


def test_a_program_that_starts_again_from_its_checkpoint(tmp_path):
    def start():
        checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
        return reverb.Server([make_table("replay")], checkpointer=checkpointer)

    server = start()
    client = server.localhost_client()
    for i in range(10):
        client.insert(i, {"replay": 1.0})
    try:
        path = client.checkpoint()
    finally:
        server.stop()
    assert path.startswith(str(tmp_path))
    server = start()
    assert server.localhost_client().server_info()["replay"].current_size == 10
    server.stop()


def test_programs_may_ask_whether_a_client_is_tensorflows(serve):
    client = serve(make_table("table")).localhost_client()
    assert not isinstance(client, reverb.TFClient)
