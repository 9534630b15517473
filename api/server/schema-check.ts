import fastJsonStringify, { type AnySchema } from 'fast-json-stringify';
import type { FastifySchemaCompiler, FastifySerializerCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { type FieldError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { restoreNumbers } from '../../infra/json/marked-json.ts';

/**
 * An error of a compiled TypeBox schema. `Errors` returns at most eight errors per value, so that a hostile body cannot
 * produce millions of errors.
 */
interface SchemaError {
  readonly keyword: string;
  readonly schemaPath: string;
  readonly instancePath: string;
  readonly message: string;
  readonly params: Readonly<Record<string, unknown>>;
}

/**
 * Maximum number of elements in a value. No errors are collected for larger values: although at most eight errors are
 * reported, TypeBox visits the whole value, which blocks the event loop for 10 µs for each element.
 */
const maxElements = 20_000;

const locationNames: Readonly<Record<string, string>> = { querystring: 'query', params: 'path', headers: 'header' };

/**
 * Compiles the schema of one part of a request to a validator that does not change the value. The validator fails with
 * INVALID_REQUEST, which lists the errors as items with `loc`, `msg` and `type`. A schema is compiled when it is first
 * used, because there are hundreds of schemas and a process uses only few of them.
 */
export const compileValidator: FastifySchemaCompiler<TSchema> = ({ schema, httpPart = 'body' }) => {
  const findErrors = createErrorFinder(schema, locationNames[httpPart] ?? httpPart);
  return (value: unknown) => {
    const fields = findErrors(value);
    return fields === undefined ? { value } : { error: runlakeError('INVALID_REQUEST', {}, { fields }) };
  };
};

/** Returns a function that lists the errors of a value in a part of a request, or returns undefined if it is valid. */
export function createErrorFinder(schema: TSchema, location: string): (value: unknown) => FieldError[] | undefined {
  let check: ReturnType<typeof Compile> | undefined;
  return (value) => {
    check ??= Compile(schema);
    if (check.Check(value)) return undefined;
    return exceedsMaxElements(value)
      ? [{ loc: [location], msg: 'does not match the schema (too many elements to report where)', type: 'value_error' }]
      : toFieldErrors(check.Errors(value), schema, location);
  };
}

/** Returns true if `value` has too many elements for its errors to be collected. */
export function exceedsMaxElements(value: unknown): boolean {
  const waiting: unknown[] = typeof value === 'object' && value !== null ? [value] : [];
  let parts = 0;
  for (let each = waiting.pop(); each !== undefined; each = waiting.pop()) {
    const inner: readonly unknown[] = Array.isArray(each) ? each : Object.values(each as object);
    parts += inner.length;
    if (parts > maxElements) return true;
    for (const part of inner) if (typeof part === 'object' && part !== null) waiting.push(part);
  }
  return false;
}

/** What a value of a format must be. */
const formats: Readonly<Record<string, string>> = {
  uuid: 'a UUID',
  email: 'an email address',
  'date-time': 'an ISO 8601 date and time, such as 2026-01-05T00:00:00Z',
};

function toFieldErrors(allErrors: readonly SchemaError[], schema: TSchema, location: string): FieldError[] {
  const listed = new Set<string>();
  const mismatched = new Set<string>();
  const errors = removeUnionErrors(allErrors);
  return errors.flatMap(({ keyword, schemaPath, instancePath, message, params }) => {
    const path = [location, ...splitPointer(instancePath)];
    // Each allowed value of an enum produces an error of its own, and only the first few errors are reported. Therefore
    // one message lists all allowed values.
    if (listed.has(instancePath)) return [];
    const words = listAllowedValues(schema, schemaPath);
    if (words !== undefined) {
      listed.add(instancePath);
      const msg = words.length === 1 ? `must be ${words[0]}` : `must be one of ${words.join(', ')}`;
      return [{ loc: path, msg, type: 'enum' }];
    }
    // A closed object produces one error for each unknown field, so the error for the object itself is redundant.
    if (keyword === 'boolean') return [{ loc: path, msg: 'Field not known', type: 'extra_forbidden' }];
    // Both come with an error of the field itself.
    if (keyword === 'additionalProperties' || keyword === 'propertyNames') return [];
    if (isMismatch({ keyword })) {
      if (mismatched.has(instancePath)) return [];
      mismatched.add(instancePath);
      const msg = describeMismatch(errors, instancePath);
      return msg === undefined ? [] : [{ loc: path, msg, type: formatErrorType(keyword, params) }];
    }
    if (keyword === 'required') {
      const missing = Array.isArray(params.requiredProperties) ? params.requiredProperties : [];
      return missing.map((name) => ({ loc: [...path, String(name)], msg: 'Field required', type: 'missing' }));
    }
    const format = keyword === 'format' ? formats[String(params.format)] : undefined;
    const msg = format === undefined ? message : `must be ${format}`;
    return [{ loc: path, msg, type: formatErrorType(keyword, params) }];
  });
}

/** Whether the value is of another type than the schema, or is not its constant. */
const isMismatch = ({ keyword }: Pick<SchemaError, 'keyword'>) => keyword === 'type' || keyword === 'const';

/**
 * Describes what the value at `instancePath` must be: one of the types and constants of a union. Returns undefined if
 * another error is closer to what was sent, because the value is of the type of an alternative.
 */
function describeMismatch(errors: readonly SchemaError[], instancePath: string): string | undefined {
  const here = errors.filter((error) => error.instancePath === instancePath);
  const isCloser = here.some((error) => !isMismatch(error));
  if (isCloser || errors.some((error) => error.instancePath.startsWith(`${instancePath}/`))) return undefined;
  const constants = new Set(here.filter(({ keyword }) => keyword === 'const').map(({ schemaPath }) => schemaPath));
  const words = here
    // A constant of another type produces two errors.
    .filter(({ keyword, schemaPath }) => keyword === 'const' || !constants.has(schemaPath))
    .map(({ keyword, params }) => (keyword === 'const' ? JSON.stringify(params.allowedValue) : String(params.type)));
  const distinct = [...new Set(words)];
  const last = distinct.pop();
  return `must be ${distinct.length > 0 ? `${distinct.join(', ')} or ` : ''}${last}`;
}

/**
 * Removes redundant errors. A nullable value is a union, which adds two redundant errors: that the value is not null,
 * and that no alternative matches.
 */
function removeUnionErrors(errors: readonly SchemaError[]): readonly SchemaError[] {
  const isUnionError = ({ keyword, params }: SchemaError) =>
    keyword === 'anyOf' || (keyword === 'type' && params.type === 'null');
  const specificErrors = errors.filter((each) => !isUnionError(each));
  return specificErrors.length > 0 ? specificErrors : errors;
}

/**
 * Returns the allowed values at `schemaPath` if the schema at that path is an enum or a list of enum values, optionally
 * nullable. Otherwise returns undefined.
 */
function listAllowedValues(schema: TSchema, schemaPath: string): string[] | undefined {
  let at: unknown = schema;
  for (const segment of splitPointer(schemaPath.replace(/(?:\/anyOf\/\d+)+$/, ''))) {
    at = (at as Record<string, unknown> | undefined)?.[segment];
  }
  if (typeof at !== 'object' || at === null) return undefined;
  const leaves = collectLeaves(at as Leaf).filter(({ type }) => type !== 'null');
  const words = leaves.filter((leaf) => 'const' in leaf).map((leaf) => String(leaf.const));
  const isList = ({ type, items }: Leaf) =>
    type === 'array' && items !== undefined && collectLeaves(items).every((leaf) => words.includes(String(leaf.const)));
  const otherLeaves = leaves.filter((leaf) => !('const' in leaf) && !isList(leaf));
  return words.length > 0 && otherLeaves.length === 0 ? words : undefined;
}

interface Leaf {
  readonly type?: unknown;
  readonly const?: unknown;
  readonly anyOf?: readonly Leaf[];
  readonly items?: Leaf;
}

function collectLeaves(schema: Leaf): Leaf[] {
  return schema.anyOf?.flatMap(collectLeaves) ?? [schema];
}

/** Splits a JSON pointer into segments. Numeric segments are array indices. */
function splitPointer(pointer: string): Array<string | number> {
  return pointer
    .split('/')
    .slice(1)
    .map((segment) =>
      /^\d{1,9}$/.test(segment) ? Number(segment) : segment.replaceAll('~1', '/').replaceAll('~0', '~'),
    );
}

function formatErrorType(keyword: string, params: Readonly<Record<string, unknown>>): string {
  if (keyword === 'type') return `${String(params.type)}_type`;
  if (keyword === 'format') return `${String(params.format).replaceAll('-', '_')}_format`;
  return keyword.replace(/^~/, '').replace(/[A-Z]/g, (character) => `_${character.toLowerCase()}`);
}

/**
 * Compiles the schema of a response to a JSON serialiser, like Fastify's own compiler. Compiles it only for the first
 * response, because compiling all schemas at startup takes 200 ms.
 */
export const compileSerializer: FastifySerializerCompiler<AnySchema> = ({ schema }) => {
  let write: ((response: unknown) => string) | undefined;
  return (response) => {
    write ??= fastJsonStringify(schema);
    return restoreNumbers(write(response));
  };
};
