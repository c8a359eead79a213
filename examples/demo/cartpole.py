"""The demo: an agent learns to balance a pole, through a Reverb server.

Starts a server process (`reverb serve`), a learner and several actors, each in a separate process, and monitors them
until the agent has solved CartPole-v1: a mean return of at least 475 over 20 evaluation episodes. Exits with 0 then,
or with 1 if that does not happen in time. `make demo` sets everything up and runs it; to run it directly:

    python examples/demo/cartpole.py --program build/venv-demo/bin/reverb

agent.py contains the agent and its use of Reverb; server.toml defines the tables.
"""

from __future__ import annotations

import os

# One thread per process: the matrices are small. Set before NumPy is imported, here and in the child processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import collections
from collections.abc import Callable, Iterator
import contextlib
import multiprocessing
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import agent
import gymnasium
import numpy as np
import plots
import progress

import reverb

HERE = Path(__file__).parent
SOLVED = 475.0
EVALUATION_EPISODES = 20
SECONDS_PER_EVALUATION = 4.0


def evaluate(weights: agent.Weights, seed: int) -> np.ndarray:
    """Returns the returns of 20 episodes without exploration, played in parallel."""
    envs = [gymnasium.make(agent.TASK) for _ in range(EVALUATION_EPISODES)]
    observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])
    scores = np.zeros(len(envs))
    playing = np.arange(len(envs))
    while len(playing):
        actions = agent.q_values(weights, observations[playing]).argmax(axis=1)
        still = []
        for i, action in zip(playing, actions, strict=True):
            observations[i], reward, fell, timed_out, _ = envs[i].step(int(action))
            scores[i] += float(reward)
            if not (fell or timed_out):
                still.append(i)
        playing = np.array(still, int)
    return scores


@contextlib.contextmanager
def serve(program: str, log: Path) -> Iterator[tuple[str, str]]:
    """Runs a server process during the block, with its log in a file; yields its address and that of its page."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as log_file:
        port_file, admin_file = Path(folder) / "port", Path(folder) / "admin"
        # A new session: Ctrl-C stops this program, which then stops the server last.
        server = subprocess.Popen(
            [program, "serve", "--config", HERE / "server.toml", "--port-file", port_file,
             "--admin-port-file", admin_file],
            stdout=subprocess.DEVNULL, stderr=log_file, start_new_session=True,
        )  # fmt: skip
        try:
            while not port_file.exists():
                if server.poll() is not None:
                    raise SystemExit(
                        f"{log.read_text(errors='replace')}"
                        f"demo: the server ended with {server.returncode} before it could be reached"
                    )
                time.sleep(0.02)
            admin = admin_file.read_text(encoding="ascii").strip()
            yield f"localhost:{port_file.read_text(encoding='ascii').strip()}", f"http://localhost:{admin}/"
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def play(address: str, actors: int, seed: int, pace: agent.Pace) -> Iterator[list[Any]]:
    """Runs the processes of the learner and the actors during the block."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    processes = [context.Process(target=agent.run_learner, args=(address, seed, stop), name="learner", daemon=True)]
    for index in range(actors):
        arguments = (address, index, actors, seed, pace, stop)
        processes.append(context.Process(target=agent.run_actor, args=arguments, name=f"actor {index}", daemon=True))
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        stop.set()
        deadline = time.monotonic() + 10
        for process in (each for each in processes if each.pid is not None):
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join()


class Episodes:
    """Reads the ends of episodes from their queue, in a thread."""

    def __init__(self, client: reverb.Client, clock: Callable[[], float]) -> None:
        self.ended: list[tuple[float, float]] = []  # (time, return)
        self.recent: collections.deque[float] = collections.deque(maxlen=20)
        self._client = client
        self._clock = clock
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        samples = self._client.sample("episodes", 10**9, unpack_as_table_signature=True, timeout=0.5)
        while not self._is_over.is_set():
            try:
                (step,) = next(samples)
            except reverb.DeadlineExceededError:
                continue
            self.ended.append((self._clock(), float(step.data["score"])))
            self.recent.append(self.ended[-1][1])

    def close(self) -> None:
        """Stops the thread."""
        self._is_over.set()
        self._thread.join()


class Demo:
    """One run, from the first transition to the last evaluation."""

    def __init__(
        self, program: str, address: str, options: argparse.Namespace, pace: agent.Pace, screen: progress.Screen
    ) -> None:
        self.client = reverb.Client(address)
        self.history: dict[str, list[Any]] = collections.defaultdict(list)
        self.policy: dict[str, Any] = {}
        self.last_scores = np.zeros(0)
        self.table: dict[str, Any] = {}  # the server's latest information about "replay"
        self.waited = {"actors": 0.0, "learner": 0.0}
        self.took = 0.0  # seconds, set at the end
        self._start = time.monotonic()
        self._options = options
        self._pace = pace
        self._evaluations = 0
        self._next_evaluation = 0.0
        self._screen = screen
        self._watcher = progress.ServerWatcher(program, address)
        self._episodes = Episodes(self.client, self.seconds)

    def seconds(self) -> float:
        """Returns the seconds since the start."""
        return time.monotonic() - self._start

    def close(self) -> None:
        """Stops the threads."""
        self._episodes.close()
        self._watcher.close()

    def run(self, processes: list[Any]) -> bool:
        """Monitors until the task is solved, or the time is up; returns whether it was solved."""
        is_solved = self._watch(processes)
        self.took = self.seconds()
        return is_solved

    def _watch(self, processes: list[Any]) -> bool:
        while self.seconds() < 60 * self._options.minutes:
            time.sleep(0.25)
            for process in processes:
                if process.exitcode is not None:
                    self._screen.say(f"demo: the {process.name} ended with {process.exitcode}; see above")
                    return False
            # There is nothing to show before the learner has published its first parameters.
            try:
                self.policy = agent.newest_policy(self.client, timeout=0.2)
            except reverb.DeadlineExceededError:
                continue
            self._look()
            if self.seconds() >= self._next_evaluation and int(self.policy["updates"]) > 0:
                if self._is_solved():
                    self._look(is_over=True)
                    return True
                self._next_evaluation = self.seconds() + SECONDS_PER_EVALUATION
            if int(self.policy["updates"]) >= self._options.updates:
                return False
        return False

    def _is_solved(self) -> bool:
        """Evaluates; confirms a solution with new episodes, to rule out luck."""
        weights = self.policy["weights"]
        for _ in range(2):
            self._evaluations += 1
            self.last_scores = evaluate(weights, seed=1_000_000 * (self._options.seed + 1) + 1000 * self._evaluations)
            self.history["evaluations"].append((self.seconds(), float(self.last_scores.mean())))
            if self.last_scores.mean() < SOLVED:
                return False
        return True

    def _look(self, *, is_over: bool = False) -> None:
        """Records and shows the current state."""
        server = self._watcher.newest
        if not server:
            return
        (self.table,) = (table for table in server["tables"] if table["name"] == "replay")
        limiter = self.table["rate_limiter"]
        inserts, samples, seconds = self.table["inserts"], self.table["samples"], self.seconds()
        times = self.client.server_info(timeout=10)["replay"].table_worker_time
        waited = {"actors": times.waiting_for_sampling_ms / 1e3, "learner": times.waiting_for_inserts_ms / 1e3}
        passed = seconds - (self.history["seconds"][-1] if self.history["seconds"] else 0.0)
        notes: dict[str, Any] = {"seconds": seconds, "inserts": inserts, "samples": samples}
        notes["cursor"] = self.table["cursor"]
        for who, total in waited.items():
            notes[f"{who}_waiting"] = min(1.0, (total - self.waited[who]) / passed)
        notes["samples_per_insert"] = samples / max(1, inserts)
        notes["lowest"], notes["highest"] = ratio_bounds(limiter, inserts)
        for name, value in notes.items():
            self.history[name].append(value)
        self.waited = waited
        self.history["episodes"] = list(self._episodes.ended)

        evaluated = self.history["evaluations"][-1][1] if self.history["evaluations"] else 0.0
        recent = list(self._episodes.recent)
        self._screen.show(
            {
                "seconds": seconds,
                "task": agent.TASK,
                "headline": "solved" if is_over else f"last evaluation {evaluated:.1f}, solved at {SOLVED:g}",
                "evaluations": [score for _, score in self.history["evaluations"]],
                "highest": 500.0,
                "evaluated": evaluated,
                "replay": self.table,
                "stored_bytes": server["stored_bytes"],
                "updates": int(self.policy["updates"]),
                "loss": float(self.policy["loss"]),
                "training_return": float(np.mean(recent)) if recent else 0.0,
                "episodes": len(self.history["episodes"]),
                "samples_per_insert": notes["samples_per_insert"],
                "aim": limiter["samples_per_insert"],
                "is_real_time": self._pace.is_real_time(),
                "learner_waited": waited["learner"],
                "learner_waiting": self.history["learner_waiting"],
                "actors_waited": waited["actors"],
                "actors_waiting": self.history["actors_waiting"],
            }
        )


def ratio_bounds(limiter: dict[str, float], inserts: int) -> tuple[float, float]:
    """Converts the bounds of the cursor to bounds of samples per insert, after this many inserts."""
    if inserts == 0:
        return 0.0, 0.0
    aim = limiter["samples_per_insert"]
    return max(0.0, aim - limiter["max_diff"] / inserts), max(0.0, aim - limiter["min_diff"] / inserts)


def describe_effects(demo: Demo, screen: progress.Screen) -> None:
    """Prints the effects of the limiter and the priorities, in numbers."""
    table = demo.table
    low, high = ratio_bounds(table["rate_limiter"], table["inserts"])
    screen.say(
        f"\n{screen.bold('What the limiter did')}\n"
        f"  samples per insert  {table['samples'] / table['inserts']:.2f}; its bounds allow {low:.2f} to {high:.2f} "
        f"after {table['inserts']:,} inserts (aim {table['rate_limiter']['samples_per_insert']:g})\n"
        f"  in {demo.took:5.1f} s          an actor waited for the learner in {demo.waited['actors']:.1f} s, "
        f"the learner for the actors in {demo.waited['learner']:.1f} s"
    )
    # Peeking is not sampling: it is not counted and never waits.
    items = demo.client.peek("replay", max(1, table["size"]), timeout=30)
    priorities = np.array([item.info.priority for item in items])
    sampled = np.asarray(demo.policy["sampled_priorities"])
    threshold = np.quantile(priorities, 0.9)
    screen.say(
        f"\n{screen.bold('What the priorities did')}\n"
        f"  mean priority       {priorities.mean():.3f} in the table, {sampled.mean():.3f} among the last "
        f"{len(sampled):,} samples: {sampled.mean() / priorities.mean():.1f} times as much\n"
        f"  the top tenth       of the items got {100 * (sampled >= threshold).mean():.0f} % of the samples"
    )


def find_program(given: str | None) -> str:
    """Finds the program `reverb`."""
    found = given or shutil.which("reverb")
    if not found or not shutil.which(found):
        raise SystemExit("demo: the program `reverb` is not here; `make demo` builds it, --program says where it is")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns 0 if the task was solved."""
    parser = argparse.ArgumentParser(description="An agent learns to balance a pole, through a Reverb server.")
    parser.add_argument("--program", help="the program `reverb` (default: the one on the path)")
    parser.add_argument("--actors", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--minutes", type=float, default=5, help="when to give up (default: 5)")
    parser.add_argument("--updates", type=int, default=10**9, help="give up after so many of the learner's updates")
    parser.add_argument(
        "--phases", type=float, nargs=2, default=(4.0, 1.5), metavar="SECONDS",
        help="how long the environments run at full speed, then in real time (default: 4 1.5)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of the networks, the environments and the exploration")
    parser.add_argument("--output", type=Path, default=Path("build/demo-output"), help="where the plots and the server's log go")
    options = parser.parse_args(arguments)
    if options.actors < 1:
        parser.error(f"--actors is {options.actors}, it must be at least 1")
    full_speed, real_time = options.phases
    if not full_speed > 0 or not real_time >= 0:
        parser.error(f"--phases is {full_speed:g} {real_time:g}, the first must be > 0 and the second >= 0")
    program = find_program(options.program)
    screen = progress.Screen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds the stack, so that no process is left behind

    try:
        log = options.output / "server.log"
        with serve(program, log) as (address, page):
            screen.say(
                f"A server at {address}, a learner and {options.actors} actors, each a process of its own.\n"
                f"The environments run at full speed for {full_speed:g} s, then in real time for {real_time:g} s, "
                "and so on.\n"
                f"Watch it in a browser: {page}\n"
                f"or from another terminal:\n"
                f"  {program} info {address}\n"
                f"  {program} info {address} --watch\n"
                f"  {program} peek {address} replay\n"
                f"The server's log: {log}"
            )
            pace = agent.Pace(full_speed, real_time, start=time.monotonic())
            demo = Demo(program, address, options, pace, screen)
            try:
                with play(address, options.actors, options.seed, pace) as processes:
                    is_solved = demo.run(processes)
                if demo.table.get("size"):
                    describe_effects(demo, screen)
            finally:
                demo.close()
    except KeyboardInterrupt:
        screen.say("\ndemo: interrupted; all processes have ended")
        return 130

    aim = {"return": SOLVED, **demo.table.get("rate_limiter", {})}
    if demo.history["seconds"]:
        title = f"{agent.TASK}: {'solved' if is_solved else 'not solved'} after {demo.took:.0f} s"
        try:
            paths = plots.save(options.output, demo.history, aim, title)
            screen.say("\nPlots: " + ", ".join(str(path) for path in paths))
        except ModuleNotFoundError as error:
            screen.say(f"\nNo plots: {error}")
    scores = demo.last_scores
    if not is_solved:
        reached = f"; the last evaluation gave {scores.mean():.1f}" if len(scores) else ""
        screen.say(f"NOT SOLVED in {demo.took:.0f} s{reached}")
        return 1
    screen.say(
        f"SOLVED in {demo.took:.0f} s: mean return {scores.mean():.1f} over {len(scores)} evaluation episodes "
        f"(from {scores.min():.0f} to {scores.max():.0f}; solved at {SOLVED:g})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
