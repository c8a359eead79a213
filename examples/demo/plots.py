"""The plots of the demo."""

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

    paths = [folder / "learning_curve.png", folder / "limiter.png"]
    for path, draw, size in ((paths[0], _draw_learning, (8, 4.5)), (paths[1], _draw_limiter, (8, 8))):
        figure = plt.figure(figsize=size, layout="constrained")
        draw(figure, history, aim)
        figure.suptitle(title)
        figure.savefig(path, dpi=120)
        plt.close(figure)
    return paths


def _draw_learning(figure: Any, history: dict[str, list[Any]], aim: dict[str, float]) -> None:
    axes = figure.subplots()
    if history["episodes"]:
        seconds, scores = zip(*history["episodes"], strict=True)
        axes.plot(seconds, scores, ".", color=GREY, markersize=3, label="an episode of an actor, with exploration")
    if history["evaluations"]:
        axes.plot(*zip(*history["evaluations"], strict=True), "o-", color=BLUE, label="mean of 20 evaluation episodes")
    axes.axhline(aim["return"], color=ORANGE, linestyle="--", label=f"solved: {aim['return']:g}")
    axes.set(xlabel="seconds", ylabel="return", ylim=(0, 520))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)


def _draw_limiter(figure: Any, history: dict[str, list[Any]], aim: dict[str, float]) -> None:
    cursor, ratio, waits = figure.subplots(3, 1, sharex=True)
    seconds = history["seconds"]
    low, high, wanted = aim["min_diff"], aim["max_diff"], aim["samples_per_insert"]

    cursor.plot(seconds, history["cursor"], color=BLUE)
    cursor.axhspan(low, high, color=GREY, alpha=0.2)
    cursor.annotate("actors wait above", (seconds[-1], high), ha="right", va="bottom", color=ORANGE)
    cursor.annotate("the learner waits below", (seconds[-1], low), ha="right", va="top", color=ORANGE)
    cursor.set(ylim=(low - 0.6 * (high - low), high + 0.6 * (high - low)), ylabel="cursor")
    cursor.set_title("The limiter's cursor, inserts * samples per insert - samples, and its bounds", fontsize=10)

    ratio.fill_between(
        seconds, history["lowest"], history["highest"], color=GREY, alpha=0.4, label="what the bounds allow"
    )
    ratio.plot(seconds, history["samples_per_insert"], color=BLUE, label="since the start")
    ratio.plot(seconds, _recent_ratio(history), ".", color=ORANGE, markersize=4, label="in the last two seconds")
    ratio.axhline(wanted, color=INK, linewidth=0.7, linestyle=":")
    ratio.set(ylim=(0, 1.6 * wanted), ylabel="samples per insert")
    ratio.legend(loc="lower right", ncols=3, frameon=False)

    waits.stackplot(
        seconds, history["actors_waiting"], history["learner_waiting"],
        labels=["an actor waits for the learner", "the learner waits for actors"], colors=[BLUE, ORANGE], alpha=0.7,
    )  # fmt: skip
    waits.set(xlabel="seconds", ylabel="share of the time", ylim=(0, 1.3))
    waits.legend(loc="upper right", ncols=2, frameon=False)


def _recent_ratio(history: dict[str, list[Any]]) -> list[float]:
    """Returns the samples per insert in the two seconds before each time; none if nothing was inserted."""
    ratios, first = [], 0
    for now, seconds in enumerate(history["seconds"]):
        while seconds - history["seconds"][first] > 2:
            first += 1
        inserts = history["inserts"][now] - history["inserts"][first]
        samples = history["samples"][now] - history["samples"][first]
        ratios.append(samples / inserts if inserts else float("nan"))
    return ratios
