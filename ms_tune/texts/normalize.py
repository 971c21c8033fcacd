"""Texts of ``ms-tune normalize-recompute``. What MindFormers itself says is quoted and stays in English."""

from ms_tune.texts import Text

TEXTS = {
    "normalize.summary": Text(
        "show what each layer will recompute, exactly as the framework does it", "按框架的真实规则展示每一层的重计算"
    ),
    "normalize.description": Text(
        "Shows where each layer of a training config goes and what it will recompute, by the rules of\n"
        "MindFormers 1.8 to 2.1 (static graph), with every trap met on the way. Nothing is run.\n\n"
        "Exit code: 0 nothing to complain about, 1 an error or a warning, 2 the config cannot be read.",
        "按 MindFormers 1.8 至 2.1（静态图）的真实规则，展示训练配置中每一层所在的位置、会做哪些重计算，并指出其中的陷阱。不会运行任何训练。\n\n"
        "退出码：0 没有问题；1 存在错误或警告；2 配置无法读取。",
    ),
    "normalize.examples": Text(
        "examples:\n"
        "  ms-tune normalize-recompute pretrain.yaml            what each layer does\n"
        "  ms-tune normalize-recompute --as-log pretrain.yaml   the lines that MindFormers will log\n"
        "  ms-tune normalize-recompute --json pretrain.yaml     for scripts",
        "示例：\n"
        "  ms-tune normalize-recompute pretrain.yaml            每一层做什么\n"
        "  ms-tune normalize-recompute --as-log pretrain.yaml   MindFormers 将输出的日志行\n"
        "  ms-tune normalize-recompute --json pretrain.yaml     供脚本使用",
    ),
    "normalize.help.file": Text("the training config (YAML)", "训练配置文件（YAML）"),
    "normalize.help.as-log": Text(
        "print the log lines that MindFormers will print while it reads the config, and nothing else",
        "只打印 MindFormers 解析该配置时会输出的日志行",
    ),
    # What the config cannot say
    "normalize.dialect": Text(
        "configs of the dialect {dialect} are not served yet; served: mindformers (static graph, 1.8 to 2.1)",
        "暂不支持 {dialect} 类型的配置；目前支持：mindformers（静态图，1.8 至 2.1）",
    ),
    "normalize.no-dialect": Text(
        "this does not look like a training config: none of the sections of MindFormers is there",
        "这不像是训练配置：没有找到 MindFormers 的任何配置段",
    ),
    "normalize.base-config": Text(
        "base_config is not followed yet, and the other file's settings count too",
        "暂不支持 base_config，而被引用文件中的设置同样会生效",
    ),
    "normalize.base-config.hint": Text(
        "put the settings of both files into one and run again", "请将两个文件的设置合并到一个文件后重试"
    ),
    "normalize.no-layer-count": Text(
        "the config does not say how many layers the model has", "配置中没有给出模型的层数"
    ),
    "normalize.no-layer-count.hint": Text(
        "MindFormers takes it from the model's own config.json then; write num_layers (or num_hidden_layers) under "
        "model.model_config",
        "此时 MindFormers 会从模型自带的 config.json 中读取；请在 model.model_config 下写明 num_layers（或 num_hidden_layers）",
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
    "normalize.swap": Text(
        "swap is on: lists then name single layers instead of counting them, which is not served yet",
        "已开启 swap：此时列表表示具体的层号而非层数，暂不支持",
    ),
    "normalize.swap.hint": Text(
        "set swap to False to see the recompute plan without it", "将 swap 设为 False 可查看未开启 swap 时的重计算方案"
    ),
    "normalize.swap-entries": Text(
        "swap_config.{key}: every entry needs backward_prefetch and layers (op_swap also op_name); MindFormers reads "
        "them even while swap is off",
        "swap_config.{key}：每一项都必须包含 backward_prefetch 和 layers（op_swap 还需要 op_name）；即使未开启 swap，MindFormers 也会解析这些内容",
    ),
    "normalize.swap-dropped": Text(
        "swap_config.swap has no effect: with use_legacy: False MindFormers does not hand swap_config to the model.",
        "swap_config.swap 不生效：use_legacy: False 时，MindFormers 不会把 swap_config 传给模型。",
    ),
    # The report
    "normalize.head": Text(
        "{layers} layers, {stages} stage(s), {chunks} chunk(s)   dialect {dialect}, MindFormers {versions}",
        "{layers} 层，{stages} 个 stage，{chunks} 个 chunk   配置类型 {dialect}，MindFormers {versions}",
    ),
    "normalize.title.placement": Text("Layers of each stage, one row a chunk", "各 stage 的层数（每行一个 chunk）"),
    "normalize.backwards": Text(
        "(zero_bubble_v: the second row starts with the last stage, here and in the log)",
        "（zero_bubble_v：第二行从最后一个 stage 开始排列，日志中亦然）",
    ),
    "normalize.title.formative": Text("Recompute as MindFormers logs it", "MindFormers 日志中规范化后的重计算配置"),
    "normalize.title.layers": Text("What each layer recomputes", "每一层的重计算"),
    "normalize.title.problems": Text("Problems", "问题"),
    "normalize.column.stage": Text("stage", "stage"),
    "normalize.column.chunk": Text("chunk", "chunk"),
    "normalize.column.layers": Text("layers", "层号"),
    "normalize.column.count": Text("count", "层数"),
    "normalize.column.effect": Text("recompute", "重计算"),
    "normalize.column.select": Text("select", "选择重计算"),
    "normalize.column.comm": Text("comm", "通信重计算"),
    "normalize.column.exclude": Text("exclude", "排除"),
    "normalize.effect.full": Text("full", "完全"),
    "normalize.effect.select": Text("select", "选择"),
    "normalize.effect.comm": Text("comm", "通信"),
    "normalize.effect.none": Text("-", "-"),
    "normalize.legend": Text(
        "Patterns (whether an operator of the model matches one is for the model to say):",
        "算子模式（模型中是否有算子与之匹配，取决于模型本身）：",
    ),
    "normalize.severity.error": Text("error", "错误"),
    "normalize.severity.warning": Text("warning", "警告"),
    "normalize.severity.info": Text("note", "说明"),
    "normalize.no-plan": Text(
        "There is no plan: MindFormers does not get through this config.", "无法给出方案：MindFormers 无法处理该配置。"
    ),
}
