/** A cron, with the names that it has on the wire. Source: reference `agent-server.md` 1.1 and 6; openapi/agent-server.json. */

export const onRunCompleted = ['delete', 'keep'] as const;
export type OnRunCompleted = (typeof onRunCompleted)[number];

export interface Cron {
  readonly cron_id: string;
  readonly assistant_id: string;
  /** Null: each run has a thread of its own. */
  readonly thread_id: string | null;
  /** Five fields. */
  readonly schedule: string;
  /** A name of the IANA database; null: UTC. */
  readonly timezone: string | null;
  /** The last instant that it may fire at; null: it never ends. */
  readonly end_time: string | null;
  /** Null: it will not fire again as it stands, because it has ended or is not enabled. */
  readonly next_run_date: string | null;
  /** What becomes of the thread of each run; null where the runs are on one thread. */
  readonly on_run_completed: OnRunCompleted | null;
  readonly enabled: boolean;
  /** The body of a request for a run. */
  readonly payload: Readonly<Record<string, unknown>>;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly user_id: string | null;
  readonly created_at: string;
  readonly updated_at: string;
}

export const cronFields = [
  'cron_id',
  'assistant_id',
  'thread_id',
  'schedule',
  'timezone',
  'end_time',
  'next_run_date',
  'on_run_completed',
  'enabled',
  'payload',
  'metadata',
  'user_id',
  'created_at',
  'updated_at',
] as const satisfies readonly (keyof Cron)[];

/** The columns of {@link Cron}, which are named as its fields. */
export const cronColumns = cronFields.join(', ');

/** Notifies the processes of the deployment $1, at commit, that the next time of a cron may have changed. */
export const notifyCrons = "SELECT pg_notify('agent_crons', $1)";
