"""Build the documentation's site with `python -m docs.site`, from the pages beside this folder.

`build.py` does the steps in order: gather the pages, write the pages that are made from code, build without a warning,
write `llms.txt`, and follow every link of the site. `navigation.py` lists the pages.
"""
