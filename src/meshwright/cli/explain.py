"""`meshwright explain`: a rule, a cause, a figure of a prediction, why a document was dropped."""

from __future__ import annotations

from pathlib import Path

import click

from meshwright.base.errors import MeshwrightError, UnknownName
from meshwright.base.names import nearest
from meshwright.base.pattern import pattern
from meshwright.cli import output

_RULE = pattern(r"[A-Za-z]{3}\d+\Z")
_EPILOG = """\b
Examples:
  meshwright explain MOD103
  meshwright explain DAT901
  meshwright explain plan.toml memory.stage0.activations
  meshwright explain plan.toml time
  meshwright explain plan.toml traffic
  meshwright explain gopher_quality.words
"""


@click.command(epilog=_EPILOG)
@click.argument("what")
@click.argument("term", default="")
@click.option("--depth", type=click.IntRange(0, 20), default=2, help="Levels below the term.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(what: str, term: str, depth: int, as_json: bool) -> None:
    """Say why.

    WHAT is the code of a rule (MOD103) or of a cause (DAT901), or a plan file; TERM is then the
    name of a figure such as memory.stage0.activations, of which formula, operands and source are
    printed with all below it. Or it is the reason for which `data build` dropped a document.
    """
    if _RULE.match(what):
        _rule(what, as_json=as_json)
    elif not term and not Path(what).exists() and _is_reason(what):
        _reason(what, as_json=as_json)
    else:
        _term(what, term, depth=depth, as_json=as_json)


def _rule(code: str, *, as_json: bool) -> None:
    from meshwright.report.catalogues import rule_record
    from meshwright.report.rules import constraints_of, rule_page

    found = constraints_of(code)
    if not found and _cause(code, as_json=as_json):
        return
    if not found:
        _entry(code, as_json=as_json)
    elif as_json:
        records = [rule_record(rule) for rule in found]
        output.json(records[0] | ({"others": records[1:]} if records[1:] else {}))
    else:
        output.page([line for rule in found for line in (*rule_page(rule), "")][:-1])


def _cause(code: str, *, as_json: bool) -> bool:
    """Whether the code is that of a cause, which is then printed."""
    from meshwright.diagnose.causes.rule import find_cause
    from meshwright.report.causes import cause_page, cause_record

    rule = find_cause(code)
    if rule is None:
        return False
    if as_json:
        output.json(cause_record(rule))
    else:
        output.page(cause_page(rule))
    return True


def _entry(code: str, *, as_json: bool) -> None:
    """A code that no rule bears: one that is not checked, or a complaint about a file."""
    from meshwright.diagnose.causes.rule import all_causes
    from meshwright.frameworks.complaints import CODES
    from meshwright.report.catalogues import entry_page, entry_record
    from meshwright.report.rules import all_constraints
    from meshwright.rules.catalogue import catalogue

    wanted = code.upper()
    entry = next((e for e in catalogue() if e.code == wanted), None)
    if entry is not None:
        record, page = entry_record(entry), entry_page(entry)
    elif wanted in CODES:
        record = {"code": wanted, "title": CODES[wanted], "status": "checked"}
        page = [f"{wanted}: {CODES[wanted]}", "about a file itself, whatever the framework"]
    else:
        known = [
            *(r.code for r in all_constraints()),
            *(c.code for c in all_causes()),
            *(e.code for e in catalogue()),
            *CODES,
        ]
        raise UnknownName("rule", code, suggestions=nearest(code, dict.fromkeys(known)))
    if as_json:
        output.json(record)
    else:
        output.page(page)


def _is_reason(what: str) -> bool:
    """Whether that is a reason; UnknownName when it is nearly one and no name of a file."""
    from meshwright.data.reasons import REASONS
    from meshwright.data.source.rejects import REJECTS

    known = [reason for reason in (*REASONS, *REJECTS) if reason]
    steps = {reason.partition(".")[0] for reason in known}
    if what in known:
        return True
    could_be = not Path(what).suffix or what.partition(".")[0] in steps
    if could_be and (near := nearest(what, known)):
        raise UnknownName("reason", what, suggestions=near)
    return False


def _reason(reason: str, *, as_json: bool) -> None:
    from meshwright.report.reasons import reason_page, reason_record

    if as_json:
        output.json(reason_record(reason))
    else:
        output.page(reason_page(reason))


def _term(path: str, term: str, *, depth: int, as_json: bool) -> None:
    from meshwright import api
    from meshwright.cost.traffic import traffic_terms
    from meshwright.cost.traffic.terms import ROOT as TRAFFIC
    from meshwright.report.terms import term_page, term_record

    if not Path(path).suffix and not Path(path).exists():
        raise MeshwrightError(
            f"{path!r} is neither the code of a rule nor a plan file",
            hint="type a code such as MOD103, or `plan.toml memory` for a term of a plan",
        )
    terms = dict(api.predict(path).terms)
    if not term or term.startswith(TRAFFIC):
        terms |= traffic_terms(api.read_job(path))
    if as_json:
        output.json(term_record(terms, term))
    else:
        output.page(term_page(terms, term, depth=depth))
