/** Upload files, so that a message can show them. */
import type { Schemas } from "./api.js";
import type { Lanebus } from "./client.js";
import { ApiError } from "./errors.js";

/** A block of a message that names an uploaded file. */
export type FileBlock = Schemas["PostedFile"];

/** A block of a message. */
export type PostedBlock = FileBlock | Schemas["PostedText"];

/** How to upload a file. Times are in milliseconds. */
export interface UploadOptions {
  /** media type; that of the file by default. What the first bytes of the file show takes precedence */
  mimeType?: string;
  /** name of the file; that of a `File` by default */
  filename?: string;
  /** called with the number of bytes that have arrived, at the start and after each piece */
  onProgress?: (sent: number, total: number) => void;
  /** ends the upload. It can be continued with another call */
  signal?: AbortSignal;
  /** most bytes of a piece; the server's limit by default */
  piece?: number;
  /** number of failures in a row before the error is thrown; 8 by default */
  attempts?: number;
  /** pause after the first failure; 500 by default. It doubles at each failure, up to 30,000 */
  retry?: number;
}

/**
 * Upload a file in pieces, and return the block for a message to the same session.
 *
 * A lost connection, and another call for the same file, continue where the server is. The server checks the SHA-256.
 *
 * @throws ApiError if the server refuses, `TypeError` if it cannot be reached, the reason of `signal` if that is aborted,
 *   `Error` on a page without HTTPS, where browsers cannot make a SHA-256
 */
export async function upload(
  lanebus: Lanebus,
  session: string,
  file: Blob,
  options: UploadOptions = {},
): Promise<FileBlock> {
  const { onProgress, signal, piece = Infinity, attempts = 8, retry = 500 } = options;
  const sha256 = await digest(file);
  const name = options.filename ?? ("name" in file ? String(file.name) : "");
  const mimeType = (options.mimeType ?? file.type).split(";")[0]!.trim();
  const body = { sha256, sizeBytes: file.size, mimeType: mimeType || null, filename: name || null };
  let failed = 0;
  let upload: Schemas["UploadAnswer"] | undefined;
  for (;;) {
    signal?.throwIfAborted();
    try {
      upload ??= await lanebus.request("POST", "/api/sessions/{session}/uploads", {
        path: { session },
        body,
        ...(signal && { signal }),
      });
      onProgress?.(upload.offset, file.size);
      if (upload.isComplete) {
        const kind = (upload.mimeType ?? "").split("/")[0]!;
        const type = kind === "image" || kind === "audio" || kind === "video" ? kind : "document";
        return { type, media: { kind: "sha256", sha256 } };
      }
      const { offset, pieceBytes } = upload;
      upload = await lanebus.request("PATCH", "/api/sessions/{session}/uploads/{sha256}", {
        path: { session, sha256 },
        query: { offset },
        body: file.slice(offset, offset + Math.min(piece, pieceBytes)),
        headers: { "content-type": "application/octet-stream" },
        ...(signal && { signal }),
      });
      failed = 0;
    } catch (error) {
      signal?.throwIfAborted();
      if (!canContinue(error) || failed >= attempts) throw error;
      upload = undefined; // ask for the offset
      await pause(Math.min(30_000, retry * 2 ** failed++), signal);
    }
  }
}

/** Whether a repeat may succeed: there was no answer, the server is busy, or it has another offset or no such upload. */
function canContinue(error: unknown): boolean {
  if (!(error instanceof ApiError)) return true;
  if (error.error === "too_many_uploads") return false;
  return error.isTemporary || error.error === "wrong_offset" || error.error === "upload_missing";
}

async function digest(file: Blob): Promise<string> {
  if (!globalThis.crypto?.subtle) throw new Error("a browser can upload only from https or from localhost");
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(over, milliseconds);
    function over() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      resolve();
    }
    signal?.addEventListener("abort", over);
  });
}
