/** An assistant, with its field names on the wire. Source: LangGraph Platform API, Assistant. */
import { LRUCache } from 'lru-cache';
import { v5 as uuidv5 } from 'uuid';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { isUuid } from '../../ingest/run-event/uuid.ts';
import type { GraphConfig } from '../runs/run.ts';

export interface AssistantVersion {
  readonly assistant_id: string;
  readonly graph_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly config: GraphConfig;
  readonly context: unknown;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly version: number;
  readonly created_at: string;
}

export interface Assistant extends AssistantVersion {
  readonly updated_at: string;
}

/** Columns of `agents.assistants` that form an `Assistant`, as stored. */
export const assistantColumns =
  'assistant_id, graph_id, name, description, config, context, metadata, version, created_at, updated_at';

/** Copies the current row of assistant $2 in deployment $1 to `agents.assistant_versions`. */
export const insertVersionSql = `INSERT INTO agents.assistant_versions
  (deployment_id, assistant_id, version, graph_id, name, description, config, context, metadata)
  SELECT deployment_id, assistant_id, version, graph_id, name, description, config, context, metadata
  FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2`;

/**
 * Namespace of the ids of system assistants. It equals the namespace of the reference server, because clients compute
 * these ids.
 */
const graphNamespace = '6ba7b821-9dad-11d1-80b4-00c04fd430c8';

/** Returns the id of a graph's system assistant. The server creates this assistant when it first serves the graph. */
export function computeSystemAssistantId(graphId: string): string {
  // Pass bytes, because the package throws if the text contains a lone surrogate.
  return uuidv5(Buffer.from(graphId), graphNamespace);
}

/** Returns an assistant id in lower case or, for a graph id, the id of the graph's system assistant. */
export function resolveAssistantId(idOrGraphId: string): string {
  return isUuid(idOrGraphId) ? idOrGraphId.toLowerCase() : computeSystemAssistantId(idOrGraphId);
}

/** Reads an assistant by its id, or the system assistant of a graph by the id of the graph. @throws ASSISTANT_NOT_FOUND */
export async function resolveAssistant(database: Sql, deploymentId: string, idOrGraphId: string): Promise<Assistant> {
  const assistant = await findAssistant(database, deploymentId, resolveAssistantId(idOrGraphId));
  if (assistant === undefined) throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: idOrGraphId.slice(0, 100) });
  return assistant;
}

export async function findAssistant(
  database: Sql,
  deploymentId: string,
  assistantId: string,
): Promise<Assistant | undefined> {
  const [row] = await database.query<Assistant>(
    `SELECT ${assistantColumns} FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2`,
    [deploymentId, assistantId],
    { name: 'agents_read_assistant' },
  );
  return row;
}

const maxCachedAssistants = 200;
const maxCachedCharacters = 16 * 1024;

/**
 * Cache of assistants, as they were when last read. Entries can be stale, so code that uses an entry must check that
 * its `updated_at` is still current. The statement that creates a run does this.
 */
export class RecentAssistants {
  readonly #assistants = new LRUCache<string, Assistant>({ max: maxCachedAssistants });

  get(deploymentId: string, idOrGraphId: string): Assistant | undefined {
    return this.#assistants.get(buildCacheKey(deploymentId, idOrGraphId));
  }

  /** Caches the assistant, unless it is large. If the cache is full, evicts an entry. */
  record(deploymentId: string, assistant: Assistant): void {
    const key = buildCacheKey(deploymentId, assistant.assistant_id);
    if (JSON.stringify(assistant).length > maxCachedCharacters) this.#assistants.delete(key);
    else this.#assistants.set(key, assistant);
  }
}

function buildCacheKey(deploymentId: string, idOrGraphId: string): string {
  return `${deploymentId} ${resolveAssistantId(idOrGraphId)}`;
}
