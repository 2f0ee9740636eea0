"""Where a figure comes from: the tree of terms below it, with formulas, operands and sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest
from meshwright.base.table import Column, Row, Table
from meshwright.base.units import format_bytes, format_count, format_duration, format_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.cost.terms import Term
    from meshwright.report.page import Block

_COLUMNS = (
    Column(key="name", title="term"),
    Column(key="value", title="value", align="right"),
    Column(key="evidence", title="evidence"),
    Column(key="source", title="source"),
    Column(key="formula", title="formula"),
)


def term_page(terms: Mapping[str, Term], name: str, *, depth: int = 2) -> list[Block]:
    """The term called `name` in full, then `depth` levels below it as a table.

    Without a name, the roots of the tree. Raises `UnknownName` with the nearest terms.
    """
    below = names_below(terms, name, depth=depth)
    page: list[Block] = [*_in_full(name, terms[name]), ""] if name in terms else []
    if not below:
        return page[:-1]
    sources = _numbered(terms, below)
    page.append(_tree(terms, name, below, sources=sources))
    where = _where(terms, below, known=terms[name].operands if name in terms else {})
    page += ["", "where", *where] if where else []
    notes = (f"  [{number}] {source}" for source, number in sources.items())
    return [*page, "", "sources", *notes] if sources else page


def _where(
    terms: Mapping[str, Term], names: Iterable[str], *, known: Mapping[str, Any]
) -> list[str]:
    """A line for each set of operands that is not `known`, under what its terms have in common."""
    users: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for name in names:
        operands = terms[name].operands if name in terms else {}
        if operands and dict(operands) != dict(known):
            users.setdefault(tuple(operands.items()), []).append(name)
    return [f"  {_common(used)}: {_operand_words(dict(kept))}" for kept, used in users.items()]


def _common(names: list[str]) -> str:
    """The longest dotted name that stands before or is all of `names`."""
    parts = [name.split(".") for name in names]
    same = [ours[0] for ours in zip(*parts, strict=False) if len(set(ours)) == 1]
    return ".".join(same) or ", ".join(dict.fromkeys(part[0] for part in parts))


def _numbered(terms: Mapping[str, Term], names: Iterable[str]) -> dict[str, int]:
    """A number for each source, in order of first appearance."""
    sources = dict.fromkeys(terms[n].source for n in names if n in terms and terms[n].source)
    return {source: number for number, source in enumerate(sources, start=1)}


def names_below(terms: Mapping[str, Term], name: str, *, depth: int) -> list[str]:
    """Names under `name` up to `depth` levels, parents before children, in the tree's order."""
    known = _with_parents(terms)
    if name and name not in known:
        raise _unknown(name, known)
    prefix = f"{name}." if name else ""
    most = depth + (name.count(".") + 1 if name else 0)
    below = [n for n in known if n.startswith(prefix) and n != name]
    return _by_tree([n for n in below if n.count(".") + 1 <= most])


def _unknown(name: str, known: Iterable[str]) -> UnknownName:
    """The error for a term that is not there; without a near one it says where the tree starts."""
    error = UnknownName("term", name, suggestions=nearest(name, known))
    roots = dict.fromkeys(n.split(".", 1)[0] for n in known)
    error.hint = error.hint or f"terms start with {' or '.join(roots)}; without one all are listed"
    return error


def value_words(value: float, unit: str) -> str:
    """A figure in its unit, three significant digits."""
    if unit in {"bytes", "B"}:
        return format_bytes(value)
    if unit in {"s", "seconds"}:
        return format_duration(value)
    if unit in {"", "1"}:
        return format_number(value)
    if unit in {"flops", "FLOP"}:
        return f"{format_count(value)} FLOP"
    return f"{format_number(value)} {unit}"


def term_record(terms: Mapping[str, Term], name: str) -> dict[str, Any]:
    """The term and everything below it, for JSON."""
    below = names_below(terms, name, depth=99)
    chosen = [n for n in (name, *below) if n in terms]
    return {"terms": {n: _record(terms[n]) for n in chosen}}


def _record(term: Term) -> dict[str, Any]:
    return {
        "value": term.value,
        "unit": term.unit,
        "formula": term.formula,
        "operands": dict(term.operands),
        "source": term.source,
        "evidence": term.evidence,
    }


def _in_full(name: str, term: Term) -> list[str]:
    lines = [f"{name} = {value_words(term.value, term.unit)}"]
    if term.formula:
        lines.append(f"  formula   {term.formula}")
    if term.operands:
        lines.append(f"  where     {_operand_words(term.operands)}")
    if term.source:
        lines.append(f"  source    {term.source}")
    return [*lines, f"  evidence  {term.evidence}"]


def _operand_words(operands: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_operand(value)}" for name, value in operands.items())


def _operand(value: Any) -> str:
    if isinstance(value, bool | str):
        return str(value)
    is_whole = isinstance(value, int) or float(value).is_integer()
    return f"{int(value):,}" if is_whole else format_number(value)


def _tree(
    terms: Mapping[str, Term], name: str, below: Sequence[str], *, sources: Mapping[str, int]
) -> Table:
    """The terms below as an indented table; a heading whose parts are too deep points to them."""
    depth = name.count(".") + 1 if name else 0
    parents = {full.rsplit(".", 1)[0] for full in below}
    rows = []
    for full in below:
        term = terms.get(full)
        cells = {"name": "  " * (full.count(".") - depth) + full.rsplit(".", 1)[-1]}
        if term is not None:
            cells |= _cells(term, sources)
        elif full not in parents:
            cells["formula"] = f"see {full}"
        rows.append(Row(cells=cells))
    return Table(columns=_COLUMNS, rows=tuple(rows))


def _cells(term: Term, sources: Mapping[str, int]) -> dict[str, str]:
    return {
        "value": value_words(term.value, term.unit),
        "evidence": term.evidence,
        "formula": term.formula,
        "source": f"[{sources[term.source]}]" if term.source else "",
    }


def _with_parents(terms: Mapping[str, Term]) -> dict[str, None]:
    """Every name and every prefix of one, in order of first appearance."""
    known: dict[str, None] = {}
    for name in terms:
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            known.setdefault(".".join(parts[:length]))
    return known


def _by_tree(names: list[str]) -> list[str]:
    """Children right after their parent, siblings in the order given."""
    order = {name: number for number, name in enumerate(names)}

    def path(name: str) -> list[int]:
        parts = name.split(".")
        prefixes = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        return [order[prefix] for prefix in prefixes if prefix in order]

    return sorted(names, key=path)
