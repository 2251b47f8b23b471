"""Random tables and random queries over them, in SQL that PostgreSQL's and DuckDB's dialects share.

- A query means one thing only: LIMIT stands behind an ORDER BY of all columns, row_number() too, divisors are not zero,
  scalar subqueries aggregate, and arithmetic stays far from any overflow.
- DOUBLEs are multiples of a half, so that their sums are exact.
"""

from tree import Node, joined, optional

INT, BIG, DEC, DBL, TEXT, BOOL, DATE = "int", "bigint", "decimal", "double", "text", "boolean", "date"
TYPES = [INT, BIG, DEC, DBL, TEXT, BOOL, DATE]
NUMBERS = [INT, BIG, DEC, DBL]
# Names of columns are the same in all tables, for USING.
COLUMNS = [("a", INT), ("b", INT), ("c", TEXT), ("d", DEC), ("e", BOOL), ("f", BIG), ("g", DBL), ("h", DATE)]
SQL_TYPES = {INT: "INT", BIG: "BIGINT", DEC: "DECIMAL(8,2)", DBL: "DOUBLE PRECISION", TEXT: "VARCHAR",
             BOOL: "BOOLEAN", DATE: "DATE"}
TEXTS = ["", "a", "b", "ab", "B", "a%", "ba"]
DATES = ["2024-01-01", "2024-02-29", "2023-12-31", "2024-01-02"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]


def literal(rng, of):
    """The text of a value of a type."""
    if of in (INT, BIG):
        return str(rng.randint(-1, 4))
    if of == DEC:
        return rng.choice(["0.00", "1.50", "-2.25", "3.00", "0.75", "10.10"])
    if of == DBL:
        return f"CAST({rng.randint(-2, 5) / 2} AS DOUBLE PRECISION)"
    if of == TEXT:
        return f"'{rng.choice(TEXTS)}'"
    if of == BOOL:
        return rng.choice(["TRUE", "FALSE"])
    return f"DATE '{rng.choice(DATES)}'"


def null(of):
    return f"CAST(NULL AS {SQL_TYPES[of]})"


def tables(rng):
    """Statements that make a few small tables, and the columns that each has."""
    made, statements = {}, []
    for name in ["t1", "t2", "t3"]:
        columns = COLUMNS[:rng.randint(3, len(COLUMNS))]
        made[name] = columns
        # A key, for plans that look rows up by one.
        types = ", ".join(f"{column} {SQL_TYPES[of]}" for column, of in columns)
        statements.append(f"CREATE TABLE {name} (k INT PRIMARY KEY, {types})")
        rows = rng.choice([0, 3, 6, 9, 12, 12]) if name != "t1" else rng.randint(6, 14)
        nulls = rng.choice([0, 0.2, 0.5])
        for key in range(rows):
            values = [null(of) if rng.random() < nulls else literal(rng, of) for _, of in columns]
            statements.append(f"INSERT INTO {name} VALUES ({key}, {', '.join(values)})")
        if rng.random() < 0.4:
            statements.append(f"CREATE INDEX {name}_a ON {name} (a)")
    return statements, made


class Scope:
    """The columns that names may mean, and those of the queries around."""

    def __init__(self, columns, outer=None):
        self.columns = columns
        self.outer = outer

    def of(self, wanted):
        return [name for name, of in self.columns if of == wanted]

    def own(self):
        return Scope(self.columns)

    def seen_from_within(self):
        """What a subquery may name: not the columns that USING merged, whose names it may have itself."""
        # Nor those of a query two levels up: we refuse some of these (docs/design/0040).
        return Scope([(name, of) for name, of in self.columns if "." in name])


class Generator:
    """Queries over tables, from a source of randomness."""

    def __init__(self, rng, tables):
        self.rng = rng
        self.tables = {name: [("k", INT)] + columns for name, columns in tables.items()}
        self.aliases = 0

    def chance(self, probability):
        return self.rng.random() < probability

    def alias(self):
        self.aliases += 1
        return f"r{self.aliases}"

    # Values

    def value(self, of, scope, depth):
        """An expression of a type."""
        rng = self.rng
        if depth <= 0 or self.chance(0.3):
            return self.leaf(of, scope)
        kind = rng.random()
        if kind < 0.15:
            return self.case(of, scope, depth - 1)
        if kind < 0.25:
            first, second = (self.value(of, scope, depth - 1) for _ in range(2))
            function = rng.choice(["COALESCE", "NULLIF", "COALESCE"] + ["GREATEST", "LEAST"] * (of != BOOL))
            return Node(of, f"{function}(", first, ", ", second, ")")
        if kind < 0.33:
            return self.scalar(of, scope, depth - 1)
        if of == BOOL:
            return self.condition(scope, depth - 1)
        if of == TEXT:
            inner = self.value(TEXT, scope, depth - 1)
            if self.chance(0.5):
                return Node(TEXT, f"{rng.choice(['upper', 'lower'])}(", inner, ")")
            return Node(TEXT, "(", inner, " || ", self.leaf(TEXT, scope), ")")
        if of == DATE:
            return self.leaf(of, scope)
        if of == INT and self.chance(0.1):
            return Node(INT, "CAST(length(", self.value(TEXT, scope, depth - 1), ") AS INT)")
        if of != INT and self.chance(0.3):
            return Node(of, "CAST(", self.value(INT, scope, depth - 1), f" AS {SQL_TYPES[of]})")
        if self.chance(0.15):
            return Node(of, "abs(", self.value(of, scope, depth - 1), ")")
        if self.chance(0.15):
            return Node(of, "(- ", self.value(of, scope, depth - 1), ")")
        # Factors are leaves, so that products stay small; all decimals keep two digits.
        if of != DEC and self.chance(0.3):
            return Node(of, "(", self.leaf(of, scope), " * ", self.leaf(of, scope), ")")
        if of in (INT, BIG) and self.chance(0.2):
            operator = rng.choice(["/", "%"])
            divisor = self.leaf(of, scope)
            return Node(of, "(", self.value(of, scope, depth - 1), f" {operator} NULLIF(", divisor, ", 0))")
        sides = [self.value(of, scope, depth - 1), self.value(of, scope, depth - 1)]
        return Node(of, "(", sides[0], f" {rng.choice(['+', '-'])} ", sides[1], ")")

    def leaf(self, of, scope):
        """A column or a literal."""
        if scope.outer and self.chance(0.25):
            return self.leaf(of, scope.outer.seen_from_within())
        names = scope.of(of)
        if names and self.chance(0.8):
            return Node(of, self.rng.choice(names))
        return Node(of, null(of) if self.chance(0.12) else literal(self.rng, of))

    def case(self, of, scope, depth):
        parts = ["CASE"]
        if self.chance(0.2):
            parts.extend([" ", self.value(INT, scope, 1)])
            for _ in range(self.rng.randint(1, 2)):
                parts.extend([" WHEN ", self.leaf(INT, scope), " THEN ", self.value(of, scope, depth)])
        else:
            for _ in range(self.rng.randint(1, 2)):
                parts.extend([" WHEN ", self.condition(scope, depth), " THEN ", self.value(of, scope, depth)])
        if self.chance(0.7):
            parts.append(optional(" ELSE ", self.value(of, scope, depth)))
        return Node(of, *parts, " END")

    def scalar(self, of, scope, depth):
        """A scalar subquery; an aggregate gives one row."""
        relations, inner = self.relations(scope, min(depth, 1), most=1)
        function = "bool_or" if of == BOOL else self.rng.choice(["min", "max"])
        if of in NUMBERS and of not in (INT,) and self.chance(0.3):
            count = Node("item", "CAST(count(*) AS ", SQL_TYPES[of], ")")
            return Node(of, "(SELECT ", count, " FROM ", relations, self.where(inner, depth), ")",
                        smaller=[null(of)])
        argument = self.value(of, inner.own(), min(depth, 1))
        return Node(of, f"(SELECT {function}(", argument, ") FROM ", relations, self.where(inner, depth), ")",
                    smaller=[null(of)])

    # Conditions

    def condition(self, scope, depth):
        rng = self.rng
        if depth > 0 and self.chance(0.5):
            kind = rng.random()
            if kind < 0.3:
                operator = rng.choice([" AND ", " OR ", " OR "])
                return Node(BOOL, "(", self.condition(scope, depth - 1), operator,
                            self.condition(scope, depth - 1), ")")
            if kind < 0.45:
                return Node(BOOL, "(NOT ", self.condition(scope, depth - 1), ")")
            if kind < 0.5:
                test = rng.choice(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"])
                return Node(BOOL, "(", self.condition(scope, depth - 1), f" IS {test})")
            if kind < 0.57:
                return self.case(BOOL, scope, depth - 1)
            return self.subquery_condition(scope, depth - 1)
        of = rng.choice([INT, INT, INT] + TYPES)
        inner = self.value(of, scope, min(depth, 1))
        kind = rng.random()
        if kind < 0.45:
            other = self.value(of, scope, min(depth, 1))
            return Node(BOOL, "(", inner, f" {rng.choice(COMPARISONS)} ", other, ")")
        if kind < 0.6:
            return Node(BOOL, "(", inner, rng.choice([" IS NULL)", " IS NOT NULL)"]))
        # DuckDB 1.4 is wrong about NULLs that IS DISTINCT FROM compares with those of a query around.
        if kind < 0.68 and not scope.outer:
            test = rng.choice(["IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
            return Node(BOOL, "(", inner, f" {test} ", self.leaf(of, scope), ")")
        if kind < 0.83:
            values = [self.leaf(of, scope) for _ in range(rng.randint(1, 3))]
            return Node(BOOL, "(", inner, rng.choice([" IN (", " NOT IN ("]), *joined(", ", values), "))")
        if kind < 0.9 and of != BOOL:
            word = rng.choice(["BETWEEN", "NOT BETWEEN"])
            return Node(BOOL, "(", inner, f" {word} ", self.leaf(of, scope), " AND ", self.leaf(of, scope), ")")
        if kind < 0.95 and of == TEXT:
            pattern = rng.choice(["a%", "%b", "_", "%", "a"])
            return Node(BOOL, "(", inner, rng.choice([" LIKE ", " NOT LIKE "]), f"'{pattern}')")
        return self.leaf(BOOL, scope)

    def subquery_condition(self, scope, depth):
        rng = self.rng
        kind = rng.random()
        if kind < 0.3:
            relations, inner = self.relations(scope, depth, most=1)
            word = rng.choice(["EXISTS", "NOT EXISTS"])
            return Node(BOOL, f"({word} (SELECT 1 FROM ", relations, self.where(inner, depth), "))",
                        smaller=["TRUE", "FALSE"])
        of = rng.choice([INT, INT, INT, INT] + TYPES)
        value = self.value(of, scope, min(depth, 1))
        rows = self.select([of], scope, min(depth, 1), ordered=self.chance(0.1))
        if kind < 0.85 or of == BOOL:
            word = rng.choice(["IN", "NOT IN", "NOT IN"])
        else:
            word = f"{rng.choice(COMPARISONS)} {rng.choice(['ANY', 'ALL'])}"
        return Node(BOOL, "(", value, f" {word} (", rows, "))", smaller=["TRUE", "FALSE", null(BOOL)])

    def where(self, scope, depth):
        if self.chance(0.45):
            return Node("clause")
        return optional(" WHERE ", self.condition(scope, depth))

    # Relations

    def relation(self, outer, depth):
        """One relation, its alias and columns."""
        alias = self.alias()
        if depth > 0 and self.chance(0.2):
            types = [self.rng.choice(TYPES) for _ in range(self.rng.randint(1, 3))]
            rows = self.select(types, None, depth - 1, names=True, ordered=self.chance(0.15))
            columns = [(f"x{at}", of) for at, of in enumerate(types)]
            return Node("relation", "(", rows, f") AS {alias}"), alias, columns
        name = self.rng.choice(list(self.tables))
        return Node("relation", f"{name} AS {alias}"), alias, self.tables[name]

    def relations(self, outer, depth, most=3):
        """Joined relations, and the scope that they make."""
        rng = self.rng
        node, alias, columns = self.relation(outer, depth)
        seen = [(f"{alias}.{name}", of) for name, of in columns]
        common, merged = set(columns), None
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2][:3 + most])):
            right, alias, columns = self.relation(outer, depth)
            own = [(f"{alias}.{name}", of) for name, of in columns]
            kind = rng.choice(JOINS)
            common &= set(columns)
            using = sorted(column for column in common if merged in (None, column))
            if using and (merged or len(seen) == len(set(seen)) and self.chance(0.35)) and merged != "":
                merged = rng.choice(using)
                node = Node("relations", node, f" {kind} ", right, f" USING ({merged[0]})")
            elif self.chance(0.12):
                merged = ""
                node = Node("relations", node, " CROSS JOIN ", right)
            else:
                merged = ""
                condition = self.join_condition(Scope(seen), Scope(own), Scope(seen + own, outer), kind)
                node = Node("relations", node, f" {kind} ", right, " ON ", condition)
            seen = seen + own
        if merged:
            seen = seen + [merged, merged]
        return node, Scope(seen, outer)

    def join_condition(self, left, right, both, kind):
        of = self.rng.choice([of for _, of in right.columns])
        if left.of(of) and self.chance(0.75):
            equal = Node(BOOL, self.rng.choice(left.of(of)), " = ", self.rng.choice(right.of(of)))
            if self.chance(0.6):
                return equal
            return Node(BOOL, equal, optional(" AND ", self.on(both, kind)))
        return self.on(both, kind)

    def on(self, both, kind):
        """A condition of a join. DuckDB has no subqueries in those of outer joins."""
        depth = 0 if kind != "JOIN" and self.chance(0.97) else 1
        return self.condition(Scope(both.columns), depth)

    # Queries

    def query(self):
        """A whole query, and its ORDER BY if it has one."""
        types = [self.rng.choice(TYPES) for _ in range(self.rng.randint(1, 4))]
        ordered = self.chance(0.35)
        prefix = []
        if self.chance(0.1):
            name, inner = "w1", [self.rng.choice(TYPES) for _ in range(2)]
            prefix = [f"WITH {name} AS (", self.select(inner, None, 1, names=True), ") "]
            self.tables[name] = [(f"x{at}", of) for at, of in enumerate(inner)]
        body = self.select(types, None, 3, ordered=ordered)
        order = next((part for part in body.parts if isinstance(part, str) and " ORDER BY " in part), "")
        return Node("whole", *prefix, body), order if ordered else ""

    def select(self, types, outer, depth, names=False, ordered=False):
        """A SELECT of these types, perhaps a set operation."""
        body = self.simple(types, outer, depth, names)
        if depth > 0 and self.chance(0.12):
            operator = self.rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"])
            other = self.simple(types, outer, depth - 1, names)
            body = Node("query", body, f" {operator} ", other)
        if not ordered:
            return body
        keys = []
        for at in range(len(types)):
            direction = self.rng.choice(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
            keys.append(f"{at + 1}{direction}")
        limit = optional(f" LIMIT {self.rng.randint(0, 6)}") if self.chance(0.6) else Node("clause")
        offset = optional(f" OFFSET {self.rng.randint(0, 3)}") if self.chance(0.2) else Node("clause")
        return Node("query", body, f" ORDER BY {', '.join(keys)}", limit, offset)

    def simple(self, types, outer, depth, names):
        relations, scope = self.relations(outer, depth)
        kind = self.rng.random()
        if kind < 0.3:
            return self.grouped(types, relations, scope, depth, names)
        items = [self.item(of, scope, depth, kind < 0.45) for of in types]
        distinct = optional("DISTINCT ") if self.chance(0.15) else Node("clause")
        return Node("query", "SELECT ", distinct, *self.listed(items, names), " FROM ", relations,
                    self.where(scope, depth))

    def listed(self, items, names):
        return joined(", ", [Node("item", item, f" AS x{at}" if names else "") for at, item in enumerate(items)])

    def item(self, of, scope, depth, windows):
        if windows and of in (BIG, INT) and self.chance(0.6):
            return self.window(of, scope)
        return self.value(of, scope, min(depth, 2))

    def window(self, of, scope):
        rng = self.rng
        names = [name for name, _ in scope.columns]
        partition = f"PARTITION BY {rng.choice(names)} " if self.chance(0.5) else ""
        everything = ", ".join(names)
        some = rng.choice(names) + rng.choice(["", " DESC"])
        if of == INT:
            argument = rng.choice(scope.of(INT) or ["1"])
            function = rng.choice(["lag", "lead", "first_value", "last_value", "min", "max"])
            frame = rng.choice(["", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"])
            frame = "" if function in ("lag", "lead") else frame
            return Node(INT, f"{function}({argument}) OVER ({partition}ORDER BY {everything}{frame})")
        function = rng.choice(["row_number()", "rank()", "dense_rank()", "count(*)", "ntile(3)", "sum"])
        if function in ("row_number()", "ntile(3)"):
            return Node(BIG, f"{function} OVER ({partition}ORDER BY {everything})")
        if function == "sum":
            argument = rng.choice(scope.of(INT) or ["1"])
            order = rng.choice([f"ORDER BY {some}", ""])
            return Node(BIG, f"sum({argument}) OVER ({partition}{order})")
        return Node(BIG, f"{function} OVER ({partition}ORDER BY {some})")

    def grouped(self, types, relations, scope, depth, names):
        rng = self.rng
        keys, items = [], []
        for of in types:
            if self.chance(0.4) and len(keys) < 2:
                key = self.value(of, scope, rng.choice([0, 0, 1]))
                if scope.of(of) and self.chance(0.7):
                    key = Node(of, rng.choice(scope.of(of)))
                keys.append(key)
                items.append(key)
            else:
                items.append(self.aggregate(of, scope, depth))
        grouping = Node("clause")
        if keys:
            positions = [str(items.index(key) + 1) for key in keys]
            grouping = Node("clause", " GROUP BY ", ", ".join(positions))
        having = Node("clause")
        if self.chance(0.3):
            kind = rng.choice([BIG, INT])
            comparison = Node(BOOL, self.aggregate(kind, scope, 1), f" {rng.choice(COMPARISONS)} ",
                              literal(rng, INT))
            having = optional(" HAVING ", comparison)
        return Node("query", "SELECT ", *self.listed(items, names), " FROM ", relations,
                    self.where(scope, depth), grouping, having)

    def aggregate(self, of, scope, depth):
        """An aggregate function. Not of a cast: two that differ in casts only have one name (docs/design/0040)."""
        for _ in range(9):
            found = self.any_aggregate(of, scope, depth)
            if "(CAST(" not in found.sql().removeprefix("CAST(") and "DISTINCT CAST(" not in found.sql():
                return found
        return Node(of, f"{'bool_or' if of == BOOL else 'max'}({(scope.of(of) or [null(of)])[0]})")

    def any_aggregate(self, of, scope, depth):
        # An aggregate of outer columns alone is one of the outer query.
        rng, scope = self.rng, scope.own()
        chosen = Node("clause")
        if self.chance(0.15):
            chosen = optional(" FILTER (WHERE ", self.condition(scope, 1), ")")
        if of == BOOL:
            function = rng.choice(["bool_and", "bool_or"])
            return Node(BOOL, f"{function}(", self.value(BOOL, scope, min(depth, 1)), ")", chosen)
        if of == BIG:
            if self.chance(0.3):
                return Node(BIG, "count(*)", chosen)
            distinct = rng.choice(["", "", "DISTINCT "])
            function = rng.choice(["count", "sum"])
            argument = self.value(INT if function == "sum" else rng.choice(TYPES), scope, min(depth, 2))
            return Node(BIG, f"{function}({distinct}", argument, ")", chosen)
        if of == DBL:
            distinct = rng.choice(["", "", "DISTINCT "])
            inner = rng.choice([INT, DEC, DBL])
            function = rng.choice(["avg", "sum"]) if inner == DBL else "avg"
            argument = self.value(inner, scope, min(depth, 1))
            return Node(DBL, f"CAST({function}({distinct}", argument, ")", chosen, " AS DOUBLE PRECISION)")
        if of == DEC and self.chance(0.5):
            return Node(DEC, "CAST(sum(", rng.choice(["", "DISTINCT "]), self.value(DEC, scope, min(depth, 1)), ")", chosen,
                        f" AS {SQL_TYPES[DEC]})")
        function = rng.choice(["min", "max"])
        return Node(of, f"{function}(", self.value(of, scope, min(depth, 2)), ")", chosen)
