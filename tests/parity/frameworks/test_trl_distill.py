"""TRL's loss of GKD, called as it is on the logits of two Hugging Face models in double precision, and PyTorch's
gradient of it by every weight of the student, against one step of rein with a teacher. Both models see the same tokens;
the divergence is over the whole vocabulary."""

import pathlib
import shutil
import warnings

import numpy as np
import pytest
import torch

import rein

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    gkd_trainer = pytest.importorskip("trl.experimental.gkd.gkd_trainer")
transformers = pytest.importorskip("transformers")
numpy_files = pytest.importorskip("safetensors.numpy")

SUMS = pathlib.Path(__file__).parents[3] / "models" / "sums"
KINDS = [("forward", None, 0), ("reverse", None, 1), ("jsd", 0.5, 0.5), ("jsd", 0.1, 0.1), ("jsd", 0.9, 0.9)]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """The student with noise on its weights: some nats away from it."""
    path = tmp_path_factory.mktemp("teacher") / "model"
    shutil.copytree(SUMS, path)
    rng = np.random.default_rng(3)
    tensors = numpy_files.load_file(path / "model.safetensors")
    noisy = {name: (x + rng.normal(0, 0.15 * x.std(), x.shape)).astype(np.float32) for name, x in tensors.items()}
    numpy_files.save_file(noisy, path / "model.safetensors", {"format": "pt"})
    return path


def sequences():
    rng = np.random.default_rng(11)
    return [(rng.integers(3, 90, rng.integers(2, 6)), rng.integers(3, 90, rng.integers(3, 9))) for _ in range(5)]


def padded(rows):
    longest = max(len(prompt) + len(response) for prompt, response in rows)
    ids, labels = torch.zeros(len(rows), longest, dtype=torch.long), torch.full((len(rows), longest), -100)
    for i, (prompt, response) in enumerate(rows):
        n = len(prompt) + len(response)
        ids[i, :n] = torch.tensor(np.concatenate([prompt, response]))
        labels[i, len(prompt) : n] = ids[i, len(prompt) : n]
    return ids, labels


def of_torch(teacher, beta, temperature):
    """TRL's loss and its gradient by every weight."""
    ids, labels = padded(sequences())
    load = transformers.AutoModelForCausalLM.from_pretrained
    student, other = (load(path, dtype=torch.float64) for path in (SUMS, teacher))
    with torch.no_grad():
        of_teacher = other(ids).logits[:, :-1]
    loss = gkd_trainer.GKDTrainer.generalized_jsd_loss(
        student(ids).logits[:, :-1], of_teacher, labels=labels[:, 1:], beta=beta, temperature=temperature
    )
    loss.backward()
    return loss.item(), {name: p.grad.numpy() for name, p in student.named_parameters() if p.grad is not None}


def of_rein(teacher, run, divergence, jsd_beta, temperature):
    """With beta1 = 0 the first moment of AdamW is the gradient."""
    groups = [[rein.Trajectory(list(prompt), list(response), None, reward=0)] for prompt, response in sequences()]
    settings = {"jsd_beta": jsd_beta} if jsd_beta else {}
    report = rein.train(
        run,
        groups,
        model=str(SUMS),
        full=True,
        teacher=str(teacher),
        teacher_coef=1,
        divergence=divergence,
        temperature=temperature,
        aggregation="token-mean",
        adam_beta1=0,
        max_grad_norm=0,
        **settings,
    )
    moments = numpy_files.load_file(run / "checkpoints" / "0001" / "optimizer.safetensors")
    return report, {name[len("first.") :]: x for name, x in moments.items() if name.startswith("first.")}


@pytest.mark.parametrize("temperature", [1, 0.9, 2])
@pytest.mark.parametrize(("divergence", "jsd_beta", "beta"), KINDS)
def test_gkd(teacher, tmp_path, divergence, jsd_beta, beta, temperature):
    loss, gradients = of_torch(teacher, beta, temperature)
    report, ours = of_rein(teacher, tmp_path / "run", divergence, jsd_beta, temperature)
    assert loss > 0.01
    assert abs(report["loss"] - loss) <= 2e-6 * loss
    assert abs(report["teacher/divergence"] - loss) <= 2e-6 * loss
    assert set(ours) == set(gradients)
    size = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    for name, gradient in gradients.items():
        apart = np.sqrt(((ours[name].reshape(gradient.shape) - gradient) ** 2).sum())
        assert apart <= 2e-6 * size, f"{name}: {apart / size}"
