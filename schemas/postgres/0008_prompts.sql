-- Repos of the hub: prompts, and the directories of agents and skills.
CREATE TABLE repos (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  handle text NOT NULL,
  repo_type text NOT NULL,
  description text,
  readme text,
  tags text[] NOT NULL DEFAULT '{}',
  is_public boolean NOT NULL,
  is_archived boolean NOT NULL DEFAULT false,
  -- The newest commit; null before the first one.
  last_commit_id uuid,
  commit_count integer NOT NULL DEFAULT 0,
  like_count integer NOT NULL DEFAULT 0,
  download_count bigint NOT NULL DEFAULT 0,
  view_count bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX repos_by_handle ON repos (workspace_id, handle);
CREATE INDEX public_repos ON repos (id) WHERE is_public;

-- Commits never change, except for their counters. `number` is the position in the history of the repo.
CREATE TABLE repo_commits (
  id uuid PRIMARY KEY,
  repo_id uuid NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  number integer NOT NULL,
  hash text COLLATE "C" NOT NULL,
  parent_id uuid,
  -- The complete content: JSON as text, byte for byte as it was sent. Of an agent or skill, path → entry.
  manifest text NOT NULL,
  description text,
  created_by uuid NOT NULL,
  download_count bigint NOT NULL DEFAULT 0,
  view_count bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (repo_id, number)
);
CREATE UNIQUE INDEX repo_commits_by_hash ON repo_commits (repo_id, hash);

CREATE TABLE repo_tags (
  id uuid PRIMARY KEY,
  repo_id uuid NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  name text NOT NULL,
  commit_id uuid NOT NULL REFERENCES repo_commits (id) ON DELETE CASCADE,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (repo_id, name)
);
CREATE INDEX repo_tags_of_commit ON repo_tags (commit_id);

CREATE TABLE repo_likes (
  repo_id uuid NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  user_id uuid NOT NULL REFERENCES users (id),
  PRIMARY KEY (repo_id, user_id)
);
