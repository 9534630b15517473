import type { ClickHouseSettings } from '@clickhouse/client';
import type { QueryParameter } from './clickhouse.ts';

/** URL parameters of a ClickHouse request, including settings. */
export interface AddressFields extends ClickHouseSettings {
  readonly database: string;
  readonly query_id: string;
  /** The statement, if the body is something else. */
  readonly query?: string;
}

/** Encodes the query string of a request; values of `{name:Type}` in the statement are sent as `param_name=...`. */
export function searchOf(fields: AddressFields, parameters: Readonly<Record<string, QueryParameter>> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) search.set(name, typeof value === 'boolean' ? String(Number(value)) : String(value));
  }
  for (const [name, value] of Object.entries(parameters)) search.set(`param_${name}`, text(value));
  return search.toString();
}

/** ClickHouse parses a parameter as a TabSeparated field, and the elements of an array as literals. */
function text(value: QueryParameter): string {
  if (value === null) return '\\N';
  if (typeof value === 'string') return escaped(value);
  if (typeof value === 'boolean') return String(Number(value));
  if (typeof value === 'object') return `[${value.map(literal).join(',')}]`;
  return String(value);
}

function literal(value: string | number | null): string {
  if (value === null) return 'NULL';
  return typeof value === 'string' ? `'${escaped(value)}'` : String(value);
}

const escapes: Readonly<Record<string, string>> = { '\t': '\\t', '\n': '\\n', '\r': '\\r', "'": "\\'", '\\': '\\\\' };

function escaped(value: string): string {
  return value.replace(/[\t\n\r'\\]/g, (character) => escapes[character]!);
}
