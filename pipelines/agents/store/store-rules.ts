import type { GraphsFile } from '../graphs/graphs-file.ts';
import type { Embed, StoreRules } from './store-item.ts';

/** The rules that `store` of a langgraph.json sets. `embed` is only called where it names an index. Source: SPEC 2.10. */
export function storeRules({ index, ttl = {} }: GraphsFile['store'], embed: Embed | undefined): StoreRules {
  const { default_ttl: defaultTtlMinutes, refresh_on_read: refreshOnRead = true } = ttl;
  return {
    ...(index && embed && { index: { embed, dims: index.dims, fields: index.fields ?? ['$'] } }),
    ...(defaultTtlMinutes !== undefined && { defaultTtlMinutes }),
    refreshOnRead,
  };
}
