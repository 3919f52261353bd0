"""The picture of an estimate: where a call's time goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from onnx_iron.tools.estimated import Estimate, Line

# The parts of the time, as Line has them, and a colour for each that the colour-blind tell apart.
PARTS = {"dispatch": "#0072B2", "switch": "#E69F00", "DMA": "#009E73", "compute": "#CC79A7"}


def draw(made: Mapping[str, Estimate], target: str, path: Path) -> None:
    """Write a picture of each call: a bar an operator, the longest first, in milliseconds."""
    heights = [len(one.lines) for one in made.values()]
    figure = Figure(figsize=(9, 1 + sum(0.8 + 0.3 * n for n in heights)), layout="constrained")
    all_axes = figure.subplots(len(made), 1, squeeze=False, height_ratios=[n + 1 for n in heights])
    for axes, (name, one) in zip(all_axes[:, 0], made.items(), strict=True):
        bars = sorted(one.lines.items(), key=lambda item: sum(parts(item[1]).values()))
        labels = [f"{op} ({line.runs})" for op, line in bars]
        start = [0.0] * len(bars)
        for part, colour in PARTS.items():
            widths = [parts(line)[part] / 1000 for _, line in bars]
            total = sum(widths)
            axes.barh(labels, widths, left=start, color=colour, label=f"{part} {total:.2f} ms")
            start = [a + b for a, b in zip(start, widths, strict=True)]
        axes.set_title(f"{name} on {target}: {one.list_us / 1000:.2f} ms a call, estimated")
        axes.set_xlabel("ms (runs of the operator in brackets)")
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def parts(line: Line) -> dict[str, float]:
    """An operator's time by its parts, in microseconds."""
    return {part: float(getattr(line, f"{part.lower()}_us")) for part in PARTS}
