-- State of threads: the tables that @langchain/langgraph-checkpoint-postgres 1.0.5 makes in its setup(), which is never called,
-- because several processes that call it at once fail. `thread_id` is `<organization_id>:<thread_id>`.
CREATE TABLE agents.checkpoint_migrations (
  v integer PRIMARY KEY
);
INSERT INTO agents.checkpoint_migrations (v) VALUES (0), (1), (2), (3), (4);

CREATE TABLE agents.checkpoints (
  thread_id text NOT NULL,
  checkpoint_ns text NOT NULL DEFAULT '',
  checkpoint_id text NOT NULL,
  parent_checkpoint_id text,
  type text,
  checkpoint jsonb NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  -- Ours: checkpoint and metadata as another run had left them, where a run wrote the row anew.
  replaced jsonb,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);

CREATE TABLE agents.checkpoint_blobs (
  thread_id text NOT NULL,
  checkpoint_ns text NOT NULL DEFAULT '',
  channel text NOT NULL,
  version text NOT NULL,
  type text NOT NULL,
  blob bytea,
  PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
);

CREATE TABLE agents.checkpoint_writes (
  thread_id text NOT NULL,
  checkpoint_ns text NOT NULL DEFAULT '',
  checkpoint_id text NOT NULL,
  task_id text NOT NULL,
  idx integer NOT NULL,
  channel text NOT NULL,
  type text,
  blob bytea NOT NULL,
  -- Ours: a run that resumes writes on the checkpoint of the run before it, and replaces what is there. For its rollback, who
  -- wrote the row, and what stood in it before.
  run_id text,
  replaced_run_id text,
  replaced_type text,
  replaced_blob bytea,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

-- What a rollback looks for.
CREATE INDEX checkpoints_of_run ON agents.checkpoints (thread_id, (metadata ->> 'run_id'));
CREATE INDEX checkpoint_writes_of_run ON agents.checkpoint_writes (thread_id, run_id);

-- Whether state of the thread may be written under the token: by the run that has it as its lease, or by who holds the thread.
-- The row stays locked to the end of the transaction, so that nobody takes the run or the thread over between this answer and
-- the commit of what was written on it. Runs with the rights of its owner: graph code can ask for a token that it has, and
-- read none.
CREATE FUNCTION agents.lease_is_valid(organization uuid, thread uuid, token uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM agents.runs
  WHERE organization_id = organization AND thread_id = thread AND status = 'running'
    AND lease_token = token AND lease_until > now()
  FOR SHARE;
  IF FOUND THEN RETURN true; END IF;
  PERFORM FROM agents.threads
  WHERE organization_id = organization AND thread_id = thread AND write_token = token AND write_until > now()
  FOR SHARE;
  RETURN FOUND;
END $$;
