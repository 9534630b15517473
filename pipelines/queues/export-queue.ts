/** Exports the completed runs of a queue as CSV. */
import type { Readable } from 'node:stream';
import { formatCsv } from '../../infra/csv/format-csv.ts';
import { createChunkMemory, readForTenant } from '../../infra/fairness/tenant-context.ts';
import { readMembers } from '../datasets/files/download-dataset.ts';
import { readAllFeedback } from '../feedback/list-feedback.ts';
import type { ReadDeps } from '../runs/locate-run.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { readQueueRuns, type StoredQueueRun } from './read-queue-runs.ts';

/** Runs are large; these are in memory together, with their feedback. */
const runBatchSize = 20;

const runColumns = ['id', 'name', 'session_id', 'trace_id', 'start_time', 'inputs', 'outputs', 'error'] as const;
const queueColumns = ['queue_run_id', 'added_at', 'last_reviewed_time'] as const;

type Json = Readonly<Record<string, unknown>>;

/**
 * Formats runs of a queue as CSV while they are read. Values that are not text are written as JSON.
 *
 * @param withReviewers Whether to add the users that completed a run, and the feedback of each user instead of
 *   statistics.
 */
export function exportQueueRuns(
  deps: ReadDeps,
  { workspaceId: tenantId }: WorkspaceCaller,
  items: readonly StoredQueueRun[],
  withReviewers: boolean,
): Readable {
  const runInChunk = createChunkMemory();
  async function* generateRows(): AsyncGenerator<(string | undefined)[]> {
    for (let at = 0; at < items.length; at += runBatchSize) {
      const batch = items.slice(at, at + runBatchSize);
      const feedback = withReviewers ? await runInChunk(() => readFeedbackByRun(deps, tenantId, batch)) : undefined;
      for await (const runs of readQueueRuns(deps, tenantId, batch, runInChunk)) {
        for (const json of runs) yield formatRun(json, feedback);
      }
    }
  }
  const more = withReviewers ? ['completed_by', 'feedback'] : ['feedback_stats'];
  return formatCsv([...runColumns, ...queueColumns, ...more], readForTenant(generateRows()));
}

function formatRun(json: string, feedback: ReadonlyMap<string, readonly Json[]> | undefined): (string | undefined)[] {
  const run = JSON.parse(json) as Json;
  // Use the text of each JSON value, because numbers may have more digits than JavaScript can represent.
  const texts = readMembers(json);
  const cells = [...runColumns, ...queueColumns].map((column) => (run[column] == null ? '' : texts.get(column)));
  return feedback
    ? [...cells, texts.get('completed_by'), JSON.stringify(feedback.get(String(run.id)) ?? [])]
    : [...cells, run.feedback_stats == null ? '' : texts.get('feedback_stats')];
}

/** All feedback of some runs by run, newest first, with the names of the users. */
async function readFeedbackByRun(
  deps: ReadDeps,
  tenantId: string,
  runs: readonly StoredQueueRun[],
): Promise<ReadonlyMap<string, readonly Json[]>> {
  const byRun = new Map<string, Json[]>();
  const runIds = runs.map((run) => run.run_id);
  for await (const json of readAllFeedback(deps, { tenantId, filter: { runIds }, withUserNames: true })) {
    const entry = JSON.parse(json.toString()) as Json;
    const ofRun = byRun.get(String(entry.run_id));
    if (ofRun === undefined) byRun.set(String(entry.run_id), [pickFields(entry)]);
    else ofRun.push(pickFields(entry));
  }
  return byRun;
}

function pickFields({ key, score, value, comment, correction, feedback_source: source, created_at }: Json): Json {
  const { user_id, user_name } = (source ?? {}) as Json;
  return { key, score, value, comment, correction, user_id, user_name, created_at };
}
