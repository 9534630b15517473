import type { GraphsFile } from '../graphs/graphs-file.ts';
import type { ThreadTtl } from './create-thread.ts';

/** The TTL that a langgraph.json sets for threads without one of their own. Undefined: they do not expire. */
export function defaultTtl({ ttl }: GraphsFile['checkpointer']): ThreadTtl | undefined {
  const { default_ttl: minutes, strategy = 'delete' } = ttl ?? {};
  return minutes === undefined ? undefined : { minutes, strategy };
}
