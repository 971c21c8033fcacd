"""Texts about plans of MindSpeed-Core-MS and of MindFormers' dynamic graph, and about conversions between dialects.

Quoted exceptions, keys and values stay in English.
"""

from ms_tune.texts import Text

TEXTS = {
    # Where a framework stops
    "plans.rejected": Text("{framework} stops {where}. {what}", "{framework} {where}报错退出。{what}"),
    "plans.rejected-why": Text(
        "{framework} stops {where}. {what} ({why})", "{framework} {where}报错退出。{what}（{why}）"
    ),
    "plans.step.load": Text("when it loads the config", "在加载配置时"),
    "plans.step.parallel": Text("when it sets up the parallel groups", "在创建并行通信组时"),
    "plans.step.placement": Text("when it places the layers", "在切分各层时"),
    "plans.step.value": Text("when it reads the recompute settings", "在解析重计算配置时"),
    "plans.step.swap": Text("when it reads the swap settings", "在解析 swap 配置时"),
    "plans.step.schedule": Text("when it creates the pipeline schedule", "在创建流水线调度时"),
    "plans.why.guide-keys": Text(
        "the tuning guide speaks of full_recompute_list, select_recompute_list and select_comm_recompute_list; the keys "
        "are recompute, select_recompute and select_comm_recompute",
        "调优指南中写作 full_recompute_list、select_recompute_list、select_comm_recompute_list；实际的键名是 recompute、"
        "select_recompute、select_comm_recompute",
    ),
    "plans.why.some-ranks": Text(
        "the quoted one is chunk {chunk} of stage {stage}; only the ranks of stage {stages} stop, the others wait for "
        "them and the job hangs",
        "以上是 stage {stage} 的 chunk {chunk} 的报错；只有 stage {stages} 的进程会退出，其余进程一直等待，任务表现为卡死",
    ),
    "plans.why.standalone": Text(
        "a fault of the framework, seen at chunk {chunk}: with standalone_embedding_stage the first stage, which has no "
        "layers, reads the last stage's number; it starts only if that number is 0",
        "框架缺陷（见 chunk {chunk}）：开启 standalone_embedding_stage 后，首个 stage 没有任何层，却会读取末尾 stage 的数值；"
        "该数值为 0 时才能启动",
    ),
    "plans.why.not-a-pattern": Text("'{pattern}' is not a regular expression", "'{pattern}' 不是合法的正则表达式"),
    "plans.why.negative-stages": Text(
        "pipeline_parallel is {stages}; the exception's words depend on the number of devices",
        "pipeline_parallel 为 {stages}；报错内容取决于设备数",
    ),
    # What a config cannot say
    "plans.not-a-section": Text("{name} must be a mapping (key: value)", "{name} 必须是映射（key: value）"),
    "plans.no-layer-count": Text(
        "the config does not say how many layers the model has; write {key}",
        "配置中没有给出模型的层数；请写明 {key}",
    ),
    "plans.layers-of-class": Text(
        "the config does not say how many layers the model has: its class has {layers}",
        "配置中没有给出模型的层数：按模型类的默认值 {layers} 层处理",
    ),
    "plans.not-a-count": Text(
        "{name} must be a whole number from {minimum} to {maximum}, not {value!r}",
        "{name} 必须是 {minimum} 到 {maximum} 之间的整数，不能是 {value!r}",
    ),
    "plans.two-names": Text(
        "{first} and {second} are two names for one setting and differ here",
        "{first} 与 {second} 是同一设置的两个名称，此处取值却不同",
    ),
    "plans.too-many": Text("{name} is more than {limit}", "{name} 超过了 {limit}"),
    "plans.text-too-long": Text(
        "a list written as text has more than {limit} characters, or lists in lists in lists",
        "以文本形式书写的列表超过 {limit} 个字符，或嵌套过深",
    ),
    # MindSpeed-Core-MS
    "plans.num-layer-list-ignored": Text(
        "num_layer_list has no effect: there is one pipeline stage.",
        "num_layer_list 不生效：只有 1 个流水线 stage。",
    ),
    "plans.selective-stays": Text(
        "model_config.recompute_granularity: selective (or recompute_activations) stays in force beside the lists of "
        "parallel_config: every layer that is not recomputed in full gets selective recompute.",
        "model_config.recompute_granularity: selective（或 recompute_activations）与 parallel_config 中的列表同时生效："
        "所有未完全重计算的层都会做选择重计算。",
    ),
    "plans.selective-forgotten": Text(
        "A training script that builds all chunks from one config object loses recompute_granularity: selective after the "
        "first chunk, because the lists reset it there: chunk 1 and on then do without, unlike this plan.",
        "如果训练脚本用同一个配置对象构建所有 chunk，recompute_granularity: selective 在首个 chunk 之后会失效（列表会在构建时将其重置）："
        "此时 chunk 1 及之后的层不做选择重计算，与此处展示的方案不同。",
    ),
    "plans.model-recompute-ignored": Text(
        "model_config.recompute_granularity: full, recompute_method and recompute_num_layers have no effect: "
        "parallel_config has lists of its own.",
        "model_config 中的 recompute_granularity: full、recompute_method、recompute_num_layers 不生效：parallel_config 中已给出列表。",
    ),
    "plans.flag-beside-lists": Text(
        "model_config.{key}: True holds for every layer, whatever the lists of parallel_config say.",
        "model_config.{key}: True 对所有层生效，与 parallel_config 中的列表无关。",
    ),
    "plans.full-incomplete": Text(
        "recompute_granularity: full does nothing without recompute_method and recompute_num_layers.",
        "缺少 recompute_method 与 recompute_num_layers 时，recompute_granularity: full 不起任何作用。",
    ),
    "plans.method-without-full": Text(
        "recompute_method and recompute_num_layers do nothing without recompute_granularity: full.",
        "未设置 recompute_granularity: full 时，recompute_method 与 recompute_num_layers 不起任何作用。",
    ),
    "plans.bool-counts": Text(
        "{key} {value} holds True or False where a number of layers is meant; True counts as one layer.",
        "{key} {value} 在应写层数的位置写了 True 或 False；True 按 1 层处理。",
    ),
    "plans.select-no-effect": Text(
        "selective recompute has no effect: with use_flash_attention: True it recomputes the activation function of the "
        "feed-forward block, and hidden_act: {activation} is not a cell that could be recomputed (gelu and fast_gelu are).",
        "选择重计算不生效：use_flash_attention: True 时重计算的是前馈网络的激活函数，而 hidden_act: {activation} 不是可重计算的 Cell"
        "（gelu 与 fast_gelu 才是）。",
    ),
    "plans.comm-one-tensor-rank": Text(
        "select_comm_recompute has no effect: tensor_model_parallel_size is 1, so there is no communication to repeat.",
        "select_comm_recompute 不生效：tensor_model_parallel_size 为 1，没有可重做的通信。",
    ),
    "plans.comm-no-sequence-parallel": Text(
        "select_comm_recompute has no effect without sequence_parallel: True.",
        "未开启 sequence_parallel: True 时，select_comm_recompute 不生效。",
    ),
    "plans.top-level-ignored": Text(
        "{key} has no effect where it stands; the framework reads {place} only.",
        "{key} 写在此处不生效；框架只读取 {place}。",
    ),
    "plans.guide-key": Text(
        "{key} is a name of the tuning guide that no code reads; {meant} is what is meant.",
        "{key} 只是调优指南中的叫法，没有代码读取；应写作 {meant}。",
    ),
    "plans.string-wins": Text(
        "parallel_config.{key} and parallel_config.recompute_config.{key} are both set; the former counts.",
        "parallel_config.{key} 与 parallel_config.recompute_config.{key} 同时设置；以前者为准。",
    ),
    "plans.per-virtual-stage-ignored": Text(
        "num_layers_per_virtual_pipeline_stage is read by nothing; virtual_pipeline_model_parallel_size decides.",
        "没有代码读取 num_layers_per_virtual_pipeline_stage；由 virtual_pipeline_model_parallel_size 决定。",
    ),
    "plans.one-chunk": Text(
        "virtual_pipeline_model_parallel_size: 1 is the same as none: lists have one row and no outer brackets.",
        "virtual_pipeline_model_parallel_size: 1 等同于不设置：列表只写一行，不加外层方括号。",
    ),
    # The dynamic graph of MindFormers
    "plans.interleave-ignored": Text(
        "pipeline_parallel_interleave_num: {chunks} has no effect: there is one pipeline stage.",
        "pipeline_parallel_interleave_num: {chunks} 不生效：只有 1 个流水线 stage。",
    ),
    "plans.layers-per-stage-ignored": Text(
        "pipeline_parallel_layers_per_stage has no effect: there is one pipeline stage.",
        "pipeline_parallel_layers_per_stage 不生效：只有 1 个流水线 stage。",
    ),
    "plans.layers-beyond": Text(
        "pipeline_parallel_layers_per_stage: {ranges} goes beyond the model's {layers} layers; the ranks of that stage "
        "stop with IndexError: list index out of range when they build it.",
        "pipeline_parallel_layers_per_stage：{ranges} 超出了模型的 {layers} 层；该 stage 的进程在构建模型时会抛出 "
        "IndexError: list index out of range 并退出。",
    ),
    "plans.layers-missing": Text(
        "no stage has layer {layers}; MindFormers does not check this and trains without.",
        "没有 stage 包含层 {layers}；MindFormers 对此不做检查，训练时会缺少这些层。",
    ),
    "plans.layers-twice": Text(
        "layer {layers} stands in more than one range; MindFormers does not check this and builds it more than once.",
        "层 {layers} 出现在多个区间中；MindFormers 对此不做检查，会重复构建。",
    ),
    "plans.layers-out-of-order": Text(
        "pipeline_parallel_layers_per_stage: the ranges do not follow each other (chunk 0 over all stages, then chunk 1, "
        "and so on), so the layers run in another order than they are numbered.",
        "pipeline_parallel_layers_per_stage：各区间没有首尾相接（先 chunk 0 依次经过所有 stage，再 chunk 1，依此类推），"
        "各层的执行顺序与层号不一致。",
    ),
    "plans.no-chunks": Text(
        "pipeline_parallel_interleave_num is {chunks}: there is no chunk, and so no model.",
        "pipeline_parallel_interleave_num 为 {chunks}：没有任何 chunk，也就没有模型。",
    ),
    "plans.mode-none": Text(
        "recompute.{key} has no effect: recompute.mode is 'None'.",
        "recompute.{key} 不生效：recompute.mode 为 'None'。",
    ),
    "plans.select-in-full": Text(
        "recompute.select_module has no effect: recompute.mode is 'full'; 'select' takes both.",
        "recompute.select_module 不生效：recompute.mode 为 'full'；设为 'select' 时两者都生效。",
    ),
    "plans.switched-off": Text("{key} has no effect: {switch} is off.", "{key} 不生效：{switch} 未开启。"),
    "plans.one-card": Text(
        "On a single device MindFormers looks at none of the recompute and swap settings, not even at wrong ones; this "
        "plan holds for more than one.",
        "单卡运行时，MindFormers 完全不读取重计算与 swap 配置，写错也不会报错；此处展示的是多卡运行的结果。",
    ),
    "plans.swap-of-nothing": Text(
        "swap.enable is on and neither layer_swap nor op_swap names anything: nothing is swapped.",
        "swap.enable 已开启，但 layer_swap 与 op_swap 均为空：不会有任何 swap。",
    ),
    "plans.first-entry-only": Text(
        "swap.layer_swap has {given} entries; MindFormers takes the layers of the first one and forgets the others.",
        "swap.layer_swap 有 {given} 项；MindFormers 只取第一项中的层，其余全部忽略。",
    ),
    "plans.last-entry-only": Text(
        "swap.op_swap names {name} more than once; MindFormers takes the last entry and forgets the others.",
        "swap.op_swap 中多次出现 {name}；MindFormers 只取最后一项，其余全部忽略。",
    ),
    "plans.prefetch-ignored": Text(
        "backward_prefetch in an entry of layer_swap or op_swap is not read; swap.default_prefetch ({prefetch}) counts "
        "for all.",
        "layer_swap 与 op_swap 各项中的 backward_prefetch 不会被读取；统一以 swap.default_prefetch（{prefetch}）为准。",
    ),
    "plans.no-match": Text(
        "{key}: '{pattern}' matches nothing in the layers it is given for; MindFormers only warns about it.",
        "{key}：'{pattern}' 在所给的层中没有匹配到任何模块；MindFormers 对此只给出告警。",
    ),
    "plans.cell-unmatched": Text(
        "{key}: '{pattern}' matches nothing in cells it is for, so nothing is done there ({cells}).",
        "{key}：'{pattern}' 在其所指定的部分 cell 中匹配不到任何内容，在这些位置不起作用（{cells}）。",
    ),
    "plans.pattern-slow": Text(
        "{key}: '{pattern}' could take very long to match and was not tried; MindFormers gives each match one second.",
        "{key}：'{pattern}' 的匹配可能极其耗时，未做尝试；MindFormers 对每次匹配限时 1 秒。",
    ),
    "plans.path-from-outside": Text(
        "{key}: '{pattern}' starts outside the layer and can match nothing: paths start inside one layer, as in "
        "self_attention.linear_qkv.",
        "{key}：'{pattern}' 的路径从层外开始，不会匹配任何模块：路径应从层内写起，如 self_attention.linear_qkv。",
    ),
    "plans.prediction-layers-left": Text(
        "every layer is recomputed in full but for the multi-token-prediction layer {layers}.",
        "除多 token 预测（MTP）层 {layers} 外，所有层均完全重计算。",
    ),
    "plans.swap-and-recompute": Text(
        "layer {layers} is both swapped and recomputed in full; MindFormers does both without a word.",
        "层 {layers} 同时配置了 swap 与完全重计算；MindFormers 会两者都做，且没有提示。",
    ),
    "plans.ranges-unchecked": Text(
        "With full_recompute_layer set, MindFormers does not check the layers of select_module: numbers that no layer "
        "has are dropped without a word.",
        "设置了 full_recompute_layer 时，MindFormers 不校验 select_module 中的层号：不存在的层号会被直接丢弃，且没有提示。",
    ),
    "plans.as-written": Text(
        "What these patterns match is not known here, so they are shown as written, and lines of the log that need it are "
        "left out: {patterns}.",
        "此处无法得知以下模式能匹配到什么，因此按原样展示，并略去需要据此得出的日志行：{patterns}。",
    ),
    # Conversions
    "plans.convert.no-plan": Text(
        "There is no plan to convert: the framework does not get through this config.",
        "没有可转换的方案：框架无法处理该配置。",
    ),
    "plans.convert.order": Text(
        "This placement cannot be said in another dialect: the layers do not run through the stages one after the other, "
        "chunk by chunk, or not every layer is there once.",
        "该切分方式无法用其他配置类型表达：各层没有逐 chunk 依次经过各个 stage，或存在缺失、重复的层。",
    ),
    "plans.convert.chunks-merged": Text(
        "{chunks} chunks on a single stage become one; each layer does the same.",
        "单个 stage 上的 {chunks} 个 chunk 合并为 1 个；每一层的行为不变。",
    ),
    "plans.convert.prediction-layers": Text(
        "The multi-token-prediction layer {layers} does not do what the last layer does; there it has no setting of its own.",
        "多 token 预测（MTP）层 {layers} 的行为与最后一层不同；目标配置类型无法为其单独设置。",
    ),
    "plans.convert.holes": Text(
        "{key}: layer {layers} cannot be said as a number of layers, because others lie before or between; {key} is left out.",
        "{key}：层 {layers} 无法用层数表达，因为其前面或中间夹有其他层；已略去 {key}。",
    ),
    "plans.convert.empty": Text(
        "Stage {stages} has no layers, or there are too few, which cannot be said there; the placement is left out.",
        "stage {stages} 上没有层或层数不足，目标配置类型无法表达；已略去切分设置。",
    ),
    "plans.convert.standalone": Text(
        "{key}: with standalone_embedding_stage MindSpeed-Core-MS starts only if the last stage recomputes nothing of the "
        "kind; {key} is left out.",
        "{key}：使用 standalone_embedding_stage 时，末尾 stage 不做此类重计算，MindSpeed-Core-MS 才能启动；已略去 {key}。",
    ),
    "plans.convert.excludes": Text(
        "Operators that are excluded from recompute cannot be said there; they are left out, and would be recomputed.",
        "目标配置类型无法表达“排除在重计算之外的算子”；已略去，这些算子将参与重计算。",
    ),
    "plans.convert.swap": Text(
        "MindSpeed-Core-MS has no swap; it is left out.", "MindSpeed-Core-MS 没有 swap；已略去。"
    ),
    "plans.convert.swap-pipeline": Text(
        "The dynamic graph does not swap with more than one pipeline stage; swap is left out.",
        "流水线 stage 多于 1 个时，动态图不支持 swap；已略去。",
    ),
    "plans.convert.swap-last": Text(
        "Layer {layer} is too close to the end to be swapped there (at most {limit}); swap is left out.",
        "层 {layer} 距末尾过近，目标配置类型中无法 swap（最大为 {limit}）；已略去 swap。",
    ),
    "plans.convert.one-prefetch": Text(
        "The dynamic graph has one prefetch of 1 or more for all, and here there is {prefetches}; swap is left out.",
        "动态图只有一个全局预取值（不小于 1），而此处为 {prefetches}；已略去 swap。",
    ),
    "plans.convert.prefetch": Text(
        "The prefetch is carried over as a number: the static graph counts in operators, the dynamic graph in layers.",
        "预取值按数值原样沿用：静态图以算子计，动态图以层计。",
    ),
    "plans.convert.swap-numbers": Text(
        "With swap on, the lists of recompute hold numbers of layers.", "开启 swap 后，重计算列表中写的是层号。"
    ),
    "plans.convert.pattern": Text(
        "{key}: the dynamic graph takes no blank pattern ('{pattern}'); it is left out.",
        "{key}：动态图不接受空白模式（'{pattern}'）；已略去。",
    ),
    "plans.convert.lost": Text(
        "{key}: {names} has no equivalent in {to}; layer {layers} loses it.",
        "{key}：{names} 在 {to} 中没有对应的模块；层 {layers} 将失去它。",
    ),
    "plans.convert.wider": Text(
        "{key}: in {to} {names} cannot be left out of what layer {layers} asks for, and is covered as well.",
        "{key}：在 {to} 中，层 {layers} 所选的内容无法排除 {names}，后者也会一并处理。",
    ),
    "plans.convert.own-operators": Text(
        "{key}: layer {layers} stays chosen, but {to} does not recompute {names}: its operator cannot be chosen.",
        "{key}：层 {layers} 仍被选中，但 {to} 不会重计算 {names}：其重计算的算子不可选择。",
    ),
    "plans.convert.stand-in": Text(
        "The layers of the config's model are not known; its operators are taken for those of {model}.",
        "该配置的模型的层结构未知；按 {model} 的层来理解其中的算子。",
    ),
    "plans.convert.counterpart": Text(
        "The names are proved against the layers of {model} in {release}.",
        "算子名已按 {release} 中 {model} 的层结构验证。",
    ),
    "plans.convert.no-trees": Text(
        "The layers of {model} are not known in {release}: the names are translated, and not proved.",
        "{release} 中 {model} 的层结构未知：算子名只做了翻译，未经验证。",
    ),
    "plans.convert.refused": Text(
        "The target's own rules refuse these settings: {what}",
        "目标配置类型自身的规则不接受这些设置：{what}",
    ),
    "plans.convert.differs": Text(
        "Layer {layers} would not do the same. Here: {here}. There: {there}.",
        "层 {layers} 的行为会改变。此处：{here}；目标：{there}。",
    ),
    # SAPP
    "plans.sapp.nothing": Text(
        "none of the lists that SAPP prints is there ({keys})", "没有找到 SAPP 输出的任何列表（{keys}）"
    ),
    "plans.sapp.twice": Text("{key} stands there twice", "{key} 出现了两次"),
    "plans.sapp.too-long": Text("the pasted text has more than {limit} characters", "粘贴的文本超过 {limit} 个字符"),
    "plans.sapp.not-a-table": Text(
        "{key} must be a list of whole numbers for each chunk, as in [[1, 0], [0, 0]]",
        "{key} 必须为每个 chunk 给出一个整数列表，如 [[1, 0], [0, 0]]",
    ),
    "plans.sapp.sizes": Text(
        "{layers} layers on {stages} stages with {chunks} chunks: each must be 1 or more, and none above {limit}",
        "{layers} 层、{stages} 个 stage、{chunks} 个 chunk：每项都必须不小于 1，且不超过 {limit}",
    ),
    "plans.sapp.shape": Text(
        "{key} is {size} (chunks x stages), not {wanted}", "{key} 的形状为 {size}（chunk 数 x stage 数），应为 {wanted}"
    ),
    "plans.sapp.other-sizes": Text(
        "{key} has {rows} row(s) of {columns} numbers, for {rows} chunk(s) and {columns} stage(s); the config has {chunks} "
        "chunk(s) and {stages} stage(s)",
        "{key} 有 {rows} 行、每行 {columns} 个数，对应 {rows} 个 chunk、{columns} 个 stage；而配置中为 {chunks} 个 chunk、"
        "{stages} 个 stage",
    ),
    "plans.sapp.other-sizes.hint": Text(
        "run SAPP for the sizes of the config, or give the config those of the lists (with several chunks interleave has "
        "to be on)",
        "请按配置中的规模运行 SAPP，或将配置改为与列表一致（多个 chunk 时需开启 interleave）",
    ),
    "plans.sapp.own-value": Text(
        "SAPP printed no {kind}, so {key} stays as it is and comes on top of SAPP's plan.",
        "SAPP 没有输出 {kind}，因此 {key} 保持不变，并叠加在 SAPP 的方案之上。",
    ),
    "plans.sapp.offset": Text(
        "with this offset the cells hold {placed} layers, or fewer than none, and the model has {layers}",
        "按此 offset，各处共放置 {placed} 层（或出现负数），而模型有 {layers} 层",
    ),
    "plans.sapp.too-many": Text(
        "{key}: chunk {chunk} of stage {stage} has {number} of {count} layers",
        "{key}：stage {stage} 的 chunk {chunk} 写了 {number} 层，而该处共有 {count} 层",
    ),
    "plans.sapp.not-cumulative": Text(
        "{key}: chunk {chunk} of stage {stage} has {number}, fewer than the {full} layers recomputed in full; SAPP counts "
        "those as well, so these are not SAPP's lists",
        "{key}：stage {stage} 的 chunk {chunk} 为 {number}，小于完全重计算的 {full} 层；SAPP 的计数包含完全重计算的层，"
        "因此这不是 SAPP 的输出",
    ),
    "plans.sapp.not-cumulative.hint": Text(
        "lists that count behind the layers recomputed in full are those of MindSpeed-Core-MS: put them into a "
        "mindspeed-ms config and convert that",
        "在完全重计算的层之后另行计数的是 MindSpeed-Core-MS 的列表：请写入 mindspeed-ms 配置后再转换",
    ),
}
