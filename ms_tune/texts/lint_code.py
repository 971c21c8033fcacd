"""Texts about the files beside configs that ``ms-tune lint`` looks at: Python code and environment settings."""

from ms_tune.texts import Text

TEXTS = {
    "lint_code.not-python": Text("is not valid Python", "不是合法的 Python 代码"),
}
