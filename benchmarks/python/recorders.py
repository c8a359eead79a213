"""Measures the memory and the time that recording Atari-like transitions takes.

    PYTHONPATH=python build/venv-3.13/bin/python benchmarks/python/recorders.py --transitions 1000000

Frames of 84 x 84 bytes are stacked by four; a transition has two stacks. The game has a textured background that
changes with every level, textured sprites that move by fractions of a pixel, a score, and flicker: noise in a part of
the pixels. Columns:

    stored    bytes that the server stores, per transition
    resident  growth of the resident set, per transition
    of raw    these as a share of two stacks in plain arrays, 56,448 bytes
    us/step   time in the recorder, or in a trajectory writer that is called by hand
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import numpy as np

import reverb

SIZE = 84
STACK = 4
RAW_BYTES = 2 * STACK * SIZE * SIZE


class Game:
    """Produces frames. `flicker` is the share of pixels that change at random in each frame."""

    def __init__(self, seed: int, flicker: float) -> None:
        self._random = np.random.default_rng(seed)
        self._flicker = round(flicker * SIZE * SIZE)
        self._new_level()

    def _new_level(self) -> None:
        random = self._random
        background = np.kron(random.integers(0, 8, (14, 14)) * 16, np.ones((6, 6), int))
        background[:20] += random.integers(0, 24, (20, SIZE))  # a part with fine texture
        self._background = background.astype(np.float32)
        count = 10
        self._sprites = [random.integers(64, 256, random.integers(4, 11, 2)).astype(np.float32) for _ in range(count)]
        self._places = random.uniform(10, SIZE - 24, (count, 2))
        self._speeds = random.uniform(-1.5, 1.5, (count, 2))
        self._score = 0

    def reset(self) -> np.ndarray:
        self._new_level()
        return self._draw()

    def step(self) -> np.ndarray:
        self._places += self._speeds
        outside = (self._places < 1) | (self._places > SIZE - 14)
        self._speeds[outside] *= -1
        self._places = np.clip(self._places, 1, SIZE - 14)
        self._score += 1
        return self._draw()

    def _draw(self) -> np.ndarray:
        frame = self._background.copy()
        for sprite, (y, x) in zip(self._sprites, self._places, strict=True):
            top, left = int(y), int(x)
            weight = (1 - (y - top)) * 0.5 + 0.5  # anti-aliasing
            frame[top : top + sprite.shape[0], left : left + sprite.shape[1]] = sprite * weight
        for digit, place in enumerate(range(60, 80, 5)):
            frame[2:7, place : place + 3] = (self._score // 10**digit % 10) * 25
        if self._flicker:
            where = self._random.integers(0, SIZE, (2, self._flicker))
            frame[where[0], where[1]] = self._random.integers(0, 256, self._flicker)
        return frame.astype(np.uint8)


def resident_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve(size: int) -> reverb.Server:
    return reverb.Server(
        [
            reverb.Table(
                "replay",
                reverb.selectors.Uniform(),
                reverb.selectors.Fifo(),
                max_size=size,
                rate_limiter=reverb.rate_limiters.MinSize(1),
            )
        ]
    )


def episodes(game: Game, steps: int, length: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Yields frames, and whether each is the first of an episode. Of all frames, `steps` are not."""
    for start in range(0, steps, length):
        yield game.reset(), True
        for _ in range(min(length, steps - start)):
            yield game.step(), False


def by_recorder(client: reverb.Client, frames: Iterator[tuple[np.ndarray, bool]], options: dict[str, Any]) -> float:
    seconds = 0.0
    with reverb.recorders.TransitionRecorder(client, "replay", frame_stack=STACK, **options) as recorder:
        for i, (frame, is_first) in enumerate(frames):
            start = time.perf_counter()
            if is_first:
                recorder.reset(frame)
            else:
                recorder.step(i % 4, frame, 1.0, False, False)
            seconds += time.perf_counter() - start
    return seconds


def by_hand(client: reverb.Client, frames: Iterator[tuple[np.ndarray, bool]], options: dict[str, Any]) -> float:
    """One-step transitions without those whose stacks would have to repeat a frame."""
    seconds = 0.0
    with client.trajectory_writer(num_keep_alive_refs=STACK + 1) as writer:
        for i, (frame, is_first) in enumerate(frames):
            start = time.perf_counter()
            if is_first and writer.episode_steps:
                writer.end_episode()
            writer.append(
                {"observation": frame, "action": i % 4, "reward": 1.0, "discount": 0.99, "terminated": False,
                 "truncated": False}
            )  # fmt: skip
            if writer.episode_steps > STACK:
                history = writer.history
                writer.create_item(
                    "replay",
                    1.0,
                    {
                        "observation": history["observation"][-STACK - 1 : -1],
                        "action": history["action"][-1],
                        "reward": history["reward"][-1],
                        "discount": history["discount"][-1],
                        "next_observation": history["observation"][-STACK:],
                        "terminated": history["terminated"][-1],
                        "truncated": history["truncated"][-1],
                    },
                )
            seconds += time.perf_counter() - start
    return seconds


WAYS = {"recorder": by_recorder, "hand": by_hand}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--episode-length", type=int, default=1_000)
    parser.add_argument("--n-step", type=int, default=1)
    parser.add_argument("--flicker", type=float, default=0.01, help="share of random pixels in a frame (default: 0.01)")
    parser.add_argument("--only", choices=WAYS)
    arguments = parser.parse_args()
    if arguments.only is None:
        print(f"{'':<10}{'items':>10}{'stored':>9}{'of raw':>8}{'resident':>10}{'of raw':>8}{'us/step':>9}", flush=True)
        for name in WAYS:  # in processes of their own, because of the resident set
            subprocess.run([sys.executable, *sys.argv, "--only", name], check=True)
        return
    game = Game(1, arguments.flicker)
    server = serve(arguments.transitions)
    client = server.localhost_client()
    before = resident_bytes()
    options = {"n_step": arguments.n_step}
    seconds = WAYS[arguments.only](client, episodes(game, arguments.transitions, arguments.episode_length), options)
    info = client.server_info()
    count = info["replay"].current_size
    stored, resident = info.stored_bytes / count, (resident_bytes() - before) / count
    print(
        f"{arguments.only:<10}{count:>10}{stored:>9.0f}{stored / RAW_BYTES:>8.3f}{resident:>10.0f}"
        f"{resident / RAW_BYTES:>8.3f}{1e6 * seconds / arguments.transitions:>9.1f}"
    )
    server.stop()


if __name__ == "__main__":
    main()
