"""Where things are on the disk: the directories of a model of ART, its steps, and the files of its base model.

    {path}/{project}/models/{name}/               written by ART: model.json, state.json, history.jsonl, trajectories/
    {path}/{project}/models/{name}/rein/          the run of rein
    {path}/{project}/models/{name}/checkpoints    a link to rein/checkpoints, where ART looks for steps
    {path}/{project}/models/{name}/rein.log       what the server wrote to standard error

The run has a directory of its own for two reasons. ART and rein both write history.jsonl and trajectories/train/, in
different forms. And ART converts every .jsonl file in its trajectories/ to Parquet and deletes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from art.utils.get_model_step import get_step_from_dir
from art.utils.output_dirs import get_output_dir_from_model_properties, get_step_checkpoint_dir


class ModelFiles:
    """The files of one model."""

    def __init__(self, path: str, project: str, name: str) -> None:
        self.directory = Path(get_output_dir_from_model_properties(project, name, path)).absolute()
        self.run = self.directory / "rein"
        self.log = self.directory / "rein.log"

    def exists(self) -> bool:
        """Whether the run has its settings, which are written last."""
        return (self.run / "config.yaml").exists()

    def check_unlocked(self) -> None:
        """Another server would only serve the run, without training it."""
        with contextlib.suppress(FileNotFoundError), open(self.run / ".lock", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                process = lock.read(20).decode(errors="replace").strip()
                raise RuntimeError(f"{self.run} is being written by process {process}: end that one first") from None

    def make(self) -> None:
        """The directory, and the link to the checkpoints."""
        self.directory.mkdir(parents=True, exist_ok=True)
        link = self.directory / "checkpoints"
        if link.is_dir() and not link.is_symlink():
            with contextlib.suppress(OSError):
                link.rmdir()  # if it is empty
            if link.exists():
                raise FileExistsError(f"{link} has checkpoints that rein did not write: use another name for the model")
        if not link.is_symlink():
            link.symlink_to("rein/checkpoints")

    def step(self) -> int:
        """The newest one; 0 if there is none."""
        return int(get_step_from_dir(str(self.directory)))

    def steps(self) -> list[int]:
        """All that have a checkpoint, in order."""
        names = os.listdir(self.run / "checkpoints") if (self.run / "checkpoints").exists() else []
        return sorted(int(name) for name in names if name.isdigit())

    def checkpoint(self, step: int) -> Path:
        return Path(get_step_checkpoint_dir(str(self.directory), step))

    def step_not_after(self, last: int | None) -> int:
        """The newest step that is not after `last`; None: of all."""
        steps = self.steps()
        if not steps:
            raise FileNotFoundError(f"{self.directory} has no checkpoints")
        fitting = [step for step in steps if last is None or step <= last]
        if not fitting:
            raise ValueError(f"{self.directory} has no checkpoint up to step {last}: its steps are {steps}")
        return fitting[-1]

    def copy_run(self, source: ModelFiles, step: int) -> None:
        """A new run that is `source` at that step. Its step 0 comes too: a KL reference may need it."""
        new = self.directory / ".rein.new"
        shutil.rmtree(new, ignore_errors=True)
        (new / "checkpoints").mkdir(parents=True)
        for each in sorted({0, step} & set(source.steps())):
            name = source.checkpoint(each).name
            shutil.copytree(source.run / "checkpoints" / name, new / "checkpoints" / name)
        _copy_history(source.run / "history.jsonl", new / "history.jsonl", step)
        shutil.copy2(source.run / "config.yaml", new)
        shutil.rmtree(self.run, ignore_errors=True)
        new.rename(self.run)


def _copy_history(source: Path, target: Path, last: int) -> None:
    """The lines of the steps up to the last one."""
    if source.exists():
        lines = source.read_text().splitlines(keepends=True)
        target.write_text("".join(line for line in lines if json.loads(line)["step"] <= last))


def find_base_model(base_model: str) -> Path:
    """The directory or the GGUF file that `base_model` names: a path, or a name in the cache of Hugging Face."""
    path = Path(base_model).expanduser()
    if path.is_dir() or path.suffix == ".gguf" and path.is_file():
        return path.absolute()
    cache = _hub_cache()
    snapshots = cache / ("models--" + base_model.replace("/", "--")) / "snapshots"
    with contextlib.suppress(OSError):
        revision = (snapshots.parent / "refs/main").read_text().strip()
        if (snapshots / revision / "config.json").exists():
            return (snapshots / revision).absolute()
    raise FileNotFoundError(
        f"base_model is {base_model!r}: there is no such directory or GGUF file, and no such model in {cache}. "
        f"Give a directory, or download the model first: hf download {base_model}"
    )


def _hub_cache() -> Path:
    """As huggingface_hub finds it."""
    given: Any = os.environ.get
    home = given("HF_HOME") or os.path.join(given("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(given("HF_HUB_CACHE") or given("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
