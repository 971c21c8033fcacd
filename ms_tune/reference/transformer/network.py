"""Implement one chunk of the network: embedding, transformer layers, output projection, loss.

Shapes: ``s`` tokens, ``b`` samples, ``h`` hidden size, ``v`` vocabulary. Activations are ``(s, b, h)``; between the layers
``s`` is this rank's part of the sequence.
"""

from __future__ import annotations

import re
from dataclasses import replace
from inspect import signature

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common._grad_function import _Function
from mindspore.common.initializer import initializer
from mindspore.mint import distributed

from ms_tune.dialects.stage import Chunk, StageLayer
from ms_tune.reference.transformer.attention import (
    LatentSelfAttention,
    LegacySelfAttention,
    SelfAttention,
    TableMaker,
    Tables,
)
from ms_tune.reference.transformer.context import heads_to_sequence, join_heads
from ms_tune.reference.transformer.linear import ColumnLinear, Linear, Norm, RowLinear, cast_to
from ms_tune.reference.transformer.moe import FeedForward, MixtureOfExperts
from ms_tune.reference.transformer.parallel import (
    RankGroup,
    Saved,
    cut_sequence,
    gather,
    gather_last,
    local_part,
    reduce,
    scatter,
    share_gradient,
    sum_over_ranks,
)
from ms_tune.reference.transformer.settings import NetworkSettings
from ms_tune.reference.transformer.sharding import Parts, Sharder, Unsharded


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss from complete logits ``(tokens, vocabulary)`` and labels ``(tokens,)``."""
    return mint.mean(_Picked.apply(_LogProbabilities.apply(logits), labels.reshape(-1, 1)))


class _LogProbabilities(_Function):
    """The negative log-probabilities of the vocabulary, as computed in MindFormers' dynamic graph.

    Operator by operator (``_LogSoftmax`` of pynative/loss/loss.py, 2.1): four float32 tensors of the logits' size are alive at
    once, and the logits themselves stay for the backward pass.
    """

    @staticmethod
    def forward(ctx: Saved, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        wide = logits.astype(mindspore.float32)
        shifted = wide - mint.max(wide, dim=1, keepdim=True)[0]
        powers = mint.exp(shifted)
        return mint.log(mint.sum(powers, dim=-1, keepdim=True)) - shifted

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        return gradient.astype(logits.dtype)


class _Picked(_Function):
    """The loss of every token; its backward pass computes the gradient of log-softmax and selection (``_NLLLoss`` there)."""

    @staticmethod
    def forward(ctx: Saved, negated: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(negated, labels)
        return mint.gather(negated, 1, labels.astype(mindspore.int64)).reshape(-1)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None]:
        negated, labels = ctx.saved_tensors
        probabilities = mint.exp(mint.neg(negated))
        one = mint.zeros_like(labels, dtype=probabilities.dtype) - 1
        by_logits = mint.scatter_add(probabilities, 1, labels.astype(mindspore.int64), one)
        by_logits = by_logits * gradient.reshape(-1, 1)
        return by_logits, None


class _SplitCrossEntropy(_Function):
    """The loss of every token, as in ``VocabParallelCrossEntropy`` of Megatron-LM and MindSpeed-Core-MS r0.1.0.

    The softmax over this rank's vocabulary is kept for the backward pass and becomes the gradient in place.
    """

    @staticmethod
    def forward(ctx: Saved, logits: Tensor, labels: Tensor, group: RankGroup) -> Tensor:
        maximum = mint.max(logits, dim=-1, keepdim=True)[0]
        if group.size > 1:
            distributed.all_reduce(maximum, "max", group=group.name)
        logits = logits - maximum
        own = labels - logits.shape[-1] * group.place
        absent = mint.logical_or(mint.lt(own, 0), mint.ge(own, logits.shape[-1]))
        own = mint.where(absent, mint.zeros_like(own), own).reshape(-1, 1).astype(mindspore.int64)
        predicted = mint.gather(logits, 1, own).reshape(-1).masked_fill(absent, 0.0)
        softmax = mint.exp(logits)
        total = sum_over_ranks(mint.sum(softmax, dim=-1, keepdim=True), group)
        softmax.div_(total)
        ctx.save_for_backward(softmax, absent, own)
        return mint.log(total).reshape(-1) - sum_over_ranks(predicted, group)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None]:
        softmax, absent, own = ctx.saved_tensors
        hit = (1.0 - absent.astype(softmax.dtype)).reshape(-1, 1)
        softmax.scatter_add_(1, own, -hit)
        return softmax.mul_(gradient.reshape(-1, 1)), None, None


class _SplitByOperators(_Function):
    """The loss of every token, as computed in MindFormers' dynamic graph (pynative/loss/loss.py, 2.0 and 2.1).

    The exponentials of this rank's logits, float32, stay for the backward pass, which runs operator by operator: at its end the
    results of the last two operators, the probabilities and the exponentials are alive, four float32 tensors of the parts' size.
    """

    @staticmethod
    def forward(ctx: Saved, logits: Tensor, labels: Tensor, group: RankGroup) -> Tensor:
        ctx.dtype = logits.dtype
        wide = logits.astype(mindspore.float32)
        highest = mint.max(wide, dim=-1, keepdim=True)[0]
        if group.size > 1:
            distributed.all_reduce(highest, "max", group=group.name)
        powers = mint.exp(mint.sub(wide, highest))
        total = sum_over_ranks(mint.sum(powers, dim=-1, keepdim=True), group)
        own = labels - wide.shape[-1] * group.place
        here = mint.logical_and(mint.ge(own, 0), mint.lt(own, wide.shape[-1]))
        own = (own * here.astype(own.dtype)).reshape(-1, 1).astype(mindspore.int64)
        hit = here.astype(mindspore.float32).reshape(-1, 1)
        predicted = sum_over_ranks(mint.gather(wide, 1, own) * hit, group)
        ctx.save_for_backward(powers, total, own, hit)
        return (highest + mint.log(total) - predicted).reshape(-1)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None]:
        powers, total, own, hit = ctx.saved_tensors
        probabilities = mint.div(powers, total)
        by_logits = mint.scatter_add(probabilities, 1, own, mint.neg(hit))
        by_logits = by_logits * gradient.reshape(-1, 1)
        by_logits = by_logits * 1.0  # in the framework: by the number of ranks
        return by_logits.astype(ctx.dtype), None, None


class Embedding(nn.Cell):
    """The word embedding, split by vocabulary over the tensor-parallel ranks, and learned positions, if any."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        shape = settings.shape
        self.group, self.sequence, self.dtype = settings.groups.tensor, settings.sequence, settings.format_of("compute")
        self.keeps, self.tiled = settings.shape.legacy, shape.tiled_words
        words = shape.vocab_size // self.group.size
        self.first = words * self.group.place
        self.weight = Parameter(initializer("normal", (words, shape.hidden_size), settings.format_of("embedding")))
        self.positions = None
        if not shape.rotary:
            self.positions = Parameter(initializer("normal", (shape.seq_length, shape.hidden_size), settings.dtype))

    def construct(self, tokens: Tensor) -> Tensor:
        """Embed tokens: ``(s, b)`` to ``(s, b, h)``."""
        if self.keeps:
            return self.embed_legacy(tokens)
        if self.group.size == 1:
            x = self.look_up_rows(tokens).astype(self.dtype)
        elif self.sequence and self.positions is None:
            # pynative/distributed/style.py, 2.1: in the number format of the weight, and the output stays until the backward
            # pass; not in 2.0.
            return scatter(self.embed_local(tokens), self.group, keeps=not self.tiled).astype(self.dtype)
        else:
            x = reduce(self.embed_local(tokens).astype(self.dtype), self.group)
        if self.positions is not None:
            x = x + self.positions[: x.shape[0]].unsqueeze(1)
        return scatter(x, self.group) if self.sequence else x

    def embed_legacy(self, tokens: Tensor) -> Tensor:
        """Embed tokens, keeping all that ``legacy/model/language_model.py`` keeps until the backward pass."""
        x = mint.nn.functional.embedding(tokens, self.weight) if self.group.size == 1 else self.embed_local(tokens)
        x = reduce(x, self.group, keeps=True)
        if self.positions is not None:
            x = x + self.positions[: x.shape[0]].unsqueeze(1)
        if self.sequence:
            x = cut_sequence(x, self.group)
        elif x.shape[1] > 1:
            x = mint.clone(x)  # tokens are (b, s) in the framework: moving the sequence to the front needs a copy
        return cast_to(x, self.dtype)

    def look_up_rows(self, tokens: Tensor) -> Tensor:
        """Look up a row per token: by its index or, in MindFormers 2.0, element by element (``vocab_embedding.py``)."""
        if not self.tiled:
            return mint.nn.functional.embedding(tokens, self.weight)
        return mint.gather(self.weight, 0, self.repeat_index(tokens)).reshape(*tokens.shape, -1)

    def repeat_index(self, tokens: Tensor) -> Tensor:
        """Repeat the token's index for every element of its row: ``(s b, h)``, without a gradient."""
        return mint.tile(ops.stop_gradient(tokens).reshape(-1, 1), (1, self.weight.shape[1]))

    def gathered_words(self, tokens: Tensor) -> Tensor:
        """Look up this rank's tokens, others as zero (HyperParallel, ``core/shard/ops/parallel_gather.py`` at 0e81ad83)."""
        numbers = self.repeat_index(tokens)
        own = numbers - self.first
        there = mint.logical_and(mint.ge(numbers, self.first), mint.lt(numbers, self.first + self.weight.shape[0]))
        mask = there.astype(numbers.dtype)
        x = mint.gather(self.weight, 0, own * mask)
        return (x * mask.astype(x.dtype)).reshape(*tokens.shape, -1)

    def embed_local(self, tokens: Tensor) -> Tensor:
        """Return the embedding of the tokens of this rank's vocabulary, zero for others."""
        if self.tiled:
            return self.gathered_words(tokens)
        own = tokens - self.first
        absent = mint.logical_or(mint.lt(own, 0), mint.ge(own, self.weight.shape[0]))
        x = mint.nn.functional.embedding(mint.where(absent, mint.zeros_like(own), own), self.weight)
        return mint.where(absent.unsqueeze(-1), mint.zeros_like(x), x)


class TransformerLayer(nn.Cell):
    """A transformer layer: attention and feed-forward block, each with normalisation before it and a residual connection."""

    def __init__(self, layer: StageLayer, settings: NetworkSettings) -> None:
        super().__init__()
        shape = settings.shape
        settings = replace(settings, regather=layer.communication)
        self.input_layernorm = Norm(shape.hidden_size, settings)
        plain = LegacySelfAttention if shape.legacy else SelfAttention
        self.self_attention = (LatentSelfAttention if shape.latent else plain)(settings)
        self.pre_mlp_layernorm = Norm(shape.hidden_size, settings)
        # pynative/base_models/gpt/parallelize.py, 2.0: the sequence is gathered before both blocks, outside their
        # recomputation, and the experts' output is split after them.
        self.door = settings.groups.tensor if settings.gathers_sequence else None
        self.exit = self.door if layer.experts else None
        self.mlp: nn.Cell
        if layer.experts:
            self.mlp = MixtureOfExperts(settings)
        else:
            self.mlp = FeedForward(shape.ffn_hidden_size, settings, gathered=settings.gathers_sequence)
        self.post_self_attn_layernorm = Norm(shape.hidden_size, settings) if shape.sandwich_norm else None
        self.post_mlp_layernorm = Norm(shape.hidden_size, settings) if shape.sandwich_norm else None

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Apply the layer."""
        y = self.self_attention(self.gather_input(self.input_layernorm(x)), tables)
        x = x + (y if self.post_self_attn_layernorm is None else self.post_self_attn_layernorm(y))
        y = self.mlp(self.gather_input(self.pre_mlp_layernorm(x)))
        if self.exit is not None:
            y = local_part(y, self.exit, 0)
        return x + (y if self.post_mlp_layernorm is None else self.post_mlp_layernorm(y))

    def gather_input(self, x: Tensor) -> Tensor:
        """Return the input of a block: gathered over the ranks if the block needs the whole sequence."""
        return x if self.door is None else gather(x, self.door)


class PredictionLayer(nn.Cell):
    """A layer of multi-token prediction: the next token's embedding is combined with the previous layer's output."""

    def __init__(self, layer: StageLayer, settings: NetworkSettings) -> None:
        super().__init__()
        hidden = settings.shape.hidden_size
        self.enorm = Norm(hidden, settings)
        self.hnorm = Norm(hidden, settings)
        # In 2.0 each rank has a part of the inputs (``apply_non_moe_tp``, pynative/base_models/gpt/parallelize.py).
        self.group = settings.groups.tensor if settings.gathers_sequence else None
        self.eh_proj: nn.Cell
        if self.group is None:
            compute = settings.format_of("compute")
            self.eh_proj = Linear(2 * hidden, hidden, bias=False, dtype=settings.dtype, compute=compute)
        else:
            self.eh_proj = RowLinear(2 * hidden, hidden, bias=False, settings=settings)
        self.transformer_layer = TransformerLayer(layer, settings)
        self.final_layernorm = Norm(hidden, settings)

    def construct(self, x: Tensor, embedded: Tensor, tables: Tables) -> Tensor:
        """Apply the layer."""
        x = mint.cat((self.enorm(embedded), self.hnorm(x)), dim=-1)
        if self.group is not None:
            x = join_heads(heads_to_sequence(x.reshape(*x.shape[:2], self.group.size, -1), self.group))
        x = self.eh_proj(x)
        return self.final_layernorm(self.transformer_layer(x, tables))


class OutputLayer(nn.Cell):
    """The output projection: ``(s, b, h)`` to this rank's vocabulary, and the loss."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        shape = settings.shape
        self.sequence, self.keeps = settings.sequence, settings.shape.legacy
        self.compute = settings.format_of("compute")
        self.group, self.split_loss = settings.groups.tensor, settings.config.parallelism.split_loss
        # With tied embeddings the embedding's weight is passed in, instead of a second weight.
        if not shape.tied_embeddings:
            self.linear = ColumnLinear(shape.hidden_size, shape.vocab_size, bias=False, settings=settings)

    def construct(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Return the logits of this rank's vocabulary, or of the whole if the loss needs them."""
        logits = self.project_with_embedding(x, weight) if weight is not None else self.linear(x)
        return logits if self.split_loss else gather_last(logits, self.group)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy, in float32."""
        rows, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if not self.split_loss:
            return cross_entropy(rows, labels)
        if self.keeps:  # as in ``legacy/model/gpt_model.py`` of MindSpeed-Core-MS
            return mint.mean(_SplitCrossEntropy.apply(rows.astype(mindspore.float32), labels, self.group))
        return mint.mean(_SplitByOperators.apply(rows, labels, self.group))

    def project_with_embedding(self, x: Tensor, weight: Tensor) -> Tensor:
        """Compute the logits with the weight of the word embedding (tied weights)."""
        given = x.dtype
        if self.keeps and not self.sequence:
            x = share_gradient(x, self.group, keeps=True)
        x = cast_to(x, self.compute)
        x = gather(x, self.group, keeps=self.keeps) if self.sequence else x
        return cast_to(mint.nn.functional.linear(x, cast_to(weight, self.compute)), given)


class ChunkNetwork(nn.Cell):
    """One chunk of a stage. Its input is tokens ``(s, b)`` for the first chunk, else the output of the previous chunk."""

    def __init__(self, chunk: Chunk, settings: NetworkSettings, sharder: Sharder | None) -> None:
        super().__init__()
        shape, prediction = settings.shape, any(layer.mtp for layer in chunk.layers)
        # The last stage has a copy of the word embedding if the output projection uses it.
        tied = chunk.head and shape.tied_embeddings
        self.embedding = Embedding(settings) if chunk.embedding or prediction or tied else None
        self.embeds = chunk.embedding
        self.layers = nn.CellList([_make_layer(layer, settings) for layer in chunk.layers if not layer.mtp])
        self.predictions = nn.CellList([_make_layer(layer, settings) for layer in chunk.layers if layer.mtp])
        self.final_norm = Norm(shape.hidden_size, settings) if chunk.head else None
        self.output = OutputLayer(settings) if chunk.head else None
        self.tied = shape.tied_embeddings and chunk.head
        turned = shape.latent.rotary_size if shape.latent else int(shape.head_size * shape.rotary_fraction)
        self.maker, self.dtype = TableMaker(settings, turned), settings.format_of("compute")
        tokens = (settings.tokens, settings.config.batch.micro_batch_size)
        self.tokens = mint.zeros(tokens, dtype=mindspore.int32)
        self.labels = mint.zeros(tokens, dtype=mindspore.int32) if chunk.head else None
        parts = Parts(self.embedding, [*self.layers], self.final_norm, self.output, [*self.predictions], tied=self.tied)
        self.units = sharder.units(parts) if sharder else Unsharded()

    def construct(self, x: Tensor) -> Tensor:
        """Return the chunk's output, or the loss if it is the last one."""
        self.units.start()
        if self.embeds:
            x = self.units.run(self.embedding, x)
        tables = self.maker.tables()
        for layer in self.layers:
            x = self.units.run(layer, x, tables)
        # core/config.py, _check_arguments: the output to the next stage has the number format of the computation.
        return cast_to(x, self.dtype) if self.output is None else self.loss(x, self.output, tables)

    def loss(self, x: Tensor, output: OutputLayer, tables: Tables) -> Tensor:
        """Return the loss of the next token plus, with multi-token prediction, of the tokens after it."""
        weight = self.embedding.weight if self.embedding is not None and self.tied else None
        y = self.units.run(self.final_norm, x)
        loss = output.loss(self.units.run(output, y, weight), self.labels)
        for layer in self.predictions:
            embedded = self.units.run(self.embedding, self.tokens)
            x = self.units.run(layer, x, embedded, tables)
            loss = loss + output.loss(self.units.run(output, x, weight), self.labels)
        return loss


def _make_layer(layer: StageLayer, settings: NetworkSettings) -> nn.Cell:
    made: nn.Cell = PredictionLayer(layer, settings) if layer.mtp else TransformerLayer(layer, settings)
    inside = made.transformer_layer if layer.mtp else made
    if layer.full:
        _recompute_cell(made, settings, stops=False)
    for pattern in () if layer.full else layer.select:
        for name, cell in inside.cells_and_names():
            if name and re.fullmatch(pattern, name):
                _recompute_cell(cell, settings, stops=True)
    return made


def _recompute_cell(cell: nn.Cell, settings: NetworkSettings, *, stops: bool) -> None:
    # Recompute a cell in the backward pass. Except for whole layers, MindFormers' dynamic graph stops when the last needed
    # tensor is recomputed (``_wrap_cell_recompute`` and ``apply_recompute`` of pynative/distributed/activation_checkpoint.py,
    # 2.1). MindSpore supports that with ``use_reentrant=False`` in 2.9 and 2.10, not in 2.7.
    options = {"use_reentrant": False, "early_stop": stops} if not settings.shape.legacy else {}
    known = signature(nn.Cell.recompute).parameters
    cell.recompute(**{name: value for name, value in options.items() if name in known})
