/** An error of the server that a repeat does not solve, or the last one after all attempts. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  /**
   * @param status HTTP status; 0 if the response is none of the server's
   * @param error name of the error, such as `session_closed`: tell errors apart by it
   * @param detail text for people; it may change
   * @param retryAfter seconds that the server asks to wait; null if it does not say
   */
  constructor(
    readonly status: number,
    readonly error: string,
    readonly detail: string,
    readonly retryAfter: number | null = null,
  ) {
    super(`${status} ${error}: ${detail}`);
  }

  /** Whether the same request may succeed later. */
  get isTemporary(): boolean {
    return this.status === 408 || this.status === 429 || this.status >= 500;
  }
}

/** Return the error of a response that is not 2xx. */
export async function errorOf(response: Response): Promise<ApiError> {
  let problem: { error?: unknown; detail?: unknown } = {};
  try {
    problem = (await response.json()) ?? {};
  } catch {
    // A proxy between here and the server answers in other forms.
  }
  const { error, detail } = problem;
  const seconds = Number(response.headers.get("retry-after") || NaN);
  return new ApiError(
    response.status,
    typeof error === "string" ? error : "unknown",
    typeof detail === "string" ? detail : response.statusText,
    seconds >= 0 ? seconds : null,
  );
}
