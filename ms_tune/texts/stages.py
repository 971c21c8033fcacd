"""Texts of ``ms-tune dryrun`` about stages, variants, commands and devices."""

from ms_tune.texts import Text

TEXTS = {
    "stages.command.absent": Text("there is no program {program}", "找不到程序 {program}"),
    "stages.command.options": Text(
        "{options} cannot be used with a command: they are about a config", "{options} 用于配置，不能与命令一起使用"
    ),
    "stages.command.no-trace": Text(
        "the command left no trace of the memory tracker; its output is in {log}",
        "该命令没有留下显存跟踪文件；输出见 {log}",
    ),
    "stages.command.no-trace.hint": Text(
        "it may not have used MindSpore's Ascend back end, or have ended before the tracker could write",
        "可能没有使用 MindSpore 的 Ascend 后端，或在写出跟踪文件之前就已结束",
    ),
    "stages.command.run": Text("{command}: exit code {code}, {seconds} s", "{command}：退出码 {code}，{seconds} 秒"),
    "stages.command.ranks": Text("ranks, the worst first (sizes in GiB):", "各 rank，最紧张的在前（单位 GiB）："),
    "stages.real.no-cann": Text("--real needs CANN, and none was found", "--real 需要 CANN，但没有找到"),
    "stages.real.no-cann.hint": Text("set ASCEND_HOME_PATH to its folder", "用 ASCEND_HOME_PATH 指定其目录"),
    "stages.real.devices": Text(
        "the job needs {size} NPU(s); this machine has {present}", "该任务需要 {size} 个 NPU；本机有 {present} 个"
    ),
    "stages.real.devices.hint": Text(
        "on a cluster, put your own launcher behind it: ms-tune dryrun --real -- msrun ... train.py",
        "在集群上，请接上自己的启动命令：ms-tune dryrun --real -- msrun ... train.py",
    ),
    "stages.real.simulation-only": Text(
        "{options} cannot be used with --real: they are about simulation",
        "{options} 只用于仿真，不能与 --real 一起使用",
    ),
    "stages.compare.nothing": Text(
        "this run has no rank in common with {simulated}", "该运行与 {simulated} 没有相同的 rank"
    ),
    "stages.compare.title": Text(
        "simulated {simulated} beside real {real} (sizes in GiB):", "仿真 {simulated} 与真实 {real} 对比（单位 GiB）："
    ),
    "stages.compare.only-real": Text("not simulated: rank(s) {ranks}", "未仿真：rank {ranks}"),
    "stages.compare.no-config": Text(
        "{run} has no config.yaml to simulate: name a config or a simulated run before --compare-real",
        "{run} 中没有可用于仿真的 config.yaml：请在 --compare-real 之前给出配置或仿真运行目录",
    ),
    "stages.column.simulated": Text("simulated", "仿真"),
    "stages.column.real": Text("real", "真实"),
    "stages.column.difference": Text("difference", "差值"),
    "stages.column.share": Text("of real", "占真实"),
    "stages.column.simulated_footprint": Text("footprint", "占用范围"),
    "stages.column.real_footprint": Text("real footprint", "真实占用范围"),
    "stages.column.content": Text("category", "类别"),
    "stages.level.executes": Text(
        "simulation level {level} needs an NPU with CANN; here there are stand-ins for CANN only",
        "仿真级别 {level} 需要带 CANN 的 NPU；本机只有 CANN 替身库",
    ),
    "stages.level.executes.hint": Text("use level 1", "请使用级别 1"),
    "stages.extrapolate.no-full": Text(
        "the whole model is not derived, because the config cannot be run with all its layers: {reason}",
        "没有推算完整模型，因为该配置无法按完整层数运行：{reason}",
    ),
    "stages.extrapolate.no-sizes": Text(
        "the whole model is not derived: no numbers of layers near {layers} have all kinds of its layers in the "
        "proportions that are needed; give it more --layers",
        "没有推算完整模型：{layers} 层附近找不到包含全部层类型且比例合适的层数；请增大 --layers",
    ),
    "stages.ray.connecting": Text("connecting to Ray …", "正在连接 Ray……"),
    "stages.ray.unreachable": Text(
        "the Ray cluster at {address} cannot be reached: {detail}", "无法连接 Ray 集群 {address}：{detail}"
    ),
    "stages.ray.lost": Text(
        "the Ray workers of {task} were lost, again and again: {detail}", "{task} 的 Ray 工作进程多次丢失：{detail}"
    ),
    "stages.set.form": Text("'{text}' is not of the form path=value", "'{text}' 不是 path=value 的形式"),
    "stages.set.form.hint": Text(
        "as in --set parallel_config.micro_batch_num=8", "例如 --set parallel_config.micro_batch_num=8"
    ),
    "stages.set.value": Text("the value of '{text}' is not YAML", "'{text}' 的取值不是合法的 YAML"),
    "stages.set.unknown": Text("the config has no {path}", "配置中没有 {path}"),
    "stages.set.meant": Text("did you mean {path}?", "是否指 {path}？"),
    "stages.set.refused": Text("{setting} cannot be set: {reason}", "无法设置 {setting}：{reason}"),
    "stages.sweep.many": Text(
        "the sweeps make {count} variants; {most} are the most", "--sweep 共产生 {count} 个组合，最多 {most} 个"
    ),
    "stages.title": Text("stages, the worst first (sizes in GiB):", "各阶段，最紧张的在前（单位 GiB）："),
    "stages.whole-note": Text(
        "whole: the peak with all layers, extrapolated; the other sizes are those of the layers that ran",
        "“完整”：按全部层数推算的峰值；其余大小属于实际运行的层数",
    ),
    "stages.skipped": Text(
        "not simulated: stage(s) {stages}; an earlier stage holds as many layers of every kind and no fewer "
        "micro-batches (--stages all)",
        "未仿真：阶段 {stages}；更靠前的阶段各类层数不少于它，在途 micro-batch 也不少于它（--stages all 可全部仿真）",
    ),
    "stages.imbalance": Text(
        "imbalance: stage {least} needs {size} ({share}) less than stage {worst}; move layers with offset, or recompute "
        "more in stage {worst} only",
        "不均衡：阶段 {least} 比阶段 {worst} 少用 {size}（{share}）；可用 offset 移动层，或只在阶段 {worst} 增加重计算",
    ),
    "stages.column.stage": Text("stage", "阶段"),
    "stages.column.rank": Text("rank", "rank 号"),
    "stages.column.layers": Text("layers", "层数"),
    "stages.column.weights": Text("weights", "权重"),
    "stages.column.optimizer_state": Text("optimizer", "优化器"),
    "stages.column.activations": Text("activations", "激活"),
    "stages.column.peak": Text("peak", "峰值"),
    "stages.column.footprint": Text("footprint", "占用范围"),
    "stages.column.whole": Text("whole", "完整"),
    "stages.column.limit": Text("limit", "上限"),
    "stages.column.verdict": Text("verdict", "结论"),
    "stages.column.variant": Text("#", "序号"),
    "stages.column.settings": Text("settings", "取值"),
    "stages.column.change": Text("change", "变化"),
    "stages.variants.title": Text(
        "{count} variants, each by its worst stage (sizes in GiB):",
        "共 {count} 个组合，各取其最紧张的阶段（单位 GiB）：",
    ),
    "stages.variants.extrapolated": Text(
        "sizes of variants with fewer layers than their config are extrapolated to all of them",
        "缩减层数的组合，其大小均已推算到全部层数",
    ),
    "stages.variants.failed": Text("variant {number} failed: {reason}", "组合 {number} 失败：{reason}"),
    "stages.variants.no-result": Text("failed", "失败"),
}
