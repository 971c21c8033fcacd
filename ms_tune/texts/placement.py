"""Texts of ``ms-tune memory plan``, and of the readers of placement problems."""

from ms_tune.texts import Text

TEXTS = {
    "placement.plan.summary": Text(
        "how low the blocks of a trace could lie, planned off line", "离线规划：各显存块最低可以排到多低"
    ),
    "placement.plan.description": Text(
        "Places all blocks of a trace, or of a placement problem (CSV: id,lower,upper,size), as low as it can: first fit in\n"
        "many orders, improvement, and an exact search for up to about 1,200 blocks. Steps that repeat are planned once. An\n"
        "independent check makes sure that no two live blocks overlap. MindSpore 2.10 cannot take addresses of single\n"
        "tensors from outside: the plan is a floor for what its pool could reach, and a guide.\n"
        "Exit code: 0 planned, 1 higher than --capacity, 2 usage or trace at fault.",
        "把跟踪数据或放置问题（CSV：id,lower,upper,size）中的所有块排得尽可能低：以多种顺序做首次适应，再迭代改进；\n"
        "约 1,200 块以内还会做精确搜索。重复的训练步只规划一次。另有独立检查，确保没有两个同时存活的块重叠。\n"
        "MindSpore 2.10 不能从外部指定单个张量的地址：规划结果只是内存池所能达到的下限和参考。\n"
        "退出码：0 规划完成，1 高于 --capacity，2 用法或跟踪数据有误。",
    ),
    "placement.plan.examples": Text(
        "examples:\n"
        "  ms-tune memory plan ms-tune-runs/20261121-llama --html plan.html\n"
        "  ms-tune memory plan --json --time-limit 5 memory_block.csv\n"
        "  ms-tune memory plan A.1048576.csv --csv solved.csv",
        "示例：\n"
        "  ms-tune memory plan ms-tune-runs/20261121-llama --html plan.html\n"
        "  ms-tune memory plan --json --time-limit 5 memory_block.csv\n"
        "  ms-tune memory plan A.1048576.csv --csv solved.csv",
    ),
    "placement.help.run": Text(
        "a run of ms-tune dryrun, a folder with memory_block.csv, that file, or a placement problem (CSV)",
        "ms-tune dryrun 的运行目录、含 memory_block.csv 的目录、该文件本身，或放置问题（CSV）",
    ),
    "placement.help.capacity": Text(
        "look for a plan within SIZE first, and exit with 1 if there is none (default: what a name such as "
        "A.1048576.csv states, without the exit code)",
        "先寻找不超过 SIZE 的规划，找不到时退出码为 1（默认取文件名中的值，如 A.1048576.csv，此时不影响退出码）",
    ),
    "placement.help.time-limit": Text(
        "stop after so many seconds (default: 9 up to 1,200 blocks, 0.7 up to 20,000, then 35 microseconds a block more); ends sooner at the bound",
        "最多规划多少秒（默认：1,200 块以内 9 秒，20,000 块以内 0.7 秒，再多则每块加 35 微秒）；达到下界会提前结束",
    ),
    "placement.help.plan": Text("write the plan as JSON", "将规划写为 JSON"),
    "placement.help.csv": Text("write the plan as CSV, in minimalloc's format", "将规划写为 CSV（minimalloc 格式）"),
    "placement.help.svg": Text("draw the plan: time across, addresses up", "绘制规划图（横轴时间，纵轴地址，SVG）"),
    "placement.help.html": Text("the picture as a page that works off line", "将规划图写为可离线打开的网页"),
    "placement.help.seconds": Text("'{value}' is not a number of seconds above zero", "'{value}' 不是大于零的秒数"),
    "placement.progress": Text("best {height}, bound {bound}", "当前最低 {height}，下界 {bound}"),
    "placement.slow": Text(
        "plans without the compiled core: valid, but higher, and without the exact search ({reason})",
        "未使用编译的核心进行规划：结果有效，但更高，且没有精确搜索（{reason}）",
    ),
    "placement.not-loaded": Text("it cannot be loaded: {detail}", "无法加载：{detail}"),
    "placement.show.blocks": Text("{blocks} blocks of {source}", "{source} 中共 {blocks} 个块"),
    "placement.show.rank": Text("{blocks} blocks of {source}, rank {rank}", "{source} 中 rank {rank} 共 {blocks} 个块"),
    "placement.show.folded": Text("{periods} equal steps were planned as one", "{periods} 个相同的训练步按一个规划"),
    "placement.show.bound": Text("lower bound (largest live sum)", "下界（同时存活的最大总和）"),
    "placement.show.height": Text("height of the plan", "规划高度"),
    "placement.show.recorded": Text("footprint in the run", "实际运行的占用峰值"),
    "placement.show.gap": Text("{gap} above the bound", "高出下界 {gap}"),
    "placement.show.at-bound": Text("at the bound: no plan is lower", "等于下界：不可能更低"),
    "placement.show.proven": Text(
        "{gap} above the bound; proven: no plan is lower", "高出下界 {gap}；已证明不可能更低"
    ),
    "placement.show.saves": Text("the plan needs {saved} less ({share})", "规划可少用 {saved}（{share}）"),
    "placement.show.no-saving": Text("the plan needs {more} more", "规划多用 {more}"),
    "placement.show.utilisation": Text("utilisation", "利用率"),
    "placement.show.fits": Text("fits into {capacity}", "可放入 {capacity}"),
    "placement.show.does-not-fit": Text(
        "no plan within {capacity} was found in the time", "限定时间内未找到不超过 {capacity} 的规划"
    ),
    "placement.show.impossible": Text(
        "no plan fits into {capacity}: the bound is above it", "不可能放入 {capacity}：下界已超过它"
    ),
    "placement.show.valid": Text("checked: no two live blocks overlap", "已检查：没有两个同时存活的块重叠"),
    "placement.show.invalid": Text(
        "NOT VALID, a defect of ms-tune: {kind}, block {block}", "规划无效（ms-tune 的缺陷）：{kind}，块 {block}"
    ),
    "placement.show.how": Text(
        "planned in {seconds} s; found by {method} from the order {order} ({engine} engine)",
        "规划用时 {seconds} 秒；由{method}得到，起始顺序 {order}（{engine} 引擎）",
    ),
    "placement.method.order": Text("first fit", "首次适应"),
    "placement.method.improved": Text("improvement", "迭代改进"),
    "placement.method.search": Text("exact search", "精确搜索"),
    "placement.show.guide": Text(
        "MindSpore 2.10 cannot take addresses of single tensors from outside: a floor and a guide, nothing to inject.",
        "MindSpore 2.10 不能从外部指定单个张量的地址：该结果是下限和参考，无法直接注入。",
    ),
    "placement.picture.title": Text("Packing of {source}", "{source} 的显存排布"),
    "placement.picture.time": Text("time, in allocations and releases", "时间（分配与释放的先后）"),
    "placement.picture.invalid": Text("NOT VALID: blocks overlap", "规划无效：有块重叠"),
    "placement.picture.live": Text("live bytes", "存活字节数"),
    "placement.picture.bound": Text("lower bound", "下界"),
    "placement.picture.height": Text("height", "高度"),
    "placement.picture.block": Text(
        "block {block}: {size} at {address}, lives [{lower}, {upper})",
        "块 {block}：{size}，地址 {address}，存活 [{lower}, {upper})",
    ),
    "placement.picture.drawn": Text(
        "{drawn} of {blocks} blocks are drawn: those that take most of the picture",
        "共 {blocks} 个块，绘出其中占图面最大的 {drawn} 个",
    ),
    "placement.picture.long": Text("lives nearly all the time", "几乎始终存活"),
    "placement.picture.peak": Text("live at the peak", "峰值时存活"),
    "placement.picture.other": Text("other blocks", "其他块"),
    "placement.unreadable": Text("cannot be read: {detail}", "无法读取：{detail}"),
    "placement.not-text": Text("is not a text file in UTF-8", "不是 UTF-8 文本文件"),
    "placement.long-line": Text("the line is too long", "该行过长"),
    "placement.columns": Text("the header lacks: {columns}", "表头缺少：{columns}"),
    "placement.row": Text("the row is broken: {detail}", "该行格式错误：{detail}"),
    "placement.fields": Text("{found} fields where the header has {wanted}", "有 {found} 个字段，而表头有 {wanted} 个"),
    "placement.number": Text(
        "{column}: '{text}' is not a whole number from 0 to {most}", "{column}：'{text}' 不是 0 到 {most} 之间的整数"
    ),
    "placement.life": Text(
        "the block ends at {upper}, not after its start {lower}", "该块结束于 {upper}，不晚于开始 {lower}"
    ),
    "placement.alignment": Text("the alignment must be at least 1", "对齐值至少为 1"),
    "placement.gaps": Text("blocks with gaps in their lives are not supported", "不支持存活期中有间隙的块"),
    "placement.twice": Text("the id {id} is there twice", "id {id} 重复"),
    "placement.too-large": Text("too many blocks or bytes", "块数或字节数过大"),
    "placement.no-rows": Text("there are no blocks in it", "文件中没有任何块"),
}
