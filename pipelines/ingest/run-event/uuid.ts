const uuidCharacters = 36;

/** 1 for digits and lower-case letters, 2 for capitals. */
const hexKind = new Uint8Array(128);
for (const digit of '0123456789abcdef') hexKind[digit.charCodeAt(0)] = 1;
for (const digit of 'ABCDEF') hexKind[digit.charCodeAt(0)] = 2;

const bareUuidPattern = /^[0-9a-f]{32}$/i;

/**
 * Normalises a UUID to lower case with dashes. Accepts capitals, and 32 digits without dashes. Returns `undefined` for
 * any other text.
 */
export function parseUuid(text: string): string | undefined {
  if (text.length === uuidCharacters) {
    const form = readUuidForm(text, 0);
    return form === 'lower' ? text : form === 'capitals' ? text.toLowerCase() : undefined;
  }
  if (text.length !== 32 || !bareUuidPattern.test(text)) return undefined;
  const digits = text.toLowerCase();
  return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-${digits.slice(12, 16)}-${digits.slice(16, 20)}-${digits.slice(20)}`;
}

/** Returns true for a UUID with dashes. Use it for texts that may also be names, for which 32 digits are a valid name. */
export const isUuid = (text: string) => text.length === uuidCharacters && readUuidForm(text, 0) !== undefined;

/** Returns the spelling of the 36-character UUID at `at`; `undefined` if there is none. Allocates no strings. */
export function readUuidForm(text: string, at: number): 'lower' | 'capitals' | undefined {
  let kinds = 0;
  for (let index = 0; index < uuidCharacters; index++) {
    const code = text.charCodeAt(at + index);
    if (index === 8 || index === 13 || index === 18 || index === 23) {
      if (code !== 0x2d) return undefined;
    } else {
      const kind = code < 128 ? hexKind[code]! : 0;
      if (kind === 0) return undefined;
      kinds |= kind;
    }
  }
  return (kinds & 2) === 0 ? 'lower' : 'capitals';
}

/**
 * Returns the time in a version 7 UUID, in microseconds since 1970; `undefined` for other versions. Source: RFC 9562.
 */
export function readUuidTimeMicros(id: string): number | undefined {
  if (id[14] !== '7') return undefined;
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) * 1_000;
}

/** Returns the ids in lower case, as they are stored, without duplicates. */
export function toUniqueIds(ids: readonly string[]): string[] {
  return [...new Set(ids.map((id) => id.toLowerCase()))];
}
