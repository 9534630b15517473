import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { type FieldFault, fault } from '../../infra/errors/runlake-error.ts';

/** What `Errors` of a compiled schema yields; at most eight a value, so that a hostile body cannot make millions. */
interface SchemaFault {
  readonly keyword: string;
  readonly schemaPath: string;
  readonly instancePath: string;
  readonly message: string;
  readonly params: Readonly<Record<string, unknown>>;
}

/**
 * All of a value is gone through to say what is wrong with it, though eight faults are told. Of millions of parts that takes seconds, in
 * which this process answers nobody.
 */
const mostParts = 100_000;

const places: Readonly<Record<string, string>> = { querystring: 'query', params: 'path', headers: 'header' };

/**
 * Compiles the schema of one part of a request into a check that changes nothing. It fails with INVALID_REQUEST, which lists
 * the faults in the form of SPEC 2.3. The first request compiles: there are hundreds of schemas, and a process uses few of them.
 */
export const compileCheck: FastifySchemaCompiler<TSchema> = ({ schema, httpPart = 'body' }) => {
  let check: ReturnType<typeof Compile> | undefined;
  const place = places[httpPart] ?? httpPart;
  return (value: unknown) => {
    check ??= Compile(schema);
    if (check.Check(value)) return { value };
    const fields = hasManyParts(value)
      ? [{ loc: [place], msg: 'does not fit its schema, and has too many parts to say where', type: 'value_error' }]
      : fieldFaults(check.Errors(value), schema, place);
    return { error: fault('INVALID_REQUEST', {}, { fields }) };
  };
};

/** Whether a value has so many that it is not worth the time to say what is wrong where. */
export function hasManyParts(value: unknown): boolean {
  const waiting: unknown[] = typeof value === 'object' && value !== null ? [value] : [];
  let parts = 0;
  for (let each = waiting.pop(); each !== undefined; each = waiting.pop()) {
    const inner: readonly unknown[] = Array.isArray(each) ? each : Object.values(each as object);
    parts += inner.length;
    if (parts > mostParts) return true;
    for (const part of inner) if (typeof part === 'object' && part !== null) waiting.push(part);
  }
  return false;
}

function fieldFaults(faults: readonly SchemaFault[], schema: TSchema, place: string): FieldFault[] {
  const listed = new Set<string>();
  return withoutAlternatives(faults).flatMap(({ keyword, schemaPath, instancePath, message, params }) => {
    const path = [place, ...segmentsOf(instancePath)];
    // Of a list of words each word is a fault by itself, and only the first few are told: one says them all.
    if (listed.has(instancePath)) return [];
    const words = wordsAt(schema, schemaPath);
    if (words !== undefined) {
      listed.add(instancePath);
      const msg = words.length === 1 ? `must be ${words[0]}` : `must be one of ${words.join(', ')}`;
      return [{ loc: path, msg, type: 'enum' }];
    }
    // What a closed object does not have: each such field is a fault by itself, and the object's own one says no more.
    if (keyword === 'boolean') return [{ loc: path, msg: 'Field not known', type: 'extra_forbidden' }];
    if (keyword === 'additionalProperties') return [];
    if (keyword === 'required') {
      const missing = Array.isArray(params.requiredProperties) ? params.requiredProperties : [];
      return missing.map((name) => ({ loc: [...path, String(name)], msg: 'Field required', type: 'missing' }));
    }
    return [{ loc: path, msg: message, type: typeOf(keyword, params) }];
  });
}

/**
 * What may also be null is a union, which adds two faults to the one that says something: that the value is not null, and that
 * nothing of the union fits.
 */
function withoutAlternatives(faults: readonly SchemaFault[]): readonly SchemaFault[] {
  const isAlternative = ({ keyword, params }: SchemaFault) =>
    keyword === 'anyOf' || (keyword === 'type' && params.type === 'null');
  const telling = faults.filter((each) => !isAlternative(each));
  return telling.length > 0 ? telling : faults;
}

/** What may stand at `schemaPath`, where that is one of some words, or a list of those, and nothing else but null. */
function wordsAt(schema: TSchema, schemaPath: string): string[] | undefined {
  let at: unknown = schema;
  for (const segment of segmentsOf(schemaPath.replace(/(?:\/anyOf\/\d+)+$/, ''))) {
    at = (at as Record<string, unknown> | undefined)?.[segment];
  }
  if (typeof at !== 'object' || at === null) return undefined;
  const leaves = leavesOf(at as Leaf).filter(({ type }) => type !== 'null');
  const words = leaves.filter((leaf) => 'const' in leaf).map((leaf) => String(leaf.const));
  const isList = ({ type, items }: Leaf) =>
    type === 'array' && items !== undefined && leavesOf(items).every((leaf) => words.includes(String(leaf.const)));
  const others = leaves.filter((leaf) => !('const' in leaf) && !isList(leaf));
  return words.length > 0 && others.length === 0 ? words : undefined;
}

interface Leaf {
  readonly type?: unknown;
  readonly const?: unknown;
  readonly anyOf?: readonly Leaf[];
  readonly items?: Leaf;
}

function leavesOf(schema: Leaf): Leaf[] {
  return schema.anyOf?.flatMap(leavesOf) ?? [schema];
}

/** The parts of a JSON pointer; numbers are indices. */
function segmentsOf(pointer: string): Array<string | number> {
  return pointer
    .split('/')
    .slice(1)
    .map((segment) =>
      /^\d{1,9}$/.test(segment) ? Number(segment) : segment.replaceAll('~1', '/').replaceAll('~0', '~'),
    );
}

function typeOf(keyword: string, params: Readonly<Record<string, unknown>>): string {
  if (keyword === 'type') return `${String(params.type)}_type`;
  if (keyword === 'format') return `${String(params.format).replaceAll('-', '_')}_format`;
  return keyword.replace(/^~/, '').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
