import { type TSchema, type TSchemaOptions, Type } from 'typebox';
import Format from 'typebox/format';
import { parseTime } from '../../pipelines/ingest/run-event/times.ts';

/**
 * Media type of JSON responses. An operation with this media type in `produces` serialises the body itself, because the
 * body contains stored JSON that must not be serialised again.
 */
export const jsonMediaType = 'application/json; charset=utf-8';

/**
 * Matches timestamps in the forms that clients send: ISO 8601 with up to nine fraction digits, with `T` or a space, and
 * with `Z`, an offset, or no time zone (which means UTC). The time must exist in the calendar and be in the years 1 to
 * 9999 in UTC.
 */
const timestampPattern = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(Z|[+-](?:0\d|1[0-5]):?[0-5]\d)?$/i;

/** Postgres rounds to microseconds. It would store such a time of the last millisecond as a time of the year 10000. */
const roundsUpPattern = /\.999999[5-9]/;
const lastMillisecond = parseTime('9999-12-31T23:59:59.999Z')!;

function isTimestamp(text: string): boolean {
  if (!timestampPattern.test(text)) return false;
  const micros = parseTime(text);
  return micros !== undefined && !(micros >= lastMillisecond && roundsUpPattern.test(text));
}

/**
 * Makes `format: 'date-time'` accept every timestamp form that clients send. Must be called once per process, before
 * the first validation.
 */
export function registerTimestampFormat(): void {
  Format.Set('date-time', isTimestamp);
}

/** Converts an optional field with the schema {@link Timestamp} to microseconds since 1970. */
export function parseOptionalTime(text: string | null | undefined): number | undefined {
  return text == null ? undefined : parseTime(text);
}

// Building blocks of schemas. They are functions, because their options differ and because schema objects must not be
// shared.

export const Uuid = (options: { description?: string } = {}) => Type.String({ format: 'uuid', ...options });

export const Timestamp = (options: { description?: string } = {}) => Type.String({ format: 'date-time', ...options });

/** Text that Postgres and ClickHouse can store: it has no NUL characters and no lone surrogates. */
export const Text = (options: { minLength?: number; maxLength?: number; description?: string } = {}) =>
  Type.Refine(
    Type.String(options),
    (value) => !/[\0\p{Surrogate}]/u.test(value),
    () => 'must not contain NUL characters or lone surrogates',
  );

export const nullable = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Union([schema, Type.Null()], options);

/** A field that clients may omit or send as null. Both have the same meaning. */
export const optional = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Optional(nullable(schema, options));

/** A text that is equal to one of `values`. */
export const OneOf = <const T extends string>(values: readonly T[], options: TSchemaOptions = {}) =>
  Type.Unsafe<T>(
    Type.Union(
      values.map((value) => Type.Literal(value)),
      options,
    ),
  );

/** A JSON object with any keys. The value is stored unchanged. */
export const JsonObject = (options: { description?: string; maxProperties?: number } = {}) =>
  Type.Unsafe<Record<string, unknown>>({ type: 'object', additionalProperties: true, ...options });

/** A JSON value of a run, as the client sent it. Stock clients send an object, but ingest accepts any JSON. */
export const RawJson = (description = 'The JSON that was sent, byte for byte; usually an object.') =>
  Type.Unknown({ description });
