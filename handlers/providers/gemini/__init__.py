"""Write requests to Google's Gemini API and read its answers."""

from lanebus.handlers.providers.gemini.answer import GeminiAnswer, from_gemini
from lanebus.handlers.providers.gemini.form import to_gemini

__all__ = ("GeminiAnswer", "from_gemini", "to_gemini")
