import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  BaseStore,
  type GetOperation,
  InMemoryStore,
  type Item,
  type ListNamespacesOperation,
  type Operation,
  type OperationResults,
  type PutOperation,
  type SearchItem,
  type SearchOperation,
} from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { createSql } from '../../../infra/postgres/connection.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { retryWhileUnavailable } from '../../../infra/postgres/database-error.ts';
import { getItems, listNamespaces, searchItems } from './read-items.ts';
import type { Embedder, FoundItem, StoreConfig } from './store-item.ts';
import { createUnusableEmbedderError, deleteItems, putItems } from './write-items.ts';

/**
 * The LangGraph store of one deployment, in Postgres. A batch runs all reads before its writes. All gets of a batch are
 * one statement; so are all puts, and all deletions.
 */
export class AgentStore extends BaseStore {
  readonly #sql: Sql;
  readonly #deploymentId: string;
  readonly #config: StoreConfig;

  constructor(pool: pg.Pool, deploymentId: string, config: StoreConfig) {
    super();
    // All statements of the store are idempotent.
    this.#sql = createSql((text, params, options) => {
      const values = [...(params ?? [])];
      return retryWhileUnavailable(() =>
        pool.query({ text, values, ...(options?.name !== undefined && { name: options.name }) }),
      );
    });
    this.#deploymentId = deploymentId;
    this.#config = config;
  }

  /**
   * Runs a batch. Results have the order of `operations`.
   *
   * @throws STORE_NAMESPACE_INVALID, STORE_KEY_INVALID, STORE_TOO_MANY_TEXTS, STORE_FILTER_INVALID,
   * STORE_TOO_MANY_VECTORS, STORE_EMBEDDER_UNUSABLE
   */
  override async batch<Op extends Operation[]>(operations: Op): Promise<OperationResults<Op>> {
    const results: unknown[] = operations.map(() => undefined);
    const entries = operations.map((operation, index) => ({ operation, index }));
    const indexedGets = entries.filter((one): one is IndexedOperation<GetOperation> => isGet(one.operation));
    const putOperations = entries
      .filter((one): one is IndexedOperation<PutOperation> => isPut(one.operation))
      .map((one) => one.operation);
    const [sql, deploymentId, config] = [this.#sql, this.#deploymentId, this.#config];

    const read = async () => {
      const keys = indexedGets.map(({ operation }) => operation);
      const items = await getItems(sql, deploymentId, keys, config.refreshOnRead);
      for (const [order, { index }] of indexedGets.entries()) results[index] = items[order] && toItem(items[order]);
    };
    const search = async ({ operation, index }: IndexedOperation<Operation>) => {
      if (isSearch(operation)) {
        const { namespacePrefix, filter, query, limit = 10, offset = 0 } = operation;
        const itemSearch = { namespacePrefix, filter, query, limit, offset, refresh: config.refreshOnRead };
        results[index] = (await searchItems(sql, deploymentId, config, itemSearch)).map(toItem);
      } else if (isList(operation)) {
        const { matchConditions = [], maxDepth, limit, offset } = operation;
        const matches = matchConditions.map(({ matchType: side, path: labels }) => ({ side, labels }));
        results[index] = await listNamespaces(sql, deploymentId, { matches, maxDepth, limit, offset });
      }
    };
    await Promise.all([read(), ...entries.map(search)]);

    const last = [...new Map(putOperations.map((put) => [JSON.stringify([put.namespace, put.key]), put])).values()];
    const stored = last.flatMap(({ value, ...rest }) => (value === null ? [] : [{ ...rest, value }]));
    await putItems(sql, deploymentId, config, stored);
    await deleteItems(
      sql,
      deploymentId,
      last.filter(({ value }) => value === null),
    );
    return results as OperationResults<Op>;
  }
}

interface IndexedOperation<Op> {
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

/** Returns the store of a deployment, for graphs without a store of their own. */
export type StoreFactory = (deploymentId: string) => BaseStore;

/** Returns a function that finds stores. Without connections, stores keep items in the memory of this process. */
export function openStores(connections: pg.Pool | undefined, config: StoreConfig): StoreFactory {
  const stores = new Map<string, BaseStore>();
  return (deploymentId) => {
    const store =
      stores.get(deploymentId) ??
      (connections === undefined ? new InMemoryStore() : new AgentStore(connections, deploymentId, config));
    stores.set(deploymentId, store);
    return store;
  };
}

/** Package and class of each provider of LangChain. The packages are dependencies of the project, not of Runlake. */
const providers: Readonly<Record<string, readonly [string, string]>> = {
  openai: ['@langchain/openai', 'OpenAIEmbeddings'],
  cohere: ['@langchain/cohere', 'CohereEmbeddings'],
  mistralai: ['@langchain/mistralai', 'MistralAIEmbeddings'],
  ollama: ['@langchain/ollama', 'OllamaEmbeddings'],
  bedrock: ['@langchain/aws', 'BedrockEmbeddings'],
  'google-genai': ['@langchain/google-genai', 'GoogleGenerativeAIEmbeddings'],
};

/**
 * Loads the embedder that `store.index.embed` of a langgraph.json names: `provider:model`, or `./file.ts:name` for a
 * function of texts or an object with `embedDocuments`. Runs code of the project, so call it only in a worker process.
 *
 * @throws STORE_EMBEDDER_UNUSABLE if it cannot be loaded.
 */
export async function loadEmbedder(embed: string, folder: string): Promise<Embedder> {
  try {
    const split = embed.lastIndexOf(':');
    const isPath = /^[./]/.test(embed);
    const [before, after] = split < 0 ? [embed, 'default'] : [embed.slice(0, split), embed.slice(split + 1)];
    return toEmbedder(
      isPath ? await importExport(resolve(folder, before), after) : await createProviderEmbedder(embed, folder),
    );
  } catch (cause) {
    if (isRunlakeError(cause)) throw cause;
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw createUnusableEmbedderError(`'${embed}' cannot be loaded: ${reason}`, cause);
  }
}

async function importExport(path: string, name: string): Promise<unknown> {
  const module = (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  if (module[name] === undefined) throw createUnusableEmbedderError(`${path} has no export '${name}'`);
  return module[name];
}

async function createProviderEmbedder(embed: string, folder: string): Promise<unknown> {
  const colon = embed.indexOf(':');
  const provider = providers[embed.slice(0, colon)];
  if (colon < 0 || provider === undefined)
    throw createUnusableEmbedderError(
      `'${embed}' is neither a path nor one of ${Object.keys(providers).join(', ')} followed by a colon and a model`,
    );
  const [name, className] = provider;
  const path = createRequire(join(folder, 'langgraph.json')).resolve(name);
  const EmbeddingsClass = (await importExport(path, className)) as new (options: { model: string }) => unknown;
  return new EmbeddingsClass({ model: embed.slice(colon + 1) });
}

function toEmbedder(found: unknown): Embedder {
  if (typeof found === 'function') return async (texts) => (await found([...texts])) as number[][];
  const embeddings = found as { embedDocuments?: (texts: string[]) => Promise<number[][]> } | null;
  if (typeof embeddings?.embedDocuments !== 'function')
    throw createUnusableEmbedderError(
      'the export that store.index.embed names is neither a function nor an object with embedDocuments',
    );
  return (texts) => embeddings.embedDocuments!([...texts]);
}
