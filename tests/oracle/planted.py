"""Defects that are planted into real configs, launch scripts and programs, and what has to be said of each.

Each form makes a file wrong in one way that the framework refuses, or that changes what the run does, and names the checks
that explain it: what is wrong is known because it was planted, not because anything found it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Plant = Callable[[str, Random], str | None]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to make a file wrong.

    Args:
        name: What is wrong.
        ids: The checks that explain it; any of them will do.
        plant: The text with the defect; None if the file has no place for it.
    """

    name: str
    ids: tuple[str, ...]
    plant: Plant


def value(key: str, *texts: str, of: str = "[^\\s#].*?") -> Plant:
    """Another value for a key that stands in the file with a value of its own, the first of its name."""

    def plant(text: str, random: Random) -> str | None:
        found = re.search(rf"(?m)^(\s*(?:- )?{key}: +)({of})([ \t]*(?:#.*)?)$", text)
        new = random.choice(texts)
        return None if found is None or found[2] == new else text[: found.start(2)] + new + text[found.end(2) :]

    return plant


def misspelt(*keys: str) -> Plant:
    """A letter of a key is lost, or stands twice."""

    def plant(text: str, random: Random) -> str | None:
        there = [match for key in keys for match in re.finditer(rf"(?m)^ *({key}):", text)]
        if not there:
            return None
        place = random.choice(there)
        at = random.randrange(place.start(1) + 2, place.end(1) - 1)
        letter = random.choice(("", 2 * text[at])) if text[at] != text[at - 1] else 2 * text[at]
        return text[:at] + letter + text[at + 1 :]

    return plant


def under(section: str, line: str) -> Plant:
    """A line more in a section, as its first, unless the key is there."""

    def plant(text: str, _: Random) -> str | None:
        found = re.search(rf"(?m)^( *){section}:[ \t]*(?:#.*)?\n( +)(?=[^\s#-])", text)
        if found is None or re.search(rf"(?m)^ *{line.partition(':')[0]}:", text):
            return None
        return f"{text[: found.start(2)]}{found[2]}{line}\n{text[found.start(2) :]}"

    return plant


def twice(*keys: str) -> Plant:
    """A line of the file stands twice, the second time with another value."""

    def plant(text: str, random: Random) -> str | None:
        there = [match for key in keys for match in re.finditer(rf"(?m)^( *){key}: +[^\s#\[{{&*].*\n", text)]
        if not there:
            return None
        place = random.choice(there)
        return f"{text[: place.end()]}{place[0].partition(':')[0]}: 7\n{text[place.end() :]}"

    return plant


def both(*plants: Plant) -> Plant:
    """Several changes that are one defect together."""

    def plant(text: str, random: Random) -> str | None:
        new: str | None = text
        for one in plants:
            new = one(new, random) if new is not None else None
        return new

    return plant


def where(pattern: str, plant: Plant) -> Plant:
    """A defect of those files only in which a pattern is found."""
    return lambda text, random: plant(text, random) if re.search(pattern, text) else None


def words(old: str, *new: str) -> Plant:
    """Other words for the first that match."""

    def plant(text: str, random: Random) -> str | None:
        found = re.search(old, text)
        return None if found is None else text[: found.start()] + found.expand(random.choice(new)) + text[found.end() :]

    return plant


def end(*lines: str) -> Plant:
    """Lines more at the end."""
    return lambda text, random: f"{text.rstrip()}\n{random.choice(lines)}\n"


_MCORE = r"(?m)^use_legacy: False"
_LENGTHS = r"(?ms)^train_dataset:.*^ +seq_length: \d.*^model:.*^ +seq_length: \d"
_MISSPELT = ("MST201", "MST203", "MST204", "MST217", "MST220", "MST608", "MST704", "MST708", "MST745")
# MindFormers' static graph: the registries, the enumerations and the arithmetic of `mindformers` (1.9 to 2.1).
STATIC = (
    Form("a key that is misspelt", _MISSPELT, misspelt("recompute_config", "parallel_config", "runner_config")),
    Form("a key of parallel_config", _MISSPELT, misspelt("pipeline_stage", "micro_batch_num", "model_parallel")),
    Form("a key of the model", _MISSPELT, where(_MCORE, misspelt("intermediate_size", "num_attention_heads"))),
    Form("a key of context", (*_MISSPELT, "MST502"), misspelt("max_device_memory", "device_target")),
    Form(
        "a key that stands twice", ("MST101",), twice("batch_size", "epochs", "num_attention_heads", "pipeline_stage")
    ),
    Form("an optimizer", ("MST526",), words(r"(?m)^(optimizer:\n\s+type: )\w+", r"\1AdamX", r"\1AdamsW")),
    Form("a schedule", ("MST527",), words(r"(?m)^(lr_schedule:\n\s+type: )\w+", r"\1CosineLRs", r"\1WarmUp")),
    Form("a trainer", ("MST528",), words(r"(?m)^(trainer:\n\s+type: )\w+", r"\1CausalTrainer")),
    Form("a callback", ("MST529",), words(r"(- type: )(MFLossMonitor|CheckpointMonitor)", r"\1\2s", r"\1My\2")),
    Form("a network", ("MST531",), where(_MCORE, value("architectures", '["Qwen3ForCausal"]', "[LlamaNet]"))),
    Form("a wrapper", ("MST536",), words(r"(?m)^(runner_wrapper:\n\s+type: )\w+", r"\1MFTrainOneStep")),
    Form("a data set", ("MST535",), words(r"(?m)^(train_dataset_task:\n\s+type: )\w+", r"\1CausalDataset")),
    Form("a data type", ("MST532",), where(_MCORE, value("(?:params|compute)_dtype", '"flaot32"', "fp8", "half"))),
    Form("a format of checkpoints", ("MST534",), value("load_ckpt_format", "'safetensor'", "pickle")),
    Form("a memory size", ("MST506",), value("max_device_memory", "58", '"58G"', "58GiB", "many")),
    Form("a run mode", ("MST209",), value("run_mode", "training", "pretrain", "'trian'")),
    Form("a device", ("MST533",), value("device_target", '"Asend"', "NPU", "TPU")),
    Form("a level of optimisation", ("MST507",), value("memory_optimize_level", '"O2"', "O3")),
    Form("a parallel mode", ("MST211",), value("parallel_mode", "7", "9", "semi")),
    Form(
        "more stages than layers",
        ("MST334", "MST302", "MST332"),
        where(_MCORE, where(r"num_(?:hidden_)?layers: \d", value("pipeline_stage", "500"))),
    ),
    Form(
        "an offset of too many stages",
        ("MST302", "MST355"),
        where(_MCORE, value("offset", "[1, 0, 0, 0, 0, 0, -1, 0, 0]", of=r"\[[^\[\]\n]*\]|\d+")),
    ),
    Form(
        "heads that TP cannot split",
        ("MST318", "MST319", "MST349"),
        where(_MCORE, where(r"num_attention_heads: \d", value("model_parallel", "7", "11"))),
    ),
    Form(
        "fewer micro-batches than stages",
        ("MST310",),
        both(value("micro_batch_num", "2"), value("pipeline_stage", "8")),
    ),
    # With swap on such a list names layers, each of them 40 times over.
    Form(
        "recompute of more stages",
        ("MST401", "MST426"),
        value("recompute", f"[{', '.join(40 * '1')}]", of="True|False"),
    ),
    Form(
        "recompute below zero", ("MST402", "MST409", "MST425"), value("recompute", "[-1]", "[-2, -1]", of="True|False")
    ),
    Form("data of another length", ("MST350",), where(_LENGTHS, where(_MCORE, value("seq_length", "512", "777")))),
    Form(
        "no batch at all",
        ("MST537",),
        words(r"(?m)^(runner_config:\n(?: +.*\n)*? +batch_size: )\d+", r"\g<1>0", r"\g<1>-1"),
    ),
    Form("a switch in words", ("MST212", "MST213"), value("use_seq_parallel", "'yes'", '"True"')),
    Form("a number that is a text", ("MST102",), value("learning_rate", "1e-6", "3e5")),
    Form("warm-up of more than all steps", ("MST541",), value("warmup_ratio", "1.5", "-0.5")),
    Form(
        "swap on a GPU",
        ("MST437", "MST533", "MST405"),
        both(value("device_target", '"GPU"'), end("swap_config: {swap: True, default_prefetch: 1}")),
    ),
)
# MindFormers' dynamic graph (2.1).
DYNAMIC = (
    Form("a key of a section", _MISSPELT, misspelt("local_batch_size", "pipeline_parallel", "global_batch_size")),
    Form("a key of the model", _MISSPELT, misspelt("num_hidden_layers", "intermediate_size")),
    Form("an optimizer", ("MST764",), words(r"(?m)^(optimizer:\n(?:\s*#.*\n)*\s+type: )\w+", r"\1AdamX")),
    Form("a schedule", ("MST765",), words(r"(?m)^(lr_scheduler:\n(?:\s*#.*\n)*\s+type: )\w+", r"\1CosineX")),
    Form("a data type", ("MST781",), value("(?:params|compute)_dtype", '"flaot32"', "half")),
    Form("stages beyond layers", ("MST730", "MST746", "MST747"), value("pipeline_parallel", "99")),
    Form(
        "a method of context parallelism",
        ("MST725",),
        both(value("context_parallel", "2"), value("context_parallel_method", "ringg", "ulyses")),
    ),
    Form(
        "a schedule of the pipeline",
        ("MST731",),
        both(value("pipeline_parallel", "2"), value("pipeline_parallel_schedule", '"2f2b"', "gpip")),
    ),
    Form(
        "a batch that does not divide",
        ("MST723", "MST774", "MST775"),
        both(value("local_batch_size", "3"), value("global_batch_size", "8")),
    ),
    Form(
        "checkpoints every 0 steps",
        ("MST780",),
        both(value("enable_save", "True"), value("save_interleaved_steps", "0")),
    ),
    Form("a type of value", ("MST705",), value("steps", '"ten"', "[10]")),
    Form("data of another length", ("MST782",), where(_LENGTHS, value("seq_length", "512"))),
    Form("a mode of recompute", ("MST709",), end("recompute: {mode: fulll, full_recompute_layer: [0]}")),
    Form("no layers of recompute", ("MST710",), end("recompute: {mode: full}")),
    Form(
        "a layer that there is not",
        ("MST711", "MST746", "MST748"),
        end("recompute: {mode: full, full_recompute_layer: [999]}"),
    ),
)
# MindSpeed-Core-MS r0.1.0.
CORE = (
    Form("a key that is misspelt", _MISSPELT, misspelt("tensor_model_parallel_size", "pipeline_model_parallel_size")),
    Form("a number that is a text", ("MST102",), value("eps", "1e-8")),
    Form("a key that stands twice", ("MST101",), twice("num_layers", "hidden_size", "micro_batch_num")),
    Form("layers that are not the model's", ("MST617",), where(r"num_layer_list", value("num_layers", "41", "39"))),
    Form(
        "heads that TP cannot split",
        ("MST629",),
        both(value("tensor_model_parallel_size", "3"), value("sequence_parallel", "False")),
    ),
    Form("a data type", ("MST612",), value("compute_dtype", "float61", "bf61")),
    Form("an optimizer", ("MST691",), value("optimizer_type", "mint.AdamX")),
)
_ARGUMENTS = r"pretrain_gpt\.py|posttrain_gpt\.py"
# MindSpeed-LLM's launch scripts.
SCRIPTS = (
    Form(
        "an argument that is misspelt",
        ("MST150",),
        words(r"--(num-layer|hidden-siz|global-batch-siz)(s|e)(?= )", r"--\1\2\2"),
    ),
    Form("a value that is none of the choices", ("MST153",), words(r"(--position-embedding-type) \w+", r"\1 ropes")),
    Form("a number in words", ("MST152",), words(r"(--num-layers) \d+", r"\1 many", r"\1 32.5")),
    Form("a value that is missing", ("MST151",), words(r"(--norm-epsilon) [\d.e-]+", r"\1")),
    Form(
        "heads that TP cannot split",
        ("MST157", "MST178"),
        where(r"(?m)^TP=[248]\b", words(r"(--num-attention-heads) \d+", r"\1 37")),
    ),
    Form(
        "layers that no stages hold",
        ("MST159", "MST170"),
        where(r"(?m)^PP=[248]\b", words(r"(--num-layers) \d+", r"\1 37")),
    ),
    Form("processes of half a TP", ("MST156", "MST157", "MST183"), words(r"(?m)^TP=\d+", "TP=3", "TP=5")),
    Form(
        "a batch that does not fit",
        ("MST158",),
        both(words(r"(?m)^MBS=\d+", "MBS=3", "MBS=7"), words(r"(?m)^GBS=\d+", "GBS=64", "GBS=128")),
    ),
    Form("two precisions", ("MST167",), words(r"--bf16(?=\s)", "--bf16 --fp16")),
    Form("a learning rate below its minimum", ("MST163",), words(r"--min-lr [\d.e-]+", "--min-lr 1.0")),
    Form("a sequence beyond the positions", ("MST162",), words(r"(--max-position-embeddings) \S+", r"\1 128")),
    Form(
        "recomputation without its method",
        ("MST164",),
        where(r"\A(?![\s\S]*--recompute-)", words(r"--bf16(?=\s)", "--bf16 --recompute-granularity full")),
    ),
    Form("a variable that is misspelt", ("MST179", "MST180"), words(r"\$\{?SEQ_LENGTH\}?", "$SEQ_LENTGH")),
    Form("a variable with a blank", ("MST179", "MST180", "MST840"), words(r"(?m)^TP=", "TP = ")),
    Form("a quotation mark that is never closed", ("MST840",), words(r'(?m)^GPT_ARGS="', "GPT_ARGS='")),
    Form(
        "connections of another number",
        ("MST169",),
        where(r"(?m)^TP=[248]", words(r"CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_MAX_CONNECTIONS=8")),
    ),
    Form("an argument twice", ("MST154",), words(r"(--lr-decay-style) (\w+)", r"\1 inverse-square-root \1 \2")),
    Form("groups of queries", ("MST157", "MST178"), words(r"(--num-query-groups) \d+", r"\1 7")),
    Form("a size of zero", ("MST185",), words(r"(?m)^(TP|PP|MBS)=\d+", r"\1=0")),
    Form("a share that is none", ("MST185",), words(r"(--adam-beta1) \S+", r"\1 1.9")),
    Form("iterations and samples", ("MST186",), words(r"(--train-iters \S+)", r"\1 --train-samples 1000")),
    Form("two lengths of a warm-up", ("MST186",), words(r"(--lr-warmup-fraction \S+)", r"\1 --lr-warmup-iters 100")),
    Form(
        "groups of queries without their switch",
        ("MST187",),
        where(r"--num-query-groups \d", words(r"--group-query-attention ?\\?\n?", "")),
    ),
    Form(
        "an option of the launcher",
        ("MST188",),
        words(r"--(worker_num|nproc_per_node)\b", r"--\1s", r"--n\1"),
    ),
    Form(
        "a machine that there is not",
        ("MST189",),
        where(r"(?m)^NNODES=1\b(?![\s\S]*\bmsrun\b)", words(r"(?m)^NODE_RANK=0", "NODE_RANK=3")),
    ),
    Form("a port", ("MST190",), words(r"(?m)^MASTER_PORT=\d+", "MASTER_PORT=70000")),
    Form(
        "a command that ends too soon",
        ("MST191",),
        words(r"(?m)^([ \t]*\$\w+_ARGS) \\\n(?=[ \t]*--)", r"\1\n", r"\1 \\ \n"),
    ),
    Form(
        "an export with a blank",
        ("MST192",),
        words(r"export CUDA_DEVICE_MAX_CONNECTIONS=1", "export CUDA_DEVICE_MAX_CONNECTIONS = 1"),
    ),
    Form(
        "a share of parameters that nothing gathers",
        ("MST193",),
        where(
            r"\A(?![\s\S]*--(?:use-distributed-optimizer|overlap-param-gather))",
            words(r"--bf16(?=\s)", "--bf16 --overlap-param-gather"),
        ),
    ),
    Form("two numbers for one", ("MST151",), words(r"(?m)^TP=(\d+)", r'TP="\1 4"')),
    Form("one dash", ("MST150",), words(r"(?m)--data-path", "-data-path")),
)
_LOOP = "for step in range(10000):\n    loss = train_step(step)\n    "
_STEP = "import mindspore\nfrom mindspore import nn, ops, value_and_grad\n{0}\ngrad_fn = value_and_grad(forward)\n\ndef train_step(x):\n    loss, grads = grad_fn(x)\n    return loss\n\n"
# Programs with MindSpore (2.9).
PROGRAMS = (
    Form("a setting that is taken once", ("MST904", "MST804"), end("import os\nos.environ['MS_ALLOC_CONF'] = 'enable_vmm:True'\nos.putenv('MS_ALLOC_CONF', 'memory_tracker:False')")),
    Form("a setting that there is not", ("MST802",), end("import os\nos.environ['MS_ALLOC_CONF'] = 'enable_vm:True'")),
    Form("a setting without its colon", ("MST801", "MST906"), end("import os\nos.environ['MS_ALLOC_CONF'] = 'enable_vmm=True'")),
    Form("a simulation", ("MST907", "MST809", "MST810"), end("import os\nos.environ['MS_SIMULATION_LEVEL'] = '3'")),
    Form("a level that is refused", ("MST934",), end("import mindspore\nmindspore.set_context(memory_optimize_level='O3')", "import mindspore as m\nm.set_context(**{'memory_optimize_level': 'O3'})")),
    Form("a mode that is refused", ("MST934",), end("import mindspore\nmindspore.set_context(mode=2)")),
    Form("a key that is refused", ("MST925", "MST933"), end("import mindspore\nmindspore.set_context(precision_mode='force_fp16')")),
    Form("determinism that is refused", ("MST903", "MST934"), end("import mindspore\nmindspore.set_deterministic('ON')")),
    Form("a wait in every step", ("MST913",), end(_STEP.format("") + _LOOP + "print(loss.asnumpy())", _STEP.format("") + _LOOP + "mindspore.runtime.synchronize()")),
    Form("a list that grows", ("MST931",), end(_STEP.format("losses = []") + _LOOP + "losses.append(loss)")),
    Form("a tensor in a text", ("MST914",), end(_STEP.format("") + _LOOP + "print(f'{loss}')")),
    Form("Python's sum of a tensor", ("MST910",), end("from mindspore import ops\ntotal_of = sum(ops.ones((9, 9)))")),
    Form("contiguous twice", ("MST911",), end("def twice_in_one_piece(x):\n    return x.contiguous().contiguous()")),
)  # fmt: skip
