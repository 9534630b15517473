import { caller, type ErrorEntry, terminal, transient } from './entry.ts';

/** Errors of bulk exports and their destinations. */
export const exportErrors = {
  // Destinations of exports
  DESTINATION_ACCESS_DENIED: caller(
    400,
    'Access denied: {reason} (step {step}, {where}).',
    'Check the credentials, and that they allow writing below the prefix (s3:PutObject). Permissions to read, to delete, and to list and abort multipart uploads are optional.',
  ),
  DESTINATION_BUCKET_NOT_VALID: caller(
    400,
    'Bucket is not valid: {reason} (step {step}, {where}).',
    'Create the bucket, or correct bucket_name, region and endpoint_url of the destination. With type local, correct the prefix, or create the folder of RUNLAKE_LOCAL_EXPORT_ROOT.',
  ),
  DESTINATION_KEY_UNKNOWN: caller(
    400,
    'Key ID you provided does not exist: {reason} (step {step}, {where}).',
    'Correct credentials.access_key_id, and check that endpoint_url and region belong to the store that issued the key.',
  ),
  DESTINATION_ENDPOINT_INVALID: caller(
    400,
    'Invalid endpoint: {reason} (step {step}, {where}).',
    'Set endpoint_url to the URL of a store with the S3 API. For AWS leave it out and set region.',
  ),
  DESTINATION_ENDPOINT_NOT_ALLOWED: caller(
    400,
    'Invalid endpoint: {host} is {range}, which is not allowed for destinations.',
    'Use a store with a public address. The operator can allow loopback and private addresses with RUNLAKE_ALLOW_PRIVATE_ENDPOINTS.',
  ),
  // Status 400, because the store belongs to the caller. Transient, because the same request may succeed later.
  DESTINATION_UNAVAILABLE: transient(
    400,
    'The destination cannot be used at the moment: {reason} (step {step}, {where}).',
    'Check the store at the endpoint, and retry. Exports retry failed writes automatically.',
  ),
  DESTINATION_OBJECT_DAMAGED: transient(
    400,
    'The destination returns different data than was written: {reason} (step {step}, {where}).',
    'Check proxies between Runlake and the store, and retry.',
  ),
  DESTINATION_OBJECT_MISSING: caller(
    400,
    'The object {where} does not exist.',
    'Check whether the object was deleted.',
  ),
  DESTINATION_FILE_MISSING: caller(
    400,
    'A file of the export was changed or deleted in the destination: {reason} ({where}).',
    'The bucket was deleted, emptied or modified during the export. Restore the bucket, and create a new export.',
  ),
  DESTINATION_IN_USE: caller(
    409,
    'The destination is in use by {exports} unfinished export(s).',
    'Cancel them, or wait until they finish.',
  ),
  DESTINATION_TYPE_OFF: caller(
    400,
    "Destinations of type 'local' are disabled.",
    'Use type s3. The operator can enable local destinations with RUNLAKE_LOCAL_EXPORT_ROOT, the folder that contains them.',
  ),
  DESTINATION_CREDENTIALS_REQUIRED: caller(
    400,
    'The destination needs credentials.',
    'Send access_key_id and secret_access_key. RUNLAKE_ALLOW_DEFAULT_CREDENTIALS=false forbids the default credentials of the machine.',
  ),

  // Bulk exports
  EXPORT_FINISHED: caller(
    409,
    'The bulk export is {status}; only unfinished exports can be cancelled.',
    'Create a new export if you need its data again.',
  ),
  EXPORT_PROJECT_DELETED: caller(
    409,
    'The project of the bulk export was deleted.',
    'Export the runs before you delete a project.',
  ),
  EXPORT_ATTEMPT_OVER: transient(
    503,
    'This attempt of an export run has ended: its export finished, or another worker claimed the run.',
    'No action is needed: recorded files are kept, and the other worker, if there is one, continues.',
  ),
  EXPORT_RUN_TIMED_OUT: transient(
    503,
    'The attempt took longer than {timeoutMs} ms (RUNLAKE_EXPORT_RUN_TIMEOUT_MS).',
    'Runlake retries from the last recorded file. If the error persists, narrow the time range or export fewer fields.',
  ),
  EXPORT_FILE_INVALID: terminal(
    500,
    'A file of a bulk export does not match the data that was read: {reason}.',
    'Runlake writes the file again. If the error persists, narrow the time range or export fewer fields, and report the message.',
  ),
  PARQUET_ENCODER_FAILED: terminal(
    500,
    'A Parquet file could not be written: {reason}.',
    'Runlake retries automatically. If the error persists, raise RUNLAKE_MEMORY_BYTES, or export fewer fields.',
  ),
  WORK_FILE_UNUSABLE: terminal(
    500,
    'The work file {file} of an export cannot be written or read ({reason}).',
    'Free space in the folder `exports` in RUNLAKE_DATA_DIR, and make sure that this user can write there.',
  ),
} as const satisfies Record<string, ErrorEntry>;
