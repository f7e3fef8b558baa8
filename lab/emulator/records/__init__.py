"""What the emulated runtime keeps."""
