"""Texts of ``ms-tune normalize-recompute``."""

from ms_tune.texts import Text

TEXTS = {
    "normalize.summary": Text(
        "show what each layer will recompute, exactly as the framework does it", "按框架的真实规则展示每一层的重计算"
    ),
}
