import { type Static, type TObject, Type } from 'typebox';

/**
 * Every kind of background job: what it carries and by which rules it runs. Who enqueues and who works share this table.
 * A payload once released stays readable: fields are added as optional ones, never renamed.
 */
export interface JobEntry<Payload extends TObject = TObject> {
  readonly payload: Payload;
  /** Longest time of one attempt; the handler's signal is then aborted and the attempt counts as failed. */
  readonly timeoutMs: number;
  /** Attempts in all; after the last one the job stays as failed, for a week. */
  readonly attempts: number;
  /** Pause before the second attempt; each further one is twice as long where `growing`. */
  readonly retryDelayMs: number;
  readonly growing: boolean;
  /** Most jobs of this kind that one process runs at once. */
  readonly concurrency: number;
}

const uuid = Type.String({ format: 'uuid' });
const closed = { additionalProperties: false };

export const jobCatalogue = {
  /** Puts events that waited too long for their trace to the dead letters. */
  'expire-parked-events': {
    payload: Type.Object({}, closed),
    timeoutMs: 300_000,
    attempts: 3,
    retryDelayMs: 10_000,
    growing: false,
    concurrency: 1,
  },
  /** Puts a dead letter of the in-process log back into it, which only the process that runs it can. */
  'replay-dead-letter': {
    payload: Type.Object({ letter_id: Type.String({ minLength: 1, maxLength: 200 }) }, closed),
    timeoutMs: 120_000,
    attempts: 3,
    retryDelayMs: 2_000,
    growing: false,
    concurrency: 1,
  },
  /** Looks for deleted projects and workspaces whose data is there and whose job was never queued, or got lost. */
  'requeue-deletions': {
    payload: Type.Object({}, closed),
    timeoutMs: 60_000,
    attempts: 3,
    retryDelayMs: 10_000,
    growing: false,
    concurrency: 1,
  },
  /** Deletes the runs of a project that was deleted. */
  'delete-project-runs': {
    payload: Type.Object({ workspace_id: uuid, project_id: uuid }, closed),
    timeoutMs: 3_600_000,
    attempts: 20,
    retryDelayMs: 5_000,
    growing: true,
    concurrency: 1,
  },
  /** Deletes the data of a workspace that was deleted. */
  'delete-workspace-data': {
    payload: Type.Object({ workspace_id: uuid }, closed),
    timeoutMs: 4 * 3_600_000,
    attempts: 20,
    retryDelayMs: 5_000,
    growing: true,
    concurrency: 1,
  },
  /** Starts a bulk export when its turn has come, and brings it on. */
  'coordinate-export': {
    payload: Type.Object({ export_id: uuid }, closed),
    timeoutMs: 300_000,
    attempts: 1,
    retryDelayMs: 0,
    growing: false,
    concurrency: 8,
  },
  /** Looks at a run of a bulk export and does what its row says. Retries, time limits and concurrency are those of the export. */
  'export-run': {
    payload: Type.Object({ run_id: uuid }, closed),
    timeoutMs: 8 * 86_400_000,
    attempts: 1,
    retryDelayMs: 0,
    growing: false,
    concurrency: 2,
  },
} as const satisfies Record<string, JobEntry>;

export type JobCatalogue = Readonly<Record<string, JobEntry>>;
export type JobName<Catalogue extends JobCatalogue = typeof jobCatalogue> = keyof Catalogue & string;
export type JobPayload<Name extends JobName<Catalogue>, Catalogue extends JobCatalogue = typeof jobCatalogue> = Static<
  Catalogue[Name]['payload']
>;
