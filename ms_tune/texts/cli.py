"""Texts of the command line itself: help, usage errors, notices that every command shares."""

from ms_tune.texts import Text

TEXTS = {
    "cli.description": Text(
        "Checks a MindSpore large-model training config, shows what each layer will do, and tells whether it fits: "
        "without an NPU, without CANN.",
        "在没有 NPU、没有 CANN 的机器上检查 MindSpore 大模型训练配置，展示每一层的实际行为，并判断显存是否放得下。",
    ),
    "cli.examples": Text(
        "examples:\n"
        "  ms-tune lint config.yaml                  what is wrong, and how to fix it\n"
        "  ms-tune normalize-recompute config.yaml   what each layer will really recompute\n"
        "  ms-tune dryrun --layers 4 config.yaml     does it fit? the real MindSpore, simulated\n"
        "  ms-tune dryrun --check                    what dryrun finds on this machine",
        "示例：\n"
        "  ms-tune lint config.yaml                  哪里有问题、怎么改\n"
        "  ms-tune normalize-recompute config.yaml   每一层实际做哪些重计算\n"
        "  ms-tune dryrun --layers 4 config.yaml     显存放得下吗？用真实的 MindSpore 模拟运行\n"
        "  ms-tune dryrun --check                    查看本机上 dryrun 可用的环境",
    ),
    "cli.help.help": Text("show this help and exit", "显示本帮助并退出"),
    "cli.help.version": Text("print the version and exit", "打印版本号并退出"),
    "cli.help.lang": Text(
        "language of all texts: en or zh (default: from LC_ALL, LC_MESSAGES, LANG)",
        "界面语言：en 或 zh（默认取自 LC_ALL、LC_MESSAGES、LANG）",
    ),
    "cli.help.json": Text("print one JSON object on standard output", "在标准输出打印一个 JSON 对象"),
    "cli.help.command": Text(
        "the command; 'ms-tune COMMAND --help' tells more", "要执行的命令；'ms-tune 命令 --help' 查看详情"
    ),
    "cli.title.options": Text("options", "选项"),
    "cli.title.commands": Text("commands", "命令"),
    "cli.title.arguments": Text("arguments", "参数"),
    "cli.title.usage": Text("usage: ", "用法："),
    "cli.error": Text("error", "错误"),
    "cli.hint": Text("hint", "提示"),
    "cli.warning": Text("warning", "警告"),
    "cli.usage.required": Text("missing: {detail}", "缺少参数：{detail}"),
    "cli.usage.unrecognized": Text("unknown argument: {detail}", "无法识别的参数：{detail}"),
    "cli.usage.choice": Text(
        "{argument}: '{value}' is not one of {choices}", "{argument}：'{value}' 不在可选值 {choices} 之中"
    ),
    "cli.usage.expected-one": Text("{argument}: a value is missing", "{argument}：缺少取值"),
    "cli.usage.value": Text("{argument}: {detail}", "{argument}：{detail}"),
    "cli.usage.not-allowed": Text(
        "{argument}: cannot be used together with {other}", "{argument}：不能与 {other} 同时使用"
    ),
    "cli.usage.other": Text("{detail}", "{detail}"),
    "cli.usage.hint": Text("'{program} --help' shows what it takes", "运行 '{program} --help' 查看用法"),
    "cli.usage.size": Text(
        "'{value}' is not a size; write 64GB, 58GiB or 4096MB", "'{value}' 不是有效的大小；请写成 64GB、58GiB 或 4096MB"
    ),
    "cli.usage.positive-int": Text("'{value}' is not a whole number above zero", "'{value}' 不是大于零的整数"),
    "cli.usage.natural": Text("'{value}' is not a whole number from zero up", "'{value}' 不是大于等于零的整数"),
    "cli.interrupted": Text("interrupted", "已中断"),
    "cli.internal": Text(
        "ms-tune itself failed ({error}); this is a defect of ms-tune, not of your config. Please report the lines above.",
        "ms-tune 自身出错（{error}）；这是 ms-tune 的缺陷，与您的配置无关。请反馈以上内容。",
    ),
}
