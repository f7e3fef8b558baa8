"""The tables that commands print, one file per command."""
