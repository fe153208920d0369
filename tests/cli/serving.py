"""What the tests of `rein serve` share, here and in tests/parity: the files it serves, and a server process.

serving.py REIN makes the files in the current directory: chatty (a model with a chat template), one (a run of two steps), caller (a run
whose last checkpoint, CALLER, calls a tool). serving.py REIN chatty makes only the model."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

SUMS = Path(__file__).parents[2] / "models/sums"
CALLER = "caller/checkpoints/0060"
TEMPLATE = (
    "{%- if tools %}T{{ tools | length }}\n{% endif %}"
    "{%- for m in messages %}{{ m.role[0] }}:{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<end>\n{% endfor %}"
    "{%- if add_generation_prompt %}a:{% endif %}"
)
CALL = 'hm <tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call>'
RUN = "--task sums --preset rloo --prompts 4 --samples 4 --max-tokens 16 --eval-prompts 4 --learning-rate 1e-2 --steps 2 --temperature 0.7"
SFT = "--data tools.jsonl --batch-size 1 --num-train-epochs 60 --save-steps 60 --learning-rate 5e-3 --lora-rank 16"


def make_model(directory):
    shutil.copytree(SUMS, directory / "chatty")
    path = directory / "chatty/tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": TEMPLATE}))


def make_files(rein, directory):
    directory = Path(directory)
    make_model(directory)
    (directory / "tools.jsonl").write_text(json.dumps({"prompt": "T1\nu:go<end>\na:", "completion": CALL}))
    for command in (f"run one --model chatty {RUN}", f"sft caller --model chatty {SFT}"):
        done = subprocess.run([rein, *command.split()], cwd=directory, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"rein {command}: {done.stderr}")


class Server:
    """A server process on a free port, until the end of its `with`."""

    def __init__(self, rein, *arguments, directory=".", environment=None):
        self.process = subprocess.Popen(
            [rein, "serve", *arguments, "--port", "0", "--json"],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.port = json.loads(line)["port"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def stop(self, within=120):
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=within)
        assert self.process.returncode == 0, (self.process.returncode, log[-2000:])


if __name__ == "__main__":
    if sys.argv[2:]:
        make_model(Path("."))
    else:
        make_files(sys.argv[1], ".")
