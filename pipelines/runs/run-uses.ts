/** Uses of runs in datasets and annotation queues. */
import type { Database } from '../../infra/postgres/database.ts';
import type { RunUse } from './run-columns.ts';

interface UseRow {
  readonly id: string;
  readonly in_dataset: boolean;
  readonly queued_micros: string | null;
}

/**
 * Reads which runs are sources of current examples, and when they were last added to an annotation queue, by run. Runs
 * without either are omitted.
 *
 * @throws errors of the database.
 */
export async function readRunUses(
  database: Database,
  workspaceId: string,
  runIds: readonly string[],
): Promise<ReadonlyMap<string, RunUse>> {
  const rows = await database.query<UseRow>(
    `SELECT * FROM (
       SELECT run.id,
         EXISTS (SELECT FROM examples WHERE workspace_id = $1 AND source_run_id = run.id AND valid_to = 'infinity') AS in_dataset,
         (SELECT (extract(epoch FROM max(added_at)) * 1000000)::bigint::text
          FROM annotation_queue_runs JOIN annotation_queues ON annotation_queues.id = queue_id
          WHERE workspace_id = $1 AND run_id = run.id) AS queued_micros
       FROM unnest($2::uuid[]) AS run (id)) AS uses
     WHERE in_dataset OR queued_micros IS NOT NULL`,
    [workspaceId, runIds],
    { name: 'uses-of-runs' },
  );
  return new Map(
    rows.map(({ id, in_dataset: inDataset, queued_micros: micros }) => [
      id,
      { inDataset, lastQueuedMicros: micros === null ? undefined : Number(micros) },
    ]),
  );
}

/** Reads the dataset of each project that is an experiment, by project. @throws errors of the database. */
export async function readReferenceDatasets(
  database: Database,
  workspaceId: string,
  projectIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const rows = await database.query<{ id: string; dataset_id: string }>(
    `SELECT id, reference_dataset_id AS dataset_id FROM projects
     WHERE workspace_id = $1 AND id = ANY ($2::uuid[]) AND reference_dataset_id IS NOT NULL`,
    [workspaceId, projectIds],
    { name: 'datasets-of-experiments' },
  );
  return new Map(rows.map((row) => [row.id, row.dataset_id]));
}
