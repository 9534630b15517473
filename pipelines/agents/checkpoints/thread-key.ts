const keyPattern = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/** The name of a thread in the tables of checkpoints, whose library knows no deployments. */
export function threadKey(deploymentId: string, threadId: string): string {
  return `${deploymentId}:${threadId}`;
}

/** Undefined for a text that {@link threadKey} does not make. */
export function splitThreadKey(key: unknown): { readonly deploymentId: string; readonly threadId: string } | undefined {
  const match = typeof key === 'string' ? keyPattern.exec(key) : null;
  return match === null ? undefined : { deploymentId: match[1]!, threadId: match[2]! };
}
