"""rein.Policy on tiny models: what it samples, what it computes, how it learns, what it keeps."""

import ctypes
import gc
import json
import os
import pickle
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import rein
from rein import _engine

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests/model/fixtures/engine"
LLAMA = FIXTURES / "llama"
FAMILIES = sorted(path.name for path in FIXTURES.iterdir() if (path / "config.json").exists())
STORIES = ROOT.parent / "shared/models/stories260K"
PROMPTS = [[1, 5, 6], [1], [1, 9, 30, 11, 2, 17]]
PLAIN = {"advantage": "group-mean"}  # a baseline for each prompt, and nothing else

stories = pytest.mark.skipif(not STORIES.exists(), reason=f"there is no {STORIES}: texts are not sampled")


def whole(sample):
    return np.concatenate([sample.prompt_ids, sample.response_ids])


def groups_of(policy, step=0, samples=6, reward=None, **more):
    reward = reward or (lambda sample: float((sample.response_ids == 7).sum()) + 0.1 * len(sample.response_ids))
    drawn = policy.sample(PROMPTS, samples=samples, max_tokens=8, step=step)
    return [[sample.trajectory(reward(sample), **more) for sample in group] for group in drawn]


def values_of(policy):
    return {name: values.copy() for name, values in policy.parameters().items()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# ------------------------------------------------------------------------------------------------------ the binding


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler: the layout of the structs is not compared")
def test_structs_are_those_of_the_headers(tmp_path):
    """Sizes and offsets, as the C compiler has them."""
    names = {"Error": "error", "Loss": "loss", "Exec": "exec"}
    structs = [getattr(rein._library, name) for name in names]
    structs += [
        kind
        for kind in vars(_engine).values()
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and "rein_" in (kind.__doc__ or "")
    ]
    lines = []
    for kind in structs:
        name = re.search(r"rein_\w+", kind.__doc__)[0]
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        fields = [field for field, _ in kind._fields_]
        lines += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));' for field in fields]
    source = tmp_path / "layout.c"
    headers = "".join(f'#include "rein/{header}.h"\n' for header in ("rollout", "train", "rein"))
    source.write_text(f"#include <stdio.h>\n{headers}int main(void) {{ {''.join(lines)} return 0; }}\n")
    subprocess.run(["cc", f"-I{ROOT / 'include'}", "-o", tmp_path / "layout", source], check=True)
    said = dict(line.split() for line in subprocess.check_output([tmp_path / "layout"], text=True).splitlines())
    assert len(structs) > 25
    for kind in structs:
        name = re.search(r"rein_\w+", kind.__doc__)[0]
        assert ctypes.sizeof(kind) == int(said[name]), name
        for field, _ in kind._fields_:
            assert getattr(kind, field).offset == int(said[f"{name}.{field}"]), (name, field)


# --------------------------------------------------------------------------------------------------------- sampling


def test_what_it_says_of_itself():
    with rein.Policy(LLAMA, lora_rank=2) as policy:
        assert (policy.vocab_size, policy.end_ids, policy.max_positions) == (40, [2], 64)
        assert (policy.steps, policy.temperature) == (0, 1.0)
        assert repr(policy) == f"Policy({str(LLAMA)!r}, 3408 parameters, LoRA of rank 2, 784 parameters, 0 steps)"
        assert "frozen" in repr(policy.copy())
        with pytest.raises(ValueError, match=r"has no tokenizer.json"):
            policy.tokenizer.encode("a")
    assert repr(policy).endswith("closed)")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_has_an_address(family):
    policy = rein.Policy(FIXTURES / family, FIXTURES / family / "adapter", temperature=0.7)
    together = policy.sample(PROMPTS, samples=5, max_tokens=9, step=3)
    assert [len(group) for group in together] == [5, 5, 5]
    again = rein.Policy(FIXTURES / family, FIXTURES / family / "adapter", temperature=0.7, threads=1)
    for i, prompt in enumerate(PROMPTS):
        alone = again.sample([prompt], samples=5, max_tokens=9, step=3, prompt_index=[i])[0]
        for one, other in zip(together[i], alone):
            assert np.array_equal(one.response_ids, other.response_ids)
            assert one.log_probs.tobytes() == other.log_probs.tobytes()
            assert one.prompt_ids.tolist() == prompt and one.finish == other.finish
    assert len({tuple(sample.response_ids) for sample in together[0]}) > 1
    for different in ({"step": 4}, {"seed": 2, "step": 3}):
        other = policy.sample(PROMPTS, samples=5, max_tokens=9, **different)
        assert any(not np.array_equal(a.response_ids, b.response_ids) for a, b in zip(together[0], other[0]))


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_log_probs_are_those_of_the_policy(family):
    policy = rein.Policy(FIXTURES / family, FIXTURES / family / "adapter")
    samples = [sample for group in policy.sample(PROMPTS, samples=3, max_tokens=12) for sample in group]
    found, entropies = policy.log_probs([whole(sample) for sample in samples], entropies=True)
    for sample, log_probs, entropy in zip(samples, found, entropies):
        n = len(sample.prompt_ids)
        assert log_probs.dtype == np.float32 and log_probs.shape == entropy.shape == whole(sample).shape
        assert np.isnan(log_probs[0]) and np.isnan(entropy[0]) and np.isfinite(log_probs[1:]).all()
        assert log_probs[n:].tobytes() == sample.log_probs.tobytes() == sample.sampler_log_probs.tobytes()
        assert (entropy[1:] > 0).all() and (entropy[1:] < np.log(policy.vocab_size) + 1e-5).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_are_those_of_transformers(family):
    golden = json.loads((FIXTURES / family / "golden.json").read_text())
    rows: list[list[int]] = []
    for segment, parent in zip(golden["segments"], golden["parents"]):
        rows.append((rows[parent] if parent >= 0 else []) + segment)
    for result in golden["results"]:
        adapter = FIXTURES / family / "adapter" if result["adapter"] else False
        policy = rein.Policy(FIXTURES / family, adapter, temperature=result["temperature"])
        for name, found in zip(("log_probs", "entropies"), policy.log_probs(rows, entropies=True)):
            expected = np.split(result[name], np.cumsum([len(segment) for segment in golden["segments"]])[:-1])
            for row, segment in zip(found, expected):
                assert np.allclose(np.nan_to_num(row)[len(row) - len(segment) :], segment, atol=2e-4, rtol=0)


def test_log_probs_do_not_depend_on_company():
    policy = rein.Policy(LLAMA, LLAMA / "adapter")
    rows = [np.random.default_rng(i).integers(0, 40, 3 + i % 60) for i in range(400)]
    together = policy.log_probs(rows)
    for i in (0, 57, 399):
        assert policy.log_probs([rows[i]])[0].tobytes() == together[i].tobytes()
    assert policy.log_probs([]) == [] and policy.sample([]) == []


def test_how_responses_end():
    policy = rein.Policy(LLAMA)
    free = policy.sample([[1, 5]], samples=8, max_tokens=100, stop_ids=[])[0]
    assert {sample.finish for sample in free} == {"full"} and all(sample.truncated for sample in free)
    assert all(len(sample.response_ids) == policy.max_positions - 2 for sample in free)
    ended = policy.sample([[1, 5]], samples=8, max_tokens=100, stop_ids=range(40))[0]
    assert all(len(sample.response_ids) == 1 and sample.finish == "ended" for sample in ended)
    assert not ended[0].truncated
    assert policy.sample([[1, 5]], max_tokens=3, stop_ids=[])[0][0].finish == "cut"


def test_greedy_and_the_most_probable():
    policy = rein.Policy(LLAMA)
    greedy = policy.sample([[1, 5]], max_tokens=5, greedy=True, stop_ids=[], top_log_probs=3)[0][0]
    assert greedy.sampler_log_probs.tolist() == [0] * 5
    assert [row[0][0] for row in greedy.top] == greedy.response_ids.tolist()
    for row, log_prob in zip(greedy.top, greedy.log_probs):
        assert len(row) == 3 and row[0][1] == log_prob and row[0][1] >= row[1][1] >= row[2][1]
    one = policy.sample([[1, 5]], max_tokens=5, top_k=1, stop_ids=[])[0][0]
    assert one.response_ids.tolist() == greedy.response_ids.tolist() and one.top is None
    narrow = policy.sample([[1, 5]], samples=4, max_tokens=5, top_p=0.5)[0]
    assert all((sample.sampler_log_probs > sample.log_probs).all() for sample in narrow)


@stories
def test_texts():
    policy = rein.Policy(STORIES, False)
    golden = json.loads((STORIES / "greedy.json").read_text())
    ids = golden["ids"]
    greedy = policy.sample([ids[:1]], max_tokens=len(ids) - 1, greedy=True, stop_ids=[])[0][0]
    assert greedy.response_ids.tolist() == ids[1:]
    once = policy.sample(["Once upon a time"], samples=3, max_tokens=40)[0]
    assert once[0].prompt_ids.tolist() == policy.tokenizer.encode("Once upon a time")
    for sample in once:
        decoded = policy.tokenizer.decode(whole(sample), skip_special=True)
        assert decoded.strip().startswith("Once upon a time") and decoded.endswith(sample.text)
    stopped = policy.sample(["Once upon a time"], samples=3, max_tokens=100, stop=["."])[0]
    assert all(sample.finish == "stopped" and "." not in sample.text for sample in stopped)
    with pytest.raises(ValueError, match="template"):
        policy.sample([[{"role": "user", "content": "Hello"}]])


def test_a_chat_becomes_ids(tmp_path):
    file = json.loads((ROOT / "tests/model/fixtures/tokenizer/qwen/tokenizer.json").read_text())
    last = file["added_tokens"][-1]
    for i, content in enumerate(("<|im_start|>", "<|im_end|>"), last["id"] + 1):
        file["added_tokens"].append({**last, "id": i, "content": content, "special": True})
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with (ROOT / "tests/model/fixtures/tokenizer_chat/cases.jsonl").open() as cases:
        chatml = json.loads(next(cases))
    (tmp_path / "chat_template.jinja").write_text(chatml["template"])
    tokenizer = rein.Tokenizer(tmp_path)
    messages = [{"role": "user", "content": "a <|im_end|>"}]
    text = tokenizer.chat_text(messages)
    assert text == "<|im_start|>user\na <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.apply_chat_template(messages)
    assert tokenizer.decode(ids) == text and ids != tokenizer.encode(text, parse_special=True)
    assert len(tokenizer.apply_chat_template(messages, add_generation_prompt=False)) < len(ids)
    assert ids.count(tokenizer.token_id("<|im_end|>")) == 1 and tokenizer.token_id("no such token") is None
    with pytest.raises(ValueError, match=r"messages\[0\] is .*: a role and a content"):
        tokenizer.apply_chat_template([{"role": "user"}])
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(tokenizer)


# ---------------------------------------------------------------------------------------------------------- training


def gradient_of(policy, sequences, weights):
    """The gradient of Σ weights·log_probs with respect to the parameters, by the engine alone."""
    with policy._use() as (model, adapter):
        place = adapter.address if adapter else None
        gradient = np.zeros(_engine.parameter_floats(model.address, place), np.float32)
        trace = _engine.opened(_engine.trace_open, _engine.trace_close, None)
        for ids, weight in zip(sequences, weights):
            offsets, found = np.array([0, len(ids)], np.uintp), np.empty(len(ids), np.float32)
            tokens = _engine.Tokens(1, offsets.ctypes.data, None, ids.ctypes.data, None)
            how, own = _engine.ForwardOptions(1, 0, 0), policy._policy()
            arguments = (trace.address, ctypes.byref(own), ctypes.byref(tokens), ctypes.byref(how))
            _engine.call(_engine.forward, found.ctypes.data, None, *arguments)
            _engine.call(_engine.backward, gradient.ctypes.data, trace.address, weight.ctypes.data, None)
        return gradient


@pytest.mark.parametrize("full", [False, True])
def test_a_step_is_that_of_adamw(full):
    """Three steps: the gradient from rein.policy_loss and the engine's backward, the step in numpy as torch has it."""
    policy = rein.Policy(LLAMA, full=full)
    rate, betas, eps, decay, clip = 0.01, (0.9, 0.95), 1e-6, 0.1, 0.5
    first = second = 0.0
    for step in range(1, 4):
        drawn = [sample for group in policy.sample(PROMPTS, samples=4, max_tokens=6, step=step) for sample in group]
        rewards = [float(len(set(sample.response_ids))) for sample in drawn]
        groups = [[s.trajectory(r) for s, r in zip(drawn[i : i + 4], rewards[i : i + 4])] for i in (0, 4, 8)]
        lengths = [len(sample.response_ids) for sample in drawn]
        loss = rein.policy_loss(
            "dr-grpo",
            np.concatenate([sample.log_probs for sample in drawn]),
            np.concatenate([sample.log_probs for sample in drawn]),
            rewards=rewards,
            sequence_lengths=lengths,
            group_sizes=4,
            max_response_length=6,
        )
        cuts = np.split(loss.grad_log_probs, np.cumsum(lengths)[:-1])
        weights = [np.concatenate([np.zeros(len(s.prompt_ids), np.float32), cut]) for s, cut in zip(drawn, cuts)]
        gradient = gradient_of(policy, [whole(sample) for sample in drawn], weights).astype(np.float64)
        before = np.concatenate([values.ravel() for values in policy.parameters().values()]).astype(np.float64)
        decays = np.concatenate([np.full(v.size, v.ndim == 2) for v in policy.parameters().values()])

        done = policy.forward_backward(groups, "dr-grpo", max_response_length=6)
        assert done.loss == pytest.approx(loss.loss, abs=1e-7) and done.max_gap == 0
        assert done.metrics["trained_tokens"] == sum(lengths) and not done.nothing_to_train
        norm = policy.optim_step(rate, betas=betas, eps=eps, weight_decay=decay, max_grad_norm=clip)
        assert policy.steps == step and norm == pytest.approx(np.linalg.norm(gradient), rel=1e-5)

        gradient *= min(1, clip / (norm + 1e-6))
        expected = before * np.where(decays, 1 - rate * decay, 1)
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        expected -= rate / (1 - betas[0] ** step) * first / (np.sqrt(second / (1 - betas[1] ** step)) + eps)
        after = np.concatenate([values.ravel() for values in policy.parameters().values()])
        # Where a gradient is all rounding its sign may differ, and with it the step: none such is larger than 1e-6.
        sure = np.abs(gradient) > 1e-6
        assert sure.mean() > 0.4 and np.allclose(after[sure], expected[sure], atol=2e-5, rtol=0)


def test_passes_add_up_and_threads_do_not_matter():
    found = []
    for threads, recompute in ((1, False), (2, True)):
        policy = rein.Policy(LLAMA, threads=threads, recompute=recompute)
        groups = groups_of(policy)
        policy.forward_backward(groups[:1], "reinforce")
        policy.forward_backward(groups[1:], "reinforce")
        policy.optim_step(0.01)
        found.append(values_of(policy))
    assert same(*found)


def test_nothing_to_train():
    policy = rein.Policy(LLAMA)
    before = values_of(policy)
    done = policy.forward_backward(groups_of(policy, reward=lambda sample: 1.0), PLAIN)
    assert done.nothing_to_train and done.loss == 0
    with pytest.raises(ValueError, match="there is no gradient"):
        policy.optim_step(0.1)
    masked = groups_of(policy, truncated=True)
    assert policy.forward_backward(masked, "reinforce", mask_truncated_completions=True).nothing_to_train
    assert policy.steps == 0 and same(before, values_of(policy))


def test_a_reference_stays():
    policy = rein.Policy(LLAMA)
    reference = policy.copy()
    groups = groups_of(policy)
    first = policy.forward_backward(groups, "grpo", reference=reference)
    assert first.metrics["kl_ref_k3"] == 0 and first.reference_tokens == first.metrics["trained_tokens"]
    policy.optim_step(0.05)
    second = policy.forward_backward(groups_of(policy, step=1), "grpo", reference=reference)
    assert second.metrics["kl_ref_k3"] > 1e-4 and second.times["reference"] > 0
    itself = policy.forward_backward(groups_of(policy, step=1), "grpo", reference=policy)
    assert itself.metrics["kl_ref_k3"] == 0
    assert same(values_of(reference), values_of(rein.Policy(LLAMA)))
    base = rein.Policy(LLAMA, False)
    assert policy.forward_backward(groups_of(policy, step=1), "grpo", reference=base).loss == second.loss
    with pytest.raises(ValueError, match="there is no reference"):
        policy.forward_backward(groups, "grpo")
    with pytest.raises(ValueError, match="does not train"):
        reference.forward_backward(groups, PLAIN)


def test_a_policy_learns_and_the_sampler_follows():
    policy = rein.Policy(LLAMA, seed=3)
    rewards = []
    for step in range(12):
        groups = groups_of(policy, step, samples=12, reward=lambda sample: float((sample.response_ids == 7).mean()))
        done = policy.forward_backward(groups, PLAIN)
        assert done.max_gap == 0 and done.recomputed == 0
        policy.optim_step(0.02)
        rewards.append(done.metrics["reward"])
    assert rewards[0] < 0.2 and rewards[-1] > 0.6


# ------------------------------------------------------------------------------------------------------------ groups


def test_groups_in_every_form(tmp_path):
    policy = rein.Policy(LLAMA)
    groups = groups_of(policy)
    expected = policy.forward_backward(groups, PLAIN).loss
    dicts = [
        [
            {
                "prompt_ids": t.prompt_ids,
                "response_ids": t.response_ids.tolist(),
                "logprobs": t.log_probs,
                "reward": t.reward,
            }
            for t in group
        ]
        for group in groups
    ]
    assert policy.forward_backward(dicts, PLAIN).loss == expected
    assert policy.forward_backward([{"trajectories": group} for group in dicts], PLAIN).loss == expected
    lines = [
        json.dumps({"trajectories": [{k: np.asarray(v).tolist() for k, v in t.items()} for t in g]}) for g in dicts
    ]
    (tmp_path / "groups.jsonl").write_text("\n".join(lines))
    assert policy.forward_backward(tmp_path / "groups.jsonl", PLAIN).loss == expected
    turns = [
        [
            rein.Trajectory.from_ids(
                [*t.prompt_ids, *t.response_ids],
                [0] * len(t.prompt_ids) + [1] * len(t.response_ids),
                [0.0] * len(t.prompt_ids) + t.log_probs.tolist(),
                t.reward,
            )
            for t in group
        ]
        for group in groups
    ]
    assert policy.forward_backward(turns, PLAIN).loss == expected
    forgotten = [[rein.Trajectory(t.prompt_ids, t.response_ids, None, t.reward) for t in group] for group in groups]
    done = policy.forward_backward(forgotten, PLAIN)
    assert done.loss == expected and done.recomputed == done.metrics["trained_tokens"] and np.isnan(done.max_gap)


def test_several_turns_train_what_was_sampled():
    policy = rein.Policy(LLAMA)
    ids, mask = [1, 5, 6, 7, 8, 9, 3], [0, 1, 1, 0, 0, 1, 1]
    rows = [rein.Trajectory.from_ids(ids, mask, None, reward) for reward in (1.0, 0.0)]
    assert rows[0].prompt_ids.tolist() == [1] and rows[0].response_ids.tolist() == ids[1:]
    assert policy.forward_backward([rows], PLAIN).metrics["trained_tokens"] == 8
    nothing = rein.Trajectory.from_ids(ids, [0] * 7, None, 1.0)
    assert nothing.response_ids.size == 0
    with pytest.raises(ValueError, match=r"mask\[0\] is 1: nothing stands before"):
        rein.Trajectory.from_ids(ids, [1] * 7, None, 1.0)
    with pytest.raises(ValueError, match=r"mask has shape \[2\], ids has \[7\]"):
        rein.Trajectory.from_ids(ids, [0, 1], None, 1.0)


GOOD = {"prompt_ids": [1, 5], "response_ids": [7, 8], "log_probs": [-1.0, -1.0], "reward": 1.0}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"prompt_ids": [1, -5]}, r"groups\[0\]\[1\].prompt_ids\[1\] is -5: a token id from 0"),
        ({"response_ids": [7, 40]}, "40"),
        ({"prompt_ids": [], "response_ids": [7, 8]}, "first token is trained"),
        ({"log_probs": [-1.0]}, r"groups\[0\]\[1\].log_probs has shape \[1\], response_ids has \[2\]"),
        ({"log_probs": [-1.0, 2.0]}, "recorded log-prob is 2"),
        ({"mask": [1, 2]}, r"groups\[0\]\[1\].mask\[1\] is 2: 0 or 1 is needed"),
        ({"reward": "much"}, r"groups\[0\]\[1\].reward is 'much': a number is needed"),
        ({"reward": float("nan")}, "reward is nan"),
        ({"policy_step": -2}, r"policy_step is -2: it must be 0 or more"),
    ],
)
def test_wrong_trajectories(change, match):
    policy = rein.Policy(LLAMA)
    group = [rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, **change})]
    with pytest.raises(ValueError, match=match):
        policy.forward_backward([group], PLAIN)
    policy.forward_backward([[rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, "reward": 0})]], PLAIN)


def test_wrong_groups(tmp_path):
    policy = rein.Policy(LLAMA)
    good = rein.Trajectory(**GOOD)
    for groups, kind, match in (
        ([], ValueError, "groups is empty"),
        ([[]], ValueError, r"groups\[0\] has no trajectories"),
        ([[3]], TypeError, r"groups\[0\]\[0\] is a int: a rein.Trajectory or a dict is needed"),
        ([[good, {}]], TypeError, "all are rein.Trajectory, or all are dicts"),
        ([[good], [{}]], TypeError, r"groups\[0\] has a Trajectory"),
        ([[{"prompt_ids": [1], "response_ids": [2]}]], ValueError, r"line 1: trajectories\[0\].reward"),
        (tmp_path / "none.jsonl", OSError, "none.jsonl"),
    ):
        with pytest.raises(kind, match=match):
            policy.forward_backward(groups, PLAIN)
    with pytest.raises(ValueError, match="option epsilom does not exist"):
        policy.forward_backward([[good]], "grpo", epsilom=1)
    with pytest.raises(TypeError, match="a rein.Policy is needed"):
        policy.forward_backward([[good]], "grpo", reference=LLAMA)


# ------------------------------------------------------------------------------------------------- parameters and files


def test_parameters_are_views():
    policy = rein.Policy(LLAMA, lora_modules=["q_proj", "lm_head"], lora_rank=2)
    parameters = policy.parameters()
    assert "lm_head.lora_B" in parameters and not any("k_proj" in name for name in parameters)
    name = "model.layers.1.self_attn.q_proj.lora_B"
    assert parameters[name].shape == (16, 2) and parameters[name].dtype == np.float32 and not parameters[name].any()
    before = policy.log_probs([[1, 5, 6]])[0]
    parameters[name][:] = 0.5
    policy.changed()
    assert policy.parameters()[name][3, 1] == 0.5 and not np.array_equal(
        policy.log_probs([[1, 5, 6]])[0][1:], before[1:]
    )
    parameters[name][:] = 0
    policy.changed()
    assert np.array_equal(policy.log_probs([[1, 5, 6]])[0][1:], before[1:])
    policy.close()
    del policy
    gc.collect()
    assert not parameters[name].any()  # they keep their memory
    assert rein.Policy(LLAMA, False).parameters() == {}
    whole_model = rein.Policy(LLAMA, full=True).parameters()
    assert whole_model["model.norm.weight"].shape == (16,)
    assert whole_model["model.embed_tokens.weight"].shape == (40, 16)


def trained(policy, steps=2):
    for _ in range(steps):
        policy.forward_backward(groups_of(policy, policy.steps), PLAIN)
        policy.optim_step(0.02)
    return policy


def test_what_is_saved_is_what_is_opened(tmp_path):
    policy = trained(rein.Policy(LLAMA, lora_rank=4, lora_alpha=6.0, use_rslora=True))
    policy.save(tmp_path / "adapter")
    opened = rein.Policy(LLAMA, tmp_path / "adapter")
    assert same(values_of(policy), values_of(opened))
    assert json.loads((tmp_path / "adapter/adapter_config.json").read_text())["use_rslora"] is True
    rows = [[1, 5, 6, 30], [1, 2]]
    for a, b in zip(policy.log_probs(rows), opened.log_probs(rows)):
        assert a.tobytes() == b.tobytes()
    policy.merge(tmp_path / "merged")
    merged = rein.Policy(tmp_path / "merged", False)
    for a, b in zip(policy.log_probs(rows), merged.log_probs(rows)):
        assert np.allclose(a[1:], b[1:], atol=1e-4)
    full = trained(rein.Policy(LLAMA, full=True))
    full.save(tmp_path / "full")
    assert same(values_of(full), values_of(rein.Policy(tmp_path / "full", full=True)))


@pytest.mark.parametrize("full", [False, True])
def test_a_state_goes_on_bit_for_bit(tmp_path, full):
    policy = trained(rein.Policy(LLAMA, full=full))
    policy.save_state(tmp_path / "state")
    other = rein.Policy(LLAMA, full=full)
    other.load_state(tmp_path / "state")
    assert other.steps == 2 and same(values_of(policy), values_of(other))
    assert same(values_of(trained(policy)), values_of(trained(other)))


@pytest.mark.parametrize(
    ("arguments", "kind", "match"),
    [
        ({"model": "no/such/model"}, OSError, "no/such/model"),
        ({"model": 3}, TypeError, "model is 3: a path is needed"),
        ({"model": "a\0b"}, ValueError, "no path"),
        ({"adapter": "no/such/adapter"}, OSError, "no/such/adapter"),
        ({"lora_rank": 0}, ValueError, "lora_rank is 0: it must be 1 or more"),
        ({"lora_rank": 2.5}, TypeError, "lora_rank is 2.5: a whole number is needed"),
        ({"lora_alpha": -1.0}, ValueError, "alpha is -1"),
        ({"lora_modules": ["q_prj"]}, ValueError, "did you mean q_proj"),
        ({"lora_modules": []}, ValueError, "lora_modules is empty"),
        ({"adapter": False, "lora_rank": 4}, ValueError, "lora_rank cannot act here"),
        ({"full": True, "adapter": "x"}, ValueError, "adapter cannot act with full"),
        ({"full": True, "use_rslora": True}, ValueError, "use_rslora cannot act here"),
        ({"temperature": 0.0}, ValueError, "temperature is 0: 0.001 to 1000"),
        ({"threads": -1}, ValueError, "threads is -1"),
    ],
)
def test_what_cannot_be_opened(arguments, kind, match):
    with pytest.raises(kind, match=match):
        rein.Policy(**{"model": LLAMA, **arguments})


@pytest.mark.parametrize(
    ("prompts", "options", "kind", "match"),
    [
        ("text", {}, TypeError, r"a list is needed, \['text'\]"),
        (["text"], {}, ValueError, "no tokenizer.json"),
        ([[1, 40]], {}, ValueError, r"prompts\[0\]\[1\] is 40: a token id from 0 to 39 is needed"),
        ([[]], {}, ValueError, "the prompt is empty"),
        ([5], {}, TypeError, r"prompts\[0\] is 5: a text, a list of messages or a list of token ids"),
        ([[1]], {"samples": 0}, ValueError, "samples is 0: it must be 1 or more"),
        ([[1]], {"max_tokens": 0}, ValueError, "max_tokens is 0"),
        ([[1]], {"top_p": 0.0}, ValueError, "top_p is 0"),
        ([[1]], {"greedy": True, "top_k": 3}, ValueError, "they would have no effect"),
        ([[1]], {"stop": ["a"]}, ValueError, "needs a tokenizer"),
        ([[1]], {"stop_ids": [99]}, ValueError, r"stop_ids\[0\] is 99"),
        ([[1]], {"prompt_index": [1, 2]}, ValueError, "prompt_index has 2 entries, prompts has 1"),
        ([list(range(1, 40)) * 2], {}, ValueError, "64 positions"),
    ],
)
def test_what_cannot_be_sampled(prompts, options, kind, match):
    with pytest.raises(kind, match=match):
        rein.Policy(LLAMA).sample(prompts, **options)


def test_numbers_that_are_none():
    policy = rein.Policy(LLAMA)
    groups = groups_of(policy)
    for name, values in policy.parameters().items():
        if name.endswith("lora_B"):
            values[:] = np.inf
    policy.changed()
    for call in (
        lambda: policy.sample([[1]]),
        lambda: policy.log_probs([[1, 2]]),
        lambda: policy.forward_backward(groups, PLAIN),
    ):
        with pytest.raises(ArithmeticError, match="not a finite number"):
            call()
    with pytest.raises(ValueError, match=r"sequences\[0\] has 0 tokens: 1 to 64 are needed"):
        policy.log_probs([[]])


# ----------------------------------------------------------------------------------------------------------- its life


def test_after_the_end():
    with rein.Policy(LLAMA) as policy:
        reference = policy.copy()
        groups = groups_of(policy)
        policy.forward_backward(groups, PLAIN)
    policy.close()
    for call in (
        lambda: policy.sample([[1]]),
        lambda: policy.log_probs([[1]]),
        lambda: policy.forward_backward(groups, PLAIN),
        lambda: policy.optim_step(0.1),
        lambda: policy.parameters(),
        lambda: policy.changed(),
        lambda: policy.save("nowhere"),
        lambda: policy.copy(),
        lambda: rein.Policy(LLAMA).forward_backward(groups, "grpo", reference=policy),
    ):
        with pytest.raises(ValueError, match="the policy is closed"):
            call()
    assert len(reference.sample([[1, 5]])[0][0].response_ids)  # it keeps the model
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(reference)
    with pytest.raises(ValueError, match="all weights train: there is no copy"):
        rein.Policy(LLAMA, full=True).copy()


def test_two_policies_on_threads():
    expected = values_of(trained(rein.Policy(LLAMA), 5))
    found = {}

    def run(i):
        found[i] = values_of(trained(rein.Policy(LLAMA), 5))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and all(same(values, expected) for values in found.values())


def test_threads_on_one_policy_wait_for_each_other():
    policy, reference = rein.Policy(LLAMA), rein.Policy(LLAMA, seed=2)
    groups, problems = groups_of(policy), []

    def run(one, other):
        try:
            for _ in range(10):
                one.sample(PROMPTS, max_tokens=4)
                one.forward_backward(groups, "grpo", reference=other)
                one.optim_step(1e-4)
        except Exception as problem:
            problems.append(problem)

    # Each is the other's reference: two locks in two orders would never end.
    pairs = [(policy, reference), (reference, policy), (policy, reference)]
    threads = [threading.Thread(target=run, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    problems = [problem for problem in problems if "there is no gradient" not in str(problem)]
    assert not problems and not any(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_policy_of_its_own():
    policy = rein.Policy(LLAMA)
    trained(policy, 1)
    process = os.fork()
    if process == 0:
        code = 1
        try:
            code = 0 if trained(policy, 1).steps == 2 else 2
        finally:
            os._exit(code)
    assert os.waitpid(process, 0)[1] == 0 and policy.steps == 1


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc: memory is not measured")
def test_memory_does_not_grow():
    def loop(n):
        for step in range(n):
            with rein.Policy(LLAMA, seed=step) as policy:
                reference = policy.copy()
                policy.forward_backward(groups_of(policy, step), "grpo", reference=reference)
                policy.optim_step(0.01)
                policy.log_probs([[1, 2, 3]] * 50)
                policy.parameters()
                with pytest.raises(ValueError, match="empty"):
                    policy.sample([[]])

    loop(20)
    gc.collect()
    before = resident()
    loop(50)
    gc.collect()
    assert resident() - before < 4 << 20


# ------------------------------------------------------------------------------------------------------- steps of runs


def test_steps_of_a_run(tmp_path):
    """A run gives what the verbs give, and its checkpoints are adapters and states."""
    run, policy = tmp_path / "run", rein.Policy(LLAMA, lora_rank=4, seed=5)
    settings = {"advantage": "group-mean", "learning_rate": 0.02, "lora_rank": 4, "seed": 5}
    for step in (1, 2):
        groups = groups_of(policy, step)
        report = rein.train(run, groups, model=LLAMA if step == 1 else None, **(settings if step == 1 else {}))
        done = policy.forward_backward(groups, PLAIN)
        norm = policy.optim_step(0.02)
        assert (report["step"], report["nothing_to_train"]) == (step, False)
        assert report["loss"] == done.loss and report["reward"] == done.metrics["reward"]
        assert norm in report.values()
        other = rein.Policy(LLAMA, report["checkpoint"])
        assert same(values_of(policy), values_of(other))
        other.load_state(report["checkpoint"])
        assert other.steps == step
    equal = groups_of(policy, 3, reward=lambda sample: 1.0)
    report = rein.train(run, equal, learning_rate=0.01, seconds_sample=1.5)
    assert report["step"] == 3 and report["nothing_to_train"]
    assert len((run / "history.jsonl").read_text().splitlines()) == 3


def test_groups_of_a_run_from_a_file(tmp_path):
    group = [{"prompt_ids": [1, 5], "response_ids": [7, 8], "reward": reward} for reward in (1, 0)]
    (tmp_path / "groups.jsonl").write_text(json.dumps({"trajectories": group}) + "\n")
    settings = {"model": LLAMA, "preset": "grpo", "kl_loss_coef": 0.1, "lora_modules": ["q_proj", "v_proj"]}
    report = rein.train(tmp_path / "run", tmp_path / "groups.jsonl", use_rslora=True, **settings)
    assert report["step"] == 1
    adapter = json.loads((Path(report["checkpoint"]) / "adapter_config.json").read_text())
    assert sorted(adapter["target_modules"]) == ["q_proj", "v_proj"] and adapter["use_rslora"] is True


def test_what_is_wrong_with_a_step(tmp_path):
    good = [[rein.Trajectory(**GOOD), rein.Trajectory(**{**GOOD, "reward": 0})]]
    for settings, kind, match in (
        ({}, ValueError, "model is missing"),
        ({"model": LLAMA, "lora_rnk": 2}, ValueError, "did you mean lora_rank"),
        ({"model": LLAMA, "lora_rank": 0}, ValueError, "lora_rank"),
        ({"model": LLAMA, "lora_rank": {}}, TypeError, "lora_rank is {}: a number, a text or a list"),
        ({"model": tmp_path / "none"}, OSError, "none"),
    ):
        with pytest.raises(kind, match=match):
            rein.train(tmp_path / "run", good, **settings)
        assert not (tmp_path / "run").exists()
    rein.train(tmp_path / "run", good, model=LLAMA, advantage="group-mean")
    for _ in range(2):  # the run is not locked by a call that failed
        with pytest.raises(ValueError, match=r"log_probs has shape \[1\]"):
            rein.train(tmp_path / "run", [[rein.Trajectory([1], [2, 3], [-1.0], 1.0)]])
    with pytest.raises(ValueError, match="a new run is needed"):
        rein.train(tmp_path / "run", good, lora_rank=3)
    assert rein.train(tmp_path / "run", good)["step"] == 2
