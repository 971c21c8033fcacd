"""Static graphs of classes that are not known, estimated as plain transformers: parameters against published counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ms_tune.workflows.check.run import check_job

IMAGES = {"image_size": 224, "patch_size": 16, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
TEXTS = {
    "type": "CLIPTextConfig",
    "vocab_size": 49408,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
VISION = {"type": "CLIPVisionConfig", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
PANGU = {
    "type": "PanguAlphaConfig",
    "seq_length": 1024,
    "vocab_size": 40000,
    "ffn_hidden_size": 20480,
    "num_layers": 40,
}
# Published millions of parameters: BERT (arXiv:1810.04805), ViT (2010.11929), CLIP (2103.00020), PanGu-alpha (2104.12369).
CASES = [
    (
        {
            "type": "BertConfig",
            "vocab_size": 30522,
            "embedding_size": 768,
            "num_layers": 12,
            "num_heads": 12,
            "seq_length": 128,
        },
        110,
    ),
    ({"type": "ViTConfig", **IMAGES, "intermediate_size": 3072}, 86),
    (
        {"type": "CLIPConfig", "text_config": TEXTS, "vision_config": {**VISION, "image_size": 224, "patch_size": 14}},
        428,
    ),
    ({**PANGU, "hidden_size": 5120, "num_heads": 40}, 13_100),
]


def config(path: Path, sizes: object, **changes: object) -> Path:
    """A config of an old release with a model."""
    values = {
        "run_mode": "train",
        "runner_config": {"epochs": 1, "batch_size": 4, "sink_mode": True},
        "parallel_config": {"data_parallel": 8, "model_parallel": 1, "pipeline_stage": 1},
        "model": {"model_config": sizes, "arch": {"type": "Other"}},
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "other"},
        **changes,
    }
    path.write_text(yaml.safe_dump(values), "utf-8")
    return path


@pytest.mark.parametrize(("model", "millions"), CASES, ids=lambda case: case["type"] if isinstance(case, dict) else "")
def test_it_has_about_the_published_parameters(model: dict[str, object], millions: int, tmp_path: Path) -> None:
    screen = check_job(config(tmp_path / "run.yaml", model))
    assert screen.estimate is not None
    # Weights and two moments in float32 stay: 12 bytes a parameter.
    assert screen.estimate.fullest.lasting_bytes / 12 == pytest.approx(millions * 1e6, rel=0.1)
    assert screen.assumptions is not None
    assert (screen.assumptions.devices, screen.assumptions.source.id) == (8, "check.plain")
    assert not any("dryrun" in one for one in screen.next)  # the installed framework has no such class


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run_mode": "predict"}, "dryrun.run-mode"),
        ({"model": {"model_config": {"type": "OtherConfig"}}}, "sizes.no-decoder"),
        ({"model": {"model_config": {"batch_size": 1}}}, "normalize.no-model"),
    ],
)
def test_what_does_not_train_or_has_no_sizes_keeps_its_reason(
    change: dict[str, object], reason: str, tmp_path: Path
) -> None:
    screen = check_job(config(tmp_path / "run.yaml", CASES[1][0], **change))
    assert screen.estimate is None
    assert screen.no_estimate_because is not None
    assert screen.no_estimate_because.id == reason
