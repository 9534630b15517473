-- Annotation queues: runs that users review.
CREATE TABLE annotation_queues (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  description text,
  default_dataset uuid,
  rubric_instructions text,
  -- JSON as text: jsonb cannot hold every JSON text.
  rubric_items text,
  metadata text,
  num_reviewers_per_item integer NOT NULL,
  enable_reservations boolean NOT NULL,
  reservation_minutes integer NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX annotation_queues_of_workspace ON annotation_queues (workspace_id, created_at, id);

CREATE TABLE annotation_queue_runs (
  id uuid PRIMARY KEY,
  queue_id uuid NOT NULL REFERENCES annotation_queues (id) ON DELETE CASCADE,
  run_id uuid NOT NULL,
  -- Orders runs that were added together.
  position bigint GENERATED ALWAYS AS IDENTITY,
  added_at timestamptz NOT NULL DEFAULT now(),
  last_reviewed_time timestamptz,
  source_proposed_example_id uuid,
  UNIQUE (queue_id, run_id)
);
CREATE INDEX annotation_queues_by_run ON annotation_queue_runs (run_id);

-- At most one row for a user and a run of a queue.
CREATE TABLE annotation_reviews (
  queue_run_id uuid NOT NULL REFERENCES annotation_queue_runs (id) ON DELETE CASCADE,
  user_id uuid NOT NULL REFERENCES users (id),
  -- A reservation ends `reservation_minutes` of the queue later.
  reserved_at timestamptz,
  completed_at timestamptz,
  -- Position of the run in the queue of this user, instead of `added_at`.
  override_added_at timestamptz,
  PRIMARY KEY (queue_run_id, user_id)
);

-- What the scores of a feedback key mean.
CREATE TABLE feedback_configs (
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  feedback_key text NOT NULL,
  -- JSON as text, in one form, so that equal configs are equal texts.
  feedback_config text NOT NULL,
  is_lower_score_better boolean NOT NULL,
  is_enforced boolean NOT NULL,
  modified_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (workspace_id, feedback_key)
);

-- Records of evaluators; Runlake does not execute them.
CREATE TABLE evaluators (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  type text NOT NULL,
  -- JSON as text: the code, or the prompt with its variables.
  definition text NOT NULL,
  created_by uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX evaluators_of_workspace ON evaluators (workspace_id, created_at, id);
