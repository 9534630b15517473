import { type Static, type TSchema, Type } from 'typebox';

/** One setting: its environment variable, type and bounds, default and description. */
export interface Setting<S extends TSchema = TSchema> {
  readonly variable: string;
  readonly schema: S;
  /** Value if the variable is absent or empty; `undefined` leaves the setting unset. */
  readonly fallback: Static<S> | undefined;
  readonly description: string;
  /** `runlake config` prints secrets as `***`; of a URL it hides the user and password. */
  readonly secret: boolean;
}

export function required<S extends TSchema>(variable: string, schema: S, fallback: Static<S>, description: string) {
  return { variable, schema, fallback, description, secret: false } as const;
}

export function optional<S extends TSchema>(variable: string, schema: S, description: string, secret = false) {
  return { variable, schema, fallback: undefined, description, secret } as const;
}

export const text = Type.String({ minLength: 1 });
/** A URL with one of `schemes`. */
export const url = (...schemes: string[]) =>
  Type.String({ minLength: 1, format: 'uri', pattern: `^(?:${schemes.join('|')})://`, schemes });
/** URLs with one of `schemes`, separated by commas. */
export const urls = (...schemes: string[]) => {
  const one = `(?:${schemes.join('|')})://[^\\s,]+`;
  return Type.String({ minLength: 1, pattern: `^${one}(?:\\s*,\\s*${one})*$`, schemes });
};
export const count = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum });
export const bytes = (maximum = 1024 ** 3) => Type.Integer({ minimum: 1024, maximum });
const KIB = 1024;
export const MIB = 1024 * KIB;
