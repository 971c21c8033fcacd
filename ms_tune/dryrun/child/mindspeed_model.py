"""Define the language model that MindFormers' ``experimental.parallel_core`` leaves to the training script.

Embedding, layers and head are the framework's own classes; they are combined as in MindSpeed-Core-MS's ``GPTModel``
(``legacy/model/gpt_model.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mindformers.experimental.parallel_core.pynative.tensor_parallel import VocabParallelCrossEntropy
from mindformers.experimental.parallel_core.pynative.training.loss_func import LossWithMask
from mindformers.experimental.parallel_core.pynative.transformer import ParallelLMLogits
from mindformers.experimental.parallel_core.pynative.transformer.enums import AttnMaskType
from mindformers.experimental.parallel_core.pynative.transformer.language_model import get_language_model
from mindformers.experimental.parallel_core.pynative.transformer.module import Module

if TYPE_CHECKING:
    from mindspore import Tensor


class GPTModel(Module):
    """One pipeline stage, or one chunk of it, with the loss after the last layer."""

    def __init__(self, config: Any, *, pre_process: bool, post_process: bool) -> None:  # noqa: ANN401 - no types there
        super().__init__(config)
        self.pre_process, self.post_process = pre_process, post_process
        self.untied = config.untie_embeddings_and_output_weights
        self.model_key = "gpt_model"
        self.language_model, _ = get_language_model(
            config,
            num_tokentypes=0,
            add_pooler=False,
            encoder_attn_mask_type=AttnMaskType.causal,
            pre_process=pre_process,
            post_process=post_process,
        )
        if post_process:
            self.head = ParallelLMLogits(config=config, bias=False, compute_dtype=config.compute_dtype)
            self.loss = LossWithMask(VocabParallelCrossEntropy())
        if not self.untied:
            self.initialize_word_embeddings()

    def set_input_tensor(self, input_tensor: Tensor) -> None:
        """Set the input received from the previous stage."""
        self.language_model.set_input_tensor(input_tensor)

    def construct(
        self, tokens: Tensor, position_ids: Tensor, attention_mask: Tensor, loss_mask: Tensor, labels: Tensor
    ) -> Tensor:
        """Return the loss, or the output for the next stage."""
        hidden = self.language_model(tokens, position_ids, attention_mask)
        if not self.post_process:
            return hidden
        weight = self.language_model.output_layer.weight if self.untied else self.shared_embedding_or_output_weight()
        logits = self.head(hidden, weight, parallel_output=True)
        # From (sequence, batch, vocabulary) to (batch, sequence, vocabulary), the order of the labels. LossWithMask of
        # MindFormers multiplies by a flat mask, so labels must be flat too.
        logits = logits.swapaxes(0, 1).contiguous()
        return self.loss(logits.float().view(-1, logits.shape[-1]), labels.reshape(-1), loss_mask)
