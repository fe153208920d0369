"""models/sums, the model that rein ships, in transformers: it loads, says the same, with the same log-probabilities."""

import json
import subprocess

import engine
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = engine.ROOT / "models" / "sums"
PROMPTS = ["Q:7+8+9+6=?\nA:", "Q:1+4+9+4+9=?\nA:", "Q:2+2+2+2=?\nA:"]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_shipped_model(prompt):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    command = [engine.made("build/rein"), "generate", "--model", MODEL, "--prompt", prompt, "--greedy", "--json"]
    ours = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ids = tokenizer(prompt)["input_ids"]
    assert ours["prompt_ids"] == ids
    theirs = model.generate(torch.tensor([ids]), max_new_tokens=128, do_sample=False)[0]
    assert ours["response_ids"] == theirs[len(ids) :].tolist()
    assert ours["text"] == tokenizer.decode(theirs[len(ids) :], skip_special_tokens=True)
    with torch.no_grad():
        table = torch.log_softmax(model(theirs[None]).logits[0].double(), -1)
    wanted = table[torch.arange(len(ids) - 1, len(theirs) - 1), theirs[len(ids) :]]
    assert (wanted - torch.tensor(ours["logprobs"], dtype=torch.float64)).abs().max() < 1e-5
