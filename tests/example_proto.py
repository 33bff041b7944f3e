"""``tf.train.Example`` by Google's own protobuf, without TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_REPEATED, _OPTIONAL = _FIELD.LABEL_REPEATED, _FIELD.LABEL_OPTIONAL


@functools.cache
def example_class() -> Any:
    """The class of messages, made from what ``example.proto`` and ``feature.proto`` declare."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example_for_tests.proto", package="larder_tests", syntax="proto3"
    )
    for name, kind in (
        ("BytesList", _FIELD.TYPE_BYTES),
        ("FloatList", _FIELD.TYPE_FLOAT),
        ("Int64List", _FIELD.TYPE_INT64),
    ):
        message = file.message_type.add(name=name)
        field = message.field.add(name="value", number=1, type=kind, label=_REPEATED)
        if kind != _FIELD.TYPE_BYTES:
            field.options.packed = True
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("BytesList", "FloatList", "Int64List"), 1):
        own = name.lower().replace("list", "_list")
        _add_message(feature, own, name, number=number, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_OPTIONAL)
    _add_message(entry, "value", "Feature", number=2)
    _add_message(features, "feature", "Features.FeatureEntry", label=_REPEATED)
    _add_message(file.message_type.add(name="Example"), "features", "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("larder_tests.Example"))


def _add_message(message: Any, name: str, of: str, **more: Any) -> None:
    """Add a field that is a message."""
    given = {"number": 1, "label": _OPTIONAL, **more}
    message.field.add(name=name, type=_FIELD.TYPE_MESSAGE, type_name=f".larder_tests.{of}", **given)


def serialized(features: dict[str, tuple[str, list[Any]]]) -> bytes:
    """The deterministic serialization of an example: by name, the kind and the values."""
    message = example_class()()
    message.features.SetInParent()
    for name, (kind, values) in features.items():
        feature = message.features.feature[name]
        chosen = {"bytes": "bytes_list", "float": "float_list", "int64": "int64_list"}[kind]
        getattr(feature, chosen).SetInParent()
        getattr(feature, chosen).value.extend(values)
    return bytes(message.SerializeToString(deterministic=True))


def parsed(data: bytes) -> dict[str, tuple[str, list[Any]]]:
    """The features of an example."""
    message = example_class()()
    message.ParseFromString(data)
    found = {}
    for name, feature in message.features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = kind.removesuffix("_list"), list(getattr(feature, kind).value)
    return found
