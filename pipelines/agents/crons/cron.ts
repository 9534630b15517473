/** A cron, with its field names on the wire. Source: reference `agent-server.md` 1.1 and 6; openapi/agent-server.json. */

export const onRunCompleted = ['delete', 'keep'] as const;
export type OnRunCompleted = (typeof onRunCompleted)[number];

export interface Cron {
  readonly cron_id: string;
  readonly assistant_id: string;
  /** Null: each run gets a new thread. */
  readonly thread_id: string | null;
  /** Cron expression with five fields. */
  readonly schedule: string;
  /** IANA time zone name; null: UTC. */
  readonly timezone: string | null;
  /** Last instant at which it can fire; null: it does not end. */
  readonly end_time: string | null;
  /** Null: it does not fire again, because it has ended or is disabled. */
  readonly next_run_date: string | null;
  /** What happens to the thread of each run after the run; null if all runs use `thread_id`. */
  readonly on_run_completed: OnRunCompleted | null;
  readonly enabled: boolean;
  /** Body of the request that creates a run. */
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

/** The columns of a {@link Cron}; they have the names of its fields. */
export const cronColumns = cronFields.join(', ');

/** Notifies the processes of deployment $1, at commit, that the next fire time of a cron may have changed. */
export const notifyCrons = "SELECT pg_notify('agent_crons', $1)";
