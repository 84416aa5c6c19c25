"""The sections of a report, a file each: ``section(facts, maker) -> Section | None``."""
