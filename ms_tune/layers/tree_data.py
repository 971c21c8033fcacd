"""The cells and operators of one layer of every model that MindFormers 1.9.0 trains.

Made from the real networks by ``tests/oracle/make_trees.py``; the notation is that of
:func:`ms_tune.layers.trees.parse_tree`.
"""

# Trees: operators, then child cells in brackets.
TREES = (
    # 0
    (
        "add cast reshape shape [ffn_norm: cast norm rcast] [attention_norm: cast norm rcast] [attention: add "
        "batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax tile_kv "
        "transpose [wq: cast matmul reshape shape] [wk: cast matmul reshape shape] [wv: cast matmul reshape shape] "
        "[wo: cast matmul reshape shape] [apply_rotary_emb: add bmm_swap cast concat mul mul_inc "
        "mul_with_batch_freqs neg shape slice] [flash_attention: flash_attention]] [feed_forward: cast mul reshape "
        "w13_concat [w1: cast matmul reshape shape [activation: silu]] [w2: cast matmul reshape shape] [w3: cast "
        "matmul reshape shape]]"
    ),
    # 1
    (
        "add cast reshape shape [ffn_norm: cast norm rcast] [attention_norm: cast norm rcast] [attention: add "
        "batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax split_qkv "
        "tile_kv transpose [w_qkv: cast matmul reshape shape] [wo: cast matmul reshape shape] [apply_rotary_emb: "
        "add bmm_swap cast concat mul mul_inc mul_with_batch_freqs neg shape slice] [flash_attention: "
        "flash_attention]] [feed_forward: cast mul reshape split [w_gate_hidden: cast matmul reshape shape] "
        "[activate: silu] [w2: cast matmul reshape shape]]"
    ),
    # 2
    (
        "add cast reshape shape [ffn_norm: cast norm rcast] [attention_norm: cast norm rcast] [attention: add "
        "batch_matmul batch_matmul_q_k cast cast_attn merger_head_transpose mul reshape shape softmax tile_kv "
        "transpose [wq: cast matmul reshape shape] [wk: cast matmul reshape shape] [wv: cast matmul reshape shape] "
        "[wo: cast matmul reshape shape] [apply_rotary_emb: add bmm_swap cast concat mul mul_inc "
        "mul_with_batch_freqs neg shape slice]] [feed_forward: cast mul reshape w13_concat [w1: cast matmul "
        "reshape shape [activation: silu]] [w2: cast matmul reshape shape] [w3: cast matmul reshape shape]]"
    ),
    # 3
    (
        "add cast [input_layernorm: cast norm] [self_attention: cast cp_transpose_after cp_transpose_before "
        "cp_transpose_kv_before kv_transpose kv_transpose_back merger_head_transpose reshape shape split_qkv "
        "tile_kv transpose transpose_back [query_key_value: bias_add cast matmul reshape shape] [dense: cast "
        "matmul reshape shape] [infer_attention: add batch_matmul batch_matmul_q_k cast merger_head_transpose mul "
        "not_equal reshape shape softmax tile_kv transpose [flash_attention: flash_attention] "
        "[paged_attention_mgr: paged_attention paged_attention_with_alibi reshape_and_cache] [rotary_embedding: "
        "rotary_embedding_op]] [core_attention: add batch_matmul batch_matmul_q_k cast merger_head_transpose "
        "mul_mask reshape transpose [attention_dropout: dropout] [softmax: softmax]] [apply_rotary_emb_classic: "
        "add cast concat mul reshape stack sub] [flash_attention: flash_attention]] [post_attention_layernorm: "
        "cast norm] [mlp: split [dense_h_to_4h: cast matmul reshape shape] [activation_func: mul [silu: silu]] "
        "[dense_4h_to_h: cast matmul reshape shape]] [dropout: dropout]"
    ),
    # 4
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [k_layernorm: "
        "cast norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul "
        "reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: silu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape]] [hidden_states_dropout: dropout]"
    ),
    # 5
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [k_layernorm: "
        "cast norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul "
        "reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: mul silu split] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias "
        "reshape shape]] [hidden_states_dropout: dropout]"
    ),
    # 6
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [k_layernorm: "
        "cast norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul "
        "reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: swiglu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape]] [hidden_states_dropout: dropout]"
    ),
    # 7
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [k_layernorm: "
        "cast norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add "
        "add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: "
        "add_accu add_eps add_loss assignadd cast div div_3d gating_activation linear mul mul_aux_2d mul_dp "
        "mul_noshard mul_sp onehot_aux reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp "
        "reduce_sum_keep reshape shape sum_accu topk] [experts: cast_op morphed_forward reshape shape swiglu] "
        "[shared_experts: add cast mul reshape split transpose [linear_fc1: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape] [activation_func: silu] [linear_fc2: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape]]] [hidden_states_dropout: dropout]"
    ),
    # 8
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [k_layernorm: "
        "cast norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add "
        "add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: "
        "add_accu add_eps add_loss assignadd cast div div_3d gating_activation linear mul mul_aux_2d mul_dp "
        "mul_noshard mul_sp onehot_aux reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp "
        "reduce_sum_keep reshape shape sum_accu topk] [experts: cast_op morphed_forward reshape shape swiglu] "
        "[shared_experts: add cast mul reshape split transpose [linear_fc1: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape] [activation_func: mul silu split] [linear_fc2: cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape]]] [hidden_states_dropout: dropout]"
    ),
    # 9
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [k_layernorm: "
        "cast norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add "
        "add_loss local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: "
        "add_accu add_eps add_loss assignadd cast div div_3d gating_activation linear mul mul_aux_2d mul_dp "
        "mul_noshard mul_sp onehot_aux reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp "
        "reduce_sum_keep reshape shape sum_accu topk] [experts: cast_op morphed_forward reshape shape swiglu] "
        "[shared_experts: add cast mul reshape split transpose [linear_fc1: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape] [activation_func: swiglu] [linear_fc2: cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape]]] [hidden_states_dropout: dropout]"
    ),
    # 10
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul "
        "reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: silu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape]] [hidden_states_dropout: dropout]"
    ),
    # 11
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add add_loss "
        "local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: add_accu "
        "add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu tc_sum tc_topk topk] [experts: cast_op morphed_forward reshape shape swiglu] "
        "[shared_experts: add cast mul reshape split transpose [linear_fc1: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape] [activation_func: silu] [linear_fc2: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape]]] [hidden_states_dropout: dropout]"
    ),
    # 12
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul "
        "reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: mul silu split] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias "
        "reshape shape]] [hidden_states_dropout: dropout]"
    ),
    # 13
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add add_loss "
        "local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: add_accu "
        "add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu tc_sum tc_topk topk] [experts: cast_op morphed_forward reshape shape swiglu] "
        "[shared_experts: add cast mul reshape split transpose [linear_fc1: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape] [activation_func: mul silu split] [linear_fc2: cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape]]] [hidden_states_dropout: dropout]"
    ),
    # 14
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul "
        "reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: swiglu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape]] [hidden_states_dropout: dropout]"
    ),
    # 15
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add add_loss "
        "local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: add_accu "
        "add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu tc_sum tc_topk topk] [experts: cast_op morphed_forward reshape shape swiglu] "
        "[shared_experts: add cast mul reshape split transpose [linear_fc1: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape] [activation_func: swiglu] [linear_fc2: cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape]]] [hidden_states_dropout: dropout]"
    ),
    # 16
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: ] [k_layernorm: ]] "
        "[pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul reshape "
        "split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: silu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape]] [hidden_states_dropout: dropout]"
    ),
    # 17
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: ] [k_layernorm: ]] "
        "[pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul reshape "
        "split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: mul silu split] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias "
        "reshape shape]] [hidden_states_dropout: dropout]"
    ),
    # 18
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: bs_transpose cast cat "
        "merge_head_transpose reshape reshape_concat shape split_qkv tile_kv tnd_transpose [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_pos_emb: "
        "add cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_qkv: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: ] [k_layernorm: ]] "
        "[pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add mul reshape "
        "split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape shape] "
        "[activation_func: swiglu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape]] [hidden_states_dropout: dropout]"
    ),
    # 19
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add add_loss "
        "local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: add_accu "
        "add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu topk] [experts: cast_op morphed_forward reshape shape swiglu] [shared_experts: add cast "
        "mul reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape] [activation_func: silu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape]]] [hidden_states_dropout: dropout]"
    ),
    # 20
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add add_loss "
        "local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: add_accu "
        "add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu topk] [experts: cast_op morphed_forward reshape shape swiglu] [shared_experts: add cast "
        "mul reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape] [activation_func: mul silu split] [linear_fc2: cast matmul morphed_forward "
        "morphed_forward_with_bias reshape shape]]] [hidden_states_dropout: dropout]"
    ),
    # 21
    (
        "add add_bias cast [input_layernorm: cast norm] [self_attention: add_loss bs_transpose cast expand_dims "
        "pe_concat reshape shape split split_3d tile_kv tnd_transpose tnd_transpose_one_head [core_attention: "
        "bnsd_transpose bsh_transpose fa_out_transpose flash_attention merge_head_transpose reshape shape] "
        "[linear_proj: cast matmul morphed_forward morphed_forward_with_bias reshape shape] [apply_rotary_emb: add "
        "cast cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [apply_rotary_emb2: add cast "
        "cat cos mul mul_mscale neg reshape sin slice split stack strideslice] [linear_q_down_proj: add cast "
        "matmul morphed_forward morphed_forward_with_bias reshape shape] [linear_q_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_down_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [linear_kv_up_proj: add cast matmul "
        "morphed_forward morphed_forward_with_bias reshape shape] [q_layernorm: cast norm] [kv_layernorm: cast "
        "norm]] [pre_cross_attn_layernorm: ] [cross_attention: ] [pre_mlp_layernorm: cast norm] [mlp: add add_loss "
        "local_reshape_permute local_reshape_unpermute reshape shape transpose transpose2 [router: add_accu "
        "add_eps add_loss afb_add_topk_bias afb_reduce_mean afb_topk assign_add assignadd cast div div_3d "
        "gate_gather gating_activation linear mul mul_aux_2d mul_dp mul_noshard mul_sp onehot_2d onehot_aux "
        "reduce_mean reduce_mean_aux_2d reduce_mean_aux_3d reduce_mean_dp reduce_mean_sp reduce_sum_keep reshape "
        "shape sum_accu topk] [experts: cast_op morphed_forward reshape shape swiglu] [shared_experts: add cast "
        "mul reshape split transpose [linear_fc1: cast matmul morphed_forward morphed_forward_with_bias reshape "
        "shape] [activation_func: swiglu] [linear_fc2: cast matmul morphed_forward morphed_forward_with_bias "
        "reshape shape]]] [hidden_states_dropout: dropout]"
    ),
)

# Model and variant -> its kinds of layers, the one without experts first.
MODELS: dict[str, dict[str, tuple[int, ...]]] = {
    "LlamaForCausalLM": {"": (0,), "qkv_concat": (1,), "no-flash": (2,)},
    "ChatGLM2ForConditionalGeneration": {"": (3,)},
    "qwen3": {"silu": (4,), "swiglu": (5,), "fusedswiglu": (6,)},
    "qwen3_moe": {"silu": (7,), "swiglu": (8,), "fusedswiglu": (9,)},
    "deepseek_v3": {"silu": (10, 11), "swiglu": (12, 13), "fusedswiglu": (14, 15)},
    "telechat3": {"silu": (16,), "swiglu": (17,), "fusedswiglu": (18,)},
    "telechat3_moe": {"silu": (10, 19), "swiglu": (12, 20), "fusedswiglu": (14, 21)},
}
