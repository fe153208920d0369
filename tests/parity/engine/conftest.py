"""Real models and llama.cpp are compared only in `make parity-all`, and nothing of GGUF without PyPI's gguf."""

import importlib.util
import os

SLOW = ["test_real_models.py", "test_real_gguf.py", "test_llama_cpp.py"]
collect_ignore = [] if os.environ.get("REIN_PARITY_ALL") else SLOW
if importlib.util.find_spec("gguf") is None:
    print("SKIPPED LOUDLY: the package gguf is not installed: quantised models are not compared")
    collect_ignore = [*SLOW, "test_gguf.py"]
