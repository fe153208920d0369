"""torch_step.py - a batch as torch sees it: trained tokens only, with sums over sequences and groups.

The one place where masks are handled: a token that does not train is not in these tensors at all.
"""

import torch
from batches import TOKEN_ARRAYS


class Step:
    """Trained tokens of a batch in float64. `lp` and `entropy` are leaves: their gradients are what rein must
    return."""

    def __init__(self, batch):
        self.batch = batch
        self.where = torch.tensor(batch.mask.nonzero()[0])
        owner = torch.repeat_interleave(torch.arange(len(batch.lengths)), torch.tensor(batch.lengths, dtype=torch.long))
        self.sequence = owner[self.where]  # of each trained token
        self.group = torch.tensor(batch.group_of)  # of each sequence
        self.n_sequences, self.n_groups = len(batch.lengths), len(batch.group_sizes)
        self.n = self.sequence_sum(torch.ones(len(self.where), dtype=torch.float64))  # trained tokens of each sequence
        for name in TOKEN_ARRAYS:
            setattr(self, name, torch.tensor(batch.tokens[name], dtype=torch.float64)[self.where])
        self.lp = self.log_probs.clone().requires_grad_(True)
        self.entropy = self.entropies.clone().requires_grad_(True)
        self.old, self.ref, self.sample = self.old_log_probs, self.ref_log_probs, self.sample_log_probs
        self.reward = torch.tensor(batch.rewards, dtype=torch.float64)
        self.length = torch.tensor(batch.response_lengths, dtype=torch.float64)

    # sums over sequences and groups, and back
    def sequence_sum(self, x):
        return torch.zeros(self.n_sequences, dtype=torch.float64).index_add(0, self.sequence, x)

    def sequence_mean(self, x):
        return self.sequence_sum(x) / self.n.clamp(min=1)

    def to_tokens(self, per_sequence):
        return per_sequence[self.sequence]

    def group_sum(self, per_sequence):
        return torch.zeros(self.n_groups, dtype=torch.float64).index_add(0, self.group, per_sequence)

    def group_mean(self, per_sequence):
        """Of each sequence's group, one entry a sequence."""
        return (self.group_sum(per_sequence) / self.group_sum(torch.ones_like(per_sequence)))[self.group]

    def groups(self):
        return [torch.nonzero(self.group == g).flatten() for g in range(self.n_groups)]

    def token_runs(self):
        """For each sequence the positions of its trained tokens, in order."""
        return [torch.nonzero(self.sequence == i).flatten() for i in range(self.n_sequences)]

    @property
    def d(self):
        return self.lp - self.old

    @property
    def trained_sequences(self):
        return (self.n > 0).sum().clamp(min=1)

    # the three ways papers average
    def mean_over_tokens(self, x):
        return x.sum() / max(1, len(x))

    def mean_of_sequence_means(self, x):
        return self.sequence_mean(x).sum() / self.trained_sequences

    def mean_of_sequence_sums(self, x):
        return self.sequence_sum(x).sum() / self.trained_sequences

    def gradients(self, loss):
        """d loss/d lp and d loss/d entropy, one entry a token of the batch, 0 where masked."""
        out = []
        for leaf in (self.lp, self.entropy):
            grad = torch.zeros(len(self.batch.mask), dtype=torch.float64)
            if loss.requires_grad:
                part = torch.autograd.grad(loss, leaf, retain_graph=True, allow_unused=True)[0]
                if part is not None:
                    grad[self.where] = part
            out.append(grad.numpy())
        return out
