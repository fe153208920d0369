"""Event files of rein, read by TensorBoard's own code: the accumulator that tools use, and the one behind its pages."""

import importlib.util
import math
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from c_program import compiled
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginAccumulator
from tensorboard.util import tensor_util

ROOT = Path(__file__).resolve().parents[3]
NOW = 1700000000.25


def program():
    return compiled(Path(__file__).parent / "write_events.c")


def write(directory, events, purge_step=0):
    """events: (step, wall_time, value, name)."""
    lines = "".join(f"{step} {time!r} {value!r} {name}\n" for step, time, value, name in events)
    subprocess.run([program(), str(directory), str(purge_step)], input=lines.encode(), check=True)


def scalars(directory):
    """{name: [(step, wall_time, value)]}, the same from both accumulators."""
    plain = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    plain.Reload()
    read = {name: [(e.step, e.wall_time, e.value) for e in plain.Scalars(name)] for name in plain.Tags()["scalars"]}
    shown = PluginAccumulator(str(directory), tensor_size_guidance={"scalars": 0})
    shown.Reload()
    assert sorted(shown.Tags()["tensors"]) == sorted(read)
    for name, events in read.items():
        assert shown.SummaryMetadata(name).plugin_data.plugin_name == "scalars"
        again = [(e.step, e.wall_time, float(tensor_util.make_ndarray(e.tensor_proto))) for e in shown.Tensors(name)]
        assert repr(again) == repr(events)  # NaN is NaN
    return read


def as_float(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def test_every_value_is_read(tmp_path):
    values = [0.0, -0.0, 0.1, -1e-45, 3e38, 16777217.0, math.inf, -math.inf, math.nan]
    times = {0: NOW, 1: NOW + 1, 127: NOW + 2, 128: 0.0, 2**40: 9999999999.0}
    events = [(s, t, v, f"größe/{i}") for s, t in times.items() for i, v in enumerate(values)]
    write(tmp_path, events)
    read = scalars(tmp_path)
    assert len(read) == len(values)
    for i, value in enumerate(values):
        wanted = [(s, t, as_float(value)) for s, t, _, name in events if name == f"größe/{i}"]
        assert repr(read[f"größe/{i}"]) == repr(wanted)


def test_resumed_run_replaces_what_came_after_its_checkpoint(tmp_path):
    write(tmp_path, [(s, NOW + s, float(s), "loss") for s in range(10)])
    write(tmp_path, [(s, NOW + 100 + s, 100.0 + s, "loss") for s in range(6, 9)], purge_step=6)
    read = scalars(tmp_path)["loss"]
    assert [(s, v) for s, _, v in read] == [(s, float(s)) for s in range(6)] + [(s, 100.0 + s) for s in range(6, 9)]


def test_resume_in_the_same_second_and_with_a_slow_clock(tmp_path):
    write(tmp_path, [(s, NOW, float(s), "loss") for s in range(4)])
    write(tmp_path, [(2, NOW, 20.0, "loss"), (3, NOW, 30.0, "loss")], purge_step=2)
    write(tmp_path, [(3, NOW - 5000, 300.0, "loss")], purge_step=3)
    assert [(s, v) for s, _, v in scalars(tmp_path)["loss"]] == [(0, 0.0), (1, 1.0), (2, 20.0), (3, 300.0)]


@pytest.mark.parametrize("cut", [1, 4, 5, 20])
def test_torn_tail_hides_nothing(tmp_path, cut):
    write(tmp_path, [(s, NOW + s, float(s), "loss") for s in range(4)])
    (file,) = tmp_path.iterdir()
    os.truncate(file, file.stat().st_size - cut)
    write(tmp_path, [(s, NOW + 100 + s, 100.0 + s, "loss") for s in range(3, 5)], purge_step=3)
    read = [(s, v) for s, _, v in scalars(tmp_path)["loss"]]
    assert read == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 103.0), (4, 104.0)]


def test_reader_that_was_there_before_sees_what_is_added(tmp_path):
    reader = EventAccumulator(str(tmp_path))
    for steps in (range(3), range(3, 5), range(2, 4)):
        write(tmp_path, [(s, NOW, float(s), "loss") for s in steps], purge_step=steps[0])
        reader.Reload()
        assert [e.step for e in reader.Scalars("loss")] == list(range(steps[-1] + 1))


def test_fixtures_are_what_tensorboard_writes():
    generate = ROOT / "tests" / "report" / "fixtures" / "generate.py"
    subprocess.run([sys.executable, str(generate), "--check"], check=True)


def test_names_are_those_of_trl():
    """The first table of docs/metrics.md: names that TRL's trainer logs, but for those that transformers' logs."""
    trl = importlib.util.find_spec("trl")
    if trl is None:
        pytest.skip("TRL is not installed")
    logged = set(re.findall(r'_metrics\[[^]]*\]\["([^"]+)"\]', trainer_of(trl)))
    first = (ROOT / "docs" / "metrics.md").read_text().split("rein's own")[0]
    names = set(re.findall(r"^\| `([^`]+)` \|", first, re.MULTILINE))
    assert len(names) == 16
    assert names - {"loss", "grad_norm", "learning_rate"} <= logged


def trainer_of(trl):
    return (Path(trl.origin).parent / "trainer" / "grpo_trainer.py").read_text()
