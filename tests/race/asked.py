"""Asked figures of a race: a ratio, the most that it may be, and the verdict on it, as `lab run` has them.

A figure that is more than TOLERANCE above what is asked fails the race, unless known-misses.toml lists it.
"""

import dataclasses
import pathlib
import tomllib

MISSED = "MISSED"
# Noise of the measurement, as a part of what is asked.
TOLERANCE = 0.05
KNOWN_MISSES = pathlib.Path(__file__).resolve().parent / "known-misses.toml"
KEYS = {"race": str, "name": str, "reason": str, "last_measured": float}


@dataclasses.dataclass
class AskedFigure:
    name: str
    measured: float
    at_most: float

    def verdict(self, known_reason, is_judged):
        """Verdict on the figure; the reason is that of its entry in the list of known misses, none if there is none."""
        is_missed = not self.measured <= self.at_most * (1 + TOLERANCE)
        if not is_judged:
            return "not judged at small sizes"
        if known_reason is not None:
            return f"missed, known: {known_reason}" if is_missed else "met; still listed as a known miss"
        if is_missed:
            return MISSED
        return "met" if self.measured <= self.at_most else "met within tolerance"

    def line(self, known, is_judged):
        """The figure in words, with its verdict at the end."""
        verdict = self.verdict(known.get(self.name), is_judged)
        return f"{self.name}: {self.measured:.2f}, asked at most {self.at_most:.2f} (tolerance {TOLERANCE:.0%}): {verdict}"


def known_misses(race, names, path=KNOWN_MISSES):
    """Reasons of the known misses of a race, by their names. Fails on an entry that is incomplete, or names no figure of
    the race."""
    known = {}
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("miss", []), 1):
        wrong = [key for key in KEYS.keys() | entry.keys() if not isinstance(entry.get(key), KEYS.get(key, ()))]
        if wrong:
            raise SystemExit(f"{path}: entry {number}: wrong or missing {', '.join(sorted(wrong))}; keys are {', '.join(KEYS)}")
        if entry["race"] != race:
            continue
        if entry["name"] not in names:
            raise SystemExit(f"{path}: {race} has no figure '{entry['name']}': there are {', '.join(names)}")
        if entry["name"] in known:
            raise SystemExit(f"{path}: '{entry['name']}' of {race} is listed twice")
        known[entry["name"]] = entry["reason"]
    return known
