import { fault } from '../../../infra/errors/runlake-error.ts';
import { parseTime } from '../run-event/times.ts';
import { parseUuid } from '../run-event/uuid.ts';
import type { JsonValue, RunKey, RunMembers } from './run-members.ts';

/** Longest text of a field that is stored decoded, such as a name. */
const maxTextBytes = 64 * 1024;

/** One member read as what it has to be; `undefined` where it is absent or null. @throws INVALID_RUN that names it. */
export class MemberReader {
  readonly #members: RunMembers;
  readonly #run: string;

  constructor(run: string, members: RunMembers) {
    this.#run = run;
    this.#members = members;
  }

  text(key: RunKey): string | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    if (value.kind !== 'string') throw this.misfit(key, 'must be a string');
    if (value.bytes.length > maxTextBytes) throw this.misfit(key, `is longer than ${maxTextBytes} bytes`);
    return JSON.parse(value.bytes.toString('utf8')) as string;
  }

  uuid(key: RunKey): string | undefined {
    const text = this.text(key);
    if (text === undefined) return undefined;
    const id = parseUuid(text);
    if (id === undefined) throw this.misfit(key, 'must be a UUID');
    return id;
  }

  /** Microseconds since 1970. */
  time(key: RunKey): number | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    const micros =
      value.kind === 'number' ? parseTime(Number(value.bytes.toString('latin1'))) : parseTime(this.text(key) as string);
    if (micros === undefined) throw this.misfit(key, 'must be a time in ISO 8601 or in whole milliseconds since 1970');
    return micros;
  }

  /** The value as it came, of one of `kinds`. */
  json(key: RunKey, ...kinds: JsonValue['kind'][]): Buffer | undefined {
    const value = this.#present(key);
    if (value === undefined) return undefined;
    if (kinds.length > 0 && !kinds.includes(value.kind)) throw this.misfit(key, `must be ${kinds.join(' or ')}`);
    return value.bytes;
  }

  misfit(key: RunKey, reason: string): Error {
    return fault('INVALID_RUN', { run: this.#run, reason: `${key} ${reason}` });
  }

  #present(key: RunKey): JsonValue | undefined {
    const value = this.#members[key];
    return value === undefined || value.kind === 'null' ? undefined : value;
  }
}
