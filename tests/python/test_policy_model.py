"""rein.Policy on tiny models: sampling, log-probs, parameters, files and lifetime."""

import ctypes
import gc
import json
import os
import pickle
import re
import shutil
import subprocess
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from policies import (
    FAMILIES,
    FIXTURES,
    LLAMA,
    PLAIN,
    PROMPTS,
    ROOT,
    STORIES,
    groups_of,
    same,
    trained,
    values_of,
    whole,
)

import rein
from rein import _engine, _train
from rein._groups import Groups

stories = pytest.mark.skipif(not STORIES.exists(), reason=f"there is no {STORIES}: texts are not sampled")


# ------------------------------------------------------------------------------------------------------ the binding


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler: the layout of the structs is not compared")
def test_structs_are_those_of_the_headers(tmp_path):
    """Sizes and offsets of the C compiler."""
    names = {"Error": "error", "Loss": "loss", "Exec": "exec"}
    structs = [getattr(rein._library, name) for name in names]
    structs += [
        kind
        for kind in vars(_engine).values()
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and "rein_" in (kind.__doc__ or "")
    ]
    structs.append(_train.Report)
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
        assert ctypes.sizeof(kind) == int(said[name]) == rein._library.struct_size(name.encode()), name
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
    policy = rein.Policy(FIXTURES / family, FIXTURES / family / "adapter", temperature=3.0)
    together = policy.sample(PROMPTS, samples=5, max_tokens=9, step=3)
    assert [len(group) for group in together] == [5, 5, 5]
    again = rein.Policy(FIXTURES / family, FIXTURES / family / "adapter", temperature=3.0, threads=1)
    for i, prompt in enumerate(PROMPTS):
        alone = again.sample([prompt], samples=5, max_tokens=9, step=3, prompt_index=[i])[0]
        for one, other in zip(together[i], alone):
            assert np.array_equal(one.response_ids, other.response_ids)
            assert one.log_probs.tobytes() == other.log_probs.tobytes()
            assert one.prompt_ids.tolist() == prompt and one.finish == other.finish
    assert len({tuple(sample.response_ids) for sample in together[0]}) > 1
    one, two = policy.sample([[1, 5], [1, 5]], max_tokens=20, step=0)
    assert not np.array_equal(one[0].response_ids, two[0].response_ids)
    for repeated in policy.sample([[1, 5], [1, 5]], max_tokens=20, step=0, prompt_index=[1, 1]):
        assert np.array_equal(repeated[0].response_ids, two[0].response_ids)
    for different in ({"step": 4}, {"seed": 2, "step": 3}):
        other = policy.sample(PROMPTS, samples=5, max_tokens=9, **different)
        assert any(not np.array_equal(a.response_ids, b.response_ids) for a, b in zip(together[0], other[0]))


def test_each_call_without_a_step_gives_new_samples():
    """The calls count the steps themselves; those with a step do not count."""
    policy, other = rein.Policy(LLAMA), rein.Policy(LLAMA)
    for step in range(3):
        counted = policy.sample([[1, 5]], max_tokens=20)[0][0]
        given = other.sample([[1, 5]], max_tokens=20, step=step)[0][0]
        assert np.array_equal(counted.response_ids, given.response_ids)
    with pytest.raises(ValueError):
        policy.sample([[-1]])
    assert np.array_equal(
        policy.sample([[1, 5]], max_tokens=20)[0][0].response_ids,
        other.sample([[1, 5]], max_tokens=20, step=3)[0][0].response_ids,
    )


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


TEMPLATE = (
    "{% for t in tools or [] %}{{ t.name }}{% endfor %}{% if day %}{{ strftime_now('%d') }}{% endif %}"
    "{% for m in messages %}{{ m.role[0] ~ ':' ~ (m.content or '') }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.n }}){% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def model_with_template(directory, template):
    """models/sums with a chat template of its own."""
    shutil.copytree(ROOT / "models" / "sums", directory, dirs_exist_ok=True)
    (directory / "chat_template.jinja").write_text(template)
    return directory


def test_a_template_is_run(tmp_path):
    """With tools, tool calls and variables; a content spells no special token."""
    directory = model_with_template(tmp_path, TEMPLATE)
    tokenizer = rein.Tokenizer(directory, date="2026-11-18")
    call = {"type": "function", "function": {"name": "add", "arguments": '{"n": 3}'}}
    messages = [{"role": "user", "content": "1<end>"}, {"role": "assistant", "tool_calls": [call]}]
    text = "addu:1<end><end>a:(add 3)<end>a:"
    assert tokenizer.chat_text(messages, tools=[{"name": "add"}]) == text
    ids = tokenizer.apply_chat_template(messages, tools=[{"name": "add"}])
    assert tokenizer.decode(ids) == text and ids.count(tokenizer.token_id("<end>")) == 2
    assert tokenizer.chat_text(messages[:1], False, day=True) == "18u:1<end><end>"
    with pytest.raises(TypeError, match="tools cannot be JSON"):
        tokenizer.chat_text(messages, tools=[object()])
    with rein.Policy(directory, adapter=False) as policy:
        sample = policy.sample([{"messages": messages, "tools": [{"name": "add"}]}], max_tokens=2)[0][0]
        assert sample.prompt_ids.tolist() == ids
        assert policy.sample([messages[:1]], max_tokens=1)[0][0].prompt_ids.tolist() == tokenizer.encode(
            "u:1", add_special=False
        ) + tokenizer.encode("<end>", add_special=False) + tokenizer.encode(
            "<end>a:", add_special=False, parse_special=True
        )
        with pytest.raises(ValueError, match="chat_template_kwargs, messages, tools are possible"):
            policy.sample([{"messages": messages, "tols": []}])


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
    model, adapter = weakref.ref(policy._model), weakref.ref(policy._adapter)
    parameters[name][:] = 0.25
    view = parameters[name][2:]
    policy.close()
    del policy, parameters
    gc.collect()
    assert model() and adapter() and (view == 0.25).all()  # an array keeps its memory
    del view
    gc.collect()
    assert not model() and not adapter()
    assert rein.Policy(LLAMA, False).parameters() == {}
    whole_model = rein.Policy(LLAMA, full=True).parameters()
    assert whole_model["model.norm.weight"].shape == (16,)
    assert whole_model["model.embed_tokens.weight"].shape == (40, 16)


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
def test_a_state_resumes_bit_for_bit(tmp_path, full):
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
        ({"model": "a\0b"}, ValueError, "a path without NUL is needed"),
        ({"adapter": "no/such/adapter"}, OSError, "no/such/adapter"),
        ({"lora_rank": 0}, ValueError, "lora_rank is 0: it must be 1 or more"),
        ({"lora_rank": 2.5}, TypeError, "lora_rank is 2.5: a whole number is needed"),
        ({"lora_alpha": -1.0}, ValueError, "alpha is -1"),
        ({"lora_modules": ["q_prj"]}, ValueError, "did you mean q_proj"),
        ({"lora_modules": []}, ValueError, "lora_modules is empty"),
        ({"adapter": False, "lora_rank": 4}, ValueError, "lora_rank has no effect"),
        ({"full": True, "adapter": "x"}, ValueError, "adapter has no effect with full"),
        ({"full": True, "quantize": "q8_0"}, ValueError, "quantize contradicts train"),
        ({"quantize": "q3_k"}, ValueError, "q8_0 and q4_0 are known"),
        ({"full": True, "use_rslora": True}, ValueError, "use_rslora has no effect"),
        ({"temperature": 0.0}, ValueError, "temperature is 0: it must be between 0.001 and 1000"),
        ({"threads": -1}, ValueError, "threads is -1"),
    ],
)
def test_what_cannot_be_opened(arguments, kind, match):
    with pytest.raises(kind, match=match):
        rein.Policy(**{"model": LLAMA, **arguments})


@pytest.mark.parametrize(
    ("prompts", "options", "kind", "match"),
    [
        ("text", {}, TypeError, r"^prompts must be a list; got a single string: \['text'\]"),
        (["text"], {}, ValueError, "no tokenizer.json"),
        ([[1, 40]], {}, ValueError, r"prompts\[0\]\[1\] is 40: a token id from 0 to 39 is needed"),
        ([[]], {}, ValueError, "prompt is empty"),
        ([5], {}, TypeError, r"prompts\[0\] is 5: a text, a list of messages or a list of token ids"),
        ([[1]], {"samples": 0}, ValueError, "samples is 0: it must be 1 or more"),
        ([[1]], {"max_tokens": 0}, ValueError, "max_tokens is 0"),
        ([[1]], {"top_p": 0.0}, ValueError, "top_p is 0"),
        ([[1]], {"greedy": True, "top_k": 3}, ValueError, "min_p would have no effect"),
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


# ----------------------------------------------------------------------------------------------------------- lifetime


def test_wrong_numbers():
    with rein.Policy(LLAMA) as policy:
        policy.forward_backward(groups_of(policy), PLAIN)
        with pytest.raises(TypeError, match="learning_rate is 'x': a number is needed"):
            policy.optim_step("x")
        with pytest.raises(ValueError, match="samples is 0: it must be 1 or more$"):
            policy.sample([[1]], samples=0)


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
    assert len(reference.sample([[1, 5]])[0][0].response_ids)  # the copy keeps the model
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(reference)
    with pytest.raises(ValueError, match="all weights train: a copy is not possible"):
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

    # Each is the reference of the other: taking the two locks in different orders would deadlock.
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
            with Groups([[{"prompt_ids": [1], "response_ids": [5] * 20000, "reward": 1}]], None):
                pass
            assert len(tokenizer.decode(tokenizer.encode("words " * 30000))) == 180000

    tokenizer = rein.Tokenizer(ROOT / "tests/model/fixtures/tokenizer/gpt2")
    loop(20)
    gc.collect()
    before = resident()
    loop(50)
    gc.collect()
    assert resident() - before < 4 << 20
