"""An earlier binary beside the one of today, in turn, in every case: has anything become slower?

Both run with the same words, so the earlier one must know the options of the case.
"""

from dataclasses import replace
from statistics import median

import stats
from cases import CASES
from peers import FORMS, TOOLS

SLOWER_MAX = 1.03
ROUNDS = 9
SECONDS_PER_CASE = 45
# Each is the first of a round once: whoever is the first to fill a file system in memory pays for pages that nobody had.
ROUNDS_MIN = 2
# Two tools that stand for more than themselves, what is no command that ends by itself, and what loads a library.
PROCEDURES_WITHOUT = ("movers_killed", "often", "live", "burst", "restart", "append", "million", "cycle", "script", "make", "closes", "reads", "results", "announced", "announced_rate",
    "chain", "killed", "slow", "spread", "second", "processor", "array", "starts", "submits", "held")


def earlier(tool):
    """The name of a form of driftless in its earlier state."""
    return f"{tool}, before"


def cases(names):
    """The cases of these names, with the earlier binary as their only opponent."""
    TOOLS.update({earlier(form): replace(TOOLS[form], label=f"{TOOLS[form].label}, before", is_before=True) for form in FORMS})
    return {name: opposed(CASES[name]) for name in names if CASES[name].kind not in PROCEDURES_WITHOUT}


def opposed(case):
    """One case. Two that are nearly equal need more rounds than two that are not."""
    own = case.tools[0]
    return replace(
        case, tools=(own, earlier(own)), rounds=ROUNDS, rounds_min=ROUNDS_MIN, duels=0,
        budget_seconds=SECONDS_PER_CASE, targets=())


def ratios(result, part, figure):
    """The figure of each round as a share of the earlier binary's."""
    own, before = result["tools"]
    others = {run["round"]: figure(run) for run in stats.runs_of(result, before, part)}
    return [figure(run) / others[run["round"]] for run in stats.runs_of(result, own, part) if others.get(run["round"])]


def rows(results):
    """Case and part, ratio of wall seconds, ratio of processor seconds, rounds."""
    for name, result in results["cases"].items():
        for part in dict.fromkeys(run["part"] for run in result["runs"]):
            wall, processor = (ratios(result, part, figure) for figure in (wall_seconds, processor_seconds))
            if wall and processor:
                yield f"{name} {part}".strip(), median(wall), median(processor), len(wall)


def wall_seconds(run):
    return run["wall"]


def processor_seconds(run):
    return run["user"] + run["sys"]


def page(results):
    """All of it as a table in Markdown; what became slower by more than the limit is marked."""
    lines = ["| case | wall, ÷ before | processor, ÷ before | rounds |", "| :-- | --: | --: | --: |"]
    for title, wall, processor, rounds in rows(results):
        lines.append(f"| {title} | {marked(wall)} | {marked(processor)} | {rounds} |")
    return "\n".join(lines) + "\n"


def marked(ratio):
    """A ratio, in bold if it is above the limit."""
    return f"**{ratio:.3f}**" if ratio > SLOWER_MAX else f"{ratio:.3f}"
