"""serve.py REIN [TEST…]: talks to `rein serve` over plain sockets and http.client. serving.py has made the models, the run and the
adapter in the current directory. Prints 'N passed, N failed'."""

import concurrent.futures
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
import traceback

import serving

REIN = sys.argv[1]
FAST = bool(os.environ.get("REIN_TEST_FAST"))
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


class Server(serving.Server):
    def __init__(self, *arguments, rein=REIN, **more):
        super().__init__(rein, *arguments, **more)

    def ask(self, path, body=None, method=None, headers=None, raw=None, timeout=120):
        """Status, headers, and the answer: JSON if it is any, else text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = raw if raw is not None else None if body is None else json.dumps(body)
        base = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method or ("GET" if data is None else "POST"), path, data, {**base, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        try:
            return answer.status, answer.headers, json.loads(text)
        except ValueError:
            return answer.status, answer.headers, text

    def good(self, path, body=None, **more):
        status, _, answer = self.ask(path, body, **more)
        assert status == 200, (status, answer)
        return answer

    def bad(self, status, path, body=None, param=None, **more):
        got, _, answer = self.ask(path, body, **more)
        assert got == status, (got, answer)
        error = answer["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"], error
        if param:
            assert error["param"] == param, error
        return error

    def stream(self, path, body):
        events = self.good(path, {**body, "stream": True}).split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-3:]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    def metric(self, name):
        for line in self.good("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError(name)

    def wait(self, name, value, within=120):
        end = time.time() + within
        while self.metric(name) != value:
            assert time.time() < end, (name, self.metric(name))
            time.sleep(0.01)

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        return s

    def send(self, s, path, body):
        data = json.dumps(body).encode()
        s.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode() + data
        )


def read_until(c, wanted):
    """What comes, until these bytes are in it."""
    got = b""
    while wanted not in got:
        data = c.recv(65536)
        assert data, got[-200:]
        got += data
    return got


def say(*texts):
    roles = ["user", "assistant"]
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


def chat(text="Q:3 + 4 =", **more):
    return {"model": "one", "messages": say(text), "max_tokens": 24, "seed": 5, "return_token_ids": True, "logprobs": True, **more}


def joined(events):
    """A stream as one answer for each choice: text, ids, log-probabilities, the reason of its end, tool calls."""
    choices = {}
    for event in events:
        for part in event["choices"]:
            c = choices.setdefault(part["index"], {"text": "", "ids": [], "logprobs": [], "finish": None, "calls": []})
            c["text"] += part["delta"].get("content") or "" if "delta" in part else part["text"]
            c["calls"] += part.get("delta", {}).get("tool_calls", [])
            c["ids"] += part.get("token_ids", [])
            if part["logprobs"]:
                c["logprobs"] += part["logprobs"].get("content") or part["logprobs"]["token_logprobs"]
            if part["finish_reason"]:
                assert not c["finish"]
                c["finish"] = part["finish_reason"]
    return choices


def score(model, prompt, response, temperature):
    line = json.dumps({"prompt_ids": prompt, "response_ids": response})
    command = [REIN, "score", "--model", model, "--temperature", str(temperature)]
    done = subprocess.run(command, input=line, capture_output=True, text=True, check=True)
    return [float32(x) for x in json.loads(done.stdout)["logprobs"][-len(response) :]]


# ------------------------------------------------------------------------------------------------------------------------- tests


def test_names(s):
    names = {row["id"]: row.get("policy_step") for row in s.good("/v1/models")["data"]}
    assert names == {"one": 2, "one@0": 0, "one@1": 1, "one@2": 2, "base": None, "chatty": None, "caller": None}, names
    answer = s.good(CHAT, chat())
    assert (answer["model"], answer["policy_step"]) == ("one@2", 2), answer
    assert answer["choices"][0]["policy_step"] == 2 and s.good(TEXT, {"model": "one@0", "prompt": "Q"})["choices"][0]["policy_step"] == 0
    answer = s.good(CHAT, chat(model="base"))
    assert "policy_step" not in answer and "policy_step" not in answer["choices"][0]
    error = s.bad(404, CHAT, chat(model="one@9"), "model")
    assert error["code"] == "model_not_found"
    s.bad(404, CHAT, chat(model="other"), "model")
    s.bad(404, CHAT, chat(model="one@1x"), "model")


def test_stream_is_the_answer(s):
    for more in ({}, {"n": 3, "temperature": 1.3}, {"stop": ["1", "9"]}, {"temperature": 0}, {"top_logprobs": 3, "top_k": 5}):
        whole = s.good(CHAT, chat(**more))
        parts = joined(s.stream(CHAT, chat(**more)))
        assert len(parts) == len(whole["choices"]) == more.get("n", 1)
        for choice in whole["choices"]:
            part = parts[choice["index"]]
            assert part["text"] == choice["message"]["content"]
            assert part["ids"] == choice["token_ids"]
            assert part["logprobs"] == choice["logprobs"]["content"]
            assert part["finish"] == choice["finish_reason"]
            assert len(choice["token_ids"]) == len(choice["logprobs"]["content"])
    whole = s.good(TEXT, {"model": "one", "prompt": ["Q:1", "Q:2"], "n": 2, "seed": 3, "logprobs": 2, "max_tokens": 9})
    parts = joined(s.stream(TEXT, {"model": "one", "prompt": ["Q:1", "Q:2"], "n": 2, "seed": 3, "logprobs": 2, "max_tokens": 9}))
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2, 3]
    for choice in whole["choices"]:
        assert parts[choice["index"]]["text"] == choice["text"]
        assert parts[choice["index"]]["logprobs"] == choice["logprobs"]["token_logprobs"]
    usage = s.stream(CHAT, chat(stream_options={"include_usage": True}))[-1]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] > 0


def test_log_probs_are_the_trainers(s):
    for model, name in (("one", "one"), ("one@1", "one@1"), ("base", "chatty")):
        answer = s.good(CHAT, chat(model=model, temperature=0.7))
        choice = answer["choices"][0]
        got = [float32(entry["logprob"]) for entry in choice["logprobs"]["content"]]
        assert got == score(name, answer["prompt_token_ids"], choice["token_ids"], 0.7)
    answer = s.good(CHAT, chat(temperature=0.7, top_p=0.5))
    choice = answer["choices"][0]
    got = [float32(entry["logprob"]) for entry in choice["logprobs"]["content"]]
    assert got == score("one", answer["prompt_token_ids"], choice["token_ids"], 0.7)
    assert any(entry["sampler_logprob"] > entry["logprob"] for entry in choice["logprobs"]["content"])
    body = {"model": "one", "prompt": answer["prompt_token_ids"], "max_tokens": 24, "seed": 5, "temperature": 0.7, "top_p": 0.5, "logprobs": 0}
    same = s.good(TEXT, body)["choices"][0]["logprobs"]
    for name, wanted in (("token_logprobs", "logprob"), ("sampler_logprobs", "sampler_logprob")):
        assert same[name] == [entry[wanted] for entry in choice["logprobs"]["content"]]
        assert same[name] == [x for part in s.stream(TEXT, body) for x in (part["choices"][0]["logprobs"] or {name: []})[name]]
    echoed = s.good(TEXT, {**body, "echo": True})["choices"][0]["logprobs"]["sampler_logprobs"]
    assert echoed == [None] * len(answer["prompt_token_ids"]) + same["sampler_logprobs"]
    assert "sampler_logprobs" not in s.good(TEXT, {**body, "top_p": 1})["choices"][0]["logprobs"]


def test_prompt_log_probs(s):
    ids = s.good("/tokenize", {"prompt": "Q:3 + 4 ="})["tokens"]
    expected = score("one", ids[:1], ids[1:], 0.7)
    answer = s.good(TEXT, {"model": "one", "prompt": ids, "echo": True, "max_tokens": 0, "logprobs": 1})
    choice = answer["choices"][0]
    assert choice["text"] == "Q:3 + 4 =" and choice["logprobs"]["token_logprobs"][0] is None
    assert [float32(x) for x in choice["logprobs"]["token_logprobs"][1:]] == expected
    assert choice["logprobs"]["text_offset"] == list(range(len(ids))) and answer["usage"]["completion_tokens"] == 0
    answer = s.good(TEXT, {"model": "one", "prompt": ids, "max_tokens": 1, "prompt_logprobs": 2})
    entries = answer["choices"][0]["prompt_logprobs"]
    assert entries[0] is None
    assert [float32(entry[str(i)]["logprob"]) for i, entry in zip(ids[1:], entries[1:], strict=True)] == expected


def test_the_command_line_gives_the_same(s):
    command = [REIN, "generate", "--model", "one@1", "--prompt", "Q: 3 + 4", "--seed", "9", "--max-tokens", "20", "--json"]
    line = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    body = {"model": "one@1", "prompt": "Q: 3 + 4", "seed": 9, "max_tokens": 20, "logprobs": 0, "return_token_ids": True}
    choice = s.good(TEXT, body)["choices"][0]
    assert choice["token_ids"] == line["response_ids"] and choice["logprobs"]["token_logprobs"] == line["logprobs"]
    assert choice["text"] == line["text"]


def test_alone_and_among_others(s):
    alone = s.good(CHAT, chat())["choices"]
    others = [chat(f"Q:{i} +", seed=i, model=["one", "one@1", "base"][i % 3], temperature=0.5 + i / 50) for i in range(63)]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda body: s.good(CHAT, body), [*others[:31], chat(), *others[31:]]))
    assert answers[31]["choices"] == alone
    again = s.good(CHAT, others[7])["choices"]
    assert answers[7]["choices"] == again


def test_prefix_cache(s):
    first = s.good(CHAT, chat("Q:5 + 6 ="))
    text = first["choices"][0]["message"]["content"]
    second = {**chat(), "messages": say("Q:5 + 6 =", text, "and 2"), "max_tokens": 12}
    answer = s.good(CHAT, second)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, answer["usage"]
    known = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert answer["prompt_token_ids"][: len(known)] == known
    with Server("one", "--prefix-cache", "0") as plain:
        same = plain.good(CHAT, second)
        assert same["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert same["choices"] == answer["choices"] and same["prompt_token_ids"] == answer["prompt_token_ids"]


def test_tools(s):
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
    body = {"model": "caller", "messages": say("go"), "tools": tools, "temperature": 0, "logprobs": True, "return_token_ids": True}
    answer = s.good(CHAT, body)
    choice = answer["choices"][0]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls" and message["content"] == "hm", choice
    call = message["tool_calls"][0]
    assert call["type"] == "function" and call["function"] == {"name": "add", "arguments": '{"a": 3}'}, call
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
    part = joined(s.stream(CHAT, body))[0]
    assert (part["text"], part["finish"], part["ids"]) == ("hm", "tool_calls", choice["token_ids"])
    assert part["logprobs"] == choice["logprobs"]["content"]
    assert part["calls"][0]["function"] == call["function"] and part["calls"][0]["index"] == 0
    turns = [*say("go"), message, {"role": "tool", "tool_call_id": call["id"], "content": "3"}]
    after = s.good(CHAT, {**body, "messages": turns, "max_tokens": 3})
    sampled = [*answer["prompt_token_ids"], *choice["token_ids"]]  # put back as they are, with the blank that content does not have
    assert after["prompt_token_ids"][: len(sampled)] == sampled and sampled[-1] == 0
    text = s.good("/detokenize", {"tokens": after["prompt_token_ids"]})["prompt"]
    assert text.endswith('a:hm <tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call><end>\nt:3<end>\na:'), text
    other = [*say("go"), {**message, "content": "oh"}, turns[-1]]  # not what the server wrote
    ids = s.good("/tokenize", {"messages": other, "tools": tools})["tokens"]
    text = s.good("/detokenize", {"tokens": ids})["prompt"]
    assert text.endswith('a:oh<tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call><end>\nt:3<end>\na:'), text
    plain = s.good(CHAT, {**body, "tool_choice": "none"})["choices"][0]
    assert "tool_calls" not in plain["message"] and plain["finish_reason"] != "tool_calls"
    s.bad(400, CHAT, {**body, "tool_choice": "required"}, "tool_choice")
    s.bad(400, CHAT, {**body, "tool_choice": {"type": "function", "function": {"name": "add"}}}, "tool_choice")
    s.bad(400, CHAT, {**body, "tools": [{}]}, "tools")


def test_fields(s):
    neutral = {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "parallel_tool_calls": True, "store": False}
    s.good(CHAT, chat(user="me", metadata={"a": "b"}, service_tier=None, response_format={"type": "text"}, **neutral))
    for field, value in {
        "frequency_penalty": 1,
        "logit_bias": {"1": 5},
        "store": True,
        "reasoning_effort": "low",
        "unknown": 1,
        "temperature": -1,
        "top_p": 0,
        "min_p": 1,
        "top_k": "5",
        "n": 0,
        "seed": 1.5,
        "stop": [""],
        "stop_token_ids": [97],
        "top_logprobs": 99,
        "max_tokens": 0,
        "stream": "yes",
        "stream_options": {"include_usage": True},
        "service_tier": "flex",
        "function_call": {"name": "add"},
        "moderation": {"model": "m"},
        "prompt_cache_options": {},
        "user": 3,
        "metadata": "a",
        "max_completion_tokens": 8.5,
        "tools": "add",
        "response_format": {"type": "json_object"},
        "chat_template_kwargs": 3,
        "messages": [],
        "model": None,
        "min_tokens": 99,
        "echo": True,
    }.items():
        s.bad(400, CHAT, chat(**{field: value}), field)
    for options, field in (({"include_usage": "yes"}, "include_usage"), ({"foo": 1}, "foo"), ({"include_obfuscation": True}, "include_obfuscation")):
        s.bad(400, CHAT, chat(stream=True, stream_options=options), f"stream_options.{field}")
    s.stream(CHAT, chat(stream_options={"include_usage": None, "include_obfuscation": False}))
    for field, values in {"service_tier": ["auto", "default"], "function_call": ["auto", "none"], "moderation": [None]}.items():
        for value in values:
            s.good(CHAT, chat(**{field: value}))
    floats = s.good(CHAT, chat(max_tokens=8.0, n=2.0, seed=5.0, top_logprobs=1.0))["choices"]
    assert floats == s.good(CHAT, chat(max_tokens=8, n=2, seed=5, top_logprobs=1))["choices"]
    for messages in ("x", [1], [{"role": "king", "content": "a"}], [{"role": "user"}], [{"role": "tool", "content": None}], [{"role": "user", "content": [{"type": "image_url"}]}]):
        assert s.bad(400, CHAT, chat(messages=messages))["param"].startswith("messages")
    parts = [{"type": "text", "text": "Q:1"}, {"type": "text", "text": "2"}]
    joint = s.good(CHAT, chat(messages=[{"role": "user", "content": parts}]))
    assert joint["prompt_token_ids"] == s.good(CHAT, chat("Q:1\n2"))["prompt_token_ids"]
    for prompt in (None, 5, [], [[]], [0, "a"], [1, 97], "x" * 300):
        assert s.bad(400, TEXT, {"model": "one", "prompt": prompt})["message"]
    s.bad(400, TEXT, {"model": "one", "prompt": "x", "max_tokens": 0}, "max_tokens")
    s.bad(400, TEXT, {"model": "one", "prompt": ["x"] * 9, "n": 1024}, "n")
    assert s.good(CHAT, chat(min_tokens=10, max_tokens=10, temperature=2))["usage"]["completion_tokens"] == 10
    assert s.good(CHAT, chat(ignore_eos=True, max_tokens=60))["usage"]["completion_tokens"] == 60
    ids = chat(return_tokens_as_token_ids=True)
    choice = s.good(CHAT, ids)["choices"][0]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [f"token_id:{i}" for i in choice["token_ids"]]


def test_bad_requests(s):
    for raw in ("", "{", "[]", '{"model": "one", "model": "two"}', '{"a": NaN}', "\0", '{"model": "\xff"}'.encode("latin-1")):
        s.bad(400, CHAT, raw=raw)
    s.bad(404, "/v1/nothing")
    s.bad(405, CHAT)
    s.bad(405, "/health", {})
    status, headers, body = s.ask("/health", method="HEAD")
    assert (status, body) == (200, "") and int(headers["Content-Length"]) > 0
    s.bad(415, CHAT, chat(), headers={"Content-Type": "text/plain"})
    s.bad(403, CHAT, chat(), headers={"Origin": "http://example.org"})
    s.bad(403, CHAT, chat(), headers={"Host": "example.org"})
    s.good(CHAT, chat(), headers={"Origin": f"http://localhost:{s.port}", "Host": f"localhost:{s.port}"})
    s.bad(413, CHAT, raw="x" * (2 << 20))
    with s.connect() as c:  # a body that does not say how long it is
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(12):
            c.sendall(b"20000\r\n" + b"x" * 0x20000 + b"\r\n")
        c.sendall(b"0\r\n\r\n")
        assert b" 413 " in c.recv(4096).split(b"\r\n")[0]
    with s.connect() as c:  # headers without end
        try:
            for _ in range(64):
                c.sendall(b"GET /health HTTP/1.1\r\n" + b"a: " + b"b" * 4096 + b"\r\n")
            c.recv(4096)
        except OSError:
            pass
    for bytes_ in (b"\0" * 64, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
        with s.connect() as c:
            c.sendall(bytes_)
            c.shutdown(socket.SHUT_WR)
            c.settimeout(60)
            try:
                c.recv(4096)
            except OSError:
                pass
    with s.connect() as c:  # two requests at once
        c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        got = b""
        while got.count(b"HTTP/1.1 200") < 2:
            data = c.recv(65536)
            assert data, got
            got += data
    s.good("/health")


def test_disconnect_ends_the_samples(s):
    """Keys of samples that ended are used again: after the first round the memory does not grow."""
    memory = None
    for stream in (True, False, True, False):
        cancelled = s.metric("rein_requests_cancelled_total")
        body = chat(ignore_eos=True, max_tokens=200, stream=stream, n=1000)
        with s.connect() as c:
            s.send(c, CHAT, body)
            s.wait("rein_requests_running", 1)
            if stream:
                read_until(c, b"data:")
        s.wait("rein_requests_cancelled_total", cancelled + 1)
        s.wait("rein_requests_running", 0)
        s.wait("rein_text_bytes", 0)
        assert memory is None or s.metric("rein_memory_bytes") == memory, (memory, s.metric("rein_memory_bytes"))
        memory = s.metric("rein_memory_bytes")


def test_a_large_request_does_not_lock_others_out(s):
    alone = s.good(CHAT, chat(max_tokens=5))["choices"]
    before = s.metric("rein_completion_tokens_total")
    with s.connect() as c:
        s.send(c, CHAT, chat(ignore_eos=True, max_tokens=200, n=1000))
        s.wait("rein_requests_running", 1)
        time.sleep(0.3)
        for _ in range(3):
            assert s.good(CHAT, chat(max_tokens=5))["choices"] == alone
        tokens = s.metric("rein_completion_tokens_total") - before
        assert tokens < 100_000 and s.metric("rein_requests_running") == 1, tokens  # of 200,000
    s.wait("rein_requests_running", 0)


def test_slow_and_idle_clients(s):
    idle = [s.connect() for _ in range(200)]
    for i, c in enumerate(idle):  # half a request each
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: loc"[: 10 + i % 30])
    slow = s.connect()  # asks for a long stream and does not read it
    s.send(slow, CHAT, chat(ignore_eos=True, max_tokens=150, n=40, stream=True))
    for i in range(5):
        s.good(CHAT, chat(seed=i))
    for c in idle:
        c.close()
    got = b""
    while not got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
        data = slow.recv(1 << 16)
        assert data, got[-200:]
        got += data
    slow.close()


def test_load(s):
    count = 200 if FAST else 1000
    before = s.metric("rein_requests_total")
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda i: s.good(CHAT, chat(f"Q:{i % 10} + 2", seed=i % 10, max_tokens=8)), range(count)))
    assert s.metric("rein_requests_total") == before + count
    for i in range(10):
        assert all(a["choices"] == answers[i]["choices"] for a in answers[i::10])
    s.wait("rein_requests_running", 0)
    assert s.metric("rein_requests_waiting") == 0


def test_chat_command(s):
    """rein chat --url prints what the API answers; several lines are one conversation."""
    url = f"http://127.0.0.1:{s.port}"
    options = ["--temperature", "0", "--max-tokens", "20"]
    done = subprocess.run([REIN, "chat", "--url", url, *options], input="Q:1 + 2\nQ:2\n/base\n", capture_output=True, text=True, check=True)
    body = {"model": "one", "temperature": 0, "max_tokens": 20}
    first = s.good(CHAT, {**body, "messages": say("Q:1 + 2")})["choices"][0]["message"]["content"]
    turns = say("Q:1 + 2", first, "Q:2")
    second = s.good(CHAT, {**body, "messages": turns})["choices"][0]["message"]["content"]
    base = s.good(CHAT, {**body, "model": "base", "messages": turns})["choices"][0]["message"]["content"]
    assert done.stdout == f"{first}\n{second}\n{base}\n", done
    done = subprocess.run([REIN, "chat", "--url", url, "nobody"], input="hi\n", capture_output=True, text=True)
    assert done.returncode == 2 and "the server answered 404: model is" in done.stderr, done
    for wrong in ("https://a:1", "http://", "http://a:1/x", "ftp"):
        done = subprocess.run([REIN, "chat", "--url", wrong], input="", capture_output=True, text=True)
        assert done.returncode == 2 and "--url is" in done.stderr, done
    done = subprocess.run([REIN, "chat", "--url", "http://127.0.0.1:1", "m"], input="hi\n", capture_output=True, text=True)
    assert done.returncode == 1 and "is rein serve running there?" in done.stderr, done


def test_chat_is_the_same_near_and_far():
    make_model("near", {})
    with open("near/tokenizer_config.json") as f:
        config = json.load(f)
    config["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with open("near/tokenizer_config.json", "w") as f:
        json.dump(config, f)
    options = ["--temperature", "1.5", "--max-tokens", "20", "--seed", str(2**64 - 2)]  # the seed of the third turn is 0
    with Server("--model", "near") as s:
        near, far = (
            subprocess.run([REIN, "chat", *where, *options], input="Q:3 + 4\nQ:1 + 2\nQ:5 + 5\n", capture_output=True, text=True, check=True).stdout
            for where in (["near", "--chat-format", "raw"], ["--url", f"http://127.0.0.1:{s.port}"])
        )
    assert near == far and len(near.split()) >= 3, (near, far)


def test_port_is_taken(s):
    done = subprocess.run([REIN, "serve", "--model", "chatty", "--port", str(s.port)], capture_output=True, text=True)
    assert done.returncode == 2 and f"--port is {s.port}, which another program listens on" in done.stderr, done


def test_metrics(s):
    text = s.good("/metrics")
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "rein_policy_step", "rein_request_seconds_count"):
        assert f"\n{name} " in text, name
    assert s.good("/health")["status"] == "ok"


def test_tokenize(s):
    answer = s.good("/tokenize", {"prompt": "Q:1", "return_token_strs": True})
    assert answer["count"] == 3 and answer["token_strs"] == ["Q", ":", "1"] and answer["max_model_len"] == 256
    assert s.good("/detokenize", {"tokens": answer["tokens"]})["prompt"] == "Q:1"
    turns = s.good("/tokenize", {"messages": say("hi")})
    assert s.good("/detokenize", {"tokens": turns["tokens"]})["prompt"] == "u:hi<end>\na:"
    s.bad(400, "/tokenize", {"text": "a"}, "text")
    s.bad(400, "/detokenize", {"tokens": [-1]}, "tokens")
    s.bad(400, "/detokenize", {}, "tokens")
    s.bad(404, "/tokenize", {"prompt": "a", "model": "none"}, "model")
    s.bad(404, "/detokenize", {"tokens": [1], "model": "none"}, "model")
    assert s.good("/tokenize", {"prompt": "a", "model": "one@1"})["count"] == 1


# ------------------------------------------------------------------------------------------------- tests with a server of their own


def make_model(name, tokens, merges=()):
    """chatty with other tokens in its vocabulary: {old: new}."""
    shutil.copytree("chatty", name, dirs_exist_ok=True)
    with open(f"{name}/tokenizer.json") as f:
        tokenizer = json.load(f)
    vocabulary = tokenizer["model"]["vocab"]
    ids = {new: vocabulary.pop(old) for old, new in tokens.items()}
    vocabulary.update(ids)
    tokenizer["model"]["merges"] = list(merges)
    with open(f"{name}/tokenizer.json", "w") as f:
        json.dump(tokenizer, f)


def test_turns_keep_their_ids():
    """The model writes "it" as two tokens, an encoder as one; and the stop text begins within the token " ="."""
    make_model("merged", {"|": "it", "=": "\u0120=", "}": "="}, [["i", "t"], ["\u0120", "="]])
    with Server("--model", "merged") as s, Server("--model", "merged", "--retokenize") as plain:
        tail = plain.good("/tokenize", {"prompt": "<end>\nu:and 2<end>\na:"})["tokens"]
        for more, most in (({}, 25), ({"stop": ["="]}, 25), ({"stop": ["it is"]}, 25)):
            changed = 0
            for seed in range(most):
                body = {**chat("Q:3 + 4", model="merged", seed=seed), **more, "temperature": 1}
                first = s.good(CHAT, body)
                choice = first["choices"][0]
                ids, text = choice["token_ids"], choice["message"]["content"]
                then = {"messages": say("Q:3 + 4", text, "and 2")}
                got, encoded = s.good("/tokenize", then)["tokens"], plain.good("/tokenize", then)["tokens"]
                kept, before = len(ids), first["prompt_token_ids"]
                while kept and not text.startswith(s.good("/detokenize", {"tokens": ids[:kept]})["prompt"]):
                    kept -= 1  # the end token, and the tokens from the stop text on
                if not kept:
                    continue
                assert got[: len(before) + kept] == before + ids[:kept], (text, ids, got)
                rest = text[len(s.good("/detokenize", {"tokens": ids[:kept]})["prompt"]) :]
                assert got[len(before) + kept :] == [2] * len(rest) + tail, (text, got)
                assert s.good("/detokenize", {"tokens": got}) == plain.good("/detokenize", {"tokens": encoded})
                changed += got != encoded
            assert changed > most / 4, (more, changed)


def test_text_offsets():
    make_model("emoji", dict(zip("{|}~", "\u00f0\u0141\u013a\u0122", strict=True)))  # as byte-level files spell f0 9f 98 80
    with Server("--model", "emoji") as s:
        ids = [0, *s.good("/tokenize", {"prompt": "Q\U0001f6001"})["tokens"]]
        assert len(ids) == 7
        body = {"model": "emoji", "prompt": ids, "echo": True, "max_tokens": 0, "logprobs": 0}
        for as_ids in (False, True):
            choice = s.good(TEXT, {**body, "return_tokens_as_token_ids": as_ids})["choices"][0]
            assert choice["text"] == "<end>Q\U0001f6001", choice
            assert choice["logprobs"]["text_offset"] == [0, 5, 6, 6, 6, 6, 7], choice
        body = {"model": "emoji", "prompt": "Q:3 + 4", "max_tokens": 40, "logprobs": 0, "ignore_eos": True, "seed": 1, "temperature": 1.5}
        for more in ({}, {"echo": True}, {"return_tokens_as_token_ids": True}):
            choice = s.good(TEXT, {**body, **more, "return_token_ids": True})["choices"][0]
            prompt = "Q:3 + 4" if "echo" in more else ""
            ids = (choice["prompt_token_ids"] if prompt else []) + choice["token_ids"]
            texts = [s.good("/detokenize", {"tokens": [i]})["prompt"] if i else "" for i in ids]
            assert "".join(texts) == choice["text"]
            assert choice["logprobs"]["text_offset"] == [sum(map(len, texts[:i])) for i in range(len(ids))], choice


def test_adapters():
    with Server("--model", "chatty", "--adapter-root", "one/checkpoints", "--adapter", f"mine={serving.CALLER}") as s:
        assert [row["id"] for row in s.good("/v1/models")["data"]] == ["chatty", "base", "mine"]
        s.good("/v1/load_lora_adapter", {"lora_name": "new", "lora_path": "one/checkpoints/0001"})
        body = chat(model="new", temperature=0.7)
        with Server("one") as run:
            wanted = run.good(CHAT, {**body, "model": "one@1"})["choices"]
            assert [{**choice, "policy_step": 1} for choice in s.good(CHAT, body)["choices"]] == wanted
        s.bad(400, "/v1/load_lora_adapter", {"lora_name": "new", "lora_path": "one/checkpoints/0001"}, "lora_name")
        for path in ("caller/checkpoints/0060", "one/checkpoints/../../caller/checkpoints/0060", "/etc", "none", "one/checkpoints"):
            s.bad(400, "/v1/load_lora_adapter", {"lora_name": "far", "lora_path": path}, "lora_path")
        s.good("/v1/unload_lora_adapter", {"lora_name": "new"})
        s.bad(404, "/v1/unload_lora_adapter", {"lora_name": "new"}, "lora_name")
        s.bad(404, CHAT, body, "model")
    with Server("--model", "chatty") as s:
        s.bad(400, "/v1/load_lora_adapter", {"lora_name": "new", "lora_path": "one/checkpoints/0001"}, "lora_path")


def test_policies_open_while_others_are_used():
    """Steps are opened and closed all the time, because only one stays open."""
    with Server("one", "--adapter-cache", "1", "--adapter-root", "caller") as s:
        names = ["one@0", "one@1", "one@2", "one", "base"]
        alone = [s.good(CHAT, chat(model=name))["choices"] for name in names]

        def use(i):
            if i % 10 == 9:
                s.good("/v1/load_lora_adapter", {"lora_name": f"new{i}", "lora_path": serving.CALLER})
                s.good("/v1/models")
                s.good("/v1/unload_lora_adapter", {"lora_name": f"new{i}"})
            return s.good(CHAT, chat(model=names[i % 5]))["choices"] == alone[i % 5]

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert all(pool.map(use, range(100)))


def test_labels_are_logged():
    with Server("--model", "chatty") as s:
        answer = s.good(CHAT, chat(model="base", user="A\nB\x1b[1m", metadata={"run": "7"}))
        s.good(TEXT, {"model": "base", "prompt": "Q:1"})
        s.process.send_signal(signal.SIGTERM)
        _, log = s.process.communicate(timeout=120)
        line = f'{answer["id"]}: user "A\\nB\\u001b[1m", metadata {{"run": "7"}}'
        assert [row for row in log.splitlines() if row.endswith(line)], log
        assert log.count("cmpl-") == 1, log


def test_key():
    with Server("one", "--name", "p", environment={"REIN_API_KEY": "secret"}) as s:
        s.good("/health")
        for key in (None, "Bearer", "Bearer secre", "Bearer secrett", "Basic secret", "secret"):
            error = s.bad(401, "/v1/models", headers={"Authorization": key} if key else {})
            assert error["code"] == "invalid_api_key"
        s.bad(401, "/nothing")
        s.good("/v1/models", headers={"Authorization": "Bearer secret"})
        s.good("/v1/models", headers={"Authorization": "Bearer secret", "Host": "any.where"})
        s.bad(403, "/v1/models", headers={"Authorization": "Bearer secret", "Origin": "http://example.org"})


def test_tls():
    make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    subprocess.run(make.split(), check=True, capture_output=True)
    with Server("--model", "chatty", "--tls-cert", "cert.pem", "--tls-key", "key.pem") as s:
        context = ssl.create_default_context(cafile="cert.pem")
        context.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", s.port, context=context, timeout=120)
        connection.request("GET", "/health")
        assert connection.getresponse().read().startswith(b'{"status": "ok"')
        connection.close()


def test_idle_connections():
    """More than the server may hold: others are answered, because idle connections are closed."""
    count, room = 3000, 1100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 100:
        print(f"SKIPPED test_idle_connections: at most {hard} files may be open, and it needs {count + 100}")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 100), hard))
    with open("limited", "w") as f:
        f.write(f'#!/bin/sh\nulimit -n {room}\nexec "{os.path.abspath(REIN)}" "$@"\n')
    os.chmod("limited", 0o755)
    for rein, idle in (("./limited", room + 400), (REIN, count)):
        with Server("--model", "chatty", rein=rein) as s:
            held = []
            for _ in range(idle):
                c = socket.socket()
                c.setblocking(False)
                c.connect_ex(("127.0.0.1", s.port))
                held.append(c)
            s.good("/health")  # never, if the idle ones stayed
            s.good("/v1/models")
            for c in held:
                c.close()
    with Server("--model", "chatty") as s:  # a request that arrives slowly is not idle, and neither is a client that waits for its answer
        body = json.dumps(chat(model="chatty", n=400, max_tokens=200, ignore_eos=True)).encode()
        with s.connect() as c:
            head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            for part in (b"POST /v1/chat/completions HTTP/1.1\r\n", head[:30], head[30:]):
                c.sendall(part)
                time.sleep(2)
            c.sendall(body)
            time.sleep(6)
            c.settimeout(300)  # a sanitizer on a busy machine takes its time
            assert c.recv(4096).startswith(b"HTTP/1.1 200")


def test_queue():
    with Server("one", "--max-concurrent", "1", "--queue", "1") as s:
        body = chat(ignore_eos=True, max_tokens=220, n=500)
        busy = [s.connect() for _ in range(2)]
        for c in busy:
            s.send(c, CHAT, body)
        end = time.time() + 120
        while s.metric("rein_requests_running") + s.metric("rein_requests_waiting") < 2:
            assert time.time() < end
        status, headers, answer = s.ask(CHAT, chat())
        assert status == 429 and headers["Retry-After"], (status, answer)
        for c in busy:
            c.close()
        s.wait("rein_requests_waiting", 0)
        s.wait("rein_requests_running", 0)
        s.good(CHAT, chat())


def test_stop_under_load():
    with Server("one") as s:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            body = chat(ignore_eos=True, max_tokens=200, n=4)
            answers = [pool.submit(s.good, CHAT, {**body, "seed": i}) for i in range(8)]
            s.wait("rein_requests_total", 8)
            s.process.send_signal(signal.SIGTERM)
            for answer in answers:  # those under way finish
                assert len(answer.result()["choices"]) == 4
        s.process.communicate(timeout=120)
        assert s.process.returncode == 0
    with Server("one", "--grace", "0") as s:
        with s.connect() as c:
            s.send(c, CHAT, chat(ignore_eos=True, max_tokens=230, n=500))
            s.wait("rein_requests_running", 1)
            s.stop(within=120)
            assert b" 503 " in c.recv(4096).split(b"\r\n")[0]
    with Server("one", "--grace", "0") as s:  # of many that are cut, each has its answer before the process ends
        many = [s.connect() for _ in range(200)]
        for c in many:
            s.send(c, CHAT, chat(ignore_eos=True, max_tokens=230, n=20))
        s.wait("rein_requests_total", 200)
        s.stop(within=120)
        cut = [c.recv(4096) for c in many]
        for c in many:
            c.close()
        assert all(b" 503 " in answer.split(b"\r\n")[0] for answer in cut), sum(not answer for answer in cut)


def answer_after_stop(path, body, end):
    """Asks, lets the answer be computed, sends SIGTERM, and reads only then. The whole answer must come, and then the process ends."""
    with Server("one", "--grace", "60") as s, socket.socket() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.settimeout(120)
        c.connect(("127.0.0.1", s.port))
        s.send(c, path, body)
        s.wait("rein_requests_total", 1)
        s.wait("rein_requests_waiting", 0)
        s.wait("rein_requests_running", 0)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert s.process.poll() is None, "it ended before its answer was read"
        got = bytearray()
        while not got.endswith(end):
            data = c.recv(1 << 20)
            assert data, (len(got), bytes(got[-100:]))
            got += data
        s.process.communicate(timeout=120)
        assert s.process.returncode == 0
        return bytes(got)


def test_stop_delivers_what_is_computed():
    body = chat(ignore_eos=True, max_tokens=150, n=64, top_logprobs=8)
    whole = answer_after_stop(CHAT, body, b'"system_fingerprint": null}')
    assert len(json.loads(whole.split(b"\r\n\r\n", 1)[1])["choices"]) == 64
    stream = answer_after_stop(CHAT, {**body, "stream": True}, b"\r\n0\r\n\r\n")
    assert stream.count(b"data: [DONE]") == 1


def main():
    passed = failed = 0
    wanted = sys.argv[2:]
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_") and (not wanted or name in wanted)]
    with Server("one", "--max-body", "1", "--adapter", f"caller={serving.CALLER}") as shared:
        for name, test in tests:
            try:
                test(shared) if test.__code__.co_argcount else test()
                passed += 1
            except Exception:
                failed += 1
                print(f"FAIL {name}\n{traceback.format_exc()[-1500:]}")
        try:
            shared.stop()
            passed += 1
        except Exception:
            failed += 1
            print(f"FAIL stop\n{traceback.format_exc()[-1500:]}")
    print(f"{passed} passed, {failed} failed")


if __name__ == "__main__":
    main()
