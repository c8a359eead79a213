"""Classes with the API and the wire format of protobuf messages, without the protobuf package.

Programs read table infos and build structured-writer configs through the attributes of messages:
`info.sampler_options.WhichOneof('distribution')`, `config.conditions.append(...)`. The classes derived from
Message provide what such code uses: attributes with defaults, nested messages that are created when they
are written to, oneofs, repeated and map fields, WhichOneof, HasField, ClearField, CopyFrom, MergeFrom,
SerializeToString, FromString, comparison by value. The bytes are those of the protobuf package for the
same .proto file; unknown fields are skipped when reading.

The codec is the only one in Python, and is written in Python on purpose: it works on any table of fields, for which the
native code has no use. Signatures and nests inside of messages are encoded by the native code, see
reverb._compat.structured_value.

    class Heap(Message):
        FIELDS = (Field(1, "min_heap", "bool"),)

Reading is safe for untrusted bytes: it raises only DecodeError, a ValueError, and the depth is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
import dataclasses
import math
import operator
import struct
from typing import Any, ClassVar, TypeVar

from reverb.errors import DecodeError

_MAX_DEPTH = 100  # as protobuf

_M = TypeVar("_M", bound="Message")


# --- Wire format ---------------------------------------------------------------------------------------

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def put_varint(out: bytearray, value: int) -> None:
    """Appends a number; negative ones as 64-bit two's complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def get_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns an unsigned number of up to 64 bits, and the position after it."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise DecodeError(f"malformed number near byte {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7


def fields_of(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yields (number, wire type, value) of each field; the value is an int or bytes."""
    position = 0
    while position < len(data):
        tag, position = get_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise DecodeError(f"field number 0 near byte {position}")
        if wire_type == VARINT:
            value: Any
            value, position = get_varint(data, position)
            yield number, wire_type, value
            continue
        if wire_type == BYTES:
            length, position = get_varint(data, position)
        elif wire_type == FIXED64:
            length = 8
        elif wire_type == FIXED32:
            length = 4
        else:
            raise DecodeError(f"wire type {wire_type} near byte {position} is not supported")
        if length > len(data) - position:
            raise DecodeError(f"field {number} near byte {position} is cut short")
        yield number, wire_type, data[position : position + length]
        position += length


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


# --- Kinds of scalars ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Scalar:
    default: Any
    wire_type: int
    check: Callable[[Any], Any]  # converts what is assigned; TypeError or ValueError
    encode: Callable[[bytearray, Any], None]
    decode: Callable[[Any], Any]


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, float):
            raise TypeError(f"{value!r} is a float, an integer is needed")
        number = operator.index(value)
        if not low <= number < high:
            raise ValueError(f"Value out of range: {number}")
        return number

    return check


def _check_bool(value: Any) -> bool:
    if isinstance(value, (bool, int)) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise TypeError(f"{value!r} is not a bool")


def _check_float(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _check_string(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is of type {type(value).__name__}, a str is needed")
    return value


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{value!r} is of type {type(value).__name__}, bytes are needed")
    return bytes(value)


def _put_bytes(out: bytearray, value: bytes) -> None:
    put_varint(out, len(value))
    out += value


def _decode_string(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"a string is not UTF-8: {error}") from None


def _fixed(code: str) -> tuple[Callable[[bytearray, Any], None], Callable[[bytes], Any]]:
    packer = struct.Struct("<" + code)
    return lambda out, value: out.extend(packer.pack(value)), lambda data: packer.unpack(data)[0]


_put_double, _get_double = _fixed("d")
_put_float, _get_float = _fixed("f")

_SCALARS: Mapping[str, _Scalar] = {
    "bool": _Scalar(False, VARINT, _check_bool, put_varint, bool),
    "int32": _Scalar(0, VARINT, _integer(-(1 << 31), 1 << 31), put_varint, lambda v: _signed(v, 32)),
    "int64": _Scalar(0, VARINT, _integer(-(1 << 63), 1 << 63), put_varint, lambda v: _signed(v, 64)),
    "uint32": _Scalar(0, VARINT, _integer(0, 1 << 32), put_varint, lambda v: v & 0xFFFF_FFFF),
    "uint64": _Scalar(0, VARINT, _integer(0, 1 << 64), put_varint, int),
    "sint64": _Scalar(
        0,
        VARINT,
        _integer(-(1 << 63), 1 << 63),
        lambda out, value: put_varint(out, _zigzag(value)),
        _unzigzag,
    ),
    "enum": _Scalar(0, VARINT, _integer(-(1 << 31), 1 << 31), put_varint, lambda v: _signed(v, 32)),
    "double": _Scalar(0.0, FIXED64, _check_float, _put_double, _get_double),
    "float": _Scalar(0.0, FIXED32, _check_float, _put_float, _get_float),
    "string": _Scalar("", BYTES, _check_string, lambda out, value: _put_bytes(out, value.encode()), _decode_string),
    "bytes": _Scalar(b"", BYTES, _check_bytes, _put_bytes, bytes),
}


# --- Messages ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a message: its number and name, and the kind of its value.

    `kind` is the name of a scalar kind of protobuf, or the class of a message, or that class's name where it
    is the message itself or comes later in the file. `map` makes it a map from str to `kind`.
    """

    number: int
    name: str
    kind: str | type[Message]
    repeated: bool = False
    map: bool = False
    oneof: str | None = None


_BY_NAME: dict[str, type[Message]] = {}


class Message:
    """Base of all messages. FIELDS declares the fields, which are the only attributes."""

    __slots__ = ("_drafts", "_owner", "_values")
    __hash__ = None  # type: ignore[assignment]  # mutable

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    PROTO_NAME: ClassVar[str] = ""  # in the .proto file; that of the class unless it is given
    _by_name: ClassVar[Mapping[str, Field]] = {}
    _by_number: ClassVar[Mapping[int, Field]] = {}

    _values: dict[str, Any]  # fields that are set
    _drafts: dict[str, Any]  # fields that were read but are not set: move to _values when they are written to
    _owner: tuple[Message, str] | None  # while this is a draft of another message's field

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._by_name = {field.name: field for field in cls.FIELDS}
        cls._by_number = {field.number: field for field in cls.FIELDS}
        if "PROTO_NAME" not in cls.__dict__:
            cls.PROTO_NAME = cls.__name__
        _BY_NAME[cls.PROTO_NAME] = cls

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_drafts", {})
        object.__setattr__(self, "_owner", None)
        for name, value in fields.items():
            if value is not None:
                self._initialize(self._field(name), value)

    def _initialize(self, field: Field, value: Any) -> None:
        current = getattr(self, field.name) if field.repeated or field.map or _is_message(field) else None
        if isinstance(current, _Repeated):
            current.extend(value)
        elif isinstance(current, _Map):
            current.update(value)
        elif isinstance(current, Message):
            current.CopyFrom(value)
        else:
            setattr(self, field.name, value)

    @classmethod
    def _field(cls, name: str) -> Field:
        try:
            return cls._by_name[name]
        except KeyError:
            raise ValueError(f"{cls.__name__} has no field {name!r}") from None

    # --- attributes ---

    def __getattr__(self, name: str) -> Any:
        field = self._by_name.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        if name in self._values:
            return self._values[name]
        if name in self._drafts:
            return self._drafts[name]
        draft: Any
        if field.map:
            draft = _Map(self, field)
        elif field.repeated:
            draft = _Repeated(self, field)
        elif _is_message(field):
            draft = _class_of(field)()
            object.__setattr__(draft, "_owner", (self, name))
        else:
            return _SCALARS[field.kind].default  # type: ignore[index]
        self._drafts[name] = draft
        return draft

    def __setattr__(self, name: str, value: Any) -> None:
        field = self._by_name.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        if field.repeated or field.map or _is_message(field):
            raise AttributeError(
                f"{type(self).__name__}.{name} cannot be assigned to; change it in place or use CopyFrom()"
            )
        try:
            checked = _SCALARS[field.kind].check(value)  # type: ignore[index]
        except (TypeError, ValueError) as error:
            raise type(error)(f"{type(self).__name__}.{name}: {error}") from None
        self._set(field, checked)

    def _set(self, field: Field, value: Any) -> None:
        if field.oneof is not None:
            for other in self.FIELDS:
                if other.oneof == field.oneof and other.name != field.name:
                    self._values.pop(other.name, None)
        self._values[field.name] = value
        self.SetInParent()

    def _adopt(self, name: str) -> None:
        """Makes a draft that was written to a part of the message."""
        draft = self._drafts.pop(name, None)
        if draft is not None:
            self._set(self._by_name[name], draft)

    def SetInParent(self) -> None:  # noqa: N802 (the name that protobuf gives it)
        """Makes this message present in the one that it is a field of."""
        if self._owner is not None:
            owner, name = self._owner
            object.__setattr__(self, "_owner", None)
            owner._adopt(name)

    def _is_set(self, field: Field) -> bool:
        """Returns whether the field is serialized."""
        if field.name not in self._values:
            return False
        value = self._values[field.name]
        if field.repeated or field.map:
            return len(value) > 0
        if field.oneof is not None or _is_message(field):
            return True
        # -0.0 differs from the default, as in protobuf.
        if isinstance(value, float):
            return value != 0.0 or math.copysign(1.0, value) < 0
        return bool(value)

    # --- protobuf's methods ---

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Returns whether a message field, a member of a oneof or a whole oneof is set."""
        if any(field.oneof == name for field in self.FIELDS):
            return self.WhichOneof(name) is not None
        field = self._field(name)
        if field.repeated or field.map or (field.oneof is None and not _is_message(field)):
            raise ValueError(f"{type(self).__name__}.{name} has no presence: compare it with its default")
        return self._is_set(field)

    def WhichOneof(self, oneof: str) -> str | None:  # noqa: N802
        """Returns the name of the member that is set, or None."""
        members = [field for field in self.FIELDS if field.oneof == oneof]
        if not members:
            raise ValueError(f"{type(self).__name__} has no oneof {oneof!r}")
        return next((field.name for field in members if self._is_set(field)), None)

    def ClearField(self, name: str) -> None:  # noqa: N802
        """Resets a field to its default. The name of a oneof clears the member that is set."""
        names = [field.name for field in self.FIELDS if field.oneof == name]
        for each in names or [self._field(name).name]:
            self._values.pop(each, None)
            self._drafts.pop(each, None)

    def Clear(self) -> None:  # noqa: N802
        """Resets all fields to their defaults."""
        self._values.clear()
        self._drafts.clear()
        self.SetInParent()

    def ListFields(self) -> list[tuple[Field, Any]]:  # noqa: N802
        """Returns the fields that are set, by number."""
        fields = sorted(self.FIELDS, key=lambda field: field.number)
        return [(field, self._values[field.name]) for field in fields if self._is_set(field)]

    def CopyFrom(self, other: Any) -> None:  # noqa: N802
        """Copies `other`, a message of the same kind, of this module or of protobuf."""
        if other is not self:
            data = self._serialized(other)
            self.Clear()
            self.MergeFromString(data)

    def MergeFrom(self, other: Any) -> None:  # noqa: N802
        """Copies the fields that are set in `other`; appends to repeated fields."""
        self.MergeFromString(self._serialized(other))

    def _serialized(self, other: Any) -> bytes:
        if isinstance(other, type(self)):
            return other.SerializeToString()
        if self._is_generated(other):
            return bytes(other.SerializeToString())
        raise TypeError(f"a {type(self).__name__} is needed, not {type(other).__name__}")

    def _is_generated(self, other: object) -> bool:
        """Returns whether `other` is a message of the protobuf package with the same name."""
        return (
            not isinstance(other, Message)
            and hasattr(other, "SerializeToString")
            and type(other).__name__ == self.PROTO_NAME
        )

    def SerializeToString(self, *, deterministic: bool = True) -> bytes:  # noqa: N802
        """Returns the bytes of the message; equal messages give equal bytes."""
        del deterministic
        out = bytearray()
        for field, value in self.ListFields():
            _encode_field(out, field, value)
        return bytes(out)

    def ByteSize(self) -> int:  # noqa: N802
        """Returns the size of SerializeToString()."""
        return len(self.SerializeToString())

    def ParseFromString(self, data: bytes) -> int:  # noqa: N802
        """Decodes the bytes. DecodeError if they are not such a message."""
        self.Clear()
        return self.MergeFromString(data)

    def MergeFromString(self, data: bytes) -> int:  # noqa: N802
        """As MergeFrom(), from bytes."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"bytes are needed, not {type(data).__name__}")
        self._merge(bytes(data), 1)
        self.SetInParent()
        return len(data)

    @classmethod
    def FromString(cls: type[_M], data: bytes) -> _M:  # noqa: N802
        """Returns the message that the bytes encode."""
        message = cls()
        message.ParseFromString(data)
        return message

    def _merge(self, data: bytes, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise DecodeError(f"nested more than {_MAX_DEPTH} levels deep")
        for number, wire_type, value in fields_of(data):
            field = self._by_number.get(number)
            if field is not None:
                _decode_field(self, field, wire_type, value, depth)

    # --- Python ---

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            if not self._is_generated(other):
                return NotImplemented
            other = type(self).FromString(other.SerializeToString())  # type: ignore[attr-defined]
        return [(f.name, _plain(v)) for f, v in self.ListFields()] == [
            (f.name, _plain(v)) for f, v in other.ListFields()
        ]

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}={value!r}" for field, value in self.ListFields())
        return f"{type(self).__name__}({fields})"

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self._by_name]

    def __copy__(self: _M) -> _M:
        return type(self).FromString(self.SerializeToString())

    def __deepcopy__(self: _M, memo: Any) -> _M:
        return type(self).FromString(self.SerializeToString())

    def __reduce__(self) -> Any:
        return _from_bytes, (type(self), self.SerializeToString())


def _from_bytes(cls: type[_M], data: bytes) -> _M:
    return cls.FromString(data)


def _plain(value: Any) -> Any:
    if isinstance(value, _Repeated):
        return list(value)
    if isinstance(value, _Map):
        return dict(value.items())
    return value


def _is_message(field: Field) -> bool:
    return not (isinstance(field.kind, str) and field.kind in _SCALARS)


def _class_of(field: Field) -> type[Message]:
    return _BY_NAME[field.kind] if isinstance(field.kind, str) else field.kind


def _copied(field: Field, value: Any) -> Any:
    """Returns an element for a container: a copy of a message, or a checked scalar."""
    if not _is_message(field):
        return _SCALARS[field.kind].check(value)  # type: ignore[index]
    message = _class_of(field)()
    message.CopyFrom(value)
    return message


class _Repeated(MutableSequence[Any]):
    """A repeated field. Messages are copied when they are added."""

    __slots__ = ("_elements", "_field", "_parent")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, parent: Message, field: Field) -> None:
        self._parent = parent
        self._field = field
        self._elements: list[Any] = []

    def add(self, **fields: Any) -> Any:
        """Appends a new message, and returns it."""
        if not _is_message(self._field):
            raise AttributeError(f"{self._field.name} holds no messages")
        message = _class_of(self._field)(**fields)
        self._elements.append(message)
        self._parent._adopt(self._field.name)
        return message

    def insert(self, index: int, value: Any) -> None:
        self._elements.insert(index, _copied(self._field, value))
        self._parent._adopt(self._field.name)

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, index: Any) -> Any:
        return self._elements[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if _is_message(self._field):
            raise TypeError("messages of a repeated field are changed in place, not assigned")
        if isinstance(index, slice):
            self._elements[index] = [_copied(self._field, each) for each in value]
        else:
            self._elements[index] = _copied(self._field, value)

    def __delitem__(self, index: Any) -> None:
        del self._elements[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple, _Repeated)):
            return list(self) == list(other)
        return NotImplemented

    def __repr__(self) -> str:
        return repr(self._elements)


class _Map(dict[str, Any]):
    """A map field; reading a missing message creates it, as in protobuf."""

    __slots__ = ("_field", "_parent")

    def __init__(self, parent: Message, field: Field) -> None:
        super().__init__()
        self._parent = parent
        self._field = field

    def __missing__(self, key: str) -> Any:
        if not _is_message(self._field):
            raise KeyError(key)
        value = _class_of(self._field)()
        super().__setitem__(_check_string(key), value)
        self._parent._adopt(self._field.name)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(_check_string(key), _copied(self._field, value))
        self._parent._adopt(self._field.name)

    def update(self, other: Any = (), /, **more: Any) -> None:
        for key, value in dict(other, **more).items():
            self[key] = value


def _put_tag(out: bytearray, number: int, wire_type: int) -> None:
    put_varint(out, number << 3 | wire_type)


def _encode_field(out: bytearray, field: Field, value: Any) -> None:
    if field.map:
        single = dataclasses.replace(field, number=2, map=False)
        for key in sorted(value):
            entry = bytearray()
            _put_tag(entry, 1, BYTES)
            _put_bytes(entry, key.encode())
            _encode_field(entry, single, value[key])
            _put_tag(out, field.number, BYTES)
            _put_bytes(out, bytes(entry))
    elif _is_message(field):
        for message in value if field.repeated else (value,):
            _put_tag(out, field.number, BYTES)
            _put_bytes(out, message.SerializeToString())
    else:
        scalar = _SCALARS[field.kind]  # type: ignore[index]
        if field.repeated and scalar.wire_type != BYTES:
            packed = bytearray()
            for each in value:
                scalar.encode(packed, each)
            _put_tag(out, field.number, BYTES)
            _put_bytes(out, bytes(packed))
            return
        for each in value if field.repeated else (value,):
            _put_tag(out, field.number, scalar.wire_type)
            scalar.encode(out, each)


def _decode_field(message: Message, field: Field, wire_type: int, value: Any, depth: int) -> None:
    if field.map:
        if wire_type != BYTES:
            return
        _decode_entry(message, field, value, depth)
    elif _is_message(field):
        if wire_type != BYTES:
            return
        target = getattr(message, field.name)
        if field.repeated:
            target = target.add()
        else:
            target.SetInParent()
        target._merge(value, depth + 1)
    else:
        scalar = _SCALARS[field.kind]  # type: ignore[index]
        if field.repeated:
            if wire_type == BYTES and scalar.wire_type != BYTES:
                getattr(message, field.name).extend(_unpacked(scalar, value))
            elif wire_type == scalar.wire_type:
                getattr(message, field.name).append(scalar.decode(value))
        elif wire_type == scalar.wire_type:
            message._set(field, scalar.decode(value))


def _decode_entry(message: Message, field: Field, data: bytes, depth: int) -> None:
    key = ""
    single = dataclasses.replace(field, map=False)
    value: Any = _class_of(field)() if _is_message(field) else _SCALARS[field.kind].default  # type: ignore[index]
    for number, wire_type, each in fields_of(data):
        if number == 1 and wire_type == BYTES:
            key = _decode_string(each)
        elif number == 2 and _is_message(single) and wire_type == BYTES:
            # The entry is a message too.
            value._merge(each, depth + 2)
        elif number == 2 and not _is_message(single):
            scalar = _SCALARS[field.kind]  # type: ignore[index]
            if wire_type == scalar.wire_type:
                value = scalar.decode(each)
    entries: _Map = getattr(message, field.name)
    dict.__setitem__(entries, key, value)
    message._adopt(field.name)


def _unpacked(scalar: _Scalar, data: bytes) -> Iterator[Any]:
    if scalar.wire_type == VARINT:
        position = 0
        while position < len(data):
            value, position = get_varint(data, position)
            yield scalar.decode(value)
        return
    width = 8 if scalar.wire_type == FIXED64 else 4
    if len(data) % width != 0:
        raise DecodeError(f"a packed field has {len(data)} bytes, which is not a multiple of {width}")
    for position in range(0, len(data), width):
        yield scalar.decode(data[position : position + width])
