"""Texts of ``ms-tune schema``."""

from ms_tune.texts import Text

TEXTS = {
    "schema.summary": Text("print a JSON Schema of the configs, for editors", "输出配置的 JSON Schema，供编辑器使用"),
    "schema.description": Text(
        "Prints a JSON Schema (draft-07) of a dialect's configs: completion, help in English and Chinese, and the values\n"
        "that the framework refuses. Unknown keys are fine for it; finding those is what 'ms-tune lint' is for.",
        "输出某种配置写法的 JSON Schema（draft-07）：提供补全、中英文说明以及框架拒绝的取值。\n未知的键不会报错，由 'ms-tune lint' 负责检查。",
    ),
    "schema.examples": Text(
        "examples:\n"
        "  ms-tune schema --dialect mindformers > mindformers.schema.json\n"
        "  ms-tune schema --install pretrain.yaml     write it beside the config, and tell the editor",
        "示例：\n"
        "  ms-tune schema --dialect mindformers > mindformers.schema.json\n"
        "  ms-tune schema --install pretrain.yaml     写到配置旁边，并告知编辑器",
    ),
    "schema.help.dialect": Text(
        "which configs (with --install: recognised by the config's keys)", "哪种配置写法（使用 --install 时按键名识别）"
    ),
    "schema.help.install": Text(
        "add the editor modeline (yaml-language-server) to this config, with a relative path",
        "在该配置中加入编辑器识别行（yaml-language-server），使用相对路径",
    ),
    "schema.help.output": Text(
        "where to write the schema (with --install: .ms-tune/DIALECT.schema.json beside the config)",
        "schema 的写入位置（使用 --install 时默认为配置旁的 .ms-tune/写法.schema.json）",
    ),
    "schema.which": Text(
        "which configs? name --dialect, or use --install FILE", "请用 --dialect 指定写法，或使用 --install 文件"
    ),
    "schema.written": Text("written to {file}", "已写入 {file}"),
    "schema.installed": Text(
        "schema written to {file}; {config} points to it", "schema 已写入 {file}，{config} 已指向它"
    ),
}
