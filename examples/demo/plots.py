"""The pictures that the demo leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

INK, BLUE, ORANGE, GREY = "#222222", "#1f6fb4", "#d9711c", "#9a9a9a"


def save(folder: Path, history: dict[str, list[Any]], aim: dict[str, float], title: str) -> list[Path]:
    """Writes learning_curve.png and limiter.png; returns their paths."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK, "font.size": 10})
    folder.mkdir(parents=True, exist_ok=True)

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    seconds, scores = zip(*history["episodes"], strict=True) if history["episodes"] else ((), ())
    axes.plot(seconds, scores, ".", color=GREY, markersize=3, alpha=0.6, label="an episode of an actor, with exploration")
    if history["evaluations"]:
        axes.plot(*zip(*history["evaluations"], strict=True), "o-", color=BLUE, label="mean of 20 evaluation episodes")
    axes.axhline(aim["return"], color=ORANGE, linestyle="--", label=f"solved: {aim['return']:g}")
    axes.set(xlabel="seconds", ylabel="return", ylim=(0, 525), title=title)
    axes.legend(loc="upper left", frameon=False)
    learning_curve = folder / "learning_curve.png"
    figure.savefig(learning_curve, dpi=120)
    plt.close(figure)

    figure, (cursor, ratio, waits) = plt.subplots(3, 1, figsize=(8, 8), sharex=True, layout="constrained")
    seconds = history["seconds"]
    cursor.plot(seconds, history["cursor"], color=BLUE)
    for bound, name in ((aim["min_diff"], "the learner waits below"), (aim["max_diff"], "actors wait above")):
        cursor.axhline(bound, color=ORANGE, linestyle="--")
        cursor.annotate(name, (seconds[-1] if seconds else 0, bound), ha="right", va="bottom", color=ORANGE)
    cursor.margins(y=0.2)
    cursor.set(ylabel="cursor", title="The limiter's cursor: inserts × samples per insert − samples")
    ratio.plot(seconds, history["samples_per_insert"], color=BLUE, label="measured")
    ratio.plot(seconds, history["lowest"], color=ORANGE, linestyle="--", label="the bounds, as a ratio")
    ratio.plot(seconds, history["highest"], color=ORANGE, linestyle="--")
    ratio.axhline(aim["samples_per_insert"], color=GREY, linewidth=1)
    ratio.set(ylabel="samples per insert", ylim=(0, 1.25 * aim["samples_per_insert"]), title="Samples per insert so far")
    ratio.legend(loc="lower right", frameon=False)
    waits.stackplot(
        seconds, history["actors_waiting"], history["learner_waiting"],
        labels=["actors wait for the learner", "the learner waits for actors"], colors=[BLUE, ORANGE], alpha=0.7,
    )  # fmt: skip
    waits.set(xlabel="seconds", ylabel="share of the time", ylim=(0, 1.05), title="Who waits for whom")
    waits.legend(loc="upper right", frameon=False)
    limiter = folder / "limiter.png"
    figure.savefig(limiter, dpi=120)
    plt.close(figure)
    return [learning_curve, limiter]
