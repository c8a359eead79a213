"""Compares Kubernetes objects with the models of the PyPI package `kubernetes`, which are generated from its API."""

import re

import kubernetes.client as models

KINDS = {
    ("apps/v1", "StatefulSet"): "V1StatefulSet",
    ("policy/v1", "PodDisruptionBudget"): "V1PodDisruptionBudget",
    ("v1", "ConfigMap"): "V1ConfigMap",
    ("v1", "Service"): "V1Service",
}
PRIMITIVES = {"str": str, "int": int, "float": (int, float), "bool": bool}
QUANTITY = re.compile(r"^\d+(\.\d+)?([EPTGMK]i?|k|m)?$")


def problems(thing: object, kind: str, where: str) -> list[str]:
    """Returns the differences between a value and a type as the models spell it: V1Pod, List[str], Dict[str, str]."""
    if inner := re.fullmatch(r"List\[(.*)\]", kind):
        if not isinstance(thing, list):
            return [f"{where}: expected a list, got {thing!r}"]
        return [found for i, element in enumerate(thing) for found in problems(element, inner[1], f"{where}[{i}]")]
    if inner := re.fullmatch(r"Dict\[str, (.*)\]", kind):
        if not isinstance(thing, dict):
            return [f"{where}: expected a map, got {thing!r}"]
        found = [f"{where}: the key {key!r} is not a string" for key in thing if not isinstance(key, str)]
        for key, element in thing.items():
            found += problems(element, inner[1], f"{where}.{key}")
            if where.endswith(("limits", "requests")) and not QUANTITY.match(str(element)):
                found.append(f"{where}.{key}: {element!r} is no quantity")
        return found
    if kind in PRIMITIVES:
        is_right = isinstance(thing, PRIMITIVES[kind]) and (kind == "bool" or not isinstance(thing, bool))
        return [] if is_right else [f"{where}: expected {kind}, got {thing!r}"]
    if kind == "object":  # such as a number or a name
        return []
    model = getattr(models, kind)
    if not isinstance(thing, dict):
        return [f"{where}: expected {kind}, got {thing!r}"]
    names = {written: name for name, written in model.attribute_map.items()}
    found = [f"{where}: {kind} has no field {key!r}" for key in thing if key not in names]
    for key, element in thing.items():
        if key in names and element is not None:
            found += problems(element, model.openapi_types[names[key]], f"{where}.{key}")
    for written, name in names.items():
        # Fields whose names are keywords have another prefix in the model: _exec is var_exec. None of them is required.
        field = model.model_fields.get(name)
        if field is not None and field.is_required() and thing.get(written) is None:
            found.append(f"{where}: {kind} needs a field {written!r}")
    return found


def check(thing: dict) -> None:
    """Asserts that an object is one of Kubernetes, with known fields of the right types."""
    kind = (thing["apiVersion"], thing["kind"])
    assert kind in KINDS, f"no model of {kind}"
    found = problems(thing, KINDS[kind], thing["kind"])
    assert not found, "\n".join(found)
