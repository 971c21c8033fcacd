"""Texts of ``ms-tune dryrun``."""

from ms_tune.texts import Text

TEXTS = {
    "dryrun.summary": Text(
        "simulate the training with the real MindSpore: does it fit?", "用真实的 MindSpore 模拟训练：显存放得下吗？"
    ),
    "dryrun.description": Text(
        "Runs a training step of the config in the real MindSpore, on its Ascend back end in simulation: shapes are\n"
        "inferred, the real allocator allocates, nothing is computed. Needs no NPU and no CANN. Without a config it runs\n"
        "a packaged Llama-2-7B; after '--' it runs any command instead. Exit code: 0 fits, 1 does not fit, 2 usage, config\n"
        "or run at fault, 3 ms-tune at fault; a command's own exit code is kept.",
        "在真实的 MindSpore 上以 Ascend 后端仿真模式运行配置的一个训练步：只推导形状，由真实的内存分配器分配显存，不做计算；\n"
        "不需要 NPU，也不需要 CANN。不给配置时运行内置的 Llama-2-7B；'--' 之后可以是任意命令。\n"
        "退出码：0 放得下，1 放不下，2 用法、配置或运行有误，3 ms-tune 自身出错；命令自己的退出码保持不变。",
    ),
    "dryrun.examples": Text(
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
    "dryrun.help.config": Text(
        "a MindFormers (static graph) or MindSpeed-Core-MS (dynamic graph) training config; default: the packaged Llama-2-7B",
        "MindFormers（静态图）或 MindSpeed-Core-MS（动态图）训练配置；默认为内置的 Llama-2-7B",
    ),
    "dryrun.help.layers": Text(
        "layers in every simulated pipeline stage (default: as many as the config gives it); the peak of all layers is "
        "derived from a second run with more",
        "每个被仿真的流水线阶段的层数（默认与配置一致）；另以更多层运行一次，据此推算全部层数的峰值",
    ),
    "dryrun.help.stage": Text(
        "simulate this pipeline stage only, from 0; may be repeated", "只仿真该流水线阶段，从 0 开始；可重复给出"
    ),
    "dryrun.help.stages": Text(
        "pipeline stages to simulate: all (the default), numbers such as 0,3, or worst: those that no earlier stage "
        "outdoes in layers, and the last one",
        "要仿真的流水线阶段：all（默认）、0,3 这样的编号，或 worst：层数不被更靠前阶段覆盖的阶段，以及最后一个阶段",
    ),
    "dryrun.help.ranks": Text(
        "simulate these ranks, such as 0,12 (default: the first rank of every stage)",
        "仿真这些 rank，如 0,12（默认为每个阶段的第一个 rank）",
    ),
    "dryrun.help.no-extrapolate": Text(
        "with --layers: do not run a second number of layers, and judge the few layers instead of the whole model",
        "配合 --layers：不再用另一层数多运行一次，只判断缩减后的模型，而不推算完整模型",
    ),
    "dryrun.help.level": Text(
        "simulation level: 0 compiles only, no memory figures; 1 allocates, needs no device (the default); 2 as 1 on an "
        "NPU, with kernel workspaces; 3 runs kernels on an NPU and fakes communication only",
        "仿真级别：0 只编译，没有显存数字；1 分配内存，不需要设备（默认）；2 与 1 相同，但在 NPU 上进行并计入算子工作区；3 在 NPU 上真正执行算子，只模拟通信",
    ),
    "dryrun.help.jobs": Text(
        "processes at once (default: as many as cores and free memory allow)",
        "同时运行的进程数（默认按 CPU 核数和空闲内存决定）",
    ),
    "dryrun.help.engine": Text(
        "where the processes run: on this machine, or on a Ray cluster (RAY_ADDRESS; needs ms-tune[ray])",
        "进程在哪里运行：本机，或 Ray 集群（RAY_ADDRESS；需要 ms-tune[ray]）",
    ),
    "dryrun.help.set": Text(
        "run with this value instead, such as parallel_config.micro_batch_num=8; may be repeated",
        "改用该取值运行，如 parallel_config.micro_batch_num=8；可重复给出",
    ),
    "dryrun.help.sweep": Text(
        "run once with each value, such as a.b=1,2,4, and compare; several sweeps are combined",
        "对每个取值各运行一次并比较，如 a.b=1,2,4；多个 --sweep 取全部组合",
    ),
    "dryrun.help.html": Text(
        "write the memory report of the worst stage, for the browser", "写出最紧张阶段的显存报告（浏览器查看）"
    ),
    "dryrun.help.force": Text("overwrite that file", "允许覆盖该文件"),
    "dryrun.help.devices": Text(
        "NPUs in the whole job; more than one copy of the model is data parallel (default: what the config needs; 8 for "
        "the packaged model)",
        "整个任务的 NPU 数；多于一份模型所需时为数据并行（默认按配置推算；内置模型为 8）",
    ),
    "dryrun.help.device-memory": Text(
        "memory of one device, such as 64GB or 32GiB (default: 64GB); of this MindSpore uses about fifteen sixteenths",
        "单个设备的显存，如 64GB、32GiB（默认 64GB）；其中 MindSpore 可用约十六分之十五",
    ),
    "dryrun.help.chip": Text("take the memory of this chip", "取该芯片的显存大小"),
    "dryrun.help.run-dir": Text(
        "keep the run in this empty or new folder (default: a new one below ms-tune-runs/)",
        "把本次运行保存到该空目录或新目录（默认在 ms-tune-runs/ 下新建）",
    ),
    "dryrun.help.timeout": Text(
        "stop the run after so many seconds (default: 3600)", "超过该秒数后停止运行（默认 3600）"
    ),
    "dryrun.help.check": Text(
        "only tell what was found: MindSpore, MindFormers, CANN, compiler, cores",
        "只报告本机环境：MindSpore、MindFormers、CANN、编译器、CPU 核数",
    ),
    # What stands in the way
    "dryrun.no-mindspore": Text(
        "dryrun needs MindSpore: pip install 'ms-tune[dryrun]'", "dryrun 需要 MindSpore：pip install 'ms-tune[dryrun]'"
    ),
    "dryrun.no-mindformers": Text(
        "this config needs MindFormers: pip install 'ms-tune[dryrun]'",
        "该配置需要 MindFormers：pip install 'ms-tune[dryrun]'",
    ),
    "dryrun.platform": Text(
        "without CANN, dryrun runs on Linux x86-64 only; this is {system} {machine}",
        "没有 CANN 时，dryrun 只支持 Linux x86-64；本机是 {system} {machine}",
    ),
    "dryrun.platform.hint": Text(
        "install CANN and set ASCEND_HOME_PATH, or use an x86-64 machine or container",
        "安装 CANN 并设置 ASCEND_HOME_PATH，或改用 x86-64 机器或容器",
    ),
    "dryrun.version": Text(
        "without CANN, dryrun serves MindSpore {supported}; installed is {version}",
        "没有 CANN 时，dryrun 支持的 MindSpore 版本为 {supported}；当前安装的是 {version}",
    ),
    "dryrun.version.hint": Text(
        "pip install 'ms-tune[dryrun]' installs a tested pair", "pip install 'ms-tune[dryrun]' 会安装经过测试的版本组合"
    ),
    "dryrun.build.start": Text(
        "first run: building stand-ins for CANN's libraries for MindSpore {version} (about ten seconds) …",
        "首次运行：正在为 MindSpore {version} 构建 CANN 替身库（约十秒）……",
    ),
    "dryrun.build.wait": Text(
        "waiting: another process is building the same stand-ins …", "等待中：另一个进程正在构建同样的替身库……"
    ),
    "dryrun.build.no-compiler": Text(
        "no C compiler was found, and stand-ins for CANN's libraries must be compiled once",
        "没有找到 C 编译器，而 CANN 替身库需要编译一次",
    ),
    "dryrun.build.no-compiler.hint": Text(
        "pip install ziglang (it brings a compiler), or install gcc", "pip install ziglang（自带编译器），或安装 gcc"
    ),
    "dryrun.build.failed": Text(
        "the stand-ins for CANN could not be compiled: {detail}", "CANN 替身库编译失败：{detail}"
    ),
    "dryrun.build.no-plugin": Text(
        "the installed MindSpore has no Ascend plug-in ({path} is missing)",
        "当前安装的 MindSpore 不含 Ascend 插件（缺少 {path}）",
    ),
    "dryrun.build.write": Text(
        "cannot write the stand-ins to {folder}: {detail}", "无法将替身库写入 {folder}：{detail}"
    ),
    "dryrun.cache.unwritable": Text(
        "no folder to keep the stand-ins in: none of {folders} belongs to you and can be written by you alone",
        "没有可存放替身库的目录：{folders} 均不属于您或不可由您独占写入",
    ),
    "dryrun.cache.unwritable.hint": Text(
        "name one with MS_TUNE_CACHE=/some/folder", "用 MS_TUNE_CACHE=/某个目录 指定一个"
    ),
    # What cannot be run
    "dryrun.not-a-config": Text("this is not a training config that ms-tune knows", "这不是 ms-tune 能识别的训练配置"),
    "dryrun.not-a-config.hint": Text(
        "dryrun reads MindFormers (static graph) and MindSpeed-Core-MS YAML",
        "dryrun 支持 MindFormers（静态图）和 MindSpeed-Core-MS 的 YAML",
    ),
    "dryrun.devices-fixed": Text(
        "--devices {devices} contradicts the config, whose parallel sizes multiply to {size}",
        "--devices {devices} 与配置矛盾：各并行维度之积为 {size}",
    ),
    "dryrun.stage": Text(
        "there is no stage {stage}: the job has {stages} pipeline stage(s), counted from 0",
        "没有第 {stage} 阶段：该任务共有 {stages} 个流水线阶段，从 0 开始编号",
    ),
    "dryrun.reference.not-served": Text(
        "ms-tune's reference transformer does not do {key}: {value} yet", "ms-tune 的参考模型暂不支持 {key}: {value}"
    ),
    "dryrun.reference.not-served.hint": Text(
        "it runs dense models with SwiGLU, RMSNorm, rotary positions, FlashAttention and AdamW on data-parallel NPUs; a "
        "figure for another model would be a wrong one",
        "它支持数据并行下使用 SwiGLU、RMSNorm、旋转位置编码、FlashAttention 和 AdamW 的稠密模型；换成别的模型得到的数字是错的，因此不给出",
    ),
    "dryrun.run-mode": Text(
        "run_mode is '{mode}'; dryrun simulates training", "run_mode 为 '{mode}'；dryrun 只仿真训练"
    ),
    "dryrun.run-mode.hint": Text(
        "give it a config with run_mode: train or finetune", "请使用 run_mode 为 train 或 finetune 的配置"
    ),
    "dryrun.no-layer-count": Text("the config does not say how many layers the model has", "配置中没有给出模型层数"),
    "dryrun.no-layer-count.hint": Text(
        "add model.model_config.num_hidden_layers with the sizes from the model's config.json",
        "请按模型 config.json 中的取值补充 model.model_config.num_hidden_layers 等尺寸",
    ),
    "dryrun.refused": Text(
        "MindFormers stops at this config's layer settings: {error}", "MindFormers 会因该配置的层设置报错退出：{error}"
    ),
    "dryrun.refused.hint": Text(
        "'ms-tune lint' and 'ms-tune normalize-recompute' say which setting it is",
        "运行 'ms-tune lint' 和 'ms-tune normalize-recompute' 查看是哪一项设置",
    ),
    "dryrun.warning.refused": Text(
        "with all its layers MindFormers stops at this config's layer settings: {error}",
        "按完整层数运行时，MindFormers 会因该配置的层设置报错退出：{error}",
    ),
    "dryrun.layers-chunks": Text(
        "--layers {layers} would leave one of the stage's {chunks} chunks empty (pp_interleave_num); it needs {least}",
        "--layers {layers} 会使该阶段的 {chunks} 个分块之一为空（pp_interleave_num）；至少需要 {least} 层",
    ),
    "dryrun.cut": Text(
        "--layers cannot shrink this config: its recompute and swap settings cannot be cut layer by layer",
        "--layers 无法缩减该配置：其重计算与 swap 设置不能逐层裁剪",
    ),
    "dryrun.cut.hint": Text("run it whole, without --layers", "请去掉 --layers，按完整层数运行"),
    "dryrun.no-model-folder": Text(
        "{key}: the folder '{folder}' with the model's config.json is not on this machine",
        "{key}：本机没有包含模型 config.json 的目录 '{folder}'",
    ),
    "dryrun.no-model-folder.hint": Text(
        "put the model's config.json there (weights are not needed), name another folder with "
        "--set pretrained_model_dir=FOLDER, or write the sizes below model.model_config",
        "请把模型的 config.json 放到该目录（不需要权重），或用 --set pretrained_model_dir=目录 指定其他目录，"
        "或把各尺寸写在 model.model_config 下",
    ),
    "dryrun.model-folder-json": Text("not a model's config.json: {reason}", "不是模型的 config.json：{reason}"),
    "dryrun.columns": Text(
        "the data set's columns {columns} are not ones that dryrun can make up; it knows {known}",
        "dryrun 无法生成数据集列 {columns}；支持的列为 {known}",
    ),
    "dryrun.bad-size": Text(
        "'{key}' is '{value}', which is not a size such as 58GB", "'{key}' 为 '{value}'，不是 58GB 这样的大小"
    ),
    # The run
    "dryrun.folder.unwritable": Text("cannot use the folder {folder}: {detail}", "无法使用目录 {folder}：{detail}"),
    "dryrun.folder.occupied": Text("the folder {folder} is not empty", "目录 {folder} 非空"),
    "dryrun.folder.occupied.hint": Text(
        "a run never overwrites another one: name a new folder", "运行结果不会互相覆盖：请指定新目录"
    ),
    "dryrun.progress.start": Text(
        "simulating: starting MindSpore … {seconds} s", "仿真中：正在启动 MindSpore…… {seconds} 秒"
    ),
    "dryrun.progress.build": Text(
        "simulating: building the model … {seconds} s", "仿真中：正在构建模型…… {seconds} 秒"
    ),
    "dryrun.progress.compile": Text(
        "simulating: compiling the graph … {seconds} s", "仿真中：正在编译计算图…… {seconds} 秒"
    ),
    "dryrun.progress.step": Text(
        "simulating: step {step} of {steps} … {seconds} s", "仿真中：第 {step}/{steps} 步…… {seconds} 秒"
    ),
    "dryrun.progress.remote": Text("running elsewhere … {seconds} s", "正在其他机器上运行…… {seconds} 秒"),
    "dryrun.progress.blocks": Text(
        "simulating: the tracker writes {blocks} blocks … {seconds} s",
        "仿真中：正在写出 {blocks} 个内存块的跟踪文件…… {seconds} 秒",
    ),
    "dryrun.progress.ended": Text("ended after {seconds} s", "结束，用时 {seconds} 秒"),
    "dryrun.progress.task": Text("stage {stage}, {layers} layer(s): {what}", "阶段 {stage}，{layers} 层：{what}"),
    "dryrun.progress.waiting": Text(
        "{done} of {all} processes ended, {waiting} waiting", "共 {all} 个进程，已结束 {done} 个，等待 {waiting} 个"
    ),
    "dryrun.progress.write": Text(
        "simulating: the tracker writes its files … {seconds} s", "仿真中：正在写出显存跟踪文件…… {seconds} 秒"
    ),
    "dryrun.run.timeout": Text("the simulated run was stopped after {seconds} s", "仿真运行超过 {seconds} 秒，已停止"),
    "dryrun.run.timeout.hint": Text(
        "give it more time with --timeout, or fewer layers", "用 --timeout 延长时限，或减少层数"
    ),
    "dryrun.run.failed": Text(
        "the simulated run ended with exit code {code}: {reason}", "仿真运行以退出码 {code} 结束：{reason}"
    ),
    "dryrun.run.silent": Text("it left no error message", "没有留下错误信息"),
    "dryrun.run.log": Text("its whole output is in {log}", "完整输出见 {log}"),
    "dryrun.run.last-lines": Text("no error message; its last lines are\n{lines}", "没有错误信息；最后几行是\n{lines}"),
    "dryrun.run.signal": Text(
        "the simulated run was ended by {signal} (exit code {code}): {reason}",
        "仿真运行被 {signal} 终止（退出码 {code}）：{reason}",
    ),
    "dryrun.run.disk-full": Text(
        "the disk is full: the simulated run could not write all of its files to {folder}",
        "磁盘已满：仿真运行无法把文件完整写入 {folder}",
    ),
    "dryrun.run.not-started": Text(
        "the simulated run could not be started in {folder}: {detail}", "无法在 {folder} 中启动仿真运行：{detail}"
    ),
    "dryrun.run.other-rank": Text(
        "the trace is in {folder}, but rank {rank} was simulated", "跟踪文件位于 {folder}，但仿真的是 rank {rank}"
    ),
    "dryrun.run.no-statistics": Text(
        "the simulated run ended without MindSpore's memory statistics, so it did not come to its proper end: {reason}",
        "仿真运行结束时没有输出 MindSpore 的内存统计，说明没有正常结束：{reason}",
    ),
    "dryrun.run.empty-trace.hint": Text(
        "set_context or set_device may name the CPU: device_target must be Ascend; the whole output is in {log}",
        "可能设置成了 CPU：device_target 须为 Ascend；完整输出见 {log}",
    ),
    "dryrun.help.real": Text(
        "run on the NPUs of this machine, without simulation and with the tracker on; never tried on a device by its "
        "authors",
        "在本机 NPU 上真实运行（不仿真），并打开显存跟踪；作者未曾在真实设备上试过",
    ),
    "dryrun.help.compare-real": Text(
        "put the peaks of a run on devices (a folder with traces) beside the simulated ones: those of the run folder "
        "that stands in the place of CONFIG, or of CONFIG, which is simulated for it",
        "把真实设备上的运行（含跟踪文件的目录）与仿真峰值并列比较：CONFIG 处给出仿真运行目录，或给出配置，先行仿真",
    ),
    "dryrun.help.command": Text(
        "-- COMMAND ...: run any command in simulation instead of a config; its exit code is kept",
        "-- COMMAND ...：不用配置，在仿真环境中运行任意命令；保留其退出码",
    ),
    "dryrun.numbers": Text("'{text}' is not a list of numbers such as 0,3", "'{text}' 不是 0,3 这样的编号列表"),
    "dryrun.ranks": Text(
        "there is no rank {rank}: the job has {size} rank(s), counted from 0",
        "没有 rank {rank}：该任务共有 {size} 个 rank，从 0 开始编号",
    ),
    "dryrun.no-ray": Text(
        "--engine ray needs Ray: pip install 'ms-tune[ray]'", "--engine ray 需要 Ray：pip install 'ms-tune[ray]'"
    ),
    "dryrun.run.no-trace": Text(
        "the memory tracker left {count} memory_block.csv files where one was expected",
        "显存跟踪应生成 1 个 memory_block.csv，实际为 {count} 个",
    ),
    "dryrun.run.empty-trace": Text(
        "the memory tracker saw no device memory: the run did not use the Ascend back end",
        "显存跟踪没有记录到设备内存：运行没有使用 Ascend 后端",
    ),
    "dryrun.warning.log-differs": Text(
        "MindSpore's log says {log} MiB used at the peak, the trace {trace} MiB",
        "MindSpore 日志中的峰值为 {log} MiB，跟踪文件为 {trace} MiB",
    ),
    "dryrun.warning.column-differs": Text(
        "in {rows} rows MindSpore's own count of memory in use differs from the sum of live blocks",
        "有 {rows} 行的已用内存与存活块之和不一致",
    ),
    "dryrun.warning.dropped": Text("{rows} rows of the trace could not be read", "跟踪文件中有 {rows} 行无法读取"),
    "dryrun.warning.fragmentation": Text(
        "the peak fits, but with fragments the pool outgrows the device: set MS_ALLOC_CONF=enable_vmm:True",
        "峰值放得下，但计入碎片后内存池会超出设备：请设置 MS_ALLOC_CONF=enable_vmm:True",
    ),
    "dryrun.warning.overridden": Text(
        "set otherwise for the simulated run: {names}", "仿真运行中被改写的环境变量：{names}"
    ),
    # What is shown
    "dryrun.model.reference": Text("ms-tune's reference transformer", "ms-tune 参考模型"),
    "dryrun.model.mindformers": Text("the config's own model in MindFormers", "MindFormers 中该配置的模型"),
    "dryrun.limit.default": Text("a 64 GB device, the default", "默认按 64 GB 设备"),
    "dryrun.limit.device": Text("of the device you named", "按指定的设备"),
    "dryrun.limit.config": Text("the config's max_device_memory, {size}", "按配置中的 max_device_memory，{size}"),
    "dryrun.show.run": Text(
        "{config}: {layers} layer(s), stage {stage} of {stages}, rank {rank} of {world}; {model}",
        "{config}：{layers} 层，流水线阶段 {stage}（共 {stages} 个），rank {rank}（共 {world} 个）；{model}",
    ),
    "dryrun.show.real": Text("on devices, not simulated", "在真实设备上运行，非仿真"),
    "dryrun.show.settings": Text("run with {settings}", "运行时改用 {settings}"),
    "dryrun.show.compiled": Text(
        "compiled: {count} stage(s); simulation level 0 allocates nothing, so there are no memory figures",
        "编译通过：{count} 个阶段；仿真级别 0 不分配内存，因此没有显存数字",
    ),
    "dryrun.show.extrapolated": Text("whole model", "完整模型"),
    "dryrun.show.extrapolated-note": Text(
        "extrapolated to {layers} layers from runs with {runs}; it was not run",
        "由 {runs} 层的运行推算到 {layers} 层；并未实际运行",
    ),
    "dryrun.show.saving": Text(
        "one layer of stage {stage} that is not recomputed holds up to {size} of activations at the peak: recomputing it frees "
        "that, less its input",
        "阶段 {stage} 中一个未重计算的层在峰值时刻最多持有 {size} 激活：重计算它可释放这么多，减去该层的输入",
    ),
    "dryrun.show.with": Text("{versions}, {backend}, {seconds} s", "{versions}，{backend}，{seconds} 秒"),
    "dryrun.show.backend.cann": Text("CANN of this machine, simulation level {level}", "本机 CANN，仿真级别 {level}"),
    "dryrun.show.backend.cann-stand-in": Text(
        "stand-in CANN, simulation level {level}", "CANN 替身库，仿真级别 {level}"
    ),
    "dryrun.show.peak": Text("peak", "峰值"),
    "dryrun.show.footprint": Text("footprint", "占用范围"),
    "dryrun.show.footprint-note": Text("with fragments, without vmm", "含碎片，未开启 vmm"),
    "dryrun.show.usable": Text("usable memory", "可用显存"),
    "dryrun.show.verdict": Text("verdict", "结论"),
    "dryrun.show.fits": Text("fits", "放得下"),
    "dryrun.show.does-not-fit": Text("does not fit", "放不下"),
    "dryrun.show.spare": Text("{verdict}, {size} to spare", "{verdict}，还余 {size}"),
    "dryrun.show.missing": Text("{verdict}, {size} too much", "{verdict}，超出 {size}"),
    "dryrun.show.changes": Text("run otherwise than the config says:", "与配置不同之处："),
    "dryrun.show.changed": Text("{key}: {before} → {after}", "{key}：{before} → {after}"),
    "dryrun.show.removed": Text("{key}: left out", "{key}：未使用"),
    "dryrun.show.more-changes": Text("and {count} more, in {file}", "另有 {count} 处，见 {file}"),
    "dryrun.show.worth.stand-in": Text(
        "What the figures are: MindSpore's real allocator at work, in simulation level {level} and without CANN. Not included:",
        "数字的含义：真实的 MindSpore 内存分配器，仿真级别 {level}，没有 CANN。不包含：",
    ),
    "dryrun.show.worth.cann": Text(
        "What the figures are: MindSpore's real allocator at work, in simulation level {level}. Not included:",
        "数字的含义：真实的 MindSpore 内存分配器，仿真级别 {level}。不包含：",
    ),
    "dryrun.not-included.workspace": Text("workspaces of kernels", "算子工作区（workspace）"),
    "dryrun.not-included.communication": Text("buffers of HCCL and of CANN's runtime", "HCCL 与 CANN 运行时的缓冲区"),
    "dryrun.not-included.never-compared": Text(
        "any comparison with a real NPU: none was made", "与真实 NPU 的对比：未做过"
    ),
    "dryrun.not-included.other-stages": Text(
        "the other pipeline stages (--stages all)", "其他流水线阶段（用 --stages all 查看）"
    ),
    "dryrun.show.kept": Text("kept in: {folder}", "运行保存在：{folder}"),
    "dryrun.show.next": Text("next: {command}", "下一步：{command}"),
    # --check
    "dryrun.check.label.machine": Text("machine", "机器"),
    "dryrun.check.label.python": Text("Python", "Python"),
    "dryrun.check.label.cores": Text("cores", "CPU 核数"),
    "dryrun.check.label.mindspore": Text("MindSpore", "MindSpore"),
    "dryrun.check.label.mindformers": Text("MindFormers", "MindFormers"),
    "dryrun.check.label.numpy": Text("NumPy", "NumPy"),
    "dryrun.check.label.compiler": Text("C compiler", "C 编译器"),
    "dryrun.check.label.cann": Text("CANN", "CANN"),
    "dryrun.check.absent": Text("not found", "未找到"),
    "dryrun.check.cann": Text("installed", "已安装"),
    "dryrun.check.cann-stand-in": Text("not found; stand-ins are used", "未找到；使用替身库"),
    "dryrun.check.not-built": Text("to be built on the first run", "首次运行时构建"),
    "dryrun.check.yes": Text("dryrun can run here", "dryrun 可以在本机运行"),
    "dryrun.check.no": Text("dryrun cannot run here", "dryrun 无法在本机运行"),
}
