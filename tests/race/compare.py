"""Comparison of the results of two databases, value by value.

Values travel as JSON: doubles as numbers, all others as text. Decimals are equal if their values are, whatever their scale;
quotients, which have QUOTIENT_DIGITS or more behind the point, have as many as a database chooses, and are equal if they
differ by less than one in the last digit of the shorter. A double equals what is within TOLERANCE of it, and a decimal of which it differs by less than one in the last digit: an
average is a double in one database and a decimal in another. Rows that ORDER BY does not tell apart may come in any order.
"""

import decimal
import math
import re

TOLERANCE = 1e-9
QUOTIENT_DIGITS = 6
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def plain(value):
    """Value as it travels; NULL is empty."""
    if value is None:
        return ""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return value if isinstance(value, float) else str(value)


def exact(value):
    """Text that is the same for equal values that are no doubles."""
    if isinstance(value, str) and "." in value and NUMBER.fullmatch(value):
        value = value.rstrip("0").rstrip(".")
    return value


def digits(value):
    """Digits behind the point of a decimal."""
    return len(value.partition(".")[2]) if NUMBER.fullmatch(value) else 0


def equal_quotients(value, other):
    """Returns true if two decimals are the same quotient with another number of digits."""
    shorter, longer = sorted([digits(value), digits(other)])
    if shorter == longer or shorter < QUOTIENT_DIGITS:
        return False
    last_digit = decimal.Decimal(1).scaleb(-shorter)
    return abs(decimal.Decimal(value) - decimal.Decimal(other)) < last_digit


def equal(value, other):
    if isinstance(other, float) and not isinstance(value, float):
        value, other = other, value
    if not isinstance(value, float):
        both = isinstance(value, str) and isinstance(other, str)
        return exact(value) == exact(other) or both and equal_quotients(value, other)
    text = str(other)
    if not isinstance(other, float) and not NUMBER.fullmatch(text):
        return False
    last_digit = 10.0 ** -len(text.partition(".")[2]) if isinstance(other, str) and "." in text else TOLERANCE
    return math.isclose(value, float(other), rel_tol=TOLERANCE, abs_tol=last_digit)


def all_equal(values, others):
    return len(values) == len(others) and all(equal(value, other) for value, other in zip(values, others))


def sorted_rows(rows, doubles):
    """Rows in an order of their own: by what is exact, then by what is a double in one of the results, roughly."""
    def key(row):
        others = [exact(value) for at, value in enumerate(row) if at not in doubles]
        return others, [f"{float(row[at]):.5e}" if row[at] != "" else "" for at in doubles]

    return sorted(rows, key=key)


def difference(name, sql, columns, rows, others):
    """Describes the first difference of two results; none if there is none."""
    if len(rows) != len(others):
        return f"q{name}: {len(rows)} rows, not {len(others)}"
    ordered = re.search(r"\bORDER BY ([^()]*?)(\bLIMIT\b[^()]*)?$", sql, re.DOTALL | re.IGNORECASE)
    names = [part.split()[0] for part in ordered.group(1).split(",")] if ordered else []
    keys = [columns.index(key) for key in names]
    for row, other in zip(rows, others):
        if not all_equal([row[key] for key in keys], [other[key] for key in keys]):
            return f"q{name}: {row} where the other has {other}"
    values = [row for of in (rows, others) for row in of]
    doubles = sorted({at for row in values for at, value in enumerate(row) if isinstance(value, float)})
    for row, other in zip(sorted_rows(rows, doubles), sorted_rows(others, doubles)):
        if not all_equal(row, other):
            return f"q{name}: {row}, not {other}"
    return None
