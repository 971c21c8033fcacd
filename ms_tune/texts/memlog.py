"""Texts of ``ms-tune memory import-memlog``."""

from ms_tune.texts import Text

TEXTS = {
    "memlog.summary": Text(
        "report on a trace of STAlloc (mem_log_dev0.txt)", "分析 STAlloc 的跟踪数据（mem_log_dev0.txt）"
    ),
    "memlog.description": Text(
        "Reads a trace that STAlloc recorded of a training with PyTorch and tells what STAlloc's own report tells: the\n"
        "theoretical peak, weights, optimizer state and activations (both at the peak and at each one's own peak), the\n"
        "utilisation under PyTorch's caching allocator, which is replayed, and a plan.\n"
        "Exit code: 0 all well, 2 usage or trace at fault.",
        "读取 STAlloc 记录的 PyTorch 训练跟踪数据，给出与 STAlloc 报告相同的内容：理论峰值，权重、优化器状态和激活值\n"
        "（总峰值时与各自峰值时），重放 PyTorch 缓存分配器得到的利用率，以及规划结果。\n"
        "退出码：0 正常，2 用法或跟踪数据有误。",
    ),
    "memlog.examples": Text(
        "examples:\n  ms-tune memory import-memlog trace/mem_log_dev0.txt\n"
        "  ms-tune memory import-memlog --json --csv blocks.csv trace/mem_log_dev0.txt",
        "示例：\n  ms-tune memory import-memlog trace/mem_log_dev0.txt\n"
        "  ms-tune memory import-memlog --json --csv blocks.csv trace/mem_log_dev0.txt",
    ),
    "memlog.help.file": Text(
        "a trace of STAlloc, such as trace/mem_log_dev0.txt", "STAlloc 的跟踪文件，如 trace/mem_log_dev0.txt"
    ),
    "memlog.help.npu": Text(
        "replay torch_npu's allocator (32 bytes more each time) instead of CUDA's",
        "重放 torch_npu 的分配器（每次多 32 字节），而非 CUDA 的",
    ),
    "memlog.show.trace": Text(
        "{blocks} allocations in {iterations} iterations of {micro_batches} micro-batches, {layers} layers",
        "共 {blocks} 次分配，{iterations} 次迭代，每次 {micro_batches} 个微批次，{layers} 个层",
    ),
    "memlog.show.peak": Text("theoretical peak", "理论峰值"),
    "memlog.show.torch": Text(
        "PyTorch's allocator: {allocated} allocated at most, {reserved} reserved, utilisation {utilisation}",
        "PyTorch 分配器：最多分配 {allocated}，预留 {reserved}，利用率 {utilisation}",
    ),
    "memlog.show.note": Text(
        "as in STAlloc, blocks up to 512 bytes and blocks kept from before iteration 0 into an iteration are not in the "
        "theoretical peak; 'weights' include gradient buffers and master copies",
        "与 STAlloc 一致：不超过 512 字节的块、从迭代 0 之前保留到某次迭代的块不计入理论峰值；“权重”含梯度缓冲区和主副本",
    ),
    "memlog.show.plan": Text("plan of all blocks:", "全部块的规划："),
    "memlog.column.kind": Text("what", "类别"),
    "memlog.column.blocks": Text("blocks", "块数"),
    "memlog.column.at-peak": Text("at the peak", "总峰值时"),
    "memlog.column.own-peak": Text("at its own peak", "自身峰值"),
    "memlog.kind.weights": Text("weights, gradients", "权重、梯度"),
    "memlog.kind.optimizer": Text("optimizer state", "优化器状态"),
    "memlog.kind.init": Text("initialisation", "初始化阶段"),
    "memlog.kind.unreleased": Text("kept from before", "初始化遗留"),
    "memlog.kind.saved": Text("activations, saved for backward", "激活值（为反向保留）"),
    "memlog.kind.temporary": Text("activations, temporary", "激活值（临时）"),
    "memlog.kind.small": Text("up to 512 bytes", "不超过 512 字节"),
    "memlog.kind.activations": Text("activations in all", "激活值合计"),
    "memlog.line": Text("the line is none of STAlloc's: '{text}'", "不是 STAlloc 的行：'{text}'"),
    "memlog.empty": Text("there are no allocations in it", "文件中没有任何分配记录"),
    "memlog.live": Text("{pointer} is allocated although it is in use", "{pointer} 仍在使用中又被分配"),
    "memlog.unknown": Text("{pointer} is released and was never allocated", "释放了从未分配的 {pointer}"),
    "memlog.size": Text(
        "{pointer} is released with {released} bytes and was allocated with {allocated}",
        "{pointer} 释放时为 {released} 字节，分配时为 {allocated} 字节",
    ),
    "memlog.after-end": Text("an iteration begins after 'end'", "在 end 之后又开始了迭代"),
    "memlog.order": Text("iteration {number} comes after iteration {last}", "迭代 {number} 出现在迭代 {last} 之后"),
    "memlog.layer": Text("the layer {name} ends and never began", "层 {name} 结束但从未开始"),
}
