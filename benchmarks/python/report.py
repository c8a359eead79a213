"""The figures as a table for people, and as JSON for programs."""

from __future__ import annotations

import json
import statistics

import contest
import rows

COLUMNS = ("row", "tables", "figure", "recorded", "dm-reverb", "ours", "ratio", "goal", "CPU µs/op", "others")


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1e3:.0f} k"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _scaled(metric: rows.Metric, values: list[float]) -> list[float]:
    return [value / 1e9 for value in values] if metric.unit == "GB/s" else values


def _cell(values: list[float]) -> str:
    """Median and spread."""
    if not values:
        return "–"
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(statistics.median(values))} [{_number(min(values))}…{_number(max(values))}]"


def ratio(metric: rows.Metric, ours: list[float], theirs: list[float]) -> float | None:
    """How many times better ours is: the median over the rounds, else ours against the recorded figure."""
    if ours and theirs:
        pairs = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    elif ours and metric.recorded:
        pairs = [statistics.median(ours) / metric.recorded]
    else:
        return None
    middle = statistics.median(pairs)
    return 1 / middle if metric.is_less_better else middle


def _goal(outcome: contest.Outcome, metric: rows.Metric) -> float | None:
    if metric.goal_calls is None:
        return metric.goal
    return metric.goal_calls * statistics.median(outcome.empty_call_us) if outcome.empty_call_us else None


def records(outcome: contest.Outcome) -> list[dict[str, object]]:
    """One record for each figure of a row."""
    found = []
    for metric in outcome.row.metrics:
        ours = _scaled(metric, outcome.figures.get("ours", {}).get(metric.key, []))
        theirs = _scaled(metric, outcome.figures.get("dm-reverb", {}).get(metric.key, []))
        found.append(
            {
                "row": outcome.row.name,
                "title": outcome.row.title,
                "tables": outcome.temperature,
                "items": outcome.size,
                "figure": metric.key,
                "unit": metric.unit,
                "ours": ours,
                "dm_reverb": theirs,
                "dm_reverb_recorded": metric.recorded,
                "ratio": ratio(metric, ours, theirs),
                "goal": _goal(outcome, metric),
                "empty_call_us": outcome.empty_call_us if metric.goal_calls else [],
                "cpu_us": {side: figures.get("cpu_us", []) for side, figures in outcome.figures.items()},
                "missing": outcome.missing,
                "others": _others(outcome),
            }
        )
    return found


def _cpu(outcome: contest.Outcome) -> str:
    """Of all processes of a side together: ours, and dm-reverb's."""
    spent = [outcome.figures.get(side, {}).get("cpu_us", []) for side in ("ours", "dm-reverb")]
    return " / ".join(_number(statistics.median(values)) for values in spent if values)


def _others(outcome: contest.Outcome) -> list[float]:
    """Slice by slice, the share of the machine that other programs and the hypervisor had."""
    return [share for figures in outcome.figures.values() for share in figures.get("others", [])]


def lines(outcome: contest.Outcome) -> list[tuple[str, ...]]:
    """The cells of a row, a line for each figure."""
    cells = []
    for metric, record in zip(outcome.row.metrics, records(outcome), strict=True):
        missing = outcome.missing
        goal = record["goal"]
        text = "–"
        if isinstance(goal, float | int):
            text = ("≤ " if metric.is_less_better else "≥ ") + _number(goal)
            if metric.goal_calls:
                text += f" ({metric.goal_calls:g} x {_cell(outcome.empty_call_us)})"
        times = record["ratio"]
        cells.append(
            (
                outcome.row.name,
                outcome.temperature,
                f"{metric.key.split('_')[0]}, {metric.unit}" if metric.unit in ("µs", "s", "MB") else metric.unit,
                _number(metric.recorded) if metric.recorded else "–",
                "not available" if "dm-reverb" in missing else _cell(record["dm_reverb"]),  # type: ignore[arg-type]
                "not available" if "ours" in missing else _cell(record["ours"]),  # type: ignore[arg-type]
                f"{times:.3g}" if isinstance(times, float) else "–",
                text,
                _cpu(outcome) if metric is outcome.row.metrics[0] else "",
                f"{max(_others(outcome)):.0%}" if metric is outcome.row.metrics[0] and _others(outcome) else "",
            )
        )
    return cells


def table(outcomes: list[contest.Outcome]) -> str:
    """All rows, aligned."""
    body = [COLUMNS, *(cells for outcome in outcomes for cells in lines(outcome))]
    widths = [max(len(cells[i]) for cells in body) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip() for cells in body
    )


def as_json(outcomes: list[contest.Outcome]) -> str:
    """One record a line."""
    return "\n".join(json.dumps(record, ensure_ascii=False) for outcome in outcomes for record in records(outcome))
