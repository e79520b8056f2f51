"""The bus of the tests in a browser, in place of that of the other tests of `serve`."""

from tests.support.page.browsing import bus

__all__ = ("bus",)
