-- Prices of models that a workspace sets itself, besides those of the release (pipelines/costs/starting-prices).
CREATE TABLE model_prices (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  -- Runs that start earlier do not have this price. Null: all runs.
  start_time timestamptz,
  match_path text[] NOT NULL,
  match_pattern text NOT NULL,
  -- Size of the compiled pattern, whose sum is limited.
  pattern_size integer NOT NULL,
  provider text,
  -- Dollars a token. Decimals as text, as ClickHouse and the API have them.
  prompt_cost text NOT NULL,
  completion_cost text NOT NULL,
  -- JSON objects of kind of token and decimal, as text.
  prompt_cost_details text,
  completion_cost_details text,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX model_prices_of_workspace ON model_prices (workspace_id, created_at, id);
