"""/metrics, read by Prometheus' own parser."""

import json
import urllib.request

import pytest

parser = pytest.importorskip("prometheus_client.parser")


def get(server, path, body=None):
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data, headers)) as answer:
        return answer.headers, answer.read().decode()


def families(server):
    headers, text = get(server, "/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def value(family):
    (sample,) = family.samples
    return sample.value


def test_families(server):
    for name, family in families(server).items():
        assert family.type in ("counter", "gauge", "histogram") and family.documentation, name
        assert family.samples, name


def test_counts(server):
    before = families(server)
    body = {"model": "one", "prompt": "Q:1", "n": 3, "max_tokens": 5, "ignore_eos": True}
    usage = json.loads(get(server, "/v1/completions", body)[1])["usage"]
    after = families(server)
    for name, more in (
        ("rein_requests", 1),
        ("rein_prompt_tokens", usage["prompt_tokens"]),
        ("rein_completion_tokens", 15),
        ("rein_requests_failed", 0),
    ):
        assert after[name].type == "counter"
        assert value(after[name]) == value(before[name]) + more, name
    assert value(after["vllm:num_requests_waiting"]) == value(after["rein_requests_waiting"]) == 0
    assert value(after["rein_policy_step"]) == 2


def test_histograms(server):
    get(server, "/v1/completions", {"model": "one", "prompt": "Q:1"})
    for name in ("rein_first_token_seconds", "rein_request_seconds"):
        family = families(server)[name]
        buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name == name + "_bucket"]
        plain = {s.name.removeprefix(name): s.value for s in family.samples if not s.labels}
        assert family.type == "histogram" and buckets == sorted(buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (float("inf"), plain["_count"]) and plain["_count"] >= 1 and plain["_sum"] > 0
