"""Texts about changes to a config's text: why one cannot be made."""

from ms_tune.texts import Text

TEXTS = {
    "edits.shared": Text(
        "the value comes from an anchor or a merged section that other places use too",
        "该值来自其他位置也在使用的锚点或合并小节",
    ),
    "edits.list-item": Text("it is an item of a list", "它是列表中的一项"),
    "edits.no-such-place": Text("the config has no such place of its own", "配置中没有可以直接修改的对应位置"),
    "edits.key-exists": Text("the new key is there already", "新的键已经存在"),
    "edits.not-a-line": Text("the key does not have its lines to itself", "该键没有独占所在的行"),
    "edits.last-key": Text("nothing would be left of the config", "删除后配置将不再有任何内容"),
    "edits.several-lines": Text("the value is spread over several lines", "该值跨越多行"),
    "edits.unproven": Text(
        "the result would not be the intended config: another value would change too, or the text could not be read",
        "修改结果与预期不符：会连带改变其他取值，或者无法解析",
    ),
    "edits.not-here": Text("a fix of this kind cannot be made in a file of this kind", "这种修复不适用于这类文件"),
    "edits.process": Text(
        "the variable belongs to this process and stands in no file that was read",
        "该变量来自当前进程，不在所读取的文件中",
    ),
    "edits.pieced": Text("the value is put together from quoted or escaped pieces", "该值由带引号或转义的片段拼接而成"),
    "edits.unclear": Text("what was meant is not clear", "无法确定原意"),
    "edits.no-name-for-mint": Text(
        "mint has no name here that surely means mindspore.mint, and no import that it can be added to",
        "此处没有确定指向 mindspore.mint 的名字，也没有可以补充导入 mint 的语句",
    ),
    "edits.write.failed": Text("cannot be written: {reason}", "无法写入：{reason}"),
    "edits.write.link": Text("is a symbolic link and was not changed", "是符号链接，未作修改"),
    "edits.write.hard-link": Text(
        "has several names (hard links) and was not changed", "有多个名称（硬链接），未作修改"
    ),
    "edits.write.not-a-file": Text("is not a plain file and was not changed", "不是普通文件，未作修改"),
    "edits.write.changed": Text("has changed since it was read, and was left alone", "读取之后文件已被修改，未作改动"),
    "edits.write.read-only": Text(
        "may not be written (its permissions say so) and was not changed", "没有写权限，未作修改"
    ),
    "edits.write.read-only.hint": Text(
        "if it is to be changed, allow it first: chmod u+w {file}", "如确需修改，请先放开权限：chmod u+w {file}"
    ),
    "edits.write.owner": Text(
        "belongs to {owner} (user:group), which this user cannot keep, and was not changed",
        "属于 {owner}（用户:组），当前用户写入后无法保留该属主，未作修改",
    ),
    "edits.write.attribute": Text(
        "has the extended attribute {name}, which cannot be kept, and was not changed",
        "带有扩展属性 {name}，写入后无法保留，未作修改",
    ),
    "edits.write.owner.hint": Text(
        "run this as the file's owner, or change a copy of it", "请以文件属主身份执行，或修改它的副本"
    ),
    "edits.write.link.hint": Text("name the file itself, or copy it", "请直接指定目标文件，或先复制一份"),
}
