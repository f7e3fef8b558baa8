"""`criproxy install` and `criproxy uninstall`: a plan that is printed, steps that can be taken back, and a journal.

`kubelet` reads how a node's kubelet is configured, `plan` derives the steps, and `operate` takes them one after the
other. A process that is killed in the middle leaves the journal, by which the next one takes back what was begun.
"""
