"""Texts about where memory goes."""

from ms_tune.texts import Text

TEXTS = {
    "memory.category.weights": Text("weights", "权重"),
    "memory.category.gradients": Text("gradients", "梯度"),
    "memory.category.optimizer_state": Text("optimizer state", "优化器状态"),
    "memory.category.activations": Text("activations", "激活值"),
    "memory.category.workspace": Text("workspace", "算子工作空间"),
    "memory.category.other": Text("other", "其他"),
    "memory.stacks-useless": Text(
        "the trace holds no Python stacks of the training script, so activations and gradients cannot be told apart and "
        "count as 'other'; run with MS_DEV_LAUNCH_BLOCKING=1",
        "跟踪数据中没有训练脚本的 Python 调用栈，无法区分激活值与梯度，两者均计入“其他”；请设置 MS_DEV_LAUNCH_BLOCKING=1 后重新运行",
    ),
    "memory.tensors-missing": Text(
        "{missing} of the listed tensors are not in the trace; the list may be of another run",
        "张量清单中有 {missing} 个张量不在跟踪数据中；该清单可能属于另一次运行",
    ),
}
