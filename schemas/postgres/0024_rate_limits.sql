-- Requests of the current second, by API key and by organisation, where RUNLAKE_RATE_LIMIT_PER_KEY or _PER_ORGANIZATION is set and Redis is
-- not. The columns are those of the package rate-limiter-flexible. Unlogged: a count that is lost in a crash lets a second's requests pass.
CREATE UNLOGGED TABLE rate_limits (
  key text PRIMARY KEY,
  points integer NOT NULL DEFAULT 0,
  expire bigint
);
