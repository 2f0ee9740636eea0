"""Why a document went, with the figure that was measured and the limit that it broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meshwright.base.errors import MeshwrightError
from meshwright.data.reasons import REASONS
from meshwright.data.settings import Build

if TYPE_CHECKING:
    from meshwright.data.settings import Language
    from meshwright.data.shards.manifest import Manifest
    from meshwright.data.shards.origin import Origin


def why(origin: Origin, manifest: Manifest) -> str:
    """One clause, as "12 words, at least 50"; what the reason says where nothing was measured.

    "" for a document that is kept.
    """
    said = REASONS.get(origin.reason, "") if origin.reason else ""
    if origin.test_text is not None:
        return f"shares a run of words with {origin.test_text}"
    if origin.measured is None:
        return said
    build = _build(manifest)
    if build is None:
        return said
    if origin.reason == "language" and build.language is not None:
        return _of_language(origin.language, origin.measured, build.language)
    from meshwright.data.filters.apply import told

    try:
        return told(origin.measured, origin.reason, build)
    except MeshwrightError:  # of settings that a later version wrote
        return said


def _of_language(code: str, score: float, settings: Language) -> str:
    if code not in settings.keep:
        name = f"identified as {code}" if code else "no language found"
        return f"{name} with {score:.2f}, kept are {', '.join(settings.keep)}"
    return f"identified as {code} with {score:.2f}, at least {settings.min_score:g}"


def _build(manifest: Manifest) -> Build | None:
    """The settings of the build; None where this version cannot read them."""
    try:
        output = {**manifest.settings["output"], "folder": ""}
        return msgspec.convert({**manifest.settings, "output": output}, Build)
    except (msgspec.ValidationError, KeyError, TypeError):
        return None
