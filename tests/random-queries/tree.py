"""SQL as a tree, so that a query that fails can be made smaller."""


class Node:
    """A piece of SQL with the type of its value, or what kind of clause it is."""

    __slots__ = ("type", "parts", "smaller")

    def __init__(self, type, *parts, smaller=()):
        self.type = type
        self.parts = list(parts)
        # Texts that may stand in its place.
        self.smaller = list(smaller)

    def sql(self):
        return "".join(part if isinstance(part, str) else part.sql() for part in self.parts)

    def children(self):
        return [part for part in self.parts if isinstance(part, Node)]

    def below(self):
        """All nodes below, the highest first."""
        found, queue = [], self.children()
        while queue:
            node = queue.pop(0)
            found.append(node)
            queue.extend(node.children())
        return found


def optional(*parts):
    """A clause that may be left out."""
    return Node("clause", *parts, smaller=[""])


def joined(separator, nodes):
    """Nodes with a text between them."""
    parts = []
    for at, node in enumerate(nodes):
        parts.extend([separator, node] if at else [node])
    return parts


def minimised(query, still_fails, tries):
    """The smallest query found that still fails. Replaces nodes by parts of themselves, the largest nodes first."""
    changed = True
    while changed and tries > 0:
        changed = False
        for node in [query] + query.below():
            size = len(node.sql())
            below = sorted((n.sql() for n in node.below() if n.type == node.type), key=len)
            for text in node.smaller + below:
                if len(text) >= size or tries <= 0:
                    continue
                before, node.parts = node.parts, [text]
                tries -= 1
                if still_fails(query.sql()):
                    changed = True
                    break
                node.parts = before
            if changed:
                break
    return query.sql()
