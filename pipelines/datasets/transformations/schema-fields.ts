/** Reads from a JSON Schema which fields a value has. */
import { isJsonObject, type JsonObject } from '../../../infra/json/json-value.ts';

/** Returns the schemas that apply together to the value at a path. `document` is the schema of the whole document. */
export function findSchemas(document: JsonObject, path: readonly string[]): readonly JsonObject[] {
  let schemas = expand(document, document, new Set());
  for (const name of path) {
    // One set for all schemas of a value: without it, the number of schemas could double with each name.
    const found = new Set<JsonObject>();
    for (const { properties } of schemas) {
      if (isJsonObject(properties) && Object.hasOwn(properties, name)) expand(properties[name], document, found);
    }
    schemas = found;
  }
  return [...schemas];
}

/** Adds a schema to `found`, and those that it refers to or combines. References to other documents do not occur. */
function expand(schema: unknown, document: JsonObject, found: Set<JsonObject>): Set<JsonObject> {
  if (!isJsonObject(schema) || found.has(schema)) return found;
  found.add(schema);
  const { $ref, allOf, anyOf, oneOf, then: ifTrue, else: ifFalse } = schema;
  const lists = [allOf, anyOf, oneOf].filter((list) => Array.isArray(list));
  for (const part of [...lists.flat(), ifTrue, ifFalse]) expand(part, document, found);
  if (typeof $ref === 'string') expand(resolve($ref, document), document, found);
  return found;
}

function resolve(reference: string, document: JsonObject): unknown {
  if (!/^#(\/|$)/.test(reference)) return undefined;
  let value: unknown = document;
  for (const token of reference.split('/').slice(1)) {
    const name = decodeToken(token);
    value =
      typeof value === 'object' && value !== null && Object.hasOwn(value, name)
        ? (value as JsonObject)[name]
        : undefined;
  }
  return value;
}

/** Decodes a token of a JSON pointer in a URI fragment (RFC 6901, section 6). */
function decodeToken(token: string): string {
  try {
    return decodeURIComponent(token).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return token;
  }
}

/**
 * Returns the names of the fields that the schemas define; undefined if they define no fields, or if fields are defined by
 * patterns.
 */
export function listFields(schemas: readonly JsonObject[]): ReadonlySet<string> | undefined {
  const definitions = schemas.map(({ properties }) => properties).filter(isJsonObject);
  if (definitions.length === 0 || schemas.some(({ patternProperties }) => patternProperties !== undefined))
    return undefined;
  return new Set(definitions.flatMap(Object.keys));
}

export function isRequired(schemas: readonly JsonObject[], name: string): boolean {
  return schemas.some(({ required }) => Array.isArray(required) && required.includes(name));
}

export function isListSchema(schemas: readonly JsonObject[]): boolean {
  return schemas.some(({ type }) => type === 'array');
}
