-- JSON list of the transformations of a dataset, as text like its schemas. Null: none were given.
ALTER TABLE datasets ADD COLUMN IF NOT EXISTS transformations text;
