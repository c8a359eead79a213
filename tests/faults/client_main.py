"""A process with writers or a sampler for the campaign, which kills it at any moment.

    client_main.py ROLE JSON

Appends a line to the file `log` for each fact that the campaign needs; a line that was written survives SIGKILL:

    confirm WRITER FIRST LAST BEGAN ENDED   flush() of these numbers returned; the times are those of time.monotonic()
    queue WRITER NUMBER TIME                an item was received from the queue
    batch COUNT                             so many samples were received and checked
    late TEXT                               a call with a timeout ended with DeadlineExceededError
    error TIME TEXT                         a call failed; the client was replaced by a new one

Ends with exit code 0 when the file `stop` exists and its calls have returned. Wrong data ends it with exit code 1.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import sys
import threading
import time
import traceback
from typing import Any

import episodes
import numpy as np

import reverb


class Facts:
    """The log of one process. Lines of several threads do not mix: each is one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(str(word) for word in words).replace("\n", " ") + "\n").encode())


class Role:
    """What all roles share: the address, the log, the end, and errors that flipped bits may cause."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.facts = Facts(settings["log"])
        self._stop = pathlib.Path(settings["stop"])

    def is_over(self) -> bool:
        return self._stop.exists()

    def connect(self) -> reverb.Client:
        settings = self.settings
        options = {name: settings[name] for name in ("local", "name")} | settings["options"]
        return reverb.Client(settings["address"], **options)

    def run(self, work) -> None:
        """Repeats work(client) with a new client each time, also after an error, until the end."""
        while not self.is_over():
            try:
                work(self.connect())
            except (RuntimeError, ValueError, reverb.errors.ReverbError) as error:
                # Flipped bits of headers and trailers can look like any error. The campaign knows when it flipped some.
                self.facts.add("error", time.monotonic(), type(error).__name__, error)


class WriterRole(Role):
    """Writes items in groups, and records each group that was confirmed."""

    def __init__(self, settings: dict[str, Any], writer: int) -> None:
        super().__init__(settings)
        self._writer = writer
        self._number = 0
        self._rng = random.Random(writer)

    def write_session(self, client: reverb.Client) -> None:
        """Uses one writer for some groups; the next one may use another server."""
        out = client.trajectory_writer(num_keep_alive_refs=episodes.ROWS)
        # The first item of an episode needs the step before it.
        self._append(out)
        for _ in range(self._rng.randint(5, 40)):
            if self.is_over():
                break
            first, began = self._number, time.monotonic()
            for _ in range(self._rng.randint(1, 6)):
                number = self._append(out)
                item = {name: out.history[name][-episodes.ROWS :] for name in ("bytes", "place")}
                out.create_item("log", 1.0, item)
                if episodes.is_in_queue(number):
                    out.create_item("queue", 1.0, item)
                if episodes.is_prioritized(number):
                    out.create_item("prioritized", self._rng.random() + 0.01, item)
            out.flush()
            self.facts.add("confirm", self._writer, first, self._number - 1, began, time.monotonic())
            time.sleep(self.settings["pause"])  # sets the rate of the load
        out.end_episode()
        out.close()

    def insert_session(self, client: reverb.Client) -> None:
        """Inserts one item at a time with Client.insert()."""
        for _ in range(20):
            if self.is_over():
                return
            self._number += 1
            steps = [episodes.step(self._writer, self._number - back) for back in reversed(range(episodes.ROWS))]
            item = {name: np.stack([step[name] for step in steps]) for name in ("bytes", "place")}
            began = time.monotonic()
            client.insert(item, {"inserts": 1.0})
            self.facts.add("confirm", self._writer, self._number, self._number, began, time.monotonic())
            time.sleep(self.settings["pause"])  # sets the rate of the load

    def _append(self, out: reverb.TrajectoryWriter) -> int:
        number = self._number
        self._number += 1
        out.append(episodes.step(self._writer, number))
        return number


class LearnerRole(Role):
    """Samples batches; calls have no timeout."""

    def learn(self, client: reverb.Client) -> None:
        batches = client.sample_batches("log", 8)
        for _ in range(25):
            data = next(batches).data
            for row in range(8):
                episodes.check({name: column[row] for name, column in data.items()})
            self.facts.add("batch", 8)
            if self.is_over():
                break
            time.sleep(self.settings["pause"])  # sets the rate of the load
        batches.close()


class PrioritizerRole(Role):
    """Samples by priority, changes priorities and deletes items."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._rng = random.Random(1)

    def prioritize(self, client: reverb.Client) -> None:
        for _ in range(20):
            if self.is_over():
                return
            keys = []
            try:
                for item in client.sample("prioritized", 20, emit_timesteps=False, names=True, timeout=5):
                    episodes.check(item.data)
                    keys.append(item.info.key)
                self.facts.add("batch", len(keys))
                updates = {key: self._rng.random() for key in keys}
                client.mutate_priorities("prioritized", updates, keys[:2], timeout=5)
            except reverb.DeadlineExceededError as error:  # a server is lost
                self.facts.add("late", error)
            time.sleep(self.settings["pause"])  # sets the rate of the load


class ConsumerRole(Role):
    """Takes items from the queue."""

    def consume(self, client: reverb.Client) -> None:
        options = {"lease": self.settings["lease"]} if self.settings["lease"] else {}
        samples = client.sample("queue", 200, emit_timesteps=False, names=True, timeout=1, **options)
        while not self.is_over():
            try:
                item = next(samples, None)
            except reverb.DeadlineExceededError as error:  # the queue is empty
                self.facts.add("late", error)
                continue
            if item is None:
                break
            self.facts.add("queue", *episodes.check(item.data), time.monotonic())
        samples.close()


def end_with_the_campaign(parent: int) -> None:
    """Ends this process when the campaign's is gone."""
    while os.getppid() == parent:
        time.sleep(0.5)  # polls the parent
    os._exit(3)


def main() -> int:
    """Runs the role; returns the exit code."""
    role, settings = sys.argv[1], json.loads(sys.argv[2])
    threading.Thread(target=end_with_the_campaign, args=(os.getppid(),), daemon=True).start()
    if role == "learner":
        learner = LearnerRole(settings)
        learner.run(learner.learn)
    elif role == "prioritizer":
        prioritizer = PrioritizerRole(settings)
        prioritizer.run(prioritizer.prioritize)
    elif role == "consumer":
        consumer = ConsumerRole(settings)
        consumer.run(consumer.consume)
    else:
        failed = []

        def write(writer: int) -> None:
            own = WriterRole(settings, writer)
            try:
                own.run(own.insert_session if role == "inserters" else own.write_session)
            except BaseException:
                traceback.print_exc()
                failed.append(writer)

        threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in settings["writers"]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 1 if failed else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
