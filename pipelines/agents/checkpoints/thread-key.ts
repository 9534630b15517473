const keyPattern = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/** The name of a thread in the tables of checkpoints, whose libraries know no organisations. */
export function threadKey(organizationId: string, threadId: string): string {
  return `${organizationId}:${threadId}`;
}

/** Undefined for a text that {@link threadKey} does not make. */
export function splitThreadKey(
  key: unknown,
): { readonly organizationId: string; readonly threadId: string } | undefined {
  const match = typeof key === 'string' ? keyPattern.exec(key) : null;
  return match === null ? undefined : { organizationId: match[1]!, threadId: match[2]! };
}
