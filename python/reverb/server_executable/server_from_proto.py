"""Makes tables from the messages that describe them."""

from reverb._compat.server_from_proto import rate_limiter_from_proto, selector_from_proto, tables_from_proto

__all__ = ["rate_limiter_from_proto", "selector_from_proto", "tables_from_proto"]
