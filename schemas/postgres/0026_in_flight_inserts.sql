-- The in-process log delivers the batches of an interrupted insert again (ClickHouse migration 0008).
DROP TABLE in_flight_inserts;
