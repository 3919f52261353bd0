"""The roofline: operations a second of what was measured, under the machine's two limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

# Colours that the colour-blind tell apart, a candidate's by its place.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Write a picture of a report's rows that have operations and bytes."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots()
    points = [
        (row, candidate, found)
        for row in report["rows"]
        for candidate, found in row["candidates"].items()
        if found.get("flops") and found.get("bytes")
    ]
    intensities = [found["flops"] / found["bytes"] for _, _, found in points] or [1.0]
    left, right = min(intensities) / 2, max(intensities) * 2
    read = report["limits"]["read"]["median"]
    for dtype, style in (("float32", "-"), ("bfloat16", "--")):
        peak = report["limits"][dtype]["median"]
        corner = min(max(peak / read, left), right)
        heights = [min(x * read, peak) / 1e9 for x in (left, corner, right)]
        label = f"{dtype}: {read / 1e9:.1f} GB/s, {peak / 1e9:.0f} GFLOP/s"
        axes.plot([left, corner, right], heights, style, color="black", label=label)
    colours: dict[str, str] = {}
    for row, candidate, found in points:
        fresh = candidate not in colours
        colour = colours.setdefault(candidate, COLOURS[len(colours) % len(COLOURS)])
        calls = 1 / found["median"] if row["unit"] == "s" else found["median"]
        place = found["flops"] / found["bytes"], found["flops"] * calls / 1e9
        axes.plot(*place, "o", color=colour, label=candidate if fresh else None)
        if candidate != row["peer"]:
            axes.annotate(row["name"], place, fontsize=6, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
    machine = report["machine"]
    axes.set_title(f"{machine['processor']}, {report['limits']['threads']} threads")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
