"""One thing that is wrong with a value the user gave."""

from __future__ import annotations

from meshwright.base.noun import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with `value` at `key`.

    `key` is the dotted path inside the document ("links.0.domain"), `reason` says what is wrong,
    `hint` what to type instead ("" when nothing better is known).
    """

    key: str
    value: object
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.key} = {self.value!r}: {self.reason}"
        return f"{text}; {self.hint}" if self.hint else text
