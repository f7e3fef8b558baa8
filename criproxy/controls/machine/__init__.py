"""The files of the machine: interrupts, frequencies and idle states, by difference, with what was there before."""
