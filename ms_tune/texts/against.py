"""Texts of ``ms-tune normalize-recompute --against``: a plan beside the logs of a job."""

from ms_tune.texts import Text

TEXTS = {
    "against.help": Text(
        "did a job do what the config says? Reads its log (worker_0.log, info.log, or a folder of them; may be given "
        'several times) and puts its "Formative" and "Set ... at layer" lines beside the plan; exit code 0 the same, '
        "1 it differs, 2 it cannot be read",
        "作业是否按配置执行？读取其日志（worker_0.log、info.log 或包含它们的目录，可多次给出），将其中的 Formative 与 "
        "Set ... at layer 行与方案逐层对照；退出码：0 一致，1 不一致，2 无法读取",
    ),
    "against.dialect": Text(
        "the framework of a {dialect} config does not log what it sets layer by layer; --against reads MindFormers' logs",
        "{dialect} 配置所用的框架不会逐层输出日志；--against 读取的是 MindFormers 的日志",
    ),
    "against.nothing": Text(
        "up to this line, the last, nothing says how layers were set up",
        "直到最后这一行，日志中没有任何关于逐层设置的内容",
    ),
    "against.nothing.hint": Text(
        "MindFormers logs it as INFO while it builds the network: is this the log of a worker (worker_0.log, "
        "output/log/rank_0/info.log), and whole?",
        "MindFormers 在构建网络时以 INFO 级别输出；请确认这是 worker 的日志（worker_0.log 或 "
        "output/log/rank_0/info.log）且内容完整",
    ),
    "against.verdict.same": Text(
        "the job did what the config says (logs read: {logs})", "作业与配置一致（已读取 {logs} 个日志）"
    ),
    "against.verdict.differs": Text(
        "the job did not do what the config says: differences {count}, logs read {logs}",
        "作业与配置不一致：差异 {count} 处，已读取 {logs} 个日志",
    ),
    "against.verdict.unreadable": Text(
        "what can be read agrees with the config, but not all of it can be read (logs read: {logs})",
        "可读取的部分与配置一致，但日志不完整（已读取 {logs} 个日志）",
    ),
    "against.rules": Text("by the rules of {framework} {version}", "依据 {framework} {version} 的规则"),
    "against.runs": Text(
        "{file}: the layers are set up {count} times; the last one, from line {line}, is compared",
        "{file}：其中有 {count} 次逐层设置，与最后一次（自第 {line} 行起）对照",
    ),
    "against.damaged": Text(
        "{file}:{line}: cut off, or run into by another line", "{file}:{line}：该行被截断，或与其他行混在一起"
    ),
    "against.first": Text("first difference: {what}", "第一处差异：{what}"),
    "against.at-layer": Text("{what} at layer {layer}", "第 {layer} 层的 {what}"),
    "against.planned": Text("the config", "配置"),
    "against.logged": Text("the job", "作业"),
    "against.nothing-said": Text("nothing", "无"),
    "against.said": Text("yes", "有"),
    "against.why": Text("why", "原因"),
    "against.why.unknown": Text(
        "the log does not tell; was the job started with this very file?", "日志中没有线索；请确认作业使用的正是该文件"
    ),
    "against.why.given": Text(
        "the job had {key} = {given} (line {line}), the file says {written}: another file, or an option of the command "
        "line, overrules it",
        "作业得到的 {key} 为 {given}（第 {line} 行），而文件中为 {written}：被另一个文件或命令行选项覆盖",
    ),
    "against.why.layers": Text(
        "the job had {logged} layers, the config has {planned}", "作业共 {logged} 层，而配置为 {planned} 层"
    ),
    "against.why.stages": Text(
        "the job had {stages} stages of {chunks} chunks, the config has {planned} of {planned_chunks}",
        "作业为 {stages} 个 stage、每个 {chunks} 个 chunk，而配置为 {planned} 个 stage、每个 {planned_chunks} 个 chunk",
    ),
    "against.why.offset": Text("the job's offset was {offset}", "作业所用的 offset 为 {offset}"),
    "against.why.twice": Text(
        "the log says more than one thing about {what} of layer {layer}: a later line overrules",
        "日志中关于第 {layer} 层 {what} 的内容不止一种：后面的行覆盖了前面的行",
    ),
    "against.why.earlier": Text(
        "set-up {number} of {count} in this log, from line {line}, is what the config says: the job was started again with "
        "another config",
        "该日志 {count} 次设置中的第 {number} 次（自第 {line} 行起）与配置一致：之后以另一份配置重新启动了作业",
    ),
    "against.why.release": Text(
        "by the rules of release {version} the job did what the config says, not by those of {planned}: try "
        "--framework-version {version}",
        "依据 {version} 版本的规则，作业与配置一致，而非 {planned}：可使用 --framework-version {version}",
    ),
    "against.why.modules": Text(
        "if the lists are the same, the job's layers have other modules than expected: another model class, or another release",
        "若各列表一致，则作业中各层的模块与预期不同：模型类或框架版本不同",
    ),
    "against.why.refused": Text(
        "MindFormers {version} does not get through this config, so the job had another one",
        "MindFormers {version} 无法运行该配置，因此作业使用的是另一份配置",
    ),
    "against.why.silent": Text(
        "the log says nothing of it: recompute or swap was off in the job, or this is the log of a rank without such layers",
        "日志中没有相关内容：作业中未开启重计算或 swap，或者该日志所属的 rank 不含这些层",
    ),
    "against.state": Text("log", "日志"),
    "against.state.same": Text("same", "一致"),
    "against.state.differs": Text("DIFFERS", "不一致"),
    "against.state.not-logged": Text("not logged", "无日志"),
}
