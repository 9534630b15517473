/** Reads from a JSON Schema which fields a value has. */
import { LRUCache } from 'lru-cache';
import { isJsonObject, type JsonObject } from '../../../infra/json/json-value.ts';
import type { StepwiseWork } from '../../../infra/timeouts/time-slices.ts';

/** Finds the schemas that apply together to the value at a path. */
export type SchemaFinder = (path: readonly string[]) => StepwiseWork<readonly JsonObject[]>;

/**
 * `document` is the schema of the whole document. A schema of a client can have many thousands of parts that apply to the
 * same value, so the search is in steps, and its results are kept.
 */
export function createSchemaFinder(document: JsonObject): SchemaFinder {
  const results = new Map<string, readonly JsonObject[]>();
  const parts = new Map<JsonObject, readonly JsonObject[]>();
  const expanded = new LRUCache<JsonObject, readonly JsonObject[]>({ max: 20 });
  const getParts = (schema: JsonObject) => {
    const known = parts.get(schema) ?? listParts(schema, document);
    parts.set(schema, known);
    return known;
  };
  const expandSchemas = (schemas: readonly JsonObject[]) => {
    const [schema] = schemas;
    // Most values have one schema, which refers to others.
    const isKept = schema !== undefined && schemas.length === 1;
    const result = (isKept && expanded.get(schema)) || expand(schemas, getParts);
    if (isKept) expanded.set(schema, result);
    return result;
  };
  return function* (path) {
    const key = JSON.stringify(path);
    let schemas = results.get(key) ?? expandSchemas([document]);
    for (const name of results.has(key) ? [] : path) {
      const members = schemas.flatMap(({ properties }) =>
        isJsonObject(properties) && Object.hasOwn(properties, name) ? [properties[name]] : [],
      );
      // Together, because otherwise the number of schemas could double with each name.
      schemas = expandSchemas(members.filter(isJsonObject));
      yield;
    }
    results.set(key, schemas);
    return schemas;
  };
}

/** Returns the schemas, and all that they refer to or combine, each once, without those that say nothing about fields. */
function expand(
  schemas: readonly JsonObject[],
  getParts: (schema: JsonObject) => readonly JsonObject[],
): readonly JsonObject[] {
  const found = new Set(schemas);
  // The loop also visits the schemas that it adds.
  for (const schema of found) for (const part of getParts(schema)) found.add(part);
  return [...found].filter((schema) => fieldKeywords.some((keyword) => schema[keyword] !== undefined));
}

const fieldKeywords = ['properties', 'patternProperties', 'required', 'type'];

/** Lists the schemas that a schema refers to or combines. References to other documents do not occur. */
function listParts(schema: JsonObject, document: JsonObject): readonly JsonObject[] {
  const { $ref, allOf, anyOf, oneOf, then: ifTrue, else: ifFalse } = schema;
  const lists: unknown[] = [allOf, anyOf, oneOf].filter((list) => Array.isArray(list)).flat();
  const target = typeof $ref === 'string' ? resolve($ref, document) : undefined;
  return [...lists, ifTrue, ifFalse, target].filter(isJsonObject);
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
