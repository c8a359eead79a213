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
MEMORY_LIMIT = (2 << 30) if LONG else (512 << 20)
SECONDS_AT_LIMIT = 60 if LONG else 1.5


class MemoryLimit(ProgramTest):
    """Tests that a server stays within `memory_limit`, whatever its clients do."""

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([frame.program, *words], stdout=subprocess.DEVNULL, env=environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def check(self, size: int) -> None:
        """Runs four writers at full speed beside a learner that stops reading; then a reset."""
        (self.folder / "server.toml").write_text(
            f'[server]\nmemory_limit = {MEMORY_LIMIT}\nwhen_full = "evict"\n'
            '[[table]]\nname = "t"\nmax_size = 1_000_000_000\n'
        )
        server = self.serve("--config", str(self.folder / "server.toml"))
        if "libasan" in pathlib.Path(f"/proc/{server.process.pid}/maps").read_text():
            self.skipTest("AddressSanitizer keeps what is freed")
        target = ("--address", server.address, "--table", "t", "--rounds", "1", "--seconds", "600")
        writers = [self.start("bench", "insert", *target, "--size", str(size)) for _ in range(4)]
        learner = self.start("bench", "sample", *target)
        wait_until("the learner to sample", lambda: self.table(server, "t")["samples"] > 0)
        learner.send_signal(signal.SIGSTOP)
        peak = 0
        reached = None
        deadline = time.monotonic() + 10 * PATIENCE
        while reached is None or time.monotonic() < reached + SECONDS_AT_LIMIT:
            peak = max(peak, resident_bytes(server))
            self.assertEqual([writer.poll() for writer in writers], [None] * 4)
            self.assertLess(time.monotonic(), deadline, "the limit was not reached")
            if reached is None and self.table(server, "t")["evictions"] > 0:
                reached = time.monotonic()
            time.sleep(0.05)  # samples the memory while the writers run
        memory = self.info(server)["memory"]
        self.assertEqual(memory["limit"], MEMORY_LIMIT)
        self.assertLess(memory["used"], MEMORY_LIMIT)
        print(f"items of {size} B: peak RSS {peak / MEMORY_LIMIT:.3f} x memory_limit; {memory}", flush=True)
        self.assertLess(peak, 1.15 * MEMORY_LIMIT)
        for process in (*writers, learner):
            process.kill()
            process.wait()
        self.expect(("reset", server.address, "t", "--yes"), OK)
        wait_until("the memory to be returned", lambda: resident_bytes(server) < MEMORY_LIMIT / 4)

    def test_small_items(self):
        self.check(400)

    def test_items_of_some_pages(self):
        self.check(40_000)

    def test_large_items(self):
        self.check(1_000_000)
