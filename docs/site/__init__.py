"""The documentation's site: `python -m docs.site` builds it from the pages beside this folder.

`build.py` does the steps in order: gather the pages, write those that are made from code, build without a warning,
write `llms.txt`, and follow every link of the result. `navigation.py` lists the pages.
"""
