import pg from 'pg';
import { restoreNumbers } from '../json/marked-json.ts';

/**
 * Format of `parseTimestamptz` in a session with UTC and ISO dates; other values (infinity, BC) are passed through
 * unchanged.
 */
const utcTimestamp = /^(\d{4,})-(\d\d)-(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/;

type Parse = (text: string) => unknown;

const keepText: Parse = (text) => text;

const parseInt8: Parse = (text) => {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : text;
};

const parseTimestamptz: Parse = (text) =>
  text.replace(
    utcTimestamp,
    (_, year, month, day, time, fraction = '') => `${year}-${month}-${day}T${time}.${fraction.padEnd(6, '0')}Z`,
  );

/** `arrayParser` is an object, although the type declarations of `pg-types` declare a function. */
const { create: createArrayParser } = pg.types.arrayParser as unknown as {
  create(text: string, parse: Parse): { parse(): unknown[] };
};

const parseArray =
  (parse: Parse): Parse =>
  (text) =>
    createArrayParser(text, parse).parse();

const { INT8, TIMESTAMPTZ, TIMESTAMP, DATE } = pg.types.builtins;

/** Parsers by type oid. Array types have their own oids, for which `pg` has no constants. */
const parsers = new Map<number, Parse>([
  [INT8, parseInt8],
  [1016, parseArray(parseInt8)],
  [TIMESTAMPTZ, parseTimestamptz],
  [1185, parseArray(parseTimestamptz)],
  [TIMESTAMP, keepText],
  [1115, parseArray(keepText)],
  [DATE, keepText],
  [1182, parseArray(keepText)],
]);

/** Type parsers of Runlake's own connections; `pg`'s global parsers are not changed, because other libraries rely on them. */
export const valueTypes = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    (format === 'binary' ? undefined : parsers.get(oid)) ??
    pg.types.getTypeParser(oid, format as 'text')) as typeof pg.types.getTypeParser,
};

/**
 * Serialises a value as JSON that `jsonb` accepts: NUL characters and lone surrogates, which `jsonb` rejects, become
 * U+FFFD. Integers that JavaScript can represent only inexactly keep their digits; other numbers become those of
 * JavaScript, because `jsonb` has a limit of their size.
 */
export function toJsonb(value: object): string {
  const formatNumber = (digits: string) => (/^-?\d{1,300}$/.test(digits) ? digits : JSON.stringify(Number(digits)));
  return restoreNumbers(JSON.stringify(value), formatNumber).replace(
    /(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][\da-f]{2})/gi,
    '$1\ufffd',
  );
}
