"""Texts of ``ms-tune dryrun``."""

from ms_tune.texts import Text

TEXTS = {
    "dryrun.summary": Text(
        "simulate the training with the real MindSpore: does it fit?", "用真实的 MindSpore 模拟训练：显存放得下吗？"
    ),
    # What stands in the way
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
    "dryrun.version.hint": Text("this installs a tested pair: {line}", "安装经过测试的版本组合：{line}"),
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
        "a figure for another model would be a wrong one, so there is none; where the framework itself is installed, "
        "simulate its training command: ms-tune dryrun -- python ... (what the transformer does: docs/reference-model.md)",
        "换成别的模型得到的数字是错的，因此不给出；若本机装有该框架，可直接仿真其训练命令：ms-tune dryrun -- python ...（参考模型支持的范围见 docs/reference-model.md）",
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
        "--set pretrained_model_dir=FOLDER, or write model_type and the sizes below model.model_config",
        "请把模型的 config.json 放到该目录（不需要权重），或用 --set pretrained_model_dir=目录 指定其他目录，"
        "或把 model_type 和各尺寸写在 model.model_config 下",
    ),
    "dryrun.warning.no-model-folder": Text(
        "{key}: the folder '{folder}' is not on this machine; what the config does not say has the default of the "
        "model's class",
        "{key}：本机没有目录 '{folder}'；配置中未写明的取值采用该模型类的默认值",
    ),
    "dryrun.no-model-type": Text(
        "model.model_config.model_type is missing: MindFormers cannot tell which model to build",
        "缺少 model.model_config.model_type：MindFormers 无法确定要构建哪个模型",
    ),
    "dryrun.no-model-type.hint": Text(
        "add it as the model's config.json has it (qwen3, deepseek_v3, ...), or name a folder with that file as "
        "pretrained_model_dir; for a model of the older classes leave use_legacy out",
        "请按模型 config.json 中的取值补充（如 qwen3、deepseek_v3），或用 pretrained_model_dir 指定含该文件的目录；"
        "旧版模型类请不要设置 use_legacy: False",
    ),
    "dryrun.columns": Text(
        "the data set's columns {columns} are not ones that dryrun can make up; it knows {known}",
        "dryrun 无法生成数据集列 {columns}；支持的列为 {known}",
    ),
    "dryrun.eod-reset": Text(
        "train_dataset.eod_reset makes positions and masks while the data is read, which dryrun does not do",
        "train_dataset.eod_reset 会在读取数据时生成位置和掩码，dryrun 不支持",
    ),
    "dryrun.eod-reset.hint": Text(
        "--set train_dataset.eod_reset=False gives the figure without the mask",
        "可用 --set train_dataset.eod_reset=False 得到不含该掩码的数字",
    ),
    "dryrun.graph-engine": Text(
        "context.jit_config.jit_level is {level}: CANN's graph engine compiles the graph, and there is no CANN here",
        "context.jit_config.jit_level 为 {level}：需由 CANN 的图引擎编译计算图，而本机没有 CANN",
    ),
    "dryrun.graph-engine.hint": Text(
        "--set context.jit_config.jit_level=O1 runs the graph in MindSpore's own executor; what the engine would save or "
        "take is then not in the figure",
        "可用 --set context.jit_config.jit_level=O1 改由 MindSpore 自身的执行器运行；图引擎节省或多占的内存不会计入结果",
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
    "dryrun.run.log.build": Text(
        "it is MindFormers' own error as it builds the model, and most likely stops the training as well; 'ms-tune lint' "
        "may name the setting; the whole output is in {log}",
        "这是 MindFormers 构建模型时自身报出的错误，实际训练很可能同样会因此退出；可用 'ms-tune lint' 查找是哪一项设置；"
        "完整输出见 {log}",
    ),
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
    "dryrun.numbers": Text("'{text}' is not a list of numbers such as 0,3", "'{text}' 不是 0,3 这样的编号列表"),
    "dryrun.ranks": Text(
        "there is no rank {rank}: the job has {size} rank(s), counted from 0",
        "没有 rank {rank}：该任务共有 {size} 个 rank，从 0 开始编号",
    ),
    "dryrun.set.shared.hint": Text(
        "where other places follow the value through an anchor (&name), set it in a copy of the config",
        "若该值通过锚点（&名称）被其他位置引用，请在配置的副本中直接修改",
    ),
    "dryrun.ray.no-folder": Text(
        "the command's working folder {folder} is not on {host}", "{host} 上没有该命令的工作目录 {folder}"
    ),
    "dryrun.ray.no-folder.hint": Text(
        "start it in a folder that all machines of the Ray cluster share", "请在 Ray 集群所有机器共享的目录中启动"
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
    "dryrun.show.theory": Text(
        "held for the whole run, measured beside theory (stage {stage}, {layers} layer(s)):",
        "整个训练期间常驻的显存，实测与理论对照（阶段 {stage}，{layers} 层）：",
    ),
    "dryrun.show.by-theory": Text("by theory {size}, difference {difference}", "理论值 {size}，差异 {difference}"),
    "dryrun.show.no-theory": Text(
        "bytes by theory: not known for this model, or for one of its settings",
        "理论字节数：未知，ms-tune 无法准确推算该模型或其中某项设置",
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
    "dryrun.not-included.uneven-experts": Text(
        "what experts need beyond an even share of the tokens: in simulation all get the same number",
        "专家分到的 token 多于平均数时多占的内存：仿真中各专家分到的 token 数相同",
    ),
    "dryrun.show.kept": Text("kept in: {folder}", "运行保存在：{folder}"),
    "dryrun.show.next": Text("next: {command}", "下一步：{command}"),
    # --html
    "dryrun.html.one-run": Text(
        "--html shows one run and cannot be used with {option}", "--html 只展示一次运行，不能与 {option} 一起使用"
    ),
    "dryrun.html.hint": Text(
        "ms-tune memory RUN --html FILE shows a run that is kept", "用 ms-tune memory RUN --html FILE 查看已保存的运行"
    ),
    "dryrun.html.nothing": Text(
        "{file} was not written: there is no trace to show", "没有写出 {file}：没有可展示的跟踪文件"
    ),
    "dryrun.html.left-out": Text(
        "the page shows the {shown} worst ranks; {left_out} more are in the run folder",
        "页面只含最紧张的 {shown} 个 rank；其余 {left_out} 个见运行目录",
    ),
    "dryrun.page.title": Text("Held for the whole run", "全程常驻的显存"),
    "dryrun.page.hint": Text(
        "Measured at the peak, beside what the sizes of the model make one expect.",
        "峰值时刻的实测值，与按模型尺寸算出的理论值对照。",
    ),
    "dryrun.page.stage": Text("stage", "阶段"),
    "dryrun.page.rank": Text("rank", "rank 号"),
    "dryrun.page.content": Text("holds", "内容"),
    "dryrun.page.measured": Text("measured", "实测"),
    "dryrun.page.theory": Text("by theory", "理论值"),
    "dryrun.page.difference": Text("difference", "差异"),
    "dryrun.page.unknown": Text("by theory: not known", "理论值：未知"),
    # --check
    "dryrun.check.label.machine": Text("machine", "机器"),
    "dryrun.check.label.python": Text("Python", "Python"),
    "dryrun.check.label.cores": Text("cores", "CPU 核数"),
    "dryrun.check.label.mindspore": Text("MindSpore", "MindSpore"),
    "dryrun.check.label.mindformers": Text("MindFormers", "MindFormers"),
    "dryrun.check.label.numpy": Text("NumPy", "NumPy"),
    "dryrun.check.label.compiler": Text("C compiler", "C 编译器"),
    "dryrun.check.label.cann": Text("CANN", "CANN"),
    "dryrun.check.label.mindspeed": Text(
        "MindSpeed-Core-MS configs (dynamic graph) are run by", "MindSpeed-Core-MS 配置（动态图）的运行方式"
    ),
    "dryrun.check.label.pynative": Text(
        "MindFormers' dynamic-graph configs are run by", "MindFormers 动态图配置的运行方式"
    ),
    "dryrun.check.absent": Text("not found", "未找到"),
    "dryrun.check.cann": Text("installed", "已安装"),
    "dryrun.check.cann-stand-in": Text("not found; stand-ins are used", "未找到；使用替身库"),
    "dryrun.check.not-built": Text("to be built on the first run", "首次运行时构建"),
    "dryrun.check.yes": Text("dryrun can run here", "dryrun 可以在本机运行"),
    "dryrun.check.no": Text("dryrun cannot run here", "dryrun 无法在本机运行"),
}
