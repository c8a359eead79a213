"""Tests how much memory a server uses and returns."""

import os
import pathlib
import signal
import subprocess
import time

import frame
from frame import OK, PATIENCE, ProgramTest, Server, environment, wait_until

MAX_BYTES = 64 << 20
MOST = 1.3 * MAX_BYTES + 200e6  # what docs/program.md promises


def resident_bytes(server: Server) -> int:
    pages = int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Memory(ProgramTest):
    def check(self, size: int) -> None:
        """Runs four writers at full speed against a server that evicts; then a reset."""
        (self.folder / "server.toml").write_text(
            f'[server]\nmax_bytes = {MAX_BYTES}\nwhen_full = "evict"\n[[table]]\nname = "t"\nmax_size = 1_000_000_000\n'
        )
        server = self.serve("--config", str(self.folder / "server.toml"))
        if "libasan" in pathlib.Path(f"/proc/{server.process.pid}/maps").read_text():
            self.skipTest("AddressSanitizer keeps what is freed")
        words = ["bench", "insert", "--address", server.address, "--table", "t", "--size", str(size)]
        words += ["--seconds", "1.5", "--rounds", "1"]
        writers = []
        for _ in range(4):
            writer = subprocess.Popen([frame.program, *words], stdout=subprocess.DEVNULL, env=environment())
            self.addCleanup(writer.wait)
            self.addCleanup(writer.kill)
            writers.append(writer)
        peak = 0
        deadline = time.monotonic() + PATIENCE
        while any(writer.poll() is None for writer in writers):
            peak = max(peak, resident_bytes(server))
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)  # samples the memory while the writers run
        self.assertEqual([writer.returncode for writer in writers], [0] * 4)
        self.assertGreater(self.table(server, "t")["evictions"], 0, "the bound was not reached")
        self.assertLess(peak, MOST)
        self.expect(("reset", server.address, "t", "--yes"), OK)
        wait_until("the memory to be returned", lambda: resident_bytes(server) < 64e6)

    def test_small_items(self):
        self.check(400)

    def test_items_of_some_pages(self):
        self.check(40_000)

    def test_large_items(self):
        self.check(1_000_000)


LONG = os.environ.get("REVERB_TEST_LONG") == "1"
MEMORY_LIMIT = (2 << 30) if LONG else (256 << 20)
SECONDS_AT_LIMIT = 60 if LONG else 1.5
MOST_OF_LIMIT = 1.15


class MemoryLimit(ProgramTest):
    """Tests that a server stays within `memory_limit`, whatever its clients do."""

    memory_limit = MEMORY_LIMIT

    def start_bench(self, server: Server, *words: str, local: bool) -> subprocess.Popen[bytes]:
        target = ("--address", server.address, "--table", "t", "--rounds", "1", "--seconds", "600")
        process = subprocess.Popen(
            [frame.program, "bench", *words, *target],
            stdout=subprocess.DEVNULL,
            env=environment(REVERB_LOCAL="1" if local else "0"),
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_server(self, when_full: str, *words: str, remover: str = "fifo") -> Server:
        (self.folder / "server.toml").write_text(
            f'[server]\nmemory_limit = {self.memory_limit}\nwhen_full = "{when_full}"\n'
            f'[[table]]\nname = "t"\nmax_size = 1_000_000_000\nremover = "{remover}"\n'
        )
        server = self.serve("--config", str(self.folder / "server.toml"), *words)
        if "libasan" in pathlib.Path(f"/proc/{server.process.pid}/maps").read_text():
            self.skipTest("AddressSanitizer keeps what is freed")
        return server

    def watch(self, server: Server, writers: list, what: str, is_reached, is_over=lambda: True) -> float:
        """Returns the peak of the memory until is_reached(), some time after that, and until is_over()."""
        peak = 0
        reached = None
        deadline = time.monotonic() + 10 * PATIENCE
        while reached is None or time.monotonic() < reached + SECONDS_AT_LIMIT or not is_over():
            peak = max(peak, resident_bytes(server))
            self.assertEqual([writer.poll() for writer in writers], [None] * len(writers))
            self.assertLess(time.monotonic(), deadline, f"no {what}")
            if reached is None and is_reached():
                reached = time.monotonic()
            time.sleep(0.02)  # samples the memory while the writers run
        memory = self.info(server)["memory"]
        self.assertEqual(memory["limit"], self.memory_limit)
        parts = ", ".join(f"{name} {memory[name] / 2**20:.1f}" for name in memory if name != "limit" and memory[name] > 0)
        print(f"{self.id().split('.')[-1]}: peak RSS {peak / self.memory_limit:.3f} x memory_limit; now in MiB: {parts}", flush=True)
        self.assertLess(memory["used"], 1.02 * self.memory_limit)
        self.assertLess(peak, MOST_OF_LIMIT * self.memory_limit)
        return peak

    def check(self, *sizes: int, local: bool, when_full: str = "evict") -> None:
        """Runs four writers at full speed beside a learner that stops reading; then a reset."""
        server = self.start_server(when_full)
        sizes = (*sizes, *sizes, *sizes, *sizes)[:4]
        writers = [self.start_bench(server, "insert", "--size", str(size), local=local) for size in sizes]
        wait_until("items", lambda: self.table(server, "t")["size"] > 0)
        learner = self.start_bench(server, "sample", local=local)
        wait_until("the learner to sample", lambda: self.table(server, "t")["samples"] > 0)
        learner.send_signal(signal.SIGSTOP)

        def is_reached() -> bool:
            table = self.table(server, "t")
            if when_full == "evict":
                return table["evictions"] > 0
            self.assertEqual(table["evictions"], 0)
            return table["insert_wait_reason"] == "memory"

        self.watch(server, writers, "full memory", is_reached)
        for process in (*writers, learner):
            process.kill()
            process.wait()
        self.expect(("reset", server.address, "t", "--yes"), OK)
        wait_until("the memory to be returned", lambda: resident_bytes(server) < self.memory_limit / 4)
        print(f"after a reset: {resident_bytes(server) / 2**20:.1f} MiB", flush=True)

    def check_all_sizes(self, *, local: bool) -> None:
        # Items of such different sizes take up to 250 MB beside what is counted, too much for a small limit.
        self.memory_limit = max(MEMORY_LIMIT, 1 << 30)
        self.check(400, 40_000, 1_000_000, local=local)

    def test_small_items_local(self):
        self.check(400, local=True)

    def test_items_of_some_pages_local(self):
        self.check(40_000, local=True)

    def test_large_items_local(self):
        self.check(1_000_000, local=True)

    def test_small_items_grpc(self):
        self.check(400, local=False)

    def test_items_of_some_pages_grpc(self):
        self.check(40_000, local=False)

    def test_large_items_grpc(self):
        self.check(1_000_000, local=False)

    def test_items_of_all_sizes_local(self):
        self.check_all_sizes(local=True)

    def test_items_of_all_sizes_grpc(self):
        self.check_all_sizes(local=False)

    def test_inserts_wait(self):
        self.check(40_000, local=False, when_full="wait")

    def test_checkpoints_while_items_are_evicted(self):
        """What a checkpoint keeps counts: inserts wait for it, and it ends."""
        # Evicts items of all pages, whether or not they are written.
        server = self.start_server("evict", "--checkpoint", str(self.folder / "checkpoints"), remover="uniform")
        writers = [self.start_bench(server, "insert", "--size", "40000", local=True) for _ in range(2)]
        wait_until("full memory", lambda: self.table(server, "t")["evictions"] > 0)
        checkpoints = []
        parked = 0

        def is_over() -> bool:
            nonlocal parked
            parked = max(parked, self.info(server)["memory"]["parked"])
            if (not checkpoints or checkpoints[-1].poll() == 0) and len(checkpoints) < 3:
                words = [frame.program, "checkpoint", "save", server.address]
                checkpoints.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment()))
                self.addCleanup(checkpoints[-1].wait)
                self.addCleanup(checkpoints[-1].kill)
            return len(checkpoints) == 3 and checkpoints[-1].poll() is not None

        self.watch(server, writers, "end of the checkpoints", lambda: True, is_over)
        self.assertEqual([process.wait() for process in checkpoints], [0] * 3)
        print(f"at most {parked / 2**20:.1f} MiB parked", flush=True)
        inserts = self.table(server, "t")["inserts"]
        wait_until("inserts after the checkpoints", lambda: self.table(server, "t")["inserts"] > inserts)
