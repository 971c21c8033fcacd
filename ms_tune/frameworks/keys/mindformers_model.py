"""Keys of ``model.model_config`` that Mcore models take (``use_legacy: False``).

``COMMON_CONFIG_MAPPING`` in ``mindformers/parallel_core/transformer_config_utils.py`` (1.9) turns them into the
fields of ``TransformerConfig``; several keys of Hugging Face's and of older models stand for one field.
"""

from __future__ import annotations

from ms_tune.frameworks.keys import Key, key

# What a field means, and every key that stands for it; the last one is the field itself.
_FIELDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "virtual pipeline chunks of a stage",
        "每个阶段的交织块数",
        ("pp_interleave_num", "virtual_pipeline_model_parallel_size"),
    ),
    ("extra layers of each stage", "各阶段的层数增减", ("offset",)),
    ("type of the weights", "权重数据类型", ("param_init_type", "params_dtype")),
    (
        "prediction layers behind the others",
        "多 token 预测层数",
        ("mtp_depth", "num_nextn_predict_layers", "mtp_num_layers"),
    ),
    ("weight of the prediction loss", "多 token 预测损失系数", ("mtp_loss_factor", "mtp_loss_scaling_factor")),
    ("attention heads", "注意力头数", ("num_heads", "n_head", "num_attention_heads")),
    ("key and value heads", "键值头数", ("n_kv_heads", "num_key_value_heads", "num_query_groups")),
    ("width of the feed-forward block", "前馈层大小", ("intermediate_size", "ffn_hidden_size")),
    ("width of a head", "每个头的宽度", ("head_dim", "kv_channels")),
    ("smallest divisor of the norms", "归一化 epsilon", ("rms_norm_eps", "layer_norm_epsilon", "layernorm_epsilon")),
    ("bias of query, key and value", "QKV 带偏置", ("qkv_has_bias", "attention_bias", "add_qkv_bias")),
    ("experts", "专家数", ("expert_num", "n_routed_experts", "num_experts", "num_moe_experts")),
    ("transformer layers", "层数", ("num_hidden_layers", "n_layer", "num_layers")),
    ("norm of query and key", "QK 归一化", ("use_qk_norm", "qk_layernorm")),
    ("width of a head of the indexer", "索引器头宽", ("index_head_dim", "dsa_indexer_head_dim")),
    ("heads of the indexer", "索引器头数", ("index_n_heads", "dsa_indexer_n_heads")),
    ("tokens that the indexer picks", "索引器选取数", ("index_topk", "dsa_indexer_topk")),
    ("kind of position embedding", "位置编码类型", ("extend_method", "position_embedding_type")),
    ("spread of the first weights", "权重初始化标准差", ("initializer_range", "init_method_std")),
    ("softmax in float32", "以 float32 计算 softmax", ("softmax_compute_dtype", "attention_softmax_in_fp32")),
    ("fused rotary embedding", "融合旋转位置编码", ("use_fused_rope", "apply_rope_fusion")),
    ("fused SwiGLU", "融合 SwiGLU", ("use_fused_swiglu", "bias_swiglu_fusion")),
    ("fused permutation of tokens", "融合 token 重排", ("use_fused_ops_permute", "moe_permute_fusion")),
    ("width of an expert", "专家宽度", ("moe_intermediate_size", "moe_ffn_hidden_size")),
    (
        "experts for a token",
        "每个 token 选择的专家数",
        ("num_experts_chosen", "num_experts_per_tok", "moe_router_topk"),
    ),
    ("groups of experts", "专家分组数", ("n_group", "moe_router_num_groups")),
    ("groups for a token", "每个 token 选择的组数", ("topk_group", "moe_router_group_topk")),
    ("scale of the router's weights", "路由权重缩放", ("routed_scaling_factor", "moe_router_topk_scaling_factor")),
    ("score of the router", "路由打分函数", ("use_gating_sigmoid", "scoring_func", "moe_router_score_function")),
    ("type of the router", "路由数据类型", ("router_dense_type", "moe_router_dtype")),
    ("balance experts by a bias", "以偏置均衡专家", ("balance_via_topk_bias", "moe_router_enable_expert_bias")),
    ("step of the balancing bias", "均衡偏置更新率", ("topk_bias_update_rate", "moe_router_bias_update_rate")),
    ("grouped matrix product", "分组矩阵乘", ("use_gmm", "moe_grouped_gemm")),
    ("weight of the z-loss", "z-loss 系数", ("z_loss_factor", "moe_z_loss_coeff")),
    ("capacity of an expert", "专家容量系数", ("capacity_factor", "moe_expert_capacity_factor")),
    ("which tokens are dropped", "token 丢弃策略", ("enable_sdrop", "moe_token_drop_policy")),
    ("fill up empty experts", "为空专家补 token", ("enable_gmm_safe_tokens", "use_pad_tokens")),
    ("shared experts", "共享专家数", ("n_shared_experts", "shared_expert_num")),
    ("offload activations", "卸载激活值", ("swap", "cpu_offloading")),
    ("layers to offload", "要卸载的层", ("layer_swap", "cpu_offloading_num_layers")),
    ("part of a head without rotation", "不做旋转的头宽", ("qk_nope_head_dim", "qk_head_dim")),
    ("part of a head with rotation", "做旋转的头宽", ("qk_rope_head_dim", "qk_pos_emb_head_dim")),
    ("base of the angles", "旋转角基数", ("theta", "rope_theta", "rotary_base")),
    ("scale of positions", "位置缩放", ("scaling_factor", "factor", "rotary_scaling_factor")),
    ("largest position", "最大位置", ("original_max_position_embeddings", "max_position_embeddings")),
)

# Every key that stands for a field, by the field's own name.
ALIASES: dict[str, tuple[str, ...]] = {names[-1]: names for _, _, names in _FIELDS}

# Fields with one name.
_PLAIN = (
    *("print_separate_loss", "disable_lazy_inline", "batch_size", "op_swap", "default_prefetch", "hidden_size"),
    *("softmax_scale", "hidden_dropout", "attention_dropout", "apply_residual_connection_post_layernorm"),
    *("add_bias_linear", "gated_linear_unit", "activation_func", "normalization", "fused_norm", "nope_layer_interval"),
    *("calculate_per_token_loss", "multi_latent_attention", "compute_dtype", "layernorm_compute_dtype", "rotary_dtype"),
    *("seq_length", "vocab_size", "ignore_token_id", "is_dynamic", "use_eod_reset", "partial_rotary_factor"),
    *("use_contiguous_weight_layout_attention", "use_interleaved_weight_layout_mlp", "pre_process", "post_process"),
    *("add_mlp_fc1_bias_linear", "add_mlp_fc2_bias_linear", "rotary_interleaved", "fp32_residual_connection"),
    *("window_size", "window_attn_skip_freq", "model_architecture", "num_encoder_layers", "num_decoder_layers"),
    *("moe_apply_probs_on_input", "dsa_indexer_loss_coeff", "dsa_indexer_use_sparse_loss"),
    *("experimental_attention_variant", "use_flash_attention", "rotary_seq_len_interpolation_factor"),
    *("use_rope_scaling", "rope_scaling", "rotary_cos_format", "input_layout", "sparse_mode", "use_alibi_mask"),
    *("use_attn_mask_compression", "use_eod_attn_mask_compression", "use_attention_mask", "use_ring_attention"),
    *("fp16_lm_cross_entropy", "untie_embeddings_and_output_weights", "hidden_act", "mask_func_type"),
    *("param_init_std_rules", "track_max_attention_logit", "init_method", "output_layer_init_method"),
    *("apply_query_key_layer_scaling", "bias_dropout_fusion", "moe_shared_expert_intermediate_size"),
    *("moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_layer_freq", "first_k_dense_replace"),
    *("moe_shared_expert_overlap", "moe_router_pre_softmax", "moe_token_dispatcher_type", "group_wise_a2a"),
    *("comp_comm_parallel", "comp_comm_parallel_degree", "norm_topk_prob", "use_fused_ops_topkrouter"),
    *("use_shared_expert_gating", "topk_method", "npu_nums_per_device", "callback_moe_droprate"),
    *("moe_router_force_expert_balance", "moe_router_fusion", "print_expert_load", "enable_expert_relocation"),
    *("expert_relocation_initial_iteration", "expert_relocation_freq", "q_lora_rank", "kv_lora_rank", "v_head_dim"),
    *("rotary_percent", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "mla_qkv_concat", "pad_token_id"),
    *("tie_word_embeddings", "block_size", "num_blocks", "sandwich_norm", "attn_reduce_scatter", "attn_allgather"),
    *("attn_allreduce", "ffn_reduce_scatter", "ffn_allgather", "ffn_allreduce", "use_alltoall"),
    *("dispatch_global_max_bs", "quantization_config", "use_fused_mla", "coeff", "pet_config"),
)

# Taken and not converted (``DEFAULT_WHITE_KEY``), and read by the model factory.
_AROUND = (
    *("monitor_config", "dataset_config", "multiple_of", "ffn_dim_multiplier", "qkv_concat", "use_past"),
    *("input_sliced_sig", "return_extra_loss", "moe_config", "type", "model_type", "architectures", "auto_register"),
    *("checkpoint_name_or_path", "tokenizer_class", "bos_token_id", "eos_token_id", "temperature", "top_k", "top_p"),
    *("repetition_penalty", "max_decode_length", "do_sample", "start_stage", "stage_num", "fine_grain_interleave"),
)

KEYS: tuple[Key, ...] = (
    *(
        key(
            f"model.model_config.{name}",
            "",
            None,
            f"{en} (field {names[-1]})" if name != names[-1] else en,
            f"{zh}（对应字段 {names[-1]}）" if name != names[-1] else zh,
        )
        for en, zh, names in _FIELDS
        for name in names
    ),
    *(key(f"model.model_config.{name}", "", None, f"model setting {name}", f"模型设置 {name}") for name in _PLAIN),
    *(
        key(f"model.model_config.{name}", "", None, f"read beside the model: {name}", f"模型之外读取：{name}")
        for name in _AROUND
    ),
)
