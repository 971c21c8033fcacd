#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NPUS=8
NNODES=4
TP=2
PP=4
CP=2
CKPT="your model ckpt path"
DISTRIBUTED_ARGS="--worker_num $((NPUS*NNODES)) --local_worker_num $NPUS --join=True"
GPT_ARGS="
    --use-mcore-models \
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --context-parallel-size ${CP} \
    --context-parallel-algo megatron_cp_algo \
    --sequence-parallel \
    --num-layers 32 \
    --num-layers-per-virtual-pipeline-stage 2 \
    --hidden-size 4096 \
    --num-attention-heads 32 \
    --group-query-attention \
    --num-query-groups 8 \
    --num-experts 8 \
    --expert-model-parallel-size 1 \
    --seq-length 8192 \
    --max-position-embeddings 8192 \
    --micro-batch-size 1 \
    --global-batch-size 64 \
    --lr 1.25e-6 \
    --min-lr 1.25e-7 \
    --position-embedding-type rope \
    --recompute-granularity full \
    --recompute-method block \
    --recompute-num-layers 2 \
    --reuse-fp32-param \
    --bf16
"
msrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS --load $CKPT --ai-framework mindspore | tee logs/a.log
