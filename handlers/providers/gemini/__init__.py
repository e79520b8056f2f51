"""Write requests to Google's Gemini API, in `form.py`, and read its answers, in `answer.py`."""

from lanebus.handlers.providers.gemini.answer import GeminiAnswer, from_gemini
from lanebus.handlers.providers.gemini.form import to_gemini

__all__ = ("GeminiAnswer", "from_gemini", "to_gemini")
