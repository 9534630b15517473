-- `pipelines/costs/cost-sql.ts` has these expressions. ClickHouse analysed them for each query that reads `runs`, which was a
-- third of the time of a small query.
ALTER TABLE runs
  DROP COLUMN IF EXISTS total_cost,
  DROP COLUMN IF EXISTS prompt_cost,
  DROP COLUMN IF EXISTS completion_cost,
  DROP COLUMN IF EXISTS usage_details,
  DROP COLUMN IF EXISTS prompt_cost_by_price,
  DROP COLUMN IF EXISTS completion_cost_by_price,
  DROP COLUMN IF EXISTS prompt_kinds,
  DROP COLUMN IF EXISTS completion_kinds;
