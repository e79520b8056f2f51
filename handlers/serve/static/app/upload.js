// Uploads a file in pieces. A lost connection is continued where the server is.
import { ApiError, addPiece, beginUpload } from "./api.js";

const ATTEMPTS = 8; // failures in a row
const RETRY_MS = 500;
const LONGEST_MS = 10_000;

const GOES_ON = new Set(["upload_busy", "upload_missing", "wrong_offset", "unreachable", "body_too_slow", "too_many_requests"]);

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function digest(file) {
  if (!crypto.subtle) throw new ApiError(0, "insecure", "Files can be attached only on a page from https or from localhost.");
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const canGoOn = (error) => error instanceof ApiError && (GOES_ON.has(error.error) || (error.status >= 500 && error.error !== "uploads_full"));

/** Upload a file, and return the block for a message to the same session. `begun` gets the SHA-256, `progress` the bytes that have arrived. */
export async function uploadFile(session, file, { signal, begun, progress }) {
  const sha256 = await digest(file);
  begun(sha256);
  const told = { sha256, sizeBytes: file.size, mimeType: file.type.split(";")[0].trim() || null, filename: file.name || null };
  let upload = null;
  for (let failures = 0; ; ) {
    signal.throwIfAborted();
    try {
      upload ??= await beginUpload(session, told, signal);
      progress(upload.offset);
      if (upload.isComplete) break;
      const { offset, pieceBytes } = upload;
      upload = await addPiece(session, sha256, offset, file.slice(offset, offset + pieceBytes), signal);
      failures = 0;
    } catch (error) {
      if (!canGoOn(error) || failures >= ATTEMPTS) throw error;
      upload = null; // ask for the offset
      await pause(Math.min(LONGEST_MS, RETRY_MS * 2 ** failures++));
    }
  }
  const kind = (upload.mimeType ?? "").split("/")[0];
  return { type: ["image", "audio", "video"].includes(kind) ? kind : "document", media: { kind: "sha256", sha256 } };
}
