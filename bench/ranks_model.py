"""ranks_model.py: what an RL step on several ranks exchanges, and how long that takes (docs/cluster.md explains it).

    ranks_model.py table                                         predictions for 2 to 32 nodes with links of 10 Gbit/s
    ranks_model.py predict --floats F --ranks N [--tokens T] …   messages, bytes and seconds of one step
    ranks_model.py compare RUN LINK [--floats F]                 a run on several ranks beside the prediction; LINK has
                                                                 the constants of its network (ranks_link.py)

Every rank has 1/N of the parameters in its optimizer. In one optimizer step it sends the stretch of every sum of
complete shards that each other rank updates, and then its updated part to all. Times are those of one rank: all send
and receive at the same time."""

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

STRETCH = 1 << 16  # floats of a sum to each rank: src/train/trainer_gradient.c
PIECE = 1 << 20  # bytes of a part: src/dist/ranks.h
CHUNKS, SMALLEST_CHUNK, AUDITED = 512, 16384, 16384  # of the optimizer: src/train/adamw.c
# Of a trajectory: id, mask, log-prob, end in the text, its text; measured, with 16 tokens a response.
BYTES_A_TOKEN = 22


def owner(i, n, ranks):
    return next(r for r in reversed(range(ranks)) if n // ranks * r + n % ranks * r // ranks <= i)


def sums_sent(shards, groups, ranks):
    """How many sums of complete subtrees each rank sends (trainer_gradient.c: climb)."""
    dealt = min(groups, shards)
    rank = [owner(s % dealt, dealt, ranks) for s in range(shards)]
    node, several = [s if s < dealt else None for s in range(shards)], set()
    sent = [0] * ranks
    stride = 1
    while stride < shards:
        for left in range(0, shards - stride, 2 * stride):
            a, b = node[left], node[left + stride]
            node[left + stride] = None
            if a is None or b is None:
                node[left] = a if b is None else b
            elif not (rank[a] == rank[b] and not {a, b} & several):
                for s in {a, b} - several:
                    sent[rank[s]] += 1
                several.add(a)
        stride *= 2
    if node[0] not in several:
        sent[rank[node[0]]] += 1
    return sent


def traffic(floats, ranks, shards, prompts, tokens, steps=1, reference=False):
    """Bytes that the busiest rank sends in a step, and the exchanges of each kind."""
    others, longest = ranks - 1, math.ceil(floats / ranks)
    chunk = max(SMALLEST_CHUNK, math.ceil(floats / CHUNKS))
    sums = max(sums_sent(shards, max(1, prompts // steps), ranks))
    return {
        "gradient": {
            "bytes": steps * 4 * sums * longest * others,
            "calls": steps * math.ceil(longest / STRETCH),
            "starts": steps,
        },
        "values": {"bytes": steps * 4 * longest * others, "calls": steps * math.ceil(4 * longest / PIECE)},
        "audited pieces": {"bytes": steps * 4 * (3 * AUDITED + 2) * min(2, others), "calls": steps},
        "norm": {"bytes": steps * 8 * math.ceil(floats / chunk) / ranks * others, "calls": steps},
        "log-probs": {"bytes": (2 + reference) * 4 * tokens / ranks * others, "calls": 2 * steps + reference},
        "trajectories": {
            "bytes": BYTES_A_TOKEN * tokens / ranks * others,
            "calls": 1 + math.ceil(BYTES_A_TOKEN * tokens / ranks / PIECE),
        },
        "checks": {"bytes": steps * (32 + shards) * others, "calls": 4 * steps},
    }


def seconds(parts, link):
    """Each exchange costs a latency, each byte its time. The stretches of a gradient overlap: it costs one latency."""
    found = {}
    for name, part in parts.items():
        if name == "gradient":
            found[name] = link["latency_exchange"] * part["starts"] + part["bytes"] / link["bytes_per_second_exchange"]
        else:
            found[name] = link["latency"] * part["calls"] + part["bytes"] / link["bytes_per_second_gather"]
    return found


def network(gbit, ranks, latency):
    """A link of so many Gbit/s: 94 % of it carries data. A gather takes log2 N rounds, an exchange of each with each
    N − 1 messages, which overlap."""
    rate = 0.94 * gbit * 1e9 / 8
    rounds = math.log2(ranks) if ranks > 1 else 0
    return {
        "latency": latency * rounds,
        "latency_exchange": latency * rounds,
        "bytes_per_second_gather": rate,
        "bytes_per_second_exchange": rate,
    }


# ------------------------------------------------------------------------------------------------------------- commands


def predict(a):
    parts = traffic(a.floats, a.ranks, a.shards, a.prompts, a.tokens, a.optimizer_steps, a.reference)
    times = seconds(parts, network(a.gbit, a.ranks, a.latency))
    for name, part in parts.items():
        print(f"{name:14} {part['calls']:8.0f} exchanges {part['bytes'] / 1e6:12.3f} MB {times[name]:10.4f} s")
    calls, sent = (sum(p[key] for p in parts.values()) for key in ("calls", "bytes"))
    print(f"{'all':14} {calls:8.0f} exchanges {sent / 1e6:12.3f} MB {sum(times.values()):10.4f} s")


def table(a):
    """A step that takes `--step` seconds on one node, of which `--serial` is not divided."""
    cases = [
        ("LoRA, 135 M", 2.44e6, 16),
        ("all, 135 M", 134.5e6, 8),
        ("LoRA, 1.7 B", 9.0e6, 16),
        ("all, 1.7 B", 1.71e9, 8),
    ]
    print(f"| {a.prompts} prompts, {a.gbit:g} Gbit/s | " + " | ".join(f"{n} nodes" for n in a.nodes) + " |")
    print("|" + "---|" * (1 + len(a.nodes)))
    for name, floats, shards in cases:
        shards = max(shards, a.shards)
        row = []
        for n in a.nodes:
            parts = traffic(floats, n, shards, a.prompts, a.tokens)
            exchange = sum(seconds(parts, network(a.gbit, n, a.latency)).values())
            work = a.step * (floats > 5e6 and "1.7" in name and 12.7 or 1)
            divided = work * (1 - a.serial) * math.ceil(a.prompts / n) / a.prompts
            if min(a.prompts, shards) < n:  # some ranks have no shard: the gradient's part is that of the busiest
                busiest = 0.5 * math.ceil(a.prompts / n) / a.prompts + 0.5 / min(a.prompts, shards)
                divided = work * (1 - a.serial) * busiest
            row.append(f"{exchange:.2f} s, {work / (divided + work * a.serial + exchange):.1f}×")
        print(f"| {name} | " + " | ".join(row) + " |")


def compare(a):
    settings = {}
    for line in (Path(a.run) / "config.yaml").read_text().splitlines():
        name, _, value = line.partition(": ")
        settings[name] = value.strip('"')
    steps = [json.loads(line) for line in (Path(a.run) / "history.jsonl").read_text().splitlines()]
    steps = steps[1:] or steps  # the first makes connections
    before = [0] + [json.loads(line)["num_tokens"] for line in (Path(a.run) / "history.jsonl").read_text().splitlines()]
    tokens = (before[-1] - before[-1 - len(steps)]) / len(steps)
    link = json.loads(Path(a.link).read_text())
    shards = int(settings.get("shards") or 16) or 16
    passes = int(settings.get("epochs") or 1) * int(settings.get("minibatches") or 1)
    parts = traffic(a.floats, link["ranks"], shards, int(settings["prompts"]), tokens, passes, a.reference)
    predicted = {
        "bytes": sum(p["bytes"] for p in parts.values()),
        "calls": sum(p["calls"] for p in parts.values()),
        "seconds": sum(seconds(parts, link).values()),
    }
    middle = {
        key: statistics.median(s[key] for s in steps)
        for key in ("exchange/bytes", "exchange/calls", "time/exchange", "time/wait", "step_time")
    }
    row = {
        "ranks": link["ranks"],
        "bytes": [middle["exchange/bytes"], predicted["bytes"]],
        "calls": [middle["exchange/calls"], predicted["calls"]],
        "seconds": [round(middle["time/exchange"], 5), round(predicted["seconds"], 5)],
        "off": round(predicted["seconds"] / middle["time/exchange"] - 1, 3),
        "share_of_step": round(middle["time/exchange"] / middle["step_time"], 4),
        "step": round(middle["step_time"], 3),
        "wait": round(middle["time/wait"], 3),
    }
    print(json.dumps(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("predict")
    one.set_defaults(call=predict)
    many = commands.add_parser("table")
    many.set_defaults(call=table)
    for p in one, many:
        p.add_argument("--prompts", type=int, default=32)
        p.add_argument(
            "--tokens", type=float, default=32 * 8 * 300, help="of all responses of a step, with their prompts"
        )
        p.add_argument("--gbit", type=float, default=10)
        p.add_argument("--latency", type=float, default=60e-6, help="seconds of a small message, there")
        p.add_argument("--shards", type=int, default=0 if p is many else 16)
    one.add_argument("--floats", type=float, required=True, help="parameters that train")
    one.add_argument("--ranks", type=int, required=True)
    one.add_argument("--optimizer-steps", type=int, default=1)
    one.add_argument("--reference", action="store_true", help="a KL whose log-probs are computed in this step")
    many.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    many.add_argument("--step", type=float, default=60, help="seconds on one node, of the model of 135 million weights")
    many.add_argument("--serial", type=float, default=0.01, help="its share that is not divided")
    beside = commands.add_parser("compare")
    beside.set_defaults(call=compare)
    beside.add_argument("run")
    beside.add_argument("link")
    beside.add_argument("--floats", type=float, required=True)
    beside.add_argument("--reference", action="store_true")
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__":
    sys.exit(main())
