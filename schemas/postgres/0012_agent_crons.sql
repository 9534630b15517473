-- Crons, which make runs at the times of a schedule, and webhooks, which tell the ends of runs to an address.
CREATE TABLE agents.crons (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  cron_id uuid NOT NULL,
  assistant_id uuid NOT NULL,
  -- Null: each run has a thread of its own.
  thread_id uuid,
  -- Five fields, read in the time zone; null: UTC.
  schedule text NOT NULL,
  timezone text,
  end_time timestamptz,
  -- When it fires next; null: never again.
  next_run_date timestamptz,
  -- What becomes of the thread of each run; null where the runs are on one thread.
  on_run_completed text CHECK (on_run_completed IN ('delete', 'keep')),
  enabled boolean NOT NULL DEFAULT true,
  -- The body of the request for each run, with the fields' names on the wire.
  payload json NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  user_id text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, cron_id),
  FOREIGN KEY (organization_id, assistant_id) REFERENCES agents.assistants ON DELETE CASCADE,
  FOREIGN KEY (organization_id, thread_id) REFERENCES agents.threads ON DELETE CASCADE,
  CHECK ((thread_id IS NULL) = (on_run_completed IS NOT NULL))
);
CREATE INDEX crons_due ON agents.crons (next_run_date) WHERE enabled;
CREATE INDEX crons_of_assistant ON agents.crons (organization_id, assistant_id);
CREATE INDEX crons_of_thread ON agents.crons (organization_id, thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX crons_by_metadata ON agents.crons USING gin (metadata jsonb_path_ops);

-- Times that a cron has fired for, kept for a day: one time makes one run, also if the cron is moved back to it.
CREATE TABLE agents.cron_firings (
  organization_id uuid NOT NULL,
  cron_id uuid NOT NULL,
  due_at timestamptz NOT NULL,
  -- Null: it made none, because the thread was busy or something that it needs is gone.
  run_id uuid,
  PRIMARY KEY (organization_id, cron_id, due_at),
  FOREIGN KEY (organization_id, cron_id) REFERENCES agents.crons ON DELETE CASCADE
);

-- One for each run that ended and names a webhook, until it is delivered or was given up a day ago. The run itself may be gone.
CREATE TABLE agents.webhooks (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  run_id uuid NOT NULL,
  url text NOT NULL,
  -- What is sent, but for the time of sending.
  body json NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- When it is tried next; while it is being sent, when somebody else may take it over.
  due_at timestamptz NOT NULL DEFAULT now(),
  given_up_at timestamptz,
  -- Why the last attempt failed, in words of ours.
  last_error text,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, run_id)
);
CREATE INDEX webhooks_due ON agents.webhooks (due_at) WHERE given_up_at IS NULL;
CREATE INDEX webhooks_given_up ON agents.webhooks (given_up_at) WHERE given_up_at IS NOT NULL;
