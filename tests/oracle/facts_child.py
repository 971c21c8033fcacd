"""Read the facts of one release of MindFormers about models from its real classes, in a separate process.

Run as a module with the wheel's path; writes one JSON text. With a second argument it then reads model sections, one
per line, and answers each with the fields that ``TransformerConfig`` gets for it, or why it is refused. The modules
with the classes of models' settings, their conversion and ``TransformerConfig`` are MindFormers' own, imported from the
wheel; everything else is a stand-in (:mod:`tests.oracle.framework_child_stand_ins`), so MindSpore is not needed.
"""

# ruff: noqa: ANN401 - it handles the framework's own objects

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
import sys
import types
import zipfile
from typing import Any

from tests.oracle import framework_child_stand_ins as stand_ins

_CONFIGS = re.compile(r"mindformers/models/(\w+)/(configuration_\w+|config_converter_\w+|\w+_config)\.py")
_PLAIN = (str, int, float, bool, type(None))
# Settings of every model besides the model's own.
_AROUND = frozenset(
    {
        *("parallel_config", "moe_config", "mindformers_version", "_name_or_path", "_commit_hash", "architectures"),
        *("checkpoint_name_or_path", "pretrained_model_dir", "tokenizer_class", "quantization", "name_or_path"),
        *("is_encoder_decoder", "is_sample_acceleration"),
    }
)


@dataclasses.dataclass
class RegisteredClass:
    """A class of settings with the names under which it is registered."""

    kind: Any
    legacy: bool
    names: tuple[str, ...]


class Recorder:
    """A replacement of ``MindFormerRegister`` that only records."""

    found: list[RegisteredClass] = []  # noqa: RUF012 - one for the process

    @classmethod
    def register(
        cls, module_type: str = "", alias: str | None = None, *, legacy: bool = True, search_names: Any = None
    ) -> Any:
        names = (search_names,) if isinstance(search_names, str) else tuple(search_names or ())

        def wrapper(kind: Any) -> Any:
            if module_type == "config":
                cls.found.append(RegisteredClass(kind, legacy, (*names, alias or kind.__name__)))
            return kind

        return wrapper


def load(wheel: str) -> tuple[Any, Any]:
    """Put stand-ins in place and import what knows settings; gives the modules of the general ones."""
    with zipfile.ZipFile(wheel) as archive:
        modules = [name[:-3].replace("/", ".") for name in archive.namelist() if _CONFIGS.fullmatch(name)]
    stand_ins.REAL |= {*modules}
    stand_ins.install(wheel)
    for name in ("mindformers.tools.register", "mindformers.tools.register.register"):
        module: Any = importlib.import_module(name)
        module.MindFormerRegister = Recorder
        module.MindFormerModuleType = types.SimpleNamespace(CONFIG="config")
    general: Any = importlib.import_module("mindformers.parallel_core.transformer_config")
    common: Any = importlib.import_module("mindformers.parallel_core.transformer_config_utils")
    for name in modules:
        importlib.import_module(name)
    return general, common


def plain(value: Any) -> bool:
    """Return whether JSON can represent a value."""
    if isinstance(value, (list, tuple)):
        return all(map(plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    return isinstance(value, _PLAIN)


def defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass's fields; required fields and values that JSON cannot represent are left out."""
    found = {}
    for field in dataclasses.fields(kind):
        value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if value is not dataclasses.MISSING and plain(value):
            found[field.name] = value
    return found


def scattered(mapping: dict[Any, Any]) -> dict[str, list[str]]:
    """Return a table of keys with their field and, if any, the function that converts their value."""
    found = {}
    for keys, target in mapping.items():
        for key in keys if isinstance(keys, tuple) else (keys,):
            field, *function = (target,) if isinstance(target, str) else target
            found[key] = [field, *(one.__name__ for one in function)]
    return found


def other(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 8
    return f"{value}x" if isinstance(value, str) else 8


def settings(kind: Any, **given: Any) -> dict[str, Any]:
    """Return the settings of an instance."""
    return {key: value for key, value in vars(kind(**given)).items() if key not in _AROUND}


def attempt(kind: Any, **given: Any) -> dict[str, Any]:
    """Return the settings of an instance after some of them are set; None if it refuses the values."""
    try:
        return settings(kind, **given)
    except Exception:  # noqa: BLE001 - whatever it is
        return {}


def depends(kind: Any, signature: dict[str, Any], base: dict[str, Any]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the replacements of null settings, and the settings that follow from others, found by trial."""
    fills: dict[str, str] = {}
    derived: dict[str, list[str]] = {}
    for name, default in signature.items():
        changed, empty = attempt(kind, **{name: other(default)}), attempt(kind, **{name: None})
        for key, value in changed.items():
            if key != name and base.get(key, value) != value and plain(value):
                derived.setdefault(key, []).append(name)
        filled = empty.get(name)
        if filled is None or not plain(filled):
            continue
        if default is None and filled == base.get(name):
            fills[name] = name  # null is the default, which the class has in its body
        for source, value in signature.items():
            if source != name and filled == base.get(source):
                again = attempt(kind, **{name: None, source: other(value)})
                if again and again.get(name) == again.get(source):
                    fills[name] = source
    return fills, derived


def thrown_away(kind: Any) -> set[str]:
    """Return the keys that the decorators of a class remove (``ignore_and_delete_parameter``)."""
    cells = [
        cell.cell_contents
        for function in (kind.__init__, getattr(kind.__init__, "__wrapped__", None))
        for cell in getattr(function, "__closure__", None) or ()
    ]
    lists = [one for one in cells if isinstance(one, list) and all(isinstance(item, str) for item in one)]
    return {item for one in lists for item in one}


def describe(found: RegisteredClass) -> dict[str, Any]:
    """Describe the defaults of a class, and how it converts its arguments."""
    kind = found.kind
    base = settings(kind)
    signature = {
        name: one.default
        for name, one in inspect.signature(kind.__init__).parameters.items()
        if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name not in ("self", *_AROUND) and plain(one.default)
    }
    fills, derived = depends(kind, signature, base)
    values = {key: value for key, value in base.items() if plain(value)}
    values |= {
        key: value
        for key, value in signature.items()
        if (key in base and key not in values) or fills.get(key, key) != key
    }
    return {
        "class": kind.__name__,
        "legacy": found.legacy,
        "names": list(found.names),
        "defaults": {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()},
        "ignored": sorted({*signature} - {*base} | thrown_away(kind)),
        "renamed": dict(kind.attribute_map),
        "fills": fills,
        "derived": {key: names for key, names in derived.items() if key in values and key not in fills},
    }


def read_layer_settings(text: str) -> dict[str, Any]:
    """Return the layer settings that a network's source fixes regardless of the config, by field.

    They are constants of ``get_gpt_layer_local_spec``; if it gets no experts, and no other function makes the layers,
    there are none.
    """
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    called = [(getattr(call.func, "id", ""), {one.arg: one.value for one in call.keywords}) for call in calls]
    made = [given for name, given in called if name == "get_gpt_layer_local_spec"]
    if len(made) != 1 or any(name == "get_gpt_decoder_block_spec" for name, _ in called):
        return {}
    (given,) = made
    found = {str(name): value.value for name, value in given.items() if isinstance(value, ast.Constant)}
    return found if "num_experts" in given else {**found, "num_moe_experts": None}


def networks(wheel: str) -> dict[str, dict[str, Any]]:
    """Return the network classes of each folder of models, with the modes that they train in.

    Also return whether attention is latent; whether the dynamic graph's network can build some of the layers only
    (``pynative/distributed/pipeline_parallel.py`` builds every stage with ``layer_start`` and ``layer_end``); whether
    it passes on ``tie_word_embeddings``; and the layer settings that its networks fix, by mode.
    """
    found: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            parts = name.split("/")
            if parts[:2] != ["mindformers", "models"] or len(parts) != 4 or not name.endswith(".py"):
                continue
            text = archive.read(name).decode()
            empty = {"architectures": [], "modes": [], "latent": False, "stages": False, "ties": True, "says": {}}
            folder = found.setdefault(parts[2], empty)
            modes = {"static": parts[3].endswith("_train.py"), "dynamic": parts[3].endswith("_pynative.py")}
            folder["modes"] += [mode for mode, there in modes.items() if there]
            folder["stages"] |= modes["dynamic"] and "layer_start" in text
            folder["ties"] &= not modes["dynamic"] or "tie_word_embeddings" in text
            folder["says"] |= {mode: read_layer_settings(text) for mode, there in modes.items() if there}
            folder["latent"] |= parts[3].startswith("modeling_") and "is_mla_model=True" in text
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef) and re.search("For(CausalLM|ConditionalGeneration)$", node.name):
                    marks = " ".join(map(ast.unparse, node.decorator_list))
                    if "MindFormerModuleType.MODELS" in marks and not node.name.startswith(("Training", "Inference")):
                        folder["architectures"].append(node.name)
    return found


def legacy_experts() -> dict[str, Any]:
    """Return the defaults of the section ``moe_config`` of a legacy model (``MoEConfig`` of the template)."""
    template: Any = importlib.import_module("mindformers.tools.register.template")
    kind = template.MoEConfig
    return {key: value for key, value in vars(kind).items() if not key.startswith("_") and plain(value)}


def models(wheel: str) -> dict[str, Any]:
    """Return all facts of a release about models."""
    general, common = load(wheel)
    dense, latent = defaults(general.TransformerConfig), defaults(general.MLATransformerConfig)
    white = {*common.DEFAULT_WHITE_KEY}
    mapping = scattered(common.COMMON_CONFIG_MAPPING)
    elsewhere = {mapping[key][0] for key in common.PARALLEL_CONFIG_KEY if key in mapping}
    transformer: Any = importlib.import_module("mindformers.modules.transformer.transformer")
    recompute = transformer.default_transformer_config.to_dict()["recompute"]
    elsewhere |= {mapping[key][0] for key in recompute if key in mapping}
    base = {key: rule for key, rule in mapping.items() if key not in white and rule[0] not in elsewhere}
    classes = {}
    folders = networks(wheel)
    for found in Recorder.found:
        folder = found.kind.__module__.split(".")[2]
        about = {**describe(found), **folders[folder]}
        about["modes"] = ["static"] if found.legacy else sorted({*about["modes"]})
        module = sys.modules[found.kind.__module__]
        converters = [one for name, one in vars(module).items() if name.endswith("ConfigConverter")]
        if converters:
            log = types.SimpleNamespace(add_error=print)
            final = converters[0]._get_final_mapping(log, about["latent"])
            # 1.9 has lists of rules here; if there are several, the first one renames.
            rules = scattered({key: rule[0] if isinstance(rule, list) else rule for key, rule in final.items()})
            several = {key: rule for key, rule in final.items() if isinstance(rule, list) and len(rule) > 1}
            about["twice"] = sorted(
                key for key, rule in several.items() if rule[0] == rule[1] and rule[0] not in elsewhere
            )
            about["aliases"] = {key: rule for key, rule in rules.items() if rule != [key] and rule[0] not in elsewhere}
        about.setdefault("twice", [])
        classes[found.names[0] if not found.legacy else found.kind.__name__] = about
    return {
        "fields": dense,
        "latent": {name: value for name, value in latent.items() if name not in dense or dense[name] != value},
        "aliases": base,
        "white": sorted(white),
        "elsewhere": sorted(elsewhere),
        "experts": legacy_experts(),
        "classes": classes,
    }


def answer(section: dict[str, Any], common: Any) -> dict[str, Any]:
    """Return the arguments of ``TransformerConfig`` for a section, or why it is refused."""
    (kind,) = (one.kind for one in Recorder.found if not one.legacy and section["model_type"] in one.names)
    latent = "is_mla_model=True" in "".join(_sources[kind.__module__.split(".")[2]])
    try:
        model = kind(**section)
        if hasattr(common, "ERROR_LOG"):
            common.ERROR_LOG.clear()
        if hasattr(model, "convert_to_transformer_config"):
            core = model.convert_to_transformer_config(is_mla_model=latent)
        else:
            core = common.convert_to_transformer_config(model, is_mla_model=latent)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return {"refused": str(error)}
    values = {field.name: getattr(core, field.name) for field in dataclasses.fields(core)}
    return {name: value for name, value in values.items() if plain(value)}


_sources: dict[str, list[str]] = {}


def serve(wheel: str) -> None:
    """Answer section after section, without values that ``TransformerConfig`` computes itself."""
    general, common = load(wheel)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("mindformers/models/") and "/modeling_" in name:
                _sources.setdefault(name.split("/")[2], []).append(archive.read(name).decode())
    for kind in (general.TransformerConfig, general.MLATransformerConfig):
        kind.__post_init__ = lambda _self: None
    out, sys.stdout = sys.stdout, sys.stderr  # conversions print
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line), common)) + "\n")
        out.flush()


if __name__ == "__main__":
    if sys.argv[2:]:
        serve(sys.argv[1])
    else:
        json.dump(models(sys.argv[1]), sys.stdout)
