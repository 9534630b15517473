/** The parts of an object's name, without slashes at their ends, joined by one; empty parts are left out. */
export function joinKey(...parts: readonly (string | undefined)[]): string {
  return parts.flatMap((part) => part?.replace(/^\/+|\/+$/g, '') || []).join('/');
}
