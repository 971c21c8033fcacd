"""What several rooms call by one name: dialects, kinds of layers, what they recompute, what memory holds."""

from __future__ import annotations

from enum import Enum


class Dialect(str, Enum):
    """A family of configs read by one framework."""

    MINDFORMERS = "mindformers"
    MINDFORMERS_PYNATIVE = "mindformers-pynative"
    MINDSPEED_MS = "mindspeed-ms"
    MEGATRON = "megatron"  # arguments in launch scripts, and no YAML
    MINDSPEED_MM = "mindspeed-mm"  # PyTorch on Ascend: checked, not simulated


YAML_DIALECTS = tuple(one for one in Dialect if one not in (Dialect.MEGATRON, Dialect.MINDSPEED_MM))
CHECKED_DIALECTS = (*YAML_DIALECTS, Dialect.MINDSPEED_MM)  # those whose files can only be checked among them


class RecomputeMode(str, Enum):
    """What a layer does to keep less: the strongest kind of recompute that reaches it, or, in a plan, swap without recompute."""

    NONE = "none"
    SELECT = "select"
    COMM = "comm"
    BOTH = "both"  # selected operators and communication, in a plan
    FULL = "full"
    SWAP = "swap"  # activations go to the host, in a plan

    @classmethod
    def strongest(cls, *, full: object = False, select: object = False, comm: object = False) -> RecomputeMode:
        """The strongest kind of those that are on, as the frameworks have it: none with another one."""
        return cls.FULL if full else cls.SELECT if select else cls.COMM if comm else cls.NONE


class LayerKind(str, Enum):
    """What a layer is, where the dialect's arguments tell."""

    DENSE = "dense"
    EXPERTS = "experts"
    NOOP = "noop"  # does nothing: --noop-layers
    PREDICTION = "prediction"  # predicts further tokens
    UNKNOWN = "layer"  # nothing tells it from the others


class MemoryCategory(str, Enum):
    """What a block holds. The order is that of every table, the values are the names in JSON."""

    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer_state"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"  # allocated in the forward pass and alive in the backward pass
    TEMPORARIES = "temporaries"
    WORKSPACE = "workspace"
    COMMUNICATION = "communication"
    CONSTANTS = "constants"  # and what is copied from the host
    UNATTRIBUTED = "unattributed"


class ChangeKind(str, Enum):
    """What can be done to a config."""

    REMOVE_KEY = "remove-key"
    SET_VALUE = "set-value"
    RENAME_KEY = "rename-key"
    ADD_KEY = "add-key"


class BlockKind(str, Enum):
    """Contents between which two programs draw the line differently, taken together. The values are the names in JSON."""

    KEPT = "kept"  # weights and optimizer state: float32 masters are the one here, the other there
    GRADIENTS = "gradients"
    PASSING = "passing"  # what the passes keep or need for a while
    OTHER = "other"
