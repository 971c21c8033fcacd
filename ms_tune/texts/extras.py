"""Texts of missing optional packages."""

from __future__ import annotations

from ms_tune.texts import Text

TEXTS = {
    "extras.missing": Text(
        "'{command}' needs {package}, which is not installed", "'{command}' 需要 {package}，但当前环境未安装"
    ),
    "extras.missing.hint": Text("run: {line}", "请运行：{line}"),
    "extras.missing.hint-checkout": Text(
        "in a checkout of ms-tune, run: {line}", "请在 ms-tune 的源码目录中运行：{line}"
    ),
    "extras.no-wheel": Text(
        "'{command}' needs MindSpore, which has no wheel for this Python ({here}), only for Python {first} to {last}",
        "'{command}' 需要 MindSpore，但 MindSpore 没有适用于当前 Python（{here}）的 wheel，仅支持 Python {first} 至 {last}",
    ),
    "extras.no-wheel.hint": Text(
        "make an environment with one of those for it: {python} -m venv dryrun && "
        "dryrun/bin/python -m pip install {what}; all other commands work with this Python",
        "请用其中一个版本另建环境：{python} -m venv dryrun && dryrun/bin/python -m pip install {what}；"
        "其余命令可在当前 Python 下使用",
    ),
}
