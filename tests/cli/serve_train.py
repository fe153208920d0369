"""serve_train.py REIN: trains over HTTP with `rein serve RUN`. serving.py has made the model chatty in the current directory.
Prints 'N passed, N failed'."""

import concurrent.futures
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import serving

REIN = sys.argv[1]
FAST = bool(os.environ.get("REIN_TEST_FAST"))
SETTINGS = "--preset grpo --learning-rate 1e-2 --seed 3".split()
PROMPTS = ["Q:3+4=?", "Q:5+2=?", "Q:9+9=?", "Q:1+1=?"]


class Server(serving.Server):
    def __init__(self, *arguments, **more):
        super().__init__(REIN, *arguments, **more)

    def ask(self, path, body=None, method=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        data = None if body is None else json.dumps(body)
        base = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method or ("GET" if data is None else "POST"), path, data, {**base, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text) if text.startswith(("{", "[")) else text

    def good(self, path, body=None, status=200, **more):
        got, answer = self.ask(path, body, **more)
        assert got == status, (got, answer)
        return answer

    def bad(self, status, path, body=None, param=None, **more):
        got, answer = self.ask(path, body, **more)
        assert got == status, (got, answer, param)
        assert param is None or answer["error"]["param"] == param, answer
        return answer["error"]["message"]

    def chat(self, model, text, seed, n=4, **more):
        body = {"model": model, "messages": [{"role": "user", "content": text}], "n": n, "seed": seed, "max_tokens": 12}
        return self.good("/v1/chat/completions", {**body, "logprobs": True, "return_tokens_as_token_ids": True, **more})

    def groups(self, model, seed, prompts=PROMPTS, n=4):
        """As ART's clients send them: messages and Choices. Short answers are better."""
        out = []
        for i, text in enumerate(prompts):
            answer = self.chat(model, text, 100 * seed + i, n)
            choices = answer["choices"]
            assert all(c["policy_step"] == answer["policy_step"] for c in choices)  # it comes back with the Choices
            rewards = [-len(c["logprobs"]["content"]) + 0.01 * c["index"] for c in choices]
            out.append(
                {
                    "trajectories": [
                        {
                            "messages_and_choices": [{"role": "user", "content": text}, choice],
                            "reward": reward,
                            "metadata": {"seed": seed},
                        }
                        for choice, reward in zip(choices, rewards, strict=True)
                    ],
                    "exceptions": [],
                }
            )
        return out

    def train(self, groups, **options):
        return self.good("/v1/train", {"trajectory_groups": groups, **options}, 202)

    def wait(self, job, within=300):
        end = time.time() + within
        while (state := self.good(f"/v1/train/{job['id']}"))["status"] in ("queued", "running"):
            assert time.time() < end, state
            time.sleep(0.01)
        return state

    def step(self, groups, **options):
        state = self.wait(self.train(groups, **options))
        assert state["status"] == "done", state
        return state

    def newest(self):
        return self.good("/v1/models")["data"][0]["policy_step"]


def adapter(run, step):
    return Path(run, f"checkpoints/{step:04d}/adapter_model.safetensors").read_bytes()


def new(run, *more):
    shutil.rmtree(run, ignore_errors=True)
    return Server(run, "--model", "chatty", *SETTINGS, *more)


def test_a_job():
    with new("job") as s:
        groups = s.groups("job", 1)
        job = s.train(groups)
        assert job["step"] == 1
        state = s.wait(job)
        assert state["status"] == "done" and state["progress"] == 1 and state["error"] is None
        # what was sampled over the wire is what the trainer computes, bit for bit
        assert state["metrics"]["on_policy/max_gap"] == 0 and state["metrics"]["ratio/max"] == 1
        assert state["metrics"]["grad_norm"] > 0 and not state["nothing_to_train"]
        assert s.newest() == 1 and s.chat("job", "Q:1+1=?", 1)["policy_step"] == 1
        assert s.chat("job@0", "Q:1+1=?", 1)["policy_step"] == 0
        assert s.chat("base", "Q:1+1=?", 1)["choices"][0]["message"] == s.chat("job@0", "Q:1+1=?", 1)["choices"][0]["message"]
        assert [line["step"] for line in s.good("/v1/history")["data"]] == [1]
        assert s.good("/v1/history?after=1")["data"] == []
        assert s.bad(400, "/v1/history?after=x") and s.bad(404, "/v1/train/nothing")
        first, second = s.good("/v1/checkpoints")["data"]
        assert first["step"] == 0 and second["metrics"]["loss"] == state["metrics"]["loss"]
        # groups of an earlier policy have no gap to measure, nor have those of a policy that is not known
        for changed in (None, 7):
            for t in (t for group in groups for t in group["trajectories"]):
                t["messages_and_choices"][1]["policy_step"] = 0 if changed is None else changed
            assert "on_policy/max_gap" not in s.step(groups)["metrics"]
        s.stop()
    # the same step, made by the command line on the trajectories that the run has kept
    kept = Path("job/trajectories/train/0001.jsonl")
    command = [REIN, "train", "again", "--model", "chatty", "--groups", kept, *SETTINGS]
    shutil.rmtree("again", ignore_errors=True)
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert adapter("again", 1) == adapter("job", 1)


def test_the_policy_learns():
    with new("learns") as s:
        lengths = []
        for step in range(6 if FAST else 12):
            groups = s.groups("learns", step)
            lengths += [sum(len(t["messages_and_choices"][1]["logprobs"]["content"]) for g in groups for t in g["trajectories"])]
            s.step(groups)
        assert lengths[-1] < 0.8 * lengths[0], lengths


def test_options():
    with new("options", "--adapter-root", ".") as s:
        groups = s.groups("options", 1)
        assert s.step(groups, learning_rate=0, kl_penalty_coef=1.0, kl_penalty_reference_step=0)["metrics"]["kl_policy_ref"] == 0
        # options are of one job: the next one has those of the run
        assert s.step(groups)["metrics"]["learning_rate"] == 1e-2
        assert s.step(groups, minibatches=2, learning_rate=[1e-2, 2e-2])["metrics"]["learning_rate"] == 1.5e-2
        assert s.step(groups, preset="art", importance_sampling_level="sequence", epsilon=None)["metrics"]["loss"] != 0
        assert s.step(groups, kl_penalty_coef=1.0, kl_ref_adapter_path="options/checkpoints/0001")["step"] == 5
        body = {"trajectory_groups": groups}
        for wrong, param in [
            ({"learning_rate": 2}, "learning_rate"),
            ({"learning_rate": [1, "x"]}, "learning_rate"),
            ({"learning_rates": 1}, "learning_rates"),
            ({"task": "sums"}, "task"),
            ({"model": "options", "seed": 4}, "seed"),
            ({"threads": 4}, "threads"),
            ({"keep_last": 1}, "keep_last"),
            ({"kl_penalty_coef": {}}, "kl_penalty_coef"),
            ({"kl_penalty_coef": -1}, "kl_penalty_coef"),
            ({"kl_ref_adapter_path": "/etc"}, "kl_ref_adapter_path"),
            ({"preset": "none such"}, "preset"),
            ({"preset": "reinforce", "kl_penalty_reference_step": 0}, "kl_penalty_reference_step"),
        ]:
            assert s.bad(400, "/v1/train", {**body, **wrong}, param), wrong
        for wrong, param in [
            (None, "trajectory_groups"),
            ([], "trajectory_groups"),
            ([{"trajectories": []}], "trajectory_groups"),
            ([1], "trajectory_groups"),
            ([{"trajectories": [{"reward": 1}]}], "trajectory_groups[0].trajectories"),
            ([groups[0], {"trajectories": [{"messages_and_choices": []}]}], "trajectory_groups[1].trajectories[0].reward"),
        ]:
            s.bad(400, "/v1/train", {"trajectory_groups": wrong}, param)
        said = s.bad(400, "/v1/train", {**body, "kl_penalty_coef": 1.0, "kl_penalty_reference_step": 99}, "kl_penalty_reference_step")
        assert "it has 0, 1, 2, 3, 4, 5" in said, said
        # a step that a job before it makes is there by then
        jobs = [s.train(groups, epochs=4), s.train(groups, kl_penalty_coef=1.0, kl_penalty_reference_step=6)]
        s.bad(400, "/v1/train", {**body, "kl_penalty_coef": 1.0, "kl_penalty_reference_step": 8}, "kl_penalty_reference_step")
        assert [s.wait(job)["status"] for job in jobs] == ["done", "done"]
        # groups without a trajectory, in which every rollout failed, are left out
        assert s.step([*groups, {"trajectories": [], "exceptions": [{"type": "E"}]}])["step"] == 8


def test_nothing_to_train():
    with new("equal") as s:
        groups = s.groups("equal", 1)
        for group in groups:
            for trajectory in group["trajectories"]:
                trajectory["reward"] = 1.0
        state = s.step(groups)
        assert state["nothing_to_train"] and s.newest() == 1
        assert adapter("equal", 0) == adapter("equal", 1)


def test_queue_events_and_cancel():
    with new("queue") as s:
        groups = s.groups("queue", 1) * 8
        seen = []

        def listen(path):
            events = s.good(path)
            return [json.loads(event.removeprefix("data: ")) for event in events.split("\n\n") if event.startswith("data: ")]

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            # the first one takes long: the second cannot be done before it is cancelled
            jobs = [s.train(groups, epochs=epochs) for epochs in (20, 1, 1)]
            assert [job["step"] for job in jobs] == [1, 2, 3]
            streams = [pool.submit(listen, f"/v1/train/{job['id']}/events") for job in jobs]
            cancelled = s.good(f"/v1/train/{jobs[1]['id']}/cancel", {})
            assert cancelled["status"] in ("queued", "running", "cancelled")
            states = [s.wait(job) for job in jobs]
            seen = [stream.result() for stream in streams]
        assert [state["status"] for state in states] == ["done", "cancelled", "done"]
        assert states[2]["step"] == 2 and s.newest() == 2
        for events, state in zip(seen, states, strict=True):
            assert events[-1] == state
            shares = [event["progress"] for event in events]
            assert shares == sorted(shares)
        # one that has ended stays as it is
        assert s.good(f"/v1/train/{jobs[0]['id']}/cancel", {})["status"] == "done"
        assert len(listen(f"/v1/train/{jobs[0]['id']}/events")) == 1
        # somebody who listens to everything, and goes away
        s.bad(404, "/v1/train/nothing/events")
        everything = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
        everything.request("GET", "/v1/events")
        response = everything.getresponse()
        job = s.train(groups[:4])
        text = b""
        while b'"status": "done"' not in text:
            more = response.read1(1 << 16)
            assert more, text[-500:]
            text += more
        everything.close()
        assert s.wait(job)["status"] == "done"


def test_cancel_at_any_moment():
    """A job that is cancelled leaves the policy, its optimizer and the run as they were."""
    with new("calm") as calm, new("cut") as cut:
        groups = [calm.groups("calm", seed) for seed in range(3)]
        for k, group in enumerate(groups):
            calm.step(group, epochs=2)
            for delay in (0, 0.005, 0.02, 0.06) if FAST else (0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1):
                # a job that takes seconds: it cannot be done before it is cancelled
                job = cut.train(groups[2 - k] * 10, epochs=10, kl_loss_coef=0.1, kl_penalty_reference_step=0)
                time.sleep(delay)
                cut.good(f"/v1/train/{job['id']}/cancel", {})
                state = cut.wait(job)
                assert state["status"] == "cancelled" and cut.newest() == k, state
            cut.step(group, epochs=2)
            assert adapter("calm", k + 1) == adapter("cut", k + 1)


def test_kill():
    """kill -9 in mid-step: the run resumes, and the next steps have the bits of a server that was never killed."""
    with new("alive") as s:
        groups = [s.groups("alive", seed) for seed in range(3)]
        for group in groups:
            s.step(group, epochs=3)
    for delay in (0.01, 0.05) if FAST else (0.01, 0.02, 0.05, 0.08, 0.12):
        s = new("killed")
        s.step(groups[0], epochs=3)
        s.train(groups[1], epochs=3)
        time.sleep(delay)
        s.process.kill()
        s.process.communicate()
        with Server("killed") as s:
            step = s.newest()
            assert step in (1, 2)
            for group in groups[step:]:
                s.step(group, epochs=3)
        for step in range(4):
            assert adapter("alive", step) == adapter("killed", step), (delay, step)


def test_full_disk():
    """No room: the job fails with the reason, serving continues, and the run is intact."""
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", make("small")]).returncode:
        print("skipped: a small disk cannot be mounted")
        return
    try:
        with Server("small/run", "--model", "chatty", *SETTINGS, "--name", "full") as s:
            groups = s.groups("full", 1)
            s.step(groups)
            rest = os.open("small/rest", os.O_CREAT | os.O_WRONLY)
            try:
                while os.write(rest, bytes(4096)):
                    pass
            except OSError:
                os.close(rest)
            state = s.wait(s.train(groups))
            assert state["status"] == "failed" and "space" in state["error"].lower(), state
            assert s.newest() == 1 and s.chat("full", "Q:1+1=?", 1)["policy_step"] == 1
            os.remove("small/rest")
            assert s.step(groups)["step"] == 2
    finally:
        subprocess.run(["umount", "small"], check=True)


def make(directory):
    os.makedirs(directory, exist_ok=True)
    return directory


def test_a_run_called_like_its_model():
    shutil.rmtree("names", ignore_errors=True)
    with Server("names/chatty", "--model", "chatty", *SETTINGS) as s:
        s.step(s.groups("chatty", 1))
        assert s.chat("chatty", "Q:1+1=?", 1)["policy_step"] == 1
        assert [m["id"] for m in s.good("/v1/models")["data"]] == ["chatty", "chatty@0", "chatty@1", "base"]


def test_checkpoints():
    with new("tidy") as s:
        groups = s.groups("tidy", 1)
        for _ in range(3):
            s.step(groups)
        held = s.chat("tidy@1", "Q:1+1=?", 1)
        answer = s.good("/v1/checkpoints", {"steps": [0, 1, 3, 8]}, method="DELETE")
        assert answer == {"deleted": [1], "kept": [0, 3], "not_found": [8]}
        assert [one["step"] for one in s.good("/v1/checkpoints")["data"]] == [0, 2, 3]
        assert "tidy@1" not in [model["id"] for model in s.good("/v1/models")["data"]]
        assert held["policy_step"] == 1
        s.bad(400, "/v1/checkpoints", {"steps": [-1]}, "steps", method="DELETE")
        s.bad(400, "/v1/checkpoints", {"step": [1]}, "step", method="DELETE")
        s.bad(405, "/v1/checkpoints", {"steps": [1]})
        assert s.step(groups, kl_penalty_coef=1.0, kl_penalty_reference_step=0)["step"] == 4


def test_serving_while_training():
    """Samples come while a step trains, from the policy of before, and with the bits that they have alone."""
    with new("both") as s:
        groups = s.groups("both", 1)
        alone = [s.chat("both", text, 7)["choices"] for text in PROMPTS]
        job = s.train(groups * 20, epochs=4)
        during = 0
        while s.good(f"/v1/train/{job['id']}")["status"] in ("queued", "running"):
            answers = [s.chat("both@0", text, 7)["choices"] for text in PROMPTS]
            assert answers == alone
            during += 1
        assert s.wait(job)["status"] == "done" and during, during


def test_full_weights():
    """All weights train: the newest policy and base are served, other steps are not."""
    shutil.rmtree("whole", ignore_errors=True)
    with Server("whole", "--model", "chatty", "--full", "--preset", "grpo", "--learning-rate", "1e-3") as s:
        base = s.chat("base", "Q:3+4=?", 5)["choices"]
        assert s.chat("whole", "Q:3+4=?", 5)["choices"] == [{**choice, "policy_step": 0} for choice in base]
        for step in (1, 2):
            assert s.step(s.groups("whole", step))["metrics"]["on_policy/max_gap"] == 0
            assert s.chat("whole", "Q:3+4=?", 5)["policy_step"] == step
            assert s.chat("base", "Q:3+4=?", 5)["choices"] == base
        assert "newest policy and base" in s.bad(404, "/v1/chat/completions", {"model": "whole@1", "messages": []}, "model")
        assert [m["id"] for m in s.good("/v1/models")["data"]] == ["whole", "whole@2", "base", "chatty"]


def test_stop_while_training():
    s = new("stop", "--grace", "1")
    groups = s.groups("stop", 1)
    s.step(groups)
    s.train(groups * 100, epochs=1000)  # would take many minutes
    time.sleep(0.2)
    s.stop(within=120)
    with Server("stop") as s:
        assert s.newest() == 1 and s.step(groups)["step"] == 2


def test_run_of_another_process():
    """A run that is being written is served, and cannot be trained."""
    with new("taken") as s:
        groups = s.groups("taken", 1)
        with Server("taken") as other:
            assert other.newest() == 0
            assert "being written by process" in other.bad(400, "/v1/train", {"trajectory_groups": groups})
    with Server("--model", "chatty") as model:
        assert "does not train" in model.bad(400, "/v1/train", {"trajectory_groups": groups})
        model.bad(400, "/v1/checkpoints")
        model.bad(400, "/v1/events")


def test_art_routes():
    """What ART's ServerlessBackend asks for; the client itself is in make parity."""
    with new("art") as s:
        asked = {"entity": None, "project": "p", "name": "agent", "base_model": "any", "return_existing": True}
        model = s.good("/v1/preview/models", asked)
        assert model["entity"] and model["name"] == "agent" and model["run_id"]
        assert s.good("/v1/preview/models", asked) == model
        assert "agent" in s.bad(409, "/v1/preview/models", {**asked, "name": "other"}, "name")
        name = f"wandb-artifact:///{model['entity']}/p/agent"
        answer = s.chat(name, "Q:1+1=?", 1, logprobs=None, return_tokens_as_token_ids=None)
        entries = answer["choices"][0]["logprobs"]["content"]
        assert entries and all(entry["token"].startswith("token_id:") for entry in entries)
        groups = s.groups(name + ":step0", 1)
        config = {
            "learning_rate": 1e-3, "ppo": False, "epsilon": None, "mask_prob_ratio": False, "precalculate_logprobs": False,
            "scale_rewards": True, "advantage_balance": 0.0, "importance_sampling_level": "geometric_average",
        }  # fmt: skip
        body = {"model_id": model["id"], "trajectory_groups": groups, "experimental_config": config}
        job = s.good("/v1/preview/training-jobs", body)
        path = f"/v1/preview/training-jobs/{job['id']}/events"
        s.wait(job)
        events = s.good(path)["data"]
        assert [event["type"] for event in events] == ["training_started", "gradient_step", "training_ended"]
        assert events[1]["data"]["loss"] is not None and events[0]["data"]["num_sequences"] == 1
        assert s.good(f"{path}?after={events[1]['id']}")["data"] == events[2:]
        job = s.good("/v1/preview/training-jobs", {**body, "experimental_config": {**config, "ppo": True}})
        assert s.wait(job)["status"] == "done"
        missing = {"kl_penalty_coef": 1, "kl_penalty_reference_step": 9}
        said = s.bad(400, "/v1/preview/training-jobs", {**body, "experimental_config": missing}, "kl_penalty_reference_step")
        assert "no checkpoint of step 9; it has 0, 1, 2" in said, said
        s.bad(400, "/v1/preview/training-jobs", {**body, "experimental_config": {"mask_prob_ratio": True}}, "mask_prob_ratio")
        s.bad(404, "/v1/preview/training-jobs", {**body, "model_id": "x"}, "model_id")
        listed = s.good(f"/v1/preview/models/{model['id']}/checkpoints?limit=1&order=desc")
        assert [one["step"] for one in listed["data"]] == [2] and listed["has_more"]
        answer = s.good(f"/v1/preview/models/{model['id']}/checkpoints", {"steps": [0, 1, 7]}, method="DELETE")
        assert answer["deleted_count"] == 1 and answer["not_found_steps"] == [7]
        s.good(f"/v1/preview/models/{model['id']}", method="DELETE")
        s.bad(404, "/v1/chat/completions", {"model": name, "messages": []}, "model")


def main():
    passed = failed = 0
    wanted = sys.argv[2:]
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (wanted and name not in wanted):
            continue
        began = time.time()
        try:
            test()
            passed += 1
        except Exception:
            failed += 1
            print(f"FAIL {name}")
            traceback.print_exc()
        if wanted or time.time() - began > 20:
            print(f"{name}: {time.time() - began:.1f} s")
    print(f"{passed} passed, {failed} failed")


if __name__ == "__main__":
    main()
