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
    "model.not-names": Text(
        "'{key}' must be a list of names, but is {value}", "'{key}' 必须是名称列表，实际为 {value}"
    ),
    "model.not-one-of": Text(
        "'{key}' is {value}, but must be one of {choices}", "'{key}' 为 {value}，必须是 {choices} 之一"
    ),
    "model.global-batch": Text(
        "training.global_batch_size is {total}, which is no multiple of {ways} data-parallel ranks times "
        "training.local_batch_size {local}",
        "training.global_batch_size 为 {total}，不是数据并行数 {ways} 与 training.local_batch_size {local} 之积的整数倍",
    ),
}
