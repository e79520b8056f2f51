"""LangGraph on lanebus."""
