"""Reports of a race: a table of times and ratios in Markdown, and a picture of the hot times."""

import math
import statistics

# Told apart by people who do not see red and green, too (Paul Tol's bright scheme).
COLOURS = ["#4477aa", "#ee6677", "#ccbb44", "#aa3377", "#66ccee"]


def hot(query):
    return statistics.median([ms for of_round in query["hot_ms"] for ms in of_round])


def first(query):
    return statistics.median(query["first_ms"])


def sums_of_rounds(queries_of, names):
    """Sum over the queries of the medians of each round."""
    rounds = zip(*(queries_of[name]["hot_ms"] for name in names))
    return [sum(statistics.median(ms) for ms in of_round) for of_round in rounds]


def answered(times):
    """Queries that no database failed on."""
    every = list(times.values())
    return [name for name in every[0] if all(name in of for of in every)]


def table(race, times, processor):
    """Markdown table: hot times, those of ours as multiples of the time of the peer, first times."""
    databases = list(times)
    compared = [name for name in databases if name in race.ours] if race.beside in times else []
    header = [*(f"{database} hot" for database in databases), *(f"{name} / {race.beside}" for name in compared)]
    header += [f"{database} first" for database in databases]
    lines = ["| query | " + " | ".join(header) + " |", "| --- |" + " ---: |" * len(header)]

    def line(title, hots, firsts):
        number = lambda ms: "-" if ms is None else f"{ms:.1f}"
        beside = hots.get(race.beside)
        ratios = ["-" if hots[name] is None or not beside else f"{hots[name] / beside:.2f}" for name in compared]
        cells = [*(number(hots[name]) for name in databases), *ratios, *(number(firsts[name]) for name in databases)]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")

    of = lambda kind, name: {of: kind(times[of][name]) if name in times[of] else None for of in databases}
    for name in race.queries():
        line(name, of(hot, name), of(first, name))
    whole = {of: times[of] for of in databases if of not in race.partial}
    names = answered(whole) if whole else []
    sums = lambda kind: {
        of: sum(kind(times[of][name]) for name in names) if of in whole else None for of in databases
    }
    line("sum", sums(hot), sums(first))
    used = {of: statistics.median(processor[of]) for of in databases}
    line("processor", used, dict.fromkeys(databases))
    return "\n".join(lines) + "\n"


def rounds_beside(times, own, peer):
    """Times that one of ours takes for all queries of a round, in times of a peer."""
    names = answered({own: times[own], peer: times[peer]})
    pairs = zip(sums_of_rounds(times[own], names), sums_of_rounds(times[peer], names))
    return [ours / theirs for ours, theirs in pairs]


def worst_beside_best(times, own, peers):
    """Greatest ratio of the time of a query to that of the peer that is best at it, with the query and the peer."""
    ratios = []
    for name in times[own]:
        theirs = {peer: hot(times[peer][name]) for peer in peers if name in times[peer]}
        if theirs:
            best = min(theirs, key=theirs.get)
            ratios.append((hot(times[own][name]) / theirs[best], name, best))
    return max(ratios, default=None)


def ratios(race, times, processor):
    """Lines that say how many times as long as each of ours the others take, by the sums of each round."""
    lines = []
    for own in (name for name in times if name in race.ours):
        for peer in (name for name in times if name not in race.ours):
            names = answered({own: times[own], peer: times[peer]})
            if not names:
                continue
            of_rounds = [1 / ratio for ratio in rounds_beside(times, own, peer)]
            slower = [name for name in names if hot(times[own][name]) > hot(times[peer][name])]
            used = f", {statistics.median(processor[peer]) / statistics.median(processor[own]):.2f} times its processor time"
            lines.append(
                f"{peer}: {statistics.median(of_rounds):.2f} times the time of {own} (rounds "
                f"{min(of_rounds):.2f} to {max(of_rounds):.2f})"
                f"{used if set(times[own]) == set(times[peer]) else ''}; "
                f"{own} is slower in {', '.join(slower) or 'no query'}"
            )
        worst = worst_beside_best(times, own, [name for name in times if name not in race.ours])
        if worst:
            lines.append(f"{own} is worst beside the best peer in {worst[1]}: {worst[0]:.2f} times the time of {worst[2]}")
    return lines


def text(race, times, processor, loaded):
    lines = [f"{database}: loaded in {of['seconds']:.1f} s, {of['bytes'] / 1e6:.0f} MB" for database, of in loaded.items()]
    return "\n".join([table(race, times, processor), *ratios(race, times, processor), *race.judged(times), *lines]) + "\n"


def plot(race, times):
    """Bars of the hot times as SVG."""
    names, databases = list(race.queries()), list(times)
    greatest = max((hot(query) for of in times.values() for query in of.values()), default=1)
    step = 10 ** math.floor(math.log10(greatest))
    step = step / 2 if greatest / step < 4 else step
    bar, left, height = 14, 60, 260
    group = bar * len(databases) + 16
    width = left + group * len(names) + 20
    y = lambda ms: 40 + height * (1 - ms / greatest)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 80}" font-family="sans-serif" '
             'font-size="11">', f'<rect width="{width}" height="{height + 80}" fill="white"/>']
    for at in range(int(greatest / step) + 1):
        parts.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(at * step):.1f}" y2="{y(at * step):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(at * step) + 4:.1f}" text-anchor="end">{at * step:g} ms</text>')
    for at, name in enumerate(names):
        x = left + at * group + 8
        parts.append(f'<text x="{x + bar * len(databases) / 2}" y="{height + 56}" text-anchor="middle">{name}</text>')
        for number, database in enumerate(databases):
            if name not in times[database]:
                continue
            top = y(hot(times[database][name]))
            parts.append(f'<rect x="{x + number * bar}" y="{top:.1f}" width="{bar - 2}" height="{40 + height - top:.1f}" '
                         f'fill="{COLOURS[number % len(COLOURS)]}"/>')
    for number, database in enumerate(databases):
        x = left + 110 * number
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 16}" y="22">{database}</text>')
    return "\n".join([*parts, "</svg>\n"])
