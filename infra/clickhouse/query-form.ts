/**
 * Encodes a query as a multipart form, for queries with an external table or with parameters that are too long for a
 * URL. ClickHouse joins the fields `query`, and reads the other fields as it reads the parameters of a URL. Source:
 * ClickHouse documentation, "External data for query processing", and src/Server/HTTPHandler.cpp.
 */
import { randomUUID } from 'node:crypto';
import type { ExternalTable, QueryParameter } from './clickhouse.ts';

export type Parameters = Readonly<Record<string, QueryParameter>>;

export interface FormQuery {
  readonly sql: string;
  readonly params?: Parameters | undefined;
  readonly externalTable?: ExternalTable | undefined;
}

/**
 * Maximum number of characters (UTF-16) of a field of a form. ClickHouse's limit is 128 KiB, and a character takes at
 * most three bytes.
 */
const maxFieldCharacters = 40_000;
/** Maximum number of characters of all parameters in a URL, in which a character takes at most nine bytes. */
const maxUrlCharacters = 14_000;

/** Returns whether a query must be sent as a form. */
export function needsForm({ params = {}, externalTable }: Omit<FormQuery, 'sql'>): boolean {
  return externalTable !== undefined || countCharacters(Object.values(params)) > maxUrlCharacters;
}

/** Encodes a query as the body of a request. */
export function encodeForm({ externalTable, ...query }: FormQuery): {
  readonly bytes: Uint8Array;
  readonly contentType: string;
} {
  const { sql, params } = divideParameters(query);
  const boundary = `runlake-${randomUUID()}`;
  const fields = [
    ...divideText(sql).map((part) => ['query', part] as const),
    ...Object.entries(params).map(([name, value]) => [`param_${name}`, formatParameter(value)] as const),
  ];
  const parts = fields.map(([name, value]): readonly [string, string] => [`form-data; name="${name}"`, value]);
  if (externalTable !== undefined) {
    const { name, structure, rows } = externalTable;
    parts.push(
      [`form-data; name="${name}_structure"`, structure],
      [`form-data; name="${name}_format"`, 'TabSeparated'],
      [`form-data; name="${name}"; filename="${name}"`, rows.map((row) => row.join('\t')).join('\n')],
    );
  }
  const text = parts
    .map(([head, value]) => `--${boundary}\r\nContent-Disposition: ${head}\r\n\r\n${value}\r\n`)
    .join('');
  return {
    bytes: Buffer.from(`${text}--${boundary}--\r\n`),
    contentType: `multipart/form-data; boundary=${boundary}`,
  };
}

const escapes: Readonly<Record<string, string>> = { '\t': '\\t', '\n': '\\n', '\r': '\\r', "'": "\\'", '\\': '\\\\' };
const escapeText = (text: string) => text.replace(/[\t\n\r'\\]/g, (character) => escapes[character] ?? character);

/** Formats a parameter of a URL or a form. */
export function formatParameter(value: QueryParameter): string {
  if (value === null) return '\\N';
  if (typeof value === 'string') return escapeText(value);
  if (typeof value === 'boolean') return value ? '1' : '0';
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  return `[${value.map((item) => (typeof item === 'string' ? `'${escapeText(item)}'` : String(item ?? 'NULL'))).join(',')}]`;
}

/** Divides strings, and arrays of any type, that are too long for a field over several parameters. */
function divideParameters({ sql, params = {} }: FormQuery): { readonly sql: string; readonly params: Parameters } {
  const divided: Record<string, QueryParameter> = {};
  const expressions = new Map<string, string>();
  for (const [name, value] of Object.entries(params)) {
    if (countCharacters(value) <= maxFieldCharacters) {
      divided[name] = value;
      continue;
    }
    const bind = (type: string, part: QueryParameter) => {
      const partName = `${name}_${Object.keys(divided).length}`;
      divided[partName] = part;
      return `{${partName}:${type}}`;
    };
    const type = new RegExp(`\\{${name}:([^{}]+)\\}`).exec(sql)?.[1] ?? 'String';
    expressions.set(name, Array.isArray(value) ? bindArray(value, type, bind) : bindText(String(value), bind));
  }
  return { sql: sql.replace(/\{(\w+):[^{}]+\}/g, (found, name) => expressions.get(name) ?? found), params: divided };
}

type Bind = (type: string, part: QueryParameter) => string;

function bindText(text: string, bind: Bind): string {
  return `concat(${divideText(text)
    .map((part) => bind('String', part))
    .join(', ')})`;
}

function bindArray(items: readonly (string | number | bigint | null)[], type: string, bind: Bind): string {
  const expressions: string[] = [];
  let part: (string | number | bigint | null)[] = [];
  let characters = 0;
  const bindPart = () => {
    if (part.length > 0) expressions.push(bind(type, part));
    part = [];
    characters = 0;
  };
  for (const item of items) {
    const length = countCharacters(item);
    if (characters + length > maxFieldCharacters) bindPart();
    if (typeof item === 'string' && length > maxFieldCharacters) expressions.push(`[${bindText(item, bind)}]`);
    else {
      part.push(item);
      characters += length;
    }
  }
  bindPart();
  return `arrayConcat(${expressions.join(', ')})`;
}

/** Divides a text into parts that fit into a field, not between the surrogates of a character. */
function divideText(text: string): string[] {
  const parts: string[] = [];
  for (let at = 0; at < text.length || at === 0; ) {
    const end = at + maxFieldCharacters;
    const isPair = (text.codePointAt(end - 1) ?? 0) > 0xffff;
    parts.push(text.slice(at, isPair ? end - 1 : end));
    at = isPair ? end - 1 : end;
  }
  return parts;
}

/** Returns the number of characters of a parameter; at least the number of those that are sent, without escapes. */
function countCharacters(value: QueryParameter | readonly QueryParameter[]): number {
  if (typeof value === 'string') return value.length + 3;
  if (!Array.isArray(value)) return 24;
  return value.reduce<number>((sum, item) => sum + countCharacters(item), 2);
}
