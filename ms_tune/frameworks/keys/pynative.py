"""Keys of MindFormers 2.x dynamic-graph configs (``mindformers/pynative/config/config.py``, 2.0.0 and 2.1.0).

Every value is checked by ``check_type`` of ``utils.py`` there: an int is no bool, a float may be written as an int,
null only goes where the field is optional, and a field that may be a ``list`` or ``dict`` of anything may be anything.
The sections in :data:`OPEN` take keys of any name.
"""

from __future__ import annotations

from functools import partial

from ms_tune.frameworks.keys import REQUIRED, Key, key

# Classes with ``allow_extra = True``; all others refuse a key that they do not know.
OPEN = ((), ("optimizer",), ("lr_scheduler",), ("train_dataset", "dataloader"), ("model",), ("callbacks", "*"))

_C, _T, _P, _D = "checkpoint.", "training.", "parallelism.", "train_dataset."
_N = "2.1"  # keys that 2.1 added

_int = partial(key, types="int", strict=True)
_bool = partial(key, types="bool", strict=True)
_str = partial(key, types="str", strict=True)
_float = partial(key, types="float", strict=True)
_ways = partial(key, types="int", default=1, strict=True, least=1)

_SECTIONS = (
    *(
        key(name, "list[dict]" if name == "callbacks" else "dict", REQUIRED if needed else None, en, zh, strict=True)
        for name, needed, en, zh in (
            ("checkpoint", False, "saving and loading weights", "权重保存与加载"),
            ("training", False, "steps and batch sizes", "步数与批大小"),
            ("parallelism", False, "how the job is split over devices", "并行切分"),
            ("optimizer", False, "the optimizer", "优化器"),
            ("lr_scheduler", True, "the learning rate", "学习率"),
            ("train_dataset", True, "training data", "训练数据"),
            ("train_dataset.dataloader", True, "how data is read", "数据读取"),
            ("model", True, "the model", "模型"),
            ("monitor", False, "what is logged while training", "训练监控"),
            ("monitor.health_checkpoint", False, "read by nothing", "从不读取"),
            ("monitor.train_state", False, "norms and losses to log", "要监控的范数与损失"),
            ("monitor.tensorboard", False, "TensorBoard", "TensorBoard 设置"),
            ("monitor.moe_monitor", False, "load of the experts", "专家负载监控"),
            ("context", False, "settings of MindSpore", "MindSpore 运行环境"),
            ("profiler", False, "collecting performance data", "性能采集"),
            ("recompute", False, "what is computed again", "重计算"),
            ("recompute_comm", False, "what is communicated again", "通信重计算"),
            ("swap", False, "what is offloaded to the host", "激活值卸载"),
            ("callbacks", False, "what is called while training", "训练回调"),
        )
    ),
    key("lora_config", "dict|null", None, "low-rank adaptation", "LoRA 微调", strict=True),
    key("inference", "dict|null", None, "greedy generation", "推理设置", strict=True, since=_N),
    _str("run_mode", default="train", choices=("train", "predict"), en="train or predict", zh="运行模式", since=_N),
)

_CHECKPOINT = (
    _bool(_C + "enable_save", default=True, en="save weights", zh="保存权重"),
    _str(_C + "save_path", default="", en="where weights are saved", zh="保存路径"),
    _int(_C + "save_max", default=5, en="checkpoints to keep", zh="最多保留的权重数"),
    _int(_C + "save_interleaved_steps", default=1000, en="steps between two checkpoints", zh="保存间隔（步）"),
    _bool(_C + "no_save_optim", default=False, en="do not save the optimizer's state", zh="不保存优化器状态"),
    _bool(_C + "async_save", default=False, en="save while training", zh="异步保存"),
    key(_C + "prefix", "str|null", "checkpoint", "prefix of file names", "文件名前缀", strict=True),
    _bool(_C + "remove_redundancy", default=False, en="save each weight once", zh="去冗余保存"),
    _str(_C + "load_path", default="", en="where weights are loaded from", zh="加载路径"),
    _bool(_C + "save_trainable_only", default=False, en="save trained weights only", zh="只保存可训练权重", since=_N),
    _str(
        _C + "base_load_path",
        default="",
        en="the full weights below an adapter",
        zh="适配器对应的完整基础权重",
        since=_N,
    ),
    _bool(_C + "load_balanced", default=False, en="spread loading over ranks", zh="均衡加载"),
    _bool(_C + "no_load_optim", default=False, en="do not load the optimizer's state", zh="不加载优化器状态"),
    _int(_C + "load_worker_number", default=1, en="read by nothing", zh="从不读取", state="dead"),
    _bool(_C + "save_global_layout_cache", default=True, en="keep the layout of all ranks", zh="缓存全局切分信息"),
    _int(_C + "reshard_worker_num", default=1, en="threads that reshard", zh="权重重切分线程数", since=_N),
)

_TRAINING = (
    _int(_T + "steps", default=1000, en="training steps", zh="训练步数"),
    _int(_T + "local_batch_size", default=1, above=0, en="samples of a micro-batch", zh="微批次的样本数"),
    _int(
        _T + "global_batch_size", default=1, above=0, en="samples of a step over all devices", zh="所有设备每步的样本数"
    ),
    _float(_T + "max_norm", default=1.0, en="largest gradient norm", zh="梯度裁剪阈值"),
    _bool(
        _T + "use_skip_step_on_nan",
        default=False,
        en="skip steps with NaN gradients",
        zh="梯度为 NaN 时跳过该步",
        since=_N,
    ),
    _int(
        _T + "max_consecutive_skipped_steps",
        default=0,
        least=0,
        en="skipped steps before the run stops",
        zh="连续跳过多少步后停止",
        since=_N,
    ),
    _int(_T + "seed", default=42, en="random seed", zh="随机种子"),
    _bool(_T + "deterministic", default=False, en="deterministic computation", zh="确定性计算"),
    key(
        _T + "rampup_batch_size",
        "list[int]|null",
        None,
        "start, increment and samples of a growing batch",
        "批大小爬坡：起始值、增量、样本数",
        strict=True,
        since=_N,
    ),
)

_PARALLELISM = (
    _int(
        _P + "data_parallel_shard",
        default=-1,
        en="ranks that weights are sharded over; -1 for all",
        zh="权重切分的 rank 数，-1 表示全部",
    ),
    _str(
        _P + "data_parallel_shard_strategy",
        default="optim_grads_params",
        en="read by nothing",
        zh="从不读取",
        state="dead",
    ),
    _str(
        _P + "reshard_after_forward_policy",
        default="default",
        choices=("always", "never", "default"),
        en="free gathered weights after the forward pass",
        zh="前向后是否释放聚合的权重",
    ),
    _bool(_P + "cpu_offload", default=False, en="keep shards on the host", zh="权重分片卸载到主机"),
    _bool(_P + "disable_gradient_division", default=True, en="sum gradients", zh="梯度求和而不求平均"),
    key(
        _P + "dense_fsdp_shard_size",
        "int|null",
        None,
        "ranks that dense weights are sharded over",
        "稠密权重的切分 rank 数",
        strict=True,
    ),
    _ways(_P + "tensor_parallel", en="tensor-parallel size", zh="张量并行数"),
    _ways(_P + "context_parallel", en="context-parallel size", zh="上下文并行数"),
    _str(
        _P + "context_parallel_method",
        default="colossal",
        choices=("colossal", "ulysses", "hybrid"),
        en="context-parallel algorithm",
        zh="上下文并行算法",
    ),
    _bool(_P + "context_parallel_async", default=False, en="asynchronous context parallelism", zh="异步上下文并行"),
    key(
        _P + "ulysses_degree_in_cp",
        "int|null",
        None,
        "Ulysses part of hybrid context parallelism",
        "混合上下文并行中的 Ulysses 并行数",
        strict=True,
    ),
    _str(_P + "context_parallel_mask_type", default="causal", choices=("causal",), en="kind of mask", zh="掩码类型"),
    _ways(_P + "pipeline_parallel", en="pipeline stages", zh="流水线阶段数"),
    key(
        _P + "pipeline_parallel_layers_per_stage",
        "list[str]|list[list[int]]|str|null",
        "auto",
        "layers of each stage",
        "各阶段的层",
        strict=True,
    ),
    _str(_P + "pipeline_parallel_schedule", default="1f1b", en="order of micro-batches", zh="流水线调度方式"),
    _int(
        _P + "pipeline_parallel_microbatch_size",
        default=1,
        en="overwritten by the accumulation steps",
        zh="会被梯度累加步数覆盖",
        state="dead",
    ),
    # No least value: without stages it is not looked at.
    _int(_P + "pipeline_parallel_interleave_num", default=1, en="chunks of a stage", zh="每个阶段的交织块数"),
    _bool(
        _P + "pipeline_parallel_overlap_p2p",
        default=False,
        en="send between stages while computing",
        zh="阶段间通信与计算并行",
    ),
    _bool(_P + "pipeline_parallel_overlap_b_f", default=False, en="overlap backward and forward", zh="前反向并行"),
    _bool(_P + "pipeline_parallel_enable_dxdw_split", default=False, en="split the backward pass", zh="拆分 dx 与 dw"),
    _str(
        _P + "pipeline_parallel_p2p_transport",
        default="plain",
        choices=("plain", "auto"),
        en="how stages send",
        zh="阶段间通信方式",
    ),
    _bool(_P + "sequence_parallel", default=False, en="sequence parallelism", zh="序列并行"),
    _bool(_P + "enable_mc2", default=False, en="fuse products with communication", zh="通算融合"),
    _bool(_P + "enable_loss_parallel", default=False, en="split the loss over the vocabulary", zh="按词表切分损失"),
    _ways(_P + "expert_parallel", en="expert-parallel size", zh="专家并行数"),
    _int(_P + "npu_nums_per_device", default=8, en="cards of a node", zh="每个节点的卡数"),
    _str(
        _P + "moe_token_dispatcher_type",
        default="alltoall",
        choices=("alltoall", "alltoall_deredundancy"),
        en="how tokens are sent",
        zh="token 分发方式",
    ),
    _bool(
        _P + "expert_parallel_async_d2h", default=False, en="copy counts while permuting", zh="异步拷贝计数", since=_N
    ),
    _bool(
        _P + "expert_parallel_use_safe_tokens",
        default=True,
        en="a token for every expert",
        zh="为每个专家补一个 token",
        since=_N,
    ),
)

_OPTIMIZATION = (
    _str("optimizer.type", default="AdamW", en="the optimizer", zh="优化器"),
    key("optimizer.betas", "list[float]", (0.9, 0.95), "coefficients of Adam", "Adam 系数", strict=True),
    _float("optimizer.eps", default=1e-8, en="smallest divisor of Adam", zh="Adam 的 eps"),
    _float("optimizer.weight_decay", default=0.01, en="weight decay", zh="权重衰减"),
    key(
        "optimizer.weight_decay_include",
        "list[str]|null",
        None,
        "parameters with weight decay",
        "做权重衰减的参数",
        strict=True,
    ),
    key(
        "optimizer.weight_decay_exclude",
        "list[str]|null",
        None,
        "parameters without weight decay",
        "不做权重衰减的参数",
        strict=True,
    ),
    _str("lr_scheduler.type", default=REQUIRED, en="shape of the learning rate", zh="学习率调度类型"),
    _float("lr_scheduler.learning_rate", default=1e-5, en="largest learning rate", zh="最大学习率"),
)

_DATA = (
    _str(_D + "dataloader.type", default=REQUIRED, en="kind of data", zh="数据加载类型"),
    _bool(_D + "dataloader.shuffle", default=False, en="shuffle the data", zh="打乱数据"),
    key(
        _D + "dataloader.column_names", "list[str]", ("input_ids", "labels"), "columns to read", "读取的列", strict=True
    ),
    _bool(_D + "dataloader.python_multiprocessing", default=False, en="processes instead of threads", zh="使用多进程"),
    _bool(_D + "drop_remainder", default=True, en="drop the last, smaller batch", zh="丢弃不足一批的数据"),
    _int(_D + "num_parallel_workers", default=8, en="workers that read", zh="数据处理线程数"),
    _int(_D + "prefetch_size", default=1, en="batches read ahead", zh="预取批数"),
    _bool(_D + "numa_enable", default=False, en="bind to memory nodes", zh="NUMA 绑定"),
    _bool(
        _D + "use_distribute_dataset",
        default=False,
        en="one rank reads for its neighbours",
        zh="由一个 rank 读取后广播",
    ),
    _bool(_D + "balance_enabled", default=False, en="balance attention load", zh="均衡注意力负载", since=_N),
    _str("model.model_type", default=REQUIRED, en="kind of model", zh="模型类型"),
    _str("model.architectures", default=REQUIRED, en="class of the model", zh="模型类名"),
    _str("callbacks.*.type", default=REQUIRED, en="the callback", zh="回调类型"),
)

_MONITOR = (
    *(
        key(
            f"monitor.health_checkpoint.{name}",
            types,
            default,
            "read by nothing",
            "从不读取",
            state="dead",
            strict=True,
        )
        for name, types, default in (
            ("embedding_local_norm_threshold", "float", 100.0),
            ("global_norm_skip_threshold", "float", 100.0),
            ("global_norm_skip_time", "int", 10),
        )
    ),
    key(
        "monitor.train_state.local_norm",
        "bool|str|list[str]",
        "",
        "norms of each gradient",
        "各参数梯度范数",
        strict=True,
    ),
    _bool("monitor.train_state.local_loss", default=False, en="loss of each rank", zh="各 rank 损失"),
    key(
        "monitor.train_state.device_norm",
        "bool|str|list[str]",
        default=False,
        en="norms of each device",
        zh="各设备范数",
        strict=True,
    ),
    _bool("monitor.train_state.device_loss", default=False, en="loss of each device", zh="各设备损失"),
    _str("monitor.tensorboard.output_dir", default="", en="where logs are written", zh="日志目录", since=_N),
    _int("monitor.tensorboard.log_interval", default=1, en="steps between two logs", zh="记录间隔（步）", since=_N),
    _int("monitor.tensorboard.queue_size", default=1000, en="events kept in memory", zh="事件队列长度", since=_N),
    _str(
        "monitor.tensorboard.tensorboard_dir",
        default="",
        en="read by nothing",
        zh="从不读取",
        until="2.0",
        state="dead",
    ),
    _int(
        "monitor.tensorboard.tensorboard_log_interval",
        default=1,
        en="read by nothing",
        zh="从不读取",
        until="2.0",
        state="dead",
    ),
    _int(
        "monitor.tensorboard.tensorboard_queue_size",
        default=1000,
        en="read by nothing",
        zh="从不读取",
        until="2.0",
        state="dead",
    ),
    key(
        "monitor.moe_monitor.save_tokens_per_expert_interval",
        "int|null",
        None,
        "steps between two records",
        "记录间隔",
        strict=True,
        above=0,
    ),
    key(
        "monitor.moe_monitor.target_layers",
        "int|list[int]|null",
        None,
        "layers to record",
        "记录的层",
        strict=True,
        above=0,
    ),
)

_RUNTIME = (
    _int("context.mode", default=1, en="dynamic graph", zh="动态图"),
    _str("context.max_device_memory", default="59GB", en="read by nothing", zh="从不读取", state="dead"),
    _str("context.device_target", default="Ascend", en="read by nothing", zh="从不读取", state="dead"),
    _bool("profiler.enable_profiling", default=False, en="collect performance data", zh="采集性能数据"),
    _int("profiler.start_step", default=1, above=0, en="first step that is profiled", zh="采集起始步"),
    _int("profiler.end_step", default=1, above=0, en="last step that is profiled", zh="采集结束步"),
    key("profiler.output_path", "str|null", None, "where data is written", "保存路径", strict=True),
    key("profiler.profiler_rank", "list[int]|null", None, "ranks to profile", "采集的 rank", strict=True),
    _int("profiler.profiler_level", default=0, en="how much is collected: 0, 1 or 2", zh="采集级别：0、1 或 2"),
    _bool("profiler.mstx", default=False, en="light-weight marks", zh="轻量打点"),
    _bool("profiler.profile_memory", default=False, en="collect memory data", zh="采集内存数据"),
    _bool("profiler.profile_cpu", default=True, en="collect host data", zh="采集 CPU 数据"),
    _bool("profiler.with_stack", default=True, en="collect Python stacks", zh="采集 Python 调用栈"),
)

_MEMORY = (
    _str("recompute.mode", default="None", en="None, full or select, as a text", zh="字符串 None、full 或 select"),
    key("recompute.full_recompute_layer", "list|null", None, "layers recomputed in full", "完全重计算的层"),
    key(
        "recompute.select_module",
        "dict|list|null",
        None,
        "modules to recompute, with their layers",
        "选择重计算的模块及其层",
    ),
    key("recompute.exclude_op", "dict|list|null", None, "what is not recomputed", "重计算的排除项"),
    _bool("recompute_comm.enable", default=False, en="communication recompute", zh="通信重计算"),
    key(
        "recompute_comm.select_module",
        "dict|list|null",
        None,
        "communication to repeat, with its layers",
        "通信重计算的算子及其层",
    ),
    _bool("swap.enable", default=False, en="offload activations", zh="卸载激活值"),
    _int("swap.default_prefetch", default=1, en="layers fetched back ahead", zh="提前取回的层数"),
    key("swap.layer_swap", "list|dict|null", None, "layers to offload", "要卸载的层"),
    key("swap.op_swap", "list|dict|null", None, "operators to offload", "要卸载的算子"),
)

_OTHER = (
    _str("lora_config.target_modules", default="", en="pattern of the layers to adapt", zh="微调层的匹配模式"),
    key("lora_config.exclude_layers", "str|null", None, "pattern of layers left out", "排除层的匹配模式", strict=True),
    _int("lora_config.lora_rank", default=8, en="rank", zh="秩"),
    _int("lora_config.lora_alpha", default=16, en="scale", zh="缩放系数"),
    _float("lora_config.lora_dropout", default=0.0, en="dropout", zh="随机失活率"),
    _float("lora_config.lora_a_std", default=0.01, en="spread of the first matrix", zh="A 矩阵初始化标准差"),
    _float("lora_config.lora_b_std", default=0.0, en="spread of the second matrix", zh="B 矩阵初始化标准差"),
    _int("inference.max_new_tokens", default=50, above=0, en="tokens to generate", zh="生成长度", since=_N),
    _int("inference.batch_size", default=8, above=0, en="samples at once", zh="推理批大小", since=_N),
    _str("inference.output", default="inference_result.jsonl", en="file of results", zh="结果文件", since=_N),
    key("inference.input_data", "str|list|dict|null", None, "prompts", "输入", since=_N),
)

KEYS: tuple[Key, ...] = (
    *(*_SECTIONS, *_CHECKPOINT, *_TRAINING, *_PARALLELISM, *_OPTIMIZATION, *_DATA, *_MONITOR, *_RUNTIME, *_MEMORY),
    *_OTHER,
)
