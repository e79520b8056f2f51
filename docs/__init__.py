"""The documentation: its pages, and in `site/` what builds them."""
