"""Build MindFormers' own static networks without weights, and count their parameters: a process of its own.

Each argument is a model's ``config.json`` as JSON; each line ``parameters N`` of standard output is the number of trained parameters.
Layers for multi-token prediction are switched off, because published figures do not count them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mindspore
from mindformers.core.context.build_context import build_context
from mindformers.core.parallel_config import build_parallel_config
from mindformers.models.build_model import build_network
from mindformers.tools.register import MindFormerConfig
from mindspore.nn.utils import no_init_parameters

_EXPERTS = {"moe_grouped_gemm": True, "num_nextn_predict_layers": 0, "qk_layernorm": True, "mla_qkv_concat": False}


def count(config: dict[str, Any]) -> int:
    """Return the trained parameters of the network that MindFormers builds for a model."""
    more = {**_EXPERTS, "multi_latent_attention": "kv_lora_rank" in config} if "num_experts_per_tok" in config else {}
    types = {"params_dtype": "bfloat16", "compute_dtype": "bfloat16"}
    whole: Any = MindFormerConfig(
        use_legacy=False,
        run_mode="train",
        use_parallel=False,
        context={"mode": 0, "device_target": "CPU"},
        parallel_config={"data_parallel": 1, "model_parallel": 1, "pipeline_stage": 1, "micro_batch_num": 1},
        model={"model_config": {**config, **types, **more, "offset": 0}},
    )
    build_context(whole)
    build_parallel_config(whole)
    whole.model.model_config.parallel_config = whole.parallel_config
    with no_init_parameters():
        network = build_network(whole.model, default_args={"parallel_config": whole.parallel_config})
    return sum(parameter.size for parameter in network.trainable_params())


if __name__ == "__main__":
    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    for text in sys.argv[1:]:
        print(f"\nparameters {count(json.loads(text))}", flush=True)  # noqa: T201 - the answer
