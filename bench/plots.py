"""The plots: light SVG with one colour for driftless and greys for all others."""

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (the back end must be chosen first)

import stats  # noqa: E402
from peers import FLOOR, FORMS, TOOLS  # noqa: E402

OWN, TEXT, GRID = "#0b7285", "#343a40", "#dee2e6"
GREYS = ["#495057", "#6c757d", "#868e96", "#9aa1a8", "#adb5bd", "#ced4da"]

plt.rcParams.update({
    "svg.hashsalt": "driftless", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
    "text.color": TEXT, "axes.labelcolor": TEXT, "xtick.color": TEXT, "ytick.color": TEXT,
    "axes.edgecolor": GRID, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
})


def colours(tools):
    """A colour for each tool."""
    greys = iter(GREYS)
    return {tool: OWN if tool in FORMS else "#e9b872" if tool == FLOOR else next(greys)
            for tool in tools}


def finish(figure, path):
    """Saves a plot so that the same figures give the same file."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")
    plt.close(figure)


def seconds_text(value):
    """A short label for a bar."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def bars(axes, rows, names, colour):
    """Groups of horizontal bars; `rows` is a list of (title, {name: value})."""
    height, ticks, at = 0.8, [], 0.0
    for title, values in rows:
        present = [name for name in names if values.get(name) is not None]
        ticks.append((at + (len(present) - 1) / 2, title))
        for name in present:
            axes.barh(at, values[name], height, color=colour[name])
            axes.annotate(f" {seconds_text(values[name])}", (values[name], at), va="center", fontsize=7)
            at += 1
        at += 0.8
    axes.set_yticks([tick for tick, _ in ticks], [title for _, title in ticks])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    return at


def legend(axes, names, labels, colour):
    """A legend above the plot."""
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour[name]) for name in names]
    axes.legend(handles, labels, ncol=4, loc="lower center", bbox_to_anchor=(0.4, 1.0), frameon=False, fontsize=8)


def times(measured, path):
    """Seconds of every tool, one group of bars for each case."""
    tools = [tool for tool in TOOLS if any(stats.seconds(result, tool) for _, result in measured)]
    rows = [(case.title, {tool: stats.seconds(result, tool) for tool in tools}) for case, result in measured]
    count = sum(value is not None for _, values in rows for value in values.values())
    figure, axes = plt.subplots(figsize=(8, 1.3 + 0.19 * count + 0.16 * len(rows)))
    colour = colours(tools)
    bars(axes, rows, tools, colour)
    axes.set_xlabel("seconds (less is better)")
    legend(axes, tools, [TOOLS[tool].label for tool in tools], colour)
    finish(figure, path)


def memory(result, path):
    """Peaks over few and many entries."""
    tools = stats_tools(result)
    rows = []
    for part, words in (("first", "first copy"), ("same", "nothing changed")):
        for size, tree in (("few", "small tree"), ("many", "large tree")):
            values = {tool: stats.peak_mib(result, tool, f"{size}-{part}") for tool in tools}
            rows.append((f"{words}, {tree}", values))
    figure, axes = plt.subplots(figsize=(8, 3.2))
    colour = colours(tools)
    bars(axes, rows, tools, colour)
    axes.set_xlabel("peak MiB (less is better)")
    legend(axes, tools, [TOOLS[tool].label for tool in tools], colour)
    finish(figure, path)


def stats_tools(result):
    """The tools of a case that has parts only."""
    ran = {run["tool"] for run in result["runs"]}
    return [tool for tool in result["tools"] if tool in ran]
