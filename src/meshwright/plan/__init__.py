"""How: workload, plan, mesh, placement and stages.

The package is also the verb: `meshwright.plan("llama-3.1-70b", "H100:8", ...)` searches for a plan
(`meshwright.api.plan`, which stands above everything here and is looked up when it is called).
"""

import sys
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """A module that can be called, and that shows the verb's signature to `help` and notebooks."""

    @property
    def __signature__(self) -> Signature:
        return signature(import_module("meshwright.api").plan)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("meshwright.api").plan(*args, **kwargs)


sys.modules[__name__].__class__ = _Verb
