"""Packages that are the verb of the same name, too: `meshwright.plan(...)`.

The function stands in a layer above the package and is looked up when it is called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import Any


def make_verb(package: str, *, home: str, name: str) -> None:
    """Makes an imported package callable: it does what the function `name` of `home` does."""

    class Verb(ModuleType):
        """A module that can be called, and that shows the verb's signature to `help`."""

        @property
        def __signature__(self) -> Signature:
            return signature(getattr(import_module(home), name))

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return getattr(import_module(home), name)(*args, **kwargs)

    sys.modules[package].__class__ = Verb
