import pg from 'pg';

/** What a `timestamptz` looks like in a session in UTC with ISO dates; anything else (infinity, BC) passes as it is. */
const utcTimestamp = /^(\d{4,})-(\d\d)-(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/;

type Parse = (text: string) => unknown;

const asText: Parse = (text) => text;

const int8: Parse = (text) => {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : text;
};

const timestamptz: Parse = (text) =>
  text.replace(
    utcTimestamp,
    (_, year, month, day, time, fraction = '') => `${year}-${month}-${day}T${time}.${fraction.padEnd(6, '0')}Z`,
  );

/** The types of `pg-types` call it a function; it is an object. */
const { create: createArrayParser } = pg.types.arrayParser as unknown as {
  create(text: string, parse: Parse): { parse(): unknown[] };
};

const arrayOf =
  (parse: Parse): Parse =>
  (text) =>
    createArrayParser(text, parse).parse();

const { INT8, TIMESTAMPTZ, TIMESTAMP, DATE } = pg.types.builtins;

/** By the number of the type in `pg_type`; arrays have numbers of their own, which `pg` does not name. */
const parsers = new Map<number, Parse>([
  [INT8, int8],
  [1016, arrayOf(int8)],
  [TIMESTAMPTZ, timestamptz],
  [1185, arrayOf(timestamptz)],
  [TIMESTAMP, asText],
  [1115, arrayOf(asText)],
  [DATE, asText],
  [1182, arrayOf(asText)],
]);

/** How the values of our own connections are read; `pg`'s global table stays as it is, because other libraries rely on it. */
export const valueTypes = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    (format === 'binary' ? undefined : parsers.get(oid)) ??
    pg.types.getTypeParser(oid, format as 'text')) as typeof pg.types.getTypeParser,
};
