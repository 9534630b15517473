import { caller, type ErrorEntry, terminal, transient } from './entry.ts';

/** What can go wrong with bulk exports and with the places where they go. */
export const exportErrors = {
  // Destinations of exports
  DESTINATION_ACCESS_DENIED: caller(
    400,
    'Access denied: {reason} (step {step}, {where}).',
    'Check the secret key, and that the key may write below the prefix (s3:PutObject). Rights to read, to delete, and to list and abort uploads in parts are optional.',
  ),
  DESTINATION_BUCKET_NOT_VALID: caller(
    400,
    'Bucket is not valid: {reason} (step {step}, {where}).',
    'Make the bucket, or correct bucket_name, region and endpoint_url of the destination.',
  ),
  DESTINATION_KEY_UNKNOWN: caller(
    400,
    'Key ID you provided does not exist: {reason} (step {step}, {where}).',
    'Correct credentials.access_key_id, and check that endpoint_url and region are those of the store that knows it.',
  ),
  DESTINATION_ENDPOINT_INVALID: caller(
    400,
    'Invalid endpoint: {reason} (step {step}, {where}).',
    'Set endpoint_url to an address at which a store speaks the S3 API. For AWS leave it out and set region.',
  ),
  DESTINATION_ENDPOINT_NOT_ALLOWED: caller(
    400,
    'Invalid endpoint: {host} is {range}, which a destination may not be at.',
    'Use a store at a public address. The operator can allow loopback and private addresses with RUNLAKE_ALLOW_PRIVATE_ENDPOINTS.',
  ),
  // The store is the caller's, and so is its trouble; but the same request may pass later.
  DESTINATION_UNAVAILABLE: transient(
    400,
    'The destination cannot be used at the moment: {reason} (step {step}, {where}).',
    'Check the store at the endpoint, and try again. What an export could not write is tried again by itself.',
  ),
  DESTINATION_OBJECT_DAMAGED: transient(
    400,
    'The destination does not hold what was written: {reason} (step {step}, {where}).',
    'Check what stands between Runlake and the store, and try again.',
  ),
  DESTINATION_OBJECT_MISSING: caller(400, 'There is no object {where}.', 'Check whether somebody has deleted it.'),
  DESTINATION_FILE_GONE: caller(
    400,
    'A file of the export is no longer in the destination as it was written: {reason} ({where}).',
    'The bucket was deleted, emptied or written to during the export. Recreate it, and create a new export.',
  ),
  DESTINATION_IN_USE: caller(
    409,
    'The destination is in use by {exports} export(s) that are not finished.',
    'Cancel them, or wait until they have ended.',
  ),
  DESTINATION_TYPE_OFF: caller(
    400,
    "Destinations of type 'local' are not available here.",
    'Use type s3. The operator can set RUNLAKE_LOCAL_EXPORT_ROOT to the folder below which such exports may go.',
  ),
  DESTINATION_CREDENTIALS_REQUIRED: caller(
    400,
    'The destination needs credentials.',
    'Send access_key_id and secret_access_key. The operator has forbidden to use those of this machine, with RUNLAKE_ALLOW_DEFAULT_CREDENTIALS=false.',
  ),

  // Bulk exports
  EXPORT_FINISHED: caller(
    409,
    'The bulk export is {status}: only one that is not finished can be cancelled.',
    'Make a new one where its data is wanted again.',
  ),
  EXPORT_PROJECT_DELETED: caller(
    409,
    'The project of the bulk export was deleted.',
    'Export before a project is deleted.',
  ),
  EXPORT_ATTEMPT_OVER: transient(
    503,
    'This attempt at a run of a bulk export is over: its export ended, or another worker has taken the run up.',
    'Nothing: what the attempt had recorded stays, and the rest is done by the other worker, if anybody.',
  ),
  EXPORT_RUN_TIMED_OUT: transient(
    503,
    'The attempt took longer than {timeoutMs} ms (RUNLAKE_EXPORT_RUN_TIMEOUT_MS).',
    'It goes on from its last file by itself; if it keeps happening, narrow the range or leave fields out.',
  ),
  EXPORT_FILE_INVALID: terminal(
    500,
    'A file of a bulk export is not what was read: {reason}.',
    'It is written again by itself; if it keeps happening, narrow the range or leave fields out, and report the message.',
  ),
  PARQUET_ENCODER_FAILED: terminal(
    500,
    'A Parquet file could not be made: {reason}.',
    'It is tried again by itself; if it keeps happening, raise RUNLAKE_EXPORT_ENCODER_BYTES, or leave fields out.',
  ),
  WORK_FILE_UNUSABLE: terminal(
    500,
    'The file {file} on its way to a bucket cannot be written or read ({reason}).',
    'Make room in the folder that RUNLAKE_EXPORT_WORK_DIR names, and let this user write there.',
  ),
} as const satisfies Record<string, ErrorEntry>;
