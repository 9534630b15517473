-- The agent server: assistants, threads and runs. Everything of it lies in a schema of its own, so that the account of processes
-- that run graph code can be kept to it. JSON that graphs and clients made is `json`, as it came (a NUL character is legal there
-- and not in `jsonb`); what is searched by containment is `jsonb`.
CREATE SCHEMA agents;

CREATE TABLE agents.assistants (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  assistant_id uuid NOT NULL,
  -- The version that is in force.
  version integer NOT NULL DEFAULT 1,
  graph_id text NOT NULL,
  name text NOT NULL,
  description text,
  config json NOT NULL DEFAULT '{}',
  context json,
  metadata jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, assistant_id)
);
CREATE INDEX assistants_by_metadata ON agents.assistants USING gin (metadata jsonb_path_ops);

CREATE TABLE agents.assistant_versions (
  organization_id uuid NOT NULL,
  assistant_id uuid NOT NULL,
  version integer NOT NULL,
  graph_id text NOT NULL,
  name text NOT NULL,
  description text,
  config json NOT NULL,
  context json,
  metadata jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, assistant_id, version),
  FOREIGN KEY (organization_id, assistant_id) REFERENCES agents.assistants ON DELETE CASCADE
);

CREATE TABLE agents.threads (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  thread_id uuid NOT NULL,
  -- Of a run without a thread: never shown, and gone with the run unless it is to be kept.
  hidden boolean NOT NULL DEFAULT false,
  status text NOT NULL DEFAULT 'idle' CHECK (status IN ('idle', 'busy', 'interrupted', 'error')),
  -- What the status is when no run is under way or waits.
  rest_status text NOT NULL DEFAULT 'idle' CHECK (rest_status IN ('idle', 'interrupted', 'error')),
  metadata jsonb NOT NULL DEFAULT '{}',
  config json NOT NULL DEFAULT '{}',
  -- State after the last run that ended, as clients see it: `values` as it came, `searchable_values` without NUL characters.
  values json,
  searchable_values jsonb,
  interrupts json NOT NULL DEFAULT '{}',
  error json,
  ttl_strategy text CHECK (ttl_strategy IN ('delete', 'keep_latest')),
  ttl_minutes double precision,
  expires_at timestamptz,
  -- When the first of its runs that wait is due; null where none waits, or one runs.
  next_due_at timestamptz,
  -- Starts of runs so far. An event's number in the thread is this times 2^32 and its number in the attempt.
  starts bigint NOT NULL DEFAULT 0,
  -- Held while its state is written outside a run: no run is claimed meanwhile, and the saver writes only under the token.
  write_token uuid,
  write_until timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  state_updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, thread_id)
);
CREATE INDEX threads_by_metadata ON agents.threads USING gin (metadata jsonb_path_ops);
CREATE INDEX threads_by_time ON agents.threads (organization_id, created_at DESC, thread_id) WHERE NOT hidden;
CREATE INDEX threads_due ON agents.threads (organization_id, next_due_at) WHERE next_due_at IS NOT NULL;
CREATE INDEX threads_expiring ON agents.threads (organization_id, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE agents.runs (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  -- No foreign key: a run may outlive its thread for as long as the end of its stream is not in the log.
  thread_id uuid NOT NULL,
  run_id uuid NOT NULL,
  -- Order of creation, in which the runs of a thread are taken up.
  queue_position bigint GENERATED ALWAYS AS IDENTITY,
  assistant_id uuid NOT NULL,
  graph_id text NOT NULL,
  status text NOT NULL DEFAULT 'pending'
    CHECK (status IN ('pending', 'running', 'success', 'error', 'timeout', 'interrupted')),
  -- The request, with the fields' names on the wire.
  kwargs json NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  multitask_strategy text NOT NULL DEFAULT 'enqueue',
  -- Whether the hidden thread goes with the run (stateless, on_completion delete).
  temporary boolean NOT NULL DEFAULT false,
  due_at timestamptz NOT NULL DEFAULT now(),
  -- Starts so far; the number that readers of its stream see.
  attempt integer NOT NULL DEFAULT 0,
  -- Starts that ended without a word, by a lost lease or a worker killed from outside; at most three.
  losses integer NOT NULL DEFAULT 0,
  -- Was in a worker that ended by itself beside others: it is run with no other beside it, to see whose fault that was.
  alone boolean NOT NULL DEFAULT false,
  lease_token uuid,
  lease_until timestamptz,
  -- What a cancel asked for while it ran.
  cancel_action text CHECK (cancel_action IN ('interrupt', 'rollback')),
  -- The head of the thread when the run was first started; null: none.
  base_checkpoint_id text,
  -- `starts` of the thread at the last start.
  thread_start bigint NOT NULL DEFAULT 0,
  -- Rolled back or deleted: nobody sees it any more, and it goes when its end is published.
  removed boolean NOT NULL DEFAULT false,
  -- Who asked for it, as runs of traces name them: {workspaceId, userId, keyId}.
  sender json,
  error json,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  ended_at timestamptz,
  -- Whether the end of its stream is in the log. Null while it has none.
  end_published boolean,
  PRIMARY KEY (organization_id, run_id)
);
-- One run of a thread runs at a time, whatever any process believes.
CREATE UNIQUE INDEX runs_running ON agents.runs (organization_id, thread_id) WHERE status = 'running';
CREATE INDEX runs_pending ON agents.runs (organization_id, thread_id, due_at, queue_position) WHERE status = 'pending';
CREATE UNIQUE INDEX runs_leased ON agents.runs (lease_token) WHERE status = 'running';
CREATE INDEX runs_of_thread ON agents.runs (organization_id, thread_id, queue_position DESC);
CREATE INDEX runs_of_assistant ON agents.runs (organization_id, assistant_id);
CREATE INDEX runs_without_end ON agents.runs (organization_id, ended_at) WHERE end_published = false;
