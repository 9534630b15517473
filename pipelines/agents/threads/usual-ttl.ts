import type { GraphsFile } from '../graphs/graphs-file.ts';
import type { ThreadTtl } from './create-thread.ts';

/** What a langgraph.json says of threads that say nothing themselves; undefined: they stay for good. */
export function usualTtl({ ttl }: GraphsFile['checkpointer']): ThreadTtl | undefined {
  const { default_ttl: minutes, strategy = 'delete' } = ttl ?? {};
  return minutes === undefined ? undefined : { minutes, strategy };
}
