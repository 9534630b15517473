import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { parseTime } from '../run-event/times.ts';
import { parseUuid } from '../run-event/uuid.ts';
import type { JsonValue, RunKey } from './read-run.ts';

/** Maximum size of a field that is stored decoded, such as a name. */
const maxTextBytes = 64 * 1024;

/** Builds the error for an invalid member; `name` names the run or item in the request. */
export type Invalid = (name: string, reason: string) => Error;

const invalidRun: Invalid = (run, reason) => runlakeError('INVALID_RUN', { run, reason });

/**
 * Reads single members and checks their types. The methods return `undefined` if a member is absent or null.
 * @throws INVALID_RUN that names the member, or the error that `invalid` builds.
 */
export class MemberReader<K extends string = RunKey> {
  readonly #members: { readonly [P in K]?: JsonValue };
  readonly #name: string;
  readonly #invalid: Invalid;

  constructor(name: string, members: { readonly [P in K]?: JsonValue }, invalid = invalidRun) {
    this.#name = name;
    this.#members = members;
    this.#invalid = invalid;
  }

  text(key: K): string | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    if (value.kind !== 'string') throw this.createError(key, 'must be a string');
    if (value.bytes.length > maxTextBytes) throw this.createError(key, `is longer than ${maxTextBytes} bytes`);
    return JSON.parse(value.bytes.toString('utf8')) as string;
  }

  uuid(key: K): string | undefined {
    const text = this.text(key);
    if (text === undefined) return undefined;
    const id = parseUuid(text);
    if (id === undefined) throw this.createError(key, 'must be a UUID');
    return id;
  }

  /** Microseconds since 1970. */
  time(key: K): number | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    const micros =
      value.kind === 'number' ? parseTime(Number(value.bytes.toString('latin1'))) : parseTime(this.text(key) as string);
    if (micros === undefined)
      throw this.createError(key, 'must be a time in ISO 8601 or in whole milliseconds since 1970');
    return micros;
  }

  /** Returns the unchanged bytes of the value, which must be of one of `kinds` if any are given. */
  json(key: K, ...kinds: JsonValue['kind'][]): Buffer | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    if (kinds.length > 0 && !kinds.includes(value.kind)) throw this.createError(key, `must be ${kinds.join(' or ')}`);
    return value.bytes;
  }

  createError(key: K, reason: string): Error {
    return this.#invalid(this.#name, `${key} ${reason}`);
  }

  #present(key: K): JsonValue | undefined {
    const value = this.#members[key];
    return value === undefined || value.kind === 'null' ? undefined : value;
  }
}
