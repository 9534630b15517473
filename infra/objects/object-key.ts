/** Joins the parts of an object key with single slashes; skips empty parts and trims slashes at the ends of parts. */
export function joinKey(...parts: readonly (string | undefined)[]): string {
  return parts.flatMap((part) => part?.replace(/^\/+|\/+$/g, '') || []).join('/');
}
