"""report_to="wandb" with the package itself: an offline run, read again with wandb's own message types."""

import json
import math
from pathlib import Path

import pytest

import rein

wandb = pytest.importorskip("wandb")
messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")

MODEL = Path(__file__).parents[3] / "models/sums"
SMALL = {"preset": "rloo", "learning_rate": 1e-3, "steps": 3, "prompts": 2, "samples": 2, "max_tokens": 8}


def records_of(path):
    """The records of an offline run: those of a LevelDB log, after a header of 7 bytes, in blocks of 32 KiB."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block has no room for a header
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            yield record
            record = b""


def rows_of(path):
    """The metrics of every step in an offline run."""
    for data in records_of(path):
        entry = messages.Record()
        entry.ParseFromString(data)
        if entry.WhichOneof("record_type") == "history":
            yield {item.key or item.nested_key[0]: json.loads(item.value_json) for item in entry.history.item}


def test_every_metric_of_every_step_arrives(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    run = rein.run(tmp_path / "run", model=MODEL, task="sums", eval_prompts=0, report_to="wandb", **SMALL)
    wandb.finish()
    wandb.teardown()  # its process has written everything when it has ended
    rows = list(rows_of(next(tmp_path.glob("wandb/offline-run-*/*.wandb"))))
    assert [row["_step"] for row in rows] == [1, 2, 3]
    for row, line in zip(rows, run.history):
        for name, value in line.items():
            if isinstance(value, float) and not math.isnan(value):
                assert row[name] == value, name
