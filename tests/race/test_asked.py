"""Tests of the verdicts on asked figures: python3 tests/race/test_asked.py"""

import pathlib
import tempfile
import unittest

import asked

ENTRY = '[[miss]]\nrace = "race-ssb"\nname = "time"\nreason = "the scan"\nlast_measured = 0.6\n'


class Verdicts(unittest.TestCase):
    def verdict(self, measured, known=None, is_judged=True):
        return asked.AskedFigure("time", measured, 0.5).verdict(known, is_judged)

    def test_a_figure_is_judged_by_its_bound_and_its_tolerance(self):
        self.assertEqual(self.verdict(0.5), "met")
        self.assertEqual(self.verdict(0.52), "met within tolerance")
        self.assertEqual(self.verdict(0.53), asked.MISSED)
        self.assertEqual(self.verdict(float("nan")), asked.MISSED)

    def test_a_known_miss_does_not_fail_and_is_reported_when_it_is_met(self):
        self.assertEqual(self.verdict(0.6, "the scan"), "missed, known: the scan")
        self.assertEqual(self.verdict(0.5, "the scan"), "met; still listed as a known miss")

    def test_small_sizes_are_not_judged(self):
        self.assertEqual(self.verdict(0.6, is_judged=False), "not judged at small sizes")

    def test_a_miss_ends_the_line(self):
        line = asked.AskedFigure("time", 0.6, 0.5).line({}, True)
        self.assertEqual(line, "time: 0.60, asked at most 0.50 (tolerance 5%): MISSED")


class KnownMisses(unittest.TestCase):
    def known(self, text, race="race-ssb"):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            return asked.known_misses(race, ["time"], pathlib.Path(file.name))

    def test_entries_are_those_of_the_race(self):
        self.assertEqual(self.known(ENTRY), {"time": "the scan"})
        self.assertEqual(self.known(ENTRY, "race-tpch"), {})
        self.assertEqual(self.known(""), {})

    def test_wrong_entries_are_refused(self):
        for wrong, why in [
            (ENTRY.replace('"time"', '"speed"'), "no figure 'speed'"),
            (ENTRY + ENTRY, "listed twice"),
            (ENTRY.replace('reason = "the scan"\n', ""), "missing reason"),
            (ENTRY.replace("0.6", '"0.6"'), "missing last_measured"),
            (ENTRY + "since = 1\n", "missing since"),
        ]:
            with self.assertRaisesRegex(SystemExit, why):
                self.known(wrong)


if __name__ == "__main__":
    unittest.main()
