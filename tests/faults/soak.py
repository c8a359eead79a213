"""Runs a server with writers, learners and consumers for a long time, and checks what they see.

    soak.py --program build/dev/apps/reverb --seconds 600 [--seed 1]

`reverb serve` has three tables and writes a checkpoint every few seconds. Processes write episodes of random length to
all of them, sample, update, delete, and consume the queue. In the first half of the time the server is killed every
`--kill-every` seconds and started again from its last checkpoint; every client must reconnect by itself. Checks:

- Every trajectory that is sampled is one that a writer wrote: consecutive steps of one episode, bytes that match.
- A consumer of the queue gets each item once in each life of the server, and the items of one writer in order.
- No client ends with an error, and each one makes progress in each life of the server.
- Memory, threads and descriptors of the server do not grow in its last life, which has half of the time.

Prints a line for each life of the server and exits with 0 if every check held.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import random
import sys
import tempfile
import time
import traceback

import numpy as np
from program import ServerProgram

import reverb

TABLES = ("uniform:uniform:fifo:20000", "prioritized:prioritized=0.8:fifo:5000", "queue:queue:1000")
START_SECONDS = 60  # a server must be up again, and clients must have reconnected, within this time
GROWTH = 1.2  # of the server's memory, threads and descriptors, in its last and longest life
SLACK_MB = 50


def payload(writer: int, episode: int, step: int) -> np.ndarray:
    """Returns the bytes of a step: every third one compresses."""
    seed = writer * 1_000_003 + episode * 1_009 + step
    if step % 3 == 0:
        return np.full(400, seed % 251, np.uint8)
    return (np.arange(400, dtype=np.int64) * (seed % 65_521 + 1) % 251).astype(np.uint8)


def columns(item) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two columns of a sampled trajectory, which may come as a dictionary or in the order of its keys."""
    data = item.data
    return (data["place"], data["bytes"]) if isinstance(data, dict) else (data[1], data[0])


def check(data: tuple[np.ndarray, np.ndarray]) -> tuple[int, int, int]:
    """Checks (writer, episode, step) and payload of each step of a trajectory. Returns those of the first step."""
    place, rows = data
    writer, episode, first = (int(value) for value in place[0])
    for row, (own_writer, own_episode, step) in enumerate(place):
        if (own_writer, own_episode, step) != (writer, episode, first + row):
            raise AssertionError(f"steps of several places in one trajectory: {place.tolist()}")
        if not np.array_equal(rows[row], payload(writer, episode, int(step))):
            raise AssertionError(
                f"step {step} of episode {episode} of writer {writer} has other bytes than were written"
            )
    return writer, episode, first


def write(address: str, writer: int, seed: int, stop, progress) -> None:
    """Writes episodes of 1 to 60 steps: a trajectory of up to 5 steps each to all tables."""
    rng = random.Random(seed)
    client = reverb.Client(address)
    with client.trajectory_writer(num_keep_alive_refs=5) as out:
        episode = 0
        while not stop.is_set():
            episode += 1
            for step in range(rng.randint(1, 60)):
                out.append({"place": np.array([writer, episode, step]), "bytes": payload(writer, episode, step)})
                length = min(step + 1, 5)
                trajectory = {name: out.history[name][-length:] for name in ("place", "bytes")}
                out.create_item(rng.choice(["uniform", "prioritized"]), rng.random() + 0.01, trajectory)
                if step % 10 == 0:
                    out.create_item("queue", 1.0, trajectory)
                progress.value += 1
                if stop.is_set():
                    break
            out.end_episode()


def sample(address: str, table: str, seed: int, progress) -> None:
    """Samples batches, changes priorities and deletes items."""
    rng = random.Random(seed)
    client = reverb.Client(address)
    while True:
        sampler = client.sample(table, num_samples=200, emit_timesteps=False)
        keys = []
        for item in sampler:
            check(columns(item))
            keys.append(item.info.key)
            progress.value += 1
        client.mutate_priorities(table, updates={key: rng.random() for key in keys}, deletes=keys[:5])


def consume(address: str, life, progress) -> None:
    """Takes items from the queue: each once, those of a writer in order, while the server lives."""
    client = reverb.Client(address)
    last: dict[int, tuple[int, int]] = {}
    went_back: dict[int, int] = {}  # by writer: the life of the server in which its items last started again
    while True:
        for item in client.sample("queue", num_samples=50, emit_timesteps=False):
            place = check(columns(item))
            writer, end = place[0], (place[1], place[2] + len(columns(item)[0]))
            if writer in last and end <= last[writer]:
                # A restart returns the queue to its last checkpoint: once after each, items may come again.
                if went_back.get(writer, 1) >= life.value:
                    raise AssertionError(f"queue: writer {writer} has {end} after {last[writer]} in life {life.value}")
                went_back[writer] = life.value
            last[writer] = end
            progress.value += 1


def run_role(name: str, target, arguments: tuple, failures) -> None:
    """Runs a client; reports exceptions through `failures`."""
    try:
        target(*arguments)
    except BaseException:
        failures.put(f"{name}: {traceback.format_exc()}")
        raise


def wait_for(condition, seconds: float, what: str, failures) -> None:
    """Waits until the condition holds; fails after `seconds`, or when a client has failed."""
    end = time.monotonic() + seconds
    while not condition():
        if not failures.empty():
            raise SystemExit(f"soak: a client failed\n{failures.get()}")
        if time.monotonic() > end:
            raise SystemExit(f"soak: {what} did not happen within {seconds:g} s")
        time.sleep(0.1)  # polls the condition


def main() -> int:
    """Runs the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kill-every", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    spawn = multiprocessing.get_context("spawn")
    stop, life, failures = spawn.Event(), spawn.Value("q", 1), spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        arguments = ("--max-bytes", "256MiB", "--checkpoint-every", "5s")
        server = ServerProgram(options.program, TABLES, root, arguments=arguments)
        address = f"localhost:{server.port}"
        roles = {f"writer {i}": (write, (address, i, options.seed + i, stop)) for i in range(3)}
        for table in ("uniform", "prioritized"):
            roles[f"sampler of {table}"] = (sample, (address, table, options.seed))
        roles["consumer"] = (consume, (address, life))
        progress = {name: spawn.Value("q", 0) for name in roles}
        clients = []
        for name, (target, arguments) in roles.items():
            arguments = (name, target, (*arguments, progress[name]), failures)
            clients.append(spawn.Process(target=run_role, args=arguments, name=name))
            clients[-1].start()

        def await_progress(before: dict[str, int]) -> None:
            what = f"progress of every client in life {life.value} of the server"
            wait_for(
                lambda: all(progress[name].value > before[name] + 20 for name in progress),
                START_SECONDS,
                what,
                failures,
            )

        def run_for(seconds: float) -> None:
            end = time.monotonic() + seconds
            wait_for(lambda: time.monotonic() >= end, seconds + 1, "the end of the time", failures)
            if server.process.poll() is not None:
                raise SystemExit(f"soak: the server ended by itself with {server.process.returncode}")

        def show(before: dict[str, int]) -> None:
            done = {name: value.value - before[name] for name, value in progress.items()}
            print(f"life {life.value}: {server.usage()} {done}", flush=True)

        try:
            half = time.monotonic() + options.seconds / 2
            while True:
                before = {name: value.value for name, value in progress.items()}
                await_progress(before)
                if time.monotonic() >= half:
                    break
                run_for(options.kill_every)
                show(before)
                life.value += 1
                server.kill()
                server.start()
            # The last life has half of the time: what grows slowly shows.
            run_for(options.seconds / 8)
            warm = server.usage()
            run_for(options.seconds * 3 / 8)
            last = server.usage()
            show(before)
            # Writers flush what they have written, which needs the consumer; the others run until they are ended below.
            stop.set()
            for client in clients:
                if client.name.startswith("writer"):
                    client.join(START_SECONDS)
                    if client.exitcode != 0:
                        raise SystemExit(f"soak: {client.name} did not end in order: exit code {client.exitcode}")
                elif not client.is_alive():
                    raise SystemExit(f"soak: {client.name} ended by itself with {client.exitcode}")
        except SystemExit:
            sys.stderr.write(server.tail())
            raise
        finally:
            stop.set()
            for client in clients:
                if client.is_alive():
                    client.kill()
            server.close()
    if not failures.empty():
        raise SystemExit(f"soak: a client failed\n{failures.get()}")
    for name, slack in (("memory", SLACK_MB), ("threads", 16), ("descriptors", 16)):
        if last[name] > GROWTH * warm[name] + slack:
            raise SystemExit(f"soak: {name} of the server grew from {warm[name]:g} to {last[name]:g}")
    operations = sum(value.value for value in progress.values())
    print(f"soak: {life.value} lives of the server, {operations} operations, all checks held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
