"""Interprets what environments return: Gymnasium, Gym 0.26, dm_env and vector environments, by duck typing."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import numpy as np
import numpy.typing as npt

from reverb import _tree
from reverb.recorders._rows import Mask, as_rows, with_rows


class Autoreset(enum.Enum):
    """How a vector environment resets environments whose episode has ended."""

    NEXT_STEP = "next_step"
    SAME_STEP = "same_step"
    DISABLED = "disabled"


_MODES = ", ".join(repr(mode.value) for mode in Autoreset)


@dataclasses.dataclass
class Step:
    """One step of each environment: all values have the environments as their first dimension."""

    action: Any
    observation: Any
    reward: npt.NDArray[np.float64]
    discount: npt.NDArray[np.float64]  # of the environment: 0 after termination, otherwise usually 1
    terminated: Mask
    truncated: Mask
    extras: Any  # None if the step has no extras


# Shared by steps of single environments, which only read them.
_FALSE_AND_TRUE = np.array([False]), np.array([True])
_ONE_AND_ZERO = np.array([1.0]), np.array([0.0])


def is_timestep(value: Any) -> bool:
    """Returns whether the value is a dm_env.TimeStep, or looks like one."""
    return hasattr(value, "step_type") and hasattr(value, "observation") and hasattr(value, "discount")


def _numbers(name: str, value: Any) -> npt.NDArray[np.float64]:
    try:
        return np.array(value, np.float64)  # a copy: the environment may reuse its array
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {value!r}") from None


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, dict):
        raise TypeError(
            f"{name} must be a bool, got a dict; step() takes (action, observation, reward, terminated, truncated, "
            "info): environments of Gym before 0.26 return one `done`, pass it as terminated or as truncated"
        )
    array = np.asarray(value)
    if array.size > 1:
        raise TypeError(
            f"{name} must be a bool, got an array of {array.size}; vector environments need a recorder such as "
            "VectorTransitionRecorder"
        )
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return bool(array.reshape(())[()])


def read_step(action: Any, observation: Any, reward: Any, terminated: Any, truncated: Any, extras: Any) -> Step:
    """Returns the step of a single environment of Gymnasium."""
    if reward is None or terminated is None or truncated is None:
        missing = [
            name
            for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated))
            if value is None
        ]
        raise TypeError(
            f"step() lacks {', '.join(missing)}; it takes (action, observation, reward, terminated, truncated, info) "
            "or (action, timestep)"
        )
    ended = _flag("terminated", terminated)
    return Step(
        action=as_rows(action),
        observation=as_rows(observation),
        reward=_numbers("reward", reward)[None],
        discount=_ONE_AND_ZERO[ended],
        terminated=_FALSE_AND_TRUE[ended],
        truncated=_FALSE_AND_TRUE[_flag("truncated", truncated)],
        extras=None if extras is None else as_rows(extras),
    )


def read_timestep(action: Any, timestep: Any, extras: Any) -> Step:
    """Returns the step of a dm_env environment, which must not be the first of an episode."""
    if timestep.reward is None or timestep.discount is None:
        raise ValueError(
            "the timestep has no reward or no discount although it is not the first of an episode; "
            "dm_env.transition(), termination() and truncation() make complete ones"
        )
    discounts = _numbers("discount", timestep.discount)
    if discounts.size != 1:
        raise TypeError(f"the discount of a timestep must be one number, got {timestep.discount!r}")
    discount = float(discounts.reshape(()))
    is_last = bool(timestep.last())
    return Step(
        action=as_rows(action),
        observation=as_rows(timestep.observation),
        reward=_numbers("reward", timestep.reward)[None],
        discount=np.array([discount]),
        terminated=np.array([is_last and discount == 0.0]),
        truncated=np.array([is_last and discount != 0.0]),
        extras=None if extras is None else as_rows(extras),
    )


def _flags(name: str, value: Any, num_envs: int) -> Mask:
    flags = np.array(value)  # a copy: the environment may reuse its array
    if flags.shape != (num_envs,):
        raise ValueError(f"{name} must have shape ({num_envs},), a value for each environment, got {flags.shape}")
    if flags.dtype != np.bool_:
        if flags.dtype.kind not in "iuf":
            raise TypeError(f"{name} must be bools, got dtype {flags.dtype}")
        flags = flags.astype(np.bool_)
    return flags


def read_mask(value: Any, num_envs: int) -> Mask:
    """Returns the mask that a caller gave."""
    mask = np.asarray(value)
    if mask.dtype != np.bool_:
        raise TypeError(f"mask must be bools, got dtype {mask.dtype}; mask.astype(bool) makes them")
    if mask.shape != (num_envs,):
        raise ValueError(f"mask must have shape ({num_envs},), a value for each environment, got {mask.shape}")
    return mask


def read_vector_step(
    action: Any, observation: Any, reward: Any, terminated: Any, truncated: Any, extras: Any, num_envs: int
) -> Step:
    """Returns the step of a vector environment."""
    rewards = _numbers("reward", reward)
    if rewards.ndim < 1 or len(rewards) != num_envs:
        raise ValueError(
            f"reward must have a first dimension of {num_envs}, a row for each environment, got shape {rewards.shape}"
        )
    ended = _flags("terminated", terminated, num_envs)
    check_rows("observation", observation, num_envs)
    check_rows("action", action, num_envs)
    if extras is not None:
        check_rows("extras", extras, num_envs)
    return Step(
        action=action,
        observation=observation,
        reward=rewards,
        discount=np.where(ended, 0.0, 1.0),
        terminated=ended,
        truncated=_flags("truncated", truncated, num_envs),
        extras=extras,
    )


def check_rows(name: str, value: Any, num_envs: int) -> None:
    """Raises ValueError unless each leaf has a row for each environment."""
    leaves = [value] if isinstance(value, np.ndarray) else _tree.flatten(value)
    for leaf in leaves:
        shape = np.shape(leaf)
        if not shape or shape[0] != num_envs:
            if isinstance(value, (list, tuple)):
                kind = type(value).__name__
                raise ValueError(
                    f"{name} is a {kind}, which is a nest of {len(value)} arrays, each with a row for each of "
                    f"{num_envs} environments, but one of them has shape {shape}; np.array({name}) makes an array of a "
                    f"{kind} with a value for each environment"
                )
            raise ValueError(
                f"{name} must have a first dimension of {num_envs}, a row for each environment, got shape {shape}"
            )


def with_final_observations(observation: Any, info: Any, ended: Mask) -> Any:
    """Returns the observations with the last ones of the episodes that have ended, which `info` has."""
    name = _final_name(info)
    if name is None:
        raise ValueError(
            f"environments {np.flatnonzero(ended).tolist()} have ended, but info has neither 'final_obs' nor "
            "'final_observation', which autoreset='same_step' requires; pass the info that step() returned, and "
            "check the environment's autoreset mode"
        )
    final, label = info[name], f"info[{name!r}]"
    mask = info.get(f"_{name}")  # Gymnasium: which environments have one
    if mask is not None and (missing := ended & ~_flags(f"info['_{name}']", mask, len(ended))).any():
        raise ValueError(
            f"environments {np.flatnonzero(missing).tolist()} have ended, but {label} has nothing of them: "
            f"info['_{name}'] is False"
        )
    is_array_of_objects = isinstance(final, np.ndarray) and final.dtype == object
    is_list = isinstance(final, (list, tuple)) and type(final) is not type(observation) and len(final) == len(ended)
    if is_array_of_objects or is_list:
        return _with_final_objects(observation, final, ended, label)

    # A nest of arrays with a row for each environment.
    def choose(new: Any, last: Any) -> npt.NDArray[Any]:
        last = np.asarray(last)
        check_rows(label, last, len(ended))
        return with_rows(new, ended, last[ended], label)

    return _tree.map_structure(choose, observation, final, check_types=False)


def _final_name(info: Any) -> str | None:
    """Returns the name of the last observations in `info`: Gymnasium's from 1.0 on, and before."""
    if isinstance(info, dict):
        for name in ("final_obs", "final_observation"):
            if info.get(name) is not None:
                return name
    return None


def _with_final_objects(observation: Any, final: Any, ended: Mask, label: str) -> Any:
    """The same for one observation of each environment; those of environments that have not ended are not used."""
    leaves = _tree.flatten(observation)
    rows: list[list[npt.NDArray[Any]]] = [[] for _ in leaves]
    for i in np.flatnonzero(ended):
        if final[i] is None:
            raise ValueError(f"environment {i} has ended, but {label}[{i}] is None")
        flat = _tree.flatten(final[i])
        if len(flat) != len(leaves):
            raise ValueError(f"{label}[{i}] has {len(flat)} leaves but the observation has {len(leaves)}")
        for column, leaf, value in zip(rows, leaves, flat, strict=True):
            array = np.asarray(value)
            if array.shape != np.shape(leaf)[1:]:
                raise ValueError(f"{label}[{i}] has shape {array.shape}, but the observation has {np.shape(leaf)[1:]}")
            column.append(array)
    return _tree.unflatten_as(
        observation,
        [with_rows(leaf, ended, np.stack(column), label) for leaf, column in zip(leaves, rows, strict=True)],
    )


def check_no_final_observations(info: Any, mode: Autoreset) -> None:
    """Raises ValueError if `info` shows that the environment resets in the same step."""
    if _final_name(info) is not None:
        raise ValueError(
            f"info has final observations, so this environment resets in the same step, but the recorder has "
            f'autoreset={mode.value!r}; create it with autoreset="same_step" or env='
        )


def read_autoreset(value: Any) -> Autoreset:
    """Returns the mode for an argument: a string, or a member of gymnasium.vector.AutoresetMode."""
    text = value if isinstance(value, str) else getattr(value, "value", value)
    if isinstance(text, str):
        simple = text.replace("_", "").replace("-", "").lower()
        for mode in Autoreset:
            if simple == mode.value.replace("_", ""):
                return mode
    raise ValueError(f"autoreset must be one of {_MODES}, got {value!r}")


def describe_vector_env(env: Any, num_envs: Any, autoreset: Any) -> tuple[int, Autoreset]:
    """Returns the number of environments and the mode, from the arguments of a recorder."""
    if num_envs is None:
        num_envs = getattr(env, "num_envs", None)
        if num_envs is None:
            raise TypeError(
                f"env= must be a vector environment, but {type(env).__name__} has no num_envs; pass num_envs= and "
                "autoreset=, or use a recorder for a single environment"
                if env is not None
                else "pass env=, the vector environment, or both num_envs= and autoreset="
            )
    if autoreset is None:
        autoreset = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
        if autoreset is None:
            raise ValueError(
                f"the autoreset mode is not known; pass one of {_MODES} as autoreset= (Gymnasium from 1.0 on: "
                "'next_step'; Gym 0.26 and Gymnasium 0.x: 'same_step')"
            )
    if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
        raise ValueError(f"num_envs must be a positive integer, got {num_envs!r}")
    return int(num_envs), read_autoreset(autoreset)
