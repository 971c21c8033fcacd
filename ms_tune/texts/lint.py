"""Texts of ``ms-tune lint``."""

from ms_tune.texts import Text

TEXTS = {
    "lint.summary": Text("check a config against the tuning checklist", "按调优检查清单检查配置"),
}
