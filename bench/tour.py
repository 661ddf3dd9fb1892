#!/usr/bin/python3
"""Runs a few commands as a user types them, and draws what the terminal shows: docs/tour.svg of the README.

    TMPDIR=/dev/shm bench/tour.py PROGRAM        PROGRAM is the driftless to run, in memory as in the benchmark
"""

import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
SETUP = """
mkdir -p data/run1 data/run2
head -c 60M /dev/urandom > data/run1/detector.h5
ln data/run1/detector.h5 data/run2/reference.h5
for n in $(seq 400); do echo "event $n" | tee data/run1/log$n.txt > data/run2/log$n.txt; done
"""
COMMANDS = [
    "driftless sync data copy",
    "echo more >> data/run1/log7.txt; chmod 640 data/run2/log8.txt; rm data/run2/log9.txt",
    "driftless sync --dry-run --delete --jobs 1 data copy",
    "driftless sync --delete --max-delete 5% data copy",
    "driftless verify data copy",
    "driftless audit --fraction 1% data copy",
]
COLUMN, ROW, MARGIN, BAR = 8.4, 20, 16, 30
STYLE = """
  .screen { fill: #f6f8fa; stroke: #d1d9e0; } text { font: 14px monospace; fill: #1f2328; white-space: pre; }
  .prompt { fill: #1a7f37; } .command { font-weight: bold; } .dot { fill: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    .screen { fill: #0d1117; stroke: #3d444d; } text { fill: #f0f6fc; } .prompt { fill: #3fb950; } .dot { fill: #3d444d; }
  }
"""


def run(program):
    """Returns the lines that the terminal shows, each with its kind: a command or its output."""
    with tempfile.TemporaryDirectory() as work:
        tools = Path(work, "bin")
        tools.mkdir()
        (tools / "driftless").symlink_to(Path(program).resolve())
        home = Path(work, "home")
        home.mkdir()
        env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        shell = {"shell": True, "cwd": home, "env": env, "text": True, "executable": "/bin/bash"}
        subprocess.run(SETUP, check=True, **shell)
        lines = []
        for command in COMMANDS:
            lines.append(("command", command))
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **shell)
            lines += [("output", line) for line in done.stdout.splitlines()]
        return lines


def draw(lines):
    """Returns the picture of a terminal with these lines."""
    width = max(len(text) + 2 * (kind == "command") for kind, text in lines) * COLUMN + 2 * MARGIN
    height = BAR + len(lines) * ROW + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img" '
        'aria-labelledby="t">',
        '<title id="t">A copy, a dry run, a delete, a verification and an audit at a terminal</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="screen" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>',
    ]
    parts += [f'<circle class="dot" cx="{MARGIN + 16 * at}" cy="15" r="5"/>' for at in range(3)]
    for at, (kind, text) in enumerate(lines):
        place = f'x="{MARGIN}" y="{BAR + at * ROW + 14}"'
        text = html.escape(text, quote=False)
        if kind == "command":
            text = f'<tspan class="prompt">$</tspan> <tspan class="command">{text}</tspan>'
        parts.append(f'<text xml:space="preserve" {place}>{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    (DOCS / "tour.svg").write_text(draw(run(sys.argv[1])))


if __name__ == "__main__":
    main()
