import { type Static, type TSchema, Type } from 'typebox';

/** One setting: the variable it is read from, its type and bounds, its default, and what it is for. */
export interface Setting<S extends TSchema = TSchema> {
  readonly variable: string;
  readonly schema: S;
  /** The value where the variable is absent or empty; `undefined` means: not set. */
  readonly fallback: Static<S> | undefined;
  readonly about: string;
  /** Printed as `***`, also inside addresses. */
  readonly secret: boolean;
}

export function required<S extends TSchema>(variable: string, schema: S, fallback: Static<S>, about: string) {
  return { variable, schema, fallback, about, secret: false } as const;
}

export function optional<S extends TSchema>(variable: string, schema: S, about: string, secret = false) {
  return { variable, schema, fallback: undefined, about, secret } as const;
}

export const text = Type.String({ minLength: 1 });
/** An address with one of `schemes`. */
export const url = (...schemes: string[]) =>
  Type.String({ minLength: 1, format: 'uri', pattern: `^(?:${schemes.join('|')})://`, schemes });
export const count = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum });
export const bytes = (maximum = 1024 ** 3) => Type.Integer({ minimum: 1024, maximum });
export const KIB = 1024;
export const MIB = 1024 * KIB;
