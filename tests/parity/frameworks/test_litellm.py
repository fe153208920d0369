"""`rein serve` with LiteLLM, which many agents use as their client."""

import asyncio
import json

import pytest

litellm = pytest.importorskip("litellm")

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


def settings(server, model="one", **more):
    return {"model": f"openai/{model}", "api_base": server.url + "/v1", "api_key": server.key, "num_retries": 0, **more}


def chat(server, text="Q:3 + 4 =", **more):
    return settings(server, messages=[{"role": "user", "content": text}], max_tokens=24, seed=5, **more)


def go(server):
    messages = [{"role": "user", "content": "go"}]
    return settings(server, "caller", messages=messages, tools=TOOLS, temperature=0)


def test_plain(server):
    answer = litellm.completion(**chat(server, n=2, logprobs=True, top_logprobs=2))
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.message.content and choice.finish_reason in ("stop", "length")
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    assert answer.usage.completion_tokens > 0 and answer.usage.prompt_tokens > 0


def test_stream(server):
    whole = litellm.completion(**chat(server))
    chunks = list(litellm.completion(**chat(server), stream=True, stream_options={"include_usage": True}))
    text = "".join(part.delta.content or "" for chunk in chunks for part in chunk.choices)
    assert text == whole.choices[0].message.content
    built = litellm.stream_chunk_builder(chunks)
    assert built.choices[0].message.content == text
    assert built.usage.completion_tokens == whole.usage.completion_tokens


def test_tools(server):
    (choice,) = litellm.completion(**go(server)).choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content == "hm"
    assert call.function.name == "add" and json.loads(call.function.arguments) == {"a": 3}
    built = litellm.stream_chunk_builder(list(litellm.completion(**go(server), stream=True)))
    assert built.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
    assert built.choices[0].finish_reason == "tool_calls"
    body = go(server)
    body["messages"] += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "3"}]
    assert litellm.completion(**body, max_tokens=3).usage.completion_tokens > 0


def test_errors(server):
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**chat(server, temperature=-1))
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(**{**chat(server), "api_key": "another"})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**chat(server), "model": "openai/other"})


def test_async(server):
    async def all_of_them():
        return await asyncio.gather(*(litellm.acompletion(**chat(server, f"Q:{i} + 1 =")) for i in range(16)))

    answers = asyncio.run(all_of_them())
    assert (
        answers[3].choices[0].message.content
        == litellm.completion(**chat(server, "Q:3 + 1 =")).choices[0].message.content
    )
