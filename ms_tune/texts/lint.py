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
        "  ms-tune lint configs                            every training config in a folder\n"
        "  ms-tune lint --diff pretrain.yaml               what --fix would change; --fix changes it\n"
        "  ms-tune lint --fail-on error --select MST4 .    exit code 1 for errors only, some checks only\n"
        "  ms-tune lint --framework-version 1.7 old.yaml   check for an older release\n"
        "  ms-tune lint --format sarif configs             for code scanning; --json for scripts\n"
        "  ms-tune rule negative-recompute                 why a check matters\n"
        "\n"
        "exit codes:\n"
        "  0  nothing found that --fail-on asks for\n"
        "  1  something found\n"
        "  2  a file cannot be read, or there is no training config",
        "示例：\n"
        "  ms-tune lint pretrain.yaml                      显示配置中的问题\n"
        "  ms-tune lint configs                            检查目录中的所有训练配置\n"
        "  ms-tune lint --diff pretrain.yaml               显示 --fix 将做的修改；--fix 执行修改\n"
        "  ms-tune lint --fail-on error --select MST4 .    只有错误才返回退出码 1，只执行部分检查\n"
        "  ms-tune lint --framework-version 1.7 old.yaml   按较早的版本检查\n"
        "  ms-tune lint --format sarif configs             供代码扫描平台使用；--json 供脚本使用\n"
        "  ms-tune rule negative-recompute                 解释某个检查项\n"
        "\n"
        "退出码：\n"
        "  0  没有达到 --fail-on 级别的问题\n"
        "  1  发现问题\n"
        "  2  文件无法读取，或没有训练配置",
    ),
    "lint.help.file": Text(
        "a config, environment settings (.env, .sh), training code (.py), a folder, a glob in quotes, or - for standard input",
        "配置文件、环境变量文件（.env、.sh）、训练代码（.py）、目录、加引号的通配符，或 -（标准输入）",
    ),
    "lint.help.env-from-process": Text(
        "check the environment variables of this process, too", "同时检查当前进程的环境变量"
    ),
    "lint.not-training-code": Text("does not import MindSpore", "没有导入 MindSpore"),
    "lint.not-an-environment": Text("sets no variable that MindSpore reads", "没有设置任何 MindSpore 读取的变量"),
    "lint.help.skip-unknown": Text(
        "leave out files that are no training configs, even if they are named (for hooks)",
        "跳过不是训练配置的文件，即使在命令行中指定（用于提交钩子）",
    ),
    "lint.help.fix": Text(
        "fix what can be fixed safely; --fix=unsafe fixes more, and may change what the run does",
        "自动修复可以安全修复的问题；--fix=unsafe 修复更多，但可能改变训练行为",
    ),
    "lint.help.diff": Text(
        "show what --fix (or --fix=unsafe) would change, and change nothing",
        "显示 --fix（或 --fix=unsafe）将做的修改，不写入文件",
    ),
    "lint.help.jobs": Text(
        "check with N processes (default: one, and every core for many files)",
        "使用 N 个进程检查（默认一个，文件很多时使用所有核）",
    ),
    "lint.help.select": Text(
        "make these checks only: ids, beginnings of ids (MST4), names, categories, or all",
        "只执行这些检查：编号、编号前缀（MST4）、名称、类别或 all",
    ),
    "lint.help.ignore": Text("do not make these checks", "不执行这些检查"),
    "lint.help.profile": Text(
        "what the run is for: performance (default), debug-memory or reproducible",
        "训练的目的：performance（默认）、debug-memory 或 reproducible",
    ),
    "lint.help.config": Text(
        "read settings from this file (default: ms-tune.toml or pyproject.toml, found upwards)",
        "从该文件读取设置（默认向上查找 ms-tune.toml 或 pyproject.toml）",
    ),
    "lint.help.no-config": Text("read no settings file", "不读取设置文件"),
    "lint.help.baseline": Text("do not report the findings that this file lists", "不报告该基线文件中已列出的问题"),
    "lint.help.write-baseline": Text("write all findings into the baseline file", "把全部问题写入基线文件"),
    "lint.help.format": Text(
        "how to show findings: text (default), concise, json, sarif, github or junit",
        "输出格式：text（默认）、concise、json、sarif、github 或 junit",
    ),
    "lint.help.statistics": Text("count the findings of each check", "统计每个检查项的问题数"),
    "lint.help.verbose": Text("list the files that are left out, and why", "列出被跳过的文件及原因"),
    "lint.help.exit-zero": Text("exit with 0 even if something is found", "即使发现问题也返回 0"),
    "lint.help.dialect": Text(
        "what the configs are written for (default: recognised by their keys)", "配置所属的框架写法（默认按键名识别）"
    ),
    "lint.help.version": Text(
        "the framework version to check for (default: the installed MindFormers, if it is known; else {versions})",
        "按哪个框架版本检查（默认为已安装的 MindFormers 版本；未安装或不认识该版本时：{versions}）",
    ),
    "lint.help.checklist": Text(
        "a checklist of your own, on top of the built-in ones (may be repeated)",
        "自定义检查清单，在内置清单之外追加（可重复指定）",
    ),
    "lint.help.fail-on": Text(
        "the least severity that gives exit code 1: error, warning or info (default: warning)",
        "返回退出码 1 的最低级别：error、warning 或 info（默认 warning）",
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
    "lint.rules.installed": Text(
        "checked for {framework} {version} (as installed)", "按 {framework} {version} 检查（已安装的版本）"
    ),
    "lint.rules.not-installed": Text(
        "checked for {framework} {version} (not for {installed}, which is installed)",
        "按 {framework} {version} 检查（而非已安装的 {installed}）",
    ),
    "lint.fix-label": Text("fix", "修复"),
    "lint.fix.safe": Text("{title} (--fix does it)", "{title}（--fix 可自动完成）"),
    "lint.fix.unsafe": Text("{title} (--fix=unsafe does it)", "{title}（--fix=unsafe 可自动完成）"),
    "lint.fix.none": Text("not automatic here, because {reason}", "此处不能自动修复：{reason}"),
    "lint.fix.remove-key": Text("remove '{key}'", "删除“{key}”"),
    "lint.fix.set-value": Text("set '{key}' to {value}", "将“{key}”设为 {value}"),
    "lint.fix.rename-key": Text("rename '{key}' to '{value}'", "将“{key}”改名为“{value}”"),
    "lint.fix.add-key": Text("add '{key}: {value}'", "加上“{key}: {value}”"),
    "lint.fix.move-key": Text("move '{key}' into '{section}'", "将“{key}”移入“{section}”"),
    "lint.fix.rewrite": Text("write {new} in place of {old}", "将 {old} 改写为 {new}"),
    "lint.fix.rewrite-import": Text(
        "write {new} in place of {old}, and import mint", "将 {old} 改写为 {new}，并导入 mint"
    ),
    "lint.fix.remove-words": Text("remove {old}", "删除 {old}"),
    "lint.fix.remove-ignore": Text("remove the comment", "删除该注释"),
    "lint.fixed": Text("fixed: {count}", "已修复 {count} 个"),
    "lint.fixable": Text("fixable with --fix: {count}", "--fix 可修复 {count} 个"),
    "lint.fixable.unsafe": Text("with --fix=unsafe: {count}", "--fix=unsafe 可修复 {count} 个"),
    "lint.ignored": Text("ignored by comments: {count}", "注释忽略 {count} 个"),
    "lint.baselined": Text("in the baseline: {count}", "基线中 {count} 个"),
    "lint.skipped.count": Text("skipped: {count} (--verbose tells why)", "跳过 {count} 个文件（--verbose 查看原因）"),
    "lint.skipped": Text("{file}: skipped: {reason}", "{file}：已跳过：{reason}"),
    "lint.skipped.excluded": Text("excluded by the settings", "被设置排除"),
    "lint.skipped.unreadable": Text("not readable as a config: {reason}", "无法作为配置读取：{reason}"),
    "lint.statistics.files": Text("in files: {files}", "涉及 {files} 个文件"),
    "lint.diff": Text("fixes: {count}, files: {files}", "{files} 个文件，{count} 处修复"),
    "lint.nothing": Text(
        "no training config found, files skipped: {skipped}", "没有找到训练配置，跳过了 {skipped} 个文件"
    ),
    "lint.empty-glob": Text("no file fits '{pattern}'", "没有与“{pattern}”匹配的文件"),
    "lint.too-many-files": Text(
        "more than {limit} files; name a smaller folder", "文件超过 {limit} 个；请指定更小的目录"
    ),
    "lint.unknown-check": Text("{origin}: there is no check '{name}'", "{origin}：没有名为“{name}”的检查项"),
    "lint.ignore.unused": Text(
        "'{name}' is ignored here, and there is nothing to ignore", "此处忽略了“{name}”，但并没有可忽略的问题"
    ),
    "lint.ignore.unknown": Text(
        "'{name}' is ignored here, and there is no such check", "此处忽略了“{name}”，但没有这个检查项"
    ),
    "lint.ignore.malformed": Text(
        "this comment is meant for ms-tune and ignores nothing", "该注释写给 ms-tune，却没有忽略任何检查项"
    ),
    "lint.settings.syntax": Text("is not valid TOML: {problem}", "不是合法的 TOML：{problem}"),
    "lint.settings.unknown": Text("unknown setting '{key}'", "未知的设置“{key}”"),
    "lint.settings.similar": Text(
        "unknown setting '{key}'; did you mean '{similar}'?", "未知的设置“{key}”，您是否想写“{similar}”？"
    ),
    "lint.settings.text": Text("'{key}' must be a text", "“{key}”必须是字符串"),
    "lint.settings.texts": Text("'{key}' must be a list of texts", "“{key}”必须是字符串列表"),
    "lint.settings.table": Text("'{key}' must be a table", "“{key}”必须是表"),
    "lint.settings.tables": Text("'{key}' must be a list of tables", "“{key}”必须是表的列表"),
    "lint.settings.choice": Text(
        "'{key}' is '{value}' and must be one of {choices}", "“{key}”的取值为“{value}”，必须是 {choices} 之一"
    ),
    "lint.baseline.which": Text(
        "--write-baseline needs --baseline FILE", "--write-baseline 需要同时指定 --baseline 文件"
    ),
    "lint.baseline.hint": Text("make one with --write-baseline", "可用 --write-baseline 生成"),
    "lint.baseline.invalid": Text("is not a baseline file", "不是基线文件"),
    "lint.baseline.version": Text(
        "is a baseline of version {version}, which this ms-tune does not know",
        "基线文件版本为 {version}，当前 ms-tune 不支持",
    ),
    "lint.baseline.written": Text("findings written to {file}: {count}", "已将 {count} 个问题写入 {file}"),
    "lint.read-from": Text("{file}: settings of {other} count, too", "{file}：{other} 中的设置同样生效"),
    "lint.model-json": Text("{file}: {reason}; it is not followed", "{file}：{reason}；未读取其内容"),
    "lint.unreadable": Text("files not checked: {count}", "{count} 个文件未能检查"),
    "lint.unwritten": Text("files not written: {count}", "{count} 个文件未能写入"),
}
