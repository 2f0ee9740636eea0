"""The view that framework rules have of a configuration: variables as attributes.

`knobs.tp`, `knobs.cuda_graph_impl`: the value that is stated, or the framework's default in the
version at hand, or what follows from the job. A variable that nobody states, or states as none,
raises `NotStated`, and the rule is not judged. What a rule looked at is kept, so that a finding can
point at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.setting import Value


class NotStated(Exception):  # noqa: N818 - not a fault, the rule has nothing to judge
    """A rule asked for a variable that nothing states; `variable` names it."""

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.variable = variable


class Knobs:
    """Variables of one configuration.

    `framework` and `version` name what reads it (`version` "" = not stated, the newest is meant).
    """

    def __init__(
        self, framework: str, version: str, values: Mapping[str, Value], *, facts: Mapping[str, Any]
    ) -> None:
        self._values = values
        self._facts = facts
        self.looked_at: dict[str, Any] = {}
        self.lacking: list[str] = []
        self.framework = framework
        self.version = version

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self.get(name)
        if value is None:
            self.lacking.append(name)
            raise NotStated(name)
        return value

    def get(self, name: str, otherwise: Any = None) -> Any:
        """The value of a variable, or `otherwise` where nothing states it.

        Raises `NotStated` where it is stated but cannot be read.
        """
        found = self._values.get(name)
        if found is None and name not in self._facts:
            return otherwise
        value = self._facts[name] if found is None else found.value
        if value is UNKNOWN:
            self.lacking.append(name)
            raise NotStated(name)
        self.looked_at[name] = value
        return value

    def is_stated(self, name: str) -> bool:
        """Whether a setting states the variable, rather than a default."""
        found = self._values.get(name)
        if found is not None and found.settings:
            self.looked_at[name] = found.value
            return True
        return False
