"""A policy: a language model, with or without an adapter, that can sample, train and be saved."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Union, overload

import numpy as np

from . import _engine as e
from . import _library as c
from ._arrays import FLOAT32, SIZE, Array, ArrayLike, address
from ._groups import Groups, GroupsLike
from ._options import ESTIMATED, Preset, cached_options
from ._play import Source
from ._sampling import Drawn, Sample
from ._tokenizer import Tokenizer

Prompt = Union[str, Sequence[Mapping[str, Any]], Mapping[str, Any], ArrayLike]

_TOKENS_AT_ONCE = 8192


@dataclass(frozen=True)
class Pass:
    """The result of forward_backward.

    loss              of all groups
    metrics           by name, as docs/aggregation.md defines them
    nothing_to_train  True if no token trains or every gradient is exactly 0; then optim_step has no gradient
    max_gap           largest |log-prob computed now − recorded| over the tokens that this policy sampled; NaN if
                      it sampled no token. It is 0 unless top_k, top_p, min_p or greedy changed the sampler
    recomputed        trained tokens whose log-probs were not recorded
    reference_tokens  tokens that the reference processed
    cached_tokens     tokens whose activations came from the activation cache
    times             seconds spent in "reference", "forward" and "backward"
    """

    loss: float
    metrics: dict[str, float]
    nothing_to_train: bool
    max_gap: float
    recomputed: int
    reference_tokens: int
    cached_tokens: int
    times: dict[str, float]


class Policy:
    """A language model from a directory in the format of Hugging Face, with a LoRA adapter, that samples and trains.

    `adapter`: None for a new one of `lora_rank`, `lora_alpha` (its scale is alpha/rank, or alpha/√rank with
    `use_rslora`) on `lora_modules` (a list of names; None: all linear modules but lm_head); a directory written by
    PEFT; or False for the model without an adapter, which samples but does not train. `full=True` trains all weights
    instead. `quantize`: "q8_0" or "q4_0" quantises the matrices of the model to these types of GGUF, for less memory;
    that changes the model, so it does not go with `full`. `temperature` is part of the policy, softmax(z/temperature),
    both in sampling and in training. `seed` is used for the new adapter and for sampling. `threads` 0: all cores;
    results do not depend on it. `recompute`: less memory for training, more time, the same bits. `activation_cache`:
    megabytes, at most a quarter of the available memory, for the activations that sample computes. forward_backward
    reuses them until the policy changes: the same bits in less time. The cache is used after the first
    forward_backward, and keeps the newest samples. Sample.activation_key finds them.

    A policy runs one call at a time; other threads wait. It is closed by close(), at the end of a `with`, or when
    nothing refers to it any more.

    >>> policy = Policy("tests/model/fixtures/engine/llama")
    >>> group = policy.sample([[1, 5, 6]], samples=4, max_tokens=8)[0]
    >>> groups = [[sample.trajectory(reward=float((sample.response_ids == 7).mean())) for sample in group]]
    >>> policy.forward_backward(groups, "reinforce").max_gap
    0.0
    >>> norm = policy.optim_step(1e-3)
    >>> policy.steps
    1
    """

    _adapter: e.Handle | None
    _model: e.Handle | None
    _activation_cache: e.Handle | None

    def __init__(
        self,
        model: e.PathLike,
        adapter: e.PathLike | Literal[False] | None = None,
        *,
        lora_rank: int = 8,
        lora_alpha: float = 16.0,
        lora_modules: Sequence[str] | None = None,
        use_rslora: bool = False,
        full: bool = False,
        quantize: str | None = None,
        temperature: float = 1.0,
        seed: int = 1,
        threads: int = 0,
        recompute: bool = False,
        activation_cache: int = 4096,
    ) -> None:
        lora = _Lora(lora_rank, lora_alpha, lora_modules, use_rslora)
        if full and adapter is not None and adapter is not False:
            raise ValueError("adapter has no effect with full: all weights train, there is no adapter")
        if full or adapter is not None:
            lora.refuse()
        self._seed = e.count_of(seed, "seed", limit=2**64)
        self._exec = c.Exec(e.count_of(threads, "threads", limit=2**31), 0)
        options = e.ModelOptions(bool(full), self._exec, None if quantize is None else quantize.encode())
        path = e.path_of(model, "model")
        loaded = e.opened(e.model_open, e.model_close, path, ctypes.byref(options))
        made = None
        if adapter is None and not full:
            made = lora.adapter(loaded, self._seed)
        elif adapter is not None and adapter is not False:
            directory = e.path_of(adapter, "adapter")
            made = e.opened(e.adapter_open, e.adapter_close, loaded.address, directory, needs=(loaded,))
        tokenizer = Tokenizer(model) if e.tokenizer_exists(path) else None
        self._begin(os.fsdecode(path), loaded, made, tokenizer, float(temperature))
        self._recompute, self._trains = bool(recompute), full or made is not None
        megabytes = e.count_of(activation_cache, "activation_cache", limit=2**31)
        if megabytes and self._trains:
            opening = (e.activation_cache_open, e.activation_cache_close)
            self._activation_cache = e.opened(*opening, megabytes * 10**6, self._recompute)
        self._generator().close()  # checks the temperature and the number of threads

    def _begin(
        self, name: str, model: e.Handle, adapter: e.Handle | None, tokenizer: Tokenizer | None, temperature: float
    ) -> None:
        self._lock = threading.RLock()
        self._name, self._model, self._adapter, self._tokenizer = name, model, adapter, tokenizer
        self._temperature = temperature
        self._info = e.model_describe(model.address)
        self._calls = 0  # of sample without a step
        self._trainer: e.Handle | None = None
        self._activations: e.Handle | None = None
        self._activation_cache = None

    def copy(self) -> Policy:
        """A frozen copy on the same model, for a reference: training this policy does not change it.

        >>> policy = Policy("tests/model/fixtures/engine/llama")
        >>> reference = policy.copy()
        >>> group = [sample.trajectory(len(sample.response_ids)) for sample in policy.sample([[1, 5]], samples=4)[0]]
        >>> policy.forward_backward([group], "grpo", reference=reference).metrics["kl_ref_k3"]
        0.0
        """
        with self._use() as (model, adapter):
            if self._trains and adapter is None:
                raise ValueError(
                    "all weights train: a copy is not possible. save(directory), and open that as a Policy"
                )
            other = object.__new__(Policy)
            made = None
            if adapter is not None:
                made = e.opened(e.adapter_copy, e.adapter_close, adapter.address, needs=(model,))
            other._begin(self._name, model, made, self._tokenizer, self._temperature)
            other._seed, other._exec, other._recompute, other._trains = self._seed, self._exec, False, False
            return other

    # --------------------------------------------------------------------------------------------- properties

    @property
    def vocab_size(self) -> int:
        """The number of token ids, which are 0 to vocab_size − 1."""
        return int(self._info.vocabulary)

    @property
    def max_positions(self) -> int:
        """The longest sequence, in tokens."""
        return int(self._info.max_positions)

    @property
    def end_ids(self) -> list[int]:
        """The ids that end a response."""
        return list(self._info.end_ids[: self._info.n_end_ids])

    @property
    def temperature(self) -> float:
        """The temperature of the policy softmax(z/temperature)."""
        return self._temperature

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; ValueError if its directory has none."""
        if self._tokenizer is None:
            raise ValueError(f"{self._name} has no tokenizer.json: texts cannot be encoded, give token ids")
        return self._tokenizer

    @property
    def steps(self) -> int:
        """The number of optimizer steps so far."""
        with self._lock:
            return int(e.trainer_steps(self._trainer.address)) if self._trainer else 0

    def parameters(self) -> dict[str, Array]:
        """The trained parameters by name: views of their values, float32, [rows, columns] or [n]. Nothing is copied.

        After writing into them call changed(), because the library also keeps some of them in another order. They stay
        readable after the policy is closed.

        >>> with Policy("tests/model/fixtures/engine/llama", lora_rank=2) as policy:
        ...     policy.parameters()["model.layers.0.self_attn.q_proj.lora_A"].shape
        (2, 16)
        """
        with self._use() as (model, adapter):
            owner = adapter or model
            rows = (e.Parameter * e.parameter_count(model.address, _place(adapter)))()
            room = np.empty(e.parameter_floats(model.address, _place(adapter)), FLOAT32)  # never written
            if len(rows):
                e.parameters(rows, model.address, _place(adapter), address(room))
            return {row.name.decode(): _view(row, owner) for row in rows}

    def changed(self) -> None:
        """Must be called after values of parameters() were written, before the policy is used again."""
        with self._use() as (model, adapter):
            e.call(e.parameters_changed, model.address, _place(adapter))

    def __repr__(self) -> str:
        if self._model is None:
            return f"Policy({self._name!r}, closed)"
        what = "all weights" if self._trains else "no adapter"
        if self._adapter is not None:
            info = e.adapter_describe(self._adapter.address)
            kind = "LoRA" if self._trains else "frozen LoRA"
            what = f"{kind} of rank {info.rank}, {info.parameters} parameters"
        return f"Policy({self._name!r}, {self._info.parameters} parameters, {what}, {self.steps} steps)"

    # ------------------------------------------------------------------------------------------- sample

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        samples: int = 1,
        max_tokens: int = 256,
        greedy: bool = False,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        stop: Sequence[str] = (),
        stop_ids: ArrayLike | None = None,
        seed: int | None = None,
        step: int | None = None,
        prompt_index: Sequence[int] | None = None,
        top_log_probs: int = 0,
    ) -> list[list[Sample]]:
        """Samples `samples` responses to each prompt. Returns one list of Sample per prompt.

        A prompt is a text (encoded with the special tokens that the tokenizer adds), a list of chat messages
        ({"role": …, "content": …, "tool_calls": …}), a dict {"messages": …, "tools": …, "chat_template_kwargs": …}, or
        token ids. A response ends with one of `stop_ids` (None: the model's own), before
        one of the texts `stop`, at max_tokens, or at the model's last position.

        Randomness is addressed: a sample depends only on the policy, the prompt and (seed, step, prompt_index, its
        number). The same address gives the same tokens, in any batch. `step` None: the number of earlier calls without
        a step, so that each call gives new samples. `prompt_index` has one number per prompt; None: its position in
        `prompts`.

        With top_k, top_p or min_p the sampling distribution differs from the policy; Sample.sampler_log_probs has its
        log-probs.
        """
        with self._use():
            listed = [self._encode(prompt, f"prompts[{i}]") for i, prompt in enumerate(_listed(prompts, "prompts"))]
            numbers = list(range(len(listed))) if prompt_index is None else [int(i) for i in prompt_index]
            if len(numbers) != len(listed):
                raise ValueError(f"prompt_index has {len(numbers)} entries, prompts has {len(listed)}: they must agree")
            ends = e.ids_of(self.end_ids if stop_ids is None else stop_ids, "stop_ids", self.vocab_size)
            stops = [text.encode() for text in ([stop] if isinstance(stop, str) else stop)]
            texts = (ctypes.c_char_p * len(stops))(*stops)
            sampling = e.Sampling(
                greedy=bool(greedy),
                top_k=e.count_of(top_k, "top_k"),
                top_p=top_p,
                min_p=min_p,
                max_tokens=e.count_of(max_tokens, "max_tokens", 1),
                end_ids=address(ends),
                n_end_ids=ends.size,
                stops=ctypes.addressof(texts),
                n_stops=len(stops),
                top_log_probs=e.count_of(top_log_probs, "top_log_probs"),
                seed=self._seed if seed is None else e.count_of(seed, "seed", limit=2**64),
            )
            samples = e.count_of(samples, "samples", 1)
            address_step = self._calls if step is None else e.count_of(step, "step", limit=2**64)
            with contextlib.closing(self._generator()) as generator:
                for prompt, i in zip(listed, numbers):
                    place = e.Address(step=address_step, prompt=e.count_of(i, "prompt_index", limit=2**64))
                    request = e.Request(address(prompt), prompt.size, samples, place, sampling)
                    number = ctypes.c_size_t()
                    e.call(e.generator_add, ctypes.byref(number), generator.address, ctypes.byref(request))
                drawn = Drawn(generator, len(listed) * samples, samples, bool(top_log_probs))
            self._calls += step is None
            at = self.steps if self._trains else None
            return [[drawn.sample(p * samples + k, ids, at) for k in range(samples)] for p, ids in enumerate(listed)]

    def _encode_conversation(self, prompt: Mapping[str, Any], name: str) -> list[int]:
        known = {"messages", "tools", "chat_template_kwargs"}
        if not prompt.keys() <= known:
            raise ValueError(f"{name} has {sorted(prompt.keys() - known)}: {', '.join(sorted(known))} are possible")
        variables = prompt.get("chat_template_kwargs") or {}
        return self.tokenizer.apply_chat_template(prompt["messages"], tools=prompt.get("tools"), **variables)

    def _encode(self, prompt: Any, name: str) -> Array:
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt)
        elif isinstance(prompt, Sequence) and len(prompt) and isinstance(prompt[0], Mapping):
            prompt = self.tokenizer.apply_chat_template(prompt)
        elif isinstance(prompt, Mapping) and "messages" in prompt:
            prompt = self._encode_conversation(prompt, name)
        if not hasattr(prompt, "__len__") or isinstance(prompt, Mapping):
            raise TypeError(f"{name} is {prompt!r}: a text, a list of messages or a list of token ids is needed")
        return e.ids_of(prompt, name, self.vocab_size)

    def _generator(self) -> e.Handle:
        cache = _place(self._activation_cache) if self._trainer else None  # a policy that never trains needs no cache
        options = e.GeneratorOptions(0, self._exec, cache)
        tokenizer = self._tokenizer._handle.address if self._tokenizer else None
        arguments = (ctypes.byref(self._policy()), tokenizer, ctypes.byref(options))
        return e.opened(e.generator_open, e.generator_close, *arguments)

    def _rollout_source(self, step: int | None, evaluation: bool) -> Source:
        """What rein.rollout needs."""
        with self._use() as (model, adapter):
            tokenizer = self.tokenizer
            at = self._calls if step is None else e.count_of(step, "step", limit=2**63)
            self._calls += step is None and not evaluation
            return Source(
                name=os.path.basename(os.path.normpath(self._name)),
                policy=self._policy(),
                tokenizer=tokenizer,
                chat=tokenizer._dated_format(),
                end_ids=e.ids_of(self.end_ids, "end_ids"),
                seed=self._seed,
                step=at,
                policy_step=self.steps if self._trains and not evaluation else None,
                exec=self._exec,
                needs=(model, adapter, tokenizer._handle),
                use=self._use,
                steps=lambda: self.steps,
            )

    # -------------------------------------------------------------------------------------- log-probs

    @overload
    def log_probs(self, sequences: Sequence[ArrayLike]) -> list[Array]: ...
    @overload
    def log_probs(self, sequences: Sequence[ArrayLike], *, entropies: Literal[False]) -> list[Array]: ...
    @overload
    def log_probs(
        self, sequences: Sequence[ArrayLike], *, entropies: Literal[True]
    ) -> tuple[list[Array], list[Array]]: ...
    def log_probs(
        self, sequences: Sequence[ArrayLike], *, entropies: bool = False
    ) -> list[Array] | tuple[list[Array], list[Array]]:
        """The log-probability of every token given those before it: for each sequence of ids [n] a float32 array [n].
        The first token has none: it is NaN. With `entropies`, also the entropies of the distributions that the tokens
        were drawn from, in the same form."""
        with self._use():
            listed = [
                e.ids_of(ids, f"sequences[{i}]", self.vocab_size)
                for i, ids in enumerate(_listed(sequences, "sequences"))
            ]
            for i, ids in enumerate(listed):
                if not 1 <= ids.size <= self.max_positions:
                    raise ValueError(f"sequences[{i}] has {ids.size} tokens: 1 to {self.max_positions} are needed")
            rows: list[tuple[Array, Array]] = []
            for some in _batches(listed):
                rows += self._forward(some, entropies)
        found = [row[0] for row in rows]
        return (found, [row[1] for row in rows]) if entropies else found

    def _forward(self, sequences: list[Array], with_entropies: bool) -> list[tuple[Array, Array]]:
        if self._activations is None:
            self._activations = e.opened(e.activations_open, e.activations_close, ctypes.byref(self._exec))
        offsets = np.zeros(len(sequences) + 1, SIZE)
        np.cumsum([ids.size for ids in sequences], out=offsets[1:])
        flat = np.concatenate(sequences)
        found = np.empty((2, flat.size), FLOAT32)
        tokens = e.Tokens(len(sequences), address(offsets), None, address(flat), None, None)
        e.call(
            e.forward,
            address(found),
            address(found) + 4 * flat.size if with_entropies else None,
            self._activations.address,
            ctypes.byref(self._policy()),
            ctypes.byref(tokens),
            None,
        )
        found[:, offsets[:-1]] = np.nan
        return [(found[0, a:b], found[1, a:b]) for a, b in zip(offsets[:-1], offsets[1:])]

    # ------------------------------------------------------------------------------------------- training

    def forward_backward(
        self,
        groups: GroupsLike,
        preset: Preset = "grpo",
        *,
        reference: Policy | None = None,
        mask_truncated_completions: bool = False,
        **options: Any,
    ) -> Pass:
        """Adds the gradient of the groups' loss to the gradient that optim_step uses. All groups together are one step:
        averages are over all of them.

        `groups`: a list of groups, one per prompt; a group is a list of Trajectory, or of dicts as described in
        docs/trajectories.md (also ART's messages); or the path of such a JSON-lines file. `preset` and further
        keywords: the objective, as in policy_loss. `reference`: the reference Policy of a KL term, such as
        kl_loss_coef of grpo. `mask_truncated_completions`: truncated completions do not train, but they count in the
        baseline.

        After an error the policy has no gradient.
        """
        objective = cached_options(preset, options, None, ESTIMATED)
        with self._use(reference), Groups(groups, self._tokenizer) as given:
            trainer = self._train()
            how = e.PassOptions(policy_step=self.steps, mask_truncated_completions=bool(mask_truncated_completions))
            how.objective = objective.address
            other = None if reference is None else reference._policy()
            how.reference = None if other is None else ctypes.addressof(other)
            done = e.PassStruct()
            arguments = (trainer.address, given.reference, ctypes.byref(how))
            e.call(e.trainer_forward_backward, ctypes.byref(done), *arguments)
        return Pass(
            loss=done.loss.loss,
            metrics=dict(zip(c.METRICS, done.loss.metrics)),
            nothing_to_train=bool(done.nothing_to_train),
            max_gap=done.max_gap,
            recomputed=done.recomputed,
            reference_tokens=done.reference_tokens,
            cached_tokens=done.cached_tokens,
            times={name: getattr(done, f"seconds_{name}") for name in ("reference", "forward", "backward")},
        )

    def optim_step(
        self,
        learning_rate: float,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
    ) -> float:
        """Makes one step of AdamW, as torch.optim.AdamW does, and clears the gradient. Returns the norm of the gradient
        before clipping to max_grad_norm (0: no clipping). Raises ValueError if there is no gradient (every pass had
        nothing_to_train), or if an argument is wrong; then the gradient stays."""
        with self._use():
            values = [("learning_rate", learning_rate), *zip(("betas[0]", "betas[1]"), betas), ("eps", eps)]
            values += [("weight_decay", weight_decay), ("max_grad_norm", max_grad_norm)]
            norm, adamw = ctypes.c_double(), e.AdamW(*(e.number_of(value, name) for name, value in values))
            e.call(e.trainer_optim_step, ctypes.byref(norm), self._train().address, ctypes.byref(adamw))
            return norm.value

    def _train(self) -> e.Handle:
        """The trainer, which holds gradients and moments. It is opened when it is first needed."""
        assert self._model is not None
        if not self._trains:
            raise ValueError("the policy does not train: it has no adapter, or is a frozen copy")
        if self._trainer is None:
            cache = _place(self._activation_cache)
            options = e.TrainerOptions(self._temperature, 0, 0, 0, self._recompute, self._exec, cache)
            arguments = (self._model.address, _place(self._adapter), ctypes.byref(options))
            needs = (self._model, self._adapter, self._activation_cache)
            self._trainer = e.opened(e.trainer_open, e.trainer_close, *arguments, needs=needs)
        return self._trainer

    # ---------------------------------------------------------------------------------------------- files

    def save(self, directory: e.PathLike) -> None:
        """Writes the adapter in the format of PEFT; without an adapter, the model in that of transformers."""
        with self._use() as (model, adapter):
            if adapter is None:
                e.call(e.model_save, model.address, None, e.path_of(directory, "directory"))
            else:
                e.call(e.adapter_save, adapter.address, e.path_of(directory, "directory"))

    def merge(self, directory: e.PathLike) -> None:
        """Writes a model in the format of transformers, with the adapter merged into its weights."""
        with self._use() as (model, adapter):
            e.call(e.model_save, model.address, _place(adapter), e.path_of(directory, "directory"))

    def save_state(self, directory: e.PathLike) -> None:
        """Writes the policy as save does, and optimizer.safetensors; after load_state, training resumes bit for bit."""
        with self._use():
            trainer, path = self._train(), e.path_of(directory, "directory")
            Path(os.fsdecode(path)).mkdir(parents=True, exist_ok=True)
            e.call(e.trainer_save, trainer.address, path)

    def load_state(self, directory: e.PathLike) -> None:
        """Reads weights, moments and steps that save_state wrote, or those of a checkpoint of a run."""
        with self._use():
            e.call(e.trainer_load, self._train().address, e.path_of(directory, "directory"))

    # ---------------------------------------------------------------------------------------------- lifetime

    def close(self) -> None:
        """Frees the memory, except what copies and parameters() still use. It may be called twice."""
        with self._lock:
            self._trainer = self._activations = self._activation_cache = self._adapter = self._model = None

    def __enter__(self) -> Policy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Policy cannot be pickled: save(directory), and open that in the other process")

    @contextlib.contextmanager
    def _use(self, other: Policy | None = None) -> Iterator[tuple[e.Handle, e.Handle | None]]:
        """The model and the adapter, locked for this thread. Several locks are always taken in the same order."""
        if other is not None and not isinstance(other, Policy):
            raise TypeError(f"reference is {other!r}: a rein.Policy is needed")
        with contextlib.ExitStack() as stack:
            for policy in sorted({self, other or self}, key=id):
                stack.enter_context(policy._lock)
                if policy._model is None:
                    raise ValueError("the policy is closed")
            assert self._model is not None
            yield self._model, self._adapter

    def _policy(self) -> e.PolicyStruct:
        assert self._model is not None
        return e.PolicyStruct(self._model.address, _place(self._adapter), self._temperature)


def _place(handle: e.Handle | None) -> int | None:
    return handle.address if handle else None


def _listed(value: Any, name: str) -> list[Any]:
    if isinstance(value, (str, Mapping)):
        kind = "string" if isinstance(value, str) else "dict"
        raise TypeError(f"{name} must be a list; got a single {kind}: [{value!r}]")
    return list(value)


def _batches(sequences: list[Array]) -> Iterator[list[Array]]:
    """The sequences in order, in batches of some thousand tokens. This limits memory and does not change results."""
    some: list[Array] = []
    tokens = 0
    for ids in sequences:
        if some and tokens + ids.size > _TOKENS_AT_ONCE:
            yield some
            some, tokens = [], 0
        some.append(ids)
        tokens += ids.size
    if some:
        yield some


def _view(row: e.Parameter, owner: e.Handle) -> Array:
    shape = (row.rows, row.columns) if row.decay else (row.size,)
    return np.asarray(e.Memory(row.value, shape, owner))


@dataclass
class _Lora:
    """The settings of a new adapter."""

    lora_rank: int = 8
    lora_alpha: float = 16.0
    lora_modules: Sequence[str] | None = None
    use_rslora: bool = False

    def refuse(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                raise ValueError(f"{field.name} has no effect: it needs a new adapter")

    def adapter(self, model: e.Handle, seed: int) -> e.Handle:
        named = self.lora_modules.split(",") if isinstance(self.lora_modules, str) else self.lora_modules
        names = [str(name).strip().encode() for name in named or ()]
        if named is not None and not names:
            raise ValueError("lora_modules is empty: name at least one, or give None for all linear modules")
        modules = (ctypes.c_char_p * len(names))(*names)
        rank, place = e.count_of(self.lora_rank, "lora_rank", 1), ctypes.addressof(modules)
        options = e.LoraOptions(rank, self.lora_alpha, bool(self.use_rslora), place, len(names), seed)
        return e.opened(e.adapter_new, e.adapter_close, model.address, ctypes.byref(options), needs=(model,))
