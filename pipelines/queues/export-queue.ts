/** Exports the completed runs of a queue as CSV. */
import type { Readable } from 'node:stream';
import { formatCsv } from '../../infra/csv/format-csv.ts';
import { readMembers } from '../datasets/files/download-dataset.ts';
import { listFeedback } from '../feedback/list-feedback.ts';
import type { ReadDeps } from '../runs/query-runs.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { type QueueItem, readQueueRuns } from './read-queue-runs.ts';

/** Number of runs that are in memory at the same time; runs are large. */
const runsAtOnce = 20;
const feedbackAtOnce = 100;

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
  items: readonly QueueItem[],
  withReviewers: boolean,
): Readable {
  async function* generateRows(): AsyncGenerator<(string | undefined)[]> {
    for (let at = 0; at < items.length; at += runsAtOnce) {
      for (const json of await readQueueRuns(deps, tenantId, items.slice(at, at + runsAtOnce))) {
        const run = JSON.parse(json) as Json;
        // Use the text of each JSON value, because numbers may have more digits than JavaScript can represent.
        const texts = readMembers(json);
        const cells = [...runColumns, ...queueColumns].map((column) => (run[column] == null ? '' : texts.get(column)));
        yield withReviewers
          ? [...cells, texts.get('completed_by'), JSON.stringify(await readFeedbackOf(deps, tenantId, String(run.id)))]
          : [...cells, run.feedback_stats == null ? '' : texts.get('feedback_stats')];
      }
    }
  }
  const more = withReviewers ? ['completed_by', 'feedback'] : ['feedback_stats'];
  return formatCsv([...runColumns, ...queueColumns, ...more], generateRows());
}

/** Reads all feedback of a run, with the names of the users. */
async function readFeedbackOf(deps: ReadDeps, tenantId: string, runId: string): Promise<Json[]> {
  const all: Json[] = [];
  for (;;) {
    const page = await listFeedback(deps, {
      tenantId,
      filter: { runIds: [runId] },
      limitRows: feedbackAtOnce,
      offsetRows: all.length,
      withUserNames: true,
    });
    const entries = JSON.parse(page.toString()) as Json[];
    all.push(...entries.map(pickFields));
    if (entries.length < feedbackAtOnce) return all;
  }
}

function pickFields({ key, score, value, comment, correction, feedback_source: source, created_at }: Json): Json {
  const { user_id, user_name } = (source ?? {}) as Json;
  return { key, score, value, comment, correction, user_id, user_name, created_at };
}
