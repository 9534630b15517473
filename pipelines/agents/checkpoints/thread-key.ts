const keyPattern = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/** The `thread_id` of a thread in the checkpoint tables. It includes the deployment, which LangGraph has no field for. */
export function threadKey(deploymentId: string, threadId: string): string {
  return `${deploymentId}:${threadId}`;
}

/** Inverse of {@link threadKey}. Undefined if `key` is not such a key. */
export function splitThreadKey(key: unknown): { readonly deploymentId: string; readonly threadId: string } | undefined {
  const match = typeof key === 'string' ? keyPattern.exec(key) : null;
  return match === null ? undefined : { deploymentId: match[1]!, threadId: match[2]! };
}
