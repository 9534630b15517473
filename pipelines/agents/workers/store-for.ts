import { type BaseStore, InMemoryStore } from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { AgentStore } from '../store/agent-store.ts';
import type { StoreRules } from '../store/store-item.ts';

/** Returns the store of a deployment, for graphs without a store of their own. */
export type StoreFor = (deploymentId: string) => BaseStore;

/** Returns a function that finds stores. Without connections, stores keep items in the memory of this process. */
export function openStores(connections: pg.Pool | undefined, rules: StoreRules): StoreFor {
  const stores = new Map<string, BaseStore>();
  return (deploymentId) => {
    const store =
      stores.get(deploymentId) ??
      (connections === undefined ? new InMemoryStore() : new AgentStore(connections, deploymentId, rules));
    stores.set(deploymentId, store);
    return store;
  };
}
