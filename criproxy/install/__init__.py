"""Installing criproxy on a node and removing it, as docs/install.md describes it for people.

`look` reads what the node has (`facts`), `plan` derives the steps, and `runner` takes them one after the other. A
`journal` has each step before it is taken, so that a step that fails and a process that is killed leave the node as it
was.
"""
