"""Values from and for people: amounts, bounded texts, annotations, notices, reasons."""
