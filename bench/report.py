#!/usr/bin/python3
"""Writes docs/bench.md and its plots from the raw results.

    bench/report.py docs/bench.json docs
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # leave no caches in the source tree

import figures
import plots
import stats
from cases import CASES
from peers import DRIFTLESS, FORMS, TOOLS
from targets import judge
from text import COMMANDS_HEAD, GROUPS, HOW, INTRO, REPRODUCE

MIB = 2**20
# Groups that have a plot beside their table: few, since every page that is written anew stays in the history.
PLOTTED = ("real", "ssh", "latency", "memory")
# Groups whose table has figures of many kinds instead of seconds.
FIGURED = ("mirror", "calls", "announced", "cast", "jobs")


def number(value):
    """Seconds with three significant figures, without an exponent."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def table(head, rows):
    """A table in Markdown; the first column is text, the others are figures."""
    lines = ["| " + " | ".join(head) + " |", "| :-- |" + " --: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def verdict_mark(verdict):
    """One word for a verdict."""
    if verdict.share is None:
        return "not measured" if verdict.measured == "not measured" else "**no**"
    return "yes" if verdict.met else "**no**"


def what(case):
    """A case in a few words, unique among all."""
    group = GROUPS[case.group].short
    return case.title if group in ("large files", case.title) else f"{group}, {case.title}"


def summary(measured):
    """All targets with what was measured."""
    rows = []
    for case, result in measured:
        for verdict in judge(case, result):
            rows.append([what(case), verdict.target, verdict.measured, verdict_mark(verdict)])
    met = sum(row[3] == "yes" for row in rows)
    return f"{met} of {len(rows)} targets are met.\n\n" + table(["case", "target", "measured", "met"], rows)


def seconds_cell(result, tool):
    """Median seconds of a tool; a star marks an exit code other than 0."""
    mark = "*" if stats.failures(result, tool) else ""
    text = number(stats.seconds(result, tool)) + mark
    return f"**{text}**" if tool in FORMS else text


def times_table(measured):
    """Seconds of every tool in the cases of one group, and two ratios."""
    tools = [tool for tool in TOOLS if any(stats.seconds(result, tool) for _, result in measured)]
    reference = GROUPS[measured[0][0].group].reference
    head = ["", *(TOOLS[tool].label for tool in tools), f"÷ {TOOLS[reference].label}", "÷ best peer", "rounds"]
    rows = []
    for case, result in measured:
        own = stats.contender(result)
        ratios = [stats.ratio(result, own, reference), stats.worst_ratio(result)[0]]
        rounds = str(len(stats.runs_of(result, own)))
        rows.append([case.title, *(seconds_cell(result, tool) for tool in tools), *map(number, ratios), rounds])
    return table(head, rows)


def cpu_table(measured):
    """Processor seconds, user and system together."""
    tools = [tool for tool in TOOLS if any(stats.seconds(result, tool) for _, result in measured)]
    rows = [[case.title, *(number(stats.cpu_seconds(result, tool)) for tool in tools)] for case, result in measured]
    return table(["processor seconds", *(TOOLS[tool].label for tool in tools)], rows)


def memory_table(measured):
    """Peaks over few and many entries."""
    _, result = measured[0]
    rows = []
    for part, words in (("first", "first copy"), ("same", "nothing changed")):
        for tool in result["tools"]:
            peaks = [number(stats.peak_mib(result, tool, f"{size}-{part}")) for size in ("few", "many")]
            rows.append([f"{words}, {TOOLS[tool].label}", *peaks])
    many = f"{result['tree']['entries']:,} entries" if result["tree"] else "many entries"
    return table(["peak memory, MiB", "small tree", many], rows)


def figures_table(measured):
    """Every figure of every tool that has it."""
    tools = [tool for tool in TOOLS if any(stats.runs_of_any(result, tool) for _, result in measured)]
    rows = [[title, label, *(figure_cell(values, tool) for tool in tools)]
            for case, result in measured for title, label, values in figures.rows(case, result)]
    return table(["", "", *(TOOLS[tool].label for tool in tools)], rows)


def figure_cell(values, tool):
    """A figure of a tool, if it has it."""
    if tool not in values:
        return "–"
    return f"**{number(values[tool])}**" if tool in FORMS else number(values[tool])


def mixed_line(measured):
    """How the bound of the mixed tree was found."""
    for case, result in measured:
        if case.kind == "mixed" and stats.mixed_bound(result):
            one, small = stats.seconds(result, DRIFTLESS, "one"), stats.seconds(result, DRIFTLESS, "small")
            bound = number(stats.mixed_bound(result))
            return (f"\nThe parts of the mixed tree on their own: one large file in {number(one)} s, all small files "
                    f"in {number(small)} s, so {bound} s for two large files and the small ones.\n")
    return ""


def delay_line(measured):
    """What the cases with delay took without it."""
    parts = []
    for case, result in measured:
        near = stats.seconds(result, stats.contender(result), "near")
        if near is not None:
            parts.append(f"{number(near)} s for “{case.title}”")
    if not parts:
        return ""
    return f"\nWithout the delay driftless took, in the same rounds, {' and '.join(parts)}.\n"


def wire_table(measured):
    """What crossed the wire where that was counted; also as a share of the tree."""
    rows, tools = [], []
    for case, result in measured:
        counted = {tool: stats.wire_bytes(result, tool) for tool in result["tools"]}
        if any(counted.values()):
            tools = result["tools"]
            rows.append([case.title, *(wire_cell(counted[tool], result["tree"]["bytes"]) for tool in tools)])
    return table(["MiB on the wire, both ways together", *(TOOLS[tool].label for tool in tools)], rows) if rows else ""


def wire_cell(sent, of_bytes):
    """MiB and per cent."""
    return "–" if sent is None else f"{number(sent / MIB)} ({number(100 * sent / of_bytes)} %)"


def tree_line(measured):
    """What the tree of a group is made of."""
    facts = next((result["tree"] for case, result in measured if result["tree"] and case.kind != "within"), None)
    if not facts:
        return ""
    return f"{facts['entries']:,} entries, {facts['files']:,} regular files, {facts['bytes'] / MIB:,.0f} MiB. "


def trouble_lines(measured):
    """Cases that could not be finished."""
    lines = [f"- {case.title}: `{' / '.join(result['trouble'].split(chr(10))[:3])}`"
             for case, result in measured if result["trouble"]]
    return "\nNot finished:\n\n" + "\n".join(lines) + "\n" if lines else ""


def note_lines(measured):
    """What whoever measured wanted to be known."""
    notes = dict.fromkeys(result.get("note") for _, result in measured)
    return "".join(f"\n**{note}**\n" for note in notes if note)


def plot(name, measured, path):
    """The plot of a group."""
    if name == "memory":
        plots.memory(measured[0][1], path)
    else:
        plots.times(measured, path)


def section(name, measured, folder):
    """One group: what it is, its table, and its plot if it has one."""
    group = GROUPS[name]
    facts = "" if name in ("large", "memory", "cast", "spread") else tree_line(measured)
    parts = [f"## {group.title}\n\n{facts}{group.text}\n"]
    if name == "memory":
        parts.append(memory_table(measured))
    elif name in FIGURED:
        parts.append(figures_table(measured))
    elif name != "often":
        parts += [times_table(measured), mixed_line(measured), delay_line(measured)]
        parts += [cpu_table(measured), wire_table(measured)]
    parts += [trouble_lines(measured), note_lines(measured)]
    if name in PLOTTED:
        plot(name, measured, folder / f"{name}.svg")
        parts.append(f"![{group.title}](bench/{name}.svg)\n")
    return "\n".join(part for part in parts if part)


def commands():
    """The command behind each name."""
    rows = [[tool.label, "`" + tool.shown("N").replace("|", "\\|") + "`"] for tool in TOOLS.values()]
    lines = ["| name | command |", "| :-- | :-- |", *("| " + " | ".join(row) + " |" for row in rows)]
    return COMMANDS_HEAD + "\n".join(lines) + "\n"


def write(results, docs):
    """Writes the page and the plots."""
    folder = docs / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    measured = [(case, results["cases"][name]) for name, case in CASES.items() if name in results["cases"]]
    about = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    where = {1: "one core", 2: "two cores"}.get(about["cores"], f"{about['cores']} cores")
    small = "\n**Small trees (`--quick`): these figures prove that the benchmark works, nothing else.**\n"
    page = [INTRO.format(cores=where, memory=about["memory_gib"], kernel=about["kernel"], versions=versions)]
    page += [small] if results["quick"] else []
    page += [f"## Targets\n\n{summary(measured)}"]
    for name in GROUPS:
        members = [(case, result) for case, result in measured if case.group == name]
        page += [section(name, members, folder)] if members else []
    page += [HOW, commands(), REPRODUCE]
    (docs / "bench.md").write_text("\n".join(page))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: report.py RESULTS.json DOCS")
    write(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
    print("wrote", Path(sys.argv[2]) / "bench.md")
