// Reads a provider's request into items that people can compare: instructions, messages, tools, options. Pure.

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const list = (value) => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]);
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

const PARTS = {
  text: (part) => ({ kind: "text", text: part.text }),
  input_text: (part) => ({ kind: "text", text: part.text }),
  output_text: (part) => ({ kind: "text", text: part.text }),
  summary_text: (part) => ({ kind: "thinking", text: part.text }),
  refusal: (part) => ({ kind: "text", text: part.refusal }),
  thinking: (part) => ({ kind: "thinking", text: part.thinking }),
  redacted_thinking: () => ({ kind: "thinking", text: null }),
  tool_use: (part) => ({ kind: "call", name: part.name, id: part.id, value: part.input }),
  tool_result: (part) => ({ kind: part.is_error ? "failure" : "result", id: part.tool_use_id, parts: readParts(part.content) }),
};
const MEDIA = new Set(["image", "image_url", "input_image", "document", "file", "input_file", "input_audio", "audio"]);

function media(part, what) {
  // The bytes of media are long and say nothing: only their size is shown.
  const size = longest(part);
  return { kind: "media", name: what, size, value: size > 200 ? null : part };
}

function longest(value) {
  if (typeof value === "string") return value.length;
  if (value === null || typeof value !== "object") return 0;
  return Object.values(value).reduce((most, each) => Math.max(most, longest(each)), 0);
}

function readPart(part) {
  if (typeof part === "string") return { kind: "text", text: part };
  if (!isObject(part)) return { kind: "other", value: part };
  if (Object.hasOwn(PARTS, part.type ?? "")) return PARTS[part.type](part);
  if (MEDIA.has(part.type)) return media(part, part.type);
  if (part.type === undefined) {
    if (part.functionCall) return { kind: "call", name: part.functionCall.name, id: part.functionCall.id, value: part.functionCall.args };
    if (part.functionResponse) return { kind: "result", name: part.functionResponse.name, id: part.functionResponse.id, value: part.functionResponse.response };
    if (part.inlineData || part.fileData) return media(part, (part.inlineData ?? part.fileData).mimeType ?? "file");
    if (typeof part.text === "string") return { kind: part.thought ? "thinking" : "text", text: part.text };
  }
  return { kind: "other", value: part };
}

/** Whether a part is the result of a tool call. */
export const isResult = (part) => part.kind === "result" || part.kind === "failure";

const readParts = (content) => list(content).map(readPart);

/** Arguments that the API carries as JSON text. A text that is no JSON is shown as it is. */
function parsed(value) {
  if (typeof value !== "string") return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

function readMessage(message) {
  if (!isObject(message)) return { role: "unknown", parts: [{ kind: "other", value: message }] };
  const { role, type } = message;
  if (type === "function_call" || type === "custom_tool_call") {
    return { role: "assistant", parts: [{ kind: "call", name: message.name, id: message.call_id, value: parsed(message.arguments ?? message.input) }] };
  }
  if (type === "function_call_output" || type === "custom_tool_call_output") {
    return { role: "tool", parts: [{ kind: "result", id: message.call_id, parts: readParts(message.output) }] };
  }
  if (type === "reasoning") return { role: "assistant", parts: [...readParts(message.summary), { kind: "thinking", text: null }].slice(0, Math.max(1, list(message.summary).length)) };
  if (role === "tool") return { role, parts: [{ kind: "result", id: message.tool_call_id, parts: readParts(message.content) }] };
  if (typeof role !== "string") return { role: String(type ?? "item"), parts: [{ kind: "other", value: message }] };
  const calls = list(message.tool_calls).map((call) => ({
    kind: "call",
    name: call?.function?.name ?? call?.custom?.name,
    id: call?.id,
    value: parsed(call?.function?.arguments ?? call?.custom?.input),
  }));
  return { role: role === "model" ? "assistant" : role, parts: [...readParts(message.content ?? message.parts), ...calls] };
}

function readTools(tools) {
  return list(tools).flatMap((tool) =>
    Array.isArray(tool?.functionDeclarations) ? tool.functionDeclarations : [tool],
  ).map((tool) => {
    const about = tool?.function ?? tool;
    return { section: "tool", role: "tool", name: text(about?.name ?? about?.type ?? "tool"), about: about?.description, value: tool };
  });
}

/** Marks that a provider's cache reads. They move with each turn and are no content. */
export const withoutMarks = (value) =>
  JSON.stringify(value, (key, each) => (key === "cache_control" ? undefined : each));

/** Return the items of a request's body, in the order in which a person reads them. */
export function readRequest(body) {
  const { system, instructions, systemInstruction, messages, input, contents, tools, ...options } = body ?? {};
  const said = list(system ?? instructions ?? systemInstruction?.parts ?? systemInstruction).map((part) => ({ section: "system", role: "system", parts: [readPart(part)], value: part }));
  const talk = list(messages ?? input ?? contents).map((message) => ({ section: "message", ...readMessage(message), value: message }));
  const items = [...said, ...talk];
  items.forEach((item) => (item.same = withoutMarks(item.value)));
  return {
    items,
    tools: readTools(tools).map((tool) => ({ ...tool, same: withoutMarks(tool.value) })),
    options,
  };
}
