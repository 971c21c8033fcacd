"""Keys of MindSpeed-Core-MS r0.1.0 configs, all sections but ``model_config`` (``mindspeed_ms/core/config.py``).

The library's validators are strict: an int is not a bool, a float not an int. What no signature declares and some
other file reads all the same is listed too.
"""

from __future__ import annotations

from functools import partial

from ms_tune.frameworks.keys import REQUIRED, Key, key

_int = partial(key, types="int", strict=True)
_count = partial(key, types="int|null", strict=True, above=0)
_bool = partial(key, types="bool", strict=True)
_switch = partial(key, types="bool|null", strict=True)
_str = partial(key, types="str", strict=True)
_float = partial(key, types="float", strict=True, least=0)
_loose = partial(key, types="")

_T, _P, _D, _O, _E, _L = (f"{name}_config." for name in ("training", "parallel", "dataset", "optimizer", "moe", "lora"))

_SECTIONS = (
    key("training_config", "dict", None, "how to train", "训练设置"),
    key("parallel_config", "dict", REQUIRED, "how the job is split over devices", "并行切分设置"),
    key("dataset_config", "dict", None, "data and batch sizes", "数据与批大小设置"),
    key("model_config", "dict", None, "the model", "模型结构设置"),
    key("optimizer_config", "dict", None, "optimizer and learning rate", "优化器与学习率设置"),
    key("moe_config", "dict", None, "mixture of experts", "MoE 设置"),
    key("lora_config", "dict", None, "low-rank adaptation", "LoRA 微调设置"),
    key("general_config", "dict", None, "settings for the user's own script", "供用户脚本使用的通用设置"),
)

_TRAINING = (
    _count(_T + "seed", default=None, en="random seed", zh="随机种子"),
    _str(_T + "output_dir", default="./output", en="where results are written", zh="输出目录"),
    _int(
        _T + "training_iters",
        default=0,
        least=0,
        en="training steps; or give train_samples",
        zh="训练步数；也可改用 train_samples",
    ),
    _count(_T + "epochs", default=None, en="passes over the data", zh="训练轮数"),
    _count(_T + "log_interval", default=None, en="steps between two log lines", zh="日志打印间隔（步）"),
    _count(_T + "eval_interval", default=None, en="steps between two evaluations", zh="评估间隔（步）"),
    _count(_T + "save_interval", default=None, en="steps between two checkpoints", zh="权重保存间隔（步）"),
    key(
        _T + "best_metric_comparison",
        "str|null",
        None,
        "how to tell the best metric",
        "最优指标的比较方式",
        strict=True,
        choices=("less_equal", "greater_equal", "less", "greater"),
    ),
    key(_T + "eval_metric", "str|null", None, "the metric to evaluate", "评估指标", strict=True),
    _loose(_T + "grad_clip_kwargs", default=None, en="arguments of gradient clipping", zh="梯度裁剪参数"),
    key(_T + "loss_scale", "int|float|null", None, "fixed loss scale", "固定的损失缩放系数", strict=True, above=0),
    key(
        _T + "loss_scale_value",
        "int|float|null",
        None,
        "first dynamic loss scale",
        "动态损失缩放初值",
        strict=True,
        above=0,
    ),
    _count(_T + "loss_scale_factor", default=None, en="factor of the dynamic loss scale", zh="动态损失缩放倍率"),
    _count(
        _T + "loss_scale_window", default=None, en="steps before the loss scale grows", zh="动态损失缩放增大前的步数"
    ),
    _str(
        _T + "loss_reduction",
        default="mean",
        choices=("mean", "sum"),
        en="how losses are put together",
        zh="损失归约方式",
    ),
    _loose(_T + "calculate_per_token_loss", default=False, en="average the loss over tokens", zh="按 token 平均损失"),
    _bool(
        _T + "wrap_with_ddp", default=False, en="gradient buffers for data parallelism", zh="使用数据并行的梯度缓冲区"
    ),
    _bool(
        _T + "accumulate_allreduce_grads_in_fp32",
        default=False,
        en="accumulate gradients in float32",
        zh="以 float32 累加梯度",
    ),
    _bool(_T + "overlap_grad_reduce", default=False, en="reduce gradients while computing", zh="梯度规约与计算并行"),
    _bool(_T + "delay_grad_reduce", default=False, en="delay the reduction of the first stages", zh="推迟梯度规约"),
    _bool(
        _T + "use_distributed_optimizer",
        default=False,
        en="shard the optimizer's state over data-parallel ranks",
        zh="在数据并行维度切分优化器状态",
    ),
    _count(_T + "bucket_size", default=None, en="elements of a gradient bucket", zh="梯度桶大小（元素数）"),
    _bool(_T + "check_for_nan_in_grad", default=False, en="stop at NaN gradients", zh="检查梯度中的 NaN"),
    _bool(_T + "fp16", default=False, en="train in float16", zh="float16 训练"),
    _bool(_T + "bf16", default=False, en="train in bfloat16", zh="bfloat16 训练"),
    _bool(_T + "resume_training", default=False, en="go on from a checkpoint", zh="断点续训"),
    _bool(_T + "crc_check", default=False, en="check sums in checkpoints", zh="权重 CRC 校验"),
    _str(_T + "load_checkpoint", default="", en="the checkpoint to load", zh="要加载的权重"),
    _bool(_T + "enable_compile_cache", default=False, en="keep compiled graphs", zh="保留编译缓存"),
    key(_T + "compile_cache_path", "str|null", None, "where compiled graphs are kept", "编译缓存路径", strict=True),
    _str(_T + "ckpt_format", default="ckpt", en="format of checkpoints", zh="权重格式"),
    _loose(_T + "prefix", default="network", en="prefix of checkpoint names", zh="权重文件名前缀"),
    _count(_T + "keep_checkpoint_max", default=5, en="checkpoints to keep", zh="最多保留的权重数"),
    _switch(_T + "no_load_optim", default=False, en="do not load the optimizer's state", zh="不加载优化器状态"),
    _switch(_T + "no_load_rng", default=True, en="do not load the random state", zh="不加载随机数状态"),
    _bool(_T + "new_dataset", default=False, en="start the data from its beginning", zh="数据集从头开始"),
    _loose(_T + "enable_mem_align", default=False, en="align gradient buffers", zh="梯度缓冲区对齐"),
    _loose(_T + "loss_func_kwargs", default=None, en="the loss function and its arguments", zh="损失函数及其参数"),
    _loose(_T + "lora_config", default=None, en="low-rank adaptation", zh="LoRA 微调设置"),
    _loose(_T + "dataset_config", default=None, en="filled in by the library", zh="由库自动填入"),
    _loose(_T + "parallel_config", default=None, en="filled in by the library", zh="由库自动填入"),
    _bool(_T + "profile", default=False, en="collect performance data", zh="采集性能数据"),
    key(
        _T + "profile_save_path", "str|null", None, "where performance data is written", "性能数据保存路径", strict=True
    ),
    _int(_T + "profile_step_start", default=1, above=0, en="first step that is profiled", zh="性能采集起始步"),
    _int(_T + "profile_step_end", default=5, above=0, en="last step that is profiled", zh="性能采集结束步"),
    _str(
        _T + "profile_level",
        default="level0",
        choices=("level0", "level1", "level2"),
        en="how much is collected",
        zh="采集级别",
    ),
    _bool(_T + "profile_with_stack", default=False, en="collect Python stacks", zh="采集 Python 调用栈"),
    _bool(_T + "profile_memory", default=False, en="collect memory data", zh="采集内存数据"),
    _str(
        _T + "profile_framework",
        default="all",
        choices=("all", "time", "None"),
        en="what to collect on the host",
        zh="框架侧采集内容",
    ),
    _bool(_T + "profile_communication", default=False, en="collect communication data", zh="采集通信数据"),
    _bool(_T + "profile_parallel_strategy", default=False, en="collect the parallel strategy", zh="采集并行策略"),
    key(
        _T + "profile_aicore_metrics",
        "int|null",
        0,
        "which core metrics",
        "AI Core 指标类型",
        strict=True,
        least=-1,
        most=6,
    ),
    _bool(_T + "profile_l2_cache", default=False, en="collect cache data", zh="采集 L2 缓存数据"),
    _bool(_T + "profile_hbm_ddr", default=False, en="collect memory bandwidth", zh="采集显存带宽"),
    _bool(_T + "profile_pcie", default=False, en="collect PCIe data", zh="采集 PCIe 数据"),
    _bool(_T + "profile_data_process", default=False, en="collect data-processing times", zh="采集数据处理耗时"),
    _bool(_T + "profile_data_simplification", default=False, en="keep less data", zh="精简性能数据"),
    _bool(_T + "profile_op_time", default=True, en="collect operator times", zh="采集算子耗时"),
    _bool(_T + "profile_offline_analyse", default=False, en="analyse later", zh="离线解析"),
    _str(
        _T + "profile_dynamic_profiler_config_path",
        default="",
        en="settings that may change while running",
        zh="动态采集配置路径",
    ),
)

_PARALLEL = (
    _int(_P + "tensor_model_parallel_size", default=1, above=0, en="tensor-parallel size", zh="张量并行数"),
    _int(_P + "pipeline_model_parallel_size", default=1, above=0, en="pipeline stages", zh="流水线阶段数"),
    _int(_P + "context_parallel_size", default=1, above=0, en="context-parallel size", zh="上下文并行数"),
    key(
        _P + "context_parallel_algo",
        "str|null",
        "ulysses_cp_algo",
        "context-parallel algorithm",
        "上下文并行算法",
        choices=("ulysses_cp_algo", "megatron_cp_algo", "hybrid_cp_algo"),
        strict=True,
    ),
    _loose(
        _P + "ulysses_degree_in_cp",
        default=None,
        en="Ulysses part of hybrid context parallelism",
        zh="混合上下文并行中的 Ulysses 并行数",
    ),
    _int(_P + "expert_model_parallel_size", default=1, above=0, en="expert-parallel size", zh="专家并行数"),
    _count(
        _P + "virtual_pipeline_model_parallel_size",
        default=None,
        en="virtual pipeline chunks of a stage",
        zh="每个阶段的虚拟流水线块数",
    ),
    _bool(_P + "sequence_parallel", default=False, en="sequence parallelism", zh="序列并行"),
    _str(
        _P + "recv_dtype",
        default="float32",
        choices=("float16", "float32", "bfloat16"),
        en="type of what stages send",
        zh="阶段间通信的数据类型",
    ),
    key(
        _P + "zero_level",
        "str|null",
        None,
        "ZeRO without gradient buffers",
        "不使用梯度缓冲区时的 ZeRO 级别",
        strict=True,
        choices=("z1", "z2", "z3"),
    ),
    _loose(
        _P + "standalone_embedding_stage", default=False, en="a stage for the embedding alone", zh="词嵌入独占一个阶段"
    ),
    _loose(_P + "overlap_grad_reduce", default=False, en="set by the library", zh="由库自动填入"),
    _bool(_P + "gradient_accumulation_fusion", default=False, en="fuse gradient accumulation", zh="融合梯度累加"),
    _bool(_P + "overlap_p2p_comm", default=True, en="send between stages while computing", zh="阶段间通信与计算并行"),
    _bool(_P + "use_cpu_initialization", default=False, en="not implemented", zh="尚未实现"),
    _bool(_P + "deterministic_mode", default=False, en="not implemented", zh="尚未实现"),
    key(_P + "num_layer_list", "list|str|null", None, "layers of each stage", "各阶段的层数", strict=True),
    key(
        _P + "recompute_config",
        "dict|null",
        None,
        "layers to recompute, for each stage",
        "各阶段的重计算层数",
        strict=True,
    ),
    key(_P + "recompute", "str|null", None, "recompute as a text", "以字符串书写的完全重计算"),
    key(_P + "select_recompute", "str|null", None, "selective recompute as a text", "以字符串书写的选择重计算"),
    key(
        _P + "select_comm_recompute", "str|null", None, "communication recompute as a text", "以字符串书写的通信重计算"
    ),
    _loose(_P + "variable_seq_lengths", default=False, en="sequences of different lengths", zh="变长序列"),
    key(
        _P + "num_layers_per_virtual_pipeline_stage",
        "",
        None,
        "stored and read by nothing",
        "只保存，从不读取",
        state="dead",
    ),
    *(
        key(f"{_P}recompute_config.{name}", "list|bool|null", None, en, zh)
        for name, en, zh in (
            ("recompute", "layers recomputed in full", "完全重计算的层数"),
            ("select_recompute", "further layers with selective recompute", "在其后做选择重计算的层数"),
            ("select_comm_recompute", "further layers that gather again", "在其后做通信重计算的层数"),
        )
    ),
)

_DATASET = (
    _str(_D + "dataset_dir", default="./dataset", en="where the data is", zh="数据集目录"),
    key(_D + "shuffle", "bool|null", default=False, en="shuffle the data", zh="打乱数据", strict=True),
    _int(_D + "batch_size", default=1, above=0, en="samples of a micro-batch", zh="微批次的样本数"),
    _int(_D + "micro_batch_num", default=1, above=0, en="micro-batches of a step", zh="每步的微批次数"),
    _int(
        _D + "train_samples",
        default=0,
        least=0,
        en="training samples; or give training_iters",
        zh="训练样本数；也可改用 training_iters",
    ),
    _str(_D + "data_layout", default="BSH", choices=("BSH", "SBH"), en="order of the dimensions", zh="数据排布"),
    _int(_D + "eos_token_id", default=0, least=0, en="token that ends a text", zh="文本结束符"),
    _loose(_D + "drop_remainder", default=None, en="drop the last, smaller batch", zh="丢弃不足一批的数据"),
    _loose(
        _D + "reset_attention_mask", default=None, en="no attention over the end of a text", zh="注意力不跨越文本结束符"
    ),
    _loose(_D + "reset_position_ids", default=None, en="positions start again in each text", zh="每段文本重新计位置"),
    _loose(_D + "eod_mask_loss", default=None, en="no loss at the end of a text", zh="文本结束处不计损失"),
    _loose(_D + "pad_token_id", default=None, en="token that fills up", zh="填充符"),
)

_OPTIMIZER = (
    _str(_O + "optimizer_type", default="AdamWeightDecay", en="the optimizer", zh="优化器"),
    key(_O + "learning_rate", "float", 0.001, "largest learning rate", "最大学习率", strict=True, above=0),
    key(
        _O + "learning_rate_scheduler_kwargs",
        "dict|null",
        None,
        "arguments of the scheduler",
        "学习率调度参数",
        strict=True,
    ),
    _float(_O + "weight_decay", default=0.0, en="weight decay", zh="权重衰减"),
    key(
        _O + "start_weight_decay",
        "float|int",
        REQUIRED,
        "weight decay at the start; read without a default",
        "起始权重衰减，读取时没有默认值",
        strict=True,
        least=0,
    ),
    _float(_O + "end_weight_decay", default=0.0, en="weight decay at the end", zh="结束权重衰减"),
    key(_O + "weight_decay_kwargs", "dict|null", None, "not implemented", "尚未实现", strict=True),
    _loose(_O + "zero_config", default=None, en="arguments of ZeRO", zh="ZeRO 参数"),
    _float(_O + "clip_grad", default=0.0, en="largest gradient norm", zh="梯度裁剪阈值"),
    key(_O + "lr_decay_iters", "int|null", None, "steps of decay", "学习率衰减步数", strict=True),
    key(_O + "lr_decay_samples", "int|null", None, "samples of decay", "学习率衰减样本数", strict=True),
    key(_O + "lr_wsd_decay_iters", "int|null", None, "last decay of WSD, in steps", "WSD 末段衰减步数", strict=True),
    key(
        _O + "lr_wsd_decay_samples",
        "int|null",
        None,
        "last decay of WSD, in samples",
        "WSD 末段衰减样本数",
        strict=True,
    ),
    _int(_O + "lr_warmup_iters", default=0, least=0, en="steps of warm-up", zh="学习率预热步数"),
    _int(_O + "lr_warmup_samples", default=0, least=0, en="samples of warm-up", zh="学习率预热样本数"),
    _float(_O + "lr_warmup_init", default=0.0, en="first learning rate", zh="预热起始学习率"),
    key(
        _O + "lr_warmup_fraction", "float|null", None, "warm-up as a part of the decay", "预热占衰减的比例", strict=True
    ),
    _float(_O + "min_lr", default=0.0, en="smallest learning rate", zh="最小学习率"),
    _str(
        _O + "lr_decay_style",
        default="constant",
        choices=("constant", "WSD", "linear", "cosine", "inverse-square-root"),
        en="shape of the decay",
        zh="学习率衰减方式",
    ),
    _str(
        _O + "weight_decay_incr_style",
        default="constant",
        choices=("constant", "linear", "cosine"),
        en="how weight decay changes",
        zh="权重衰减变化方式",
    ),
    _str(
        _O + "lr_wsd_decay_style",
        default="linear",
        choices=("linear", "cosine", "exponential"),
        en="last decay of WSD",
        zh="WSD 末段衰减方式",
    ),
    _bool(
        _O + "use_checkpoint_opt_param_scheduler",
        default=True,
        en="take the schedule from the checkpoint",
        zh="使用权重中的调度状态",
    ),
    _bool(
        _O + "override_opt_param_scheduler",
        default=False,
        en="take the schedule from the config",
        zh="以配置覆盖调度状态",
    ),
    _bool(_O + "overlap_param_gather", default=False, en="gather parameters while computing", zh="参数聚合与计算并行"),
    _loose(_O + "no_weight_decay_params", default=None, en="parameters without weight decay", zh="不做权重衰减的参数"),
    _loose(
        _O + "betas",
        default=None,
        en="coefficients of Adam; read without a default",
        zh="Adam 系数，部分优化器读取时没有默认值",
    ),
    _loose(_O + "beta1", default=None, en="first coefficient of Adam", zh="Adam 的 beta1"),
    _loose(_O + "beta2", default=None, en="second coefficient of Adam", zh="Adam 的 beta2"),
    _loose(_O + "eps", default=None, en="smallest divisor of Adam", zh="Adam 的 eps"),
    _loose(_O + "parallel_config", default=None, en="filled in by the library", zh="由库自动填入"),
)

_MOE = (
    _loose(_E + "num_experts", default=1, en="experts", zh="专家数"),
    _bool(_E + "moe_grouped_gemm", default=False, en="not implemented", zh="尚未实现"),
    _int(_E + "moe_router_topk", default=2, above=0, en="experts for a token", zh="每个 token 选择的专家数"),
    _str(
        _E + "moe_router_load_balancing_type",
        default="none",
        choices=("aux_loss", "none"),
        en="how experts are balanced",
        zh="负载均衡方式",
    ),
    _str(
        _E + "moe_token_dispatcher_type",
        default="alltoall",
        choices=("alltoall",),
        en="how tokens are sent",
        zh="token 分发方式",
    ),
    _bool(_E + "use_self_defined_alltoall", default=False, en="the library's own all-to-all", zh="使用自定义 alltoall"),
    key(
        _E + "moe_expert_capacity_factor",
        "int|float|bool|null",
        None,
        "capacity of an expert; below 0 means none",
        "专家容量系数，负数表示不限",
        strict=True,
    ),
    _bool(_E + "moe_pad_expert_input_to_capacity", default=False, en="fill up to the capacity", zh="填充到专家容量"),
    _loose(_E + "moe_token_drop_policy", default="probs", en="which tokens are dropped", zh="token 丢弃策略"),
    _loose(_E + "moe_aux_loss_coeff", default=0.0, en="weight of the balancing loss", zh="负载均衡损失系数"),
    _loose(_E + "moe_z_loss_coeff", default=None, en="weight of the z-loss", zh="z-loss 系数"),
    _loose(_E + "moe_input_jitter_eps", default=None, en="noise on the router's input", zh="路由输入噪声"),
)

_LORA = (
    _bool(_L + "use_lora", default=False, en="low-rank adaptation", zh="使用 LoRA"),
    _int(_L + "lora_rank", default=8, above=0, en="rank", zh="秩"),
    _int(_L + "lora_alpha", default=32, above=0, en="scale", zh="缩放系数"),
    _float(_L + "lora_dropout", default=0.0, en="dropout", zh="随机失活率"),
    _loose(_L + "target_cells", default=None, en="cells to adapt", zh="要微调的 Cell"),
)

KEYS: tuple[Key, ...] = (*_SECTIONS, *_TRAINING, *_PARALLEL, *_DATASET, *_OPTIMIZER, *_MOE, *_LORA)
