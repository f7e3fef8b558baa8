"""The values that all packages use: immutable, pure, without a clock or a disk."""
