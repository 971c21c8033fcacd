"""Texts about config files that cannot be read."""

from ms_tune.texts import Text

TEXTS = {
    "config.not-found": Text("no such file", "文件不存在"),
    "config.folder": Text("is a folder, not a file", "这是目录，不是文件"),
    "config.unreadable": Text("cannot be read: {reason}", "无法读取：{reason}"),
    "config.too-big": Text(
        "is larger than {limit} MiB; a training config is not", "文件超过 {limit} MiB，不像训练配置"
    ),
    "config.binary": Text("is a binary file, not a text", "这是二进制文件，不是文本文件"),
    "config.utf16": Text("is UTF-16, not UTF-8", "是 UTF-16 编码，不是 UTF-8 编码"),
    "config.not-utf8": Text("is not UTF-8 from here on", "从此处起不是 UTF-8 编码"),
    "config.not-utf8.hint": Text(
        "save the file as UTF-8; MindFormers reads its configs as UTF-8 only",
        "请将文件保存为 UTF-8 编码；MindFormers 只按 UTF-8 读取配置",
    ),
    "config.unprintable": Text("YAML does not allow the character {code}", "YAML 不允许出现字符 {code}"),
    "config.empty": Text("is empty", "文件内容为空"),
    "config.not-mapping": Text(
        "the top level must be 'key: value' lines", "顶层必须是“键: 值”形式（mapping），不能是列表或单个值"
    ),
    "config.documents": Text("a second YAML document starts here", "此处开始了第二个 YAML 文档"),
    "config.documents.hint": Text(
        "the framework reads one document a file; remove the '---' line or split the file",
        "框架每个文件只读取一个文档；请删除“---”行或拆分文件",
    ),
    "config.too-deep": Text("is nested more than {limit} levels deep", "嵌套超过 {limit} 层"),
    "config.too-many": Text(
        "has more than {limit} values once its aliases are written out", "展开别名后超过 {limit} 个值"
    ),
    "config.recursive": Text(
        "this alias stands inside the value that it names", "该别名位于它所引用的值内部，形成循环引用"
    ),
    "config.undefined-alias": Text("{name} has no anchor before it", "{name} 之前没有定义对应的锚点"),
    "config.duplicate-anchor": Text("the anchor {name} is defined twice", "锚点 {name} 重复定义"),
    "config.unknown-tag": Text(
        "the tag of {name} is not allowed: a config holds plain values only",
        "不允许使用 {name} 处的标签：配置中只能写普通值",
    ),
    "config.unexpected-colon": Text(
        "a ': ' cannot stand here; check the indentation, or put the text in quotes",
        "此处不能出现“: ”；请检查缩进，或给文本加引号",
    ),
    "config.missing-colon": Text(
        "a 'key: value' line without its colon; check this line and the one before",
        "“键: 值”缺少冒号；请检查本行和上一行",
    ),
    "config.tab": Text("a tab cannot be used here", "此处不能使用制表符（Tab）"),
    "config.tab.hint": Text("indent with spaces; YAML does not take tabs", "请用空格缩进；YAML 不接受制表符"),
    "config.bad-value": Text("'{value}' is not a valid value of its type", "'{value}' 不是该类型的合法取值"),
    "config.syntax": Text("is not valid YAML: {problem}", "不是合法的 YAML：{problem}"),
    "config.base.no-name": Text(
        "base_config must name a file, not {value}", "base_config 必须是文件名，而不是 {value}"
    ),
    "config.base.missing": Text("base_config names {file}, which is not a file", "base_config 引用的 {file} 不是文件"),
    "config.base.circle": Text(
        "base_config names {file}, which builds on this very file", "base_config 引用的 {file} 又引用了本文件，形成循环"
    ),
    "config.base.too-many": Text(
        "base_config leads through more than {depth} files in a row, or {files} in all",
        "base_config 的引用超过 {depth} 层，或总数超过 {files} 个文件",
    ),
    "config.base.outside": Text(
        "base_config names {file}, which is outside of this config's folder and of the working directory",
        "base_config 引用的 {file} 不在该配置所在目录和当前工作目录之内",
    ),
    "config.base.outside.hint": Text(
        "run ms-tune from a folder that holds both files, and it will be followed",
        "请在同时包含这两个文件的目录下运行 ms-tune",
    ),
    "config.base.no-section": Text(
        "{keys} are set in a section that is none in the base_config: MindFormers cannot merge the two",
        "{keys} 所在的段在 base_config 中不是一个段：MindFormers 无法合并",
    ),
    "config.model-json": Text("not a model's config.json: {reason}", "不是模型的 config.json：{reason}"),
}
