"""Puts rein's LocalBackend in the place of art.local, whose own imports need torch."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import art

from ._backend import LocalBackend


class _LocalBackend(LocalBackend):
    """What `art.local.backend.LocalBackend` is after replace_local().

    Calling it makes a rein.art.LocalBackend, which is not an instance of this class. ART's PipelineTrainer demands GPU
    ids from instances of `art.local.backend.LocalBackend`: ART's own cannot sample while it trains. rein's can.
    """

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        if cls is _LocalBackend:
            return LocalBackend(*arguments, **keywords)
        return super().__new__(cls)


def replace_local() -> None:
    """`art.local` and `art.local.backend` get rein's LocalBackend. Their other modules stay ART's."""
    local = _module("art.local", LocalBackend)
    local.__path__ = [os.path.join(directory, "local") for directory in art.__path__]
    backend = _module("art.local.backend", _LocalBackend)
    _LocalBackend.__module__, _LocalBackend.__qualname__ = "art.local.backend", "LocalBackend"
    for parent, name, module in ((art, "local", local), (local, "backend", backend)):
        setattr(parent, name, module)
        sys.modules[module.__name__] = module


def _module(name: str, backend: type) -> ModuleType:
    module = ModuleType(name, "rein.art in place of ART's module of this name")
    module.__spec__ = ModuleSpec(name, None, is_package=name == "art.local")
    vars(module).update(LocalBackend=backend, __all__=["LocalBackend"])
    return module
