"""Recorders of single and vector environments: they follow the episodes, a Layout writes them."""

from __future__ import annotations

from collections.abc import Callable
import logging
import math
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from reverb import _core, errors
from reverb.recorders import _environments, _items, _rows
from reverb.recorders._environments import Autoreset
from reverb.recorders._items import ItemWriter, Settings
from reverb.recorders._layout import Layout, positive
from reverb.recorders._rows import Mask

if TYPE_CHECKING:
    from reverb.client import Client

_Self = TypeVar("_Self", bound="Recorder")

# Items of so many steps of an environment may be on their way to a table, besides those that wait for their chunk.
_DEFAULT_STEPS_IN_FLIGHT = 16

# Seconds for which the end of a `with` block waits after an exception.
_TIMEOUT_AFTER_ERROR = 10.0

_log = logging.getLogger("reverb")

_RESET_REMEDY = "call reset() with what the environment's reset() returns"


def _check_client(client: Any) -> None:
    if not isinstance(client, _core.Client):
        address = repr(client) if isinstance(client, str) else "address"
        raise TypeError(f"client must be a reverb.Client, got {client!r}; reverb.Client({address}) makes one")


def _error_of(call: Callable[[], None]) -> Exception | None:
    """Returns the exception that the call raises, or None."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 (the caller raises or logs it)
        return error
    return None


class Recorder:
    """The methods that all recorders have. Only one thread at a time can use a recorder."""

    def __init__(
        self,
        client: Client,
        layout: Layout,
        table: Any,
        priority: Any,
        num_envs: int,
        settings: Settings,
    ) -> None:
        _check_client(client)
        tables = _items.check_tables(table, priority)
        if settings.max_in_flight_items is None:
            # A chunk has at most num_keep_alive_refs rows; fewer items than it completes would cut it short.
            in_flight = sum(
                math.ceil(steps / layout.steps_per_item)
                for steps in (layout.num_keep_alive_refs, _DEFAULT_STEPS_IN_FLIGHT)
            )
        else:
            in_flight = positive("max_in_flight_items", settings.max_in_flight_items)
        self._writer = ItemWriter(client, tables, num_envs, layout.num_keep_alive_refs, settings)
        layout.bind(self._writer)
        self._layout = layout
        self._tables = _items.describe_tables(tables)
        self._in_flight = in_flight
        # The next step may add an item of each environment to each table.
        self._unconfirmed_before_step = (in_flight - 1) * num_envs * len(tables)
        self._timeout = settings.timeout
        self._timeout_ms = _items.milliseconds(settings.timeout)
        self._is_closed = False

    @property
    def num_items(self) -> int:
        """The number of items that were created so far, in each table."""
        return self._writer.num_items

    def end_episode(self) -> None:
        """Ends episodes here that the environment has not ended, as if they were truncated, but without the flag.

        Their last steps are stored, unless an item is a whole episode: then nothing of them is. reset() does this too.
        The next call must be reset().
        """
        raise NotImplementedError

    def flush(self, block_until_num_items: int = 0, timeout: float | None = None) -> None:
        """Waits until at most `block_until_num_items` items are not in their tables yet.

        DeadlineExceededError after `timeout` seconds; sending continues.
        """
        self._check_open()
        self._writer.flush(block_until_num_items, _items.milliseconds(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Ends episodes as end_episode() does, waits until all items are in their tables, and disconnects. Idempotent.

        After `timeout` seconds, it discards the items that are left, and raises DeadlineExceededError. If the last
        items of an episode cannot be created, it raises that error, after the wait for the others.
        """
        if self._is_closed:
            return
        limit_ms = _items.milliseconds(timeout)
        deadline = None if limit_ms is None else time.monotonic() + limit_ms / 1000
        failure = None
        try:
            # First without the last items of episodes: while too much is on its way, creating them would wait, too.
            late = self._flush_until(deadline)
            if late is None:
                failure = _error_of(self.end_episode)
                late = self._flush_until(deadline)
        finally:
            discarded = self._discard()
        if isinstance(late, errors.DeadlineExceededError):
            late = errors.DeadlineExceededError(
                f"{self._tables} has not accepted the last {discarded} items of this recorder within {timeout:g} "
                "s; they were discarded. Sample from the table before the recorder is closed, or give it a longer "
                f"timeout=. {late}"
            )
        if failure is not None and late is not None and str(late) != str(failure):
            _log.warning("closing a recorder: %s", late)
        if (error := failure or late) is not None:
            raise error

    def _flush_until(self, deadline: float | None) -> Exception | None:
        """Waits for all items; returns the error."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return _error_of(lambda: self._writer.flush(0, _items.milliseconds(left)))

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the recorder, with its `timeout`.

        After an exception it waits for at most ten seconds, not at all after an error of reverb or Ctrl-C, and logs
        what it could not store.
        """
        self._leave(exception)

    def _leave(self, exception: BaseException | None, waited: float = 0.0) -> None:
        """Ends a `with` block, whose end has already waited for some seconds: for other recorders."""
        if exception is None:
            self.close(None if self._timeout is None else max(0.0, self._timeout - waited))
        elif isinstance(exception, (errors.ReverbError, KeyboardInterrupt)):
            self._discard()
        elif not self._is_closed:
            limit = _TIMEOUT_AFTER_ERROR if self._timeout is None else min(_TIMEOUT_AFTER_ERROR, self._timeout)
            error = _error_of(lambda: self.close(max(0.0, limit - waited)))
            if error is not None and str(error) != str(exception):
                _log.warning("closing a recorder after %s: %s", type(exception).__name__, error)

    def _discard(self) -> int:
        """Closes the recorder without waiting; returns the number of items that were not confirmed."""
        self._is_closed = True
        return self._writer.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("close() has been called on this recorder")

    def _reconnect(self) -> None:
        """Replaces a broken writer. The episodes so far are forgotten."""
        self._writer.reconnect()
        self._layout.bind(self._writer)

    def _await_room(self) -> None:
        """Waits until so few items are on their way that a step may add its own. A failed wait changes nothing."""
        try:
            self._writer.flush(self._unconfirmed_before_step, self._timeout_ms)
        except errors.DeadlineExceededError as error:
            raise errors.DeadlineExceededError(
                f"{self._tables} has not accepted items for {self._timeout:g} s, and {self._in_flight} of each "
                "environment are on their way (max_in_flight_items). This step was not recorded: repeat the call, or "
                "continue with reset(). Let another thread or process sample from the table, or sample before the next "
                f"step; timeout= of the recorder sets how long step() waits. {error}"
            ) from error


class SingleRecorder(Recorder):
    """A recorder of one environment."""

    def __init__(
        self,
        client: Client,
        layout: Layout,
        table: Any,
        priority: Any,
        settings: Settings,
    ) -> None:
        super().__init__(client, layout, table, priority, 1, settings)
        self._needs_reset: str | None = "no episode has started"

    def reset(self, observation: Any, info: Any = None) -> None:
        """Starts an episode: recorder.reset(*env.reset()), or recorder.reset(timestep) with a dm_env.TimeStep.

        An episode that has not ended is ended as by end_episode(). `info` is not used.
        """
        self._check_open()
        if _environments.is_timestep(observation):
            if not observation.first():
                raise ValueError(
                    "reset() takes the first timestep of an episode, this one is in the middle or at the end; pass it "
                    "to step()"
                )
            observation = observation.observation
        if self._writer.is_broken():
            self._reconnect()
        self._end(complete=False)
        self._needs_reset = "the last call of reset() failed"
        self._layout.start(_rows.as_rows(observation), None)
        self._needs_reset = None

    def step(
        self,
        action: Any,
        observation: Any,
        reward: Any = None,
        terminated: Any = None,
        truncated: Any = None,
        info: Any = None,
        *,
        extras: Any = None,
    ) -> None:
        """Adds a step: recorder.step(action, *env.step(action)), or recorder.step(action, timestep) with dm_env.

        Args:
            action: that led to the observation.
            observation: after the action; or a dm_env.TimeStep, instead of all values of the environment. The first
                timestep of an episode starts it, and the action is ignored, as dm_env's step() does after an end.
            reward: for the action.
            terminated: whether the episode has ended in a final state, whose value is 0.
            truncated: whether the episode was ended for another reason, such as a time limit.
            info: not used.
            extras: any nest of arrays that belongs to the observation before the action and to the action, such as the
                log probability of the action or a recurrent state. The same ones in every step.

        Raises:
            RuntimeError: before the first reset(), and after the end of an episode.
            DeadlineExceededError: the table has not accepted earlier items for `timeout` seconds, the recorder's
                argument. The step was not recorded: repeat the call, or continue with reset(). (If the client's
                write_window_bytes are on their way, the step was recorded without its item: continue with reset().)
            ValueError, TypeError: for values that do not fit. The episode is incomplete then: continue with reset().
            ValueError, RuntimeError: if the server has rejected an item of an earlier step. Items that were on their
                way are lost then; reset() continues with a new connection, and logs their number.
        """
        self._check_open()
        is_timestep = _environments.is_timestep(observation)
        if is_timestep and observation.first():
            self.reset(observation)
            return
        if self._needs_reset is not None:
            raise RuntimeError(f"step() was called, but {self._needs_reset}; {_RESET_REMEDY}")
        self._await_room()
        self._needs_reset = "the last call of step() failed"
        if is_timestep:
            step = _environments.read_timestep(action, observation, extras)
        else:
            step = _environments.read_step(action, observation, reward, terminated, truncated, extras)
        self._layout.step(step, None)
        self._needs_reset = None
        if step.terminated[0] or step.truncated[0]:
            self._end(complete=True)

    def end_episode(self) -> None:  # noqa: D102
        self._check_open()
        self._end(complete=False)

    def _end(self, *, complete: bool) -> None:
        self._needs_reset = "the episode has ended"  # also if its last items cannot be created
        self._layout.finish(np.ones(1, np.bool_), complete=complete)


class VectorRecorder(Recorder):
    """A recorder of a vector environment: all values have the environments as their first dimension."""

    def __init__(
        self,
        client: Client,
        layout: Layout,
        table: Any,
        priority: Any,
        env: Any,
        num_envs: Any,
        autoreset: Any,
        settings: Settings,
    ) -> None:
        count, self._autoreset = _environments.describe_vector_env(env, num_envs, autoreset)
        super().__init__(client, layout, table, priority, count, settings)
        self._ended: Mask = np.ones(count, np.bool_)  # environments without an episode
        self._failed = False
        self._was_reset = False

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return self._writer.num_envs

    @property
    def autoreset(self) -> str:
        """When environments are reset after the end of an episode: "next_step", "same_step" or "disabled"."""
        return self._autoreset.value

    def reset(self, observation: Any, info: Any = None, *, mask: Any = None) -> None:
        """Starts an episode in each environment: recorder.reset(*envs.reset()).

        Episodes that have not ended are ended as by end_episode().

        Args:
            observation: the first ones.
            info: not used.
            mask: which environments were reset, an array of bools; None: all. For environments that do not reset
                themselves: the `reset_mask` that the environment's reset() was given.
        """
        self._check_open()
        chosen = None if mask is None else _environments.read_mask(mask, self.num_envs)
        is_broken = self._writer.is_broken()
        has_failed = self._failed or is_broken
        if chosen is not None and (has_failed or not self._was_reset) and not chosen.all():
            raise RuntimeError(
                "the last call of step() or reset() failed; reset all environments"
                if has_failed
                else "reset() was called with a mask, but no episode has started; call it without a mask first"
            )
        _environments.check_rows("observation", observation, self.num_envs)
        self._failed = True
        if is_broken:
            self._reconnect()
        self._end(np.ones(self.num_envs, np.bool_) if chosen is None else chosen, complete=False)
        self._layout.start(observation, chosen)
        self._failed = False
        self._was_reset = True
        self._ended = np.zeros(self.num_envs, np.bool_) if chosen is None else self._ended & ~chosen

    def step(
        self,
        action: Any,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Any = None,
        *,
        extras: Any = None,
    ) -> None:
        """Adds a step of each environment: recorder.step(action, *envs.step(action)).

        After the end of an episode, the autoreset mode decides what the values mean. "next_step": this call ends the
        episode; the next one starts an episode with its observation, and ignores the action and the reward of that
        environment. "same_step": `observation` is the first one of the next episode, and info["final_obs"] (or
        "final_observation") has the last one. "disabled": call reset() with a mask before the next step.

        Args:
            action: the actions.
            observation: after the actions.
            reward: for the actions.
            terminated: where the episode has ended in a final state, whose value is 0.
            truncated: where the episode was ended for another reason, such as a time limit.
            info: what the environment returned; with "same_step" it has the last observations.
            extras: any nest of arrays, as for a single environment.

        Raises:
            RuntimeError: before the first reset(), and for environments that must be reset.
            DeadlineExceededError: as for a single environment.
            ValueError, TypeError: for values that do not fit. Episodes are incomplete then: continue with reset().
            ValueError, RuntimeError: as for a single environment.
        """
        self._check_open()
        if not self._was_reset:
            raise RuntimeError(f"step() was called, but no episode has started; {_RESET_REMEDY}")
        if self._failed:
            raise RuntimeError(f"step() was called, but the last call of step() or reset() failed; {_RESET_REMEDY}")
        starting = self._ended
        any_start = starting.any()
        if any_start and self._autoreset is not Autoreset.NEXT_STEP:
            raise RuntimeError(
                f"the episodes of environments {np.flatnonzero(starting).tolist()} have ended; "
                "call reset(observation, info, mask=reset_mask) for them"
            )
        self._await_room()
        self._failed = True
        step = _environments.read_vector_step(action, observation, reward, terminated, truncated, extras, self.num_envs)
        ended = step.terminated | step.truncated
        if any_start:
            ended &= ~starting
        any_end = ended.any()
        if any_end:
            if self._autoreset is Autoreset.SAME_STEP:
                step.observation = _environments.with_final_observations(observation, info, ended)
            else:
                _environments.check_no_final_observations(info, self._autoreset)
        if not any_start:
            self._layout.step(step, None)
        else:
            running = ~starting
            if running.any():
                self._layout.step(step, running)
            self._layout.start(observation, starting)
        if any_end:
            self._end(ended, complete=True)
        self._ended = ended
        if any_end and self._autoreset is Autoreset.SAME_STEP:
            self._layout.start(observation, ended)
            self._ended = np.zeros(self.num_envs, np.bool_)
        self._failed = False

    def end_episode(self) -> None:  # noqa: D102
        self._check_open()
        self._was_reset = False  # also if the last items cannot be created
        self._end(np.ones(self.num_envs, np.bool_), complete=False)

    def _end(self, mask: Mask, *, complete: bool) -> None:
        self._ended = self._ended | mask
        self._layout.finish(mask, complete=complete)
