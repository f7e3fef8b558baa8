"""What commands print: tables, trees, pictures, pages."""
