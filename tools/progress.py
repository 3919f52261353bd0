"""Progress bars and tables on stderr, so that stdout holds nothing but results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

# Takes the bytes done, the bytes in all (0 where that isn't known), and what is being done.
Report: TypeAlias = Callable[[int, int, str], None]


class _Bytes(DownloadColumn):
    """The bytes done and in all, where there is something to count."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


@contextmanager
def stage(title: str) -> Iterator[Report]:
    """Show a bar with ``title`` while the block runs; the block may report how far it is.

    Where stderr is no terminal, the title is all.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(escape(title))
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        _Bytes(binary_units=True),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(escape(title), total=None)

        def report(done: int, total: int, what: str) -> None:
            description = f"{title}: {what}" if what else title
            progress.update(
                task, completed=done, total=total or None, description=escape(description)
            )

        yield report


def note(text: str) -> None:
    """Print a line for the person at the terminal."""
    Console(stderr=True, highlight=False).print(escape(text), soft_wrap=True)


def summary(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print a table of names and values."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(escape(name), escape(value))
    Console(stderr=True, highlight=False).print(table)


def size(count: int) -> str:
    """A number of bytes as a person reads it."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
