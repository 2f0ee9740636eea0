"""Sections of the report that need no script: the answer, the split, findings, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.units import format_bytes
from meshwright.base.words import plural, ranks_in_words
from meshwright.diagnose.causes.judge import recoverable_us
from meshwright.report.diagnosis import causes as words
from meshwright.report.diagnosis import figures, logs, tables
from meshwright.report.diagnosis.html.elements import Html, element, joined
from meshwright.report.diagnosis.html.tabular import bar_behind, section, stacked, table_html
from meshwright.report.diagnosis.metrics import metrics_blocks
from meshwright.report.diagnosis.page import left_table
from meshwright.report.diagnosis.split import split_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from meshwright.diagnose.diagnosis import Cause, Diagnosis, Lever
    from meshwright.diagnose.logs.noun import MemorySnapshot
    from meshwright.report.diagnosis.split import Part
    from meshwright.report.page import Block


def answer(found: Diagnosis) -> Html:
    """The three sentences, and the figures that matter."""
    first, *rest = found.summary or ("",)
    text = element(
        "div", element("p", first, class_="first"), *(element("p", line) for line in rest)
    )
    return element("section", text, element("div", *_tiles(found), class_="tiles"), id="answer")


def _tiles(found: Diagnosis) -> Iterator[Html]:
    if found.step_us:
        yield _tile("a step takes", figures.duration(found.step_us))
        if found.lost_us is not None:
            share = figures.share(found.lost_us / found.step_us)
            yield _tile("of it lost", figures.duration(found.lost_us), f"{share} of the step")
    yield _tile("mostly to", found.principal.replace("_", " "), _second(found))
    gains = [us for cause in found.causes if (us := recoverable_us(cause)) > 0]
    if gains:
        yield _tile("the first lever is worth", figures.duration(gains[0]), "of a step")


def _second(found: Diagnosis) -> str:
    return f"then {found.second.replace('_', ' ')}" if found.second else ""


def _tile(name: str, value: str, below: str = "") -> Html:
    shown = element("b", value, class_="long" if len(value) > _LONG else "short")
    return element("div", element("span", name), shown, element("small", below), class_="tile")


_LONG = 22  # characters of a figure that is words


def split(found: Diagnosis) -> Html:
    """Where a step goes, as a bar and as a table."""
    parts = split_of(found.evidence)
    if parts is None:
        return Html("")
    unit, _ = tables.unit_of(parts.step_us)
    pieces = [
        (
            f"{part.kind} s{_shade(parts.parts, part)}",
            f"{part.kind}: {part.name}, {figures.duration(part.us)} ({figures.share(part.share)})",
            part.share,
            figures.name(part.name, 40),
        )
        for part in parts.parts
    ]
    rows = tables.split_table(parts)
    shares = [float(row.cells["share"].rstrip("%")) for row in rows.rows[:-1]]
    most = max([*shares, 0.1])
    table = table_html(rows, bars={"share": [s / most for s in shares]})
    what = "a step" if parts.is_step else "what was traced"
    note = (
        f"Every microsecond of {what} once: mean over {plural(parts.ranks, 'rank')}"
        if parts.ranks
        else "A step of the pipeline, mean over its workers"
    )
    bar = stacked(pieces, label=f"the parts of a step in {unit}")
    return section("split", "Where a step goes", bar, _legend(), table, note=f"{note}.")


def _shade(parts: tuple[Part, ...], part: Part) -> int:
    """The shade of a part: its place among those of its kind, up to 5."""
    return min([p.name for p in parts if p.kind == part.kind].index(part.name), 5)


def _legend() -> Html:
    kinds = ("compute", "communication", "copies", "idle")
    named = (element("span", element("i", class_=f"{kind} s0"), kind) for kind in kinds)
    return element("div", *named, class_="legend")


def findings(found: Diagnosis) -> Html:
    """Each cause as a card."""
    if not found.causes:
        none = element("p", "No cause is large enough to name.")
        return section("findings", "Findings", none)
    note = "Most of what can be had back first. Times are of one step."
    cards = (_card(n, cause, found.guards) for n, cause in enumerate(found.causes, start=1))
    return section("findings", "Findings", *cards, note=note)


def _card(number: int, cause: Cause, said: Collection[str]) -> Html:
    kind = cause.kind.replace(" ", "-")
    head = element(
        "header",
        element("b", f"{number}. {cause.title}"),
        element("code", cause.code),
        element("span", cause.kind, class_=f"tag {kind}"),
        element("span", ranks_in_words(cause.ranks), class_="ranks"),
    )
    lost = f"{figures.duration(cause.lost_us)} of a step, {figures.share(cause.share)}"
    cost = bar_behind(lost if cause.lost_us else "costs no time by itself", cause.share)
    proofs = (element("li", words.proof_words(proof)) for proof in cause.evidence)
    return element(
        "article",
        head,
        cost,
        element("p", cause.message),
        element("ul", *proofs),
        _lever(cause.lever),
        _foot(cause, said),
        class_="card",
    )


def _lever(lever: Lever) -> Html:
    """What to do, its command in letters of one width."""
    rows = []
    for word, text in words.lever_words(lever):
        shown = element("code", text) if word in ("plan", "type") else element("span", text)
        rows += [element("dt", word), element("dd", shown)]
    return element("dl", *rows)


def _foot(cause: Cause, said: Collection[str]) -> Html:
    parts = [f"confidence {cause.confidence}"]
    parts += words.own_guards(cause, said) if cause.confidence != "high" else ()
    if cause.source:
        parts.append(f"source: {cause.source}")
    return element("footer", "; ".join(parts))


def promises(found: Diagnosis) -> Html:
    """The plan's terms beside what was measured."""
    told = found.evidence.promises
    if not told:
        return Html("")
    return section(
        "plan",
        "What the plan promised",
        table_html(words.promises_table(told)),
        note="Seconds of a step by the plan's own terms, beside what the traces show.",
    )


def what_ifs(found: Diagnosis) -> Html:
    """What a step would take without one thing at a time."""
    if not found.step_us:
        return Html("")
    table = tables.what_if_table(found.evidence, found.step_us)
    if not table.rows:
        return Html("")
    note = "The run replayed along its critical path, with one thing at a time otherwise."
    return section("what-if", "What if", table_html(table), note=note)


def communication(found: Diagnosis) -> Html:
    """How much of each axis is hidden behind compute, and its collectives."""
    evidence = found.evidence
    every = tables.collective_lines(evidence)
    if not every:
        return Html("")
    pieces: list[str] = [_overlap(name, total, exposed) for name, total, exposed in _axes(every)]
    across = evidence.across
    if across is not None and across.axes:
        pieces.append(table_html(tables.axes_table(across)))
    table, more = tables.collectives_table(evidence, most=_MOST_COLLECTIVES)
    pieces.append(table_html(table))
    if more:
        pieces.append(element("p", f"and {more:,} more with less exposed time", class_="note"))
    note = (
        "Kernel time of collectives, hidden behind compute or exposed. Waiting for the last rank "
        "is told from transfer where ranks could be matched; * is the fastest instance of one "
        "rank, which may include waiting."
    )
    return section("communication", "Communication and overlap", *pieces, note=note)


_MOST_COLLECTIVES = 60


def _axes(every: list[tables.CollectiveLine]) -> list[tuple[str, float, float]]:
    """Kernel time and exposed time of each axis or group, most first."""
    sums: dict[str, list[float]] = {}
    for line in every:
        own = sums.setdefault(line.axis or "other", [0.0, 0.0])
        own[0] += line.sum_us
        own[1] += line.exposed_us
    found = [(name, total, min(exposed, total)) for name, (total, exposed) in sums.items()]
    return sorted(found, key=lambda one: -one[1])[:_MOST_AXES]


_MOST_AXES = 10


def _overlap(name: str, total_us: float, exposed_us: float) -> Html:
    hidden = 1 - exposed_us / total_us if total_us else 0.0
    bar = stacked(
        [
            ("hidden", f"hidden {figures.share(hidden)}", hidden, "hidden"),
            ("communication s0", f"exposed {figures.share(1 - hidden)}", 1 - hidden, "exposed"),
        ],
        label=f"{name}: {figures.share(hidden)} hidden",
    )
    text = f"{figures.share(hidden)} of {figures.duration(total_us)} hidden"
    return element(
        "div", element("b", figures.name(name, 24)), bar, element("span", text), class_="overlap"
    )


def kernels(found: Diagnosis) -> Html:
    """The kernels that take longest."""
    table = tables.kernels_table(found.evidence.ranks, most=_MOST_KERNELS, longest=110)
    if not table.rows:
        return Html("")
    totals = [us for _, _, us, _ in tables.kernel_totals(found.evidence.ranks)[:_MOST_KERNELS]]
    shares = [us / max(totals) if max(totals) else 0.0 for us in totals]
    note = "Mean over ranks, over all that was traced."
    return section("kernels", "Kernels", table_html(table, bars={"time": shares}), note=note)


_MOST_KERNELS = 25


def records(found: Diagnosis) -> Html:
    """Memory, NCCL, pipelines and metrics."""
    evidence = found.evidence
    shown: list[Html] = []
    if evidence.pipeline is not None:
        shown.append(_record("Pipeline by worker", logs.pipeline_blocks(evidence.pipeline)))
    for snapshot in evidence.memory:
        blocks = logs.memory_blocks(snapshot)
        shown.append(_record("Memory at its peak", blocks, _memory(snapshot)))
    shown += (_record("NCCL", logs.nccl_blocks(log)) for log in evidence.nccl)
    if evidence.metrics:
        shown.append(_record("Metrics", metrics_blocks(evidence.metrics)))
    return section("records", "Other records", *shown) if shown else Html("")


def _record(title: str, blocks: Iterable[Block], *more: Html) -> Html:
    """One record: its first line, pictures, and the rest."""
    first, *rest = (b if isinstance(b, str) else table_html(b) for b in blocks)
    lines = (b if isinstance(b, Html) else element("p", b) for b in (first, *more, *rest))
    return element("div", element("h3", title), *lines)


def _memory(found: MemorySnapshot) -> Html:
    """The peak by category."""
    total = sum(found.by_category.values())
    if not total:
        return Html("")
    sizes = sorted(found.by_category.items(), key=lambda item: -item[1])
    pieces = [
        (f"memory s{min(n, 5)}", f"{name}: {format_bytes(size)}", size / total, name)
        for n, (name, size) in enumerate(sizes)
    ]
    return stacked(pieces, label="memory at the peak by category")


def notes(found: Diagnosis) -> Html:
    """What lowers the worth of the answer, and what was left out of it."""
    pieces: list[str] = []
    if found.guards:
        pieces.append(element("ul", *(element("li", guard) for guard in found.guards)))
    if found.left:
        table, more = left_table(found.left, most=_MOST_LEFT)
        pieces.append(table_html(table))
        if more:
            pieces.append(element("p", f"and {more:,} more", class_="note"))
    if not pieces:
        return Html("")
    return section("notes", "To be taken with care, and left out", joined(pieces))


_MOST_LEFT = 100
