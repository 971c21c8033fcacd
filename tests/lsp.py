"""A small client of the Language Server Protocol, written from its specification: it shares no code with the server."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

_PATIENCE = 60.0  # seconds


class Editor:
    """An editor that has started ``ms-tune server`` in a folder."""

    def __init__(self, folder: Path, *arguments: str, encodings: tuple[str, ...] = ()) -> None:
        command = [sys.executable, "-m", "ms_tune", "server", "--lang", "en", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
        )
        self.messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.errors: list[bytes] = []
        self.threads = [threading.Thread(target=one, daemon=True) for one in (self._read, self._read_errors)]
        for thread in self.threads:
            thread.start()
        self.published: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.count, self.version = 0, 0
        general = {"general": {"positionEncodings": list(encodings)}} if encodings else {}
        started = self.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities=general)
        self.capabilities = started["capabilities"]
        self.tell("initialized")

    def __enter__(self) -> Editor:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, trace: TracebackType | None) -> None:
        if kind is None:
            self.ask("shutdown")
            self.tell("exit")
            assert self.process.wait(_PATIENCE) == 0
        self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            size = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            if not line:
                self.messages.put(None)
                return
            self.messages.put(json.loads(stream.read(size)))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def _send(self, **message: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def tell(self, method: str, **params: object) -> None:
        """Send a notification."""
        self._send(method=method, params=params)

    def ask(self, method: str, **params: object) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to a request."""
        self.count += 1
        self._send(id=self.count, method=method, params=params)
        number = self.count
        return self._await(lambda message: message.get("id") == number and "method" not in message)["result"]

    def _await(self, wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - a test of a message
        while True:
            message = self.messages.get(timeout=_PATIENCE)
            assert message is not None, b"".join(self.errors).decode()
            assert "error" not in message, message
            assert message.get("method") != "window/showMessage", message
            if message.get("method") == "textDocument/publishDiagnostics":
                found = message["params"]
                self.published[found["uri"], found.get("version", 0)] = found["diagnostics"]
            if wanted(message):
                return message

    def show(self, uri: str, text: str, *, save: bool = False) -> list[dict[str, Any]]:
        """Open a text, or replace the one that is open; return its diagnostics. A saved one is checked without a pause."""
        self.version += 1
        if (uri, -1) not in self.published:
            self.published[uri, -1] = []
            document = {"uri": uri, "languageId": "yaml", "version": self.version, "text": text}
            self.tell("textDocument/didOpen", textDocument=document)
        else:
            document = {"uri": uri, "version": self.version}
            self.tell("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])
        if save:
            self.tell("textDocument/didSave", textDocument={"uri": uri})
        while (uri, self.version) not in self.published:
            self._await(lambda message: message.get("method") == "textDocument/publishDiagnostics")
        return self.published[uri, self.version]

    def at(self, method: str, uri: str, line: int, character: int, **more: object) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to a request about a position."""
        position = {"line": line, "character": character}
        return self.ask(f"textDocument/{method}", textDocument={"uri": uri}, position=position, **more)
