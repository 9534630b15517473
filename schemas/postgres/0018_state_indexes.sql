-- Whatever looks for the state of a run reads all state of its thread, which the primary keys find. The two indexes by run that were
-- here served nothing else, and each row of state was written into one of them.
DROP INDEX agents.checkpoints_of_run, agents.checkpoint_writes_of_run;
