"""Answer an editor's requests (Language Server Protocol 3.17) with the engines of ``lint`` and ``check``.

It writes no file and opens no port. A text is sent whole with each change, so that its lines are those of LSP: pygls would
also end them at U+2028 and form feeds. Columns count UTF-16 code units unless the editor agrees on others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from ms_tune.diagnostics import Category, Diagnostic, Severity
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.lint.rules import RuleEntry, all_rules
from ms_tune.lint.settings import settings_for
from ms_tune.report.check import memory_sentence
from ms_tune.report.console import Console
from ms_tune.report.markdown import hover_markdown
from ms_tune.report.normalize_text import stages_sentence
from ms_tune.version import __version__
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.editor import Completion, EditorFile

_PAUSE = 0.15  # seconds without a change before a text is checked
_NEAR = 200  # characters after a word that may have its colon
_LINE_END = re.compile("\r\n|\r|\n")
_FIX_ALL = types.CodeActionKind.SourceFixAll
_LEVELS = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}
_TAGS = {
    Category.IGNORED_SETTING: [types.DiagnosticTag.Unnecessary],
    Category.DEPRECATED: [types.DiagnosticTag.Deprecated],
}


def serve(request: OverviewRequest, console: Console, output: BinaryIO) -> None:
    """Serve the editor at standard input until it closes the connection."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    _Service(request, console).server.start_io(sys.stdin.buffer, output)


class _OpenFile(EditorFile):
    """A text with conversions between offsets and positions of LSP."""

    server: LanguageServer

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def offset(self, position: types.Position) -> int:
        """Return the offset of a position; one beyond the text or its line is at the end of it."""
        if position.line >= len(self._starts):
            return len(self.text)
        start = self._starts[position.line]
        end = self._starts[position.line + 1] if position.line + 1 < len(self._starts) else len(self.text)
        line = self.text[start:end].rstrip("\r\n")
        here = types.Position(0, position.character)
        return start + self.server.workspace.position_codec.position_from_client_units([line], here).character

    def position(self, offset: int) -> types.Position:
        """Return the position of an offset."""
        line = bisect_right(self._starts, offset) - 1
        before = self.text[self._starts[line] : offset]
        return types.Position(line, self.server.workspace.position_codec.client_num_units(before))

    def range(self, start: int, end: int) -> types.Range:
        """Return the range between two offsets."""
        return types.Range(self.position(start), self.position(end))


class _Service:
    """The answers to an editor; texts are checked one after the other in a second thread."""

    def __init__(self, request: OverviewRequest, console: Console) -> None:
        self.request, self.console = request, console
        self.files: dict[str, _OpenFile] = {}
        self.checks: dict[str, asyncio.Task[None]] = {}
        self.worker = ThreadPoolExecutor(1)
        self.server = LanguageServer("ms-tune", __version__, types.TextDocumentSyncKind.Full)
        for name, answer, *options in (
            (types.INITIALIZE, self.initialize),
            (types.TEXT_DOCUMENT_DID_OPEN, self.open),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.change),
            (types.TEXT_DOCUMENT_DID_SAVE, self.save),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.close),
            (types.TEXT_DOCUMENT_HOVER, self.hover),
            (
                types.TEXT_DOCUMENT_COMPLETION,
                self.complete,
                types.CompletionOptions(trigger_characters=[":", " ", "-"]),
            ),
            (types.TEXT_DOCUMENT_DEFINITION, self.define),
            (types.TEXT_DOCUMENT_CODE_LENS, self.show_lenses),
            (
                types.TEXT_DOCUMENT_CODE_ACTION,
                self.offer_fixes,
                types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, _FIX_ALL]),
            ),
        ):
            self.server.feature(name, *options)(partial(answer))  # pygls sets attributes, which methods do not have

    @cached_property
    def rules(self) -> dict[str, RuleEntry]:
        """Return the descriptions of all checks by id."""
        return {rule.id: rule for rule in all_rules(settings_for(Path.cwd()).checklists)}

    def initialize(self, params: types.InitializeParams) -> None:
        """Work in the editor's folder, whose settings apply as they do to ``ms-tune lint`` there."""
        folders = params.workspace_folders
        root = to_fs_path(folders[0].uri if folders else params.root_uri or "")
        if root and Path(root).is_dir():
            os.chdir(root)

    def file(self, uri: str) -> _OpenFile:
        """Return the present text of a file; results computed for it are cached until it changes."""
        text = self.server.workspace.get_text_document(uri).source.removeprefix("\ufeff")
        known = self.files.get(uri)
        if known is None or known.text != text:
            known = _OpenFile(Path(to_fs_path(uri) or uri), text, self.request, known)
            known.server = self.server
            self.files[uri] = known
        return known

    def open(self, params: types.DidOpenTextDocumentParams) -> None:
        """Check a text at once."""
        self._check_soon(params.text_document.uri, 0)

    def change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Check a text when nothing has changed for a moment."""
        self._check_soon(params.text_document.uri, _PAUSE)

    def save(self, _: types.DidSaveTextDocumentParams) -> None:
        """Check all open texts again: they may build on the saved file, or it may have their settings."""
        settings_for.cache_clear()
        vars(self).pop("rules", None)
        for uri in [*self.checks]:
            self.files.pop(uri, None)
            self._check_soon(uri, 0)

    def close(self, params: types.DidCloseTextDocumentParams) -> None:
        """Forget a text and remove its findings."""
        uri = params.text_document.uri
        self.files.pop(uri, None)
        if uri in self.checks:
            self.checks.pop(uri).cancel()
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _check_soon(self, uri: str, pause: float) -> None:
        if uri in self.checks:
            self.checks[uri].cancel()
        self.checks[uri] = asyncio.ensure_future(self._check(uri, pause))

    async def _check(self, uri: str, pause: float) -> None:
        """Publish the findings in a text, unless it changes before that."""
        await asyncio.sleep(pause)
        version = self.server.workspace.get_text_document(uri).version
        file = self.file(uri)
        report = await asyncio.get_running_loop().run_in_executor(self.worker, lambda: file.report)
        found = [self._diagnostic(file, uri, finding) for finding in report.findings]
        found += [self._failure(file, error) for error in report.errors]
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def _diagnostic(self, file: _OpenFile, uri: str, finding: Diagnostic) -> types.Diagnostic:
        language, page = self.console.language, file.report.settings.page(finding)
        text = finding.sentence(language)
        if finding.help is not None:
            text += "\n" + self.console.labelled(self.console.text("lint.help-label"), finding.help.say(language))
        return types.Diagnostic(
            file.range(finding.location.start, finding.location.end),
            text,
            severity=_LEVELS[finding.severity],
            code=finding.id,
            code_description=types.CodeDescription(page) if page else None,
            source="ms-tune",
            tags=_TAGS.get(finding.category),
            related_information=[
                types.DiagnosticRelatedInformation(
                    types.Location(uri, file.range(one.location.start, one.location.end)), one.message.say(language)
                )
                for one in finding.related
            ],
        )

    def _failure(self, file: _OpenFile, error: MsTuneError) -> types.Diagnostic:
        """Return the error of a text that cannot be read, or on which ms-tune failed."""
        line = (error.line or 1) - 1 if isinstance(error, ConfigError) and error.path == file.path else 0
        text = "\n".join(self.console.say(one) for one in (error.message, error.hint) if one is not None)
        start = file.offset(types.Position(line, 0))
        end = file.offset(types.Position(line, 2**31 - 1))
        return types.Diagnostic(file.range(start, end), text, severity=_LEVELS[Severity.ERROR], source="ms-tune")

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Show the meaning of a key, and the reason of the checks that report its place."""
        file = self.file(params.text_document.uri)
        offset = file.offset(params.position)
        found = file.key_at(offset)
        here = (one.id for one in file.report.findings if one.location.start <= offset <= one.location.end)
        rules = [self.rules[id_] for id_ in dict.fromkeys(here) if id_ in self.rules]
        if found is None and not rules:
            return None
        release = " ".join(file.kind[1][:2]) if file.kind is not None else ""
        text = hover_markdown(found[0] if found else None, rules, release, self.console)
        span = file.range(*found[1:]) if found is not None else None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), span)

    def complete(self, params: types.CompletionParams) -> list[types.CompletionItem]:
        """Offer the keys of a section, or the choices of a key."""
        file = self.file(params.text_document.uri)
        offset = file.offset(params.position)
        words, start = file.complete(offset)
        span = file.range(start, offset)
        has_colon = ":" in re.split(_LINE_END, file.text[offset : offset + _NEAR], maxsplit=1)[0]
        colon = "" if has_colon or file.kind is None else ": "
        return [self._completion(one, span, colon) for one in words]

    def _completion(self, one: Completion, span: types.Range, colon: str) -> types.CompletionItem:
        kind = types.CompletionItemKind.Property if one.is_key else types.CompletionItemKind.EnumMember
        text = hover_markdown(one.key, (), "", self.console) if one.key is not None and one.is_key else ""
        return types.CompletionItem(
            one.word,
            kind=kind,
            documentation=types.MarkupContent(types.MarkupKind.Markdown, text) if text else None,
            text_edit=types.TextEdit(span, f"{one.word}{colon if one.is_key else ''}"),
        )

    def define(self, params: types.DefinitionParams) -> types.Location | None:
        """Open the file that a text names."""
        file = self.file(params.text_document.uri)
        path = file.definition_at(file.offset(params.position))
        uri = from_fs_path(str(path.resolve())) if path is not None else None
        return types.Location(uri, types.Range(types.Position(0, 0), types.Position(0, 0))) if uri else None

    async def show_lenses(self, params: types.CodeLensParams) -> list[types.CodeLens]:
        """Show the memory of a job at the top, and its recomputed layers where they are set."""
        file = self.file(params.text_document.uri)
        lens = await asyncio.get_running_loop().run_in_executor(self.worker, file.lens)
        if lens is None:
            return []
        texts = [(0, self.console.say(memory_sentence(lens.overview)))]
        if lens.plan is not None and lens.recompute_offset is not None:
            texts.append((lens.recompute_offset, stages_sentence(lens.plan, self.console)))
        return [types.CodeLens(file.range(at, at), types.Command(f"ms-tune: {text}", "")) for at, text in texts]

    def offer_fixes(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """Offer the fixes of the findings in a range, the safe ones as preferred, and all safe ones together."""
        uri = params.text_document.uri
        file = self.file(uri)
        start, end = file.offset(params.range.start), file.offset(params.range.end)
        only = params.context.only
        fixes = []
        if only is None or types.CodeActionKind.QuickFix in only:
            fixes = [
                one
                for one in file.report.findings
                if one.fix is not None and one.location.start <= end and one.location.end >= start
            ]
        actions = [*self._fixes(file, uri, fixes)]
        if (only is None and actions) or any(_FIX_ALL.value.startswith(one) for one in only or ()):
            text = file.fix_all()
            if text != file.text:
                edit = types.TextEdit(file.range(0, len(file.text)), text)
                title = self.console.text("server.fix-all")
                actions.append(types.CodeAction(title, _FIX_ALL, edit=types.WorkspaceEdit({uri: [edit]})))
        return actions

    def _fixes(self, file: _OpenFile, uri: str, findings: list[Diagnostic]) -> Iterator[types.CodeAction]:
        for finding in findings:
            assert finding.fix is not None  # noqa: S101 - chosen by the caller
            title = self.console.say(finding.fix.title)
            if not finding.fix.safe:
                title = self.console.text("server.unsafe", title=title)
            edits = [types.TextEdit(file.range(one.start, one.end), one.text) for one in finding.fix.edits]
            yield types.CodeAction(
                title,
                types.CodeActionKind.QuickFix,
                diagnostics=[self._diagnostic(file, uri, finding)],
                is_preferred=finding.fix.safe,
                edit=types.WorkspaceEdit({uri: edits}),
            )
