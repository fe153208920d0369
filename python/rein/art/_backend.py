"""LocalBackend: ART's Backend protocol over one `rein serve` for each model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal

from art.metrics_taxonomy import (
    TRAIN_GRADIENT_STEPS_KEY,
    build_training_summary_metrics,
    summarize_trajectory_groups,
)
from art.types import LocalTrainResult
from art.utils.output_dirs import get_default_art_path
from tqdm import auto as tqdm

from ._files import ModelFiles, find_base_model
from ._options import art_metrics, rl_options, run_arguments, sft_options
from ._server import Server
from ._trajectories import rl_groups, sft_groups

SFT_BATCH = 2  # ART's batch_size "auto"
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}"

# The step that the rollouts of this task sample from, by the directory of the model.
_leased_step: ContextVar[dict[str, int]] = ContextVar("rein_art_leased_step")


class LocalBackend:
    """Samples and trains models of ART on this machine, without a GPU.

    path                   directory of all projects; by default ".art" in the repository of the installed ART, or here
    in_process             accepted for scripts that set it: the server is always a process of its own
    gpu_cost_per_hour_usd  accepted likewise: there is no GPU to pay for

    Models are in {path}/{project}/models/{name}. Closing the backend, or the end of its `with` or `async with`, stops
    the servers. They also stop when Python ends.
    """

    def __init__(
        self, *, in_process: bool = False, path: str | None = None, gpu_cost_per_hour_usd: float | None = None
    ) -> None:
        self._path = os.path.abspath(path or get_default_art_path())
        os.makedirs(self._path, exist_ok=True)
        self._servers: dict[str, Server] = {}  # by the directory of the model
        self._addresses: dict[str, tuple[int, str]] = {}  # port and key, which a model keeps for its clients
        self._leases: Counter[tuple[str, int]] = Counter()
        self._starting: dict[str, asyncio.Task[Server]] = {}

    # ----------------------------------------------------------------------------------------------------- life and end

    def __enter__(self) -> LocalBackend:
        return self

    async def __aenter__(self) -> LocalBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops the servers. Their runs are saved; registering a model again resumes its run."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        while self._servers:
            self._servers.popitem()[1].stop()

    # -------------------------------------------------------------------------------------------------------- the model

    async def register(self, model: Any) -> None:
        """Makes the directory of a model, for logging or training. The server starts after it, when ART asks for it."""
        model.base_path = self._path
        files = self._files(model)
        files.directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(model.model_dump(exclude={"inference_api_key"}), default=str)
        (files.directory / "model.json").write_text(text)

    async def _prepare_backend_for_training(self, model: Any, config: Any = None) -> tuple[str, str]:
        """Address and key for OpenAI clients. Of `config`, only host, port and api_key in server_args are used."""
        server = await self._server(model, (config or {}).get("server_args") or {})
        return server.url + "/v1", server.key

    def _model_inference_name(self, model: Any, step: int | None = None) -> str:
        """NAME@STEP; without a step that of the lease (adapter_lease), or the newest."""
        if not model.trainable:
            return str(model.inference_model_name or model.name)
        if step is None:
            step = _leased_step.get({}).get(str(self._files(model).directory))
        return f"{model.name}@{self._files(model).step() if step is None else step}"

    async def _get_step(self, model: Any) -> int:
        return self._files(model).step() if model.trainable else 0

    async def _delete_checkpoint_files(self, model: Any, steps_to_keep: list[int]) -> None:
        """Deletes all other checkpoints. Step 0 and those that a KL reference needs stay, unlike in ART."""
        directory = str(self._files(model).directory)
        leased = {step for (where, step), count in self._leases.items() if where == directory and count}
        await self._delete(model, set(self._files(model).steps()) - set(steps_to_keep) - leased)

    async def _delete(self, model: Any, steps: Iterable[int]) -> None:
        if wanted := sorted(set(steps) - {0}):
            await (await self._server(model)).request("DELETE", "/v1/checkpoints", {"steps": wanted})

    @contextlib.asynccontextmanager
    async def adapter_lease(self, model: Any, step: int) -> AsyncIterator[None]:
        """Within it the model's name means this step, whose checkpoint is kept. ART's PipelineTrainer uses it."""
        directory = str(self._files(model).directory)
        token = _leased_step.set({**_leased_step.get({}), directory: step})
        self._leases[directory, step] += 1
        try:
            yield
        finally:
            self._leases[directory, step] -= 1
            _leased_step.reset(token)

    def supports_automatic_train_step_metrics(self) -> bool:
        return True

    # --------------------------------------------------------------------------------------------------------- training

    async def train(
        self,
        model: Any,
        trajectory_groups: Iterable[Any],
        *,
        learning_rate: float = 5e-6,
        loss_fn: Literal["cispo", "ppo"] = "cispo",
        loss_fn_config: dict[str, Any] | None = None,
        normalize_advantages: bool = True,
        adam_params: object | None = None,
        kl_penalty_coef: float = 0.0,
        kl_penalty_reference_step: int | None = None,
        kl_penalty_step_lag: int | None = None,
        kl_penalty_source: Literal["current_learner", "sample"] | None = None,
        kl_ref_adapter_path: str | None = None,
        epsilon: float | None = None,
        epsilon_high: float | None = None,
        advantage_balance: float = 0.0,
        scale_rewards: bool = True,
        importance_sampling_level: Literal["token", "sequence", "average", "geometric_average"] = "token",
        max_negative_advantage_importance_sampling_weight: float | None = None,
        mask_prob_ratio: bool = False,
        kimi_k2_tau: float | None = None,
        precalculate_logprobs: bool = False,
        allow_training_without_logprobs: bool = False,
        plot_tensors: bool = False,
        truncated_importance_sampling: float | None = None,
        scale_learning_rate_by_reward_std_dev: bool = False,
        logprob_calculation_chunk_size: int = 1024,
        packed_sequence_length: int | None = None,
        num_trajectories_learning_rate_multiplier_power: float = 0.0,
        save_checkpoint: bool = True,
        verbose: bool = False,
    ) -> LocalTrainResult:
        """One training step on trajectory groups: one gradient over all of them, one step of the optimizer.

        Keywords and defaults are those of ART's LocalBackend.train; docs/art.md lists what differs. Nothing is logged:
        use model.log(). Cancelling this leaves the policy as it was.

        kl_penalty_reference_step  the KL reference is the checkpoint of this step; the default is the base model
        kl_penalty_step_lag        it is the checkpoint this many steps back
        kl_ref_adapter_path        it is the base model with this adapter
        kl_penalty_source          whose log-probs measure the KL: "current_learner" (default) or "sample"
        precalculate_logprobs      the old log-probs are those of the current policy, not the recorded ones; they differ
                                   only where an earlier policy sampled
        save_checkpoint            False: checkpoint_path is None; the checkpoint is written anyway, as in ART

        The result has the step, the metrics by ART's names, and the directory of the checkpoint. If nothing trains,
        because the rewards within each group are equal, the step still counts: it has 0 gradient steps and the policy
        of the step before.
        """
        keywords = dict(locals())
        options = rl_options(keywords)
        groups = list(trajectory_groups)
        began = time.monotonic()
        body = rl_groups(groups, without_log_probs=allow_training_without_logprobs, recompute=precalculate_logprobs)
        if verbose:
            print(f"training {model.name} on {sum(map(len, groups))} trajectories in {len(body)} groups")
        job = await self._run_job(model, {"trajectory_groups": body, **options}, "train")
        metrics = build_training_summary_metrics(summarize_trajectory_groups(groups), include_trainable_groups=True)
        if job.get("nothing_to_train"):
            metrics.update({"data/step_num_groups_trainable": 0.0, "data/step_trainer_tokens": 0.0})
        else:
            metrics.update(art_metrics(job.get("metrics")))
        metrics[TRAIN_GRADIENT_STEPS_KEY] = 0.0 if job.get("nothing_to_train") else 1.0
        metrics["time/step_trainer_s"] = time.monotonic() - began
        checkpoint = self._files(model).checkpoint(job["step"])
        path = str(checkpoint) if save_checkpoint and checkpoint.exists() else None
        return LocalTrainResult(step=job["step"], metrics=metrics, checkpoint_path=path)

    async def _train_sft(
        self, model: Any, trajectories: Iterable[Any], config: Any, dev_config: Any, verbose: bool = False
    ) -> AsyncIterator[dict[str, float]]:
        """Supervised training: one step of the model, one optimizer step for each batch. Yields their mean metrics."""
        examples = list(trajectories)
        size = SFT_BATCH if config.batch_size == "auto" else config.batch_size
        batches = [examples[at : at + size] for at in range(0, len(examples), size)]
        if not batches:
            return
        options = sft_options(config.learning_rate, len(batches))
        if verbose:
            print(f"training {model.name} on {len(examples)} examples in {len(batches)} batches")
        job = await self._run_job(model, {"trajectory_groups": sft_groups(batches), **options}, "sft train")
        yield {
            **art_metrics(job.get("metrics")),
            "data/step_num_trajectories": float(len(examples)),
            TRAIN_GRADIENT_STEPS_KEY: 0.0 if job.get("nothing_to_train") else float(len(batches)),
        }

    async def _run_job(self, model: Any, body: dict[str, Any], title: str) -> dict[str, Any]:
        server = await self._server(model)
        with tqdm.tqdm(total=1.0, desc=title, bar_format=_BAR) as bar:
            job = await server.run_job(body, lambda share: bar.update(share - bar.n))
        step = job["step"]
        # ART's tests: the step before one that changed nothing is gone, as if its checkpoint had been renamed.
        if job.get("nothing_to_train") and not self._leases[str(self._files(model).directory), step - 1]:
            await self._delete(model, [step - 1])
        return job

    # ------------------------------------------------------------------------------------------------------ the servers

    def _files(self, model: Any) -> ModelFiles:
        return ModelFiles(self._path, model.project, model.name)

    async def _server(self, model: Any, server_args: Any = None) -> Server:
        """That of the model. It is started if there is none, or if it ended, at the address that it had."""
        directory = str(self._files(model).directory)
        running = self._servers.get(directory)
        if running and running.runs():
            return running
        if directory not in self._starting:  # two calls at a time start one server
            task = asyncio.ensure_future(self._start(model, server_args or {}))
            task.add_done_callback(lambda _: self._starting.pop(directory, None))
            self._starting[directory] = task
        return await asyncio.shield(self._starting[directory])

    async def _start(self, model: Any, server_args: dict[str, Any]) -> Server:
        files = self._files(model)
        directory = str(files.directory)
        files.make()
        files.check_unlocked()
        port, key = self._addresses.get(directory, (0, secrets.token_urlsafe(24)))
        arguments = [str(files.run), "--model", str(find_base_model(model.base_model)), "--name", model.name]
        if not files.exists():
            arguments += run_arguments(model._internal_config)
        if "host" in server_args:
            arguments += ["--host", str(server_args["host"])]
        arguments += ["--port", str(server_args.get("port", port)), "--always-logprobs", "--tokens-as-ids"]
        # Hundreds of rollouts may wait, and all trajectories of a step are one request. Only this process knows the key
        # of the server, and it may read every file of the user anyway: so a KL reference may be anywhere.
        arguments += ["--queue", "4096", "--max-body", "1024", "--adapter-root", "/"]
        server = await Server.start(arguments, str(server_args.get("api_key") or key), files.log)
        self._servers[directory] = server
        self._addresses[directory] = (server.port, server.key)
        return server

    # ----------------------------------------------------------------------------------------------------------- copies

    async def _experimental_fork_checkpoint(
        self,
        model: Any,
        from_model: str,
        from_project: str | None = None,
        from_s3_bucket: str | None = None,
        not_after_step: int | None = None,
        verbose: bool = False,
        prefix: str | None = None,
    ) -> None:
        """The model begins as a copy of another one's newest checkpoint, or of its last one up to `not_after_step`.

        Its steps continue from that one, as in ART. The state of the optimizer is copied too. The model must not have
        been trained before.
        """
        _refuse_s3(from_s3_bucket, "_experimental_fork_checkpoint")
        source = ModelFiles(self._path, from_project or model.project, from_model)
        target = self._files(model)
        step = source.step_not_after(not_after_step)
        if target.step() > 0:
            raise ValueError(f"{model.name} is at step {target.step()}: only an untrained model can become a fork")
        running = self._servers.pop(str(target.directory), None)
        if running:
            await asyncio.to_thread(running.stop)
        target.make()
        await asyncio.to_thread(target.copy_run, source, step)
        if running:
            await self._server(model)
        if verbose:
            print(f"{model.name} begins as {from_model} at step {step}")

    async def _experimental_pull_model_checkpoint(
        self,
        model: Any,
        *,
        step: int | Literal["latest"] | None = None,
        local_path: str | None = None,
        s3_bucket: str | None = None,
        prefix: str | None = None,
        verbose: bool = False,
    ) -> str:
        """The directory of a checkpoint, an adapter in PEFT's format; or of a copy of it at `local_path`."""
        _refuse_s3(s3_bucket, "_experimental_pull_model_checkpoint")
        files = self._files(model)
        checkpoint = files.checkpoint(files.step_not_after(None) if step in (None, "latest") else int(step or 0))
        if not checkpoint.exists():
            raise FileNotFoundError(f"{checkpoint} is not there: the steps are {files.steps()}")
        if local_path is None:
            return str(checkpoint)
        await asyncio.to_thread(shutil.copytree, checkpoint, local_path, dirs_exist_ok=True)
        return local_path

    async def _experimental_pull_from_s3(self, model: Any, **keywords: Any) -> None:
        _refuse_s3("", "_experimental_pull_from_s3")

    async def _experimental_push_to_s3(self, model: Any, **keywords: Any) -> None:
        _refuse_s3("", "_experimental_push_to_s3")


def _refuse_s3(bucket: str | None, name: str) -> None:
    if bucket is not None:
        raise NotImplementedError(
            f"{name}: rein.art does not use S3. Close the backend and copy the directory of the model, "
            "{path}/{project}/models/{name}, with a tool of your own, such as aws s3 sync"
        )
