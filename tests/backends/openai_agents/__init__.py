"""Sessions and agents of OpenAI's Agents SDK, with the SDK's own tests as the referee."""
