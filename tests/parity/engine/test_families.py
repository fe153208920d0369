"""Log-probabilities, entropies, logits and gradients of random models of every family against torch."""

import pytest
from decoder_checks import check_gradients, check_logits, check_oracle, make_case
from families import CHOSEN, FAMILIES


@pytest.fixture(scope="module", params=CHOSEN)
def case(request, tmp_path_factory):
    return make_case(request.param, tmp_path_factory.mktemp("model"), *FAMILIES[request.param])


@pytest.mark.parametrize("trains, temperature", [("weights", 0.6), ("adapter", 0.6), ("adapter", 1.0)])
def test_log_probs_and_gradients(case, trains, temperature):
    check_gradients(case, trains, temperature)


def test_logits(case):
    check_logits(case)


def test_oracle_is_transformers(case):
    check_oracle(case)
