import { type BaseStore, InMemoryStore } from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { AgentStore } from '../store/agent-store.ts';
import type { StoreRules } from '../store/store-item.ts';

/** The store of an organisation, for graphs that have none of their own. */
export type StoreFor = (organizationId: string) => BaseStore;

/** Without connections what is remembered lives in this process. */
export function openStores(connections: pg.Pool | undefined, rules: StoreRules): StoreFor {
  const stores = new Map<string, BaseStore>();
  return (organizationId) => {
    const store =
      stores.get(organizationId) ??
      (connections === undefined ? new InMemoryStore() : new AgentStore(connections, organizationId, rules));
    stores.set(organizationId, store);
    return store;
  };
}
