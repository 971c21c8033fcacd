"""The functions of ``mindspore.ops`` and cells of ``mindspore.nn`` that ``mindspore.mint`` has, too, with one meaning.

Compared by signature and by running both in MindSpore 2.10. Only rewrites that keep the result stand here: those that
need nothing but the new name, and those that need keywords renamed (``axis`` to ``dim``, ``keep_dims`` to ``keepdim``).
``gather``, ``transpose``, ``std``, ``max``, ``flatten`` and many others mean something else in mint and are left out.
"""

from __future__ import annotations

_SAME_OPS = (
    "acos acosh add addbmm addmm addmv arange arccos arccosh arcsin arcsinh arctan arctan2 argmax asin "
    "asinh atan atan2 bincount bitwise_and bitwise_or bitwise_xor broadcast_to cdist clamp div dot eq "
    "exp2 float_power floor_divide fmod full full_like greater_equal inverse isfinite isneginf lerp "
    "linspace log10 log2 logaddexp logaddexp2 logsumexp mm mul ones_like outer pow remainder sub sum "
    "swapaxes trace tril unbind unique_consecutive unsqueeze where xlogy zeros_like "
)
_FUNCTIONAL_OPS = (
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d cross_entropy "
    "dropout2d fold interpolate l1_loss mse_loss pixel_shuffle silu softplus unfold "
)
_SAME_NN = (
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d BCELoss ConstantPad1d "
    "ConstantPad2d ConstantPad3d CrossEntropyLoss Dropout2d ELU KLDivLoss L1Loss MSELoss MaxUnpool2d Mish "
    "NLLLoss PixelShuffle ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d "
    "ReplicationPad2d ReplicationPad3d SiLU Threshold Upsample ZeroPad2d "
)
_OTHER = {
    "nn.SeLU": "mint.nn.SELU",
    "ops.not_equal": "mint.ne",
}

_RENAMED_OPS = "all argsort bmm cat chunk concat cummax cummin cumsum frac mean narrow split sqrt stack "
_RENAMED_FUNCTIONAL_OPS = "elu glu logsigmoid mish relu6 selu "
_RENAMED_OTHER = {
    "ops.expand_dims": "mint.unsqueeze",
}


def _table(same: str, functional: str, cells: str, other: dict[str, str]) -> dict[str, str]:
    return {
        **{f"mindspore.ops.{name}": f"mint.{name}" for name in same.split()},
        **{f"mindspore.ops.{name}": f"mint.nn.functional.{name}" for name in functional.split()},
        **{f"mindspore.nn.{name}": f"mint.nn.{name}" for name in cells.split()},
        **{f"mindspore.{name}": new for name, new in other.items()},
    }


# What parameters are called in mint (MindSpore 2.9): those of any function, and those of WITH_KEYWORDS.
AXES = {"axis": "dim", "keep_dims": "keepdim"}
PARAMETERS = {**AXES, "x": "input", "input_x": "input"}

# Full name of the old function to the new one.
DROP_IN = _table(_SAME_OPS, _FUNCTIONAL_OPS, _SAME_NN, _OTHER)
WITH_KEYWORDS = _table(_RENAMED_OPS, _RENAMED_FUNCTIONAL_OPS, "", _RENAMED_OTHER)
