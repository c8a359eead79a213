"""A process of a measurement: serves tables, runs loops, or both. One line of JSON in, one out.

{"do": "serve", "store": ..., "size": ...}                      -> {"address": ...}
{"do": "fill", "address": ..., "store": ..., "size": ...}       -> {"seconds": ...}
{"do": "open", "address": ..., "loop": ..., "options": {...}, "local": whether}
                                                                -> {"loop": number} or {"missing": why}
{"do": "run", "loop": number, "seconds": ...}                   -> figures by name
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    """Answers until standard input ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import loops
    import stores
    import timing

    import reverb

    servers: list[Any] = []
    opened: list[Any] = []

    def answer(command: dict[str, Any]) -> dict[str, Any]:
        what = command["do"]
        if what == "serve":
            servers.append(stores.make_server(command["store"], command["size"]))
            return {"address": f"localhost:{servers[-1].port}"}
        if what == "fill":
            return {"seconds": stores.fill(reverb.Client(command["address"]), command["store"], command["size"])}
        if what == "open":
            kind = loops.LOOPS[command["loop"]]
            # For all clients of the loop, also those that a dataset creates. dm-reverb does not know it.
            os.environ["REVERB_LOCAL"] = "1" if command["local"] else "0"
            try:
                opened.append(kind(reverb.Client(command["address"]), command["options"]))
            except timing.NotAvailableError as reason:
                return {"missing": str(reason)}
            return {"loop": len(opened) - 1}
        if what == "close":
            opened[command["loop"]] = None
            return {}
        if what == "run":
            return opened[command["loop"]].run(command["seconds"])
        raise ValueError(f"unknown command {what}")

    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        except Exception:  # noqa: BLE001  # told to the parent, which ends the row
            result = {"error": traceback.format_exc()}
        print(json.dumps(result), file=answers)
    # Without the ends of servers, iterators and threads: nothing here has to be kept.
    os._exit(0)


if __name__ == "__main__":
    main()
