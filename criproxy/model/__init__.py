"""The values that everything speaks in: immutable, pure, without a clock or a disk."""
