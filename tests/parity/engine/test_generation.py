"""Generation step by step, far beyond the windows: the log-probabilities are those of the whole sequence, ours bit for
bit, torch's nearly; and the greedy text is that of transformers with its own cache."""

import engine
import oracle
import pytest
import torch
from decoder_checks import FLOOR, largest, make_case, within
from families import CHOSEN, FAMILIES

LENGTHS = [70, 90, 66]  # of the prompts
NEW, SAMPLES = 90, 2


@pytest.fixture(scope="module", params=CHOSEN)
def case(request, tmp_path_factory):
    return make_case(request.param, tmp_path_factory.mktemp("model"), *FAMILIES[request.param])


def prompts(case):
    return oracle.random_tokens(LENGTHS, [-1] * len(LENGTHS), case.vocabulary, seed=4).segments


def tree(asked, sampled):
    """Every prompt once, with its completions after it; and which tokens were sampled."""
    tokens, mask = oracle.Tokens([], []), []
    for request, prompt in enumerate(asked):
        root = len(tokens.segments)
        completions = [ids for (r, _), (ids, _) in sorted(sampled.items()) if r == request]
        tokens.segments += [prompt, *completions]
        tokens.parents += [-1] + [root] * len(completions)
        mask += [False] * len(prompt) + [True] * sum(map(len, completions))
    return tokens, torch.tensor(mask)


def same(a, b):
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.mark.parametrize("adapted", [False, True])
def test_log_probs_of_sampling(case, adapted):
    asked, adapter = prompts(case), str(case.folder / "adapter") if adapted else None
    options = dict(adapter=adapter, temperature=0.8, samples=SAMPLES, max_tokens=NEW)
    sampled = engine.sample(case.folder, asked, **options)
    assert len(sampled) == SAMPLES * len(asked) and all(len(ids) == NEW for ids, _ in sampled.values())
    sampled = dict(sorted(sampled.items()))
    tokens, mask = tree(asked, sampled)
    recorded = torch.cat([log_probs for _, log_probs in sampled.values()])
    assert same(recorded, engine.evaluate(case.folder, tokens, 0.8, adapter=adapter).log_probs[mask])
    # Each as a sequence of its own, and sampled in other company: the prompt in pieces, one sample after another.
    apart = oracle.Tokens([asked[r] + ids for (r, _), (ids, _) in sampled.items()], [-1] * len(sampled))
    alone = engine.evaluate(case.folder, apart, 0.8, adapter=adapter).log_probs.split([*map(len, apart.segments)])
    assert same(recorded, torch.cat([log_probs[-NEW:] for log_probs in alone]))
    again = engine.sample(case.folder, asked, **options, max_prompt_tokens=23, max_active=1)
    for key, (ids, log_probs) in sampled.items():
        assert again[key][0] == ids and same(again[key][1], log_probs)
    found = []
    for model, dtype in ((case.plain, torch.float32), (case.exact, torch.float64)):
        detach = case.adapter.to(dtype).attach(model) if adapted else list
        with torch.no_grad():
            found.append(oracle.log_probs(model, tokens, 0.8)[0][mask])
        detach()
    within(f"{case.name}: sampled", largest(recorded, found[1]), largest(found[0], found[1]), FLOOR["log_probs"])


@torch.no_grad()
def test_greedy_text(case):
    """Until a step at which the two most probable tokens are nearer to each other than rounding."""
    prompt, n = prompts(case)[-1], 50
    ids, _ = engine.sample(case.folder, [prompt], greedy=True, max_tokens=n)[0, 0]
    given = torch.tensor([prompt])
    cached = getattr(case.model.config, "sliding_window", None) != 1  # for 1, their cache keeps the last 0 keys: all
    options = dict(do_sample=False, max_new_tokens=n, eos_token_id=-1, pad_token_id=0, use_cache=cached)
    theirs = case.plain.generate(given, attention_mask=torch.ones_like(given), **options)[0, len(prompt) :].tolist()
    if ids != theirs:
        t = next(t for t, (a, b) in enumerate(zip(ids, theirs)) if a != b)
        z = case.exact(torch.tensor([prompt + ids[:t]]), use_cache=False).logits[0, -1].log_softmax(-1)
        assert abs(z[ids[t]] - z[theirs[t]]) < 1e-5, f"{case.name}: token {t} of the greedy text differs"
