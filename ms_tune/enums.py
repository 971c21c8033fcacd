"""Define enums that several rooms share: dialects, kinds of layers, recomputation modes, memory categories."""

from __future__ import annotations

from enum import Enum


class Dialect(str, Enum):
    """A family of configs that one framework reads."""

    MINDFORMERS = "mindformers"
    MINDFORMERS_PYNATIVE = "mindformers-pynative"
    MINDSPEED_MS = "mindspeed-ms"
    MEGATRON = "megatron"  # arguments in launch scripts, no YAML
    MINDSPEED_MM = "mindspeed-mm"  # PyTorch on Ascend, like the next: checked, not simulated
    HYPER_PARALLEL = "hyper-parallel"


CHECKED_ONLY = (Dialect.MINDSPEED_MM, Dialect.HYPER_PARALLEL)  # their layers are not read
WITH_LAYERS = tuple(one for one in Dialect if one not in CHECKED_ONLY)
CHECKED_DIALECTS = tuple(one for one in Dialect if one is not Dialect.MEGATRON)
YAML_DIALECTS = tuple(one for one in CHECKED_DIALECTS if one is not Dialect.MINDSPEED_MM)  # with a table of keys


class RecomputeMode(str, Enum):
    """The strongest recomputation of a layer; in a plan also swap without recomputation."""

    NONE = "none"
    SELECT = "select"
    COMM = "comm"
    BOTH = "both"  # selected operators and communication, in a plan
    FULL = "full"
    SWAP = "swap"  # activations go to the host, in a plan

    @classmethod
    def strongest(cls, *, full: object = False, select: object = False, comm: object = False) -> RecomputeMode:
        """Return the strongest mode that is on; the frameworks do not combine modes."""
        return cls.FULL if full else cls.SELECT if select else cls.COMM if comm else cls.NONE


class LayerKind(str, Enum):
    """The kind of a layer, as far as the dialect's arguments determine it."""

    DENSE = "dense"
    EXPERTS = "experts"
    NOOP = "noop"  # does nothing: --noop-layers
    PREDICTION = "prediction"  # predicts further tokens
    UNKNOWN = "layer"  # cannot be distinguished from the others


class MemoryCategory(str, Enum):
    """The category of a memory block, in the order of all tables; the values are the names in JSON."""

    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer_state"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"  # allocated in the forward pass and alive in the backward pass
    TEMPORARIES = "temporaries"
    WORKSPACE = "workspace"
    COMMUNICATION = "communication"
    CONSTANTS = "constants"  # includes data copied from the host
    UNATTRIBUTED = "unattributed"


class ChangeKind(str, Enum):
    """The kind of a change to a config."""

    REMOVE_KEY = "remove-key"
    SET_VALUE = "set-value"
    RENAME_KEY = "rename-key"
    ADD_KEY = "add-key"


class BlockKind(str, Enum):
    """A coarse kind of memory, for comparing two programs that categorise differently; the values are the names in JSON."""

    KEPT = "kept"  # weights and optimizer state: float32 master weights count as either, depending on the program
    GRADIENTS = "gradients"
    PASSING = "passing"  # needed only for a time by the forward or backward pass
    OTHER = "other"


class SizeOrigin(str, Enum):
    """The origin of the sizes of a job's model, in the order in which they are searched."""

    CONFIG = "config"  # the config, or the defaults of the model's class
    OPTION = "model-config"  # the `config.json` that the user named
    FOLDER = "model-folder"  # the `config.json` of the folder that the config names
    ASSUMED = "assumed"  # a public model that the config names
    VOCABULARY = "assumed-vocabulary"  # the size of the vocabulary alone is that of a public model
    BOUNDS = "assumed-bounds"  # the size of the vocabulary alone is between those of public models
