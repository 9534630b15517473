-- Which dead letters were put back at the end of their topics. The letter itself stays where it is, in `dead_letters` or in a
-- topic of Kafka. `replayed_at` is empty between the claim and the moment when the log has taken the event.
CREATE TABLE dead_letter_replays (
  dead_letter_id text PRIMARY KEY,
  claimed_at timestamptz NOT NULL DEFAULT now(),
  replayed_at timestamptz
);
