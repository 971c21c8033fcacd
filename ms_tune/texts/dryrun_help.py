"""Texts of ``ms-tune dryrun --help``."""

from ms_tune.texts import Text

TEXTS = {
    "dryrun_help.description": Text(
        "Runs a training step of the config in the real MindSpore, on its Ascend back end in simulation: shapes are\n"
        "inferred, the real allocator allocates, nothing is computed. Needs no NPU and no CANN. Without a config it runs\n"
        "a packaged Llama-2-7B; after '--' it runs any command instead. Exit code: 0 fits, 1 does not fit, 2 usage, config\n"
        "or run at fault, 3 ms-tune at fault; a command's own exit code is kept.",
        "在真实的 MindSpore 上以 Ascend 后端仿真模式运行配置的一个训练步：只推导形状，由真实的内存分配器分配显存，不做计算；\n"
        "不需要 NPU，也不需要 CANN。不给配置时运行内置的 Llama-2-7B；'--' 之后可以是任意命令。\n"
        "退出码：0 放得下，1 放不下，2 用法、配置或运行有误，3 ms-tune 自身出错；命令自己的退出码保持不变。",
    ),
    "dryrun_help.examples": Text(
        "examples:\n"
        "  ms-tune dryrun --layers 4                           the packaged Llama-2-7B, from four layers of it\n"
        "  ms-tune dryrun --layers 2 qwen3.yaml                every pipeline stage, from two layers of each\n"
        "  ms-tune dryrun --stages 0,3 qwen3.yaml              two stages, whole\n"
        "  ms-tune dryrun --layers 2 --sweep parallel_config.micro_batch_num=4,8,16 qwen3.yaml\n"
        "  ms-tune dryrun --device-memory 32GB config.yaml     would it fit on a smaller device?\n"
        "  ms-tune dryrun --layers 4 --json config.yaml        for scripts and CI\n"
        "  ms-tune dryrun --ranks 0,8 --devices 16 -- python train.py --config c.yaml",
        "示例：\n"
        "  ms-tune dryrun --layers 4                           内置 Llama-2-7B，由其中 4 层推算\n"
        "  ms-tune dryrun --layers 2 qwen3.yaml                全部流水线阶段，各由 2 层推算\n"
        "  ms-tune dryrun --stages 0,3 qwen3.yaml              两个阶段，完整层数\n"
        "  ms-tune dryrun --layers 2 --sweep parallel_config.micro_batch_num=4,8,16 qwen3.yaml\n"
        "  ms-tune dryrun --device-memory 32GB config.yaml     换成显存更小的设备放得下吗？\n"
        "  ms-tune dryrun --layers 4 --json config.yaml        供脚本和 CI 使用\n"
        "  ms-tune dryrun --ranks 0,8 --devices 16 -- python train.py --config c.yaml",
    ),
    "dryrun_help.config": Text(
        "a MindFormers (static graph) or MindSpeed-Core-MS (dynamic graph) training config; default: the packaged Llama-2-7B",
        "MindFormers（静态图）或 MindSpeed-Core-MS（动态图）训练配置；默认为内置的 Llama-2-7B",
    ),
    "dryrun_help.layers": Text(
        "layers in every simulated pipeline stage (default: as many as the config gives it); the peak of all layers is "
        "derived from a second run with more",
        "每个被仿真的流水线阶段的层数（默认与配置一致）；另以更多层运行一次，据此推算全部层数的峰值",
    ),
    "dryrun_help.stage": Text(
        "simulate this pipeline stage only, from 0; may be repeated", "只仿真该流水线阶段，从 0 开始；可重复给出"
    ),
    "dryrun_help.stages": Text(
        "pipeline stages to simulate: all (the default), numbers such as 0,3, or worst: those that no earlier stage "
        "outdoes in layers, and the last one",
        "要仿真的流水线阶段：all（默认）、0,3 这样的编号，或 worst：层数不被更靠前阶段覆盖的阶段，以及最后一个阶段",
    ),
    "dryrun_help.ranks": Text(
        "simulate these ranks, such as 0,12 (default: the first rank of every stage)",
        "仿真这些 rank，如 0,12（默认为每个阶段的第一个 rank）",
    ),
    "dryrun_help.no-extrapolate": Text(
        "with --layers: do not run a second number of layers, and judge the few layers instead of the whole model",
        "配合 --layers：不再用另一层数多运行一次，只判断缩减后的模型，而不推算完整模型",
    ),
    "dryrun_help.level": Text(
        "simulation level: 0 compiles only, no memory figures; 1 allocates, needs no device (the default); 2 as 1 on an "
        "NPU, with kernel workspaces; 3 runs kernels on an NPU and fakes communication only",
        "仿真级别：0 只编译，没有显存数字；1 分配内存，不需要设备（默认）；2 与 1 相同，但在 NPU 上进行并计入算子工作区；3 在 NPU 上真正执行算子，只模拟通信",
    ),
    "dryrun_help.jobs": Text(
        "processes at once (default: as many as cores and free memory allow)",
        "同时运行的进程数（默认按 CPU 核数和空闲内存决定）",
    ),
    "dryrun_help.engine": Text(
        "where the processes run: on this machine, or on a Ray cluster (RAY_ADDRESS; needs the extra ray)",
        "进程在哪里运行：本机，或 Ray 集群（RAY_ADDRESS；需要附加依赖 ray）",
    ),
    "dryrun_help.set": Text(
        "run with this value instead, such as parallel_config.micro_batch_num=8; may be repeated",
        "改用该取值运行，如 parallel_config.micro_batch_num=8；可重复给出",
    ),
    "dryrun_help.sweep": Text(
        "run once with each value, such as a.b=1,2,4, and compare; several sweeps are combined",
        "对每个取值各运行一次并比较，如 a.b=1,2,4；多个 --sweep 取全部组合",
    ),
    "dryrun_help.html": Text(
        "write the memory report of all stages that ran, the worst first, for the browser",
        "写出所有已运行阶段的显存报告，最紧张的在前（浏览器查看）",
    ),
    "dryrun_help.force": Text("overwrite that file", "允许覆盖该文件"),
    "dryrun_help.devices": Text(
        "NPUs in the whole job; more than one copy of the model is data parallel (default: what the config needs; 8 for "
        "the packaged model)",
        "整个任务的 NPU 数；多于一份模型所需时为数据并行（默认按配置推算；内置模型为 8）",
    ),
    "dryrun_help.device-memory": Text(
        "memory of one device, such as 64GB or 32GiB (default: 64GB); of this MindSpore uses about fifteen sixteenths",
        "单个设备的显存，如 64GB、32GiB（默认 64GB）；其中 MindSpore 可用约十六分之十五",
    ),
    "dryrun_help.chip": Text("take the memory of this chip", "取该芯片的显存大小"),
    "dryrun_help.run-dir": Text(
        "keep the run in this empty or new folder (default: a new one below ms-tune-runs/)",
        "把本次运行保存到该空目录或新目录（默认在 ms-tune-runs/ 下新建）",
    ),
    "dryrun_help.timeout": Text(
        "stop the run after so many seconds (default: 3600)", "超过该秒数后停止运行（默认 3600）"
    ),
    "dryrun_help.check": Text(
        "only tell what was found: MindSpore, MindFormers, CANN, compiler, cores",
        "只报告本机环境：MindSpore、MindFormers、CANN、编译器、CPU 核数",
    ),
    "dryrun_help.real": Text(
        "run on the NPUs of this machine, without simulation and with the tracker on; never tried on a device by its "
        "authors",
        "在本机 NPU 上真实运行（不仿真），并打开显存跟踪；作者未曾在真实设备上试过",
    ),
    "dryrun_help.compare-real": Text(
        "put the peaks of a run on devices (a folder with traces) beside the simulated ones: those of the run folder "
        "that stands in the place of CONFIG, or of CONFIG, which is simulated for it",
        "把真实设备上的运行（含跟踪文件的目录）与仿真峰值并列比较：CONFIG 处给出仿真运行目录，或给出配置，先行仿真",
    ),
    "dryrun_help.command": Text(
        "-- COMMAND ...: run any command in simulation instead of a config; its exit code is kept",
        "-- COMMAND ...：不用配置，在仿真环境中运行任意命令；保留其退出码",
    ),
}
