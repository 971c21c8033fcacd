"""Read the layers of a program in a launch script from its arguments, with the parser of the release."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import MEGATRON, Failure, LayerPlan, PlanIssue
from ms_tune.dialects.check_context import per_job
from ms_tune.dialects.job_parts import DType, Experts, LatentAttention, ModelShape
from ms_tune.dialects.megatron.arguments import ParserFault, ProgramArguments, RefusedArgument, refused
from ms_tune.dialects.megatron.placement import DESTINATIONS, IN_YAML, MOST_LAYERS, NOT_SERVED, MegatronInputs
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.megatron.write import remedy
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.facts.megatron import definitions, names_by_dest, releases_of, releases_on
from ms_tune.facts.models import UNKNOWN
from ms_tune.facts.sizes import PublicModel, find_family_model, find_public_model, find_tokenizer
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects import CheckoutView, JobView

_OTHERS = (
    *("save_model_type", "use_custom_fsdp", "overlap_grad_reduce", "untie_embeddings_and_output_weights"),
    *("context_parallel_size", "tp_2d", "sequence_parallel", "align_grad_reduce", "moe_zero_memory"),
)

# Specs that define a layer's parts, the same for all layers (``mindspeed_llm/tasks/models/spec``).
_PLAIN_SPEC = re.compile(
    r"(?:mindspeed_llm|modellink)\.tasks\.models\.spec\.(?:bailing|deepseek|gemma2|grok|minicpm|phi35_moe|plm|qwen2_moe|qwen3)_spec"
)
# Releases whose rules are known.
SERVED = releases_on("core_v0.12.1")


class NotEvaluableError(Exception):
    """The error for an argument whose value is only known at run time."""

    def __init__(self, argument: str, variable: str) -> None:
        super().__init__(argument)
        self.argument = argument
        self.variable = variable


def plan_of(command: ProgramArguments, checkout: CheckoutView | None = None) -> LayerPlan:
    """Return the plan of a program; refusals by the parser or the frameworks are its ``failure``."""
    is_certain = checkout is None or checkout.is_parser_known
    problems = tuple(_parser_problem(command.release, one) for one in refused(command, checkout))
    if problems and is_certain:
        failure = Failure("SystemExit", "2")
        return LayerPlan(MEGATRON, command.release, None, None, (), problems, (), failure)
    if is_in_yaml(command):
        return _stops_over_yaml(command.release)
    inputs = inputs_of(command)
    plan = normalize_megatron(inputs)
    if plan.failure is None:
        return plan
    first = plan.problems[0]._replace(help=remedy(inputs))
    return plan._replace(problems=(first, *plan.problems[1:]))


@per_job
def find_layer_plan(job: JobView) -> tuple[MegatronInputs, LayerPlan] | None:
    """Return the layer arguments of a script's program with its plan; None if unknown or refused by the parser."""
    command = job.original.command  # type: ignore[attr-defined]  # the source of a command
    if command.release not in SERVED or any(True for _ in refused(command, job.checkout)):
        return None
    for without in ((), ONLY_BUILT):
        try:
            inputs = inputs_of(command, without=without)
        except NotEvaluableError:
            return None
        except ConfigError:
            continue
        plan = normalize_megatron(inputs)
        if without and all(problem.id != PlanIssue.ARGUMENTS_REJECTED for problem in plan.problems):
            # Problems that do not depend on how layers are built.
            kept = ("number-alone", "method-alone", "modules-ignored") if command.is_off("moe_fb_overlap") else ()
            problems = tuple(problem for problem in plan.problems if problem.id in kept)
            plan = plan._replace(layers=(), problems=problems, failure=None)
        return inputs, plan
    return None


def plan_layers(job: JobView) -> LayerPlan:
    """Return the plan of a script's program."""
    found = find_layer_plan(job)
    if found is None:
        raise ConfigError(msg("edits.unclear"))
    return found[1]


def is_in_yaml(command: ProgramArguments) -> bool:
    """Return whether a program certainly reads its arguments from a YAML file, which then replace the command line's."""
    return isinstance(command.value(IN_YAML), str)


def _stops_over_yaml(release: str) -> LayerPlan:
    """Return the plan of a program with ``--yaml-cfg``, which always fails.

    ``TrainingBasicFeature.pre_validate_args`` of MindSpeed-LLM reads ``pipeline_model_parallel_size`` outside the
    sections; ``validate_yaml`` of Megatron-LM (core_v0.12.1, ``megatron/training/yaml_arguments.py``) reads it in
    ``model_parallel`` and passes both to one call, which rejects repeated names.
    """
    text = "types.SimpleNamespace() got multiple values for keyword argument 'pipeline_model_parallel_size'"
    message = msg("megatron_layers.in-yaml", release=release)
    problem = Diagnostic("arguments-rejected", Severity.ERROR, message, msg("megatron_layers.in-yaml.hint"))
    return LayerPlan(MEGATRON, release, None, None, (), (problem,), (), Failure("TypeError", text))


def _parser_problem(release: str, one: RefusedArgument) -> Diagnostic:
    known = releases_of(one.name) if one.fault is ParserFault.UNKNOWN else ()
    what = msg(
        f"megatron_layers.parser.{'elsewhere' if known else one.fault.value}",
        name=one.name,
        text=one.word.text or "",
        allowed=", ".join(one.allowed),
        known=", ".join(known),
    )
    line = one.word.place.span.line
    return Diagnostic(
        "parser-rejected", Severity.ERROR, msg("megatron_layers.parser", release=release, line=line, what=what)
    )


# Options that change how layers are built or run, but not the validation of arguments before that.
OVERLAPS = "moe_fb_overlap"
ONLY_BUILT = (OVERLAPS, "spec")


def inputs_of(command: ProgramArguments, *, without: Collection[str] = ()) -> MegatronInputs:
    """Return a program's layer arguments; those in ``without`` are not checked for being supported."""
    reader = ArgumentReader(command)
    for dest in NOT_SERVED:
        if reader.is_set(dest) and dest not in without:
            raise ConfigError(msg("megatron_layers.not-served", argument=reader.argument_name(dest)))
    if "spec" not in without and (spec := own_spec(reader)):
        raise ConfigError(msg("megatron_layers.not-served", argument=f"--spec {spec}"))
    layers = reader.integer(DESTINATIONS["layers"])
    if layers is None:
        raise ConfigError(msg("megatron_layers.no-layers"))
    reader.bound(DESTINATIONS["layers"], layers, 1)
    integers = {
        name: reader.integer(DESTINATIONS[name]) for name in _fields_of("int", "int | None") if name != "layers"
    }
    for field, least in (("stages", 1), ("layers_of_chunk", 0), ("chunks", 1), ("ahead", 0), ("tensor", 1)):
        number = integers[field]
        if number is not None:
            reader.bound(DESTINATIONS[field], number, least)
    reader.bound(DESTINATIONS["chunks"], (integers["stages"] or 1) * (integers["chunks"] or 1), 1)
    values: dict[str, object] = {
        **integers,
        **{name: reader.switch(DESTINATIONS[name]) for name in _fields_of("bool")},
        **{name: reader.text(DESTINATIONS[name]) for name in _fields_of("str | None")},
    }
    if values["schedule"] == "dualpipev" and integers["chunks"] is not None:
        raise ConfigError(msg("megatron_layers.not-served", argument="--num-virtual-stages-per-pipeline-rank"))
    modules = reader.value(DESTINATIONS["modules"])
    return MegatronInputs(
        release=command.release,
        layers=layers,
        modules=tuple(map(str, modules)) if isinstance(modules, list) else None,
        micro_batches=_micro_batches(command, values),
        checked_settings={dest: reader.value(dest) for dest in _OTHERS},
        **values,  # type: ignore[arg-type]  # by the fields' types
    )


def own_spec(reader: ArgumentReader) -> str:
    """Return the ``--spec`` of a program whose layers are not known; empty without one."""
    spec = reader.value("spec")
    return (
        "" if not isinstance(spec, list) or (spec and _PLAIN_SPEC.fullmatch(str(spec[0]))) else " ".join(map(str, spec))
    )


def _fields_of(*types: str) -> Iterator[str]:
    return (one.name for one in fields(MegatronInputs) if one.type in types and one.name in DESTINATIONS)


def _micro_batches(command: ProgramArguments, values: dict[str, object]) -> int | None:
    processes, total, micro = (
        command.launch.processes,
        command.integer("global_batch_size"),
        command.integer("micro_batch_size"),
    )
    context = command.integer("context_parallel_size") or 1
    stages, tensor = values["stages"], values["tensor"]
    if not processes or not micro or not isinstance(stages, int) or not isinstance(tensor, int):
        return None
    data = processes // (stages * tensor * context)
    if not data:
        return None
    return (total or micro * data) // micro // data


class ArgumentReader:
    """A reader of final values."""

    def __init__(self, command: ProgramArguments) -> None:
        self._command = command
        self._names_by_dest = names_by_dest(command.release)

    def value(self, dest: str) -> object:
        """Return a value; None if the release does not know the argument or has no default."""
        if dest not in self._names_by_dest:
            return None
        found = self._command.value(dest)
        if found is not UNKNOWN:
            return found
        given = self._command.last(dest)
        if given is None:
            if self._command.open:
                words = (word for word in self._command.launch.arguments if word.open and word.unknown)
                hidden = next((word.unknown.name for word in words if word.unknown), "")
                raise NotEvaluableError(self.argument_name(dest), hidden)
            return _first_default(self._command.release, dest)
        unknown = next((value.unknown for value in given.values if value.unknown), None)
        if unknown is not None:
            raise NotEvaluableError(given.name, unknown.name)
        texts = [str(one.text) for one in given.values]
        if not texts and any(one.nargs == "*" for one in given.definitions):
            return []
        if len(texts) == 1 and texts[0].isascii() and texts[0].removeprefix("-").isdigit():
            return int(texts[0][:9])  # an argument that several features define differently
        raise ConfigError(msg("megatron_layers.value-not-served", argument=given.name, value=" ".join(texts)))

    @property
    def script_name(self) -> str:
        """Return the name of the script."""
        return self._command.launch.place.file.path.name

    def integer(self, dest: str) -> int | None:
        """Return a whole number, or None."""
        found = self.value(dest)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def switch(self, dest: str) -> bool:
        """Return whether a switch is on."""
        return self.value(dest) is True

    def text(self, dest: str) -> str | None:
        """Return a text, or None."""
        found = self.value(dest)
        return found if isinstance(found, str) else None

    def is_set(self, dest: str) -> bool:
        """Return whether an argument is given."""
        return self._command.last(dest) is not None and self.value(dest) not in (None, False)

    def argument_name(self, dest: str) -> str:
        """Return the argument's name as given."""
        given = self._command.last(dest)
        return given.name if given else next(iter(self._names_by_dest.get(dest, (f"--{dest.replace('_', '-')}",))))

    def bound(self, dest: str, number: int, least: int) -> None:
        """Raise ConfigError for a number that is not a count or unrealistically large."""
        if not least <= number <= MOST_LAYERS:
            name = self.argument_name(dest)
            raise ConfigError(
                msg("megatron_layers.not-a-count", name=name, minimum=least, maximum=MOST_LAYERS, value=number)
            )


def _first_default(release: str, dest: str) -> object:
    """Return the default of an argument that several features define differently: the last definition replaces the others."""
    found = [
        one.default for name in names_by_dest(release)[dest] for one in definitions(name, release) if one.dest == dest
    ]
    return next((one for one in reversed(found) if one is not None), None)


_NEEDED = ("hidden_size", "num_attention_heads", "seq_length", "padded_vocab_size")
_GATED = ("swiglu", "geglu", "gelu_tanh")  # each sets `gated_linear_unit` (mindspeed_llm/core/transformer/mlp.py)
# Names up to 2.1; later releases copy them to the present ones
# (mindspeed_llm/features_manager/arguments/deprecated_args.py).
_OLDER = {
    "multi_latent_attention": "multi_head_latent_attention",
    "qk_head_dim": "qk_nope_head_dim",
    "qk_pos_emb_head_dim": "qk_rope_head_dim",
    "moe_ffn_hidden_size": "moe_intermediate_size",
}
_NARROWED = 64  # default width of `swiglu`: 8/3 of the hidden size, rounded down to a multiple (`validate_args`)
_MOST_EXPERTS = 1 << 16
_MOST = 1 << 32  # upper bound of a size


def shape_of(read: ArgumentReader, layers: int, words: int | None = None) -> ModelShape:
    """Return the sizes of a program's model; ``words`` is its vocabulary if no argument gives it.

    Source: ``validate_args`` in megatron/training/arguments.py (Megatron-LM core_v0.12.1), MindSpeed-LLM 2.0 to 26.1.
    """
    words = read.integer("vocab_size") or words
    needed = _NEEDED if words is None else _NEEDED[:-1]
    missing = [dest for dest in needed if read.integer(dest) is None]
    if missing:
        raise _no_size(*map(read.argument_name, missing))
    hidden, heads = size_in(read, "hidden_size"), size_in(read, "num_attention_heads")
    gated = any(map(read.switch, _GATED))
    wide = hidden * 8 // 3 // _NARROWED * _NARROWED if read.switch("swiglu") else 4 * hidden
    inner, bias = size_in(read, "ffn_hidden_size", wide), read.switch("add_bias_linear")
    return ModelShape(
        vocab_size=size_in(read, "padded_vocab_size", _pad_words(read, words)),
        hidden_size=hidden,
        ffn_hidden_size=inner,
        layers=layers,
        num_attention_heads=heads,
        num_query_groups=size_in(read, "num_query_groups") if read.switch("group_query_attention") else heads,
        head_size=size_in(read, "kv_channels", hidden // heads),
        seq_length=size_in(read, "seq_length"),
        activation="swiglu" if gated else "gelu",
        normalization=read.text("normalization") or "LayerNorm",
        rotary=read.text("position_embedding_type") != "learned_absolute",
        tied_embeddings=not read.switch("untie_embeddings_and_output_weights"),
        qkv_bias=bias or read.switch("add_qkv_bias"),
        output_bias=bias or read.switch("add_dense_bias"),
        mlp_bias=bias,
        flash_attention=read.switch("use_flash_attn"),
        qk_norm=read.switch("qk_layernorm"),
        sandwich_norm=read.switch("post_norm"),
        latent=_latent(read) if any(map(read.switch, _dests("multi_latent_attention"))) else None,
        experts=_experts(read, inner) if (read.integer("num_experts") or 0) > 1 else None,
        legacy=True,
    )


def _latent(read: ArgumentReader) -> LatentAttention:
    return LatentAttention(
        query_rank=read.integer("q_lora_rank"),
        key_value_rank=size_in(read, "kv_lora_rank"),
        plain_size=size_in(read, "qk_head_dim"),
        rotary_size=size_in(read, "qk_pos_emb_head_dim"),
        value_size=size_in(read, "v_head_dim"),
    )


def _experts(read: ArgumentReader, inner: int) -> Experts:
    wide = size_in(read, "moe_ffn_hidden_size", inner)
    shared = (read.integer("n_shared_experts") or 0) * wide
    count = size_in(read, "num_experts")
    if count > _MOST_EXPERTS:
        raise UnsupportedError(msg("check.script.otherwise", argument=read.argument_name("num_experts")))
    return Experts(
        routed=count,
        per_token=size_in(read, "moe_router_topk"),
        ffn_hidden_size=wide,
        shared_ffn_hidden_size=read.integer("moe_shared_expert_intermediate_size") or shared,
        shared_gate=read.switch("shared_expert_gate"),
        shared_split=True,
        grouped=read.switch("moe_grouped_gemm"),
        router=DType.BFLOAT16,
        tensor_parallel=read.integer("expert_tensor_parallel_size") != 1,
    )


def find_vocabulary(read: ArgumentReader) -> tuple[str, PublicModel] | None:
    """Return the public model with a program's vocabulary, and what names it: an argument or the script; None if none does.

    None also if an argument gives the vocabulary's size.
    """
    if read.integer("padded_vocab_size") or read.integer("vocab_size"):
        return None
    for dest in ("tokenizer_name_or_path", "tokenizer_model", "load", "tokenizer_type"):
        find = find_tokenizer if dest == "tokenizer_type" else find_public_model
        try:
            model = find((read.text(dest) or "").strip())
        except NotEvaluableError:
            continue
        if model is not None:
            return read.argument_name(dest), model
    name = read.script_name
    model = find_family_model(name, size_in(read, "hidden_size"), size_in(read, "num_attention_heads"))
    return None if model is None else (name, model)


def _pad_words(read: ArgumentReader, words: int | None) -> int | None:
    """Return the vocabulary size padded for the TP ranks (``_vocab_size_with_padding``)."""
    each = (read.integer("make_vocab_size_divisible_by") or 1) * (read.integer("tensor_model_parallel_size") or 1)
    return None if words is None else -(-words // each) * each


def _dests(name: str) -> tuple[str, ...]:
    older = _OLDER.get(name)
    return (name,) if older is None else (f"deprecated_{older}", older, name)


def size_in(read: ArgumentReader, dest: str, default: int | None = None) -> int:
    """Return a positive whole number."""
    found = next((number for one in _dests(dest) if (number := read.integer(one)) is not None), default)
    if found is None or not 0 < found < _MOST:
        raise _no_size(read.argument_name(dest))
    return found


def _no_size(*arguments: str) -> UnsupportedError:
    names = {"argument": ", ".join(arguments)}
    return UnsupportedError(msg("check.script.no-size", **names), msg("check.script.no-size.hint", **names))
