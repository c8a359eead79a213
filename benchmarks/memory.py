"""Measures the memory of `reverb serve` under writers at full speed, and what a reset gives back.

    benchmarks/memory.py build/dev/apps/reverb
    benchmarks/memory.py before=/old/reverb after=build/dev/apps/reverb "arena1=MALLOC_ARENA_MAX=1 /old/reverb"

Each SERVER is [NAME=][VARIABLE=VALUE ...] PROGRAM. For each size of item and each round, each server in turn is
started with a bound on its data and eviction, written to by processes of `reverb bench insert`, and reset. Columns:

    items/s   all writers together; read ratios between servers of one run, not the figure
    CPU us    processor time of server and writers for each item; compare this on a shared machine, where writers that
              wait for the server lose their turn to other programs
    peak      largest resident set (RSS) while items are written, in MB of 10^6 bytes
    end       RSS when the writers were ended
    reset     RSS at a fixed time after the reset
    goal      1.3 x the bound + 200 MB: what the peak should not exceed
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import tempfile
import time

TABLE = "bench"


@dataclasses.dataclass(frozen=True)
class Server:
    """A program to be measured."""

    name: str
    program: str
    environment: dict[str, str]

    @staticmethod
    def parse(text: str) -> Server:
        """Parse an argument of the command line."""
        words = shlex.split(text)
        program = words.pop()
        name, equals, rest = program.partition("=")
        environment = {}
        if equals:
            program = rest
        elif words:
            name, _, first = words.pop(0).partition("=")
            words.insert(0, first)
        else:
            name = pathlib.Path(program).name
        for word in words:
            variable, _, value = word.partition("=")
            environment[variable] = value
        return Server(name, program, environment)


@dataclasses.dataclass
class Figures:
    """What one run of one server gave."""

    items: float
    cpu_us: float
    peak: float
    end: float
    reset: float


def resident_mb(pid: int) -> float:
    """Return the resident set of a process."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_children(pids: list[int]) -> list[int]:
    """Return these processes and all that they started."""
    found = list(pids)
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += with_children([int(child) for child in (task / "children").read_text().split()])
    return found


@contextlib.contextmanager
def serving(server: Server, max_bytes: int) -> Iterator[tuple[int, str]]:
    """Process id and address of a server with one empty table."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "server.toml")
        config.write_text(
            f'[server]\nport = 0\nmax_bytes = {max_bytes}\nwhen_full = "evict"\n'
            f'[[table]]\nname = "{TABLE}"\nmax_size = 1_000_000_000\n'
        )
        port_file = pathlib.Path(folder, "port")
        process = subprocess.Popen(
            [server.program, "serve", "--config", config, "--port-file", port_file],
            stdout=subprocess.DEVNULL,
            env=os.environ | server.environment,
        )
        try:
            deadline = time.monotonic() + 30
            while not port_file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{server.program} serve did not start")
                time.sleep(0.01)
            yield process.pid, f"127.0.0.1:{port_file.read_text().strip()}"
        finally:
            process.terminate()
            process.wait()


def count_inserts(program: str, address: str) -> int:
    """Return the number of items that were inserted so far."""
    info = subprocess.run([program, "info", address, "--json"], check=True, capture_output=True)
    return json.loads(info.stdout)["tables"][0]["inserts"]


def measure(server: Server, writer: str, size: int, options: argparse.Namespace) -> Figures:
    """Start a server, write to it at full speed, and reset it."""
    with serving(server, options.max_bytes) as (pid, address), contextlib.ExitStack() as at_end:
        command = [writer, "bench", "insert", "--address", address, "--table", TABLE, "--size", size, "--seconds", 3600]
        writers = [
            subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) for _ in range(options.writers)
        ]
        for process in writers:
            at_end.callback(process.wait)
            at_end.callback(process.kill)
        time.sleep(2)  # until all of them write
        pids = with_children([pid, *(process.pid for process in writers)])
        inserts, cpu, start = -count_inserts(writer, address), -sum(map(cpu_seconds, pids)), time.monotonic()
        peak = 0.0
        while time.monotonic() < start + options.seconds:
            peak = max(peak, resident_mb(pid))
            time.sleep(0.02)
        inserts += count_inserts(writer, address)
        cpu += sum(map(cpu_seconds, pids))
        rate = inserts / (time.monotonic() - start)
        if any(process.poll() is not None for process in writers):
            raise SystemExit("a writer ended before it was told to")
        at_end.close()
        end = resident_mb(pid)
        subprocess.run([writer, "reset", address, TABLE, "--yes"], check=True, stdout=subprocess.DEVNULL)
        time.sleep(options.wait)
        return Figures(rate, 1e6 * cpu / inserts, max(peak, end), end, resident_mb(pid))


def main() -> None:
    """Measure the servers of the command line in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", metavar="SERVER", nargs="+", type=Server.parse)
    parser.add_argument("--writer", help="program that writes and resets (default: that of the last server)")
    parser.add_argument("--sizes", default="400,40000,1000000", help="bytes of an item (default: %(default)s)")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--max-bytes", type=int, default=256 << 20)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--wait", type=float, default=5, help="seconds from the reset to the last look")
    options = parser.parse_args()
    writer = options.writer or options.servers[-1].program
    goal = 1.3 * options.max_bytes / 1e6 + 200
    print(
        f"{'size':>8} {'server':<14} {'items/s':>9} {'ratio':>6} {'CPU us':>7} {'peak':>6} {'end':>6} {'reset':>6}"
        f"  goal {goal:.0f}"
    )
    for size in map(int, options.sizes.split(",")):
        rounds = [[measure(server, writer, size, options) for server in options.servers] for _ in range(options.rounds)]
        for i, server in enumerate(options.servers):
            runs = [figures[i] for figures in rounds]
            ratio = statistics.median(figures[i].items / figures[0].items for figures in rounds)
            print(
                f"{size:>8} {server.name:<14} {statistics.median(run.items for run in runs):>9.0f} {ratio:>6.2f}"
                f" {statistics.median(run.cpu_us for run in runs):>7.1f} {max(run.peak for run in runs):>6.0f}"
                f" {max(run.end for run in runs):>6.0f} {max(run.reset for run in runs):>6.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
