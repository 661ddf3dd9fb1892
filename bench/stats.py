"""Numbers from the recorded runs of one case: medians, ratios and peaks. Pure functions over the raw results."""

from statistics import median

from peers import DRIFTLESS, LINE, is_peer


def runs_of(result, tool, part=""):
    """The runs of one tool in one part of a case, in order."""
    return [run for run in result["runs"] if run["tool"] == tool and run["part"] == part]


def runs_of_any(result, tool):
    """The runs of one tool in all parts of a case."""
    return [run for run in result["runs"] if run["tool"] == tool]


def seconds(result, tool, part=""):
    """Median wall seconds of a tool, or None if it did not run."""
    walls = [run["wall"] for run in runs_of(result, tool, part)]
    return median(walls) if walls else None


def ratio(result, tool, reference):
    """Median of the per-round ratios of two tools, over the rounds in which both ran; None if there is none."""
    other = {run["round"]: run["wall"] for run in runs_of(result, reference)}
    ratios = [run["wall"] / other[run["round"]] for run in runs_of(result, tool) if run["round"] in other]
    return median(ratios) if ratios else None


def peak_mib(result, tool, part=""):
    """Largest peak memory of a tool in MiB, or None."""
    peaks = [run["peak_kib"] / 1024 for run in runs_of(result, tool, part)]
    return max(peaks) if peaks else None


def tools_of(result):
    """The tools that ran, in the order in which the case lists them."""
    return [tool for tool in result["tools"] if runs_of(result, tool)]


def contender(result):
    """Which form of driftless this case is about."""
    return result["tools"][0]


def good_peers(result):
    """Peers that ran; one that ended with an error is listed in the tables and still counts as an opponent."""
    return [tool for tool in tools_of(result) if is_peer(tool)]


def worst_ratio(result):
    """The largest ratio of driftless to a peer, and that peer: below one, driftless is ahead of all."""
    tool = contender(result)
    ratios = [(ratio(result, tool, peer), peer) for peer in good_peers(result)]
    ratios = [pair for pair in ratios if pair[0] is not None]
    return max(ratios) if ratios else (None, None)


def failures(result, tool):
    """Exit codes other than 0 of a tool."""
    return [run["exit"] for run in result["runs"] if run["tool"] == tool and run["exit"] != 0]


def mixed_bound(result):
    """Seconds that large files at their own rate plus small files at theirs would take."""
    one, small = seconds(result, DRIFTLESS, "one"), seconds(result, DRIFTLESS, "small")
    return None if one is None or small is None else 2 * one + small


def line_bound(result):
    """Seconds that the bytes of a tree take through its line, and a copy of it on one host, one after the other."""
    line, near = seconds(result, LINE, "line"), seconds(result, DRIFTLESS, "near")
    return None if line is None or near is None else line + near


def wire_bytes(result, tool):
    """Bytes that crossed the wire in the run in which they were counted, or None if there was none."""
    counted = [run["wire_bytes"] for run in runs_of(result, tool, "wire") if "wire_bytes" in run]
    return counted[-1] if counted else None


def cpu_seconds(result, tool):
    """Median of user and system seconds together, or None if the tool did not run."""
    used = [run["user"] + run["sys"] for run in runs_of(result, tool)]
    return median(used) if used else None
