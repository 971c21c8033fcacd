"""Texts of ``ms-tune dryrun``."""

from ms_tune.texts import Text

TEXTS = {
    "dryrun.summary": Text(
        "simulate the training with the real MindSpore: does it fit?", "用真实的 MindSpore 模拟训练：显存放得下吗？"
    ),
}
