"""CRI messages: what a request asks for, and what is written into it."""
