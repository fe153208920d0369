"""One `rein serve` process: start, requests, end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

GRACE = 5  # seconds that requests under way get when the server stops
LINES = 15  # of the log that an error shows


def find_program() -> str:
    """The program rein: REIN_PROGRAM, that of the installed package, or the one on the PATH."""
    found = os.environ.get("REIN_PROGRAM") or _installed_program() or shutil.which("rein")
    if not found:
        raise FileNotFoundError("the program rein is not there: install rein-rl with pip, or set REIN_PROGRAM to it")
    return found


def _installed_program() -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.distribution("rein-rl").files or ():
            path = Path(str(file.locate()))
            if file.name == "rein" and path.parent.name == "bin" and path.is_file():
                return str(path)
    return None


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], key: str, log: Path, begin: int) -> None:
        self.process, self.key, self.log = process, key, log
        self.url, self.port = "", 0
        self._begin = begin
        self._finalizer = weakref.finalize(self, _end, process)  # also when Python ends

    @classmethod
    async def start(cls, arguments: Sequence[str], key: str, log: Path) -> Server:
        """Returns when the server answers requests. Its standard error is appended to `log`."""
        with open(log, "ab") as errors:
            begin = errors.tell()
            process = subprocess.Popen(
                [find_program(), "serve", *arguments, "--grace", str(GRACE), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "REIN_API_KEY": key},  # not an argument: others can list those
                start_new_session=True,  # Ctrl-C is for the script, which then stops the server
                preexec_fn=_ends_with_parent(),
            )
            server = cls(process, key, log, begin)
        try:
            line = await asyncio.to_thread(_first_line, process)
            if not line:
                await asyncio.to_thread(process.wait)
                raise server._problem("cannot start")
            address = json.loads(line)
        except BaseException:
            process.kill()
            raise
        server.url, server.port = address["url"], address["port"]
        return server

    def runs(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Waits for requests under way and for the run to be saved."""
        self._finalizer()

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON. A wrong request raises ValueError with the server's message, all else RuntimeError."""
        # A client for each request: none is bound to an event loop that may be gone at the next one.
        headers = {"Authorization": f"Bearer {self.key}"}
        timeout = httpx.Timeout(600, connect=30)
        try:
            async with httpx.AsyncClient(timeout=timeout, headers=headers, trust_env=False, verify=False) as client:
                answer = await client.request(method, self.url + path, json=body)
        except httpx.TransportError as problem:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.process.wait, 1)  # a connection ends before its process
            raise self._problem(f"did not answer ({problem or type(problem).__name__})") from problem
        if answer.is_success:
            return answer.json() if answer.content else None
        raise (ValueError if answer.status_code == 400 else RuntimeError)(_message(answer))

    async def run_job(self, body: Any, progress: Callable[[float], Any]) -> dict[str, Any]:
        """Trains, and returns the finished job. A failed one is a RuntimeError. Cancelling this cancels the job."""
        submitted = asyncio.ensure_future(self.request("POST", "/v1/train", body))
        try:
            started = await asyncio.shield(submitted)
            job = await self._finished(started["id"], progress)
        except asyncio.CancelledError:
            await _quietly(self._cancel(submitted))
            raise
        if job["status"] != "done":
            raise RuntimeError(f"training {job['status']}: {job.get('error') or 'no reason was given'}")
        return job

    async def _finished(self, job: str, progress: Callable[[float], Any]) -> dict[str, Any]:
        pause = 0.02
        while True:
            state: dict[str, Any] = await self.request("GET", f"/v1/train/{job}")
            progress(state.get("progress") or 0.0)
            if state["status"] not in ("queued", "running"):
                return state
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, 0.5)

    async def _cancel(self, submitted: Awaitable[Any]) -> None:
        job = (await submitted)["id"]
        await self.request("POST", f"/v1/train/{job}/cancel", {})
        await self._finished(job, lambda share: None)  # the policy is what it was before anything else is done with it

    def _problem(self, what: str) -> RuntimeError:
        """With the message that the server ended with, or the last lines of its log."""
        status = self.process.poll()
        with open(self.log, "rb") as log:
            log.seek(self._begin)
            lines = log.read().decode(errors="replace").splitlines()[-LINES:]
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            return RuntimeError(f"rein serve {what}: {json.loads(lines[-1])['error']['message']}")
        ended = "" if status is None else f" and ended with status {status}"
        return RuntimeError("\n".join([f"rein serve {what}{ended}; {self.log} says:", *lines]))


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    return process.stdout.readline()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE + 60)  # a step that is being saved
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout:
        process.stdout.close()


def _ends_with_parent() -> Callable[[], Any] | None:
    """The server gets SIGTERM when this process is killed: it would keep the run locked.

    Linux sends it when the thread that started the server ends, so this is for the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl  # found before the fork
    return lambda: prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _message(answer: httpx.Response) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(answer.json()["error"]["message"])
    return f"rein serve answered with status {answer.status_code}: {answer.text[:500]}"


async def _quietly(work: Awaitable[Any]) -> None:
    """Whatever happens in it: another exception is on its way."""
    with contextlib.suppress(Exception):
        await work
