#!/bin/bash
# MindSpeed-LLM on MindSpore: a 7B on one node.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export HCCL_CONNECT_TIMEOUT=3600
export ASCEND_LAUNCH_BLOCKING=1

NPUS_PER_NODE=8
TP=2
PP=4

MODEL_ARGS="
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 11008
    --num-attention-heads 32
    --seq-length 4096
    --max-position-embeddings 4096
    --tokenizer-type PretrainedFromHF
    --tokenizer-name-or-path ./model
    --padded-vocab-size 32000
    --normalization RMSNorm
    --position-embedding-type rope
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
"
TRAIN_ARGS="
    --micro-batch-size 1
    --global-batch-size 30
    --train-iters 2000
    --lr 1.25e-6
    --bf16
    --use-flash-attn
    --recompute-granularity full
    --recompute-method block
    --recompute-num-layers 9
"

msrun --worker_num $NPUS_PER_NODE --local_worker_num $NPUS_PER_NODE --log_dir msrun_log --join True \
    pretrain_gpt.py \
    $MODEL_ARGS \
    $TRAIN_ARGS \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --sequence-parallel \
    --use-distributed-optimizer \
    --distributed-backend nccl \
    --data-path ./data \
    --ai-framework mindspore
