"""How much a delivery may hold, and how long its steps may take. Bytes and seconds."""

BUNDLE_LIMIT = 512 * 1024 * 1024
OBJECT_LIMIT = 10_000  # new objects
PATCH_LIMIT = 64 * 1024 * 1024
HEADER_LIMIT = 64 * 1024  # of a bundle, before its pack
UNPACK_MEMORY = 3 * 1024 * 1024 * 1024  # address space of the process that reads a hostile pack
UNPACK_TIMEOUT = 300.0
FETCH_TIMEOUT = 1800.0
PUSH_TIMEOUT = 600.0
TITLE_LIMIT = 250  # characters
BODY_LIMIT = 60_000
