"""Fuzzing of the data plane: arbitrary bytes become conversations, frames and messages. `make fuzz` runs it."""
