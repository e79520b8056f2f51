// Messages that models are writing, assembled from live deltas.

const turnKey = (turn) => (turn ? `${turn.loopId}#${turn.turnIndex}` : null);

const MOST_BLOCKS = 10_000; // as in the bus: an array with a huge index would take all memory

const isPiece = (delta) =>
  typeof delta?.messageId === "string" &&
  typeof (delta.delta ?? "") === "string" &&
  Number.isInteger(delta.block ?? 0) && (delta.block ?? 0) >= 0 && (delta.block ?? 0) < MOST_BLOCKS;

export class Previews {
  #open = new Map();
  #landed = new Set();

  /** Return the previews in the order in which they started. */
  list() {
    return [...this.#open.values()];
  }

  /** Add a live delta: text to append, or the whole text of its block so far. Ignored after the complete message. */
  add(delta) {
    if (!isPiece(delta) || this.#landed.has(delta.messageId)) return; // an unreadable delta has none of these
    const before = this.#open.get(delta.messageId) ?? {
      id: delta.messageId,
      turn: turnKey(delta.turnId),
      turnId: delta.turnId,
      blocks: [],
      cut: null,
      pieces: 0,
    };
    const after = { ...before, pieces: before.pieces + 1 };
    if (delta.kind === "cut") {
      after.cut = delta.delta || "cut";
    } else {
      const at = delta.block ?? 0;
      const block = before.blocks[at] ?? { kind: delta.kind, name: null, text: "" };
      after.blocks = [...before.blocks];
      after.blocks[at] = { ...block, name: delta.toolName ?? block.name, text: (delta.isSnapshot ? "" : block.text) + (delta.delta ?? "") };
    }
    this.#open.set(delta.messageId, after);
  }

  /** Remove the previews of the message, the turn or the loop that an entry ends. */
  settle(message) {
    if (message.role === "assistant") {
      if (message.id) {
        this.#landed.add(message.id);
        this.#open.delete(message.id);
      }
      this.#drop((preview) => preview.cut !== null || (preview.turn !== null && preview.turn === turnKey(message.turnId)));
    } else if (message.role === "extension" && message.kind === "agent.turn.ended") {
      this.#drop((preview) => preview.turn === turnKey(message.data?.turnId));
    } else if (message.role === "extension" && message.kind === "agent.ended") {
      this.#drop((preview) => preview.turnId?.loopId === message.data?.loopId);
    }
  }

  #drop(isOver) {
    for (const preview of this.list()) {
      if (isOver(preview)) this.#open.delete(preview.id);
    }
  }
}
