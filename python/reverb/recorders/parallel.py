"""A recorder of environments with several agents that act at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import logging
import time
from types import TracebackType
from typing import Any

from reverb.recorders._recorder import SingleRecorder

__all__ = ["ParallelRecorder"]

_log = logging.getLogger("reverb")


class ParallelRecorder:
    """Records the agents of a PettingZoo parallel environment, each with its own recorder.

    >>> import reverb
    >>> server = reverb.Server([reverb.Table.queue("replay", 100)])
    >>> client = server.localhost_client()
    >>> with reverb.recorders.ParallelRecorder(
    ...     lambda agent: reverb.recorders.TransitionRecorder(client, "replay")  # or a table for each agent
    ... ) as recorder:
    ...     recorder.reset({"a": 0, "b": 10})  # *environment.reset()
    ...     done = {"a": True, "b": False}
    ...     recorder.step({"a": 1, "b": 2}, {"a": 1, "b": 11}, {"a": 0.5, "b": 0.25}, done, {"a": False, "b": False})
    ...     recorder.step({"b": 3}, {"b": 12}, {"b": 1.0}, {"b": True}, {"b": False})
    >>> for batch in client.sample_batches("replay", 3, num_batches=1):
    ...     print(sorted(batch.data["reward"].tolist()))
    [0.25, 0.5, 1.0]
    >>> server.stop()

    Every agent has its own episode: from its first observation on, until it is terminated or truncated. Agents may come
    and go at any time, and come back: the recorder of an agent stays open after the agent has left, so the environment
    should not make up new names for each episode.
    """

    def __init__(self, make_recorder: Callable[[Any], SingleRecorder]) -> None:
        """Creates a recorder.

        Args:
            make_recorder: returns the recorder of an agent, one for a single environment, such as TransitionRecorder.
                It is called with the agent's name when the agent is first seen.
        """
        if not callable(make_recorder):
            raise TypeError(
                f"make_recorder must be a function that returns the recorder of an agent, got {make_recorder!r}"
            )
        self._make_recorder = make_recorder
        self._recorders: dict[Any, SingleRecorder] = {}
        self._active: set[Any] = set()  # agents in an episode
        self._was_reset = False
        self._failed = False  # some agents lack the step of the last call
        self._is_closed = False

    @property
    def recorders(self) -> Mapping[Any, SingleRecorder]:
        """The recorders of all agents that were seen so far."""
        return dict(self._recorders)

    @property
    def num_items(self) -> int:
        """The number of items that were created so far, by all agents."""
        return sum(recorder.num_items for recorder in self._recorders.values())

    def reset(self, observations: Mapping[Any, Any], infos: Any = None) -> None:
        """Starts an episode of each agent that has an observation: recorder.reset(*env.reset()). Ends all others."""
        self._check_open()
        self._check_dict("observations", observations)
        self.end_episode()
        self._was_reset = self._failed = True
        for agent, observation in observations.items():
            self._start(agent, observation)
        self._failed = False

    def step(
        self,
        actions: Mapping[Any, Any],
        observations: Mapping[Any, Any],
        rewards: Mapping[Any, Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
        infos: Any = None,
        *,
        extras: Mapping[Any, Any] | None = None,
    ) -> None:
        """Adds a step of each agent that acted: recorder.step(actions, *env.step(actions)).

        An agent with an observation that has no episode starts one; its action, if there is one, is ignored. An agent
        that acted but has no observation any more, nor flags, leaves: its episode is ended as by end_episode().
        `extras` has those of each agent that acted.

        Raises what the agents' recorders raise. Incomplete values, and tables that accept no items for too long, change
        nothing. After other errors some agents lack this step: continue with reset().
        """
        self._check_open()
        if not self._was_reset:
            raise RuntimeError("step() was called before reset(); call reset(*env.reset()) first")
        if self._failed:
            raise RuntimeError(
                "step() was called, but the last call of step() or reset() failed; call reset(*env.reset())"
            )
        arguments = {
            "actions": actions,
            "observations": observations,
            "rewards": rewards,
            "terminations": terminations,
            "truncations": truncations,
        }
        for name, value in arguments.items():
            self._check_dict(name, value)
        leaving, acting = self._agents(arguments, extras)
        # Before any agent records this step, so that the call can be repeated.
        for agent in acting:
            self._recorders[agent]._await_room()
        self._failed = True
        for agent in leaving:
            self._end(agent)
        for agent in acting:
            self._active.discard(agent)  # also if the following fails
            self._recorders[agent].step(
                actions[agent],
                observations[agent],
                rewards[agent],
                terminations[agent],
                truncations[agent],
                extras=None if extras is None else extras[agent],
            )
            if not terminations[agent] and not truncations[agent]:
                self._active.add(agent)
        for agent, observation in observations.items():
            ended = terminations.get(agent, False) or truncations.get(agent, False)
            if agent not in self._active and not ended:
                self._start(agent, observation)
        self._failed = False

    def end_episode(self) -> None:
        """Ends the episodes of all agents here, as if they were truncated, but without the flag."""
        self._check_open()
        for agent in list(self._active):
            self._end(agent)
        self._was_reset = False

    def flush(self, block_until_num_items: int = 0, timeout: float | None = None) -> None:
        """Waits until at most `block_until_num_items` items of each agent are not in their tables yet."""
        self._check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        for recorder in self._recorders.values():
            recorder.flush(block_until_num_items, _left(deadline))

    def close(self, timeout: float | None = None) -> None:
        """Closes the recorders of all agents. Idempotent."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._close_all(lambda recorder: recorder.close(_left(deadline)))

    def __enter__(self) -> ParallelRecorder:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the recorders of all agents, as the end of their own `with` blocks would."""
        start = time.monotonic()
        self._close_all(lambda recorder: recorder._leave(exception, time.monotonic() - start))

    def _close_all(self, close: Callable[[SingleRecorder], None]) -> None:
        """Closes all recorders; raises the first exception."""
        self._is_closed = True
        failure: BaseException | None = None
        for agent, recorder in self._recorders.items():
            try:
                close(recorder)
            except BaseException as error:  # noqa: BLE001 (raised below, when all are closed)
                if failure is not None:
                    _log.warning("closing the recorder of agent %r: %s", agent, error)
                failure = failure or error
        if failure is not None:
            raise failure

    def _agents(
        self, arguments: dict[str, Mapping[Any, Any]], extras: Mapping[Any, Any] | None
    ) -> tuple[list[Any], list[Any]]:
        """Returns the agents that leave without a step and those that acted. ValueError for incomplete values."""
        actions = arguments["actions"]
        leaving = [agent for agent in self._active if agent not in actions]
        for agent in leaving:
            if agent in arguments["rewards"]:
                raise ValueError(f"agent {agent!r} is in an episode and has a reward, but actions has no action of it")
        acting = []
        for agent in [agent for agent in actions if agent in self._active]:
            present = [name for name, value in arguments.items() if agent in value]
            if present == ["actions"]:
                leaving.append(agent)
                continue
            if len(present) < len(arguments):
                missing = ", ".join(name for name in arguments if name not in present)
                raise ValueError(f"agent {agent!r} acted, but there is nothing of it in {missing}")
            if extras is not None and agent not in extras:
                raise ValueError(f"agent {agent!r} acted, but extras has nothing of it")
            acting.append(agent)
        return leaving, acting

    def _start(self, agent: Any, observation: Any) -> None:
        recorder = self._recorders.get(agent)
        if recorder is None:
            recorder = self._make_recorder(agent)
            if not isinstance(recorder, SingleRecorder):
                raise TypeError(
                    f"make_recorder({agent!r}) must return a recorder for a single environment, such as "
                    f"TransitionRecorder, it returned {recorder!r}"
                )
            if any(recorder is other for other in self._recorders.values()):
                raise ValueError(
                    f"make_recorder({agent!r}) returned the recorder of another agent; it must create one for each"
                )
            self._recorders[agent] = recorder
        recorder.reset(observation)
        self._active.add(agent)

    def _end(self, agent: Any) -> None:
        self._active.discard(agent)
        self._recorders[agent].end_episode()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("close() has been called on this recorder")

    @staticmethod
    def _check_dict(name: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a dict with a value for each agent, got {type(value).__name__}")


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
