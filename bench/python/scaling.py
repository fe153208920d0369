"""How the time of rein's work grows, over two decades each: with the tokens of a training pass, the length of a
sequence, the batch of a decoding step, the vocabulary. Draws docs/scaling.svg.

    make && python bench/python/scaling.py [--out FILE] [--rounds N]

On models of random weights that `rein init` makes; the best of a few rounds counts; all cores, a few minutes. Each
panel is log-log, with a line of slope 1 through its last point: what lies above it, to the left, is a cost that does
not grow with the work. Needs numpy and the built library, nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from peer import best

ROOT = Path(__file__).parents[2]
os.environ.setdefault("REIN_LIBRARY", str(ROOT / "build" / "librein.so"))
sys.path.insert(0, str(ROOT / "python"))

import rein  # noqa: E402

POSITIONS = 8192
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": POSITIONS,
    "tie_word_embeddings": True,
    "vocab_size": 4096,
}

# -------------------------------------------------------------------------------------------------------------- measure


@contextlib.contextmanager
def policy_of(**changes):
    """A policy of random weights, LoRA of rank 8, of a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rein-scaling-") as directory:
        (Path(directory) / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        subprocess.run([ROOT / "build" / "rein", "init", directory], check=True, capture_output=True)
        with rein.Policy(directory) as policy:
            yield policy


def some_ids(policy, count, first=0):
    return [(first + 7919 * i) % policy.vocab_size for i in range(count)]


def training_pass(policy, sequences, length):
    """Forward and backward of so many sequences, two a group, none with a prefix in common with another group's."""
    groups = [
        [
            rein.Trajectory(some_ids(policy, 1, g), some_ids(policy, length - 1, g + 31 * k + 1), None, reward=float(k))
            for k in range(min(2, sequences))
        ]
        for g in range(max(1, sequences // 2))
    ]
    policy.forward_backward(groups, "reinforce")


def by_tokens(rounds):
    with policy_of() as policy:
        for sequences in (1, 2, 4, 8, 16, 32, 64, 128):
            seconds = best(lambda n=sequences: training_pass(policy, n, 64), rounds, warm=1)
            yield 64 * sequences, seconds


def by_length(rounds):
    with policy_of() as policy:
        for length in (64, 128, 256, 512, 1024, 2048, 4096, POSITIONS):
            yield length, best(lambda n=length: training_pass(policy, 1, n), rounds, warm=1)


def by_batch(rounds, steps=24):
    """A step: what `steps` tokens more take, over `steps`."""
    with policy_of() as policy:
        for batch in (1, 2, 4, 8, 16, 32, 64, 128):
            prompts = [some_ids(policy, 16, i) for i in range(batch)]
            short, long = (
                best(lambda n=tokens, p=prompts: policy.sample(p, max_tokens=n, stop_ids=[]), rounds, warm=1)
                for tokens in (1, 1 + steps)
            )
            yield batch, (long - short) / steps


def by_vocabulary(rounds, tokens=512):
    for vocabulary in (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072):
        with policy_of(vocab_size=vocabulary, num_hidden_layers=1) as policy:
            ids = some_ids(policy, tokens)
            yield vocabulary, best(lambda p=policy, i=ids: p.log_probs([i]), rounds, warm=1)


PANELS = [
    ("training pass, sequences of 64", "tokens", by_tokens),
    ("training pass, one sequence", "length", by_length),
    ("decoding, a step", "sequences", by_batch),
    ("log-probabilities of 512 tokens, one layer", "vocabulary", by_vocabulary),
]

# ----------------------------------------------------------------------------------------------------------------- draw

WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 290, 200, 62, 62, 90, 104
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 13px; }
.quiet { fill: #57606a; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.one { stroke: #8c959f; stroke-width: 1.5; stroke-dasharray: 5 4; }
.line { stroke: #0969da; stroke-width: 2; fill: none; }
.dot { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .one { stroke: #7d8590; }
  .line { stroke: #4493f8; }
  .dot { fill: #4493f8; }
}
"""


def shown_count(value):
    return f"{value:,.0f}"


def shown_seconds(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9999:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def decades(low, high):
    """The powers of ten from the one at or below `low` to the one at or above `high`."""
    return [10.0**k for k in range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)]


def slope_at_the_end(points):
    """Between the last point and the one a decade before it."""
    (x1, y1), (x0, y0) = points[-1], min(points, key=lambda point: abs(point[0] - points[-1][0] / 10))
    return math.log(y1 / y0) / math.log(x1 / x0)


class Panel:
    def __init__(self, left, top, points):
        self.left, self.top, self.points = left, top, points
        self.x_low, self.x_high = points[0][0], points[-1][0]
        self.y_ticks = decades(min(y for _, y in points), max(y for _, y in points))
        if len(self.y_ticks) == 1:
            self.y_ticks.append(10 * self.y_ticks[0])

    def x(self, value):
        return self.left + WIDTH * math.log(value / self.x_low) / math.log(self.x_high / self.x_low)

    def y(self, value):
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return self.top + HEIGHT - HEIGHT * math.log(value / low) / math.log(high / low)

    def axes(self):
        bottom = self.top + HEIGHT
        for tick in self.y_ticks:
            y = self.y(tick)
            yield f'<line class="grid" x1="{self.left}" x2="{self.left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            label = shown_seconds(tick)
            yield f'<text class="quiet" x="{self.left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        inner = [tick for tick in decades(self.x_low, self.x_high) if self.x_low < tick < self.x_high]
        for tick in inner:
            x = self.x(tick)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{bottom}"/>'
        near = 0.1 * WIDTH  # a label beside one of the two ends would run into it
        kept = [t for t in inner if self.x(t) - self.left > near and self.left + WIDTH - self.x(t) > near]
        for tick in (self.x_low, *kept, self.x_high):
            yield (
                f'<text class="quiet" x="{self.x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">'
                f"{shown_count(tick)}</text>"
            )

    def slope_one(self):
        """Through the last point, down to where it leaves the panel."""
        x1, y1 = self.points[-1]
        x0 = max(self.x_low, x1 * self.y_ticks[0] / y1)
        ends = (self.x(x0), self.y(y1 * x0 / x1), self.x(x1), self.y(y1))
        return '<line class="one" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends)

    def draw(self, title, what):
        places = [(self.x(x), self.y(y)) for x, y in self.points]
        yield f'<text class="title" x="{self.left}" y="{self.top - 26}">{escape(title)}</text>'
        slope = f"time against {what}; slope at the end {slope_at_the_end(self.points):.2f}"
        yield f'<text class="quiet" x="{self.left}" y="{self.top - 10}">{escape(slope)}</text>'
        yield from self.axes()
        yield self.slope_one()
        yield f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
        for (x, y), (value, seconds) in zip(places, self.points):
            label = f"{shown_count(value)} {what}: {shown_seconds(seconds)}"
            yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(label)}</title></circle>'
        x, y = places[-1]
        yield f'<text x="{x + 4:.1f}" y="{y - 8:.1f}" text-anchor="end">{shown_seconds(self.points[-1][1])}</text>'


def picture(measured):
    width, height = LEFT + 2 * WIDTH + GAP_X + 40, TOP + 2 * HEIGHT + GAP_Y + 60
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>How the time of rein's work grows</title>",
        f"<style>{STYLE}</style>",
    ]
    for i, (title, what, points) in enumerate(measured):
        panel = Panel(LEFT + i % 2 * (WIDTH + GAP_X), TOP + i // 2 * (HEIGHT + GAP_Y), points)
        lines += panel.draw(title, what)
    legend = height - 14
    lines += [
        f'<line class="line" x1="{LEFT}" x2="{LEFT + 28}" y1="{legend - 4}" y2="{legend - 4}"/>',
        f'<text x="{LEFT + 36}" y="{legend}">measured</text>',
        f'<line class="one" x1="{LEFT + 120}" x2="{LEFT + 148}" y1="{legend - 4}" y2="{legend - 4}"/>',
        f'<text x="{LEFT + 156}" y="{legend}">slope 1: twice the work, twice the time</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Draws how the time of rein's work grows.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "scaling.svg")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    measured = []
    for title, what, measure in PANELS:
        points = []
        for value, seconds in measure(arguments.rounds):
            points.append((value, seconds))
            print(f"{title:44} {value:7} {what:10} {shown_seconds(seconds)}", flush=True)
        measured.append((title, what, points))
    arguments.out.write_text(picture(measured))


if __name__ == "__main__":
    main()
