"""Keys of MindFormers static-graph configs, all but ``model.model_config``.

Top level and sections: ``mindformers/tools/register/template.py`` (1.6 to 2.1). Values are checked where
``mindformers/modules/transformer`` or MindSpore checks them; the template itself looks at names only.
"""

from __future__ import annotations

from functools import partial

from ms_tune.frameworks.keys import Key, key

_bool = partial(key, types="bool")
_int = partial(key, types="int")
_str = partial(key, types="str")
_any = partial(key, types="")
_ways = partial(key, types="int", default=1, strict=True, above=0)
_flag = partial(key, types="bool", strict=True)
_section = partial(key, types="dict", default=None)

_GENERAL = (
    _int("seed", default=1, en="random seed", zh="随机种子"),
    _str("output_dir", default="./output", en="where results are written", zh="输出目录"),
    _str(
        "run_mode",
        default=None,
        choices=("train", "finetune", "eval", "predict", "predict_with_train_model"),
        en="what to run",
        zh="运行模式",
    ),
    _bool("use_parallel", default=False, en="run on several devices", zh="多卡并行"),
    _any("resume_training", default=False, en="go on from a checkpoint", zh="断点续训"),
    _bool("print_separate_loss", default=True, en="print each loss", zh="分别打印各项损失", since="1.7"),
    _str("load_checkpoint", default="", en="the checkpoint to load", zh="要加载的权重"),
    _str("load_ckpt_format", default="ckpt", en="format of checkpoints", zh="权重格式"),
    _bool("auto_trans_ckpt", default=False, en="convert the checkpoint to this split", zh="自动转换权重切分"),
    _int("transform_process_num", default=1, en="processes that convert", zh="权重转换进程数"),
    _str("src_strategy_path_or_dir", default="", en="split of the checkpoint", zh="源权重的切分策略"),
    _bool("only_save_strategy", default=False, en="only write the split", zh="只保存切分策略"),
    _bool("load_ckpt_async", default=False, en="load while compiling", zh="异步加载权重"),
    _bool(
        "use_legacy", default=True, en="legacy models; False for Mcore models", zh="legacy 模型；Mcore 模型设为 False"
    ),
    _bool("use_legacy_format", default=True, en="the old checkpoint format", zh="旧的权重格式", since="1.8"),
    _bool("ckpt_use_legacy_format", default=True, en="the old checkpoint format", zh="旧的权重格式", until="1.7"),
    _str("pretrained_model_dir", default="", en="a Hugging Face model folder", zh="Hugging Face 模型目录"),
    _bool("balanced_load", default=False, en="spread loading over ranks", zh="均衡加载权重", since="1.7"),
    _int("reshard_worker_num", default=1, en="threads that reshard", zh="权重重切分线程数", since="1.9"),
    _bool("do_eval", default=False, en="evaluate while training", zh="边训练边评估"),
    _int("eval_step_interval", default=100, en="steps between evaluations", zh="评估间隔（步）"),
    _int("eval_epoch_interval", default=-1, en="epochs between evaluations", zh="评估间隔（轮）"),
    _bool("ignore_data_skip", default=False, en="do not skip data on resume", zh="续训时不跳过数据"),
    _any("data_skip_steps", default=None, en="steps of data to skip", zh="跳过的数据步数"),
    _bool("profile", default=False, en="collect performance data", zh="采集性能数据"),
    _bool("profile_communication", default=False, en="collect communication data", zh="采集通信数据"),
    _bool("profile_memory", default=True, en="collect memory data", zh="采集内存数据"),
    _bool("init_start_profile", default=False, en="profile from the start", zh="从初始化开始采集"),
    _int("profile_start_step", default=1, en="first step that is profiled", zh="性能采集起始步"),
    _int("profile_stop_step", default=10, en="last step that is profiled", zh="性能采集结束步"),
    _any("profile_rank_ids", default=None, en="ranks to profile", zh="采集的 rank"),
    _bool("profile_pipeline", default=False, en="profile one card of each stage", zh="每个流水线阶段采集一张卡"),
    _int(
        "profile_level",
        default=1,
        en="known to the template, not read by the trainer",
        zh="模板认识该键，但训练流程不读取",
        state="dead",
    ),
    _int("profiler_level", default=0, choices=(0, 1, 2), en="how much is collected", zh="采集级别"),
    _bool("mstx", default=False, en="light-weight marks", zh="轻量打点"),
    _any("layer_scale", default=False, en="scale of layers", zh="层缩放"),
    _any("layer_decay", default=0.65, en="decay of layers", zh="层衰减"),
    _bool("lr_scale", default=False, en="scale the learning rate with the batch", zh="按批大小缩放学习率"),
    _int("lr_scale_factor", default=256, en="batch that the scale is for", zh="学习率缩放基准"),
    _int("micro_batch_interleave_num", default=1, en="parts of a batch that overlap", zh="多副本并行的份数"),
    _any("remote_save_url", default=None, en="remote folder", zh="远端保存路径"),
    _any("save_file", default=None, en="file of predictions", zh="推理结果文件"),
    _any("input_data", default=None, en="input of predictions", zh="推理输入"),
    _any("predict_batch_size", default=None, en="batch of predictions", zh="推理批大小"),
    _any("adapter_id", default=None, en="adapter of predictions", zh="推理使用的适配器"),
    _bool("exclude_cann_cpu", default=False, en="leave some cores to CANN", zh="绑核时排除 CANN 使用的核"),
    key("train_precision_sync", "bool|null", None, "deterministic training", "训练确定性计算", strict=True),
    key("infer_precision_sync", "bool|null", None, "deterministic prediction", "推理确定性计算", strict=True),
    _bool("postprocess_use_numpy", default=False, en="post-process with NumPy", zh="后处理使用 NumPy"),
)

_TOP_SECTIONS = tuple(
    _section(name, en=en, zh=zh)
    for name, en, zh in (
        ("runner_config", "epochs, batch size, sinking", "轮数、批大小与下沉设置"),
        ("context", "settings of MindSpore", "MindSpore 运行环境设置"),
        ("parallel", "MindSpore's parallel settings", "MindSpore 并行设置"),
        ("trainer", "the trainer", "训练器设置"),
        ("model", "the model", "模型设置"),
        ("moe_config", "mixture of experts of legacy models", "legacy 模型的 MoE 设置"),
        ("parallel_config", "how the job is split over devices", "并行切分设置"),
        ("recompute_config", "what is computed again", "重计算设置"),
        ("swap_config", "what is offloaded to the host", "激活值卸载设置"),
        ("runner_wrapper", "the cell around the network", "训练封装设置"),
        ("optimizer", "the optimizer", "优化器设置"),
        ("lr_schedule", "the learning rate", "学习率设置"),
        ("metric", "what evaluation measures", "评估指标设置"),
        ("train_dataset", "training data", "训练数据集设置"),
        ("train_dataset_task", "kind of training data", "训练数据集任务设置"),
        ("monitor_config", "what is logged while training", "训练监控设置"),
        ("eval_dataset", "evaluation data", "评估数据集设置"),
        ("eval_dataset_task", "kind of evaluation data", "评估数据集任务设置"),
        ("processor", "tokenizer and the like", "分词器等处理器设置"),
    )
)

_TOP_LISTS = (
    key("callbacks", "list", None, "what is called while training", "训练回调"),
    key("eval_callbacks", "list", None, "what is called while evaluating", "评估回调"),
)

# Read elsewhere in MindFormers, whatever the template's warning ("useless for train") says.
_ELSEWHERE = tuple(
    _any(name, default=None, en="read outside the template", zh="由模板之外的代码读取")
    for name in (
        *("base_config", "profile_output", "with_stack", "data_simplification", "grouped_lr_schedule"),
        *("generation_config", "remove_redundancy", "resume_by_last_timestamp_ckpt", "transform_by_rank"),
        *("npu_num_per_node", "use_graceful_exit", "use_checkpoint_health_monitor", "checkpoint", "tensorboard"),
        *("monitor_local_loss", "monitor_device_local_loss", "affinity_cpu_list", "affinity_config", "adapter_path"),
        *("pet_config", "tokenizer", "device_num", "rank_id", "data_size", "push_to_hub", "hub_model_id"),
        *("hub_strategy", "hub_token", "hub_private_repo", "hub_always_push", "random_seed", "do_train", "do_predict"),
        *("is_dynamic", "dynamic_batch", "check_for_nan_in_loss_and_grad", "mindio_pool_capacity"),
        *("enable_expert_relocation", "expert_relocation_initial_iteration", "expert_relocation_freq"),
        *("print_expert_load", "save_step", "use_eod_attn_mask_compression", "trust_remote_code"),
    )
)

_PARALLEL_CONFIG = (
    *(
        _ways(f"parallel_config.{name}", en=en, zh=zh)
        for name, en, zh in (
            ("data_parallel", "data-parallel size", "数据并行数"),
            ("model_parallel", "tensor-parallel size", "张量并行数"),
            ("context_parallel", "context-parallel size", "上下文并行数"),
            ("expert_parallel", "expert-parallel size", "专家并行数"),
            ("pipeline_stage", "pipeline stages", "流水线阶段数"),
            (
                "micro_batch_num",
                "micro-batches of a step, with pipeline stages only",
                "每步的微批次数，仅流水线并行时生效",
            ),
            ("seq_split_num", "parts that a sequence is split into", "序列流水的切分数"),
        )
    ),
    _flag("parallel_config.use_seq_parallel", default=False, en="sequence parallelism", zh="序列并行"),
    _any(
        "parallel_config.optimizer_shard",
        default=None,
        en="without effect since 0.7",
        zh="自 0.7 起不起作用",
        state="dead",
    ),
    _int(
        "parallel_config.gradient_aggregation_group",
        default=4,
        strict=True,
        above=0,
        en="groups of gradient communication",
        zh="梯度通信分组数",
    ),
    _bool(
        "parallel_config.vocab_emb_dp",
        default=True,
        en="split the embedding over data only",
        zh="词嵌入只按数据并行切分",
    ),
    _str(
        "parallel_config.context_parallel_algo",
        default="colossalai_cp",
        strict=True,
        choices=("colossalai_cp", "ulysses_cp", "hybrid_cp"),
        en="context-parallel algorithm",
        zh="上下文并行算法",
    ),
    _int(
        "parallel_config.ulysses_degree_in_cp",
        default=1,
        en="Ulysses part of hybrid context parallelism",
        zh="混合上下文并行中的 Ulysses 并行数",
    ),
    _any("parallel_config.mem_coeff", default=0.1, en="weight of memory in the planner", zh="策略搜索中的内存系数"),
)

_RUNNER = (
    _int("runner_config.batch_size", default=1, en="samples of a micro-batch", zh="微批次的样本数"),
    _int("runner_config.epochs", default=1, en="passes over the data", zh="训练轮数"),
    _bool("runner_config.sink_mode", default=True, en="feed data on the device", zh="数据下沉"),
    _int("runner_config.sink_size", default=1, en="steps of one call", zh="每次下沉的步数"),
    _int(
        "runner_config.gradient_accumulation_steps",
        default=1,
        strict=True,
        least=1,
        en="accumulation steps, without pipeline stages only",
        zh="梯度累加步数，仅无流水线并行时生效",
    ),
    _int("runner_config.num_classes", default=1, en="classes of a classifier", zh="分类类别数"),
    _int("runner_config.stop_step", default=0, en="step to stop at", zh="提前停止的步数"),
)

_RECOMPUTE = (
    *(
        _any(f"recompute_config.{name}", default=False, en=en, zh=zh)
        for name, en, zh in (
            ("recompute", "full recompute: a switch, or layers of each stage", "完全重计算：开关或各阶段层数"),
            ("select_recompute", "selective recompute", "选择重计算"),
            ("select_comm_recompute", "communication recompute", "通信重计算"),
            ("select_recompute_exclude", "operators left out", "选择重计算的排除项"),
            ("select_comm_recompute_exclude", "communication left out", "通信重计算的排除项"),
        )
    ),
    _flag(
        "recompute_config.parallel_optimizer_comm_recompute",
        default=False,
        en="read by ChatGLM2 only",
        zh="仅 ChatGLM2 读取",
        state="dead",
    ),
    _flag(
        "recompute_config.mp_comm_recompute",
        default=True,
        en="stored and read by nothing",
        zh="只保存，从不读取",
        state="dead",
    ),
    _flag(
        "recompute_config.recompute_slice_activation",
        default=False,
        en="keep a slice of the output, for recompute: True",
        zh="只保留切片后的输出，仅 recompute 为 True 时生效",
    ),
)

_SWAP = (
    _flag("swap_config.swap", default=False, en="offload activations", zh="卸载激活值"),
    _any("swap_config.layer_swap", default=None, en="layers to offload", zh="要卸载的层"),
    _any("swap_config.op_swap", default=None, en="operators to offload", zh="要卸载的算子"),
    _any("swap_config.default_prefetch", default=1, en="operators to fetch back ahead", zh="提前取回的算子数"),
)

_MOE = tuple(
    _any(f"moe_config.{name}", default=None, en="setting of legacy mixture of experts", zh="legacy MoE 设置项")
    for name in (
        *(
            "expert_num",
            "capacity_factor",
            "aux_loss_factor",
            "num_experts_chosen",
            "expert_group_size",
            "group_wise_a2a",
        ),
        *("comp_comm_parallel", "comp_comm_parallel_degree", "save_token_distribution", "cur_layer"),
        *("enable_cold_hot_expert", "update_step", "hot_expert_num", "cold_token_percent", "moe_module_name"),
        *("routing_policy", "norm_topk_prob", "enable_sdrop", "use_fused_ops_topkrouter", "router_dense_type"),
        *("shared_expert_num", "use_shared_expert_gating", "max_router_load", "topk_method", "topk_group", "n_group"),
        *("first_k_dense_replace", "moe_intermediate_size", "routed_scaling_factor", "aux_loss_types"),
        *("aux_loss_factors", "z_loss_factor", "balance_via_topk_bias", "topk_bias_update_rate"),
        *("use_allgather_dispatcher", "moe_shared_expert_overlap", "expert_model_parallel", "use_gating_sigmoid"),
        *("enable_deredundency", "npu_nums_per_device", "use_gmm", "enable_gmm_safe_tokens", "use_fused_ops_permute"),
        *("callback_moe_droprate", "dispatch_global_max_bs", "ep_extend_tp"),
    )
)

_MONITOR = tuple(
    _any(f"monitor_config.{name}", default=None, en="what the monitor logs", zh="监控项设置")
    for name in (
        *("monitor_on", "dump_path", "target", "invert", "step_interval", "local_loss_format", "local_norm_format"),
        *("device_local_norm_format", "device_local_loss_format", "optimizer_state_format", "weight_state_format"),
        *("max_attention_logit_format", "throughput_baseline", "print_struct", "check_for_global_norm"),
        *(
            "global_norm_spike_threshold",
            "global_norm_spike_count_threshold",
            "stable_rank_config",
            "health_checkpoint",
        ),
    )
)

# `_MSContextApplier._migrate` and the supported keys of MFContextConfig (core/context/build_context.py, 1.9).
_CONTEXT = (
    _any(
        "context.mode",
        default=0,
        choices=(0, 1, "GRAPH_MODE", "PYNATIVE_MODE"),
        strict=True,
        en="static or dynamic graph",
        zh="静态图或动态图",
    ),
    _str("context.device_target", default="Ascend", en="kind of device", zh="设备类型"),
    _int("context.device_id", default=0, en="device of a one-card run", zh="单卡运行使用的设备号"),
    _str("context.max_device_memory", default="58GB", en="limit of the memory pool", zh="内存池上限"),
    _str("context.mempool_block_size", default=None, en="step by which the pool grows", zh="内存池扩展粒度"),
    _str("context.memory_optimize_level", default=None, choices=("O0", "O1"), en="reuse of memory", zh="内存优化级别"),
    _any("context.save_graphs", default=False, en="write graphs to disk", zh="计算图落盘"),
    _str("context.save_graphs_path", default=None, en="where graphs are written", zh="计算图保存路径"),
    _int("context.max_call_depth", default=10000, en="depth of calls", zh="最大调用深度"),
    key("context.ascend_config", "dict", None, "settings of the Ascend back end", "昇腾后端设置"),
    key("context.jit_config", "dict", None, "settings of the compiler", "编译设置"),
    *(
        _any(f"context.{name}", default=None, en="taken from the context, too", zh="也可写在 context 中")
        for name in (
            *("dataset_broadcast_opt_level", "jit_level", "infer_boost", "affinity_cpu_list", "affinity_config"),
            *("fake_mode", "seed", "output_dir", "load_checkpoint", "src_strategy_path_or_dir", "auto_trans_ckpt"),
            *(
                "only_save_strategy",
                "use_legacy_format",
                "balanced_load",
                "reshard_worker_num",
                "run_mode",
                "use_legacy",
            ),
            *("exclude_cann_cpu", "train_precision_sync", "infer_precision_sync", "postprocess_use_numpy"),
            *("resume_training", "use_graceful_exit", "monitor_local_loss", "monitor_device_local_loss", "profile"),
            *("profile_level", "profile_start_step", "profile_stop_step", "pretrained_model_dir"),
        )
    ),
)

# `_set_auto_parallel_context_func_map` of mindspore/parallel/_auto_parallel_context.py (2.9) and what 2.6 to 2.10 add.
_PARALLEL = tuple(
    _any(
        f"parallel.{name}", default=None, en="setting of MindSpore's parallel context", zh="MindSpore 并行上下文设置项"
    )
    for name in (
        *("device_num", "global_rank", "gradients_mean", "gradient_fp32_sync", "loss_repeated_mean", "pipeline_stages"),
        *("auto_pipeline", "pipeline_result_broadcast", "pipeline_segments", "parallel_mode", "search_mode"),
        *("auto_parallel_search_mode", "parameter_broadcast", "strategy_ckpt_load_file", "strategy_ckpt_save_file"),
        *("group_ckpt_save_file", "full_batch", "dataset_strategy", "enable_parallel_optimizer"),
        *("force_fp32_communication", "parallel_optimizer_config", "pipeline_config", "grad_accumulation_step"),
        *("all_reduce_fusion_config", "communi_parallel_mode", "optimizer_weight_shard_size"),
        *("optimizer_weight_shard_aggregated_save", "sharding_propagation", "enable_alltoall", "strategy_ckpt_config"),
        *("comm_fusion", "dump_local_norm", "dump_local_norm_path", "dump_device_local_norm"),
        *("auto_parallel_new_interface", "init_param_in_compile"),
    )
)

KEYS: tuple[Key, ...] = (
    *(*_GENERAL, *_TOP_SECTIONS, *_TOP_LISTS, *_ELSEWHERE, *_PARALLEL_CONFIG, *_RUNNER, *_RECOMPUTE, *_SWAP),
    *(*_MOE, *_MONITOR, *_CONTEXT, *_PARALLEL),
)
