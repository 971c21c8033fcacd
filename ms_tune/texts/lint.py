"""Texts of ``ms-tune lint``. What a check says is in its checklist."""

from ms_tune.texts import Text

TEXTS = {
    "lint.summary": Text("check a config against the tuning checklist", "按调优检查清单检查配置"),
    "lint.description": Text(
        "Checks training configs of MindFormers and MindSpeed-Core-MS: settings that stop the run, that are\n"
        "silently ignored, or that slow it down.",
        "检查 MindFormers 与 MindSpeed-Core-MS 的训练配置：会导致训练中断的、被静默忽略的、拖慢训练的设置。",
    ),
    "lint.examples": Text(
        "examples:\n"
        "  ms-tune lint pretrain.yaml                      show what is wrong\n"
        "  ms-tune lint --fail-on error configs/*.yaml     exit code 1 for errors only\n"
        "  ms-tune lint --framework-version 1.7 old.yaml   check for an older release\n"
        "  ms-tune lint --json pretrain.yaml               for scripts and editors\n"
        "\n"
        "exit codes:\n"
        "  0  nothing found that --fail-on asks for\n"
        "  1  something found\n"
        "  2  a file cannot be read, or is no training config",
        "示例：\n"
        "  ms-tune lint pretrain.yaml                      显示配置中的问题\n"
        "  ms-tune lint --fail-on error configs/*.yaml     只有错误才返回退出码 1\n"
        "  ms-tune lint --framework-version 1.7 old.yaml   按较早的版本检查\n"
        "  ms-tune lint --json pretrain.yaml               供脚本和编辑器使用\n"
        "\n"
        "退出码：\n"
        "  0  没有达到 --fail-on 级别的问题\n"
        "  1  发现问题\n"
        "  2  文件无法读取，或不是训练配置",
    ),
    "lint.help.file": Text("a config (YAML)", "配置文件（YAML）"),
    "lint.help.dialect": Text(
        "what the configs are written for (default: recognised by their keys)", "配置所属的框架写法（默认按键名识别）"
    ),
    "lint.help.version": Text(
        "the framework version to check for (default: {versions})", "按哪个框架版本检查（默认：{versions}）"
    ),
    "lint.help.checklist": Text(
        "a checklist of your own, on top of the built-in ones (may be repeated)",
        "自定义检查清单，在内置清单之外追加（可重复指定）",
    ),
    "lint.help.fail-on": Text(
        "the least severity that gives exit code 1: error, warning or info (default: warning)",
        "返回退出码 1 的最低级别：error、warning 或 info（默认 warning）",
    ),
    "lint.version": Text(
        "'{value}' is not a version; write for example 1.9", "'{value}' 不是版本号；请写成 1.9 这样的形式"
    ),
    "lint.not-a-config": Text(
        "does not look like a training config of MindFormers or MindSpeed-Core-MS",
        "不像 MindFormers 或 MindSpeed-Core-MS 的训练配置",
    ),
    "lint.ambiguous": Text(
        "has keys of several frameworks; cannot tell which one it is for", "同时包含多个框架的键，无法判断属于哪个框架"
    ),
    "lint.dialect-hint": Text(
        "if it is one, name its dialect: --dialect {dialects}", "如果确实是，请指定写法：--dialect {dialects}"
    ),
    "lint.unsure": Text(
        "{file}: taken for '{dialect}'; use --dialect if it is something else",
        "{file}：按 '{dialect}' 处理；如不正确请用 --dialect 指定",
    ),
    "lint.base-config": Text(
        "{file}: base_config is not followed; checks that need the whole config are left out",
        "{file}：不会读取 base_config 引用的文件；需要完整配置的检查已跳过",
    ),
    "lint.checklist.invalid": Text("is not a valid checklist: {problem}", "不是合法的检查清单：{problem}"),
    "lint.internal-error": Text(
        "the check {id} ({name}) itself failed ({error}); please report this",
        "检查项 {id}（{name}）自身出错（{error}）；请反馈此问题",
    ),
    "lint.first": Text("first written here", "第一次出现在此处"),
    "lint.definition": Text("the value comes from here", "取值来自此处"),
    "lint.severity.error": Text("error", "错误"),
    "lint.severity.warning": Text("warning", "警告"),
    "lint.severity.info": Text("info", "提示"),
    "lint.help-label": Text("help", "建议"),
    "lint.total": Text(
        "errors: {errors}, warnings: {warnings}, infos: {infos}, files: {files}",
        "{files} 个文件：{errors} 个错误，{warnings} 个警告，{infos} 个提示",
    ),
    "lint.clean": Text("no findings, files: {files}", "{files} 个文件均未发现问题"),
    "lint.rules": Text("checked for {framework} {version}", "按 {framework} {version} 检查"),
    "lint.unreadable": Text("files not checked: {count}", "{count} 个文件未能检查"),
}
