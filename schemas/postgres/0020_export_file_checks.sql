-- ETag that the store answered for the file; null if it could not be asked.
ALTER TABLE bulk_export_files ADD COLUMN IF NOT EXISTS etag text;
-- When the file was found in the bucket again, before the manifest was written.
ALTER TABLE bulk_export_files ADD COLUMN IF NOT EXISTS checked_at timestamptz;
