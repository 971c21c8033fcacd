"""Texts about the memory tracker's files, MindSpore's log and the tensor list."""

from ms_tune.texts import Text

TEXTS = {
    "trace.unreadable": Text("cannot read the file: {detail}", "无法读取文件：{detail}"),
    "trace.unreadable.hint": Text(
        "MindSpore writes its tracker files for their owner only (mode 0600); read them as the user who ran the training",
        "MindSpore 写出的跟踪文件仅属主可读（权限 0600）；请使用运行训练的用户读取",
    ),
    "trace.log.none": Text(
        "no log in this folder: neither worker_*.log nor rank_*/info.log nor *.log",
        "该目录中没有日志：未找到 worker_*.log、rank_*/info.log 或 *.log",
    ),
    "trace.log.too-many": Text("{count} logs are too many; at most {limit}", "日志共 {count} 个，超过上限 {limit}"),
    "trace.empty": Text("the file is empty", "文件为空"),
    "trace.not-tracker": Text(
        "this is not a memory_block.csv of MindSpore's memory tracker: the first line does not name {missing}",
        "这不是 MindSpore 显存跟踪器写出的 memory_block.csv：首行中缺少列名 {missing}",
    ),
    "trace.not-tracker.hint": Text(
        "run the training with MS_ALLOC_CONF=memory_tracker:True; the file is written when the process exits",
        "请设置 MS_ALLOC_CONF=memory_tracker:True 后运行训练；该文件在进程退出时写出",
    ),
    "trace.not-tasks": Text(
        "this is not a task.csv of MindSpore's memory tracker: the first line does not begin with {expected}",
        "这不是 MindSpore 显存跟踪器写出的 task.csv：首行不是以 {expected} 开头",
    ),
    "trace.not-order": Text(
        "this is not an execution order file of MindSpore: the first line does not name {expected}",
        "这不是 MindSpore 写出的执行序文件：首行中缺少列名 {expected}",
    ),
    "trace.row.order": Text("not a row of an execution order file", "不是执行序文件中的有效行"),
    "trace.graph.malformed": Text(
        "this operator is not written as the tracker writes it", "该算子的写法与跟踪器的格式不符"
    ),
    "trace.folder.absent": Text("there is no such file or folder", "文件或文件夹不存在"),
    "trace.folder.empty": Text(
        "there is no memory_block.csv of MindSpore's memory tracker in this folder",
        "该文件夹中没有 MindSpore 显存跟踪器写出的 memory_block.csv",
    ),
    "trace.column-twice": Text("the first line names the column '{column}' twice", "首行中列名“{column}”出现了两次"),
    "trace.sizes": Text(
        "the sizes add up to more bytes than any device has; the file is damaged",
        "各行大小之和超出任何设备的显存容量；文件已损坏",
    ),
    "trace.row.cut": Text("the file ends in the middle of this row", "文件在本行中途结束"),
    "trace.row.fields": Text(
        "{found} fields where the first line names {expected} columns", "本行有 {found} 个字段，而首行有 {expected} 列"
    ),
    "trace.row.commas": Text(
        "surplus commas, and it cannot be told which column they belong to", "逗号过多，且无法判断属于哪一列"
    ),
    "trace.row.quotes": Text("the quotation marks do not match", "引号不配对"),
    "trace.row.long": Text("longer than {limit} bytes", "长度超过 {limit} 字节"),
    "trace.row.number": Text(
        "'{value}' in column {column} is not a valid number", "{column} 列的“{value}”不是有效数字"
    ),
    "trace.row.lifetime": Text(
        "freed at tick {end}, which is not after its allocation at tick {start}",
        "释放时刻 {end} 不晚于分配时刻 {start}",
    ),
    "trace.row.users": Text(
        "'{value}' in column user_tasks is not a list of tasks", "user_tasks 列的“{value}”不是任务列表"
    ),
    "trace.tensors.json": Text("the tensor list is not valid JSON: {detail}", "张量清单不是有效的 JSON：{detail}"),
    "trace.tensors.large": Text(
        "the tensor list has {size} bytes; the limit is {limit}", "张量清单有 {size} 字节，超过上限 {limit}"
    ),
    "trace.tensors.version": Text(
        "the tensor list has version {found}; this ms-tune reads version {expected}",
        "张量清单的版本为 {found}；当前 ms-tune 只能读取版本 {expected}",
    ),
    "trace.tensors.shape": Text("the tensor list is malformed at {where}", "张量清单在 {where} 处格式有误"),
}
