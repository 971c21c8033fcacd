"""Texts of ``ms-tune normalize-recompute``. What MindFormers itself says is quoted and stays in English."""

from ms_tune.texts import Text

TEXTS = {
    "normalize.summary": Text(
        "show what each layer will recompute, exactly as the framework does it", "按框架的真实规则展示每一层的重计算"
    ),
    "normalize.description": Text(
        "Shows where each layer of a training config goes, what it will recompute and what it will swap, by the rules\n"
        "of MindFormers 1.6 to 2.1 (static graph; dynamic graph of 2.0 and 2.1) and MindSpeed-Core-MS r0.1.0, with every\n"
        "trap met on the way. Nothing is run.\n\n"
        "Exit code: 0 nothing to complain about, 1 an error or a warning, 2 the config cannot be read.",
        "按 MindFormers 1.6 至 2.1（静态图；2.0、2.1 的动态图）和 MindSpeed-Core-MS r0.1.0 的真实规则，展示训练配置中每一层\n"
        "所在的位置、会做哪些重计算和 swap，并指出其中的陷阱。不会运行任何训练。\n\n"
        "退出码：0 没有问题；1 存在错误或警告；2 配置无法读取。",
    ),
    "normalize.examples": Text(
        "examples:\n"
        "  ms-tune normalize-recompute pretrain.yaml            what each layer does\n"
        "  ms-tune normalize-recompute --stage 2 pretrain.yaml  the layers of one stage\n"
        "  ms-tune normalize-recompute --as-log pretrain.yaml   the lines that MindFormers will log\n"
        "  ms-tune normalize-recompute --diff pretrain.yaml     the lists, written out for every stage\n"
        "  ms-tune normalize-recompute --json pretrain.yaml     for scripts\n"
        "  ms-tune normalize-recompute --against worker_0.log pretrain.yaml\n"
        "                                                       did the job do it?\n"
        "  ms-tune normalize-recompute --to mindformers-pynative@2.0 pretrain.yaml\n"
        "                                                       the same plan for the dynamic graph of 2.0\n"
        "  ms-tune normalize-recompute --from-sapp plan.txt pretrain.yaml --write\n"
        "                                                       SAPP's lists, merged into the config",
        "示例：\n"
        "  ms-tune normalize-recompute pretrain.yaml            每一层做什么\n"
        "  ms-tune normalize-recompute --stage 2 pretrain.yaml  只看某个 stage 的层\n"
        "  ms-tune normalize-recompute --as-log pretrain.yaml   MindFormers 将输出的日志行\n"
        "  ms-tune normalize-recompute --diff pretrain.yaml     将各列表按 stage 逐一写明后的差异\n"
        "  ms-tune normalize-recompute --json pretrain.yaml     供脚本使用\n"
        "  ms-tune normalize-recompute --against worker_0.log pretrain.yaml\n"
        "                                                       作业是否照做\n"
        "  ms-tune normalize-recompute --to mindformers-pynative@2.0 pretrain.yaml\n"
        "                                                       同样的方案，用于 2.0 的动态图\n"
        "  ms-tune normalize-recompute --from-sapp plan.txt pretrain.yaml --write\n"
        "                                                       将 SAPP 的列表并入配置",
    ),
    "normalize.help.file": Text("the training config (YAML)", "训练配置文件（YAML）"),
    "normalize.help.as-log": Text(
        "print the log lines that the framework will print about it, and nothing else",
        "只打印框架会输出的相关日志行",
    ),
    "normalize.help.version": Text(
        "the framework's release (default: {default} for the static graph, or the one that is installed)",
        "框架版本（静态图默认为 {default}，若已安装则为所安装的版本）",
    ),
    "normalize.help.layers": Text(
        "the number of layers, for a config that does not say it", "模型层数，用于没有写明层数的配置"
    ),
    "normalize.help.stage": Text("only the layers of this stage", "只显示该 stage 的层"),
    "normalize.help.layer": Text("only this layer", "只显示该层"),
    "normalize.help.write": Text(
        "write the lists into the file in their explicit form, for example one count for every stage of every chunk; nothing else "
        "in the file changes",
        "将文件中的各列表改写为显式形式（每个 chunk 的每个 stage 一个层数）；文件的其余内容保持不变",
    ),
    "normalize.help.diff": Text("show what --write would change", "显示 --write 将做的改动，不写文件"),
    "normalize.help.to": Text(
        "print the same plan as settings of another dialect ({choices}), with @RELEASE behind it for another release than "
        "the default, as in mindformers-pynative@2.0",
        "以另一种配置类型（{choices}）的写法输出同样的方案；其后可用 @版本 指定版本，如 mindformers-pynative@2.0",
    ),
    "normalize.help.from-sapp": Text(
        "PLAN holds the lists that the pipeline tool SAPP prints (offset, recompute, ...), - for standard input: show FILE "
        "with them merged in, or change it with --write or --diff. Without FILE, --layers and --stages tell the sizes",
        "PLAN 为流水线工具 SAPP 输出的列表（offset、recompute 等），- 表示标准输入：展示将其并入 FILE 后的结果，配合 --write 或 "
        "--diff 则改写 FILE。没有 FILE 时需用 --layers 和 --stages 给出规模",
    ),
    "normalize.help.stages": Text("the number of stages, with --from-sapp", "stage 数，配合 --from-sapp 使用"),
    "normalize.help.chunks": Text(
        "the number of chunks, with --from-sapp (default: 1)", "chunk 数，配合 --from-sapp 使用（默认为 1）"
    ),
    "normalize.sapp-sizes": Text(
        "--from-sapp needs a config (--from-sapp PLAN FILE), or --layers and --stages: the lists do not tell them",
        "--from-sapp 需要配置文件（--from-sapp PLAN FILE），或 --layers 和 --stages：这些列表中没有这两个信息",
    ),
    "normalize.sapp-no-config": Text(
        "{option} needs a config to change: --from-sapp PLAN FILE",
        "{option} 需要待改写的配置文件：--from-sapp PLAN FILE",
    ),
    "normalize.sapp-own-sizes": Text(
        "{option} is for lists without a config; with one the sizes are its own",
        "{option} 仅用于没有配置文件的情况；有配置文件时以其中的规模为准",
    ),
    "normalize.no-such-stage": Text(
        "there is no stage {stage}; the stages are {first} to {last}",
        "没有 stage {stage}；stage 编号为 {first} 到 {last}",
    ),
    "normalize.no-such-layer": Text(
        "there is no layer {layer}; the layers are 0 to {last}", "没有第 {layer} 层；层号为 0 到 {last}"
    ),
    "normalize.no-such-dialect": Text(
        "--to {value}: there is no such dialect; choose from {choices}, with @RELEASE behind it for another release",
        "--to {value}：没有这种配置类型；可选：{choices}，其后可用 @版本 指定版本",
    ),
    # Writing
    "normalize.not-written": Text(
        "nothing is written: {framework} does not get through this config", "未写入：{framework} 无法处理该配置"
    ),
    "normalize.write-shared": Text(
        "{name} is not written: its value stands behind an alias or an anchor that is used elsewhere",
        "未改写 {name}：其取值来自别名，或其锚点在别处被引用",
    ),
    "normalize.write-comment": Text(
        "{name} is not written: there are comments inside its value, and they would be lost",
        "未改写 {name}：其取值内部有注释，改写会丢失注释",
    ),
    "normalize.write-unproven": Text(
        "nothing is written: the result would not mean the same", "未写入：改写后的含义会发生变化"
    ),
    "normalize.write-failed": Text("cannot be written: {reason}", "无法写入：{reason}"),
    "normalize.written": Text("{file}: {count} value(s) written out", "{file}：已写明 {count} 处取值"),
    "normalize.already": Text("{file}: the lists are explicit already", "{file}：各列表已经是显式形式"),
    # Versions
    # What the config cannot say
    "normalize.no-dialect": Text(
        "this does not look like a training config: none of the sections of a framework is there",
        "这不像是训练配置：没有找到任何框架的配置段",
    ),
    "normalize.base-config": Text(
        "a config with a base_config is not changed: its lists may stand in the other file",
        "不会改写带有 base_config 的配置：其列表可能位于被引用的文件中",
    ),
    "normalize.base-config.hint": Text(
        "put the settings of both files into one and run again", "请将两个文件的设置合并到一个文件后重试"
    ),
    "normalize.read-from": Text("settings of {file} count, too", "{file} 中的设置同样生效"),
    "normalize.no-model-folder": Text(
        "the number of layers is in config.json of pretrained_model_dir, and there is none in '{folder}' (seen from here and "
        "from the config)",
        "层数由 pretrained_model_dir 中的 config.json 给出，而 '{folder}' 中没有该文件（已从当前目录和配置所在目录查找）",
    ),
    "normalize.no-model-folder.hint": Text(
        "give it with --layers N, put the model's config.json there (no weights are needed), or write num_hidden_layers under "
        "model.model_config",
        "请用 --layers N 给出，或把模型的 config.json 放到该目录（不需要权重），或在 model.model_config 下写明 num_hidden_layers",
    ),
    "normalize.no-layer-count": Text(
        "the config does not say how many layers the model has", "配置中没有给出模型的层数"
    ),
    "normalize.no-layer-count.hint": Text(
        "MindFormers takes it from the model's own config.json then; give it with --layers, or write num_layers (or "
        "num_hidden_layers) under model.model_config",
        "此时 MindFormers 会从模型自带的 config.json 中读取；请用 --layers 给出，或在 model.model_config 下写明 num_layers（或 "
        "num_hidden_layers）",
    ),
    "normalize.not-split": Text(
        "parallel.parallel_mode {mode} does not split the network: MindFormers sets pipeline_stage {stages} back to 1",
        "parallel.parallel_mode 为 {mode} 时不切分网络：MindFormers 会把 pipeline_stage {stages} 重置为 1",
    ),
    "normalize.not-a-section": Text("{name} must be a mapping (key: value)", "{name} 必须是映射（key: value）"),
    "normalize.not-a-flag": Text(
        "{name} must be True or False, not {value!r}; MindFormers stops with a TypeError",
        "{name} 必须是 True 或 False，不能是 {value!r}；MindFormers 会抛出 TypeError 并退出",
    ),
    "normalize.not-a-count": Text(
        "{name} must be a whole number from {minimum} to {maximum}, not {value!r}",
        "{name} 必须是 {minimum} 到 {maximum} 之间的整数，不能是 {value!r}",
    ),
    "normalize.two-names": Text(
        "{first} and {second} are two names for one setting and differ here",
        "{first} 与 {second} 是同一设置的两个名称，此处取值却不同",
    ),
    "normalize.pipeline-config": Text(
        "parallel.pipeline_config needs pipeline_interleave and pipeline_scheduler, and takes nothing else; found: {found}",
        "parallel.pipeline_config 必须且只能包含 pipeline_interleave 与 pipeline_scheduler；当前为：{found}",
    ),
    "normalize.scheduler": Text(
        "pipeline_scheduler: {value!r} is not one of {known}", "pipeline_scheduler：{value!r} 不在可选值 {known} 之中"
    ),
    "normalize.unknown-key": Text(
        "{section} has no key {key!r}; MindFormers stops with a KeyError",
        "{section} 中没有 {key!r} 这个键；MindFormers 会抛出 KeyError 并退出",
    ),
    # The report
    "normalize.head": Text(
        "{layers} layers, {stages} stage(s), {chunks} chunk(s)", "{layers} 层，{stages} 个 stage，{chunks} 个 chunk"
    ),
    "normalize.head.ahead": Text(
        "{layers} layers and {ahead} multi-token-prediction layer(s), {stages} stage(s), {chunks} chunk(s)",
        "{layers} 层，另有 {ahead} 个多 token 预测（MTP）层，{stages} 个 stage，{chunks} 个 chunk",
    ),
    "normalize.head.rules": Text(
        "dialect {dialect}, {framework} {version}", "配置类型 {dialect}，{framework} {version}"
    ),
    "normalize.framework.mindformers": Text("MindFormers", "MindFormers"),
    "normalize.framework.mindformers-pynative": Text("MindFormers", "MindFormers"),
    "normalize.framework.mindspeed-ms": Text("MindSpeed-Core-MS", "MindSpeed-Core-MS"),
    "normalize.title.placement": Text("Layers of each stage, one row a chunk", "各 stage 的层数（每行一个 chunk）"),
    "normalize.backwards": Text(
        "(zero_bubble_v: the second row starts with the last stage, here and in the log)",
        "（zero_bubble_v：第二行从最后一个 stage 开始排列，日志中亦然）",
    ),
    "normalize.title.formative": Text("Recompute as MindFormers logs it", "MindFormers 日志中规范化后的重计算配置"),
    "normalize.title.lists": Text("Recompute, layer by layer counted out", "规范化后的重计算配置"),
    "normalize.title.layers": Text("What each layer recomputes", "每一层的重计算"),
    "normalize.title.map.full": Text(
        "Layers recomputed in full / layers of each cell", "各单元中完全重计算的层数 / 总层数"
    ),
    "normalize.title.map.select": Text(
        "Layers with selected operators or communication recomputed / layers of each cell",
        "各单元中选择重计算或通信重计算的层数 / 总层数",
    ),
    "normalize.map.chunk": Text("chunk {number}", "chunk {number}"),
    "normalize.title.problems": Text("Problems", "问题"),
    "normalize.column.stage": Text("stage", "stage"),
    "normalize.column.chunk": Text("chunk", "chunk"),
    "normalize.column.layers": Text("layers", "层号"),
    "normalize.column.count": Text("count", "层数"),
    "normalize.column.effect": Text("recompute", "重计算"),
    "normalize.column.select": Text("select", "选择重计算"),
    "normalize.column.comm": Text("comm", "通信重计算"),
    "normalize.column.exclude": Text("exclude", "排除"),
    "normalize.column.swap": Text("swap", "swap"),
    "normalize.column.overridden": Text("overridden", "被覆盖"),
    "normalize.swap.layer": Text("layer", "整层"),
    "normalize.effect.full": Text("full", "完全"),
    "normalize.effect.select": Text("select", "选择"),
    "normalize.effect.comm": Text("comm", "通信"),
    "normalize.effect.none": Text("-", "-"),
    "normalize.legend.known": Text(
        "Patterns, and what each matches in the layers of this model:", "算子模式，及其在该模型各层中匹配到的内容："
    ),
    "normalize.legend.found": Text("What it is inside the layers:", "各层内的具体对象："),
    "normalize.legend": Text(
        "Patterns (whether an operator of the model matches one is for the model to say):",
        "算子模式（模型中是否有算子与之匹配，取决于模型本身）：",
    ),
    "normalize.severity.error": Text("error", "错误"),
    "normalize.severity.warning": Text("warning", "警告"),
    "normalize.severity.info": Text("note", "说明"),
    "normalize.duplicate-key": Text(
        "{key} stands twice (lines {first} and {again}); YAML keeps the second, and nothing of the first is read.",
        "{key} 重复出现（第 {first} 行与第 {again} 行）；YAML 以后者为准，前者的内容完全不会被读取。",
    ),
    "normalize.help": Text("help: {hint}", "建议：{hint}"),
    "normalize.remedy.set": Text("this passes: {values}", "改为以下取值即可通过：{values}"),
    "normalize.remedy.remove": Text("it passes without {keys}", "去掉 {keys} 即可通过"),
    "normalize.remedy.both": Text(
        "this passes: {values}; and without {keys}", "改为以下取值，并去掉 {keys}，即可通过：{values}"
    ),
    "normalize.contradicts": Text(
        "{option} {asked} contradicts the config: {key} is {written}", "{option} {asked} 与配置矛盾：{key} 为 {written}"
    ),
    "normalize.no-stages": Text(
        "pipeline_stage is {written}: MindFormers takes it for 1 with use_parallel: True, and stops without; write 1.",
        "pipeline_stage 为 {written}：use_parallel: True 时 MindFormers 按 1 处理，否则报错退出；请写 1。",
    ),
    "normalize.no-plan": Text(
        "There is no plan: the framework does not get through this config.", "无法给出方案：框架无法处理该配置。"
    ),
}
