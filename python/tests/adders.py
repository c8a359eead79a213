"""Adders, as agents build them on a writer: take steps of an environment, write transitions, sequences and episodes.

Each adder has an `expected_...` function beside it that computes the same from plain lists.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Transition(NamedTuple):
    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any
    extras: Any = ()


class Step(NamedTuple):
    """The data between an observation and the next one."""

    action: Any
    reward: Any
    discount: Any
    next_observation: Any
    extras: Any = None


class Adder:
    """Keeps the step with the newest observation open until its action is known."""

    def __init__(self, client, tables, num_keep_alive_refs, *, priority=1.0, validate_items=True, max_in_flight=5):
        self.writer = client.trajectory_writer(num_keep_alive_refs, validate_items=validate_items)
        self._tables = [tables] if isinstance(tables, str) else list(tables)
        self._priority = priority
        self._max_in_flight = max_in_flight

    def add_first(self, observation):
        assert self.writer.episode_steps == 0
        self.writer.append({"observation": observation, "start_of_episode": True}, partial_step=True)

    def add(self, step, *, last=False):
        fields = {"action": step.action, "reward": step.reward, "discount": step.discount}
        if step.extras is not None:
            fields["extras"] = step.extras
        self.writer.append(fields)
        self.writer.append({"observation": step.next_observation, "start_of_episode": False}, partial_step=True)
        self._write()
        if last:
            # The last observation has no action: its step is padded with zeros.
            self.writer.append({name: zeros_like(value) for name, value in fields.items()})
            self._write_last()
            self.writer.end_episode()

    def add_episode(self, episode):
        observation, steps = episode
        self.add_first(observation)
        for step in steps:
            self.add(step, last=step is steps[-1])

    def _create(self, trajectory):
        for table in self._tables:
            priority = self._priority(trajectory) if callable(self._priority) else self._priority
            self.writer.create_item(table=table, priority=priority, trajectory=trajectory)
        self.writer.flush(self._max_in_flight)

    def _write(self):
        pass

    def _write_last(self):
        pass


def zeros_like(value):
    if isinstance(value, dict):
        return {name: zeros_like(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(zeros_like(part) for part in value)
    return np.zeros_like(value)


class NStepAdder(Adder):
    """Writes transitions over n steps, and shorter ones at both ends of an episode; no column has a time axis."""

    def __init__(self, client, tables, n_step, additional_discount, **arguments):
        super().__init__(client, tables, n_step + 1, **arguments)
        self._n_step = n_step
        self._additional_discount = additional_discount

    def _write(self):
        end = self.writer.episode_steps
        self._transition(max(0, end - self._n_step), end)

    def _write_last(self):
        # The padded step is complete; the transitions that end with it are still missing.
        end = self.writer.episode_steps - 1
        for begin in range(max(0, end - self._n_step) + 1, end):
            self._transition(begin, end, within_last_step=True)

    def _transition(self, begin, end, within_last_step=False):
        history = self.writer.history
        reward, discount = n_step_return(
            history["reward"][begin:end].numpy(), history["discount"][begin:end].numpy(), self._additional_discount
        )
        columns = {"n_step_return": reward, "total_discount": discount}
        self.writer.append(columns, partial_step=True)
        history = self.writer.history
        extras = (history["extras"][begin],) if "extras" in history and not isinstance(history["extras"], dict) else ()
        if isinstance(history.get("extras"), dict):
            extras = {name: column[begin] for name, column in history["extras"].items()}
        self._create(
            Transition(
                observation=history["observation"][begin],
                action=history["action"][begin],
                reward=history["n_step_return"][-1],
                discount=history["total_discount"][-1],
                next_observation=history["observation"][end],
                extras=extras,
            )
        )
        if within_last_step:
            self.writer.append({})  # each of the late transitions has a step of its own for its return


def n_step_return(rewards, discounts, additional_discount):
    """Returns the discounted sum of rewards and the discount of later rewards; float32 as in agents."""
    total, discount = 0.0, 1.0
    for i, (reward, step_discount) in enumerate(zip(rewards, discounts, strict=True)):
        if i:
            discount *= additional_discount
        total += discount * float(reward)
        discount *= float(step_discount)
    return np.float32(total), np.float32(discount)


def expected_transitions(episode, n_step, additional_discount):
    first, steps = episode
    observations = [first, *(step.next_observation for step in steps)]
    count = len(steps)
    spans = [(max(0, end - n_step), end) for end in range(1, count + 1)]
    spans += [(begin, count) for begin in range(max(0, count - n_step) + 1, count)]
    for begin, end in spans:
        part = steps[begin:end]
        reward, discount = n_step_return(
            [step.reward for step in part], [step.discount for step in part], additional_discount
        )
        yield Transition(
            observations[begin], steps[begin].action, reward, discount, observations[end], steps[begin].extras
        )


class SequenceAdder(Adder):
    """Writes overlapping sequences of one length; the tail of an episode is a last, shorter one (or dropped)."""

    def __init__(self, client, tables, sequence_length, period, *, truncate=True, **arguments):
        super().__init__(client, tables, sequence_length + 1, **arguments)
        self._sequence_length = sequence_length
        self._period = period
        self._truncate = truncate

    def _write(self):
        steps = self.writer.episode_steps
        if steps >= self._sequence_length and (steps - self._sequence_length) % self._period == 0:
            self._sequence(steps - self._sequence_length, steps)

    def _write_last(self):
        # One step more than actions: the last observation counts.
        steps = self.writer.episode_steps
        if steps <= self._sequence_length:
            begin = 0
        else:
            done = (steps - 1 - self._sequence_length) // self._period * self._period
            begin = done + self._period
            if begin + self._sequence_length < steps:
                raise AssertionError("a sequence was missed")
        full = steps - begin == self._sequence_length
        if begin < steps and (full or self._truncate):
            self._sequence(begin, steps)

    def _sequence(self, begin, end):
        def cut(columns):
            if isinstance(columns, dict):
                return {name: cut(column) for name, column in columns.items()}
            if isinstance(columns, tuple):
                return tuple(cut(column) for column in columns)
            return columns[begin:end]

        self._create(cut(self.writer.history))


def expected_sequences(episode, sequence_length, period, truncate=True):
    """Returns flat columns by sorted name: action, discount, observation, reward, start_of_episode."""
    first, steps = episode
    rows = []
    observation = first
    for i, step in enumerate(steps):
        rows.append([step.action, step.discount, observation, step.reward, i == 0])
        observation = step.next_observation
    zero = [np.zeros_like(value) for value in (steps[-1].action, steps[-1].discount, steps[-1].reward)]
    rows.append([zero[0], zero[1], observation, zero[2], False])
    begin = 0
    while True:
        end = begin + sequence_length
        if end >= len(rows):
            if begin < len(rows) and (truncate or end == len(rows)):
                yield [np.stack(column) for column in zip(*rows[begin:], strict=True)]
            return
        yield [np.stack(column) for column in zip(*rows[begin:end], strict=True)]
        begin += period


class EpisodeAdder(Adder):
    """Writes an item for each episode."""

    def _write_last(self):
        def everything(columns):
            if isinstance(columns, dict):
                return {name: everything(column) for name, column in columns.items()}
            if isinstance(columns, tuple):
                return tuple(everything(column) for column in columns)
            return columns[:]

        self._create(everything(self.writer.history))


def make_episode(length, *, seed=0, shape=(3,), extras=None):
    """Returns steps whose numbers identify them."""
    rng = np.random.default_rng(seed)

    def observation(i):
        return np.full(shape, 100 * seed + i, np.float32)

    steps = [
        Step(
            action=np.int32(i),
            reward=np.float32(rng.uniform(-1, 1)),
            discount=np.float32(0.0 if i == length - 1 else 0.9),
            next_observation=observation(i + 1),
            extras=None if extras is None else extras(i),
        )
        for i in range(length)
    ]
    return observation(0), steps


def assert_same(actual, expected):
    """Compares flat columns, with their dtypes and shapes."""
    assert len(actual) == len(expected)
    for got, want in zip(actual, expected, strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)
