"""Add the estimated memory to the screen of a MindSpeed-MM job: of its main model by Megatron's arguments, and of its encoders."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ms_tune.dialects.job_parts import Encoder, MultimodalModel
from ms_tune.dialects.megatron.arguments import ProgramArguments, command_in
from ms_tune.dialects.megatron.read import ArgumentReader, NotEvaluableError, size_in
from ms_tune.dialects.mindformers.plain import describe_plain_model
from ms_tune.dialects.mindspeed_mm.model import describe_model, describe_yaml
from ms_tune.dialects.mindspeed_mm.read import multimodal_commands
from ms_tune.enums import SizeOrigin
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.estimate.megatron import PartRatios
from ms_tune.estimate.memory import StageEstimate
from ms_tune.facts.launchers import Launcher
from ms_tune.job.script import ScriptJob
from ms_tune.source.shell.read import Launch, find_above
from ms_tune.source.shell.syntax import File, ScriptPlace
from ms_tune.source.shell.values import Argument, Piece
from ms_tune.source.yaml import SourceFile, load_source
from ms_tune.text import msg
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.program import ProgramEstimate, estimate_command
from ms_tune.workflows.check.result import Overview, Sizes

_FSDP2 = "train_fsdp2.py"
_RELEASE = "26.1"  # of MindSpeed-LLM, whose Megatron arguments are used
# Samples are as long as their images and videos, so the bounds are wide: the lasting bytes, and several times the activations.
_RATIOS = PartRatios(lowest=0.0, activations=2.5, loss=3.0)
_FULL = 18  # bytes of a trained parameter: Megatron's mixed precision with Adam
_MOVED = 12  # those of them that the distributed optimizer shards
_HALF = 2


def add_script_estimate(screen: Overview, request: OverviewRequest, script: ScriptJob) -> Overview:
    """Return the screen of a launch script with the memory of its first program, or with the reason why it is unknown."""
    try:
        for source in multimodal_commands(script.launches, script.text):
            return _add(screen, request, source.command.launch, describe_model(source))
    except MsTuneError as error:
        return screen._replace(no_estimate_because=error.message, no_estimate_hint=error.hint)
    return screen


def add_yaml_estimate(screen: Overview, request: OverviewRequest, source: SourceFile) -> Overview:
    """Return the screen of an FSDP2 YAML with its memory, or with the reason why it is unknown."""
    try:
        return _add(screen, request, _launch_of(source), describe_yaml(source.data))
    except MsTuneError as error:
        return screen._replace(no_estimate_because=error.message, no_estimate_hint=error.hint)


def add_fsdp2_estimate(screen: Overview, request: OverviewRequest, script: ScriptJob) -> Overview:
    """Return the screen of a script that starts MindSpeed-LLM's FSDP2 trainer with the memory of its YAML, which arguments override."""
    for launch in script.launches.launches:
        word = next(iter(launch.arguments), None)
        path = find_above(script.path, word.text) if word is not None and word.text else None
        if launch.name != _FSDP2 or path is None or path.suffix not in (".yaml", ".yml"):
            continue
        try:
            data = load_source(path).data
            for name, value in pairwise(launch.arguments):
                section, dot, key = (name.text or "").removeprefix("--").partition(".")
                if dot and value.text is not None:
                    given = data.get(section)
                    text = value.text
                    data = {
                        **data,
                        section: {
                            **(given if isinstance(given, dict) else {}),
                            key: int(text) if text.isdecimal() else text,
                        },
                    }
            return _add(screen, request, replace(launch, arguments=()), describe_yaml(data, script.path.stem))
        except MsTuneError as error:
            return screen._replace(no_estimate_because=error.message, no_estimate_hint=error.hint)
    return screen


def add_plain_estimate(screen: Overview, request: OverviewRequest, source: SourceFile) -> Overview:
    """Return the screen of a static graph of an unknown class with the memory of a plain transformer, if its sizes are known."""
    model = describe_plain_model(source.data)
    if model is None:
        return screen
    stated = model.devices if request.job.devices is None else None
    job = request.job._replace(devices=stated or request.job.devices)
    try:
        found = _add(screen, request._replace(job=job), _launch_of(source), model)
    except MsTuneError:  # the reason of the class stays
        return screen
    if found.assumptions is None:
        return screen
    plain = msg("check.plain", source=msg("stages.devices.config") if stated else found.assumptions.source)
    # A dryrun would fail: the class is not in the installed framework.
    commands = (request.command("lint", source.path),)
    return found._replace(assumptions=found.assumptions._replace(source=plain), next=commands)


def _launch_of(source: SourceFile) -> Launch:
    # The launch of a program by a command that is not known.
    launcher, place = Launcher("", {}, frozenset(), known=False), ScriptPlace(File(source.path, ""), 0, 0)
    return Launch(launcher, {}, None, (), {}, conditional=False, place=place)


def _add(screen: Overview, request: OverviewRequest, launch: Launch, model: MultimodalModel) -> Overview:
    words = tuple(Argument((Piece(word, launch.place),)) for word in model.arguments)
    sharded = any(
        (one.text or "").startswith(("--layerzero", "--use-torch-fsdp2")) for one in (*launch.arguments, *words)
    )
    words += (Argument((Piece("--use-torch-fsdp2", launch.place),)),) if sharded else ()
    given = (replace(one, open=False) for one in launch.arguments)  # the unknown words are names of files
    command = command_in(replace(launch, arguments=(*given, *words)), _RELEASE)
    try:
        found = estimate_command(request, command)
    except NotEvaluableError as error:
        unknown = {"argument": error.argument, "variable": error.variable}
        return screen._replace(
            no_estimate_because=msg("check.script.unknown", **unknown),
            no_estimate_hint=msg("check.script.unknown.hint", **unknown),
        )
    if found.estimate is None:
        raise found.error or UnsupportedError(msg("check.estimate.refused"))
    stages = tuple(_with_encoders(one, model.encoders, command, found) for one in found.estimate.stages)
    _, high = _RATIOS.peak_ratios(stages)
    most = high * max(one.peak_bytes for one in stages) + model.frozen_bytes
    stages = tuple(one._replace(lasting_bytes=round(model.least * one.lasting_bytes)) for one in stages)
    low, high = 0.99, most / max(one.peak_bytes for one in stages)
    estimate = found.estimate._replace(stages=stages, ratios=(low, high), less=True)
    sizes = Sizes(
        SizeOrigin.ASSUMED if model.name else SizeOrigin.CONFIG, model=model.name or None, key=model.key or None
    )
    return screen._replace(
        estimate=estimate, assumptions=found.assumptions, sizes=sizes, no_estimate_because=None, no_estimate_hint=None
    )


def _with_encoders(
    stage: StageEstimate, encoders: tuple[Encoder, ...], command: ProgramArguments, found: ProgramEstimate
) -> StageEstimate:
    read = ArgumentReader(command)
    split = found.assumptions.split
    shards = split.data * split.context
    samples = size_in(read, "micro_batch_size", 1)
    lasting = kept = working = 0
    each: float
    for one in encoders:
        layers = one.stages[stage.stage] if len(one.stages) == split.pipeline else one.layers * (stage.stage == 0)
        parameters = layers * one.layer_parameters // split.tensor
        each = _FULL if one.trained else _HALF
        if one.trained and read.switch("use_distributed_optimizer"):
            each = _FULL - _MOVED + _MOVED / shards
        lasting += round(parameters * (each / shards if read.switch("use_torch_fsdp2") else each))
        tokens = samples * one.tokens * one.width * _HALF // split.tensor
        kept += tokens * layers if one.trained else 0
        working = max(working, 4 * tokens if layers else 0)
    return stage._replace(
        lasting_bytes=stage.lasting_bytes + lasting,
        activation_bytes=stage.activation_bytes + kept,
        transient_bytes=max(stage.transient_bytes, working),
    )
