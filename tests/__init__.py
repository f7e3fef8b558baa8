"""Tests of criproxy; the folders mirror the package."""
