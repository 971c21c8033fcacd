"""Texts of ``ms-tune memory what-if``, ``plan`` and ``import-memlog``."""

from ms_tune.texts import Text

TEXTS = {
    # What the commands share
    "allocator.help.run": Text(
        "a run of ms-tune dryrun, a folder with memory_block.csv, or the file itself",
        "ms-tune dryrun 的运行目录、含 memory_block.csv 的目录，或该文件本身",
    ),
    "allocator.help.rank": Text("which rank of the run (default: the first)", "选择运行中的哪个 rank（默认第一个）"),
    "allocator.rank": Text(
        "there is no rank {rank} in this run; it has {ranks}", "该运行中没有 rank {rank}；现有 rank：{ranks}"
    ),
    "allocator.empty": Text(
        "the trace holds no allocations of a device memory pool; on the CPU the tracker writes none",
        "跟踪数据中没有设备内存池的分配记录；在 CPU 上运行时跟踪器不记录分配",
    ),
    # what-if
    "allocator.what-if.summary": Text(
        "replay the trace in MindSpore's pool under other settings", "在其他内存池设置下重放跟踪数据，比较显存占用"
    ),
    "allocator.what-if.description": Text(
        "Replays a trace of MindSpore's memory tracker in an exact model of its memory pool, under the settings of the run\n"
        "(inferred, and checked against every row) and under others, and tells which setting takes least of the device.\n"
        "Exit code: 0 all well, 1 the run's setting wastes more than 3 % or does not fit, 2 usage or trace at fault.",
        "用与 MindSpore 内存池行为完全一致的模型重放显存跟踪数据：先反推出本次运行的设置，并逐行核对，再逐一试算其他设置，\n"
        "给出占用设备显存最少的那一种。\n"
        "退出码：0 正常，1 本次设置浪费超过 3 % 或放不下，2 用法或跟踪数据有误。",
    ),
    "allocator.what-if.examples": Text(
        "examples:\n"
        "  ms-tune memory what-if ms-tune-runs/20261121-llama\n"
        "  ms-tune memory what-if --rank 8 --max-memory 58GB rank_folders/\n"
        "  ms-tune memory what-if --shard optimizer_state --parts 8 memory_block.csv\n"
        "  ms-tune memory what-if --recompute-layers 4 --json memory_block.csv",
        "示例：\n"
        "  ms-tune memory what-if ms-tune-runs/20261121-llama\n"
        "  ms-tune memory what-if --rank 8 --max-memory 58GB rank_folders/\n"
        "  ms-tune memory what-if --shard optimizer_state --parts 8 memory_block.csv\n"
        "  ms-tune memory what-if --recompute-layers 4 --json memory_block.csv",
    ),
    "allocator.help.max-memory": Text(
        "what MindSpore may take of the device, such as 58GB (default: as in the run's log, else as in a simulation)",
        "MindSpore 可占用的设备显存，例如 58GB（默认取自运行日志，没有日志时同仿真）",
    ),
    "allocator.help.remove": Text(
        "what if this group were gone: a category (weights, optimizer_state, gradients, activations, temporaries, ...) or a "
        "pattern of names such as 'adam_v.*'",
        "假设去掉这一组显存：类别（weights、optimizer_state、gradients、activations、temporaries 等）或名称模式，如 'adam_v.*'",
    ),
    "allocator.help.shard": Text("what if this group were sharded over more ranks", "假设这一组显存切分到更多 rank 上"),
    "allocator.parts-alone": Text("--parts needs --shard", "--parts 需要与 --shard 一起使用"),
    "allocator.no-group": Text("no block of this pool belongs to {group}", "该内存池中没有属于 {group} 的内存块"),
    "allocator.no-group.hint": Text(
        "ms-tune memory --json lists the categories and names of a run",
        "ms-tune memory --json 会列出一次运行的类别与名称",
    ),
    "allocator.no-layers": Text(
        "the trace does not tell which layer an activation belongs to",
        "跟踪数据没有说明激活值属于哪一层",
    ),
    "allocator.help.parts": Text("into so many parts (default: 2)", "切分的份数（默认 2）"),
    "allocator.help.recompute": Text(
        "what if the activations of the first K layers were recomputed, or swapped",
        "假设前 K 层的激活值改为重计算或换出到主机",
    ),
    "allocator.progress.infer": Text("inferring the settings of the run", "正在反推本次运行的设置"),
    "allocator.progress.settings": Text("replaying other settings", "正在重放其他设置"),
    "allocator.show.trace": Text("{pool}{rank}: {rows} allocations replayed", "{pool}{rank}：共重放 {rows} 次分配"),
    "allocator.show.rank": Text(", rank {rank}", "，第 {rank} 号 rank"),
    "allocator.show.others": Text(
        "not read: rank {ranks} (choose with --rank)", "未读取：rank {ranks}（用 --rank 选择）"
    ),
    "allocator.show.inferred": Text("settings of the run, inferred: {settings}", "反推出的本次运行设置：{settings}"),
    "allocator.show.no-set-memory": Text(
        "ms.runtime.set_memory not called, units of 1 GiB", "未调用 ms.runtime.set_memory，按 1 GiB 为单位扩展"
    ),
    "allocator.show.releases": Text(
        "; ms.runtime.empty_cache called {count} times", "；调用了 {count} 次 ms.runtime.empty_cache"
    ),
    "allocator.show.exact": Text(
        "under them the replay gives address, use and footprint of all {rows} rows as recorded: 0 mismatches",
        "在该设置下，重放得到的地址、已用量和占用峰值与全部 {rows} 行记录一致：0 处不符",
    ),
    "allocator.show.open": Text(
        "made no difference in this run, so it may have been set to something else: {names}",
        "在本次运行中没有影响，因此实际设置可能不同：{names}",
    ),
    "allocator.show.mismatches": Text(
        "no known setting explains the trace; this one comes closest: of {rows} rows {address} addresses, {used} uses and "
        "{actual} footprints differ",
        "没有已知设置能完全解释该跟踪数据；此设置最接近：{rows} 行中有 {address} 个地址、{used} 个已用量、"
        "{actual} 个占用峰值不符",
    ),
    "allocator.unexplained.vmm": Text(
        "It was recorded with vmm on: every footprint is a whole number of pages. Where blocks lie then depends on when "
        "physical memory ran out and on defragmentation, which the trace does not tell; such addresses cannot be replayed. "
        "The other settings below replay the same requests.",
        "记录时开启了 vmm：所有占用峰值都是整页。此时内存块的位置取决于物理内存何时耗尽以及碎片整理，"
        "跟踪数据没有记录这些，因此无法重放这类地址。下面其他设置重放的是同样的申请。",
    ),
    "allocator.unexplained.unknown": Text(
        "Blocks may have come from another pool, or the device may have been shared. The figures below are those of the "
        "closest setting; do not rely on them near a limit.",
        "内存块可能来自另一个内存池，或设备被其他进程共用。下面的数字按最接近的设置得出，接近上限时请勿依赖。",
    ),
    "allocator.show.limit": Text(
        "MindSpore may take {limit} of the device ({source})", "MindSpore 可占用的设备显存：{limit}（{source}）"
    ),
    "allocator.limit.user": Text("--max-memory", "来自 --max-memory"),
    "allocator.limit.log": Text("from the log of the run", "来自运行日志"),
    "allocator.limit.assumed": Text("assumed: no log tells", "假定值：没有日志说明"),
    "allocator.part.common": Text("common part", "公共部分"),
    "allocator.part.persistent": Text("persistent part", "常驻部分"),
    "allocator.part.small": Text("small pool", "小块内存池"),
    "allocator.column.setting": Text("setting", "设置"),
    "allocator.column.used": Text("used GiB", "已用 GiB"),
    "allocator.column.actual": Text("actual GiB", "含碎片 GiB"),
    "allocator.column.reserved": Text("reserved GiB", "预留 GiB"),
    "allocator.column.waste": Text("wasted", "浪费"),
    "allocator.column.fits": Text("fits", "放得下"),
    "allocator.column.scenario": Text("what if", "假设"),
    "allocator.column.change": Text("change", "变化"),
    "allocator.fits": Text("yes", "是"),
    "allocator.does-not-fit": Text("NO", "否"),
    "allocator.setting.recorded": Text("as in the run", "本次运行"),
    "allocator.setting.vmm": Text("vmm, with room", "vmm（空间充足）"),
    "allocator.setting.vmm-floor": Text("vmm, at its floor", "vmm（下限）"),
    "allocator.finding.waste": Text(
        "{waste} of the {reserved} that the pool reserved was never in use at once: the most in use was {used}",
        "内存池预留的 {reserved} 中有 {waste} 始终没有同时用上：同时在用的最大值为 {used}",
    ),
    "allocator.finding.waste.help": Text(
        "see best and best_without_vmm for the setting that reserves least", "占用最少的设置见 best 与 best_without_vmm"
    ),
    "allocator.show.none-fits": Text(
        "no setting of the pool makes it fit: the blocks in use alone need too much",
        "调整内存池设置也放不下：仅同时在用的显存就已超限",
    ),
    "allocator.show.best": Text(
        "best: {setting}, which reserves {saved} less", "最佳设置：{setting}，可少预留 {saved}"
    ),
    "allocator.show.best-no-gain": Text(
        "best: {setting}; it fits and reserves {saved} more", "最佳设置：{setting}；放得下，但多预留 {saved}"
    ),
    "allocator.show.else": Text(
        "where there is no vmm: {setting}, which reserves {saved} less", "不支持 vmm 时：{setting}，可少预留 {saved}"
    ),
    "allocator.show.else-no-gain": Text(
        "where there is no vmm: {setting}; it fits and reserves {saved} more",
        "不支持 vmm 时：{setting}；放得下，但多预留 {saved}",
    ),
    "allocator.show.best-recorded": Text(
        "best: no other setting reserves less than that of the run", "最佳设置：没有比本次运行预留更少的设置"
    ),
    "allocator.show.else-recorded": Text(
        "without vmm, no other setting reserves less than that of the run",
        "不使用 vmm 时，没有比本次运行预留更少的设置",
    ),
    "allocator.place.script": Text("in the training script:", "训练脚本："),
    "allocator.place.config": Text("or in the MindFormers config:", "或 MindFormers 配置："),
    "allocator.place.environment": Text("in the environment:", "环境变量："),
    "allocator.causes": Text(
        "why the run reserved {lost} more than was ever in use:", "本次运行比同时在用的最大值多预留了 {lost}，原因："
    ),
    "allocator.causes.spilled": Text(
        "{size} of weights and constants did not fit into the persistent part, which has one unit only, and lie for good "
        "in the common part",
        "{size} 的权重和常量放不进常驻部分（它只有一个单元），长期占据公共部分",
    ),
    "allocator.causes.missed": Text(
        "{missed} of {all} times the pool grew although enough was free, in holes too small:",
        "{all} 次扩展中有 {missed} 次空闲总量足够，但单个空洞都太小：",
    ),
    "allocator.causes.growth": Text(
        "{part}: {request} asked for {size}, largest hole {hole}, free in all {free}",
        "{part}：{request} 申请 {size}，最大空洞 {hole}，空闲共 {free}",
    ),
    "allocator.causes.idle": Text(
        "{size} of what was touched was free when most was in use; the units with most of it:",
        "占用最多时，已触及的区域中有 {size} 空闲；空闲最多的单元：",
    ),
    "allocator.causes.pin": Text(
        "{part}: {live} of {touched} in use, kept longest by {holder}",
        "{part}：{touched} 中在用 {live}，占用最久的是 {holder}",
    ),
    "allocator.causes.nobody": Text("nothing", "无"),
    "allocator.causes.untouched": Text(
        "{size} was reserved and never touched: the ends of the units", "{size} 预留后从未使用：各单元的尾部"
    ),
    "allocator.scenarios": Text("what if the training itself were different:", "如果改变训练本身："),
    "allocator.scenario.freed-after-last-use": Text("all freed right after last use", "全部在最后一次使用后立即释放"),
    "allocator.scenario.remove": Text("no {subject}", "去掉 {subject}"),
    "allocator.scenario.shard": Text("{subject} sharded by {parts}", "{subject} 切分为 {parts} 份"),
    "allocator.scenario.recompute": Text(
        "{subject} more layers recomputed or swapped", "再有 {subject} 层重计算或换出"
    ),
    "allocator.worth.reserved": Text(
        "used: blocks in use at once. actual: with fragments, as MindSpore counts them. reserved: what the device loses.",
        "已用：同时在用的内存块；含碎片：MindSpore 统计的占用峰值；预留：设备实际失去的显存。",
    ),
    "allocator.worth.vmm": Text(
        "vmm is on by default on Ascend 910B and 910_93 with a recent driver and off in "
        "every simulation; its rows follow MindSpore's source and were never compared with a device.",
        "在 Ascend 910B 和 910_93 上配合较新的驱动，vmm 默认开启；仿真中一律关闭。"
        "vmm 两行依据 MindSpore 源码推算，未在真实设备上核对。",
    ),
    "allocator.worth.seconds": Text("replayed in {seconds} s", "重放用时 {seconds} 秒"),
}
