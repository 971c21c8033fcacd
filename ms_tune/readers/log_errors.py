"""Find the cause of a failed run in its log: the last exception of Python, else the last error that MindSpore logged.

Tracebacks are those of Python 3.10 to 3.14: of exceptions, of exception groups (after ``|``), and of syntax errors in
the program itself, which have no first line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

_MAX_ERROR_LINES = 12
_MAX_ERROR_LINE = 500  # characters

_LOG_LINE = re.compile(r"\s*\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|MS_ALLOC_CONF|MS_RUNTIME_PROF)\]")
_STATISTICS = re.compile(
    r"Device (?:MOC|HBM) memory size: |MindSpore (?:Used memory size|memory base address): |(?:Used|Actual) peak memory usage"
)
_ERROR_LINE = re.compile(
    r"\s*\[(?:ERROR|CRITICAL)\] ?\w*\([^)]{0,80}\):\S{0,40} \[(?P<place>[^\]]{1,300})\] (?:[\w:~()<>]{1,80}\] )?(?P<text>.*)"
    r"|.{0,300}? - (?:ERROR|CRITICAL) - (?P<plain>.*)"  # MindFormers' logger
)
_TRACEBACK = "Traceback (most recent call last):"
_GROUP = "+ Exception Group Traceback (most recent call last):"
_THREAD = "Exception in thread "
_GROUP_LINE = re.compile(r" {2,60}\| (?P<text>.*)")
_GROUP_BORDER = re.compile(r" {2,60}\+[-+]")
_FRAME = re.compile(r' {2,60}File "(?P<file>[^"]{1,500})", line (?P<line>[0-9]{1,9})(?P<inside>, in )?')
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
# Frames of these files do not count as the program's own.
_NOT_THE_PROGRAMS = re.compile(
    r"site-packages/|dist-packages/|/lib(?:64)?/python3|^<|/ms_tune/(?:dryrun/child|reference)/"
)
_FATAL = re.compile(
    r"Fatal Python error: |terminate called |Segmentation fault|Aborted|Bus error|Killed\b|.{0,80}\(core dumped\)"
)
_USAGE = re.compile(r"[\w.-]{1,100}: error: \S")  # argparse, which ends a program without a traceback
# MindSpore logs these without CANN, or with NumPy 2, and continues.
_HARMLESS = (
    "Dynamically load symbol",
    "No module named 'te'",
    'relies on whl package "te"',
    "Cannot find opp path",
    "compiled using NumPy 1.x",
    "Error while accessing Python stack",
    "Numpy init failed",
)
_BANNER = re.compile(r"-{20,}")
_NOT_FOR_USERS = ("- C++ Call Stack", "- The Traceback of Net Construct Code", "- The Function Call Stack")


def is_of_mindspore(line: str) -> bool:
    """Return whether a line is from MindSpore's log or statistics, not from the program's own output."""
    return _LOG_LINE.match(line) is not None or _STATISTICS.match(line) is not None


class _At(Enum):
    OUTSIDE = "outside"
    FRAMES = "frames"
    MESSAGE = "message"
    GROUP = "group"
    CRASH = "crash"
    SOURCE = "source"  # after the line of a syntax error in the program itself


@dataclass(slots=True)
class ErrorLines:
    """The errors found so far: a small state machine over the lines."""

    raised: str | None = None
    raised_at: str | None = None
    logged: str | None = None
    state: _At = _At.OUTSIDE
    lines: list[str] = field(default_factory=list)
    program_frame: str | None = None  # the program's own frame found last
    thread: str | None = None  # the first exception that ended only a thread, not the program
    in_thread: bool = False
    ignored: bool = False
    blank: bool = False

    def take(self, line: str) -> None:
        """Process a line."""
        if _LOG_LINE.match(line) or _ERROR_LINE.match(line):
            if self.state in (_At.MESSAGE, _At.GROUP):
                self._close()
            self._log_line(line)
        elif self.state is not _At.GROUP and line.endswith((_TRACEBACK, _GROUP)):  # perhaps after a prompt
            self._close()
            self.state = _At.GROUP if line.endswith(_GROUP) else _At.FRAMES
        elif line.startswith(_TRACEBACK):  # Python 3.12's text of C extensions: a stack, not an exception
            self._close()
        elif _FATAL.match(line):
            self._close()
            self.raised, self.raised_at, self.state = line[:_MAX_ERROR_LINE], None, _At.CRASH
        elif _USAGE.match(line):
            self._close()
            self.raised, self.raised_at = line[:_MAX_ERROR_LINE], None
        elif self.state is not _At.OUTSIDE:
            self._read_inside(line)
        elif (frame := _FRAME.match(line)) and not frame["inside"]:
            self._see_frame(line)
            self.state = _At.SOURCE
        elif line.strip():
            self.ignored = line.startswith("Exception ignored in")
            self.in_thread = line.startswith(_THREAD)

    def last_error(self) -> str | None:
        """Return the last exception, or else the last error that was logged."""
        self._close()
        return self.raised or self.logged

    def last_location(self) -> str | None:
        """Return the last line of the program itself in the last traceback; None for an error that was logged."""
        self._close()
        return self.raised_at if self.raised else None

    def _read_inside(self, line: str) -> None:
        if self.state is _At.MESSAGE:
            self._read_message(line)
        elif self.state is _At.GROUP:
            self._read_group(line)
        elif self.state is _At.CRASH:  # faulthandler prints the innermost frame first
            self._see_frame(line)
            if self.program_frame is not None:
                self.raised_at = self.program_frame
                self._close()
        elif line and not line[0].isspace():
            if self.state is _At.SOURCE and not _SYNTAX.match(line):
                self._close()
                return
            self.state, self.blank = _At.MESSAGE, False
            self.lines.append(line)
        else:
            self._see_frame(line)

    def _see_frame(self, line: str) -> None:
        frame = _FRAME.match(line)
        if frame is not None and not _NOT_THE_PROGRAMS.search(frame["file"]):
            self.program_frame = f"{frame['file']}:{frame['line']}"

    def _log_line(self, line: str) -> None:
        match = _ERROR_LINE.match(line)
        if match is None or any(noise in line for noise in _HARMLESS):
            return
        if match["plain"] is not None:
            self.logged = match["plain"][:_MAX_ERROR_LINE]
        else:
            self.logged = f"{match['text'][:_MAX_ERROR_LINE]} ({match['place'].rsplit('/', 1)[-1]})"

    def _read_group(self, line: str) -> None:
        # Frames are indented after the `|`, messages are not.
        match = _GROUP_LINE.match(line)
        if match is None and not _GROUP_BORDER.match(line):
            self._close()
        elif match is not None and match["text"].startswith(" "):
            if not self.lines:  # frames of the group itself
                self._see_frame(match["text"])
        elif match is not None and len(self.lines) < _MAX_ERROR_LINES and match["text"] != _TRACEBACK:
            self.lines.append(match["text"])

    def _read_message(self, line: str) -> None:
        # MindSpore's messages continue in sections under banners of dashes.
        text = line.strip()
        if text.startswith(_NOT_FOR_USERS) or (self.blank and text and not _BANNER.fullmatch(text)):
            self._close()
        elif not text:
            self.blank = True
        else:
            self.blank = False
            if len(self.lines) < _MAX_ERROR_LINES and not _BANNER.fullmatch(text):
                self.lines.append(text.removeprefix("- "))

    def _close(self) -> None:
        if self.state in (_At.MESSAGE, _At.GROUP):
            text = "\n".join(line[:_MAX_ERROR_LINE] for line in self.lines)
            if text and not self.ignored and not any(noise in text for noise in _HARMLESS):
                self.raised, self.raised_at = text, self.program_frame
                if self.in_thread and self.thread is None:
                    self.thread = f"{self.program_frame}: {text}" if self.program_frame else text
            self.ignored = self.in_thread = False
        self.state, self.lines, self.program_frame, self.blank = _At.OUTSIDE, [], None, False
