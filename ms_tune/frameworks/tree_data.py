"""The cells and operators of one layer of every model that MindFormers trains, release by release.

Made by ``tests/oracle/make_trees.py``, which tells how; the notation is that of
:func:`ms_tune.layers.tree.read_tree`.
"""

# Cells: operators, then child cells as name=number.
PARTS = (
    "cast norm rcast",  # 0
    "cast matmul reshape shape",  # 1
    "add bmm_swap cast concat mul mul_inc mul_with_batch_freqs neg shape slice",  # 2
    "flash_attention",  # 3
    (
        "add batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax tile_kv "
        "transpose wq=1 wk=1 wv=1 wo=1 apply_rotary_emb=2 flash_attention=3"
    ),  # 4
    "silu",  # 5
    "cast matmul reshape shape activation=5",  # 6
    "cast mul reshape w13_concat w1=6 w2=1 w3=1",  # 7
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=4 feed_forward=7",  # 8
    (
        "add batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax "
        "split_qkv tile_kv transpose w_qkv=1 wo=1 apply_rotary_emb=2 flash_attention=3"
    ),  # 9
    "cast mul reshape split w_gate_hidden=1 activate=5 w2=1",  # 10
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=9 feed_forward=10",  # 11
    (
        "add batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax tile_kv "
        "transpose wq=1 wk=1 wv=1 wo=1 apply_rotary_emb=2"
    ),  # 12
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=12 feed_forward=7",  # 13
    "cast norm",  # 14
    "bias_add cast matmul reshape shape",  # 15
    "paged_attention paged_attention_with_alibi reshape_and_cache",  # 16
    "rotary_embedding_op",  # 17
    (
        "add batch_matmul batch_matmul_q_k cast merger_head_transpose mul not_equal reshape shape softmax tile_kv "
        "transpose flash_attention=3 paged_attention_mgr=16 rotary_embedding=17"
    ),  # 18
    "dropout",  # 19
    "softmax",  # 20
    (
        "add batch_matmul batch_matmul_q_k cast merger_head_transpose mul_mask reshape transpose "
        "attention_dropout=19 softmax=20"
    ),  # 21
    "add cast concat mul reshape stack sub",  # 22
    (
        "cast cp_transpose_after cp_transpose_before cp_transpose_kv_before kv_transpose kv_transpose_back "
        "merger_head_transpose reshape shape split_qkv tile_kv transpose transpose_back query_key_value=15 dense=1 "
        "infer_attention=18 core_attention=21 apply_rotary_emb_classic=22 flash_attention=3"
    ),  # 23
    "mul silu=5",  # 24
    "split dense_h_to_4h=1 activation_func=24 dense_4h_to_h=1",  # 25
    "add cast input_layernorm=14 self_attention=23 post_attention_layernorm=14 mlp=25 dropout=19",  # 26
    "cast matmul reshape shape dropout=19",  # 27
    "bias_add cast matmul reshape shape dropout=19",  # 28
    (
        "add batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax split_kv "
        "tile_kv transpose wq=27 wk_v=27 wo=28 apply_rotary_emb=2 attention_dropout=19 flash_attention=3"
    ),  # 29
    "cast matmul reshape shape activation=5 dropout=19",  # 30
    "cast mul w1=30 w3=27 w2=28",  # 31
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=29 feed_forward=31",  # 32
    "cast mul split w_gate_hidden=27 activate=5 w2=28",  # 33
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=29 feed_forward=33",  # 34
    (
        "add batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax split_kv "
        "tile_kv transpose wq=27 wk_v=27 wo=28 apply_rotary_emb=2 attention_dropout=19"
    ),  # 35
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=35 feed_forward=31",  # 36
    "add bmm_swap cast concat mul mul_inc neg shape slice transpose",  # 37
    (
        "add batch_matmul batch_matmul_q_k cast cast_attn dim_slice_3d dim_slice_4d dp_only_transpose "
        "merger_head_transpose mul mul_zeros pe_concat reshape shape slice_qkv softmax sum_test tile_kv transpose "
        "q2l_proj=1 lq_norm=0 l2q_nope_proj=1 l2q_pe_proj=1 kv2l_k_pe=1 kv2l_latent_kv=1 lkv_norm=0 "
        "lkv2kv_k_nope=1 lkv2kv_v=1 wo=1 apply_rotary_emb=37 flash_attention=3"
    ),  # 38
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=38 feed_forward=7",  # 39
    "cast mul w1=6 w2=1 w3=1",  # 40
    "matmul reshape shape_op",  # 41
    "cast mul dense=41",  # 42
    (
        "cast cumsum expand_dims gather mod moe_finalize_routing onehot reshape shape softmax sort topk "
        "transpose_2d zeros ffn=40 router=42 gating=41"
    ),  # 43
    "add cast mul reshape sigmoid routed_experts=43 shared_experts=7",  # 44
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=38 feed_forward=44",  # 45
    (
        "add batch_matmul batch_matmul_q_k cast cast_attn dim_slice_3d dim_slice_4d dp_only_transpose "
        "merger_head_transpose mul mul_zeros pe_concat reshape shape slice_qkv softmax sum_test tile_kv transpose "
        "q2l_proj=1 lq_norm=0 l2q_nope_proj=1 l2q_pe_proj=1 kv2l_k_pe=1 kv2l_latent_kv=1 lkv_norm=0 "
        "lkv2kv_k_nope=1 lkv2kv_v=1 wo=1 apply_rotary_emb=37"
    ),  # 46
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=46 feed_forward=7",  # 47
    "add cast reshape shape ffn_norm=0 attention_norm=0 attention=46 feed_forward=44",  # 48
    "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape",  # 49
    "cast matmul morphed_forward morphed_forward_with_bias reshape shape",  # 50
    "add cat cos mul mul_mscale neg reshape sin slice split stack strideslice",  # 51
    "add cast matmul morphed_forward morphed_forward_with_bias reshape shape",  # 52
    (
        "bs_transpose cast cat merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose "
        "core_attention=49 linear_proj=50 apply_rotary_pos_emb=51 linear_qkv=52 q_layernorm=14 k_layernorm=14"
    ),  # 53
    "",  # 54
    "add mul reshape split transpose linear_fc1=50 activation_func=5 linear_fc2=50",  # 55
    (
        "add add_bias input_layernorm=14 self_attention=53 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=55 hidden_states_dropout=19"
    ),  # 56
    "mul silu split",  # 57
    "add mul reshape split transpose linear_fc1=50 activation_func=57 linear_fc2=50",  # 58
    (
        "add add_bias input_layernorm=14 self_attention=53 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=58 hidden_states_dropout=19"
    ),  # 59
    "swiglu",  # 60
    "add mul reshape split transpose linear_fc1=50 activation_func=60 linear_fc2=50",  # 61
    (
        "add add_bias input_layernorm=14 self_attention=53 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=61 hidden_states_dropout=19"
    ),  # 62
    (
        "add_accu add_eps add_loss assignadd cast div div_3d gating_activation linear mul mul_aux_2d mul_dp "
        "mul_noshard mul_sp onehot_aux reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp "
        "reduce_sum_keep reshape shape sum_accu topk"
    ),  # 63
    "cast_op morphed_forward reshape shape swiglu",  # 64
    "add cast mul reshape split transpose linear_fc1=50 activation_func=5 linear_fc2=50",  # 65
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=63 "
        "experts=64 shared_experts=65"
    ),  # 66
    (
        "add add_bias input_layernorm=14 self_attention=53 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=66 hidden_states_dropout=19"
    ),  # 67
    "add cast mul reshape split transpose linear_fc1=50 activation_func=57 linear_fc2=50",  # 68
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=63 "
        "experts=64 shared_experts=68"
    ),  # 69
    (
        "add add_bias input_layernorm=14 self_attention=53 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=69 hidden_states_dropout=19"
    ),  # 70
    "add cast mul reshape split transpose linear_fc1=50 activation_func=60 linear_fc2=50",  # 71
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=63 "
        "experts=64 shared_experts=71"
    ),  # 72
    (
        "add add_bias input_layernorm=14 self_attention=53 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=72 hidden_states_dropout=19"
    ),  # 73
    (
        "bs_transpose cast expand_dims pe_concat pe_tnd_concat reshape shape split split_3d tile_kv tnd_transpose "
        "core_attention=49 linear_proj=50 apply_rotary_emb=51 apply_rotary_emb2=51 linear_q_down_proj=52 "
        "linear_q_up_proj=52 linear_kv_down_proj=52 linear_kv_up_proj=52 q_layernorm=14 kv_layernorm=14"
    ),  # 74
    (
        "add add_bias input_layernorm=14 self_attention=74 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=55 hidden_states_dropout=19"
    ),  # 75
    (
        "add_accu add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu tc_sum tc_topk topk"
    ),  # 76
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=76 "
        "experts=64 shared_experts=65"
    ),  # 77
    (
        "add add_bias input_layernorm=14 self_attention=74 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=77 hidden_states_dropout=19"
    ),  # 78
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=78 final_layernorm=14",  # 79
    (
        "add add_bias input_layernorm=14 self_attention=74 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=58 hidden_states_dropout=19"
    ),  # 80
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=76 "
        "experts=64 shared_experts=68"
    ),  # 81
    (
        "add add_bias input_layernorm=14 self_attention=74 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=81 hidden_states_dropout=19"
    ),  # 82
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=82 final_layernorm=14",  # 83
    (
        "add add_bias input_layernorm=14 self_attention=74 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=61 hidden_states_dropout=19"
    ),  # 84
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=76 "
        "experts=64 shared_experts=71"
    ),  # 85
    (
        "add add_bias input_layernorm=14 self_attention=74 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=85 hidden_states_dropout=19"
    ),  # 86
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=86 final_layernorm=14",  # 87
    "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice",  # 88
    (
        "bs_transpose cast cat merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose "
        "core_attention=49 linear_proj=50 apply_rotary_pos_emb=88 linear_qkv=52 q_layernorm=14 k_layernorm=14"
    ),  # 89
    (
        "add add_bias cast input_layernorm=14 self_attention=89 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=55 hidden_states_dropout=19"
    ),  # 90
    (
        "add add_bias cast input_layernorm=14 self_attention=89 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=58 hidden_states_dropout=19"
    ),  # 91
    (
        "add add_bias cast input_layernorm=14 self_attention=89 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=61 hidden_states_dropout=19"
    ),  # 92
    (
        "add add_bias cast input_layernorm=14 self_attention=89 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=66 hidden_states_dropout=19"
    ),  # 93
    (
        "add add_bias cast input_layernorm=14 self_attention=89 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=69 hidden_states_dropout=19"
    ),  # 94
    (
        "add add_bias cast input_layernorm=14 self_attention=89 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=72 hidden_states_dropout=19"
    ),  # 95
    (
        "bs_transpose cast expand_dims pe_concat pe_tnd_concat reshape shape split split_3d tile_kv tnd_transpose "
        "core_attention=49 linear_proj=50 apply_rotary_emb=88 apply_rotary_emb2=88 linear_q_down_proj=52 "
        "linear_q_up_proj=52 linear_kv_down_proj=52 linear_kv_up_proj=52 q_layernorm=14 kv_layernorm=14"
    ),  # 96
    (
        "add add_bias cast input_layernorm=14 self_attention=96 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=55 hidden_states_dropout=19"
    ),  # 97
    (
        "add add_bias cast input_layernorm=14 self_attention=96 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=77 hidden_states_dropout=19"
    ),  # 98
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=98 final_layernorm=14",  # 99
    (
        "add add_bias cast input_layernorm=14 self_attention=96 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=58 hidden_states_dropout=19"
    ),  # 100
    (
        "add add_bias cast input_layernorm=14 self_attention=96 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=81 hidden_states_dropout=19"
    ),  # 101
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=101 final_layernorm=14",  # 102
    (
        "add add_bias cast input_layernorm=14 self_attention=96 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=61 hidden_states_dropout=19"
    ),  # 103
    (
        "add add_bias cast input_layernorm=14 self_attention=96 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=85 hidden_states_dropout=19"
    ),  # 104
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=104 final_layernorm=14",  # 105
    (
        "add_loss bs_transpose cast expand_dims pe_concat reshape shape split split_3d tile_kv tnd_transpose "
        "tnd_transpose_one_head core_attention=49 linear_proj=50 apply_rotary_emb=88 apply_rotary_emb2=88 "
        "linear_q_down_proj=52 linear_q_up_proj=52 linear_kv_down_proj=52 linear_kv_up_proj=52 q_layernorm=14 "
        "kv_layernorm=14"
    ),  # 106
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=55 hidden_states_dropout=19"
    ),  # 107
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=77 hidden_states_dropout=19"
    ),  # 108
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=108 final_layernorm=14",  # 109
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=58 hidden_states_dropout=19"
    ),  # 110
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=81 hidden_states_dropout=19"
    ),  # 111
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=111 final_layernorm=14",  # 112
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=61 hidden_states_dropout=19"
    ),  # 113
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=85 hidden_states_dropout=19"
    ),  # 114
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=114 final_layernorm=14",  # 115
    (
        "bs_transpose cast cat merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose "
        "core_attention=49 linear_proj=50 apply_rotary_pos_emb=88 linear_qkv=52 q_layernorm=54 k_layernorm=54"
    ),  # 116
    (
        "add add_bias cast input_layernorm=14 self_attention=116 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=55 hidden_states_dropout=19"
    ),  # 117
    (
        "add add_bias cast input_layernorm=14 self_attention=116 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=58 hidden_states_dropout=19"
    ),  # 118
    (
        "add add_bias cast input_layernorm=14 self_attention=116 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=61 hidden_states_dropout=19"
    ),  # 119
    (
        "add_accu add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu topk"
    ),  # 120
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=120 "
        "experts=64 shared_experts=65"
    ),  # 121
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=121 hidden_states_dropout=19"
    ),  # 122
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=122 final_layernorm=14",  # 123
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=120 "
        "experts=64 shared_experts=68"
    ),  # 124
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=124 hidden_states_dropout=19"
    ),  # 125
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=125 final_layernorm=14",  # 126
    (
        "add add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 router=120 "
        "experts=64 shared_experts=71"
    ),  # 127
    (
        "add add_bias cast input_layernorm=14 self_attention=106 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=127 hidden_states_dropout=19"
    ),  # 128
    "cast concat reshape enorm=14 hnorm=14 eh_proj=52 transformer_layer=128 final_layernorm=14",  # 129
    "bnsd_transpose bsh_transpose cast fa_out_transpose merge_head_transpose reshape",  # 130
    "add cast init_method matmul transpose",  # 131
    "add cast cat cos mul mul_mscale narrow neg reshape sin split stack",  # 132
    (
        "bs_transpose cast cat init_method output_layer_init_method reshape reshape_concat split_qkv tile_kv "
        "tnd_transpose core_attention=130 linear_proj=131 apply_rotary_pos_emb=132 linear_qkv=131 q_layernorm=14 "
        "k_layernorm=14"
    ),  # 133
    "add mul reshape split transpose linear_fc1=131 activation_func=5 linear_fc2=131",  # 134
    (
        "add input_layernorm=14 self_attention=133 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=134 hidden_states_dropout=19"
    ),  # 135
    (
        "cast cat permute reshape shape split tile_kv transpose core_attention=130 linear_proj=131 q_handoff=54 "
        "k_handoff=54 v_handoff=54 apply_rotary_emb_q=132 apply_rotary_emb_k=132 q_layernorm=54 linear_qb=131 "
        "linear_qkv=131 k_layernorm=54 linear_kvb=131"
    ),  # 136
    (
        "add input_layernorm=14 self_attention=136 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=134 hidden_states_dropout=19"
    ),  # 137
    "construct",  # 138
    (
        "arange cast div gather histc linear mul ones_like reshape sigmoid softmax softplus sqrt stop_gradient sum "
        "topk moe_aux_loss_auto_scaler=138"
    ),  # 139
    (
        "argsort bmm cast chunk cumsum histc init_method mul ones_like reshape sum unsqueeze zeros activation_func=5"
    ),  # 140
    "add cast mul reshape split transpose linear_fc1=131 activation_func=5 linear_fc2=131",  # 141
    "add bmm cast mul ones_like reshape sum unsqueeze zeros router=139 experts=140 shared_experts=141",  # 142
    (
        "add input_layernorm=14 self_attention=136 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=14 mlp=142 hidden_states_dropout=19"
    ),  # 143
    "cast cat reshape enorm=14 hnorm=14 eh_proj=131 transformer_layer=143 final_layernorm=14",  # 144
    "norm cast reset_parameter",  # 145
    (
        "flash_attention bnsd_transpose bsh_transpose merge_head_transpose reshape fa_out_transpose cast "
        "reset_parameter"
    ),  # 146
    "init_method matmul transpose cast add reset_parameter",  # 147
    "add mul mul_mscale cos sin neg split cat stack reshape narrow cast",  # 148
    (
        "init_method output_layer_init_method split_qkv cast reshape bs_transpose tnd_transpose tile_kv cat "
        "reshape_concat get_query_key_value_tensors sbh2tnd core_attention=146 linear_proj=147 "
        "apply_rotary_pos_emb=148 linear_qkv=147 q_layernorm=145 k_layernorm=145"
    ),  # 149
    "mul split reshape add transpose linear_fc1=147 activation_func=5 linear_fc2=147",  # 150
    (
        "add input_layernorm=145 self_attention=149 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=145 mlp=150 hidden_states_dropout=19"
    ),  # 151
    (
        "shape reshape transpose permute cast split tile_kv cat get_query_key_value_tensors apply_qk_clip "
        "core_attention_extra_kwargs sbh2tnd core_attention=146 linear_proj=147 q_handoff=54 k_handoff=54 "
        "v_handoff=54 apply_rotary_emb_q=148 apply_rotary_emb_k=148 q_layernorm=54 linear_qb=147 linear_qkv=147 "
        "k_layernorm=54 linear_kvb=147"
    ),  # 152
    (
        "add input_layernorm=145 self_attention=152 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=145 mlp=150 hidden_states_dropout=19"
    ),  # 153
    (
        "linear sigmoid softmax softplus sqrt cast arange gather reshape topk sum ones_like div mul histc "
        "stop_gradient enable_sequence_parallel reset_parameter reset_global_aux_loss_tracker "
        "moe_aux_loss_auto_scaler=54"
    ),  # 154
    (
        "mul init_method cast reshape chunk unsqueeze ones_like histc argsort zeros sum cumsum bmm permute "
        "unpermute experts_forward reset_parameter activation_func=5"
    ),  # 155
    "mul split reshape add transpose cast linear_fc1=147 activation_func=5 linear_fc2=147",  # 156
    (
        "reshape zeros sum add mul bmm unsqueeze cast ones_like reset_parameter router=154 experts=155 "
        "shared_experts=156"
    ),  # 157
    (
        "add input_layernorm=145 self_attention=152 pre_cross_attn_layernorm=54 cross_attention=54 "
        "pre_mlp_layernorm=145 mlp=157 hidden_states_dropout=19"
    ),  # 158
    "cat cast reshape enorm=145 hnorm=145 eh_proj=147 transformer_layer=158 final_layernorm=145",  # 159
)

# Model, variant, releases -> its kinds of layers, the one without experts first.
MODELS: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "LlamaForCausalLM": {
        "": {"1.6 1.7 1.8 1.9 2.0 2.1": (8,)},
        "qkv_concat": {"1.6 1.7 1.8 1.9 2.0 2.1": (11,)},
        "no-flash": {"1.6 1.7 1.8 1.9 2.0 2.1": (13,)},
    },
    "ChatGLM2ForConditionalGeneration": {
        "": {"1.6 1.7 1.8 1.9 2.0 2.1": (26,)},
    },
    "TelechatForCausalLM": {
        "": {"1.6 1.7 1.8 1.9 2.0 2.1": (32,)},
        "concat": {"1.6 1.7 1.8 1.9 2.0 2.1": (34,)},
        "no-flash": {"1.6 1.7 1.8 1.9 2.0 2.1": (36,)},
    },
    "DeepseekV3ForCausalLM": {
        "": {"1.6 1.7 1.8 1.9 2.0 2.1": (39, 45)},
        "no-flash": {"1.6 1.7 1.8 1.9 2.0 2.1": (47, 48)},
    },
    "qwen3": {
        "silu": {"1.7": (56,), "1.8 1.9 2.0 2.1": (90,)},
        "swiglu": {"1.7": (59,), "1.8 1.9 2.0 2.1": (91,)},
        "fusedswiglu": {"1.7": (62,), "1.8 1.9 2.0 2.1": (92,)},
    },
    "qwen3_moe": {
        "silu": {"1.7": (67,), "1.8 1.9 2.0 2.1": (93,)},
        "swiglu": {"1.7": (70,), "1.8 1.9 2.0 2.1": (94,)},
        "fusedswiglu": {"1.7": (73,), "1.8 1.9 2.0 2.1": (95,)},
    },
    "deepseek_v3": {
        "silu": {"1.7": (75, 78), "1.8": (97, 98), "1.9 2.0 2.1": (107, 108)},
        "silu mtp": {"1.7": (79,), "1.8": (99,), "1.9 2.0 2.1": (109,)},
        "swiglu": {"1.7": (80, 82), "1.8": (100, 101), "1.9 2.0 2.1": (110, 111)},
        "swiglu mtp": {"1.7": (83,), "1.8": (102,), "1.9 2.0 2.1": (112,)},
        "fusedswiglu": {"1.7": (84, 86), "1.8": (103, 104), "1.9 2.0 2.1": (113, 114)},
        "fusedswiglu mtp": {"1.7": (87,), "1.8": (105,), "1.9 2.0 2.1": (115,)},
    },
    "telechat3": {
        "silu": {"1.9 2.0 2.1": (117,)},
        "swiglu": {"1.9 2.0 2.1": (118,)},
        "fusedswiglu": {"1.9 2.0 2.1": (119,)},
    },
    "telechat3_moe": {
        "silu": {"1.9 2.0 2.1": (107, 122)},
        "silu mtp": {"1.9 2.0 2.1": (123,)},
        "swiglu": {"1.9 2.0 2.1": (110, 125)},
        "swiglu mtp": {"1.9 2.0 2.1": (126,)},
        "fusedswiglu": {"1.9 2.0 2.1": (113, 128)},
        "fusedswiglu mtp": {"1.9 2.0 2.1": (129,)},
    },
}
DYNAMIC_MODELS: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "qwen3": {
        "": {"2.0": (135,), "2.1": (151,)},
    },
    "deepseek_v3": {
        "": {"2.0": (137, 143, 144), "2.1": (153, 158, 159)},
    },
}
