"""Texts about MindFormers' own dynamic-graph trainer: that it runs, what is missing for it, what it is not given."""

from ms_tune.texts import Text

TEXTS = {
    "pynative.by-trainer": Text(
        "the config's own model in the dynamic-graph trainer of {framework}", "{framework} 动态图训练器中该配置的模型"
    ),
    "pynative.not-started": Text(
        "MindFormers' own trainer: {missing}; ms-tune's reference transformer is run in its place",
        "MindFormers 自带的训练器：{missing}；此处改为运行 ms-tune 参考模型",
    ),
    "pynative.no-mindformers": Text("MindFormers is not installed", "未安装 MindFormers"),
    "pynative.no-trainer": Text(
        "it takes MindFormers 2.0 or later, and {mindformers} is installed",
        "需要 MindFormers 2.0 或更高版本，本机安装的是 {mindformers}",
    ),
    "pynative.no-hyper-parallel": Text(
        "the trainer of {mindformers} needs the package hyper_parallel, which is not installed",
        "{mindformers} 的训练器需要 hyper_parallel 包，但本机未安装",
    ),
    "pynative.other-hyper-parallel": Text(
        "the trainer of {mindformers} needs {module}, which the installed hyper_parallel lacks",
        "{mindformers} 的训练器需要 {module}，已安装的 hyper_parallel 中没有该文件",
    ),
    "pynative.not-included.data": Text(
        "the data set: samples of the same shapes stand for it", "数据集：以相同形状的样本代替"
    ),
    "pynative.not-included.surroundings": Text(
        "what checkpoints, monitors, the profiler and the config's own callbacks take",
        "检查点、监控、性能采集和配置中回调占用的内存",
    ),
}
