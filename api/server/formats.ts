import { type TSchema, type TSchemaOptions, Type } from 'typebox';
import Format from 'typebox/format';

/**
 * Timestamps in the forms that clients send: ISO 8601 with up to nine fraction digits, `T` or a space, and `Z`, an
 * offset, or no zone, which means UTC. {@link isTimestamp} also requires that the day exists in the calendar.
 */
const TIME =
  /^(\d{4})-(\d\d)-(\d\d)[T ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.\d{1,9})?)?(Z|[+-](?:0\d|1[0-5]):?[0-5]\d)?$/i;

function isTimestamp(text: string): boolean {
  const match = TIME.exec(text);
  if (!match) return false;
  const [year, month, day] = match.slice(1, 4).map(Number) as [number, number, number];
  return year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= countDays(year, month);
}

function countDays(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}

/**
 * Makes `format: 'date-time'` accept every timestamp form that clients send. Call once per process, before the first
 * validation.
 */
export function registerTimestampFormat(): void {
  Format.Set('date-time', isTimestamp);
}

// Building blocks of schemas. The building blocks are functions because options differ and schema objects must not be
// shared.

export const Uuid = (options: { description?: string } = {}) => Type.String({ format: 'uuid', ...options });

export const Timestamp = (options: { description?: string } = {}) => Type.String({ format: 'date-time', ...options });

/** Text that Postgres and ClickHouse can store: no NUL character, no lone surrogate. */
export const Text = (options: { minLength?: number; maxLength?: number; description?: string } = {}) =>
  Type.Refine(
    Type.String(options),
    (value) => !/[\0\p{Surrogate}]/u.test(value),
    () => 'must not contain NUL characters or lone surrogates',
  );

export const nullable = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Union([schema, Type.Null()], options);

/** A field that clients may omit or send as null, with the same meaning. */
export const optional = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Optional(nullable(schema, options));

/** A JSON object with any keys. The value is stored unchanged. */
export const JsonObject = (options: { description?: string; maxProperties?: number } = {}) =>
  Type.Unsafe<Record<string, unknown>>({ type: 'object', additionalProperties: true, ...options });
