"""Random lives of a node with cards: kubelet, device plugin, runtime and criproxy, cards, files and pods."""
