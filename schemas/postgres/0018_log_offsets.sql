-- Offsets below `reserved_until` may be in use by the in-process log. Later processes start there, because the clock may have
-- been set back, and offsets order the values of a run.
CREATE TABLE IF NOT EXISTS in_process_log (
  id boolean PRIMARY KEY DEFAULT true CHECK (id),
  reserved_until bigint NOT NULL
);
