"""kills.py REIN [KILLS [SEED]]: kill -9, and a full disk, at random moments, until a run is complete. Then its files
must have the bytes of a run that nothing happened to. Eight take turns: run, run with a critic, sft, dpo, reward,
distill, train (one step a call) and serve (training over HTTP). KILLS is the number of kills (500); the moments depend on SEED (1). Ends with
'N passed, N failed'."""

import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SUMS = Path(__file__).parents[2] / "models/sums"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
    "initializer_range": 0.2,
}
MEASURED = ("step_time", "tokens_per_second", "peak_memory")  # by a clock or by the system
NOT_COMPARED = (".lock", ".origin", "report.html", "summary.json")
UNFINISHED = re.compile(r"\.[a-z.]+-\d+-\d+\.tmp")  # removed when the run is resumed; nothing resumes a complete one
STEPS = 12
COMMON = "--model fresh --threads 1 --keep-last 0 --learning-rate 0.01".split()
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
SAMPLED = "--task sums --reward regex:[0-2] --prompts 4 --samples 3 --max-tokens 16 --eval-prompts 2".split()


def rein(*arguments, directory="."):
    done = subprocess.run([REIN, *arguments], cwd=directory, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"rein {' '.join(arguments)}: {done.stderr}")


def steps_of(run):
    return sorted(int(path.name) for path in Path(run, "checkpoints").glob("[0-9]*") if path.name.isdigit())


def step_of(run):
    return max(steps_of(run), default=0)


class Command:
    """A command that writes a run in the current directory; killed or not, `arguments` resume it."""

    refused = ""  # why the last step was not made, where the process does not end for it

    def __init__(self, name, *arguments, title=None):
        self.command, self.name, self.arguments = name, title or name, arguments

    def start(self, run):
        return subprocess.Popen([REIN, self.command, run, *self.arguments], **PIPES)

    def complete(self, run):
        return step_of(run) >= STEPS

    def work(self, process, run, until):
        """Waits until the moment `until`, or the end of the process."""
        try:
            process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            return True
        return False


class Train(Command):
    """One step a call, each on the groups that step of a run sampled."""

    def start(self, run):
        number = min(step_of(run) + 1, STEPS)
        extra = self.arguments if number == 1 else ()
        return subprocess.Popen([REIN, "train", run, "--groups", f"groups/{number:04}.jsonl", *extra], **PIPES)


class Serve(Command):
    """Training over HTTP: a job a step, each on the groups of that step."""

    def start(self, run):
        return subprocess.Popen([REIN, "serve", run, *self.arguments, "--port", "0", "--json"], **PIPES)

    def work(self, process, run, until):
        os.set_blocking(process.stdout.fileno(), False)
        self.refused = ""
        port = None
        while time.monotonic() < until and process.poll() is None and not self.refused and not self.complete(run):
            if port is None:
                line = process.stdout.readline()
                port = json.loads(line)["port"] if line else None
                time.sleep(0.005)
            else:
                self.one_step(port, step_of(run) + 1, until)
        if process.poll() is None and (self.refused or self.complete(run)):
            process.terminate()
            process.wait()
        return process.poll() is None

    def one_step(self, port, number, until):
        groups = [json.loads(line) for line in Path(f"groups/{number:04}.jsonl").read_text().splitlines()]
        job = self.ask(port, "POST", "/v1/train", {"trajectory_groups": groups})
        while time.monotonic() < until:
            status = self.ask(port, "GET", f"/v1/train/{job['id']}")
            if status["status"] not in ("queued", "running"):
                self.refused = status["error"] or ""
                return
            time.sleep(0.005)

    @staticmethod
    def ask(port, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        value = json.loads(answer.read())
        assert answer.status in (200, 202), value
        return value


def content(run):
    """What must be equal in two runs: every file but reports and events, without times."""
    found = {}
    for path in sorted(Path(run).rglob("*")):
        name = str(path.relative_to(run))
        if not path.is_file() or name.startswith("tensorboard/") or name in NOT_COMPARED or UNFINISHED.fullmatch(name):
            continue
        if name in ("history.jsonl", "evaluations.jsonl"):
            lines = [json.loads(line).items() for line in path.read_text().splitlines()]
            found[name] = [{k: v for k, v in line if k not in MEASURED and "time/" not in k} for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


def differences(run, right):
    ours, theirs = content(run), content(right)
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def one_run(command, run, seconds, kills, draw):
    """Kills the command at random moments, at most `kills` times, until the run is complete. Returns how often, and
    what went wrong."""
    done, starts = 0, 0
    while not command.complete(run):
        starts += 1
        limit = draw.uniform(0, seconds) if done < kills else 3600
        before = step_of(run)
        process = command.start(run)
        if command.work(process, run, time.monotonic() + limit):
            process.send_signal(signal.SIGKILL)
            done += 1
        _, errors = process.communicate()
        if process.returncode not in (0, -signal.SIGKILL):
            return done, f"status {process.returncode}: {str(errors)[-300:]}"
        if step_of(run) < before:
            return done, f"step {before} was lost"
        if starts > 50 * STEPS:
            return done, "no progress"
    return done, ""


def full_disk(command, run, right, draw):
    """The run is on a disk that is full when a random share of it is written. It must fail with a message, and resume
    when there is room."""
    needed = sum(path.stat().st_blocks * 512 for path in Path(right).rglob("*"))
    disk = Path("disk")
    disk.mkdir(exist_ok=True)
    size = int(needed * draw.uniform(0.05, 0.9)) // 4096 * 4096
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=True)
    try:
        place = f"disk/{Path(run).name}"
        while not command.complete(place):
            process = command.start(place)
            command.work(process, place, time.monotonic() + 600)
            _, errors = process.communicate()
            if command.complete(place) or (process.returncode == 0 and isinstance(command, Train)):
                continue
            statuses = (0, 1) if command.refused else (1,)
            said = f"{command.refused} {str(errors)[-300:]}"
            if "No space" not in said or process.returncode not in statuses:
                return f"a full disk of {size} bytes: status {process.returncode}: {said}"
            size += needed // 8
            subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
        return ", ".join(differences(place, right)[:5])
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def main():
    kills, seed = int((sys.argv + ["", ""])[2] or 500), int((sys.argv + ["", "", ""])[3] or 1)
    draw = random.Random(seed)
    shutil.copytree(SUMS, "fresh", ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    Path("fresh/config.json").write_text(json.dumps(CONFIG))
    shutil.copytree("fresh", "teacher")
    rein("init", "fresh")
    rein("init", "teacher", "--seed", "2")
    rein("run", "sampled", *COMMON, *SAMPLED, "--steps", str(STEPS))
    shutil.copytree("sampled/trajectories/train", "groups")
    with open("pairs.jsonl", "w") as pairs, open("lessons.jsonl", "w") as lessons:
        for i in range(STEPS * 2):
            prompt, right = f"Q:{i % 9}+1=", f"{i % 9 + 1}"
            pairs.write(json.dumps({"prompt": prompt, "chosen": right, "rejected": f"{right}{i}"}) + "\n")
            lessons.write(json.dumps({"prompt": prompt, "completion": right}) + "\n")
    epoch = "--batch-size 2 --num-train-epochs 1".split()
    own = "--lambda 0.5 --max-new-tokens 8".split()
    commands = [
        Command("run", *COMMON, *SAMPLED, "--steps", str(STEPS)),
        Command("run", *COMMON, *SAMPLED, "--steps", str(STEPS), *"--preset ppo --critic same".split(), title="critic"),
        Command("sft", *COMMON, "--data", "lessons.jsonl", *epoch),
        Command("dpo", *COMMON, "--data", "pairs.jsonl", *epoch),
        Command("reward", *COMMON, "--data", "pairs.jsonl", "--held-out", "pairs.jsonl", *epoch),
        Command("distill", *COMMON, "--teacher", "teacher", "--data", "lessons.jsonl", *own, *epoch),
        Train("train", *COMMON, "--preset", "grpo"),
        Serve("serve", *COMMON, "--preset", "grpo"),
    ]
    passed = failed = done = full = 0
    seconds = {}
    for command in commands:
        began = time.monotonic()
        _, wrong = one_run(command, f"whole-{command.name}", 3600, 0, draw)
        seconds[command.name] = time.monotonic() - began
        assert not wrong, (command.name, wrong)
    can_mount = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "fresh"], capture_output=True).returncode == 0
    if can_mount:
        subprocess.run(["umount", "fresh"], check=True)
    else:
        print("SKIPPED: no disk can be mounted here: full disks are not tried")
    while done < kills:
        for command in commands:
            right, run = f"whole-{command.name}", f"killed-{command.name}"
            n, wrong = one_run(command, run, seconds[command.name] / 2, kills - done, draw)
            done += n
            wrong = wrong or ", ".join(differences(run, right)[:5])
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"FAIL {command.name}, seed {seed}, after {done} kills: {wrong}", flush=True)
                shutil.move(run, f"{run}.{done}")
            shutil.rmtree(run, ignore_errors=True)
            if can_mount and not wrong:
                wrong = full_disk(command, run, right, draw)
                full += 1
                passed, failed = passed + (not wrong), failed + bool(wrong)
                if wrong:
                    print(f"FAIL {command.name}, seed {seed}, full disk {full}: {wrong}", flush=True)
    print(f"{done} kills, {full} disks that were full")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    REIN = os.path.realpath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        status = main()
        os.chdir("/")
    sys.exit(status)
