/** `text` as a lower-case UUID with dashes; also taken with capitals and as 32 digits without dashes. `undefined` otherwise. */
export function parseUuid(text: string): string | undefined {
  if (text.length === 36) return dashed.test(text) ? text.toLowerCase() : undefined;
  if (text.length !== 32 || !bare.test(text)) return undefined;
  const digits = text.toLowerCase();
  return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-${digits.slice(12, 16)}-${digits.slice(16, 20)}-${digits.slice(20)}`;
}

const dashed = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const bare = /^[0-9a-f]{32}$/i;

/** The time inside a UUID of version 7, in microseconds since 1970; `undefined` for other versions. Source: RFC 9562. */
export function timeOfUuid(id: string): number | undefined {
  if (id[14] !== '7') return undefined;
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) * 1_000;
}
