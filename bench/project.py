"""A project in C that `make` builds: some hundred files, each with a header of its own and those of the system."""

SOURCE = """\
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "part{number}.h"

struct entry {{ char name[40]; long count; struct entry *next; }};
static struct entry *all;

{functions}
int part{number}(int wanted)
{{
    long sum = 0;
    for (struct entry *at = all; at; at = at->next) sum += at->count;
    return (int)(sum + step{number}_0(wanted));
}}
"""
FUNCTION = """\
static int step{number}_{step}(int wanted)
{{
    char text[80];
    struct entry *fresh = calloc(1, sizeof *fresh);
    if (!fresh) return -errno;
    snprintf(text, sizeof text, "%d of {number} and %d", wanted, {step});
    strncpy(fresh->name, text, sizeof fresh->name - 1);
    for (int i = 0; i < wanted; i++) fresh->count += (long)strlen(text) * i % ({step} + 7);
    fresh->next = all;
    all = fresh;
    return wanted > 1 ? {deeper} : (int)fresh->count;
}}
"""
FUNCTIONS = 12
MAKEFILE = """\
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
program: library.a main.o
\t$(CC) -o $@ main.o library.a
library.a: $(filter-out main.o,$(OBJECTS))
\t$(AR) rcs $@ $^
%.o: %.c
\t$(CC) -O1 -MMD -c -o $@ $<
"""


def source(number):
    """The text of one file."""
    functions = []
    # One calls the next, which stands above it.
    for step in reversed(range(FUNCTIONS)):
        deeper = f"step{number}_{step + 1}(wanted - 1)" if step + 1 < FUNCTIONS else "0"
        functions.append(FUNCTION.format(number=number, step=step, deeper=deeper))
    return SOURCE.format(number=number, functions="\n".join(functions))


def plant(folder, files):
    """Writes a project of so many files into a new folder."""
    folder.mkdir()
    for number in range(files):
        (folder / f"part{number}.c").write_text(source(number))
        (folder / f"part{number}.h").write_text(f"int part{number}(int wanted);\n")
    names = range(files)
    declared = "".join(f'#include "part{number}.h"\n' for number in names)
    calls = " + ".join(f"part{number}(2)" for number in names)
    (folder / "main.c").write_text(f"{declared}int main(void) {{ return ({calls}) < 0; }}\n")
    (folder / "Makefile").write_text(MAKEFILE)
