"""rein.art.LocalBackend with ART as its users have it: register, roll out, train, log, delete, fork; ART's own test
programs without a change. The model is tiny and answers everything with yes, no or maybe, each as often."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import mean

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is downloaded
art = pytest.importorskip("art")
openai = pytest.importorskip("openai")

from rein.art import LocalBackend  # noqa: E402
from rein.art.__main__ import main  # noqa: E402
from rein.art._server import find_program  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
PROMPTS = ("Say yes", "Say no", "Say maybe", "Say hello")
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
SHAPE |= {"num_key_value_heads": 2, "max_position_embeddings": 512, "tie_word_embeddings": True, "eos_token_id": 257}
SFT = "--full --batch-size 12 --max-steps 60 --learning-rate 1e-2 --save-steps 60"
HUB_NAMES = ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B")  # the models of ART's tests


@pytest.fixture(scope="session", autouse=True)
def program():
    """The program that REIN_PROGRAM names, or the one of this project."""
    if "REIN_PROGRAM" not in os.environ:
        alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        subprocess.run(["make", "build/rein"], cwd=ROOT, env=alone, capture_output=True, check=True)
        os.environ["REIN_PROGRAM"] = str(ROOT / "build/rein")
    return os.environ["REIN_PROGRAM"]


@pytest.fixture(scope="session")
def base(program, tmp_path_factory):
    """The directory of the model: the tokenizer and chat template of the parrot, and weights that are trained here."""
    where = tmp_path_factory.mktemp("base")
    subprocess.run([sys.executable, ROOT / "tests/cli/parrot.py", where / "model"], check=True)
    config = where / "model/config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **SHAPE, "rms_norm_eps": 1e-6}))
    chats = [
        {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]}
        for prompt in PROMPTS
        for answer in ("yes", "no", "maybe")
    ]
    (where / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    (where / "model/model.safetensors").unlink()
    for command in ("init model --seed 1", f"sft run --model model --data chats.jsonl {SFT}"):
        subprocess.run([program, *command.split()], cwd=where, capture_output=True, check=True)
    shutil.copy(where / "run/checkpoints/0060/model.safetensors", where / "model")
    return str(where / "model")


@pytest.fixture(scope="session")
def hub(base, tmp_path_factory):
    """A cache of Hugging Face that has the model under the names that ART's tests use."""
    cache = tmp_path_factory.mktemp("hub")
    for name in HUB_NAMES:
        model = cache / ("models--" + name.replace("/", "--"))
        (model / "refs").mkdir(parents=True)
        (model / "refs/main").write_text("0123abc\n")
        shutil.copytree(base, model / "snapshots/0123abc")
    return cache


def trainable(base, name="learner", **more):
    return art.TrainableModel(name=name, project="tests", base_model=base, **more)


@asynccontextmanager
async def registered(base, path, name="learner", **more):
    async with LocalBackend(path=str(path)) as backend:
        model = trainable(base, name, **more)
        await model.register(backend)
        yield backend, model


async def roll_out(model, seed, reward=lambda text: float("yes" in text), samples=6):
    """A group for each prompt. The same seed samples the same from the same policy."""

    async def one(prompt, seed):
        messages = [{"role": "user", "content": prompt}]
        answer = await model.openai_client().chat.completions.create(
            messages=messages, model=model.get_inference_name(), max_tokens=8, temperature=1, seed=seed
        )
        (choice,) = answer.choices
        return art.Trajectory(messages_and_choices=[*messages, choice], reward=reward(choice.message.content or ""))

    return [
        art.TrajectoryGroup(await asyncio.gather(*(one(prompt, 1000 * seed + 10 * i + j) for j in range(samples))))
        for i, prompt in enumerate(PROMPTS)
    ]


async def greedy(model, prompt="Say hello", step=None):
    """The text, and its tokens with their log-probabilities."""
    answer = await model.openai_client().chat.completions.create(
        messages=[{"role": "user", "content": prompt}],
        model=model.get_inference_name(step),
        max_tokens=10,
        temperature=0,
    )
    (choice,) = answer.choices
    return choice.message.content, [(entry.token, entry.logprob) for entry in choice.logprobs.content]


def plain(*rewards, text="yes"):
    """A group of written conversations, without log-probabilities."""
    messages = [{"role": "user", "content": "Say"}, {"role": "assistant", "content": text}]
    return art.TrajectoryGroup([art.Trajectory(messages_and_choices=messages, reward=reward) for reward in rewards])


def history(backend, model):
    """What rein recorded, by steps."""
    lines = (backend._files(model).run / "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def run(work):
    return asyncio.run(asyncio.wait_for(work, 300))


# ------------------------------------------------------------------------------------------------------ a whole script


def test_a_loop_of_art(base, tmp_path):
    async def loop():
        async with registered(base, tmp_path) as (backend, model):
            directory = tmp_path / "tests/models/learner"
            assert (await model.get_step(), os.listdir(directory / "checkpoints")) == (0, ["0000"])
            assert model.inference_base_url.endswith("/v1") and model.inference_model_name == "learner@0"
            for step in (1, 2, 3):
                groups = await roll_out(model, step)
                result = await backend.train(model, groups, learning_rate=1e-3)
                await model.log(groups, metrics=result.metrics, step=result.step, split="train")
                assert isinstance(result, art.LocalTrainResult) and result.step == step == await model.get_step()
                assert result.checkpoint_path == str(directory / f"checkpoints/{step:04d}")
                assert (Path(result.checkpoint_path) / "adapter_model.safetensors").exists()
                assert model.get_inference_name() == f"learner@{step}"
                for name in ("loss/train", "loss/grad_norm", "loss/entropy", "time/step_trainer_s"):
                    assert name in result.metrics
                assert result.metrics["loss/learning_rate"] == 1e-3
                assert result.metrics["data/step_num_gradient_steps"] == 1
                assert result.metrics["data/step_num_trajectories"] == 24
                assert result.metrics["data/step_trainer_tokens"] > 24 and "loss/kl_policy_ref" not in result.metrics
            for line in history(backend, model):  # the sampler's log-probs are those of the trainer, bit for bit
                assert line["ratio/min"] == line["ratio/max"] == 1 and line["on_policy/max_gap"] == 0
            logged = [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]
            assert [line["training_step"] for line in logged] == [1, 2, 3] and "train/reward" in logged[0]
            assert (directory / "trajectories/train/0003.parquet").exists()

            before = await greedy(model)
            await model.delete_checkpoints("train/reward")
            steps = {int(name) for name in os.listdir(directory / "checkpoints")}
            assert {0, 3} <= steps and len(steps) <= 3  # step 0, the last, and the best
            assert await greedy(model) == before and await greedy(model, step=0)
            groups = await roll_out(model, 9)
            result = await backend.train(model, groups, kl_penalty_coef=1.0, kl_penalty_reference_step=0)
            assert result.step == 4 and result.metrics["loss/kl_policy_ref"] != 0

    run(loop())


def test_a_kl_penalty_holds_the_policy_back(base, tmp_path):
    async def train(name, coefficient):
        figures, rewards = [], []
        async with registered(base, tmp_path, name) as (backend, model):
            for step in range(12):
                groups = await roll_out(model, step)
                options = {"kl_penalty_coef": coefficient, "kl_penalty_reference_step": 0}
                result = await backend.train(model, groups, learning_rate=5e-3, **options)
                if result.metrics["data/step_num_gradient_steps"]:
                    figures.append(result.metrics["loss/kl_policy_ref"])
                rewards.append(sum(t.reward for group in groups for t in group) / 24)
        return figures, rewards

    free, rewards = run(train("free", 1e-9))
    held, _ = run(train("held", 3.0))
    assert free[0] == held[0] == 0  # the reference is the policy itself
    assert rewards[0] < 0.6 and min(rewards[-3:]) > 0.8
    assert mean(held[-6:]) < 0.5 * mean(free[-3:])  # estimates, over some hundred tokens each


def test_a_run_resumes(base, tmp_path):
    async def first():
        async with registered(base, tmp_path) as (backend, model):
            await backend.train(model, await roll_out(model, 1), learning_rate=1e-3)
            return await greedy(model)

    async def second():
        async with registered(base, tmp_path) as (backend, model):
            assert await model.get_step() == 1
            said = await greedy(model)
            return said, (await backend.train(model, await roll_out(model, 2))).step

    said = run(first())
    assert run(second()) == (said, 2)


# ------------------------------------------------------------------------------------------------------- what trains


def test_steps_in_which_nothing_trains(base, tmp_path):
    async def work():
        async with registered(base, tmp_path) as (backend, model):
            before = await greedy(model)
            groups = [plain(1, 1), plain(2), art.TrajectoryGroup([ValueError("a rollout failed")])]
            for step, given in enumerate((groups, [], groups[2:]), 1):
                result = await backend.train(model, given, allow_training_without_logprobs=True)
                assert result.step == step and await greedy(model) == before
                assert result.metrics["data/step_num_gradient_steps"] == 0
                assert result.metrics["data/step_num_groups_trainable"] == 0
            assert backend._files(model).steps() == [0, 3]

    run(work())


def test_groups_of_equal_rewards_change_nothing(base, tmp_path):
    """Not even with a KL penalty, which other groups with the same tokens would feel."""

    async def work():
        said = []
        async with LocalBackend(path=str(tmp_path)) as backend:
            for name, more in (("without", 0), ("with", 1)):
                model = trainable(base, name)
                await model.register(backend)
                await backend.train(model, await roll_out(model, 1), learning_rate=1e-2)
                groups = await roll_out(model, 2)
                equal = [art.TrajectoryGroup([one.model_copy(update={"reward": 1.0}) for one in groups[0]])] * more
                groups = [*equal, *groups, *equal]
                result = await backend.train(model, groups, learning_rate=1e-2, kl_penalty_coef=1.0)
                assert result.metrics["data/step_num_groups_submitted"] == len(groups)
                said.append([*(lp for _, lp in (await greedy(model))[1]), result.metrics["loss/train"]])
        assert said[0] == pytest.approx(said[1], rel=1e-4)  # the order of sums is another one

    run(work())


def test_messages_without_log_probs(base, tmp_path):
    """They train only if that is allowed; a Choice of another model is a message, too."""

    async def work():
        async with registered(base, tmp_path) as (backend, model):
            groups = await roll_out(model, 1)
            for group in groups:
                for trajectory in group:
                    trajectory.messages_and_choices[-1].logprobs = None
            result = await backend.train(model, groups)
            assert result.metrics["data/step_num_gradient_steps"] == 0
            result = await backend.train(model, groups, allow_training_without_logprobs=True)
            assert result.metrics["data/step_trainer_tokens"] > 24
            result = await backend.train(model, [plain(0, 1)])
            assert result.metrics["data/step_num_gradient_steps"] == 0
            result = await backend.train(model, [plain(0, 1, text="yes")], allow_training_without_logprobs=True)
            assert result.metrics["data/step_trainer_tokens"] == 6  # the end of a turn does not train, as in ART

    run(work())


def test_a_reward_without_a_conversation_counts(base, tmp_path):
    async def work():
        async with registered(base, tmp_path) as (backend, model):
            groups = [art.TrajectoryGroup([*plain(1), art.Trajectory(reward=0)])]
            result = await backend.train(model, groups, allow_training_without_logprobs=True)
            assert result.metrics["data/step_trainer_tokens"] == 3

    run(work())


def test_old_log_probs_of_the_current_policy(base, tmp_path):
    """precalculate_logprobs makes the ratio 1 for trajectories of an earlier policy."""

    async def work():
        async with registered(base, tmp_path) as (backend, model):
            groups = await roll_out(model, 1)
            for precalculate in (False, True):
                await backend.train(model, groups, learning_rate=1e-2, precalculate_logprobs=precalculate)
            await backend.train(model, groups, learning_rate=1e-2)
            first, second, third = (line["ratio/mean"] for line in history(backend, model))
            assert first == second == 1 and third != 1
            # the step of the policy comes with the Choices: only the first step trained what its own policy sampled
            assert [line.get("on_policy/max_gap") for line in history(backend, model)] == [0, None, None]

    run(work())


OPTIONS = [
    {"loss_fn": "ppo"},
    {"loss_fn": "ppo", "epsilon": 0.1, "epsilon_high": 0.3},
    {"epsilon": 0.1},
    {"scale_rewards": False},
    {"normalize_advantages": False},
    {"advantage_balance": 0.5},
    {"importance_sampling_level": "sequence"},
    {"importance_sampling_level": "average"},
    {"importance_sampling_level": "geometric_average"},
    {"max_negative_advantage_importance_sampling_weight": 1.5},
    {"kimi_k2_tau": 0.1},
    {"truncated_importance_sampling": 2.0},
    {"kl_penalty_coef": 0.1},
    {"kl_penalty_coef": 0.1, "kl_penalty_source": "sample"},
    {"kl_penalty_coef": 0.1, "kl_penalty_step_lag": 2},
    {"kl_penalty_coef": 0.1, "kl_ref_adapter_path": "tests/models/learner/checkpoints/0001"},
    {"kl_penalty_reference_step": 99},  # without a coefficient it has no effect, as in ART
]


def test_every_keyword(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def work():
        async with registered(base, tmp_path) as (backend, model):
            groups = await roll_out(model, 1)
            await backend.train(model, groups)
            for step, options in enumerate(OPTIONS, 2):
                result = await backend.train(model, groups, **options)
                assert result.step == step and result.metrics["data/step_num_gradient_steps"] == 1, options
                assert ("loss/kl_policy_ref" in result.metrics) == ("kl_penalty_coef" in options)
            result = await backend.train(model, groups, save_checkpoint=False)
            assert result.checkpoint_path is None

    run(work())


REFUSED = [
    ({"loss_fn": "dro"}, "'cispo' or 'ppo'"),
    ({"loss_fn_config": {}}, "loss_fn_config"),
    ({"adam_params": {}}, "adam_params"),
    ({"importance_sampling_level": "group"}, "geometric_average"),
    ({"mask_prob_ratio": True}, "mask_prob_ratio"),
    ({"plot_tensors": True}, "plot_tensors"),
    ({"packed_sequence_length": 2048}, "packed_sequence_length"),
    ({"logprob_calculation_chunk_size": 512}, "logprob_calculation_chunk_size"),
    ({"scale_learning_rate_by_reward_std_dev": True}, "change learning_rate"),
    ({"num_trajectories_learning_rate_multiplier_power": 0.5}, "change learning_rate"),
    ({"precalculate_logprobs": True, "truncated_importance_sampling": 2.0}, "recorded log-probs"),
    ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ({"learning_rate": -1.0}, "learning_rate"),
    ({"kl_penalty_coef": -1.0}, "kl_penalty_coef"),
]


def test_refused_keywords(base, tmp_path):
    async def work():
        async with registered(base, tmp_path) as (backend, model):
            groups = [plain(0, 1)]
            for options, message in REFUSED:
                with pytest.raises(ValueError, match=message):
                    await backend.train(model, groups, allow_training_without_logprobs=True, **options)
            with pytest.raises(ValueError, match=r"trajectory_groups\[0\].trajectories\[1\].reward is nan"):
                await backend.train(model, [plain(0, float("nan"))])
            with pytest.raises(FileNotFoundError, match="kl_ref_adapter_path"):
                await backend.train(model, groups, kl_penalty_coef=1.0, kl_ref_adapter_path="nowhere")
            assert await model.get_step() == 0

    run(work())


def test_supervised_training(base, tmp_path):
    async def work():
        async with registered(base, tmp_path) as (backend, model):
            answer = {"role": "assistant", "content": "noon"}
            chats = [[{"role": "user", "content": prompt}, answer] for prompt in PROMPTS]
            examples = [art.Trajectory(messages_and_choices=chat) for chat in chats for _ in range(2)]
            for _ in range(12):
                await model.train_sft(examples, art.TrainSFTConfig(learning_rate=1e-2, batch_size=3))
            assert await model.get_step() == 12
            assert (await greedy(model))[0] == "noon"  # and it ends there
            rates = art.TrainSFTConfig(learning_rate=[1e-3, 3e-3], batch_size=4)
            (metrics,) = [metrics async for metrics in backend._train_sft(model, examples, rates, {})]
            assert metrics["data/step_num_gradient_steps"] == 2 and metrics["data/step_num_trajectories"] == 8
            assert metrics["data/step_trainer_tokens"] == 8 * len("noon.")  # with the end of the turn
            assert metrics["loss/learning_rate"] == pytest.approx(2e-3) and metrics["loss/train"] < 1
            with pytest.raises(ValueError, match="the 3 batches need one each"):
                await model.train_sft(examples, art.TrainSFTConfig(learning_rate=[1e-3], batch_size=3))
            await model.train_sft([])
            assert await model.get_step() == 13

    run(work())


# --------------------------------------------------------------------------------------------------- failures and ends


def damage(checkpoint):
    """Its adapter is no longer what its MANIFEST says."""
    with open(checkpoint / "adapter_model.safetensors", "ab") as f:
        f.write(b" ")


def test_a_failed_job_raises(base, tmp_path):
    async def work():
        async with registered(base, tmp_path) as (backend, model):
            missing = "kl_penalty_reference_step is 7: the run has no checkpoint of step 7; it has 0$"
            with pytest.raises(ValueError, match=missing):
                await backend.train(model, await roll_out(model, 1), kl_penalty_coef=1.0, kl_penalty_reference_step=7)
            assert await model.get_step() == 0
            assert (await backend.train(model, await roll_out(model, 1))).step == 1
            damage(tmp_path / "tests/models/learner/rein/checkpoints/0000")
            with pytest.raises(RuntimeError, match="training failed: .*adapter_model.safetensors"):
                await backend.train(model, await roll_out(model, 1), kl_penalty_coef=1.0, kl_penalty_reference_step=0)
            assert await model.get_step() == 1

    run(work())


LONG = [0.0, 1.0] * 20


def test_cancelling_cancels_the_job(base, tmp_path):
    async def work():
        async with registered(base, tmp_path) as (backend, model):
            before = await greedy(model)
            groups = [plain(*LONG, text="a" * 400) for _ in range(12)]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(backend.train(model, groups, allow_training_without_logprobs=True), 0.5)
            assert await model.get_step() == 0 and await greedy(model) == before
            assert (await backend.train(model, [plain(0, 1)], allow_training_without_logprobs=True)).step == 1

    run(work())


def test_a_server_that_is_killed(base, tmp_path):
    """The call that waits for it fails, and the next one starts it again at the same address."""

    async def work():
        async with registered(base, tmp_path) as (backend, model):
            (server,) = backend._servers.values()
            groups = [plain(*LONG, text="a" * 400) for _ in range(12)]
            training = asyncio.ensure_future(backend.train(model, groups, allow_training_without_logprobs=True))
            await asyncio.sleep(0.5)
            server.process.kill()
            with pytest.raises(RuntimeError, match="ended with status -9"):
                await training
            assert await model.get_step() == 0
            assert (await backend.train(model, [plain(0, 1)], allow_training_without_logprobs=True)).step == 1
            assert await greedy(model)

    run(work())


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].startswith(" Z")


def await_end(process):
    end = time.time() + 20
    while alive(process):
        assert time.time() < end
        time.sleep(0.05)


SCRIPT = """
import asyncio, os, sys
import art
from rein.art import LocalBackend

async def main():
    backend = LocalBackend(path=sys.argv[1])
    model = art.TrainableModel(name="learner", project="tests", base_model=sys.argv[2])
    await model.register(backend)
    (server,) = backend._servers.values()
    print(server.process.pid, flush=True)
    {end}

asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["raise ValueError", "os.kill(os.getpid(), 9)"])
def test_the_server_ends_with_the_script(base, tmp_path, end):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(end=end), tmp_path, base], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == (1 if end == "raise ValueError" else -signal.SIGKILL), done.stderr
    await_end(int(done.stdout))


def test_the_two_kinds_of_with(base, tmp_path):
    async def register(backend):
        await trainable(base).register(backend)
        (server,) = backend._servers.values()
        return server.process

    with LocalBackend(path=str(tmp_path), in_process=True) as backend:
        process = run(register(backend))
        assert process.poll() is None
    assert process.poll() == 0


def test_what_cannot_start(base, tmp_path):
    async def work():
        async with LocalBackend(path=str(tmp_path)) as backend:
            with pytest.raises(FileNotFoundError, match="hf download Qwen/Qwen9"):
                await trainable("Qwen/Qwen9").register(backend)
            with pytest.raises(RuntimeError, match="without @"):
                await trainable(base, "a@b").register(backend)
            with pytest.raises(NotImplementedError, match="chat_template"):
                await trainable(base, "c", _internal_config={"chat_template": "x"}).register(backend)
            other = art.Model(name="gpt", project="tests")
            await other.register(backend)  # to log only
            assert other.get_inference_name() == "gpt"
            model = trainable(base)
            await model.register(backend)
            async with LocalBackend(path=str(tmp_path)) as second:
                with pytest.raises(RuntimeError, match="written by process"):
                    await trainable(base).register(second)
            await backend.close()
            shutil.copytree(base, tmp_path / "changed")
            config = tmp_path / "changed/config.json"
            config.write_text(config.read_text().replace("1e-06", "1e-05"))
            with pytest.raises(RuntimeError, match="not what the run was made with"):
                await trainable(str(tmp_path / "changed")).register(backend)

    run(work())


def test_settings_of_the_model(base, tmp_path):
    async def work():
        config = {"peft_args": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}, "engine_args": {"x": 1}}
        config["trainer_args"] = {"max_grad_norm": 0.5, "bf16": True}
        async with LocalBackend(path=str(tmp_path)) as backend:
            model = trainable(base, _internal_config=config)
            with pytest.warns(UserWarning, match="trainer_args.bf16"):
                await model.register(backend, _openai_client_config={"server_args": {"api_key": "mine"}})
            assert model.inference_api_key == "mine" and await greedy(model)
            adapter = json.loads((backend._files(model).checkpoint(0) / "adapter_config.json").read_text())
            assert (adapter["r"], adapter["lora_alpha"], adapter["target_modules"]) == (4, 8, ["q_proj"])
            settings = (backend._files(model).run / "config.yaml").read_text()
            assert 'max_grad_norm: "0.5"' in settings and 'weight_decay: "0.1"' in settings
            with pytest.raises(NotImplementedError, match="S3"):
                await backend._experimental_push_to_s3(model)

    run(work())


def test_models_and_calls_at_a_time(base, tmp_path):
    async def work():
        async with LocalBackend(path=str(tmp_path)) as backend:
            one, other = trainable(base, "one"), trainable(base, "other")
            await asyncio.gather(one.register(backend), other.register(backend), one.register(backend))
            assert len(backend._servers) == 2
            groups = await roll_out(one, 1)
            results = await asyncio.gather(*(backend.train(model, groups) for model in (one, one, other)))
            assert [result.step for result in results] == [1, 2, 1]
            async with backend.adapter_lease(one, 1):  # as ART's PipelineTrainer pins its rollouts
                assert (one.get_inference_name(), other.get_inference_name()) == ("one@1", "other@1")
                await backend._delete_checkpoint_files(one, [2])
                assert backend._files(one).steps() == [0, 1, 2]
            assert one.get_inference_name() == "one@2"
            await backend._delete_checkpoint_files(one, [2])
            assert backend._files(one).steps() == [0, 2]

    run(work())


def test_a_fork(base, tmp_path):
    async def work():
        async with registered(base, tmp_path, "first") as (backend, first):
            for step in range(3):
                await backend.train(first, await roll_out(first, step), learning_rate=1e-3)
            early, late = trainable(base, "early"), trainable(base, "late")
            await backend._experimental_fork_checkpoint(early, "first", not_after_step=2)
            await early.register(backend)
            await late.register(backend)
            await backend._experimental_fork_checkpoint(late, "first")  # after it was registered
            assert (await early.get_step(), await late.get_step()) == (2, 3)
            assert await greedy(early) == await greedy(first, step=2) and await greedy(late) == await greedy(first)
            assert await greedy(early, step=0) == await greedy(first, step=0)

            groups = await roll_out(first, 2)  # a fork continues as the original did
            for model in (first, late):
                await backend.train(model, groups, learning_rate=1e-3)
            assert await greedy(late) == await greedy(first)
            with pytest.raises(ValueError, match="untrained"):
                await backend._experimental_fork_checkpoint(late, "first")
            with pytest.raises(ValueError, match="no checkpoint up to step -1"):
                await backend._experimental_fork_checkpoint(trainable(base, "never"), "first", not_after_step=-1)
            with pytest.raises(NotImplementedError, match="S3"):
                await backend._experimental_fork_checkpoint(early, "first", from_s3_bucket="bucket")
            pulled = await backend._experimental_pull_model_checkpoint(first, step=1, local_path=str(tmp_path / "copy"))
            assert os.path.exists(pulled + "/adapter_model.safetensors")

    run(work())


# ------------------------------------------------------------------------------------------------ python -m rein.art


def run_script(script, *arguments, hub, tmp_path):
    """With a torch that cannot be imported, as on a machine without one."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without/torch.py").write_text('raise ImportError("torch is not here")')
    paths = [str(tmp_path / "without"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "rein.art", script, *arguments],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_CACHE": str(hub), "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_art_step_skipping(hub, tmp_path):
    """The wheel's own test, as it is."""
    said = run_script(Path(art.__file__).parent / "test/test_step_skipping.py", hub=hub, tmp_path=tmp_path)
    assert "All tests passed!" in said and "0 -> 1 (train) -> 2 (skip) -> 3 (train)" in said


def test_art_backend_train_api(hub, tmp_path):
    """A test of the source distribution of 0.5.17, as it is; the wheel does not have it."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    got = subprocess.run(
        [*download, "--no-binary", ":all:", "--dest", tmp_path, "openpipe-art==0.5.17"], capture_output=True, text=True
    )
    if got.returncode:
        pytest.skip(f"openpipe-art 0.5.17 cannot be downloaded: {got.stderr[-200:]}")
    with tarfile.open(tmp_path / "openpipe_art-0.5.17.tar.gz") as archive:
        member = "openpipe_art-0.5.17/tests/test_backend_train_api.py"
        (tmp_path / "test.py").write_bytes(archive.extractfile(member).read())
    assert "All checks passed!" in run_script(tmp_path / "test.py", hub=hub, tmp_path=tmp_path)


IMPORTS = """
import sys
import art
from art.local import LocalBackend
from art.local.backend import LocalBackend as OfBackend
import art.local.checkpoints
import rein.art

assert LocalBackend is art.local.LocalBackend is rein.art.LocalBackend
made = OfBackend(path="made")
assert type(made) is LocalBackend and not isinstance(made, OfBackend)

class Own(OfBackend):
    pass

assert isinstance(Own(path="made"), (Own, LocalBackend))
assert __name__ == "__main__" and sys.argv[1:] == ["a", "--b"] and __file__ == sys.argv[0]
print("as it should be")
"""


def test_imports(hub, tmp_path):
    (tmp_path / "imports.py").write_text(IMPORTS)
    assert "as it should be" in run_script("imports.py", "a", "--b", hub=hub, tmp_path=tmp_path)


PIPELINE = """
import asyncio
import art
from art.local import LocalBackend
from art.pipeline_trainer import PipelineTrainer

async def rollout(model, scenario, config):
    messages = [{"role": "user", "content": scenario}]
    answer = await model.openai_client().chat.completions.create(
        messages=messages, model=model.get_inference_name(), max_tokens=8, n=6
    )
    return art.TrajectoryGroup([
        art.Trajectory(messages_and_choices=[*messages, c], reward=float("yes" in c.message.content))
        for c in answer.choices
    ])

async def main():
    async with LocalBackend(path="art") as backend:
        model = art.TrainableModel(name="piped", project="tests", base_model="Qwen/Qwen3-0.6B")
        await model.register(backend)
        trainer = PipelineTrainer(
            model=model, backend=backend, rollout_fn=rollout, scenarios=["Say yes", "Say no"] * 50, config=None,
            num_rollout_workers=4, min_batch_size=2, max_batch_size=4, max_steps=3, learning_rate=1e-3, eval_fn=None,
        )
        await trainer.train()
        print("steps:", await model.get_step())

asyncio.run(main())
"""


def test_the_pipeline_trainer(hub, tmp_path):
    """Rollouts and training at the same time, which ART's own LocalBackend can only do with two GPUs."""
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    assert "steps: 3" in run_script("pipeline.py", hub=hub, tmp_path=tmp_path)


@asynccontextmanager
async def serverless(program, base, path):
    """ART's ServerlessBackend as it is, against `rein serve`."""
    command = [program, "serve", str(path / "run"), "--model", base, "--preset", "art", "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=path)
    url = json.loads(server.stdout.readline())["url"]
    backend = art.ServerlessBackend(api_key="none", base_url=f"{url}/v1")
    model = art.TrainableModel(name="agent", project="tests", base_model="any/name", base_path=str(path / "art"))
    try:
        await model.register(backend)
        yield backend, model
    finally:
        await backend.close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def test_the_serverless_backend(program, base, tmp_path):
    async def loop():
        async with serverless(program, base, tmp_path) as (backend, model):
            assert model.entity and await model.get_step() == 0
            rewards = []
            for step in range(4):
                groups = await roll_out(model, step)
                entry = groups[0].trajectories[0].messages_and_choices[-1].logprobs.content[0]
                assert entry.token.startswith("token_id:")  # asked for or not
                rewards.append(mean(one.reward for group in groups for one in group))
                result = await backend.train(model, groups, learning_rate=1e-2)
                assert result.step == step + 1 == await model.get_step()
                assert result.metrics["loss/grad_norm"] > 0 and result.metrics["data/step_num_gradient_steps"] == 1
                await model.log(groups, metrics=result.metrics, step=result.step, split="train")
            assert rewards[-1] > rewards[0] + 0.2, rewards
            assert (await greedy(model, step=0)) != (await greedy(model))
            await backend._delete_checkpoint_files(model, steps_to_keep=[4])
            assert sorted(os.listdir(tmp_path / "run/checkpoints")) == ["0000", "0004"]  # the reference survives
            same = [art.TrajectoryGroup([one for one in group.trajectories[:1] * 2]) for group in groups]
            result = await backend.train(model, same)  # nothing trains: the step is made all the same
            assert result.step == 5 and "loss/grad_norm" not in result.metrics
            lines = [json.loads(line) for line in (tmp_path / "run/history.jsonl").read_text().splitlines()]
            assert all(line["on_policy/max_gap"] == 0 for line in lines[:4])  # through ART's own copy of the Choices
            with pytest.raises(openai.BadRequestError, match="no checkpoint of step 77; it has 0, 4, 5"):
                await with_reference(backend, model, groups, 77)
            damage(tmp_path / "run/checkpoints/0000")
            with pytest.raises(RuntimeError, match="adapter_model.safetensors"):
                await with_reference(backend, model, groups, 0)

    async def with_reference(backend, model, groups, step):
        """Its own keywords cannot name a reference: a job of the same route does."""
        config = {"kl_penalty_coef": 1.0, "kl_penalty_reference_step": step}
        create = backend._client.training_jobs.create

        async def configured(**more):
            return await create(**{**more, "experimental_config": config})

        backend._client.training_jobs.create = configured
        try:
            await backend.train(model, groups)
        finally:
            backend._client.training_jobs.create = create

    run(loop())


def test_without_art(tmp_path):
    (tmp_path / "art.py").write_text("")  # the package of this name on PyPI is another one
    code = "import rein\ntry:\n    import rein.art\nexcept ImportError as problem:\n    print(problem)"
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    said = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True, check=True).stdout
    assert "rein.art needs ART" in said and "pip install 'openpipe-art" in said


def test_the_program_that_is_started(tmp_path, monkeypatch):
    """REIN_PROGRAM, that of the package, that of the PATH."""
    for where in ("beside/bin", "path"):
        (tmp_path / where).mkdir(parents=True)
        (tmp_path / where / "rein").write_text("#!/bin/sh\n")
        (tmp_path / where / "rein").chmod(0o755)
    (tmp_path / "beside/lib/rein_rl-9.dist-info").mkdir(parents=True)
    (tmp_path / "beside/lib/rein_rl-9.dist-info/METADATA").write_text("Name: rein-rl\nVersion: 9\n")
    (tmp_path / "beside/lib/rein_rl-9.dist-info/RECORD").write_text("rein/torch.py,,\n../bin/rein,,\n")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("REIN_PROGRAM", "named")
    assert find_program() == "named"
    monkeypatch.delenv("REIN_PROGRAM")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "beside/lib")])
    assert os.path.samefile(find_program(), tmp_path / "beside/bin/rein")
    monkeypatch.setattr(sys, "path", [])
    assert find_program() == str(tmp_path / "path/rein")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="REIN_PROGRAM"):
        find_program()


@pytest.mark.parametrize(
    "arguments, status", [([], 2), (["--help"], 0), (["nothing.py"], "there is no file nothing.py")]
)
def test_usage(arguments, status, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rein.art", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert str(status) in str(caught.value.code)
    assert "nothing.py" in arguments or "usage: python -m rein.art SCRIPT.py" in "".join(capsys.readouterr())
