import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Operation } from './operation.ts';
import { listQueryNames } from './query-string.ts';

/**
 * Handles query parameters and body fields that are not in the schema of an operation. A newer client may send names
 * that this server does not know, and must still work. The server therefore removes unknown fields from the body, and
 * lists the names of unknown fields and parameters in `X-Ignored-Fields` and in the log. Names that exist in the API
 * but are not implemented here are refused; they are listed in `unsupported` of the operation and in `x-not-built` of a
 * schema.
 */

/** The keywords of a JSON schema that this file evaluates. */
interface Shape {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly additionalProperties?: unknown;
  readonly items?: Shape;
  readonly anyOf?: readonly Shape[];
  readonly 'x-not-built'?: readonly string[];
}

const headerName = 'x-ignored-fields';
const maxNames = 20;
const maxNameLength = 64;
/**
 * Maximum number of fields that are logged at `info`. Each field of an operation is logged once at `info`; later
 * occurrences are logged at `debug`.
 */
const maxLoggedNames = 1_000;
const loggedNames = new Set<string>();
/** Body schema of an operation that has no body. */
const emptyShape: Shape = { type: 'object', properties: {} };

/**
 * Removes unknown names from a request and lists them in the response. `ignoresQuery` is false if other code may read
 * query parameters that are not in the schema.
 */
export function ignoreUnknownNames(
  request: FastifyRequest,
  reply: FastifyReply,
  { operationId, schema, unsupported, rawBody }: Operation,
  ignoresQuery: boolean,
): void {
  const names = new IgnoredNames();
  if (ignoresQuery) {
    const known = new Set([...Object.keys(schema.query?.properties ?? {}), ...(unsupported?.query ?? [])]);
    for (const name of listQueryNames(request.raw.url ?? '')) if (!known.has(name)) names.add(name);
  }
  // `rejectUnsupported` has already rejected a request in which one of these fields has a value.
  for (const name of unsupported?.body ?? []) removeField(request.body, name);
  if (!rawBody) removeUnknownFields(request.body, (schema.body ?? emptyShape) as Shape, '', names);
  reportNames(request, reply, operationId, names.list());
}

function reportNames(
  request: FastifyRequest,
  reply: FastifyReply,
  operationId: string,
  names: readonly string[],
): void {
  if (names.length === 0) return;
  reply.header(headerName, names.join(', '));
  const newNames = names.filter(
    (name) => loggedNames.size < maxLoggedNames && !loggedNames.has(`${operationId} ${name}`),
  );
  for (const name of newNames) loggedNames.add(`${operationId} ${name}`);
  const line = { requestId: request.id, operation: operationId, fields: names };
  request.log[newNames.length > 0 ? 'info' : 'debug'](line, 'unknown fields ignored');
}

/**
 * The ignored names. Each name is listed once; after {@link maxNames} names, the list ends with `...`. Because the
 * names come from the client, each name is truncated, and all characters except letters, digits, `.`, `_` and `-` are
 * percent-encoded. The result is safe in a header and in a log line.
 */
class IgnoredNames {
  readonly #found = new Set<string>();

  add(path: string): void {
    if (this.#found.size <= maxNames) this.#found.add(encodePath(path));
  }

  list(): string[] {
    const names = [...this.#found];
    return names.length > maxNames ? [...names.slice(0, maxNames), '...'] : names;
  }
}

/**
 * Removes fields from `value` that are not in `shape`, and adds their paths, without array indices, to `names`. An
 * object schema with `properties` allows other fields only if it has `additionalProperties`.
 */
function removeUnknownFields(value: unknown, shape: Shape, path: string, names: IgnoredNames): void {
  if (typeof value !== 'object' || value === null) return;
  const matchingShape = findAlternative(Array.isArray(value) ? 'array' : 'object', shape);
  if (matchingShape === undefined) return;
  if (Array.isArray(value)) {
    if (matchingShape.items !== undefined)
      for (const each of value) removeUnknownFields(each, matchingShape.items, path, names);
    return;
  }
  const { properties, additionalProperties = properties === undefined, 'x-not-built': notBuilt = [] } = matchingShape;
  const fields = value as Record<string, unknown>;
  for (const name of Object.keys(fields)) {
    const fieldPath = `${path}${path && '.'}${name.slice(0, maxNameLength)}`;
    if (properties !== undefined && Object.hasOwn(properties, name)) {
      removeUnknownFields(fields[name], properties[name] as Shape, fieldPath, names);
    } else if (additionalProperties === false && !notBuilt.includes(name)) {
      delete fields[name];
      names.add(fieldPath);
    }
  }
}

function removeField(body: unknown, name: string): void {
  if (typeof body === 'object' && body !== null) delete (body as Record<string, unknown>)[name];
}

type ContainerType = 'array' | 'object';
/** Results of {@link findAlternative}: bodies may have very many values of a shape. */
const alternatives: Record<ContainerType, WeakMap<Shape, { readonly only: Shape | undefined }>> = {
  array: new WeakMap(),
  object: new WeakMap(),
};

/**
 * Returns the only alternative of `shape` that an array or an object can match. Returns undefined if no alternative or
 * several alternatives can match; validation then decides.
 */
function findAlternative(type: ContainerType, shape: Shape): Shape | undefined {
  const known = alternatives[type].get(shape);
  if (known) return known.only;
  const fitting = (shape.anyOf ?? [shape]).flatMap((each) => {
    const found = each.anyOf ? findAlternative(type, each) : each;
    return found?.type === type ? [found] : [];
  });
  const only = fitting.length === 1 ? fitting[0] : undefined;
  alternatives[type].set(shape, { only });
  return only;
}

function encodePath(path: string): string {
  return path
    .slice(0, 2 * maxNameLength)
    .replace(/[^\w.-]/gu, (character) =>
      [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
    );
}
