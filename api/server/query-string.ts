import type { TObject, TSchema } from 'typebox';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';

export type QueryValues = Record<string, string | string[]>;

/**
 * Parses the query of `url` to texts. The values of a repeated key become a list. Empty values are treated as absent.
 * The result has no prototype, so that keys such as `__proto__` are ordinary keys.
 *
 * @throws BAD_REQUEST for invalid percent-encoding or a NUL character.
 */
export function parseQuery(url: string): QueryValues {
  const values: QueryValues = Object.create(null);
  const start = url.indexOf('?');
  if (start < 0) return values;
  for (const pair of url.slice(start + 1).split('&')) {
    const equalsIndex = pair.indexOf('=');
    if (equalsIndex < 0 || equalsIndex === pair.length - 1) continue;
    const key = decode(pair.slice(0, equalsIndex));
    const value = decode(pair.slice(equalsIndex + 1));
    const known = values[key];
    if (known === undefined) values[key] = value;
    else if (Array.isArray(known)) known.push(value);
    else values[key] = [known, value];
  }
  return values;
}

/** Returns all distinct names in the query of `url`, including names without a value. */
export function listQueryNames(url: string): string[] {
  const start = url.indexOf('?');
  return start < 0 ? [] : [...new Set(new URLSearchParams(url.slice(start)).keys())];
}

function decode(text: string): string {
  try {
    const decoded = decodeURIComponent(text.replaceAll('+', ' '));
    // Postgres rejects NUL characters, so no stored text can contain one.
    if (decoded.includes('\0'))
      throw runlakeError('BAD_REQUEST', { reason: 'The URL has a NUL character in a parameter.' });
    return decoded;
  } catch (cause) {
    if (isRunlakeError(cause)) throw cause;
    throw runlakeError('BAD_REQUEST', { reason: 'The URL has invalid percent-encoding.' }, { cause });
  }
}

/**
 * Converts the text of each parameter to the type in its schema, and fills in defaults. Values that cannot be converted
 * stay text, so that validation reports them. Booleans can be written as in Python or as in JavaScript.
 */
export function convertQuery(schema: TObject, values: QueryValues): Record<string, unknown> {
  const converted: Record<string, unknown> = Object.assign(Object.create(null), values);
  for (const [name, property] of Object.entries<TSchema>(schema.properties)) {
    const value = values[name];
    if (value !== undefined) converted[name] = convert(property, value);
    else if ('default' in property) converted[name] = property.default;
  }
  return converted;
}

function convert(schema: TSchema, value: string | string[]): unknown {
  const type = 'type' in schema ? schema.type : undefined;
  if (type === 'array') {
    const items = ('items' in schema ? schema.items : {}) as TSchema;
    return ((isFreeText(items) ? undefined : parseJsonList(value)) ?? [value].flat()).map((item) =>
      typeof item === 'string' ? convert(items, item) : item,
    );
  }
  if (Array.isArray(value)) return value;
  if (type === 'integer') return /^[+-]?\d{1,15}$/.test(value) ? Number(value) : value;
  if (type === 'number') return /^[+-]?\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?$/i.test(value) ? Number(value) : value;
  if (type === 'boolean') {
    if (/^(?:true|1|yes|on)$/i.test(value)) return true;
    return /^(?:false|0|no|off)$/i.test(value) ? false : value;
  }
  return value;
}

/** Any text is valid, and may begin like a list. */
const isFreeText = (schema: TSchema) =>
  'type' in schema && schema.type === 'string' && !('enum' in schema || 'format' in schema || 'pattern' in schema);

/** Parses a list in JSON, such as `["values","debug"]`, which the JavaScript client of the agent server sends. */
function parseJsonList(value: string | string[]): unknown[] | undefined {
  if (Array.isArray(value) || !value.startsWith('[')) return undefined;
  try {
    return JSON.parse(value) as unknown[];
  } catch {
    return undefined;
  }
}
