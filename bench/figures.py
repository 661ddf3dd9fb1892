"""What runs that follow a source are judged by, beside seconds: the words and units of each figure, and targets for them."""

from dataclasses import dataclass
from statistics import median

import stats
from peers import TOOLS
from targets import Verdict, verdict


@dataclass(frozen=True)
class Figure:
    """How a figure is shown."""

    label: str
    unit: str = ""
    factor: float = 1.0


FIGURES = {
    "p50": Figure("lag p50", "ms", 1000),
    "p99": Figure("lag p99", "ms", 1000),
    "durable_p50": Figure("lag p50 until durable, by its status", "ms", 1000),
    "durable_p99": Figure("lag p99 until durable, by its status", "ms", 1000),
    "missing": Figure("files that did not arrive"),
    "rate": Figure("files a second"),
    "arrivals": Figure("files a second that arrived"),
    "processor": Figure("processor time", "% of one", 100),
    "seconds": Figure("time", "s"),
    "seen": Figure("time until it is seen", "s"),
    "copies": Figure("copies"),
    "last": Figure("time until the last state is there", "s"),
    "bytes": Figure("copied", "MiB", 2**-20),
    "hourly": Figure("processor time in an hour", "s"),
    "first": Figure("peak memory of the first copy", "MiB"),
    "peak": Figure("peak memory", "MiB"),
    "close": Figure("close of a written file, extra", "µs", 1e6),
    "close_plain": Figure("that close as a plain system call", "µs", 1e6),
    "open": Figure("its open, extra", "µs", 1e6),
    "read_open": Figure("open for reading, extra", "ns", 1e9),
    "read_open_plain": Figure("that open as a plain system call", "ns", 1e9),
    "read_close": Figure("close, extra", "ns", 1e9),
    "sending": Figure("time from the first unit to the last node", "s"),
    "link": Figure("share of the link", "%", 100),
    "machine": Figure("processors of this machine at work"),
    "others": Figure("time of the other nodes", "s"),
    "more": Figure("extra time of the other nodes", "s"),
    "received": Figure("received by a node", "MiB", 2**-20),
    "gib": Figure("processor time of a node for each GiB", "s"),
    "share": Figure("processor time at 1 Gbit/s", "% of four cores", 100),
    "gigabits": Figure("rate of that node", "Gbit/s", 1e-9),
    "begin": Figure("first task", "s"),
    "start": Figure("first task of the median node", "s"),
    "start_last": Figure("first task of the last node", "s"),
    "beyond": Figure("that beyond Slurm's own time", "s"),
    "beyond_last": Figure("that of the last node beyond Slurm's own time", "s"),
    "command": Figure("time of the command", "s"),
    "command_more": Figure("extra time of the command", "s"),
    "until": Figure("time until the task begins", "s"),
    "until_more": Figure("extra time until the task begins", "s"),
    "held": Figure("held jobs"),
    "processor_own": Figure("processor time without its commands", "% of one", 100),
    "controller": Figure("processor time of Slurm's controller", "% of one", 100),
    "read_close_plain": Figure("that close as a plain system call", "ns", 1e9),
}
TINY = 1e-9  # in the place of a limit of nothing
PARTS = {"few": "a fifth of the tree", "many": "the tree", "most": "twice the tree"}


def median_of(result, tool, key, part=""):
    """The median of a figure over the runs that have it, or None."""
    values = [run["figures"][key] for run in stats.runs_of(result, tool, part) if key in run.get("figures", {})]
    return median(values) if values else None


def told(key, part=""):
    """A figure in words."""
    words = [PARTS.get(part, part), FIGURES[key].label]
    return ", ".join(word for word in words if word)


@dataclass(frozen=True)
class NoMore:
    """A figure is at most so much, in its own unit."""

    key: str
    limit: float
    part: str = ""

    def judge(self, result):
        figure, measured = FIGURES[self.key], median_of(result, stats.contender(result), self.key, self.part)
        shown = None if measured is None else measured * figure.factor
        form = ("{:.3g}" if shown is None or shown < 100 else "{:.0f}") + f" {figure.unit}".rstrip()
        text = f"{told(self.key, self.part)} ≤ {self.limit:g} {figure.unit}".rstrip()
        return verdict(text, shown, self.limit or TINY, form)


@dataclass(frozen=True)
class NoLess:
    """A figure is at least so much, in its own unit."""

    key: str
    limit: float
    part: str = ""

    def judge(self, result):
        figure, measured = FIGURES[self.key], median_of(result, stats.contender(result), self.key, self.part)
        text = f"{told(self.key, self.part)} ≥ {self.limit:g} {figure.unit}".rstrip()
        if not measured:
            return verdict(text, None, 1, "")
        shown = measured * figure.factor
        return Verdict(text, f"{shown:.0f} {figure.unit}".rstrip(), self.limit / shown)


@dataclass(frozen=True)
class Share:
    """A figure is at most `limit` times that of another tool, or of another part."""

    key: str
    limit: float
    part: str = ""
    reference: str = ""  # without one, it is the same tool
    base: str = ""

    def judge(self, result):
        own = stats.contender(result)
        base = self.base or self.part
        measured, other = median_of(result, own, self.key, self.part), median_of(result, self.reference or own, self.key, base)
        of = TOOLS[self.reference].label if self.reference else told(self.key, base)
        text = f"{told(self.key, self.part)} ≤ {self.limit:g} × {of}"
        return verdict(text, measured / other if measured is not None and other else None, self.limit, "{:.3g} ×")


def rows(case, result):
    """Title, figure, and the value of each tool that has it."""
    kinds = dict.fromkeys((run["part"], key) for run in result["runs"] for key in run.get("figures", {}))
    for part, key in kinds:
        values = {tool: median_of(result, tool, key, part) for tool in result["tools"]}
        unit = FIGURES[key].unit
        label = told(key, part) + (f", {unit}" if unit else "")
        yield case.title, label, {tool: value * FIGURES[key].factor for tool, value in values.items() if value is not None}
