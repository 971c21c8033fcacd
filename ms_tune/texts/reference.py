"""Texts about ms-tune's reference transformer: what it cannot run, and what its figures leave out."""

from ms_tune.texts import Text

TEXTS = {
    "reference.help": Text(
        "run ms-tune's reference transformer even where the framework of a dynamic-graph config is installed",
        "即使已安装动态图配置所属的框架，也使用 ms-tune 参考模型",
    ),
    "reference.run.log": Text(
        "its whole output is in {log}; --reference runs ms-tune's reference transformer instead",
        "完整输出见 {log}；也可以用 --reference 改为运行 ms-tune 参考模型",
    ),
    "reference.by-framework": Text("the config's own model in {framework}", "{framework} 中该配置的模型"),
    "reference.not-included.data": Text(
        "the data set: tokens and an attention mask of (batch, 1, sequence, sequence) in bytes stand for it",
        "数据集：以 token 和形状为 (batch, 1, sequence, sequence)、每元素一字节的注意力掩码代替",
    ),
    "reference.unlike-theory": Text(
        "{content}: {measured} bytes at the peak, {theory} by arithmetic from the model's sizes",
        "{content}：峰值处为 {measured} 字节，按模型尺寸计算应为 {theory} 字节",
    ),
    "reference.no-placement": Text(
        "the config does not say which layers each pipeline stage has", "配置没有说明每个流水线阶段包含哪些层"
    ),
    "reference.devices": Text(
        "{devices} devices cannot be split into copies of the model of {size} devices each",
        "{devices} 张卡无法划分成每份 {size} 张卡的模型副本",
    ),
    "reference.expert-ranks": Text(
        "{key} is {ways}, but {ranks} ranks that see different tokens cannot be split by it",
        "{key} 为 {ways}，而处理不同 token 的 {ranks} 个 rank 无法按它划分",
    ),
    "reference.not-divisible": Text(
        "{key} ({size}) must be divisible by {ways} ({by})", "{key}（{size}）必须能被 {ways}（{by}）整除"
    ),
    "reference.experts-and-context": Text(
        "MindSpeed-Core-MS does not combine expert parallelism with context parallelism and stops with a RuntimeError",
        "MindSpeed-Core-MS 不支持专家并行与上下文并行同时使用，会报 RuntimeError 退出",
    ),
    "reference.experts-need-sequence": Text(
        "with tensor parallelism, MindSpeed-Core-MS trains experts with parallel_config.sequence_parallel only and stops "
        "with a ValueError",
        "使用张量并行训练 MoE 时，MindSpeed-Core-MS 要求打开 parallel_config.sequence_parallel，否则报 ValueError 退出",
    ),
    "reference.tensor-needs-sequence": Text(
        "parallelism.tensor_parallel needs parallelism.sequence_parallel: True; MindFormers 2.1 stops without it",
        "parallelism.tensor_parallel 需要 parallelism.sequence_parallel: True，否则 MindFormers 2.1 会报错退出",
    ),
    "reference.not-included.swap": Text(
        "swap to the host: the layers' activations stay on the device here",
        "swap 到主机：此处各层激活都留在设备上",
    ),
    "reference.not-included.comm-recompute": Text(
        "recompute of communication (recompute_comm): what it frees is kept here",
        "通信重计算（recompute_comm）：它能释放的内存在此仍保留",
    ),
    "reference.not-included.exclude": Text(
        "operators excluded from recompute (exclude_op): they are recomputed here",
        "重计算排除的算子（exclude_op）：此处仍然重计算",
    ),
    "reference.not-included.pattern": Text(
        "recompute of '{pattern}', which names no module of the reference transformer",
        "对 '{pattern}' 的重计算：参考模型中没有这个模块",
    ),
    "reference.not-included.dropout": Text("masks of dropout", "dropout 的掩码"),
    "reference.not-included.clipping": Text("short-lived tensors of gradient clipping", "梯度裁剪时的临时张量"),
    "reference.not-included.uniform": Text(
        "recompute of several layers as one (recompute_method: uniform): each layer keeps its own input here",
        "多层合并为一段重计算（recompute_method: uniform）：此处每层各自保留输入",
    ),
    "reference.not-included.chunk-loss": Text(
        "the loss in parts (chunk_loss_num): it is computed at once here",
        "分块计算损失（chunk_loss_num）：此处一次算完",
    ),
    "reference.not-included.dispatcher": Text(
        "the token dispatcher '{dispatcher}': tokens go by all-to-all here",
        "token 分发方式 '{dispatcher}'：此处使用 all-to-all",
    ),
    "reference.not-included.routing": Text(
        "uneven routing: every expert gets the same number of tokens here, the busiest rank of a real run gets more",
        "路由不均衡：此处每个专家收到的 token 数相同，真实训练中最忙的 rank 会更多",
    ),
    "reference.not-included.reshard": Text(
        "reshard_after_forward_policy: always for the output projection: its weight stays between its forward and its "
        "backward pass here",
        "reshard_after_forward_policy: always 对输出层的作用：此处输出层权重在前向与反向之间不释放",
    ),
    "reference.not-included.sharding": Text(
        "HyperParallel itself: sharded weights are gathered, freed and reduced here as in its public sources, and no run "
        "was compared with it",
        "HyperParallel 本身：此处按其公开源码聚合、释放切分权重并规约梯度，未与实际运行对照",
    ),
    "reference.defaults": Text(
        "sizes that the config does not give are those of MindFormers' class for model_type {kind}: {keys}",
        "配置中未给出的尺寸取自 MindFormers 中 model_type {kind} 对应配置类的默认值：{keys}",
    ),
}
