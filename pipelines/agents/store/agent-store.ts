import {
  BaseStore,
  type GetOperation,
  type Item,
  type ListNamespacesOperation,
  type Operation,
  type OperationResults,
  type PutOperation,
  type SearchItem,
  type SearchOperation,
} from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { sqlThrough } from '../../../infra/postgres/connection.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { getItems, listNamespaces, searchItems } from './read-items.ts';
import type { FoundItem, StoreRules } from './store-item.ts';
import { deleteItems, putItems } from './write-items.ts';

/**
 * The LangGraph store of one deployment, in Postgres. A batch runs all reads before its writes. All gets are one
 * statement, as are all puts and all deletions.
 */
export class AgentStore extends BaseStore {
  readonly #sql: Sql;
  readonly #deploymentId: string;
  readonly #rules: StoreRules;

  constructor(pool: pg.Pool, deploymentId: string, rules: StoreRules) {
    super();
    this.#sql = sqlThrough((text, params, options) =>
      pool.query({ text, values: [...(params ?? [])], ...(options?.name !== undefined && { name: options.name }) }),
    );
    this.#deploymentId = deploymentId;
    this.#rules = rules;
  }

  /**
   * Runs a batch. Results have the order of `operations`.
   *
   * @throws STORE_NAMESPACE_INVALID, STORE_KEY_INVALID, STORE_FILTER_INVALID, STORE_TOO_MANY_VECTORS, STORE_EMBEDDER_UNUSABLE
   */
  override async batch<Op extends Operation[]>(operations: Op): Promise<OperationResults<Op>> {
    const results: unknown[] = operations.map(() => undefined);
    const entries = operations.map((operation, index) => ({ operation, index }));
    const gets = entries.filter((one): one is Indexed<GetOperation> => isGet(one.operation));
    const puts = entries
      .filter((one): one is Indexed<PutOperation> => isPut(one.operation))
      .map((one) => one.operation);
    const [sql, deploymentId, rules] = [this.#sql, this.#deploymentId, this.#rules];

    const read = async () => {
      const keys = gets.map(({ operation }) => operation);
      const items = await getItems(sql, deploymentId, keys, rules.refreshOnRead);
      for (const [order, { index }] of gets.entries()) results[index] = items[order] && toItem(items[order]);
    };
    const search = async ({ operation, index }: Indexed<Operation>) => {
      if (isSearch(operation)) {
        const { namespacePrefix, filter, query, limit = 10, offset = 0 } = operation;
        const wanted = { namespacePrefix, filter, query, limit, offset, refresh: rules.refreshOnRead };
        results[index] = (await searchItems(sql, deploymentId, rules, wanted)).map(toItem);
      } else if (isList(operation)) {
        const { matchConditions = [], maxDepth, limit, offset } = operation;
        const matches = matchConditions.map(({ matchType: side, path: labels }) => ({ side, labels }));
        results[index] = await listNamespaces(sql, deploymentId, { matches, maxDepth, limit, offset });
      }
    };
    await Promise.all([read(), ...entries.map(search)]);

    const last = [...new Map(puts.map((put) => [JSON.stringify([put.namespace, put.key]), put])).values()];
    const stored = last.flatMap(({ value, ...rest }) => (value === null ? [] : [{ ...rest, value }]));
    await putItems(sql, deploymentId, rules, stored);
    await deleteItems(
      sql,
      deploymentId,
      last.filter(({ value }) => value === null),
    );
    return results as OperationResults<Op>;
  }
}

interface Indexed<Op> {
  readonly operation: Op;
  readonly index: number;
}

const isSearch = (operation: Operation): operation is SearchOperation => 'namespacePrefix' in operation;
const isPut = (operation: Operation): operation is PutOperation => 'value' in operation;
const isGet = (operation: Operation): operation is GetOperation => 'key' in operation && !isPut(operation);
const isList = (operation: Operation): operation is ListNamespacesOperation =>
  !('key' in operation) && !isSearch(operation);

function toItem({ created_at, updated_at, namespace, ...item }: FoundItem): Item & SearchItem {
  return { ...item, namespace: [...namespace], createdAt: new Date(created_at), updatedAt: new Date(updated_at) };
}
