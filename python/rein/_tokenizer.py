"""Converts text to token ids and back, and chat messages to token ids by the model's chat template."""

from __future__ import annotations

import ctypes
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _engine as e
from ._arrays import ArrayLike, address

_TEMPLATE = 6  # REIN_CHAT_TEMPLATE
_ALLOWS_NUL = 8  # REIN_JSON_ALLOWS_NUL


class Tokenizer:
    """The tokenizer of a model directory (tokenizer.json): the ids are those of Hugging Face's tokenizers.

    Any number of threads may use one. `Policy.tokenizer` is the one of its model.

    >>> tokenizer = Tokenizer("tests/model/fixtures/tokenizer/gpt2")
    >>> tokenizer.decode(tokenizer.encode("Hello"))
    'Hello'
    """

    def __init__(self, directory: e.PathLike, date: str | None = None) -> None:
        """`date` ("2026-11-18"): what a chat template that asks for the date sees; None: the current one."""
        self.date = date
        self._directory = e.path_of(directory, "directory")
        self._handle = e.opened(e.tokenizer_open, e.tokenizer_close, self._directory)
        self._chat: e.Chat | None = None

    @property
    def size(self) -> int:
        """The highest id plus one."""
        return int(e.tokenizer_size(self._handle.address))

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling in the file; None if there is no such token."""
        spelled = token.encode()
        found = e.tokenizer_id(self._handle.address, spelled, len(spelled))
        return None if found < 0 else int(found)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text. `add_special`: with the special tokens that the tokenizer adds, often a begin token.
        `parse_special`: special tokens that are spelled out in the text become their ids."""
        return self._encode(text.encode(), e.Encoding(add_special, parse_special, None, 0))

    def decode(self, ids: ArrayLike, *, skip_special: bool = False) -> str:
        """The text of ids [n]; invalid UTF-8 becomes U+FFFD."""
        array, text = e.ids_of(ids, "ids"), e.Text()
        try:
            arguments = (self._handle.address, address(array), array.size, bool(skip_special))
            e.call(e.tokenizer_decode, ctypes.byref(text), *arguments)
            return ctypes.string_at(text.data, text.length).decode() if text.length else ""
        finally:
            e.text_free(ctypes.byref(text))

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> list[int]:
        """The ids of messages ({"role": …, "content": …}) as the model's chat template writes them. With
        `add_generation_prompt` they end with the beginning of an assistant's turn. Special tokens that are spelled out
        in a content stay plain text. Messages may have tool_calls and whatever else the template reads; `tools` and
        `variables` (enable_thinking=False …) are given to it."""
        text, literal = self._render(messages, add_generation_prompt, tools, variables)
        return self._encode(text, e.Encoding(0, 1, ctypes.addressof(literal), len(literal)))

    def chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The text that apply_chat_template encodes."""
        return self._render(messages, add_generation_prompt, tools, variables)[0].decode()

    def __repr__(self) -> str:
        return f"Tokenizer({self._directory.decode(errors='replace')!r}, {self.size} tokens)"

    def __reduce__(self) -> Any:
        raise TypeError("a Tokenizer cannot be pickled: open it from its directory instead")

    def _encode(self, text: bytes, how: e.Encoding) -> list[int]:
        ids = e.Ids()
        try:
            arguments = (self._handle.address, text, len(text), ctypes.byref(how))
            e.call(e.tokenizer_encode, ctypes.byref(ids), *arguments)
            found = ctypes.string_at(ids.data, ids.count * 4) if ids.count else b""
            return [int(i) for i in np.frombuffer(found, np.int32)]
        finally:
            e.ids_free(ctypes.byref(ids))

    def _format(self) -> e.Chat:
        """The format of the tokenizer's own template."""
        if self._chat is None:
            chat = e.Chat()
            e.call(e.chat_of, ctypes.byref(chat), self._handle.address)
            self._chat = chat
        return self._chat

    def _now(self) -> bytes:
        return (self.date or datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")).encode()

    def _dated_format(self) -> e.Chat | None:
        """The format with the date that its template sees; None: there is none."""
        try:
            own = self._format()
        except ValueError:
            return None
        return e.Chat(own.kind, own.always_generation, own.system, own.system_length, own.run, self._now())

    def _render(
        self, messages: Sequence[Mapping[str, Any]], generation: bool, tools: Any, variables: Mapping[str, Any]
    ) -> tuple[bytes, Any]:
        """The text, and the spans of it that are contents."""
        chat = self._format()
        plain = tools is None and not variables and all(message.keys() <= {"role", "content"} for message in messages)
        if plain and chat.kind != _TEMPLATE:
            return self._by_format(chat, messages, generation)
        return self._by_template(chat, messages, generation, tools, variables)

    def _by_format(self, chat: e.Chat, messages: Sequence[Mapping[str, Any]], generation: bool) -> tuple[bytes, Any]:
        text, n = e.Text(), len(messages)
        spans, options = (e.ChatSpan * n)(), e.ChatOptions(bool(generation), 0, None, None)
        rows = (e.Message * n)(*(_message(message, i) for i, message in enumerate(messages)))
        try:
            arguments = (ctypes.byref(chat), rows, n, ctypes.byref(options))
            e.call(e.chat_render, ctypes.byref(text), spans, *arguments)
            literal = (e.Span * n)(*(span.content for span in spans))
            return (ctypes.string_at(text.data, text.length) if text.length else b""), literal
        finally:
            e.text_free(ctypes.byref(text))

    def _by_template(
        self,
        chat: e.Chat,
        messages: Sequence[Mapping[str, Any]],
        generation: bool,
        tools: Any,
        variables: Mapping[str, Any],
    ) -> tuple[bytes, Any]:
        if not chat.run:
            raise ValueError("the chat template cannot be run: it has no place for tools, tool calls and variables")
        said = _json(list(messages), "messages")
        given = e.opened(e.chat_messages_read, e.json_free, said.address)
        listed = None if tools is None else _json(list(tools), "tools")
        more = _json(dict(variables), "variables") if variables else None
        options = e.TemplateOptions(bool(generation), _address(listed), None, _address(more), self._now())
        rendered = e.Rendered()
        try:
            e.call(e.chat_template_render, ctypes.byref(rendered), chat.run, given.address, ctypes.byref(options))
            size = rendered.n_literals * ctypes.sizeof(e.Span)
            literal = (e.Span * rendered.n_literals)()
            if size:
                ctypes.memmove(literal, rendered.literals, size)
            text = rendered.text
            return (ctypes.string_at(text.data, text.length) if text.length else b""), literal
        finally:
            e.rendered_free(ctypes.byref(rendered))


def _address(handle: e.Handle | None) -> int | None:
    return None if handle is None else handle.address


def _json(value: Any, name: str) -> e.Handle:
    """The value for the library."""
    try:
        text = json.dumps(value, allow_nan=False).encode()
    except TypeError as error:
        raise TypeError(f"{name} cannot be JSON: {error}") from None
    return e.opened(e.json_parse, e.json_free, text, len(text), name.encode(), _ALLOWS_NUL)


def _message(message: Mapping[str, Any], i: int) -> e.Message:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(f"messages[{i}] is {message!r}: a role and a content, both strings, are needed")
    encoded = content.encode()
    return e.Message(role.encode(), encoded, len(encoded))
