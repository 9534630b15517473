import type { GraphsFile } from '../graphs/graphs-file.ts';
import type { Embed, StoreRules } from './store-item.ts';

/**
 * Builds the rules from `store` of a langgraph.json. They have an index only if it is configured and `embed` is given.
 * Source: SPEC 2.10.
 */
export function storeRules({ index, ttl = {} }: GraphsFile['store'], embed: Embed | undefined): StoreRules {
  const { default_ttl: defaultTtlMinutes, refresh_on_read: refreshOnRead = true } = ttl;
  return {
    ...(index && embed && { index: { embed, dims: index.dims, fields: index.fields ?? ['$'] } }),
    ...(defaultTtlMinutes !== undefined && { defaultTtlMinutes }),
    refreshOnRead,
  };
}
