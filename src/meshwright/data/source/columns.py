"""Columns of parquet: by dotted paths through structures, of which types, with which values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.names import nearest, question
from meshwright.data.needs import need

if TYPE_CHECKING:
    from meshwright.data.source.jsonl import Fields

_SHOWN_COLUMNS = 12
_TEXTS = ("is_string", "is_large_string", "is_binary", "is_large_binary")
_NAMES = (*_TEXTS, "is_integer", "is_floating")


def check_columns(schema: Any, fields: Fields, path: str) -> None:
    """Raises InvalidInput unless the text is a column of strings and the name a simple one."""
    wanted = (("text_field", fields.text, "text", _TEXTS), ("id_field", fields.id, "names", _NAMES))
    for setting, name, what, kinds in wanted[: 2 if fields.id else 1]:
        found = _type_at(schema, name)
        if found is None:
            raise _refusal(schema, (setting, name, path), f"has no column {name} for the {what}")
        if not _is_any(found, kinds):
            raise _refusal(schema, (setting, name, path), f"column {name} is {found}, not {what}")


def is_dictionary(schema: Any, name: str) -> bool:
    """Whether the library keeps a column's values in a dictionary for the rows it gives."""
    found = _type_at(schema, name)
    return found is not None and bool(need("pyarrow", "reading parquet").types.is_dictionary(found))


def values_of(batch: Any, name: str) -> list[Any]:
    """The values of a column, null where what holds it is; those of strings are bytes."""
    compute = need("pyarrow.compute", "reading parquet")
    names = batch.schema.names
    if name in names:
        return list(_bytes_of(batch.column(names.index(name))).to_pylist())
    head, _, rest = name.partition(".")
    column = compute.struct_field(batch.column(names.index(head)), rest.split("."))
    return list(_bytes_of(column).to_pylist())


def _is_any(found: Any, kinds: tuple[str, ...]) -> bool:
    types = need("pyarrow", "reading parquet").types
    value = found.value_type if types.is_dictionary(found) else found
    return any(getattr(types, kind)(value) for kind in kinds)


def _type_at(holder: Any, name: str) -> Any:
    """The type of a column by its dotted path, None where there is none."""
    pyarrow = need("pyarrow", "reading parquet")
    if not (isinstance(holder, pyarrow.Schema) or pyarrow.types.is_struct(holder)):
        return None
    names = [field.name for field in holder]
    if names.count(name) == 1:
        return holder.field(names.index(name)).type
    head, dot, rest = name.partition(".")
    if not dot or names.count(head) != 1:
        return None
    return _type_at(holder.field(names.index(head)).type, rest)


def _refusal(schema: Any, wanted: tuple[str, str, str], message: str) -> InvalidInput:
    """What to raise for a setting, the name it gives and a file that has no such column."""
    setting, name, path = wanted
    there = [f"{field.name} ({field.type})" for field in schema]
    listed = ", ".join(there[:_SHOWN_COLUMNS]) or "none"
    more = ", ..." if len(there) > _SHOWN_COLUMNS else ""
    near = [] if "is" in message.split() else nearest(name, [field.name for field in schema])
    finding = Finding(
        message=f"{message}; its columns are {listed}{more}",
        file=path,
        key=setting,
        value=name,
        hint=question(near) if near else f"set {setting} to one of the columns",
    )
    return InvalidInput([finding])


def _bytes_of(column: Any) -> Any:
    """A column whose strings are bytes, each row with its own."""
    pyarrow = need("pyarrow", "reading parquet")
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_string(column.type):
        return column.cast(pyarrow.binary())
    if pyarrow.types.is_large_string(column.type):
        return column.cast(pyarrow.large_binary())
    return column
