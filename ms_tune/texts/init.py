"""Texts of ``ms-tune init``."""

from ms_tune.texts import Text

TEXTS = {
    "init.summary": Text("start from a config that lints clean", "从一份检查无误的配置开始"),
    "init.description": Text(
        "Copies a training config that lints clean, with a comment at every line that matters.",
        "复制一份通过检查的训练配置，关键的每一行都有注释。",
    ),
    "init.examples": Text(
        "examples:\n"
        "  ms-tune init --list                    what there is\n"
        "  ms-tune init llama2_7b                 write llama2_7b.yaml here\n"
        "  ms-tune init llama2_7b my/train.yaml   write it there",
        "示例：\n"
        "  ms-tune init --list                    查看可用模板\n"
        "  ms-tune init llama2_7b                 在当前目录写入 llama2_7b.yaml\n"
        "  ms-tune init llama2_7b my/train.yaml   写到指定位置",
    ),
    "init.help.name": Text("the template", "模板名称"),
    "init.help.destination": Text("where to write it (default: NAME.yaml)", "写入位置（默认为 名称.yaml）"),
    "init.help.list": Text("list the templates", "列出模板"),
    "init.help.force": Text("overwrite a file that is there", "覆盖已存在的文件"),
    "init.which": Text("which template? name one, or use --list", "请指定模板，或使用 --list 查看"),
    "init.unknown": Text("there is no template '{name}'", "没有名为“{name}”的模板"),
    "init.unknown.hint": Text("'ms-tune init --list' lists them", "运行 'ms-tune init --list' 查看全部模板"),
    "init.exists": Text("{file} is there already", "{file} 已经存在"),
    "init.exists.hint": Text("name another place, or use --force", "请换一个位置，或使用 --force"),
    "init.written": Text(
        "{file} written; check it with: ms-tune lint {file}", "已写入 {file}；检查命令：ms-tune lint {file}"
    ),
}
