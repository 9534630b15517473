import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { findProjectsByName } from '../projects/resolve-project.ts';
import { findTraceRoots } from '../runs/trace-roots.ts';
import { type FeedbackConfig, readEnforcedConfigs, requireMatch } from './feedback-config.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import type { ParsedFeedback } from './read-feedback.ts';
import type { SentConfigs } from './sent-config.ts';

/** What feedback is checked against before it is stored. */
export interface PrepareDeps {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly sentConfigs: Pick<SentConfigs, 'keep' | 'findKnown'>;
}

/**
 * Reads what the given feedback entries of a workspace need, and returns a function that prepares one of them: it
 * checks the values against an enforced config of the key, stores the config that the client sent, and returns the
 * event to store. Feedback on a trace refers to its root run. Feedback on a run of an agent whose project does not exist
 * yet gets no project, as if it named none: it belongs to that of its run, which may arrive later.
 *
 * The returned function throws INVALID_FEEDBACK, LIMIT_REACHED, TOO_MANY_PARTS, PROJECT_UNKNOWN for feedback on the
 * missing project of an agent, errors of the database, and the reason of `disconnected` if a config is to be stored
 * after the client has left.
 *
 * @throws errors of the database.
 */
export async function openPreparation(
  { clickhouse, database, sentConfigs }: PrepareDeps,
  tenantId: string,
  entries: readonly ParsedFeedback[],
  disconnected?: AbortSignal,
): Promise<(entry: ParsedFeedback) => Promise<FeedbackEvent>> {
  const keys = entries.map(({ key }) => key);
  // The Python SDK repeats the id of the trace as the id of the run if it knows only the trace.
  const traceIds = entries.flatMap(({ runId, traceId }) => (traceId === runId ? [traceId] : []));
  const names = [...new Set(entries.flatMap(({ agentProject }) => agentProject ?? []))];
  const sentKeys = entries.flatMap(({ key, config }) => (config === undefined ? [] : [key]));
  const [enforced, configuredKeys, roots, agentProjects] = await Promise.all([
    readEnforcedConfigs(database, tenantId, keys),
    sentConfigs.findKnown(tenantId, sentKeys),
    findTraceRoots(clickhouse, tenantId, traceIds).catch(acceptWithoutRoots),
    findProjectsByName(database, { workspaceId: tenantId, names, withFormerNames: true }),
  ]);
  const keepConfig = openConfigs({ sentConfigs, tenantId, configuredKeys, disconnected });
  return async ({ config, agentProject, ...event }) => {
    requireMatch(enforced.get(event.key), event);
    const projectId = agentProject === undefined ? event.projectId : agentProjects.get(agentProject);
    if (projectId === undefined && event.runId === nilUuid)
      throw runlakeError('PROJECT_UNKNOWN', { project: String(agentProject) });
    if (config) await keepConfig(event.key, config);
    const runId = event.traceId === event.runId ? (roots.get(event.runId) ?? event.runId) : event.runId;
    return { ...event, projectId, runId };
  };
}

/**
 * Maximum number of keys that get a config from one request. Configs are stored one after the other, and each takes a
 * transaction that locks the organisation.
 */
const maxConfigsPerRequest = 1_000;

/**
 * Returns the function that stores the configs of one request, each key once. After one of them exceeds the limit of the
 * organisation, the request stores no others.
 */
function openConfigs({
  sentConfigs,
  tenantId,
  configuredKeys,
  disconnected,
}: Pick<PrepareDeps, 'sentConfigs'> & {
  readonly tenantId: string;
  readonly configuredKeys: ReadonlySet<string>;
  readonly disconnected: AbortSignal | undefined;
}): (key: string, config: FeedbackConfig) => Promise<void> {
  const stored = new Set<string>();
  let creationError: RunlakeError | undefined;
  return async (key, config) => {
    if (configuredKeys.has(key) || stored.has(key)) return;
    if (creationError) throw creationError;
    disconnected?.throwIfAborted();
    if (stored.size === maxConfigsPerRequest) {
      const limit = 'distinct feedback keys with a config of one request';
      throw runlakeError('TOO_MANY_PARTS', { limitParts: maxConfigsPerRequest, limit });
    }
    try {
      await sentConfigs.keep(tenantId, key, config);
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'LIMIT_REACHED') creationError = error;
      throw error;
    }
    stored.add(key);
  };
}

/** Feedback is accepted while ClickHouse is down, as runs are. It then refers to the run with the id of the trace. */
function acceptWithoutRoots(error: unknown): ReadonlyMap<string, string> {
  if (isRunlakeError(error) && error.status === 503) return new Map();
  throw error;
}
