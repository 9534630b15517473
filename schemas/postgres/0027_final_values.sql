-- Final values and interrupts of a graph run that are too large for the event of its end, as the thread had them at that moment: later
-- runs replace those of the thread. Requests that wait for the run read them; they are deleted after some minutes.
CREATE TABLE agents.final_values (
  deployment_id uuid NOT NULL,
  run_id uuid NOT NULL,
  values json,
  -- Null: the graph did not wait.
  interrupts json,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (deployment_id, run_id),
  FOREIGN KEY (deployment_id, run_id) REFERENCES agents.runs ON DELETE CASCADE
);
CREATE INDEX final_values_expire ON agents.final_values (deployment_id, expires_at);
