import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import { findAccepted } from '../../infra/event-log/find-accepted.ts';
import { parseNullableJson, toJsonObject } from '../../infra/json/json-value.ts';
import { runEvents } from '../../schemas/topics.ts';
import type { AcceptSingleDeps } from '../ingest/accept/accept-single.ts';
import { scanValue } from '../ingest/json/scan.ts';
import { locateRuns, type ReadDeps } from '../runs/locate-run.ts';
import { readEachRun } from '../runs/query-runs.ts';
import type { RunExtras } from '../runs/run-columns.ts';
import { selectFields } from '../runs/run-select.ts';
import { createExampleError, maxExampleDepth, requireWriteSize } from './example.ts';

const runsPerQuery = 100;
const documentFields = ['inputs', 'outputs'] as const;

/** Inputs and outputs of a run as JSON text. */
interface SourceRun {
  readonly inputs: string;
  readonly outputs: string | null;
  /** Tool definitions in the invocation parameters of the run. */
  readonly tools?: unknown;
}

interface FoundRun extends SourceRun {
  /** Size of all copies. */
  readonly bytes: number;
  readonly hasEnded: boolean;
}

export interface SourceRunDeps extends Omit<ReadDeps, 'extras'> {
  readonly config: Pick<Config, 'maxBodyBytes' | 'maxPageBytes'>;
  readonly accept: Pick<AcceptSingleDeps, 'log' | 'config'>;
}

export interface ExampleWithSource {
  readonly id: string;
  readonly sourceRunId?: string | null | undefined;
  readonly useSourceRunIo?: boolean | null | undefined;
}

/** Empty sources for additional run fields. The query selects no field that needs them. */
const noExtras: RunExtras = {
  feedbackStats: async () => new Map(),
  attachmentUrls: async () => new Map(),
  shares: async () => new Map(),
  uses: async () => new Map(),
  datasets: async () => new Map(),
};

/**
 * Reads the runs from which examples copy inputs and outputs, as they are stored.
 *
 * @throws INVALID_EXAMPLE if a run does not exist; BAD_REQUEST if the copies together exceed `maxBodyBytes`, or if a
 *   hundred runs are larger than 64 MiB; TOO_DEEP; NOT_STORED_YET if a run, or the end of a run, may be among the events that are
 *   not stored yet; errors of the stores and the log.
 */
export async function readSourceRuns(
  deps: SourceRunDeps,
  tenantId: string,
  examples: readonly ExampleWithSource[],
  { withTools }: { readonly withTools: boolean },
): Promise<Map<string, SourceRun>> {
  const examplesWithSource = examples.filter(({ useSourceRunIo }) => useSourceRunIo === true);
  const missing = examplesWithSource.find(({ sourceRunId }) => !sourceRunId);
  if (missing) throw createExampleError(missing.id, 'use_source_run_io needs source_run_id');
  const copies = new Map<string, number>();
  for (const { sourceRunId } of examplesWithSource) {
    copies.set(sourceRunId as string, (copies.get(sourceRunId as string) ?? 0) + 1);
  }
  const runIds = [...copies.keys()];
  const found = new Map<string, FoundRun>();
  const selected = selectFields([...documentFields, ...(withTools ? (['extra'] as const) : [])]);
  let bytes = 0;
  // The outputs of a run that has not ended may be in a patch that is not stored yet.
  const isComplete = (id: string) => found.get(id)?.hasEnded === true;
  const readIncomplete = async () => {
    const ids = runIds.filter((id) => !isComplete(id));
    for (let at = 0; at < ids.length; at += runsPerQuery) await readInto(ids.slice(at, at + runsPerQuery));
    return runIds.every(isComplete) || undefined;
  };
  const readInto = async (ids: readonly string[]) => {
    const query = { tenantId, runIds: ids, filter: {}, selected, order: 'asc' } as const;
    for (const { row } of await readEachRun({ ...deps, extras: noExtras }, query)) {
      const run = { inputs: row.text('inputs') ?? '{}', outputs: row.text('outputs') ?? null };
      const { runId } = row.key;
      const tools = withTools ? readTools(row.text('extra')) : undefined;
      checkDepth(runId, [
        row.bytes('inputs'),
        row.bytes('outputs'),
        tools === undefined ? undefined : row.bytes('extra'),
      ]);
      const texts = [run.inputs, run.outputs ?? '', tools === undefined ? '' : JSON.stringify(tools)];
      const copied = copies.get(runId)! * texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
      bytes += copied - (found.get(runId)?.bytes ?? 0);
      requireWriteSize(bytes, deps.config);
      found.set(runId, { ...run, tools, bytes: copied, hasEnded: row.bytes('endedAtMicros') !== undefined });
    }
  };
  const { log, config } = deps.accept;
  await findAccepted({ log, topic: runEvents, waitMs: 0, storeWaitMs: config.patchWaitMs }, readIncomplete);
  const unknown = examplesWithSource.find(({ sourceRunId }) => !found.has(sourceRunId as string));
  if (unknown) throw createExampleError(unknown.id, `its source run ${unknown.sourceRunId} does not exist`);
  return found;
}

/** Checks values of a run, which may be nested deeper than those of examples. @throws TOO_DEEP */
function checkDepth(runId: string, values: readonly (Buffer | undefined)[]): void {
  const limits = { part: `run ${runId}`, maxDepth: maxExampleDepth, limit: 'the limit of examples' };
  for (const value of values) if (value) scanValue(value, 0, value.length, limits);
}

/** Time from the start of a run after which its attachments are stored. */
const recentMicros = 86_400_000_000;

/** Returns whether one of the runs has started recently or is not stored. @throws errors of ClickHouse. */
export async function areRecent(
  clickhouse: ClickHouse,
  workspaceId: string,
  runIds: readonly string[],
): Promise<boolean> {
  const wanted = new Set(runIds);
  if (wanted.size === 0) return false;
  const located = await locateRuns(clickhouse, workspaceId, [...wanted]);
  const earliest = Date.now() * 1_000 - recentMicros;
  return (
    located.some(({ startTimeMicros }) => startTimeMicros > earliest) ||
    new Set(located.map(({ runId }) => runId)).size < wanted.size
  );
}

/** LangChain's chat models trace their tools among the invocation parameters, and not in the inputs. */
function readTools(extra: string | null | undefined): unknown {
  const { invocation_params: parameters } = toJsonObject(parseNullableJson(extra ?? null));
  return toJsonObject(parameters).tools;
}
