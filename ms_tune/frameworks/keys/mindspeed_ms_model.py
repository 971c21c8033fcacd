"""Keys of ``model_config`` of MindSpeed-Core-MS r0.1.0 (``TransformerConfig`` in ``mindspeed_ms/core/config.py``)."""

from __future__ import annotations

from functools import partial

from ms_tune.frameworks.keys import REQUIRED, Key, key

_M = "model_config."
_DTYPES = ("float16", "float32", "bfloat16")
_FILLERS = (
    *("zero", "zeros", "one", "ones", "normal", "uniform", "truncatednormal", "xavieruniform", "xavier_uniform"),
    *("xaviernormal", "xavier_normal", "heuniform", "he_uniform", "henormal", "he_normal", "identity", "dirac"),
    *("orthogonal", "variancescaling"),
)

_size = partial(key, types="int", strict=True, above=0)
_bool = partial(key, types="bool", strict=True)
_str = partial(key, types="str", strict=True)
_part = partial(key, types="float", strict=True, least=0, most=1)
_dtype = partial(key, types="str", strict=True, choices=_DTYPES)
_loose = partial(key, types="")
_window = partial(key, types="int", strict=True, least=-2147483647, most=2147483647)
# A number is put into every element; the names are those of MindSpore's ``mindspore/common/initializer.py`` that need
# no argument.
_filler = partial(key, types="str|int|float|bool", strict=True, choices=_FILLERS)

_SIZES = (
    _size(_M + "vocab_size", default=REQUIRED, en="tokens in the vocabulary", zh="词表大小"),
    _size(_M + "num_layers", default=REQUIRED, en="transformer layers", zh="层数"),
    _size(_M + "num_attention_heads", default=REQUIRED, en="attention heads", zh="注意力头数"),
    _size(_M + "hidden_size", default=REQUIRED, en="width of the model", zh="隐藏层大小"),
    _size(_M + "ffn_hidden_size", default=REQUIRED, en="width of the feed-forward block", zh="前馈层大小"),
    _size(_M + "seq_length", default=REQUIRED, en="tokens of a sample", zh="序列长度"),
    _bool(_M + "group_query_attention", default=False, en="fewer key and value heads", zh="分组查询注意力"),
    _size(_M + "num_query_groups", default=32, en="key and value heads", zh="键值头数"),
    key(_M + "kv_channels", "int|null", None, "width of a head", "每个头的宽度", strict=True, above=0),
    key(_M + "num_experts", "int|null", None, "experts", "专家数", strict=True),
    _loose(_M + "out_hidden_size", default=None, en="width of the output", zh="输出宽度"),
    key(_M + "encoder_num_layers", "int|null", None, "not implemented", "尚未实现", strict=True, above=0),
    key(_M + "decoder_num_layers", "int|null", None, "not implemented", "尚未实现", strict=True, above=0),
)

_STRUCTURE = (
    _str(_M + "attention_type", default="self_attn", en="kind of attention", zh="注意力类型"),
    _loose(_M + "position_embedding_type", default="absolute", en="kind of position embedding", zh="位置编码类型"),
    _loose(_M + "parallel_position_embedding", default=False, en="split the position embedding", zh="切分位置编码"),
    key(_M + "rotary_config", "dict|null", None, "rotary position embedding", "旋转位置编码设置", strict=True),
    key(
        _M + "rotary_config.rotary_percent",
        "float",
        None,
        "part of a head that is rotated",
        "旋转编码占比",
        strict=True,
    ),
    key(_M + "rotary_config.rotary_interleaved", "bool", None, "interleaved layout", "交织布局", strict=True),
    key(
        _M + "rotary_config.seq_len_interpolation_factor",
        "bool",
        None,
        "interpolate positions",
        "位置插值",
        strict=True,
    ),
    key(_M + "rotary_config.rotary_base", "int|bool", None, "base of the angles", "旋转角基数", strict=True),
    _loose(_M + "use_query_layer", default=False, en="a query layer on top", zh="使用查询层"),
    _loose(_M + "use_visual_encoder", default=False, en="a visual encoder", zh="使用视觉编码器"),
    _loose(_M + "use_retriever", default=False, en="a retriever", zh="使用检索器"),
    _bool(_M + "qkv_has_bias", default=True, en="bias of query, key and value", zh="QKV 带偏置"),
    _bool(_M + "out_proj_has_bias", default=True, en="bias of the output projection", zh="输出投影带偏置"),
    _bool(
        _M + "head_skip_weight_param_allocation",
        default=True,
        en="the head has no weight of its own",
        zh="输出头不单独分配权重",
    ),
    _bool(_M + "mlp_has_bias", default=True, en="bias of the feed-forward block", zh="前馈层带偏置"),
    _str(
        _M + "hidden_act",
        default="gelu",
        en="activation; swiglu makes the block gated",
        zh="激活函数；swiglu 会启用门控",
    ),
    _loose(
        _M + "gated_linear_unit",
        default=False,
        en="overwritten from hidden_act",
        zh="由 hidden_act 决定并覆盖",
        state="dead",
    ),
    _str(_M + "normalization", default="LayerNorm", en="kind of normalisation", zh="归一化类型"),
    key(
        _M + "norm_epsilon",
        "float",
        1e-5,
        "smallest divisor of the normalisation",
        "归一化 epsilon",
        strict=True,
        above=0,
    ),
    _bool(
        _M + "apply_residual_connection_post_norm",
        default=False,
        en="residual behind the norm",
        zh="残差取自归一化之后",
    ),
    _loose(_M + "use_final_norm", default=True, en="a norm behind the last layer", zh="末层之后做归一化"),
    _loose(
        _M + "untie_embeddings_and_output_weights",
        default=False,
        en="an output weight of its own",
        zh="输出层不共享词嵌入权重",
    ),
    key(_M + "share_embedding_weight", "bool", None, "share the embedding's weight", "共享词嵌入权重", strict=True),
    _loose(_M + "flatten_labels_and_input_mask", default=True, en="flatten labels", zh="展平标签与掩码"),
    _bool(_M + "add_bias_linear", default=False, en="bias of linear layers", zh="线性层带偏置"),
    _bool(_M + "use_sandwich_norm", default=False, en="norms on both sides", zh="三明治归一化"),
    _part(_M + "attn_post_norm_scale", default=1.0, en="scale behind attention", zh="注意力后归一化缩放"),
    _part(_M + "ffn_post_norm_scale", default=1.0, en="scale behind the feed-forward block", zh="前馈层后归一化缩放"),
    _loose(_M + "model_type", default="encoder_or_decoder", en="kind of model", zh="模型类型"),
    _bool(_M + "retro_add_retriever", default=False, en="not implemented", zh="尚未实现"),
    _loose(_M + "lora_config", default=None, en="filled in by the library", zh="由库自动填入"),
    _loose(_M + "moe_config", default=None, en="filled in by the library", zh="由库自动填入"),
    _loose(_M + "parallel_config", default=None, en="filled in by the library", zh="由库自动填入"),
    _loose(_M + "training_config", default=None, en="filled in by the library", zh="由库自动填入"),
    _loose(_M + "dataset_config", default=None, en="filled in by the library", zh="由库自动填入"),
)

_NUMERICS = (
    _dtype(_M + "params_dtype", default="float32", en="type of the weights", zh="权重数据类型"),
    _dtype(_M + "embedding_init_dtype", default="float32", en="type of the embedding", zh="词嵌入初始化类型"),
    _dtype(_M + "compute_dtype", default="float32", en="type of the computation", zh="计算数据类型"),
    _dtype(_M + "softmax_compute_dtype", default="float32", en="type of the softmax", zh="softmax 计算类型"),
    _dtype(_M + "residual_connection_dtype", default="float32", en="type of the residual", zh="残差数据类型"),
    _loose(_M + "init_method_std", default=0.01, en="spread of the first weights", zh="权重初始化标准差"),
    _filler(_M + "init_method", default="normal", en="how weights are initialised", zh="权重初始化方法"),
    _filler(_M + "bias_init", default="zeros", en="how biases are initialised", zh="偏置初始化方法"),
    _loose(_M + "fp16_lm_cross_entropy", default=False, en="loss in float16", zh="以 float16 计算交叉熵"),
    _part(_M + "attention_dropout", default=0.0, en="dropout in attention", zh="注意力随机失活率"),
    _part(_M + "hidden_dropout", default=0.0, en="dropout behind blocks", zh="隐藏层随机失活率"),
    _bool(_M + "attention_softmax_in_fp32", default=True, en="softmax in float32", zh="以 float32 计算 softmax"),
    _bool(_M + "apply_query_key_layer_scaling", default=False, en="scale by the layer's number", zh="按层号缩放 QK"),
    _str(_M + "mask_func_type", default="attn_mask_add", en="how the mask is applied", zh="掩码方式"),
    _bool(_M + "fp32_residual_connection", default=False, en="not implemented", zh="尚未实现"),
    key(_M + "fp8_format", "str|null", None, "not implemented", "尚未实现", strict=True, choices=("e4m3", "hybrid")),
)

_SPEED = (
    _bool(_M + "use_flash_attention", default=False, en="fused attention", zh="使用 FlashAttention"),
    key(_M + "fa_config", "dict|null", None, "arguments of the fused attention", "FlashAttention 参数", strict=True),
    _part(_M + "fa_config.keep_prob", default=None, en="1 less dropout", zh="保留概率（1 减去随机失活率）"),
    _window(_M + "fa_config.pre_tokens", default=None, en="tokens before that are seen", zh="可见的前向 token 数"),
    _window(_M + "fa_config.next_tokens", default=None, en="tokens behind that are seen", zh="可见的后向 token 数"),
    _str(
        _M + "fa_config.input_layout",
        default=None,
        choices=("BNSD", "SBH"),
        en="order of the operator's dimensions",
        zh="算子输入的维度排列",
    ),
    key(
        _M + "fa_config.sparse_mode",
        "int",
        None,
        "how the operator reads its mask",
        "算子的掩码模式",
        strict=True,
        choices=(0, 1, 2, 3, 4),
    ),
    _loose(
        _M + "enable_flash_sp",
        default=False,
        en="FlashAttention with sequence parallelism",
        zh="FlashAttention 序列并行",
    ),
    _bool(_M + "apply_rope_fusion", default=False, en="fused rotary embedding", zh="融合旋转位置编码"),
    _bool(_M + "apply_swiglu_fusion", default=False, en="fused SwiGLU", zh="融合 SwiGLU"),
    _loose(_M + "bias_dropout_fusion", default=False, en="not implemented", zh="尚未实现"),
    _bool(_M + "masked_softmax_fusion", default=False, en="not implemented", zh="尚未实现"),
    _bool(_M + "clone_scatter_output_in_embedding", default=False, en="not implemented", zh="尚未实现"),
    _bool(_M + "distribute_saved_activations", default=False, en="not implemented", zh="尚未实现"),
    key(
        _M + "transformer_impl",
        "str|null",
        "local",
        "implementation",
        "实现方式",
        strict=True,
        choices=("local", "transformer_engine"),
    ),
    key(
        _M + "recompute_method",
        "str|null",
        None,
        "uniform or block",
        "重计算方式",
        strict=True,
        choices=("uniform", "block"),
    ),
    key(_M + "recompute_num_layers", "int|null", None, "layers to recompute", "重计算层数", strict=True, above=0),
    key(
        _M + "recompute_granularity",
        "str|null",
        None,
        "how much to recompute",
        "重计算粒度",
        strict=True,
        choices=("selective", "full"),
    ),
    _loose(_M + "recompute_activations", default=None, en="selective recompute", zh="选择重计算"),
    _bool(_M + "select_comm_recompute", default=False, en="communication recompute", zh="通信重计算"),
    _bool(_M + "select_recompute", default=False, en="selective recompute", zh="选择重计算"),
)

KEYS: tuple[Key, ...] = (*_SIZES, *_STRUCTURE, *_NUMERICS, *_SPEED)
