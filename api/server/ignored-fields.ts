import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';

/**
 * Handles body fields that a schema does not name. A newer client may send fields that this server does not support,
 * and must still work. The server therefore removes such a field from the body and names it in `X-Ignored-Fields` and
 * in the log. `x-not-built` of a schema lists fields that exist in the API but are not implemented here. Those fields
 * stay in the body and fail validation.
 */

/** The part of a JSON schema that is evaluated here. */
interface Shape {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly additionalProperties?: unknown;
  readonly items?: Shape;
  readonly anyOf?: readonly Shape[];
  readonly 'x-not-built'?: readonly string[];
}

const header = 'x-ignored-fields';
const maxNames = 20;
const maxNameLength = 64;
/**
 * Maximum number of fields logged at `info`. Each field of an operation is logged once at `info`, and at `debug` after
 * that.
 */
const maxLogged = 1_000;
const logged = new Set<string>();

/**
 * Removes unknown fields from `request.body` and names them in the response. `schema` is undefined if the operation has
 * no body.
 */
export function ignoreUnknownFields(
  request: FastifyRequest,
  reply: FastifyReply,
  schema: TSchema | undefined,
  operationId: string,
): void {
  const shape = (schema ?? { type: 'object', properties: {}, additionalProperties: false }) as Shape;
  const names = removeUnknownFields(request.body, shape);
  if (names.length === 0) return;
  reply.header(header, names.join(', '));
  const isNew = names.filter((name) => logged.size < maxLogged && !logged.has(`${operationId} ${name}`));
  for (const name of isNew) logged.add(`${operationId} ${name}`);
  const line = { requestId: request.id, operation: operationId, fields: names };
  request.log[isNew.length > 0 ? 'info' : 'debug'](line, 'unknown body fields ignored');
}

/**
 * Removes the fields from `body` that `shape` does not name.
 *
 * @returns the paths of the removed fields, each once, without array indices; at most {@link maxNames} paths, then
 *   `...`. Names come from the client, so each is truncated and every character except letters, digits, `.`, `_` and
 *   `-` is percent-encoded; the result is safe in a header and in a log line.
 */
function removeUnknownFields(body: unknown, shape: Shape): string[] {
  const found = new Set<string>();
  take(body, shape, '', (path) => {
    if (found.size <= maxNames) found.add(encodePath(path));
  });
  const names = [...found];
  return names.length > maxNames ? [...names.slice(0, maxNames), '...'] : names;
}

function take(value: unknown, shape: Shape, path: string, note: (path: string) => void): void {
  const fitting = alternativeFor(value, shape);
  if (fitting === undefined || typeof value !== 'object' || value === null) return;
  if (Array.isArray(value)) {
    if (fitting.items !== undefined) for (const each of value) take(each, fitting.items, path, note);
    return;
  }
  const { properties = {}, additionalProperties, 'x-not-built': notBuilt = [] } = fitting;
  const fields = value as Record<string, unknown>;
  for (const name of Object.keys(fields)) {
    const inner = `${path}${path && '.'}${name.slice(0, maxNameLength)}`;
    if (Object.hasOwn(properties, name)) take(fields[name], properties[name] as Shape, inner, note);
    else if (additionalProperties === false && !notBuilt.includes(name)) {
      delete fields[name];
      note(inner);
    }
  }
}

/**
 * Returns the only alternative of `shape` that an array or an object can match. Returns undefined if no alternative or
 * several alternatives match; validation then decides.
 */
function alternativeFor(value: unknown, shape: Shape): Shape | undefined {
  const type = Array.isArray(value) ? 'array' : 'object';
  const fitting = (shape.anyOf ?? [shape]).flatMap((each) => {
    const found = each.anyOf ? alternativeFor(value, each) : each;
    return found?.type === type ? [found] : [];
  });
  return fitting.length === 1 ? fitting[0] : undefined;
}

function encodePath(path: string): string {
  return path
    .slice(0, 2 * maxNameLength)
    .replace(/[^\w.-]/gu, (character) =>
      [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
    );
}
