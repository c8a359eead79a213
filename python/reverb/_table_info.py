"""TableInfo out of what the native code tells."""

from __future__ import annotations

from typing import Any

from reverb import _specs, reverb_types

_NANOS = 1_000_000


def signature_of(info: dict[str, Any]) -> Any:
    """The nest of specs that a table was made with; None for none."""
    # What Python made has its bounds in user_data; other servers have the plain signature only.
    if info["user_data"]:
        return _specs.decode_structured_value(info["user_data"])
    return _specs.decode_signature(info["signature"]) if info["signature"] else None


def from_native(info: dict[str, Any]) -> reverb_types.TableInfo:
    """The public value."""
    idle = info["idle_ns"]
    working = info["inserting_ns"] + info["sampling_ns"]
    return reverb_types.TableInfo(
        name=info["name"],
        sampler_options=reverb_types.selector_options(*info["sampler"]),
        remover_options=reverb_types.selector_options(*info["remover"]),
        max_size=info["max_size"],
        max_times_sampled=info["max_times_sampled"],
        rate_limiter_info=reverb_types.rate_limiter_info(
            samples_per_insert=info["samples_per_insert"],
            min_size_to_sample=info["min_size_to_sample"],
            min_diff=info["min_diff"],
            max_diff=info["max_diff"],
            inserts=info["inserts"],
            samples=info["samples"],
        ),
        signature=signature_of(info),
        current_size=info["current_size"],
        num_episodes=info["num_episodes"],
        num_deleted_episodes=info["num_deleted_episodes"],
        num_unique_samples=info["num_unique_samples"],
        table_worker_time=reverb_types.TableWorkerTime(
            running_ms=working // _NANOS,
            sampling_ms=info["sampling_ns"] // _NANOS,
            inserting_ms=info["inserting_ns"] // _NANOS,
            sleeping_ms=idle // _NANOS,
            waiting_for_sampling_ms=info["waiting_for_sampling_ns"] // _NANOS,
            waiting_for_inserts_ms=info["waiting_for_inserts_ns"] // _NANOS,
        ),
    )
