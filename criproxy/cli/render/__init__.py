"""The output of commands: tables, trees, pictures, pages."""
