"""Replicas of an A2A server on lanebus, and the tasks that tests save."""
