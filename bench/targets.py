"""What was promised, as values that can judge a result. Each gives the measured figure and the limit as text,
and the measured figure as a share of the limit: at most one means met."""

from dataclasses import dataclass

import stats
from peers import DRIFTLESS, TOOLS


@dataclass(frozen=True)
class Verdict:
    """One target held against one result; `share` is None if it was not measured."""

    target: str
    measured: str
    share: float | None

    @property
    def met(self):
        return self.share is not None and self.share <= 1


@dataclass(frozen=True)
class AtMost:
    """At most `limit` times the seconds of another tool."""

    reference: str
    limit: float

    def judge(self, result):
        measured = stats.ratio(result, stats.contender(result), self.reference)
        text = f"≤ {self.limit:g} × {TOOLS[self.reference].label}"
        return verdict(text, measured, self.limit, "{:.3g} ×")


@dataclass(frozen=True)
class Faster:
    """At least `factor` times as fast as another form of it."""

    reference: str
    factor: float

    def judge(self, result):
        slowness = stats.ratio(result, stats.contender(result), self.reference)
        text = f"≥ {self.factor:g} × the rate of {TOOLS[self.reference].label}"
        if slowness is None:
            return verdict(text, None, 1, "")
        return Verdict(text, f"{1 / slowness:.3g} ×", self.factor * slowness)


@dataclass(frozen=True)
class Ahead:
    """At most `limit` times the seconds of every peer."""

    limit: float = 1.0

    def judge(self, result):
        measured, peer = stats.worst_ratio(result)
        text = "ahead of every peer" if self.limit == 1 else f"≤ {self.limit:g} × the best peer"
        return verdict(text, measured, self.limit, "{:.3g} × " + (TOOLS[peer].label if peer else ""))


@dataclass(frozen=True)
class Within:
    """Less than so many seconds."""

    limit: float

    def judge(self, result):
        measured = stats.seconds(result, DRIFTLESS)
        milliseconds = None if measured is None else measured * 1000
        return verdict(f"< {self.limit * 1000:g} ms", milliseconds, self.limit * 1000, "{:.1f} ms")


@dataclass(frozen=True)
class PerCall:
    """At most so many microseconds of processor time a call, what the kernel does for it included."""

    microseconds: float

    def judge(self, result):
        seconds = stats.cpu_seconds(result, stats.contender(result))
        measured = None if seconds is None else seconds * 1e6
        return verdict(f"≤ {self.microseconds:g} µs a call beside its system calls", measured, self.microseconds, "{:.1f} µs of processor time with them")


@dataclass(frozen=True)
class MixedBound:
    """At most `limit` times what its large and its small files take on their own."""

    limit: float

    def judge(self, result):
        took, bound = stats.seconds(result, DRIFTLESS), stats.mixed_bound(result)
        measured = took / bound if took and bound else None
        return verdict(f"≤ {self.limit:g} × its parts alone", measured, self.limit, "{:.3g} ×")


@dataclass(frozen=True)
class LineBound:
    """At most `limit` times what its bytes through the line and a copy on one host take, one after the other."""

    limit: float

    def judge(self, result):
        took, bound = stats.seconds(result, stats.contender(result)), stats.line_bound(result)
        measured = took / bound if took and bound else None
        return verdict(f"≤ {self.limit:g} × its bytes through ssh and a local copy", measured, self.limit, "{:.3g} ×")


@dataclass(frozen=True)
class Delayed:
    """At most so many seconds more through a line with delay than without the delay."""

    more_seconds: float

    def judge(self, result):
        own = stats.contender(result)
        took, near = stats.seconds(result, own), stats.seconds(result, own, "near")
        measured = None if took is None or near is None else took / (near + self.more_seconds)
        text = f"≤ its time without the delay + {self.more_seconds:g} s"
        return verdict(text, measured, 1, "{:.3g} ×")


@dataclass(frozen=True)
class OnTheWire:
    """At most this share of the bytes of the tree cross the wire, both ways together."""

    limit: float

    def judge(self, result):
        sent = stats.wire_bytes(result, stats.contender(result))
        measured = None if sent is None else 100 * sent / result["tree"]["bytes"]
        return verdict(f"≤ {100 * self.limit:g} % of its bytes on the wire", measured, 100 * self.limit, "{:.3g} %")


@dataclass(frozen=True)
class Peak:
    """At most so many MiB of memory in a part of the case."""

    part: str
    limit: float

    def judge(self, result):
        measured = stats.peak_mib(result, DRIFTLESS, f"many-{self.part}")
        return verdict(f"{WORDS[self.part]}: ≤ {self.limit:g} MiB", measured, self.limit, "{:.1f} MiB")


@dataclass(frozen=True)
class Growth:
    """At most so many MiB more over many entries than over few."""

    part: str
    limit: float

    def judge(self, result):
        many, few = (stats.peak_mib(result, DRIFTLESS, f"{size}-{self.part}") for size in ("many", "few"))
        measured = None if many is None or few is None else max(many - few, 0)
        text = f"{WORDS[self.part]}: ≤ {self.limit:g} MiB above the small tree"
        return verdict(text, measured, self.limit, "{:.1f} MiB above")


WORDS = {"first": "first copy", "same": "nothing changed"}


def verdict(target, measured, limit, form):
    """A verdict, also for what was not measured."""
    if measured is None:
        return Verdict(target, "not measured", None)
    return Verdict(target, form.format(measured), measured / limit)


def judge(case, result):
    """All verdicts of a case; a run of driftless that failed meets nothing."""
    verdicts = [target.judge(result) for target in case.targets]
    trouble = result.get("trouble") or stats.failures(result, stats.contender(result))
    if trouble:
        return [Verdict(v.target, f"failed; {v.measured}", None) for v in verdicts]
    return verdicts
