"""Texts of ``ms-tune rule``, of the rule reference, and of the rules that the linter has about itself."""

from ms_tune.texts import Text

TEXTS = {
    "rule.summary": Text("explain a check of the linter", "解释 lint 的检查项"),
    "rule.description": Text(
        "Explains checks of 'ms-tune lint': what is checked, why it matters on Ascend, a bad and a good example,\n"
        "how it is fixed, and where the claim can be read in the framework's source.",
        "解释 'ms-tune lint' 的检查项：检查什么、在昇腾上为什么重要、正反示例、\n如何修改，以及在框架源码的何处可以查证。",
    ),
    "rule.examples": Text(
        "examples:\n"
        "  ms-tune rule MST402                     by id\n"
        "  ms-tune rule negative-recompute         by name\n"
        "  ms-tune rule --all                      one line for each check\n"
        "  ms-tune rule --all --json               everything, for scripts\n"
        "  ms-tune rule --markdown docs/rules      write the rule reference",
        "示例：\n"
        "  ms-tune rule MST402                     按编号查询\n"
        "  ms-tune rule negative-recompute         按名称查询\n"
        "  ms-tune rule --all                      每个检查项一行\n"
        "  ms-tune rule --all --json               全部内容，供脚本使用\n"
        "  ms-tune rule --markdown docs/rules      生成检查项参考文档",
    ),
    "rule.help.name": Text("the check, by id (MST402) or name (negative-recompute)", "检查项的编号（MST402）或名称"),
    "rule.help.all": Text("all checks", "所有检查项"),
    "rule.help.markdown": Text("write the rule reference into this folder", "把检查项参考文档写入该目录"),
    "rule.help.checklist": Text(
        "a checklist of your own, too (may be repeated)", "同时包含自定义检查清单（可重复指定）"
    ),
    "rule.none": Text("which check? name one, or use --all", "请指定检查项，或使用 --all"),
    "rule.unknown": Text("there is no check '{name}'", "没有名为“{name}”的检查项"),
    "rule.unknown.similar": Text("did you mean {similar}?", "您是否想查询 {similar}？"),
    "rule.unknown.hint": Text("'ms-tune rule --all' lists them", "运行 'ms-tune rule --all' 查看全部检查项"),
    "rule.written": Text("{count} pages written to {folder}", "已在 {folder} 中写入 {count} 页"),
    "rule.index.title": Text("The checks of ms-tune lint", "ms-tune lint 的检查项"),
    "rule.index.text": Text(
        "What a MindSpore training config gets wrong, and what it costs on Ascend. Each page says what the framework and the "
        "device do, what is lost, and what to write instead; it shows a bad and a good example (both are run as tests), tells "
        "whether the linter can fix it, and names the place in the framework's source where the claim can be read.",
        "MindSpore 训练配置容易出错的地方，以及在昇腾上的代价。每一页说明框架与设备会怎么做、损失什么、应该怎么写，给出正反示例"
        "（均作为测试运行），说明能否自动修复，并指出可在框架源码的何处查证。",
    ),
    "rule.index.language": Text("In English", "中文版"),
    "rule.index.path": Text("A reading path", "阅读路线"),
    "rule.index.check": Text("check", "检查项"),
    "rule.index.severity": Text("severity", "级别"),
    "rule.index.fix": Text("fix", "自动修复"),
    "rule.index.about": Text("about", "内容"),
    "rule.index.fix.none": Text("by hand", "手动"),
    "rule.index.fix.safe": Text("safe", "安全"),
    "rule.index.fix.unsafe": Text("unsafe", "不安全"),
    "rule.before": Text("previous", "上一页"),
    "rule.after": Text("next", "下一页"),
    "rule.index.categories": Text("By kind of trouble", "按问题类型查找"),
    "rule.topic": Text("chapter", "章节"),
    "rule.why": Text("Why it matters on Ascend", "为什么重要（昇腾）"),
    "rule.bad": Text("Bad", "错误示例"),
    "rule.good": Text("Good", "正确示例"),
    "rule.fix": Text("How to fix it", "如何修改"),
    "rule.fix.none": Text(
        "There is no automatic fix: only the author can know what was meant.", "没有自动修复：只有作者才知道本意。"
    ),
    "rule.fix.safe": Text(
        "'ms-tune lint --fix' does it (safe: what the config means stays).",
        "'ms-tune lint --fix' 可自动修复（安全：不改变配置的含义）。",
    ),
    "rule.fix.unsafe": Text(
        "'ms-tune lint --fix=unsafe' does it (unsafe: it changes what the run does; look at '--diff=unsafe' first).",
        "'ms-tune lint --fix=unsafe' 可自动修复（不安全：会改变训练行为，请先查看 '--diff=unsafe'）。",
    ),
    "rule.evidence": Text("Evidence", "依据"),
    "rule.severity": Text("severity", "级别"),
    "rule.category": Text("category", "类别"),
    "rule.dialects": Text("dialects", "适用写法"),
    "rule.versions": Text("framework versions", "框架版本"),
    "rule.profiles": Text("profiles", "适用场景"),
    "rule.opposite": Text("the opposite in other profiles", "其他场景中的相反检查"),
    "rule.all-versions": Text("all", "全部"),
    "rule.ignore": Text("How to ignore it", "如何忽略"),
    "rule.category.correctness": Text(
        "Correctness: the run stops, hangs, or trains something else than the config says",
        "正确性：训练会中断、卡死，或者与配置所写的不一致",
    ),
    "rule.category.ignored-setting": Text(
        "Ignored settings: the framework takes the line and does nothing with it",
        "被忽略的设置：框架接受了这一行，却什么也不做",
    ),
    "rule.category.performance": Text("Performance: the run is slower than it needs to be", "性能：训练比应有的速度慢"),
    "rule.category.memory": Text(
        "Memory: device memory is wasted, or the settings that save it do not fit together",
        "显存：显存被浪费，或者节省显存的设置相互矛盾",
    ),
    "rule.category.debug-left-on": Text(
        "Debugging left on: useful for one afternoon, expensive for a month",
        "遗留的调试开关：调试时有用，长期训练代价高昂",
    ),
    "rule.category.deprecated": Text(
        "Deprecated: works today, and not after the next upgrade", "已废弃：目前可用，升级后将失效"
    ),
    "rule.category.style": Text("Style: hard to read, or easy to misread", "风格：难读或容易误读"),
    "rule.internal-error.title": Text("A check itself failed", "检查项自身出错"),
    "rule.internal-error.why": Text(
        "One check stopped with an exception; the others were made. That is a defect of ms-tune (or of a checklist of your own).",
        "某个检查项抛出了异常，其余检查项照常执行。这是 ms-tune（或您的自定义检查清单）的缺陷。",
    ),
    "rule.internal-error.help": Text("report it, with the config if you can", "请反馈，并尽量附上配置"),
    "rule.unused-ignore.title": Text("A comment that ignores nothing", "没有忽略任何问题的注释"),
    "rule.unused-ignore.why": Text(
        "The finding is gone, or the comment stands in the wrong place. Left behind, it would hide the next one that deserves a look.",
        "对应的问题已不存在，或者注释的位置不对。留着它会掩盖下一个值得关注的问题。",
    ),
    "rule.unused-ignore.help": Text("remove '{name}' from the comment", "从注释中删除“{name}”"),
    "rule.malformed-ignore.title": Text("A comment for ms-tune that cannot be read", "无法识别的 ms-tune 注释"),
    "rule.malformed-ignore.why": Text(
        "A comment starts with 'ms-tune:' and names no check in square brackets, so it ignores nothing.",
        "注释以“ms-tune:”开头，却没有在方括号中写明检查项，因此什么也不会忽略。",
    ),
    "rule.malformed-ignore.help": Text(
        "write '# ms-tune: ignore[name] reason' or '# ms-tune: file-ignore[name] reason'",
        "请写成“# ms-tune: ignore[名称] 原因”或“# ms-tune: file-ignore[名称] 原因”",
    ),
}
