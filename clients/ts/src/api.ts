import type { components, paths } from "./schema.js";

/** The types of the API's JSON, by name. */
export type Schemas = components["schemas"];

/** A stored message with its place. */
export type Entry = Schemas["Entry"];

/** A piece of a message that a model is writing. */
export type LiveDelta = Schemas["LiveDelta"];

/** A message of the LLM lane or the extension lane. */
export type Message = Entry["message"];

/** HTTP methods of the API. */
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** What a path of the API accepts and returns with a method. */
type Operation<M extends Method, P extends keyof paths> = paths[P][Lowercase<M> & keyof paths[P]];

/** The paths of the API that have a method. */
export type Path<M extends Method> = {
  [P in keyof paths]: Operation<M, P> extends { responses: unknown } ? P : never;
}[keyof paths];

type Body<O> = O extends { requestBody: { content: infer C } }
  ? { body: C extends { "application/json": infer B } ? B : BodyInit }
  : O extends { requestBody?: { content: infer C } }
    ? { body?: C extends { "application/json": infer B } ? B : BodyInit }
    : { body?: never };

/** The parameters and the body of a request. */
export type Options<M extends Method, P extends keyof paths> = (Operation<M, P> extends { parameters: infer A }
  ? Pick<A, keyof A & ("path" | "query")>
  : unknown) &
  Body<Operation<M, P>> & {
    /** ends the request */
    signal?: AbortSignal;
    /** further headers */
    headers?: Record<string, string>;
  };

/** What a request returns: its JSON, or the response if it is no JSON. */
export type Answer<M extends Method, P extends keyof paths> =
  Operation<M, P> extends { responses: infer R }
    ? { [S in keyof R & (200 | 201)]: R[S] extends { content: { "application/json": infer B } } ? B : Response }[keyof R &
        (200 | 201)]
    : never;

/** The options of a request, which may be left out if nothing is required. */
export type Arguments<M extends Method, P extends keyof paths> =
  object extends Options<M, P> ? [options?: Options<M, P>] : [options: Options<M, P>];
