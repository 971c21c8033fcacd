"""Texts about where memory goes."""

from ms_tune.texts import Text

TEXTS = {
    "memory.content.weights": Text("weights", "权重"),
    "memory.content.optimizer_state": Text("optimizer state", "优化器状态"),
    "memory.content.gradients": Text("gradients", "梯度"),
    "memory.content.activations": Text("activations", "激活值"),
    "memory.content.temporaries": Text("temporaries", "临时张量"),
    "memory.content.workspace": Text("workspace", "算子工作空间"),
    "memory.content.communication": Text("communication", "通信缓冲"),
    "memory.content.constants": Text("constants and inputs", "常量与输入"),
    "memory.content.unattributed": Text("unattributed", "未归类"),
    "memory.stacks-useless": Text(
        "the trace holds no Python stacks of the training script, so activations and gradients cannot be told apart and "
        "count as 'other'; run with MS_DEV_LAUNCH_BLOCKING=1",
        "跟踪数据中没有训练脚本的 Python 调用栈，无法区分激活值与梯度，两者均计入“其他”；请设置 MS_DEV_LAUNCH_BLOCKING=1 后重新运行",
    ),
    "memory.tensors-missing": Text(
        "{missing} of the listed tensors are not in the trace; the list may be of another run",
        "张量清单中有 {missing} 个张量不在跟踪数据中；该清单可能属于另一次运行",
    ),
    "memory.no-such-rank": Text("no such rank here; there are: {ranks}", "此处没有该 rank；现有：{ranks}"),
    "memory.oom.size": Text(" for {size}", "，大小为 {size}"),
    "memory.oom.operator": Text(", by {operator}", "，由 {operator} 发起"),
    # The command line
    "memory.summary": Text("where device memory goes, from MindSpore's memory tracker", "根据显存跟踪数据分析显存去向"),
    "memory.description": Text(
        "Reads what MindSpore's memory tracker wrote (MS_ALLOC_CONF=memory_tracker:True) and tells what holds the memory, "
        "when, and why. Needs no NPU, no CANN, no MindSpore.",
        "读取 MindSpore 显存跟踪器（MS_ALLOC_CONF=memory_tracker:True）写出的文件，说明显存在何时被什么占用、原因何在。"
        "无需 NPU、CANN 或 MindSpore。",
    ),
    "memory.examples": Text(
        "examples:\n"
        "  ms-tune memory ms-tune-runs/NAME            what a dryrun's memory is made of\n"
        "  ms-tune memory output/ --html report.html   a report to open in a browser, off line\n"
        "  ms-tune memory diff before/ after/          what grew, what vanished\n"
        "  ms-tune memory export run/ --perfetto t.json --snapshot s.pickle",
        "示例：\n"
        "  ms-tune memory ms-tune-runs/名称             dryrun 的显存由什么构成\n"
        "  ms-tune memory output/ --html report.html   生成可离线用浏览器打开的报告\n"
        "  ms-tune memory diff before/ after/          什么增加了、什么消失了\n"
        "  ms-tune memory export run/ --perfetto t.json --snapshot s.pickle",
    ),
    "memory.help.path": Text(
        "a memory_block.csv, the folder that holds it, a folder of rank_N folders, or a run folder of 'ms-tune dryrun'",
        "memory_block.csv、其所在文件夹、包含 rank_N 的文件夹，或 ms-tune dryrun 的运行文件夹",
    ),
    "memory.help.rank": Text("look at this rank only; may be repeated", "仅分析该 rank；可重复指定"),
    "memory.help.device-memory": Text(
        "what MindSpore may use, such as 58GB (default: what the log says)",
        "MindSpore 可用显存，例如 58GB（默认取自日志）",
    ),
    "memory.help.top": Text("rows in every table (default: 10)", "每张表的行数（默认 10）"),
    "memory.help.at": Text("take the memory apart at this tick, not at the peak", "分析指定时刻而非峰值时刻的显存"),
    "memory.help.html": Text(
        "write a report for the browser: one file, works off line", "写出可离线打开的单文件网页报告"
    ),
    "memory.help.csv": Text("write the blocks alive at the peak", "写出峰值时刻存活的内存块"),
    "memory.help.force": Text("overwrite files that exist", "覆盖已有文件"),
    "memory.help.no-graph": Text(
        "do not read tracker_graph.ir: faster, but without shapes", "不读取 tracker_graph.ir：更快，但没有张量形状"
    ),
    "memory.help.before": Text("the first run", "第一次运行"),
    "memory.help.after": Text("the second run", "第二次运行"),
    "memory.help.perfetto": Text(
        "write a trace for https://ui.perfetto.dev or chrome://tracing", "写出可用 https://ui.perfetto.dev 打开的文件"
    ),
    "memory.help.snapshot": Text(
        "write a snapshot for PyTorch's memory viewer (pytorch.org/memory_viz)",
        "写出可用 PyTorch 显存查看器（pytorch.org/memory_viz）打开的快照",
    ),
    "memory.diff.summary": Text("what two runs have, one more than the other", "比较两次运行的显存"),
    "memory.export.summary": Text(
        "the trace for Perfetto or for PyTorch's memory viewer", "导出到 Perfetto 或 PyTorch 显存查看器"
    ),
    "memory.export.nothing": Text(
        "name --perfetto FILE, --snapshot FILE or both", "请指定 --perfetto 文件 或 --snapshot 文件"
    ),
    "memory.export.one-rank": Text(
        "several ranks are here; name one with --rank", "此处有多个 rank，请用 --rank 指定一个"
    ),
    "memory.exists": Text("the file exists", "文件已存在"),
    "memory.exists.hint": Text("--force overwrites it", "使用 --force 可覆盖"),
    "memory.unwritable": Text("cannot write the file: {detail}", "无法写入文件：{detail}"),
    "memory.written": Text("written: {file}", "已写出：{file}"),
    "memory.no-at": Text("no block is alive at tick {tick}", "时刻 {tick} 没有存活的内存块"),
    "memory.empty": Text(
        "the trace holds no blocks: MindSpore's tracker leaves out the blocks of a run on the CPU",
        "跟踪数据中没有内存块：MindSpore 的跟踪器不记录 CPU 运行的内存块",
    ),
    "memory.progress": Text("reading {done} of {total} MiB", "正在读取 {done} / {total} MiB"),
    # The terminal
    "memory.show.rank": Text("rank {rank}", "{rank} 号 rank"),
    "memory.show.rows": Text("{rows} blocks, {steps} steps", "{rows} 个内存块，{steps} 个训练步"),
    "memory.show.peak": Text("peak", "峰值"),
    "memory.show.footprint": Text("with fragments", "含碎片"),
    "memory.show.host": Text("on the host", "主机内存"),
    "memory.show.offloaded": Text(
        "{rows} offloaded blocks, in no other figure", "已卸载的内存块 {rows} 个，不计入其他数字"
    ),
    "memory.offloaded": Text(
        "{size} MiB in {rows} blocks are offloaded to the host (optimizer.swap or another setting); no figure counts them",
        "{rows} 个内存块（{size} MiB）已卸载到主机（optimizer.swap 或其他设置），不计入任何数字",
    ),
    "memory.show.limit": Text("may use", "可用显存"),
    "memory.show.verdict": Text("verdict", "结论"),
    "memory.show.fits": Text("fits: {size} to spare", "放得下，剩余 {size}"),
    "memory.show.too-much": Text("does not fit: {size} too much", "放不下，超出 {size}"),
    "memory.show.at-tick": Text("at tick {tick}{phase}", "位于时刻 {tick}{phase}"),
    "memory.show.in-phase": Text(", in the {phase} phase", "，处于{phase}阶段"),
    "memory.show.holes": Text(
        "{free} free in holes at the peak, the largest {hole}", "峰值时空洞共 {free}，最大 {hole}"
    ),
    "memory.show.curve": Text(
        "memory over time ({ticks} ticks; steps end at ┆)", "显存随时间变化（共 {ticks} 个时刻；┆ 为训练步结束）"
    ),
    "memory.show.contents": Text("what holds the memory at tick {tick}", "时刻 {tick} 的显存构成"),
    "memory.show.largest": Text("largest holders", "最大的占用者"),
    "memory.show.layers": Text("by layer of the model", "按模型层"),
    "memory.show.parameters": Text("by parameter", "按参数"),
    "memory.show.activations": Text(
        "activations kept for the backward pass, by layer (full recompute or swap of all layers saves up to {saving} here; "
        "the peak would then be {peak})",
        "为反向保留的激活值，按层统计（对所有层完全重计算或换出，此刻最多节省 {saving}；届时峰值为 {peak}）",
    ),
    "memory.show.ranks": Text("ranks", "各 rank"),
    "memory.show.theory": Text(
        "measured beside theory: one set of gradients and Adam's two moments for {weights} of weights in {count} blocks",
        "实测与理论对照：{weights} 权重（{count} 块）对应的一份梯度与 Adam 的两份动量",
    ),
    "memory.show.shards": Text("as if shared by {count} ranks", "相当于由 {count} 个 rank 分担"),
    "memory.show.padding": Text("alignment takes {size} of the peak", "峰值中有 {size} 为对齐填充"),
    "memory.show.findings": Text("findings", "发现的问题"),
    "memory.show.allocated-by": Text("allocated by:", "分配处的调用栈："),
    "memory.show.nothing-found": Text("no findings", "未发现问题"),
    "memory.show.do": Text("do: {help}", "建议：{help}"),
    "memory.show.next": Text(
        "next: ms-tune memory {path} --html report.html", "下一步：ms-tune memory {path} --html report.html"
    ),
    "memory.show.more": Text("… and {count} more ({size})", "……另有 {count} 项（{size}）"),
    "memory.column.size": Text("size", "大小"),
    "memory.column.share": Text("share", "占比"),
    "memory.column.count": Text("blocks", "块数"),
    "memory.column.content": Text("holds", "内容"),
    "memory.column.operator": Text("operator", "算子"),
    "memory.column.where": Text("where", "位置"),
    "memory.column.tensor": Text("tensor", "张量"),
    "memory.column.layer": Text("layer", "层"),
    "memory.column.parameter": Text("parameter", "参数"),
    "memory.column.theory": Text("by theory", "理论值"),
    "memory.column.ratio": Text("ratio", "比值"),
    "memory.column.remark": Text("remark", "备注"),
    "memory.column.rank": Text("rank", "rank 号"),
    "memory.column.stage": Text("stage", "阶段"),
    "memory.column.peak": Text("peak", "峰值"),
    "memory.column.footprint": Text("with fragments", "含碎片"),
    "memory.column.change": Text("change", "变化"),
    "memory.column.before": Text("before", "之前"),
    "memory.column.after": Text("after", "之后"),
    "memory.phase.forward": Text("forward", "前向"),
    "memory.phase.backward": Text("backward", "反向"),
    "memory.phase.step": Text("step", "步内"),
    "memory.phase.update": Text("update", "优化器更新"),
    "memory.outside": Text("(outside the layers)", "（层外）"),
    "memory.severity.error": Text("error", "错误"),
    "memory.severity.warning": Text("warning", "警告"),
    "memory.severity.info": Text("note", "提示"),
    "memory.diff.title": Text(
        "rank {rank}: the peak went from {before} to {after} ({change})",
        "rank {rank}：峰值从 {before} 变为 {after}（{change}）",
    ),
    "memory.diff.same": Text("nothing differs", "没有差异"),
    "memory.diff.only": Text("only in one of the runs: rank {ranks}", "仅存在于其中一次运行：rank {ranks}"),
    "memory.diff.none": Text("the runs have no rank in common", "两次运行没有相同的 rank"),
}
