"""Runs a part of a module of CPython's own tests, and writes how each of its tests has ended, a line each.

    suite.py RESULTS MODULE NUMBER OF LEFT_OUT...

The parts are numbered from 0. Tests with one of the words that are left out in their names do not run.
"""

import sys
import unittest

from test import support


class Endings(unittest.TestResult):
    """What became of each test."""

    def __init__(self, file):
        super().__init__()
        self.file = file

    def tell(self, ending, test, told=""):
        self.file.write(f"{test.id()} {ending}\n")
        self.file.flush()
        if ending in ("failed", "broken"):
            sys.stderr.write(f"{test.id()}: {told}\n")

    def addSuccess(self, test):
        self.tell("passed", test)

    def addSkip(self, test, reason):
        self.tell("skipped", test)

    def addExpectedFailure(self, test, error):
        self.tell("failed as expected", test)

    def addUnexpectedSuccess(self, test):
        self.tell("passed unexpectedly", test)

    def addFailure(self, test, error):
        self.tell("failed", test, self._exc_info_to_string(error, test))

    def addError(self, test, error):
        self.tell("broken", test, self._exc_info_to_string(error, test))

    def addSubTest(self, test, part, error):
        if error:
            self.tell("failed", test, self._exc_info_to_string(error, test))


def each(suite):
    """The tests of a suite."""
    for test in suite:
        yield from each(test) if isinstance(test, unittest.TestSuite) else [test]


def main():
    # As regrtest does without -u: nothing that takes long, much room or a network.
    support.use_resources = []
    results, module, number, parts, *left_out = sys.argv[1:]
    tests = each(unittest.defaultTestLoader.loadTestsFromName(module))
    known = [test for test in tests if not any(word in test.id() for word in left_out)]
    chosen = unittest.TestSuite(known[int(number)::int(parts)])
    with open(results, "w") as file:
        chosen.run(Endings(file))


if __name__ == "__main__":
    main()
