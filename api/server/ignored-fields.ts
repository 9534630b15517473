import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';

/**
 * Body fields that a schema does not name. A newer client may send one that this server has never heard of, and has to keep working: such
 * a field is taken out of the body, named in `X-Ignored-Fields` and in the log. A field that clients know and this server does not build
 * is in `x-not-built` of its schema; it stays, and the check of the schema refuses it.
 */

/** As far as a schema is followed here. */
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
/** Fields that are logged at `info`, once each for an operation; later ones at `debug`. */
const maxLogged = 1_000;
const logged = new Set<string>();

/** Takes the fields out of `request.body` and names them in the answer. `schema` undefined: the operation takes no body. */
export function ignoreUnknownFields(
  request: FastifyRequest,
  reply: FastifyReply,
  schema: TSchema | undefined,
  operationId: string,
): void {
  const shape = (schema ?? { type: 'object', properties: {}, additionalProperties: false }) as Shape;
  const names = takeUnknown(request.body, shape);
  if (names.length === 0) return;
  reply.header(header, names.join(', '));
  const isNew = names.filter((name) => logged.size < maxLogged && !logged.has(`${operationId} ${name}`));
  for (const name of isNew) logged.add(`${operationId} ${name}`);
  const line = { requestId: request.id, operation: operationId, fields: names };
  request.log[isNew.length > 0 ? 'info' : 'debug'](line, 'unknown fields of a request body were ignored');
}

/**
 * Takes out of `body` what `shape` does not name.
 *
 * @returns the paths of what was taken out, each once, without indices: at most {@link maxNames}, then `...`. They are clients' text:
 * each is cut, and all but letters, digits, `.`, `_` and `-` is percent-encoded, so that it can stand in a header and in a log line.
 */
export function takeUnknown(body: unknown, shape: Shape): string[] {
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

/** The one alternative that a list or an object can be. Undefined: there is none, or more than one, which the check tells apart. */
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
