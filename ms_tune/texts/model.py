"""Texts about what a config says: missing keys, wrong types, impossible sizes."""

from ms_tune.texts import Text

TEXTS = {
    "model.section-not-a-mapping": Text("'{key}' must be a mapping of keys to values", "'{key}' 必须是键值映射"),
    "model.missing-key": Text("'{key}' is missing", "缺少 '{key}'"),
    "model.wrong-type": Text(
        "'{key}' must be {wanted}, but is {value}", "'{key}' 必须是 {wanted} 类型，实际为 {value}"
    ),
    "model.not-positive": Text("'{key}' must be above zero, but is {value}", "'{key}' 必须大于零，实际为 {value}"),
    "model.not-divisible": Text("'{a}' must be divisible by '{b}'", "'{a}' 必须能被 '{b}' 整除"),
    "model.unknown-key": Text(
        "'{key}' is not a key that MindSpeed-Core-MS knows; it knows {known}",
        "MindSpeed-Core-MS 不支持 '{key}'；可用的键为 {known}",
    ),
    "model.not-one-count": Text(
        "'{key}' must be a list of one whole number from zero up (one pipeline stage), but is {value}",
        "'{key}' 必须是只含一个非负整数的列表（单个流水线阶段），实际为 {value}",
    ),
    "model.not-names": Text(
        "'{key}' must be a list of names, but is {value}", "'{key}' 必须是名称列表，实际为 {value}"
    ),
    "model.recompute-sum": Text(
        "recompute and {key} together name {count} layers, but there are {layers}; MindSpeed-Core-MS stops with a ValueError",
        "recompute 与 {key} 合计 {count} 层，而模型只有 {layers} 层；MindSpeed-Core-MS 会报 ValueError 退出",
    ),
    "model.not-one-of": Text(
        "'{key}' is {value}, but must be one of {choices}", "'{key}' 为 {value}，必须是 {choices} 之一"
    ),
}
