"""What others see of criproxy at a node: taint, condition, labels and annotation of the Node, and Events.

One label is read: the one that chooses a configuration of the device plugin.

`wanted` and `event_texts` are pure: they say what follows from a view of the daemon. The others write it.
"""
