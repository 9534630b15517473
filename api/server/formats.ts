import { type TSchema, type TSchemaOptions, Type } from 'typebox';
import Format from 'typebox/format';

/**
 * Time stamps as clients send them: ISO 8601 with up to nine fraction digits, `T` or a space, with `Z`, an offset or no zone at
 * all, which counts as UTC. Stricter than a pattern: the day has to exist.
 */
const TIME =
  /^(\d{4})-(\d\d)-(\d\d)[T ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.\d{1,9})?)?(Z|[+-](?:0\d|1[0-5]):?[0-5]\d)?$/i;

function isTimestamp(text: string): boolean {
  const match = TIME.exec(text);
  if (!match) return false;
  const [year, month, day] = match.slice(1, 4).map(Number) as [number, number, number];
  return year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= daysOf(year, month);
}

function daysOf(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}

/** Makes checks of `format: 'date-time'` accept every form that clients use. Once per process, before the first check. */
export function acceptTimesOfClients(): void {
  Format.Set('date-time', isTimestamp);
}

// Building blocks of schemas. Functions, because options differ and schemas are not shared.

export const Uuid = (options: { description?: string } = {}) => Type.String({ format: 'uuid', ...options });

export const Timestamp = (options: { description?: string } = {}) => Type.String({ format: 'date-time', ...options });

/** Text that a store can hold: no NUL character, no half of a surrogate pair. */
export const Text = (options: { minLength?: number; maxLength?: number; description?: string } = {}) =>
  Type.Refine(
    Type.String(options),
    (value) => !/[\0\p{Surrogate}]/u.test(value),
    () => 'must not contain NUL characters or lone surrogates',
  );

export const nullable = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Union([schema, Type.Null()], options);

/** What clients leave out or send as null, which mean the same. */
export const optional = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Optional(nullable(schema, options));

/** A JSON object with any keys, preserved as they are. */
export const JsonObject = (options: { description?: string; maxProperties?: number } = {}) =>
  Type.Unsafe<Record<string, unknown>>({ type: 'object', additionalProperties: true, ...options });
