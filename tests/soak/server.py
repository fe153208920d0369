"""server.py REIN [MINUTES [CLIENTS]]: a server that trains while clients talk to it (60 minutes, 64 clients). They ask
for chats, completions and streams, and one in twenty leaves in the middle. Every other request must be answered whole,
and the memory of the process must stay flat. Ends with 'N passed, N failed'."""

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from serving import Server, make_files

counts = {"answers": 0, "streams": 0, "left": 0, "busy": 0, "jobs": 0}
lost = []


async def request(port, method, path, body=None, leave=False):
    """Sends one request; returns its status and body, or None if the client left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = json.dumps(body).encode() if body is not None else b""
        fields = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json", "Content-Length": len(data)}
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode() + data)
        await writer.drain()
        if leave:
            await asyncio.sleep(random.uniform(0, 0.5))
            return None
        answer = await reader.read()
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), rest
    finally:
        writer.close()


def body_of(draw):
    body = {
        "model": "one",
        "max_tokens": draw.randint(1, 60),
        "seed": draw.randint(0, 999),
        "stream": draw.random() < 0.5,
    }
    prompt = f"Q:{draw.randint(0, 9)}+{draw.randint(0, 9)}=?" * draw.randint(1, 4)
    if draw.random() < 0.5:
        messages = [{"role": "user", "content": prompt}]
        return "/v1/chat/completions", {
            **body,
            "messages": messages,
            "logprobs": True,
            "top_logprobs": draw.randint(0, 3),
        }
    return "/v1/completions", {**body, "prompt": prompt, "n": draw.randint(1, 3)}


async def client(port, number, until):
    draw = random.Random(number)
    while time.monotonic() < until:
        path, body = body_of(draw)
        leave = draw.random() < 0.05
        try:
            answer = await request(port, "POST", path, body, leave)
        except OSError as problem:
            lost.append(f"{path}: {problem}")
            continue
        if answer is None:
            counts["left"] += 1
        elif answer[0] == 429:
            counts["busy"] += 1
            await asyncio.sleep(0.1)
        elif answer[0] != 200:
            lost.append(f"{path}: {answer}")
        elif body["stream"]:
            counts["streams"] += 1
            if b"[DONE]" not in answer[1]:
                lost.append(f"{path}: a stream without an end: {answer[1][-200:]}")
        else:
            counts["answers"] += 1
            choices = json.loads(answer[1])["choices"]
            if len(choices) != body.get("n", 1) or not all(c["finish_reason"] for c in choices):
                lost.append(f"{path}: {answer[1][:200]}")


async def trainer(port, groups, until):
    while time.monotonic() < until:
        status, answer = await request(port, "POST", "/v1/train", {"trajectory_groups": groups})
        job = json.loads(answer)
        while status in (200, 202) and time.monotonic() < until:
            _, answer = await request(port, "GET", f"/v1/train/{job['id']}")
            state = json.loads(answer)
            if state["status"] in ("done", "failed", "cancelled"):
                counts["jobs"] += 1
                if state["status"] != "done":
                    lost.append(f"a job: {state}")
                break
            await asyncio.sleep(0.2)


async def memory(process, until, samples):
    while time.monotonic() < until:
        status = Path(f"/proc/{process.pid}/status").read_text()
        samples.append(int(status.split("RssAnon:")[1].split()[0]) / 1024)
        await asyncio.sleep(1)


async def load(server, minutes, clients):
    groups = [json.loads(line) for line in Path("one/trajectories/train/0001.jsonl").read_text().splitlines()]
    until = time.monotonic() + 60 * minutes
    samples = []
    work = [client(server.port, number, until) for number in range(clients)]
    await asyncio.gather(*work, trainer(server.port, groups, until), memory(server.process, until, samples))
    return samples


def main():
    rein, *numbers = sys.argv[1:]
    minutes, clients = (float(n) for n in numbers + ["60", "64"][len(numbers) :])
    rein = os.path.realpath(rein)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        make_files(rein, ".")
        with Server(rein, "one", "--learning-rate", "0", "--keep-last", "2", "--queue", "256") as server:
            samples = asyncio.run(load(server, minutes, int(clients)))
        os.chdir("/")
    quarter = max(len(samples) // 4, 1)
    early, late = sum(samples[quarter : 2 * quarter]) / quarter, sum(samples[-quarter:]) / quarter
    print(f"{minutes:g} minutes, {clients:g} clients: {counts}")
    print(f"memory: {early:.1f} MB in the second quarter, {late:.1f} MB in the last, {max(samples):.1f} MB at most")
    grown = late > 1.03 * early + 2
    print("\n".join(["memory grows"] * grown + lost[:10]))
    idle = not (counts["answers"] and counts["streams"] and counts["jobs"])
    failed = grown + bool(lost) + idle
    print(f"{3 - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
