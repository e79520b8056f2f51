// The APIs in whose form a context can be shown.
export const PROVIDERS = [
  ["", "as the session’s model gets it"],
  ["anthropic", "Anthropic"],
  ["openai-responses", "OpenAI Responses"],
  ["openai-chat", "OpenAI Chat"],
  ["gemini", "Gemini"],
];
