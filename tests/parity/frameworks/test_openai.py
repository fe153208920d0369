"""`rein serve` with OpenAI's own Python client, unchanged. parity.sh runs this file with the last client of version 2
and with the newest. The client checks every answer against its pydantic types, which is not its default."""

import asyncio
import concurrent.futures
import inspect
import json
import re
import time
import urllib.request

import pytest

openai = pytest.importorskip("openai")

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
GO = {"model": "caller", "messages": [{"role": "user", "content": "go"}], "tools": TOOLS, "temperature": 0}
IDS = {"return_token_ids": True}


def connect(server, kind=openai.OpenAI, strict=True, **more):
    settings = {"base_url": server.url + "/v1", "api_key": server.key, "max_retries": 0, "timeout": 60, **more}
    return kind(_strict_response_validation=strict, **settings)


@pytest.fixture(scope="module")
def client(server):
    with connect(server) as client:
        yield client


@pytest.fixture(scope="module")
def lenient(server):
    """For answers that OpenAI's own server gives too and the types do not allow: null as the finish_reason of a chunk
    of a completion, and as the log-probability of the first token of a prompt."""
    with connect(server, strict=False) as client:
        yield client


def chat(text="Q:3 + 4 =", **more):
    return {"model": "one", "messages": [{"role": "user", "content": text}], "max_tokens": 24, "seed": 5, **more}


def joined(stream):
    """The choices of a chat stream: text, log-probabilities, the reason of its end, tool calls."""
    choices = {}
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        for part in chunk.choices:
            if part.index not in choices:
                assert part.delta.role == "assistant"
                choices[part.index] = {"text": "", "logprobs": [], "finish": None, "calls": []}
            choice = choices[part.index]
            choice["text"] += part.delta.content or ""
            choice["calls"] += part.delta.tool_calls or []
            choice["logprobs"] += part.logprobs.content if part.logprobs else []
            choice["finish"] = part.finish_reason or choice["finish"]
    return choices


def test_models(client):
    rows = {row.id: row for row in client.models.list()}
    assert set(rows) == {"one", "one@0", "one@1", "one@2", "base", "chatty", "caller"}
    assert all(row.object == "model" and row.owned_by for row in rows.values())


def test_chat(client):
    answer = client.chat.completions.create(**chat())
    (choice,) = answer.choices
    assert answer.object == "chat.completion" and answer.model == "one@2" and answer.policy_step == 2
    assert abs(answer.created - time.time()) < 600 and answer.id
    assert choice.message.role == "assistant" and choice.message.content and choice.message.tool_calls is None
    assert choice.finish_reason in ("stop", "length") and choice.logprobs is None
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.prompt_tokens > 0
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert client.chat.completions.create(**chat()).choices == answer.choices  # the seed decides


def test_every_parameter_may_be_null(client):
    """Also those that a new version of the client adds: the server must know their names."""
    ours = {"self", "model", "messages", "prompt", "extra_headers", "extra_query", "extra_body", "timeout"}
    calls = (
        (client.chat.completions.create, chat()),
        (client.completions.create, {"model": "one", "prompt": "Q:1", "max_tokens": 2}),
    )
    for create, body in calls:
        names = set(inspect.signature(create).parameters) - ours
        assert {"seed", "stop", "stream", "user"} <= names
        for name in sorted(names):
            assert create(**{**body, name: None}).choices, name


def test_several_samples(client):
    answer = client.chat.completions.create(**chat(n=4, temperature=1.5))
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_log_probs(client):
    answer = client.chat.completions.create(**chat(logprobs=True, top_logprobs=3), extra_body=IDS)
    (choice,) = answer.choices
    entries = choice.logprobs.content
    assert len(entries) == len(choice.token_ids) == answer.usage.completion_tokens
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert bytes(entry.bytes).decode() == entry.token
        values = [top.logprob for top in entry.top_logprobs]
        assert values == sorted(values, reverse=True) and entry.logprob <= values[0]
    assert "".join(entry.token for entry in entries).startswith(choice.message.content)


@pytest.mark.parametrize("more", [{}, {"n": 3, "temperature": 1.3}, {"stop": ["1", "9"]}, {"temperature": 0}])
def test_a_stream_is_the_answer(client, more):
    body = chat(logprobs=True, top_logprobs=2, **more)
    whole = client.chat.completions.create(**body)
    parts = joined(client.chat.completions.create(**body, stream=True))
    assert len(parts) == len(whole.choices) == more.get("n", 1)
    for choice in whole.choices:
        part = parts[choice.index]
        assert part["text"] == choice.message.content and part["finish"] == choice.finish_reason
        assert [e.to_dict() for e in part["logprobs"]] == [e.to_dict() for e in choice.logprobs.content]


def test_usage_of_a_stream(client):
    usage = client.chat.completions.create(**chat()).usage
    chunks = list(client.chat.completions.create(**chat(), stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].usage.completion_tokens == usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == usage.prompt_tokens


def test_stream_helper(client):
    """The client's own accumulation of a stream."""
    whole = client.chat.completions.create(**GO)
    with client.chat.completions.stream(**GO) as stream:
        final = stream.get_final_completion()
    (mine,), (theirs,) = whole.choices, final.choices
    assert theirs.message.content == mine.message.content and theirs.finish_reason == "tool_calls"
    (call,) = theirs.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("add", '{"a": 3}')


def test_tools(client):
    (choice,) = client.chat.completions.create(**GO).choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content == "hm"
    assert call.type == "function" and call.id and call.function.name == "add"
    assert json.loads(call.function.arguments) == {"a": 3}
    part = joined(client.chat.completions.create(**GO, stream=True))[0]
    assert (part["text"], part["finish"]) == ("hm", "tool_calls")
    assert part["calls"][0].index == 0 and part["calls"][0].id and part["calls"][0].type == "function"
    assert part["calls"][0].function.to_dict() == call.function.to_dict()
    for message in (choice.message, choice.message.to_dict()):  # both forms are in use
        turns = [*GO["messages"], message, {"role": "tool", "tool_call_id": call.id, "content": "3"}]
        after = client.chat.completions.create(**{**GO, "messages": turns}, max_tokens=3, extra_body=IDS)
        text = client.post("/../detokenize", body={"tokens": after.prompt_token_ids}, cast_to=object)["prompt"]
        assert '<tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call><end>\nt:3<end>\na:' in text, text


def test_turns(client):
    first = client.chat.completions.create(**chat("Q:5 + 6 ="), extra_body=IDS)
    turns = [
        {"role": "user", "content": "Q:5 + 6 ="},
        first.choices[0].message,
        {"role": "user", "content": "and 2"},
    ]
    second = client.chat.completions.create(**{**chat(), "messages": turns}, extra_body=IDS)
    known = first.prompt_token_ids + first.choices[0].token_ids
    assert second.prompt_token_ids[: len(known)] == known
    assert second.usage.prompt_tokens_details.cached_tokens > 0


def test_completions(client, lenient):
    body = {"model": "one", "prompt": ["Q:1", "Q:2"], "n": 2, "seed": 3, "logprobs": 2, "max_tokens": 9}
    whole = client.completions.create(**body)
    assert whole.object == "text_completion" and [c.index for c in whole.choices] == [0, 1, 2, 3]
    for choice in whole.choices:
        found = choice.logprobs
        assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset)
        assert choice.finish_reason in ("stop", "length")
    texts, values = [""] * 4, [[], [], [], []]
    for chunk in lenient.completions.create(**body, stream=True):
        for part in chunk.choices:
            texts[part.index] += part.text
            values[part.index] += part.logprobs.token_logprobs if part.logprobs else []
    assert texts == [choice.text for choice in whole.choices]
    assert values == [choice.logprobs.token_logprobs for choice in whole.choices]


def test_completion_of_token_ids(client, lenient):
    ids = client.post("/../tokenize", body={"prompt": "Q:3 + 4 ="}, cast_to=object)["tokens"]
    same = [client.completions.create(model="one", prompt=prompt, seed=1) for prompt in (ids, "Q:3 + 4 =")]
    assert same[0].choices == same[1].choices
    echo = lenient.completions.create(model="one", prompt=ids, echo=True, logprobs=1, max_tokens=0)
    assert echo.choices[0].text == "Q:3 + 4 =" and echo.choices[0].logprobs.token_logprobs[0] is None


def test_fields_of_openai_at_their_neutral_values(client):
    neutral = {
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "logit_bias": {},
        "parallel_tool_calls": True,
        "store": False,
        "service_tier": "auto",
        "user": "me",
        "metadata": {"a": "b"},
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "reasoning_effort": None,
        "tool_choice": "auto",
        "tools": TOOLS,
    }
    assert client.chat.completions.create(**chat(), **neutral).choices
    assert client.completions.create(model="one", prompt="Q:1", best_of=1, suffix=None, echo=False).choices


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", -1),
        ("n", 0),
        ("frequency_penalty", 1),
        ("response_format", {"type": "json_object"}),
        ("seed", 0.5),
    ],
)
def test_bad_request(client, param, value):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**chat(), param: value})
    error = caught.value
    assert (error.status_code, error.param, error.type) == (400, param, "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**chat(), param: value}, stream=True)
    assert caught.value.param == param


def test_unknown_field(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**chat(), extra_body={"unknown": 1})
    assert caught.value.param == "unknown"


def test_unknown_model(client):
    for name in ("other", "one@9"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(**{**chat(), "model": name})
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_wrong_key(server):
    with connect(server, api_key="another") as stranger:
        for call in (stranger.models.list, lambda: stranger.chat.completions.create(**chat())):
            with pytest.raises(openai.AuthenticationError) as caught:
                call()
            assert caught.value.code == "invalid_api_key"


def busy(server):
    """Requests that run or wait."""
    request = urllib.request.Request(server.url + "/metrics", headers={"Authorization": f"Bearer {server.key}"})
    with urllib.request.urlopen(request) as answer:
        text = answer.read().decode()
    return sum(int(n) for n in re.findall(r"^rein_requests_(?:running|waiting) (\d+)$", text, re.M))


def test_full_queue(served):
    """A client without retries gets an error, and one with retries gets its answer."""
    long = {**chat(n=60, max_tokens=200), "extra_body": {"ignore_eos": True}}
    with served.start("--max-concurrent", "1", "--queue", "1") as server, connect(server) as client:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            others = [pool.submit(client.chat.completions.create, **long) for _ in range(2)]
            end = time.time() + 20
            while busy(server) < 2:
                assert time.time() < end
            with pytest.raises(openai.RateLimitError) as caught:
                client.chat.completions.create(**chat())
            assert caught.value.status_code == 429 and caught.value.response.headers["Retry-After"]
            assert client.with_options(max_retries=20).chat.completions.create(**chat()).choices
            assert all(len(other.result().choices) == 60 for other in others)


def test_64_at_once(server, client):
    bodies = [chat(f"Q:{i} + 2 =", temperature=0.5 + i / 50) for i in range(64)]

    async def whole(client, body):
        return (await client.chat.completions.create(**body)).choices[0].message.content

    async def streamed(client, body):
        chunks = [chunk async for chunk in await client.chat.completions.create(**body, stream=True)]
        return "".join(part.delta.content or "" for chunk in chunks for part in chunk.choices)

    async def all_of_them(ask):
        async with connect(server, openai.AsyncOpenAI) as client:
            return await asyncio.gather(*(ask(client, body) for body in bodies))

    texts = asyncio.run(all_of_them(whole))
    assert asyncio.run(all_of_them(streamed)) == texts
    for i in (0, 31, 63):  # alone it is the same
        assert client.chat.completions.create(**bodies[i]).choices[0].message.content == texts[i]


def test_a_stream_that_is_left(server, client):
    with client.chat.completions.create(
        **chat(n=100, max_tokens=200), stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        next(iter(stream))
    end = time.time() + 20
    while busy(server):
        assert time.time() < end
        time.sleep(0.02)
