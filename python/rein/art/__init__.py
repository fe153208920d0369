"""rein.art: the LocalBackend of OpenPipe's ART on the CPU.

`LocalBackend` has the interface of `art.local.LocalBackend`; a `rein serve` that it starts samples and trains.
`python -m rein.art SCRIPT.py` runs a script of ART with it, without a change. docs/art.md shows both.
"""

from __future__ import annotations

try:
    import art.types  # noqa: F401
except ImportError as problem:
    raise ImportError(
        f"rein.art needs ART, which cannot be imported here ({problem}): "
        "pip install 'openpipe-art==0.5.18' 'openai<3' 'polars<2' pyarrow wandb"
    ) from problem

from ._backend import LocalBackend

__all__ = ["LocalBackend"]
