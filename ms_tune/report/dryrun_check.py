"""The result of ``dryrun --check`` as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.text import Message

if TYPE_CHECKING:
    from ms_tune.dryrun.check import MachineCheck
    from ms_tune.report.console import Console


def show(check: MachineCheck, console: Console) -> None:
    """A line a fact."""
    absent = console.text("dryrun.check.absent")
    backend = console.text(f"dryrun.check.{check.backend.value}") if check.backend else absent
    built = str(check.cann) if check.cann else console.text("dryrun.check.not-built")
    rows = {
        "machine": check.machine,
        "python": check.python,
        "cores": str(check.cores),
        "mindspore": check.mindspore or absent,
        "mindformers": check.mindformers or absent,
        "numpy": check.numpy or absent,
        "compiler": ", ".join(check.compilers) or absent,
        "cann": f"{backend} ({built})" if check.backend else backend,
        "mindspeed": check.mindspeed.name if check.mindspeed else console.text("dryrun.model.reference"),
        "pynative": _trainer(check, console),
    }
    for name, value in rows.items():
        console.write(console.labelled(console.text(f"dryrun.check.label.{name}"), value))
    if check.problem:
        console.write("")
        console.write(
            console.labelled(console.paint(console.text("dryrun.check.no"), "red"), console.say(check.problem))
        )
        if check.hint:
            console.write(f"  {console.labelled(console.text('cli.hint'), console.say(check.hint))}")
    else:
        console.write(console.paint(console.text("dryrun.check.yes"), "green"))


def _trainer(check: MachineCheck, console: Console) -> str:
    if isinstance(check.pynative, Message):
        return f"{console.text('dryrun.model.reference')} ({console.say(check.pynative)})"
    return check.pynative.name


def to_json(check: MachineCheck, console: Console) -> dict[str, object]:
    """The object that ``ms-tune dryrun --check --json`` prints."""
    return {
        "version": 1,
        "ready": check.problem is None,
        "problem": console.say(check.problem) if check.problem else None,
        "machine": check.machine,
        "python": check.python,
        "cores": check.cores,
        "mindspore": check.mindspore,
        "mindformers": check.mindformers,
        "numpy": check.numpy,
        "compilers": list(check.compilers),
        "backend": check.backend.value if check.backend else None,
        "cann": str(check.cann) if check.cann else None,
        "dynamic_graph": {
            "mindspeed-ms": check.mindspeed.name if check.mindspeed else None,
            "mindformers-pynative": None if isinstance(check.pynative, Message) else check.pynative.name,
        },
    }
