"""Selections of the race: conjunctions of ranges over one to six attributes, of a wanted selectivity, and points by key.

Ranges of an attribute are of integers: of a date the days, of a decimal the hundredths. An attribute has about as many
rows for each of its values, so the share of a conjunction is the product of those of its ranges.
"""

import dataclasses
import datetime
import math
import random

SHARES = [0.00001, 0.0001, 0.001, 0.01, 0.1, 0.5, 1.0]
ATTRIBUTES_MAX = 6
POINTS = 200
SEED = 7
FIRST_DAY = datetime.date(1992, 1, 2)
# Greatest factor between a wanted share and the one that whole values make.
OFF_MAX = 2.0


@dataclasses.dataclass(frozen=True)
class Attribute:
    """Column with the integers from `first` on; `kind` says what they stand for."""

    name: str
    first: int
    count: int
    kind: str = "integer"

    def literal(self, number):
        if self.kind == "date":
            return f"DATE '{FIRST_DAY + datetime.timedelta(days=number)}'"
        return f"{number / 100:.2f}" if self.kind == "hundredths" else str(number)


@dataclasses.dataclass(frozen=True)
class Selection:
    """Sum of a column over the rows within ranges, or over the rows with some keys."""

    table: str
    summed: str
    ranges: tuple = ()
    share: float = 1.0
    keys: tuple = ()

    def sql(self):
        if self.keys:
            condition = f"id IN ({', '.join(map(str, self.keys))})"
        else:
            condition = " AND ".join(
                f"{of.name} BETWEEN {of.literal(low)} AND {of.literal(high)}" for of, low, high in self.ranges
            )
        return f"SELECT count(*) AS rows, sum({self.summed}) AS total FROM {self.table} WHERE {condition}"


def attributes(table, scale):
    """Attributes of a table in the order in which conditions are put on them."""
    if table == "uniform":
        return [Attribute(f"a{number}", 0, 100) for number in range(ATTRIBUTES_MAX)]
    return [
        Attribute("l_shipdate", 0, 2526, "date"),
        Attribute("l_discount", 0, 11, "hundredths"),
        Attribute("l_quantity", 1, 50),
        Attribute("l_suppkey", 1, max(1, int(10_000 * scale))),
        Attribute("l_tax", 0, 9, "hundredths"),
        Attribute("l_partkey", 1, max(1, int(200_000 * scale))),
    ]


def widths(counts, share):
    """Number of values of each range, so that their share is about the wanted one; none if values are too coarse."""
    each = share ** (1 / len(counts))
    found = [min(count, max(1, round(each * count))) for count in counts]
    finest = max(range(len(counts)), key=lambda at: counts[at])
    others = math.prod(found[at] / counts[at] for at in range(len(counts)) if at != finest)
    found[finest] = min(counts[finest], max(1, round(share / others * counts[finest])))
    made = math.prod(width / count for width, count in zip(found, counts))
    return found if max(made / share, share / made) <= OFF_MAX else None


def selections(scale, rows):
    """Selections by their names, `u3 0.1%` for three attributes of the uniform tuples; the same ones in each process."""
    drawn, named = random.Random(SEED), {}
    for table, letter, summed in [("uniform", "u", "value"), ("lineitem", "l", "l_extendedprice")]:
        all_attributes = attributes(table, scale)
        for number in range(1, ATTRIBUTES_MAX + 1):
            used = all_attributes[:number]
            for share in SHARES:
                found = widths([of.count for of in used], share)
                if found is None:
                    continue
                lows = [of.first + drawn.randint(0, of.count - width) for of, width in zip(used, found)]
                ranges = tuple((of, low, low + width - 1) for of, low, width in zip(used, lows, found))
                named[f"{letter}{number} {100 * share:g}%"] = Selection(table, summed, ranges, share)
    keys = tuple(sorted(drawn.randrange(rows) for _ in range(POINTS)))
    named["points"] = Selection("uniform", "value", keys=keys)
    return named
