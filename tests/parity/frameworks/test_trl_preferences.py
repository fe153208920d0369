"""The losses over preferences of TRL's DPO, KTO, CPO, ORPO and reward trainers, called as they are on trainers that
were never initialised.

The model is replaced by given per-token log-probs; nothing of the losses is. rein gets the sums that these tokens
have, and its gradient by a sum is compared with TRL's by each token of the completion."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from agreement import distance

import rein

dpo_trainer = pytest.importorskip("trl.trainer.dpo_trainer")
kto_trainer = pytest.importorskip("trl.trainer.kto_trainer")
cpo_trainer = pytest.importorskip("trl.experimental.cpo.cpo_trainer")
reward_trainer = pytest.importorskip("trl.trainer.reward_trainer")
orpo_trainer = pytest.importorskip("trl.experimental.orpo.orpo_trainer")

PAIRS, LONGEST = 5, 9
ACCELERATOR = SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)


class Tokens:
    """Per-token log-probs [2·pairs, LONGEST], the chosen completions first; masked entries are 0, as TRL's are."""

    def __init__(self, seed, drift=0.3):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, LONGEST + 1, 2 * PAIRS)
        self.lengths = torch.tensor(lengths)
        self.mask = torch.arange(LONGEST) < self.lengths[:, None]
        values = rng.uniform(-3, -0.05, (2 * PAIRS, LONGEST))
        self.lp = (torch.tensor(values) * self.mask).requires_grad_()
        self.ref = torch.tensor(values + rng.normal(0, drift, values.shape)) * self.mask

    def sums(self, which):
        chosen, rejected = which.detach().sum(1).chunk(2)
        return chosen.numpy(), rejected.numpy()

    def counts(self):
        chosen, rejected = self.lengths.chunk(2)
        return {"chosen_lengths": chosen.numpy(), "rejected_lengths": rejected.numpy()}

    def references(self):
        chosen, rejected = self.sums(self.ref)
        return {"ref_chosen_log_probs": chosen, "ref_rejected_log_probs": rejected}

    def outputs(self):
        zeros = torch.zeros_like(self.ref)
        return SimpleNamespace(log_probs=self.lp, entropy=zeros, mean_logits=zeros, is_top1=self.mask)

    def inputs(self):
        prompt = torch.zeros(2 * PAIRS, 1, dtype=torch.bool)  # one token of prompt
        completion = torch.cat([prompt, self.mask], 1)
        return {
            "input_ids": torch.zeros(completion.shape, dtype=torch.long),
            "attention_mask": torch.ones_like(completion, dtype=torch.long),
            "completion_mask": completion.long(),
        }


def bare(kind, **fields):
    it = kind.__new__(kind)
    for name, value in {"accelerator": ACCELERATOR, "aux_loss_enabled": False, **fields}.items():
        object.__setattr__(it, name, value)
    return it


def spread(t, by_chosen, by_rejected):
    """rein's gradient by a sum is the gradient by each token of the completion."""
    return np.concatenate([by_chosen, by_rejected])[:, None] * t.mask.numpy()


def check(t, ours, loss, tolerance=1e-10):
    value, gradients, *_ = ours
    theirs = torch.autograd.grad(loss, t.lp)[0].numpy() * t.mask.numpy()
    assert abs(value - loss.item()) <= tolerance * max(1, abs(value))
    assert distance(spread(t, *gradients), theirs) <= tolerance


# ----------------------------------------------------------------------------------------------------------------- DPO


def dpo_loss(t, loss_type, beta, smoothing):
    trainer = bare(
        dpo_trainer.DPOTrainer,
        model=SimpleNamespace(training=True),
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[loss_type],
        loss_weights=[1.0],
        beta=beta,
        label_smoothing=smoothing,
        use_weighting=False,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    chosen, rejected = t.ref.sum(1).chunk(2)
    inputs = {**t.inputs(), "ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
    loss = trainer._compute_loss(lambda **_: t.outputs(), inputs, False)
    return loss, trainer._metrics["train"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "loss_type", "smoothing"),
    [
        ("dpo", "sigmoid", None),
        ("hinge", "hinge", None),
        ("robust", "robust", 0.2),
        ("ipo_mean", "ipo", None),
    ],
)
def test_dpo(name, loss_type, smoothing, seed):
    t = Tokens(seed)
    lengths = t.counts() if name == "ipo_mean" else {}
    ours = rein.preference_loss(
        name,
        *t.sums(t.lp),
        **t.references(),
        **lengths,
        beta=0.3,
        label_smoothing=smoothing,
        return_grad=True,
        return_metrics=True,
    )
    loss, metrics = dpo_loss(t, loss_type, 0.3, smoothing or 0.0)
    check(t, ours, loss)
    for key, value in ours[2].items():
        assert metrics[key][0] == pytest.approx(value, rel=1e-6), key  # TRL averages accuracies in float32


def test_ipo_of_the_paper_is_not_trls():
    """TRL divides by the number of tokens; the paper's sums are ipo_sum here."""
    t = Tokens(1)
    loss, _ = dpo_loss(t, "ipo", 0.3, 0.0)
    ours = rein.preference_loss("ipo_sum", *t.sums(t.lp), **t.references(), beta=0.3)
    assert abs(ours - loss.item()) > 0.05 * loss.item()


def test_smoothing_without_effect():
    """TRL's sigmoid ignores label_smoothing: what was cDPO there is dpo. Here cdpo has it, and dpo refuses it."""
    t = Tokens(2)
    plain, smoothed = dpo_loss(t, "sigmoid", 0.3, 0.0)[0], dpo_loss(t, "sigmoid", 0.3, 0.3)[0]
    assert plain.item() == smoothed.item()
    given = {"beta": 0.3, "label_smoothing": 0.3, **t.references()}
    assert abs(rein.preference_loss("cdpo", *t.sums(t.lp), **given) - plain.item()) > 1e-3
    with pytest.raises(ValueError, match="label_smoothing has no effect with loss dpo"):
        rein.preference_loss("dpo", *t.sums(t.lp), **given)


# ----------------------------------------------------------------------------------------------------------------- KTO


@pytest.mark.parametrize("seed", range(5))
def test_kto(seed):
    t = Tokens(seed, drift=1.0)
    rng = np.random.default_rng(seed)
    labels = np.array([1, 0] * PAIRS)
    mismatched = torch.tensor(rng.normal(-10, 1, 2 * PAIRS)), torch.tensor(rng.normal(-10.5, 1, 2 * PAIRS))
    trainer = bare(
        kto_trainer.KTOTrainer,
        model=SimpleNamespace(training=True),
        loss_type="kto",
        beta=0.2,
        desirable_weight=1.3,
        undesirable_weight=0.6,
        calculate_KL=True,
        precompute_ref_logps=True,
        _compute_kl_logps=lambda model, batch: mismatched[0],
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    inputs = {**t.inputs(), "label": torch.tensor(labels), "ref_logps": t.ref.sum(1), "ref_KL_logps": mismatched[1]}
    loss = trainer._compute_loss(lambda **_: t.outputs(), inputs, False)
    value, gradient = rein.preference_loss(
        "kto",
        log_probs=t.lp.detach().sum(1),
        ref_log_probs=t.ref.sum(1),
        labels=labels,
        kl=(mismatched[0] - mismatched[1]).mean().item(),
        beta=0.2,
        desirable_weight=1.3,
        undesirable_weight=0.6,
        return_grad=True,
    )
    theirs = torch.autograd.grad(loss, t.lp)[0].numpy()
    assert value == pytest.approx(loss.item(), rel=1e-10)
    assert distance(gradient[:, None] * t.mask.numpy(), theirs * t.mask.numpy()) <= 1e-10


# ------------------------------------------------------------------------------------------------------- CPO and SimPO


def batch_loss(kind, t, nll, average, **fields):
    """get_batch_loss_metrics of a trainer whose forward pass gives the tokens' sums or means."""
    s = t.lp.sum(1) / t.lengths if average else t.lp.sum(1)
    chosen, rejected = s.chunk(2)
    logits = torch.zeros(1)
    trainer = bare(kind, concatenated_forward=lambda model, batch: (chosen, rejected, logits, logits, nll), **fields)
    return trainer.get_batch_loss_metrics(None, {})


def cpo(t, loss_type, nll, **fields):
    constants = {"alpha": 0.0, "label_smoothing": 0, "loss_type": loss_type, "simpo_gamma": 0.5, **fields}
    return batch_loss(cpo_trainer.CPOTrainer, t, nll, loss_type == "simpo", **constants)


def chosen_nll(t):
    """Mean over pairs of −s_w/n_w: CPO's regulariser here."""
    return -(t.lp[:PAIRS].sum(1) / t.lengths[:PAIRS]).mean()


@pytest.mark.parametrize("seed", range(5))
def test_cpo_and_simpo(seed):
    t = Tokens(seed)
    loss, _ = cpo(t, "sigmoid", chosen_nll(t), beta=0.2, cpo_alpha=0.7)
    lengths = t.counts()
    check(t, rein.preference_loss("cpo", *t.sums(t.lp), **lengths, beta=0.2, cpo_alpha=0.7, return_grad=True), loss)
    loss, metrics = cpo(t, "simpo", torch.zeros(()), beta=2.0, cpo_alpha=0.0, simpo_gamma=0.8)
    ours = rein.preference_loss(
        "simpo", *t.sums(t.lp), **lengths, simpo_gamma=0.8, return_grad=True, return_metrics=True
    )
    check(t, ours, loss)
    for key in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"):
        assert metrics[key] == pytest.approx(ours[2][key], rel=1e-6), key


def test_cpos_nll_is_a_token_mean():
    """TRL's nll is the mean over all tokens of the chosen sequences, the prompt included; here each completion counts
    the same, without the prompt."""
    t = Tokens(3)
    token_mean = -t.lp[:PAIRS].sum() / t.lengths[:PAIRS].sum()  # a prompt of no tokens
    theirs, _ = cpo(t, "sigmoid", token_mean, beta=0.2, cpo_alpha=1.0)
    ours = rein.preference_loss("cpo", *t.sums(t.lp), **t.counts(), beta=0.2)
    assert theirs.item() - ours == pytest.approx((token_mean - chosen_nll(t)).item())
    assert abs(theirs.item() - ours) > 1e-2


def test_simpo_with_trls_default_has_an_nll():
    """cpo_alpha is 1 in TRL for every loss, also for simpo; here simpo is the paper's loss."""
    t = Tokens(4)
    theirs, _ = cpo(t, "simpo", chosen_nll(t), beta=2.0, cpo_alpha=1.0)
    ours = rein.preference_loss("simpo", *t.sums(t.lp), **t.counts())
    assert theirs.item() - ours == pytest.approx(chosen_nll(t).item())


# ---------------------------------------------------------------------------------------------------------------- ORPO


@pytest.mark.parametrize("seed", range(5))
def test_orpo(seed):
    """The odds are computed in float32 in TRL, in float64 here."""
    t = Tokens(seed)
    loss, metrics = batch_loss(orpo_trainer.ORPOTrainer, t, chosen_nll(t), True, beta=0.4)
    ours = rein.preference_loss("orpo", *t.sums(t.lp), **t.counts(), beta=0.4, return_grad=True, return_metrics=True)
    check(t, ours, loss, tolerance=1e-6)
    for key in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"):
        assert metrics[key] == pytest.approx(ours[2][key], rel=1e-5), key


# ------------------------------------------------------------------------------------------------------- reward models


def reward_model_loss(rewards, margins, center):
    """TRL's RewardTrainer.compute_loss; the rewards stand in for the model's output."""
    trainer = bare(
        reward_trainer.RewardTrainer,
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(center_rewards_coefficient=center),
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    inputs = {"attention_mask": torch.ones(len(rewards), 1)}
    if margins is not None:
        inputs["margin"] = torch.tensor(margins)
    model = lambda attention_mask, use_cache, margin=None: SimpleNamespace(logits=rewards[:, None])  # noqa: E731
    return trainer.compute_loss(model, inputs), trainer._metrics["train"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("margin", "center"), [(False, None), (True, None), (False, 0.01), (True, 0.5)])
def test_reward_model(margin, center, seed):
    rng = np.random.default_rng(seed)
    rewards = torch.tensor(rng.normal(0, 3, 2 * PAIRS), requires_grad=True)
    margins = rng.uniform(0, 2, PAIRS) if margin else None
    loss, metrics = reward_model_loss(rewards, margins, center)
    chosen, rejected = rewards.detach().numpy()[:PAIRS], rewards.detach().numpy()[PAIRS:]
    value, gradients, accuracy = rein.reward_loss(
        chosen, rejected, margins, center or 0.0, return_grad=True, return_accuracy=True
    )
    theirs = torch.autograd.grad(loss, rewards)[0].numpy()
    assert abs(value - loss.item()) <= 1e-12 * max(1, abs(value))
    assert distance(np.concatenate(gradients), theirs) <= 1e-12
    assert abs(accuracy - metrics["accuracy"][0]) < 1e-6
