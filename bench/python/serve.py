"""serve.py --rein PROGRAM [--model DIR] [--gguf FILE]: `rein serve` with many clients, in turns with peers.

- throughput: every client has a chat of its own and asks for TOKENS tokens, as whole answers and as streams. Beside
  it, in turns, a generator without HTTP samples answers to the same prompts in one batch (the Python package), and
  llama.cpp's server (PyPI: xllamacpp) has the same chats and weights, if --gguf is given. The time includes the
  prompts.
- first token: of one chat on an idle server, beside the time in which `rein generate` computes its prompt.

Without --model it has SmolLM2-135M's shape and random weights. The medians of ROUNDS rounds are printed; the aims are
those of the project."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rein

SUMS = Path(__file__).parents[2] / "models/sums"
WORDS = "one two three four five six seven eight nine ten".split()
CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


# ------------------------------------------------------------------------------------------------ model


def config() -> dict[str, Any]:
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
    more = {"num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000.0}
    ends = {
        "bos_token_id": 0,
        "eos_token_id": 0,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-05,
        "hidden_act": "silu",
    }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        **shape,
        **more,
        **ends,
    }


def tensors(c: dict[str, Any]) -> dict[str, list[int]]:
    hidden, middle, vocabulary = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    keys = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
    rows = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, out in (("q", hidden), ("k", keys), ("v", keys), ("o", hidden)):
            rows[f"{at}self_attn.{name}_proj.weight"] = [out, hidden]
        for name, size in (("gate", [middle, hidden]), ("up", [middle, hidden]), ("down", [hidden, middle])):
            rows[f"{at}mlp.{name}_proj.weight"] = size
        for name in ("input_layernorm", "post_attention_layernorm"):
            rows[f"{at}{name}.weight"] = [hidden]
    return rows


def write_model(directory: Path) -> None:
    """bf16: the exponent of 0.008 to 0.03 with either sign, and a random fraction. The weights of norms are 1."""
    signs = bytes(0x3C if i % 2 else 0xBC for i in range(256))
    header: dict[str, Any] = {}
    end = 0
    for name, size in tensors(config()).items():
        bytes_ = 2 * size[0] * (size[1] if len(size) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [end, end + bytes_]}
        end += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = random.Random(0)
    with open(directory / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for row in header.values():
            n = (row["data_offsets"][1] - row["data_offsets"][0]) // 2
            values = bytearray(b"\x80\x3f" * n)
            if len(row["shape"]) > 1:
                values[0::2] = generator.randbytes(n)
                values[1::2] = generator.randbytes(n).translate(signs)
            f.write(values)
    shutil.copy(SUMS / "tokenizer.json", directory)
    tokenizer = json.loads((SUMS / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "chat_template": CHATML}))
    (directory / "config.json").write_text(json.dumps(config()))


# ------------------------------------------------------------------------------------------------ clients


def prompt(i: int, words: int = 20) -> str:
    return f"{i} " + " ".join(WORDS[(i * 7 + k * (i % 3 + 1)) % 10] for k in range(words))


def chat(text: str, tokens: int, seed: int = 1) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "base", "messages": messages, "max_tokens": tokens, "seed": seed, "temperature": 1}


def request(port: int, body: dict[str, Any], path: str = "/v1/chat/completions") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1200)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"{answer.status}: {answer.read(300)!r}")
    return answer


async def ask_one(port: int, body: dict[str, Any], start: asyncio.Event) -> bytes:
    """The answer, headers included. Only bytes are moved: parsing would take time from the server's cores."""
    text = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await start.wait()
    writer.write(f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text)
    answer = await reader.read(-1)
    writer.close()
    return answer


def tokens_in(answer: bytes) -> int:
    if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
        raise SystemExit(repr(answer[:300]))
    return int(re.findall(rb'"completion_tokens": ?(\d+)', answer)[-1])


def served(port: int, bodies: list[dict[str, Any]]) -> tuple[float, float]:
    """Tokens per second, from the first byte sent to the last received, and the share of one core that clients took."""

    async def run() -> list[bytes]:
        start = asyncio.Event()
        waiting = [asyncio.create_task(ask_one(port, body, start)) for body in bodies]
        await asyncio.sleep(0.1)  # all are connected
        times.append((time.perf_counter(), time.process_time()))
        start.set()
        return await asyncio.gather(*waiting)

    times: list[tuple[float, float]] = []
    answers = asyncio.run(run())
    seconds, client = time.perf_counter() - times[0][0], time.process_time() - times[0][1]
    return sum(map(tokens_in, answers)) / seconds, client / seconds


def prompt_ids(port: int, body: dict[str, Any]) -> list[int]:
    return list(json.loads(request(port, {"messages": body["messages"]}, "/tokenize").read())["tokens"])


def first_token(port: int, text: str) -> float:
    start = time.perf_counter()
    answer = request(port, {**chat(text, 1), "stream": True, "ignore_eos": True})
    while b'"content": "' not in answer.readline():
        pass
    while b"finish_reason" not in answer.readline():
        pass
    seconds = time.perf_counter() - start
    answer.read()
    return seconds


# ------------------------------------------------------------------------------------------------ llama.cpp

# llama.cpp's own HTTP server, compiled, from PyPI's xllamacpp: GGUF PORT CLIENTS CONTEXT. Every client has a slot, and
# no prompt is kept for later requests.
LLAMA = """
import os, sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_parallel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
p.hostnames, p.n_ctx, p.cont_batching = ["127.0.0.1"], int(sys.argv[3]) * int(sys.argv[4]), True
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = len(os.sched_getaffinity(0))
p.cache_prompt, p.cache_ram_mib, p.warmup = False, 0, True
server = xllamacpp.Server(p)
while True:
    time.sleep(3600)
"""


# ------------------------------------------------------------------------------------------------ rein generate


def generate(rein: str, model: str, text: str, samples: int, tokens: int) -> float:
    command = [rein, "generate", "--model", model, "--prompt", text, "--samples", str(samples), "--ignore-end"]
    start = time.perf_counter()
    subprocess.run([*command, "--max-tokens", str(tokens)], check=True, capture_output=True)
    return time.perf_counter() - start


def generated(policy: rein.Policy, prompts: list[list[int]], tokens: int) -> float:
    """Tokens per second of one batch: a generator without a server, with the same prompts."""
    start = time.perf_counter()
    drawn = policy.sample(prompts, max_tokens=tokens, stop_ids=[])
    return sum(len(one.response_ids) for (one,) in drawn) / (time.perf_counter() - start)


# ------------------------------------------------------------------------------------------------ rows


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not listen")


def throughput(o: argparse.Namespace, ports: dict[str, int]) -> None:
    policy = rein.Policy(o.model, False)
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    ways: dict[str, tuple[int, dict[str, Any]]] = {
        "rein serve": (ports["rein serve"], {"ignore_eos": True}),
        "rein serve, streams": (ports["rein serve"], {"ignore_eos": True, **stream}),
    }
    if "llama.cpp" in ports:
        ways["llama.cpp"] = (ports["llama.cpp"], {"ignore_eos": True})
    rates: dict[str, list[float]] = {"generator": []}
    clients: dict[str, list[float]] = {}
    for i in range(o.rounds):
        bodies = [chat(prompt(10000 * (i + 1) + k, o.words), o.tokens, k) for k in range(o.clients)]
        prompts = [prompt_ids(ports["rein serve"], body) for body in bodies]
        rates["generator"].append(generated(policy, prompts, o.tokens))
        for name, (port, more) in ways.items():
            rate, client = served(port, [{**body, **more} for body in bodies])
            rates.setdefault(name, []).append(rate)
            clients.setdefault(name, []).append(client)
    lengths = sorted(map(len, prompts))
    print(f"{o.clients} prompts of {lengths[0]} to {lengths[-1]} tokens, {o.tokens} new tokens each, prompts included:")
    for name, values in rates.items():
        line = f"{name:20} {statistics.median(values):8.1f} tokens/s   ({', '.join(f'{x:.1f}' for x in values)})"
        ratio = statistics.median(x / y for x, y in zip(values, rates["generator"]))
        if name in clients:
            line += f"   {100 * ratio:.0f} % of the generator"
            line += f"   clients: {100 * statistics.median(clients[name]):.1f} % of a core"
        print(line)
    if "llama.cpp" in rates:
        ratio = statistics.median(x / y for x, y in zip(rates["rein serve"], rates["llama.cpp"]))
        print(f"rein serve: {ratio:.2f} x llama.cpp (aim: 1.5)")


def first_tokens(o: argparse.Namespace, port: int) -> None:
    for words in (20, 100):
        texts = [prompt(70000 + 1000 * words + i, words) for i in range(max(3, o.rounds))]
        rendered = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in texts]
        opening = statistics.median(generate(o.rein, o.model, "1", 1, 1) for _ in texts)
        prefill = statistics.median(generate(o.rein, o.model, text, 1, 1) - opening for text in rendered)
        first = statistics.median(first_token(port, text) for text in texts)
        print(
            f"first token, {len(rendered[0])} characters: {1e3 * first:.0f} ms, "
            f"{first / prefill:.2f} x the prompt's {1e3 * prefill:.0f} ms (aim: 1.2)"
        )


def run(o: argparse.Namespace) -> None:
    ports = {"rein serve": free_port()}
    # Without the prefix cache, so that all sides compute the same tokens.
    commands = [[o.rein, "serve", "--model", o.model, "--port", str(ports["rein serve"]), "--prefix-cache", "0"]]
    if o.gguf:
        ports["llama.cpp"] = free_port()
        arguments = [o.gguf, str(ports["llama.cpp"]), str(o.clients), str(o.words * 8 + o.tokens + 256)]
        commands.append([sys.executable, "-c", LLAMA, *arguments])
    servers = [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for c in commands]
    try:
        for port in ports.values():
            wait_for(port)
        generate(o.rein, o.model, "1", 1, 1)  # the file is in memory
        rows: list[Callable[[], None]] = [lambda: first_tokens(o, ports["rein serve"]), lambda: throughput(o, ports)]
        for row in rows:
            row()
    finally:
        for process in servers:
            process.terminate()
            process.wait()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rein", default="build/rein")
    options.add_argument("--model")
    options.add_argument("--gguf")
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--words", type=int, default=20, help="of a prompt")
    options.add_argument("--rounds", type=int, default=3)
    o = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if not o.model:
            write_model(Path(directory))
            o.model = directory
        run(o)


if __name__ == "__main__":
    main()
