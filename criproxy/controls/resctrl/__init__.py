"""The control groups of resctrl: shares of caches and memory bandwidth, and the threads that have them."""
