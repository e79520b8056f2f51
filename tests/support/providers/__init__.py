"""Checks of request bodies against the SDKs' types and the rules of each provider's API."""
