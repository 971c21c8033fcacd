"""Texts about layers: placement, recompute plan, and the traps on the way. Quoted exceptions stay in English."""

from ms_tune.texts import Text

TEXTS = {
    "layers.rejected": Text("MindFormers stops {where}. {what}", "MindFormers {where}报错退出。{what}"),
    "layers.rejected-why": Text(
        "MindFormers stops {where}. {what} ({why})", "MindFormers {where}报错退出。{what}（{why}）"
    ),
    "layers.endless-loop": Text(
        "MindFormers never comes back {where}: {why}; it uses one CPU core and logs nothing more.",
        "MindFormers {where}陷入死循环：{why}；表现为占满一个 CPU 核，且不再输出任何日志。",
    ),
    "layers.step.scheduler": Text("when it sets parallel.pipeline_config", "在设置 parallel.pipeline_config 时"),
    "layers.step.list-length": Text("when it checks the config", "在校验配置时"),
    "layers.step.swap-config": Text("when it reads the swap settings", "在解析 swap 配置时"),
    "layers.step.swap-rules": Text("when it checks the config (swap is on)", "在校验配置时（已开启 swap）"),
    "layers.step.swap": Text("when it spreads the swap settings over the layers", "在将 swap 配置分配到各层时"),
    "layers.step.core": Text("when it converts the model's config", "在转换模型配置时"),
    "layers.step.offset": Text("when it places the layers", "在切分各层时"),
    "layers.step.value": Text("when it reads the recompute values", "在解析重计算配置时"),
    "layers.step.exclude": Text("when it compares patterns with exclude patterns", "在比对算子与排除项时"),
    "layers.step.layer": Text("when it sets layer {layer}", "在设置第 {layer} 层时"),
    "layers.step.mtp": Text(
        "when the multi-token-prediction block reads the recompute values once more",
        "在多 token 预测（MTP）模块再次解析重计算配置时",
    ),
    "layers.step.sequence": Text(
        "when it wraps the network for seq_split_num > 1", "在按 seq_split_num > 1 封装网络时"
    ),
    "layers.why.endless-loop": Text(
        "a stage cannot recompute {item} layers, and it counts down to zero from there",
        "某个 stage 的重计算层数为 {item}，程序从该值递减，永远到不了 0",
    ),
    "layers.why.not-a-pattern": Text("'{pattern}' is not a regular expression", "'{pattern}' 不是合法的正则表达式"),
    "layers.why.written-twice": Text(
        "the list is read more than once; the first time, MindFormers wrote NumPy numbers over counts that were too "
        "large or True, and now it does not take them for whole numbers; write exact counts",
        "该列表被多次解析：首次解析时，MindFormers 已把其中超出上限的层数或 True 改写为 NumPy 整数，再次解析时便不再视为合法整数；"
        "请直接写出准确的层数",
    ),
    "layers.interleave-off": Text(
        "pp_interleave_num is {chunks} but parallel.pipeline_config.pipeline_interleave is not on, so there is one chunk.",
        "pp_interleave_num 为 {chunks}，但未开启 parallel.pipeline_config.pipeline_interleave，因此实际只有 1 个 chunk。",
    ),
    "layers.offset-repeated": Text(
        "offset {offset} is added once for each stage or chunk it is spread over: the {chunks} chunk(s) have room for "
        "{slots} layers, the model has {layers}, and the last stages get fewer than meant. Write one number for every "
        "stage of every chunk.",
        "offset {offset} 会被广播，并在每个 stage 或 chunk 上重复累加：{chunks} 个 chunk 共可容纳 {slots} 层，而模型只有 {layers} 层，"
        "末尾的 stage 分到的层数少于预期。请为每个 chunk 的每个 stage 逐一写出 offset。",
    ),
    "layers.offset-ignored": Text(
        "offset {offset} has no effect: there is one stage and one chunk.",
        "offset {offset} 不生效：只有 1 个 stage 和 1 个 chunk。",
    ),
    "layers.offset-rounded": Text(
        "offset {offset} is not made of whole numbers; MindFormers takes {used}.",
        "offset {offset} 不全是整数；MindFormers 实际取值为 {used}。",
    ),
    "layers.ahead-as-last": Text(
        "the {count} multi-token-prediction layer(s) are set as layer {layer}, the last one, is. Their operators lie inside "
        "transformer_layer, one level further down, where most patterns do not look.",
        "{count} 个多 token 预测（MTP）层按最后一层（层 {layer}）的方式设置；其算子位于更深一级的 transformer_layer 之内，多数模式匹配不到。",
    ),
    "layers.stage-empty": Text("no layers at all on stage {stages}.", "以下 stage 上没有任何层：{stages}。"),
    "layers.strings-mean-all": Text(
        "{name} is a list of strings; here that means all layers, whatever the strings say.",
        "{name} 是字符串列表；此处无论字符串内容是什么，都表示所有层。",
    ),
    "layers.list-short": Text(
        "{name} has {given} number(s) for {stages} stages; the stages after them get 0.",
        "{name} 只给出 {given} 个数，而 stage 共有 {stages} 个；其余 stage 按 0 处理。",
    ),
    "layers.count-clamped": Text(
        "{name} asks for more layers than there are ({counts}); MindFormers takes all there are.",
        "{name} 指定的层数超过实际层数（{counts}）；MindFormers 按实际层数处理。",
    ),
    "layers.count-negative": Text(
        "{name} has negative numbers ({counts}); each one works as 0.",
        "{name} 含有负数（{counts}）；实际效果等同于 0。",
    ),
    "layers.cell-negative": Text(
        "a cell has fewer than no layers ({counts}); MindFormers {version} accepts that, and later releases do not.",
        "存在层数为负的单元（{counts}）；MindFormers {version} 不会报错，后续版本则会拒绝。",
    ),
    "layers.core-drops": Text(
        "{keys} has no effect: with use_legacy: False, MindFormers 1.6 hands the model only recompute.",
        "{keys} 不生效：use_legacy: False 时，MindFormers 1.6 只会把 recompute 传给模型。",
    ),
    "layers.swap-dropped": Text(
        "swap_config.swap has no effect: with use_legacy: False MindFormers does not hand swap_config to the model.",
        "swap_config.swap 不生效：use_legacy: False 时，MindFormers 不会把 swap_config 传给模型。",
    ),
    "layers.swap-off": Text(
        "swap is off, so {keys} has no effect.",
        "swap 未开启，{keys} 不生效。",
    ),
    "layers.swap-nothing": Text(
        "swap is on, but no layer and no operator is swapped; an empty list also switches off the default, which is to "
        "swap flash attention in every layer.",
        "已开启 swap，但没有任何层或算子会被 swap；空列表同样会关闭默认策略（对所有层的 flash_attention 进行 swap）。",
    ),
    "layers.swap-no-stage": Text(
        "swap is on and there are {stages} stages, but MindFormers {version} does not set the stage of any layer then "
        "(fixed in 1.8).",
        "已开启 swap 且有 {stages} 个 stage，但此时 MindFormers {version} 不会设置任何层所在的 stage（1.8 已修复）。",
    ),
    "layers.swap-no-exclude": Text("{keys} has no effect while swap is on.", "开启 swap 时，{keys} 不生效。"),
    "layers.swap-recomputed": Text(
        "swap does nothing in layer(s) {layers}: they are recomputed in full, and recompute wins.",
        "swap 在第 {layers} 层不起作用：这些层已完全重计算，以重计算为准。",
    ),
    "layers.swap-select": Text(
        "swap of '{pattern}' does nothing in layer(s) {layers}: the operators are recomputed there, and recompute wins.",
        "'{pattern}' 的 swap 在第 {layers} 层不起作用：这些算子已被重计算，以重计算为准。",
    ),
    "layers.swap-outside": Text(
        "{name} names layers that the model does not have ({layers}); it has layers 0 to {last}.",
        "{name} 中含有模型里不存在的层号（{layers}）；有效层号为 0 到 {last}。",
    ),
    "layers.swap-repeated": Text(
        "{name} holds a number twice ({layers}). With swap on the list names layers and does not count them: is that "
        "what is meant?",
        "{name} 中有重复的数字（{layers}）。开启 swap 后，该列表表示层号而非层数，请确认是否符合本意。",
    ),
    "layers.prefetch-flag": Text(
        "the prefetch of '{pattern}' in op_swap (backward_prefetch or default_prefetch) is True: MindSpore stops with a TypeError "
        "at the first operator that it matches; write a whole number.",
        "op_swap 中 '{pattern}' 的预取值（backward_prefetch 或 default_prefetch）为 True：一旦匹配到算子，MindSpore 即抛出 TypeError 退出；"
        "请写整数。",
    ),
    "layers.swap-shadowed": Text(
        "{name}: layer(s) {layers} are in several entries with different backward_prefetch; the first one counts.",
        "{name}：第 {layers} 层出现在 backward_prefetch 不同的多个条目中；以第一个为准。",
    ),
    "layers.pattern-complex": Text(
        "{key}: '{pattern}' could take very long to match and is not tried here; MindFormers gives up on such a pattern "
        "after a second and takes it for no match.",
        "{key}：'{pattern}' 的匹配可能耗时极长，此处未尝试；MindFormers 对此类模式最多匹配 1 秒，超时按不匹配处理。",
    ),
    "layers.pattern-unmatched": Text(
        "{key}: '{pattern}' matches nothing in a layer of {model}.",
        "{key}：'{pattern}' 在 {model} 的层中匹配不到任何算子。",
    ),
    "layers.pattern-unmatched-default": Text(
        "{key}: none of the default patterns ({pattern}) matches anything in a layer of {model}; name the operators.",
        "{key}：默认模式（{pattern}）在 {model} 的层中均匹配不到任何算子；请写明算子名。",
    ),
    "layers.pattern-cell": Text(
        "{key}: '{pattern}' matches a cell of {model}, not an operator, and has no effect there.",
        "{key}：'{pattern}' 在 {model} 中匹配到的是 Cell 而不是算子，不会生效。",
    ),
    "layers.pattern-invalid": Text(
        "{key}: '{pattern}' is not a regular expression.", "{key}：'{pattern}' 不是合法的正则表达式。"
    ),
    "layers.pattern-empty": Text(
        "{key}: '{pattern}' has an empty part and matches nothing.",
        "{key}：'{pattern}' 含有空的层级，不会匹配任何算子。",
    ),
    "layers.pattern-any": Text(
        "{key}: '{pattern}' ends in a part that matches every attribute of a cell, also those that are no operators; "
        "MindFormers stops with an error at the first such attribute. Name the operator.",
        "{key}：'{pattern}' 的最后一级会匹配 Cell 的所有属性，其中包括并非算子的属性；MindFormers 遇到这类属性即报错退出。"
        "请写明算子名。",
    ),
    "layers.pattern-dot": Text(
        r"{key}: in '{pattern}' a plain dot stands for any one character and does not part two levels, so no operator "
        r"inside a cell is found; '{meant}' is what is meant, most likely.",
        r"{key}：'{pattern}' 中未转义的点号匹配任意单个字符，不是层级分隔符，因此找不到 Cell 内部的算子；本意多半是 '{meant}'。",
    ),
    "layers.pattern-excluded": Text(
        "{key}: '{pattern}' is dropped, because {key}_exclude names it too.",
        "{key}：'{pattern}' 已被移除，因为 {key}_exclude 中也有该项。",
    ),
    "layers.select-hidden": Text(
        "{key} has no effect for {patterns}: every layer it reaches is recomputed in full.",
        "{key} 中的 {patterns} 不生效：所涉及的层均已完全重计算。",
    ),
}
