import { type Static, type TObject, Type } from 'typebox';

/**
 * All kinds of background jobs, each with its payload schema and execution rules. Producers and workers share this
 * table. Payloads of released versions must stay readable: add only optional fields, and never rename a field.
 */
export interface JobEntry<Payload extends TObject = TObject> {
  readonly payload: Payload;
  /** Timeout of one attempt. When it expires, the handler's signal is aborted and the attempt counts as failed. */
  readonly timeoutMs: number;
  /** Maximum number of attempts. After the last attempt, the job is kept as failed for a week. */
  readonly attempts: number;
  /** Delay before the second attempt. If `exponentialBackoff` is true, the delay doubles for each further attempt. */
  readonly retryDelayMs: number;
  readonly exponentialBackoff: boolean;
  /** Maximum number of concurrent jobs of this kind in one process. */
  readonly concurrency: number;
}

const uuid = Type.String({ format: 'uuid' });
const closed = { additionalProperties: false };

export const jobCatalogue = {
  /** Moves events that were deferred for too long to the dead-letter queue. */
  'expire-deferred-events': {
    payload: Type.Object({}, closed),
    timeoutMs: 300_000,
    attempts: 3,
    retryDelayMs: 10_000,
    exponentialBackoff: false,
    concurrency: 1,
  },
  /** Replays a dead-letter record of the in-process log. Only the process that runs the log can do this. */
  'replay-dead-letter': {
    payload: Type.Object({ dead_letter_id: Type.String({ minLength: 1, maxLength: 200 }) }, closed),
    timeoutMs: 120_000,
    attempts: 3,
    retryDelayMs: 2_000,
    exponentialBackoff: false,
    concurrency: 1,
  },
  /**
   * Queues the deletion job again for deleted projects and workspaces that still have data: the first job may have been
   * lost or never queued.
   */
  'requeue-deletions': {
    payload: Type.Object({}, closed),
    timeoutMs: 60_000,
    attempts: 3,
    retryDelayMs: 10_000,
    exponentialBackoff: false,
    concurrency: 1,
  },
  /** Deletes the runs of a deleted project. */
  'delete-project-runs': {
    payload: Type.Object({ workspace_id: uuid, project_id: uuid }, closed),
    timeoutMs: 3_600_000,
    attempts: 20,
    retryDelayMs: 5_000,
    exponentialBackoff: true,
    concurrency: 1,
  },
  /** Deletes the data of a deleted workspace. */
  'delete-workspace-data': {
    payload: Type.Object({ workspace_id: uuid }, closed),
    timeoutMs: 4 * 3_600_000,
    attempts: 20,
    retryDelayMs: 5_000,
    exponentialBackoff: true,
    concurrency: 1,
  },
  /** Keeps and deletes traces as requested. */
  'change-traces': {
    payload: Type.Object({}, closed),
    timeoutMs: 4 * 3_600_000,
    attempts: 3,
    retryDelayMs: 10_000,
    exponentialBackoff: true,
    concurrency: 1,
  },
  /** Starts a bulk export when it is due, and advances it. */
  'coordinate-export': {
    payload: Type.Object({ export_id: uuid }, closed),
    timeoutMs: 300_000,
    attempts: 1,
    retryDelayMs: 0,
    exponentialBackoff: false,
    concurrency: 8,
  },
  /** Processes one due export run. The exports module itself controls retries, timeouts and concurrency. */
  'export-run': {
    payload: Type.Object({ run_id: uuid }, closed),
    timeoutMs: 8 * 86_400_000,
    attempts: 1,
    retryDelayMs: 0,
    exponentialBackoff: false,
    concurrency: 2,
  },
} as const satisfies Record<string, JobEntry>;

export type JobCatalogue = Readonly<Record<string, JobEntry>>;
export type JobName<Catalogue extends JobCatalogue = typeof jobCatalogue> = keyof Catalogue & string;
export type JobPayload<Name extends JobName<Catalogue>, Catalogue extends JobCatalogue = typeof jobCatalogue> = Static<
  Catalogue[Name]['payload']
>;
