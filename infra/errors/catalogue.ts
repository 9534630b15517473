import { agentErrors } from './agent-errors.ts';
import { caller, type ErrorEntry, terminal, transient } from './entry.ts';
import { exportErrors } from './export-errors.ts';

export type { ErrorClass, ErrorEntry } from './entry.ts';

/**
 * Every error that Runlake can answer or log, in one table. Nothing outside `infra/errors` builds an error by hand.
 *
 * `class` says whose fault it is and decides what happens next:
 * - `caller`: the request is wrong; sending it again unchanged fails again;
 * - `transient`: some part is down or busy; the same request may pass later;
 * - `terminal`: the operator has to act.
 *
 * `message` and `remedy` are templates: `{name}` is replaced by the parameter of that name.
 * A code is never used again for something else. `docs/reference/errors.md` is generated from this table.
 */
export const catalogue = {
  // The request as such
  INVALID_REQUEST: caller(422, 'The request does not fit its schema.', 'Correct the fields named in the answer.'),
  BAD_REQUEST: caller(400, '{reason}', 'Correct the request and send it again.'),
  PARAMETER_NOT_SUPPORTED: caller(
    400,
    "The parameter '{parameter}' is not supported yet.",
    'Leave it out, or narrow the query with the parameters that the API description lists.',
  ),
  INVALID_JSON: caller(422, 'Invalid JSON in {part} at byte {offset}: {reason}.', 'Send well-formed JSON in UTF-8.'),
  INVALID_UTF8: caller(422, 'Invalid UTF-8 in {part} at byte {offset}.', 'Send text as UTF-8.'),
  TEXT_NOT_STORABLE: caller(
    422,
    'A text of the request has a NUL character or half of a surrogate pair, which no store can hold.',
    'Leave such characters out of ids, names, filters and metadata.',
  ),
  INVALID_MULTIPART: caller(
    422,
    'Invalid multipart body at byte {offset}: {reason}.',
    'Send multipart/form-data as RFC 7578 says, with the boundary of the Content-Type header.',
  ),
  INVALID_PROTOBUF: caller(
    422,
    'Invalid protobuf at byte {offset}: {reason}.',
    'Send an OTLP ExportTraceServiceRequest.',
  ),
  INVALID_COMPRESSION: caller(
    422,
    'The {encoding} body cannot be decompressed: {reason}.',
    'Send a whole, intact stream.',
  ),
  UNSUPPORTED_ENCODING: caller(415, "The Content-Encoding '{encoding}' is not supported.", 'Send the body {accepted}.'),
  UNSUPPORTED_MEDIA_TYPE: caller(415, "The Content-Type '{type}' is not supported here.", 'Send {expected}.'),
  BODY_TOO_LARGE: caller(413, 'The body is larger than {limitBytes} bytes ({limit}).', 'Send smaller batches.'),
  RUN_TOO_LARGE: caller(
    413,
    'Run {run} is larger than {limitBytes} bytes ({limit}).',
    'Send smaller inputs and outputs.',
  ),
  TOO_MANY_PARTS: caller(413, 'The body has more than {limitParts} parts ({limit}).', 'Send smaller batches.'),
  TOO_DEEP: caller(422, 'The JSON in {part} is nested deeper than {limitDepth} ({limit}).', 'Send flatter JSON.'),
  URL_TOO_LONG: caller(
    414,
    'The URL is longer than {limitBytes} bytes ({limit}).',
    'Send fewer or shorter parameters.',
  ),
  HEADERS_TOO_LARGE: caller(
    431,
    'URL and headers together are larger than {limitBytes} bytes ({limit}).',
    'Send fewer or shorter parameters and headers.',
  ),
  REQUEST_TIMEOUT: caller(
    408,
    'The request did not arrive within {limitMs} ms ({limit}).',
    'Send it again, or send smaller batches.',
  ),
  BODY_TOO_SLOW: caller(
    408,
    'Less than {bytes} bytes of the body arrived in {seconds} s.',
    'Send it again over a faster connection, or send smaller batches.',
  ),
  NOT_FOUND: caller(404, '{what} not found.', 'Check the id and the workspace of the API key.'),
  ROUTE_NOT_FOUND: caller(404, 'There is no {method} {path}.', 'See /docs for the routes of this server.'),
  METHOD_NOT_ALLOWED: caller(405, '{method} is not allowed on {path}.', 'See /docs for the routes of this server.'),
  ORIGIN_NOT_ALLOWED: caller(
    403,
    "Pages of the origin '{origin}' may not call this server.",
    'Add the origin to {settings}.',
  ),
  CONFLICT: caller(409, '{reason}', 'Use another name or id, or change the one that exists.'),

  // Who asks
  API_KEY_MISSING: caller(401, 'No API key was sent.', 'Send the key in the header x-api-key.'),
  API_KEY_INVALID: caller(
    401,
    'The API key is not valid.',
    'Check that the key is complete, not revoked and not expired.',
  ),
  FORBIDDEN: caller(403, 'Forbidden', "The API key lacks the permission '{permission}'."),
  WORKSPACE_REQUIRED: caller(
    403,
    'org_scoped_key_requires_workspace',
    'The key belongs to the organisation: name the workspace in the header X-Tenant-Id.',
  ),
  WORKSPACE_FORBIDDEN: caller(403, 'Forbidden', 'The API key cannot read the workspace {workspace}.'),
  ORGANIZATION_FORBIDDEN: caller(
    403,
    'Forbidden',
    'The API key belongs to another organisation than X-Organization-Id names: leave the header out, or send the id of its own.',
  ),
  OPERATOR_ONLY: caller(
    403,
    'Forbidden',
    'Use a key of the first organisation, which is that of the operator: only those manage organisations.',
  ),

  // How much there may be of something
  LIMIT_REACHED: caller(
    422,
    'The organization has {limit} {what}, as many as it may have ({setting}).',
    '{instead}, or ask the operator to raise {setting}.',
  ),

  ORGANIZATION_LIMIT_REACHED: caller(
    422,
    'There are {limit} organizations, as many as there may be (RUNLAKE_MAX_ORGANIZATIONS).',
    'Delete those that are not needed, or raise RUNLAKE_MAX_ORGANIZATIONS.',
  ),

  // Projects
  PROJECT_UNKNOWN: caller(
    422,
    'Project {project} does not exist in this workspace.',
    'Send the id of a project that exists, or session_name, which makes it.',
  ),

  // Runs
  INVALID_RUN: caller(422, 'Run {run}: {reason}.', 'Correct the run; the other runs of the batch were handled.'),
  ALL_RUNS_INVALID: caller(
    400,
    'No run of the batch could be taken: {reason}',
    'Correct the runs named in the answer.',
  ),
  RUN_UNKNOWN: caller(
    404,
    'Run {run} not found.',
    'Send trace_id and dotted_order with the patch, or post the run first.',
  ),

  // Feedback and attachments
  INVALID_FEEDBACK: caller(
    422,
    'Feedback {feedback}: {reason}.',
    'Correct the feedback; what else came with it was handled.',
  ),
  INVALID_ATTACHMENT: caller(
    422,
    'Attachment {attachment}: {reason}.',
    'Correct the attachment; what else came with it was handled.',
  ),
  LINK_EXPIRED: caller(
    403,
    'The link has expired.',
    'Get a fresh one where it came from: a run that is read holds fresh links.',
  ),

  // Bulk exports and their destinations
  ...exportErrors,

  // Agent server
  ...agentErrors,

  // Busy or down
  DRAINING: transient(
    503,
    'The server is shutting down.',
    'Send the request again; another process or the next start takes it.',
  ),
  STARTING: transient(
    503,
    'The server is starting: it waits for {what}.',
    'Send the request again after the time in Retry-After; `/ready` says which server is away.',
  ),
  RATE_LIMITED: transient(
    429,
    'More than {points} requests in a second ({limit}).',
    'Send the request again after the time in Retry-After.',
  ),
  OVERLOADED: transient(503, 'Too much is waiting ({what}).', 'Send the request again after the time in Retry-After.'),
  EVENT_LOG_UNAVAILABLE: transient(
    503,
    'The event log did not take the batch.',
    'Send the request again; nothing was stored twice.',
  ),
  KAFKA_UNAVAILABLE: transient(
    503,
    'Kafka cannot be reached at {brokers}, or did not answer in time: {reason}.',
    'Check that it runs at RUNLAKE_KAFKA_BROKERS; see `runlake doctor`.',
  ),
  REGISTRY_UNAVAILABLE: transient(
    503,
    'The schema registry cannot be reached at {address}, or did not answer as one: {reason}.',
    'Check that it runs at RUNLAKE_SCHEMA_REGISTRY_URL; see `runlake doctor`.',
  ),
  PARTITION_LOST: transient(
    503,
    'Partition {partition} of {topic} went to another process.',
    'That process handles its events; this one ends what it began.',
  ),
  WAREHOUSE_UNAVAILABLE: transient(
    503,
    'ClickHouse cannot be reached or did not answer in time.',
    'Try again; see `runlake doctor`.',
  ),
  DATABASE_UNAVAILABLE: transient(
    503,
    'Postgres cannot be reached or did not answer in time.',
    'Try again; see `runlake doctor`.',
  ),
  PART_SILENT: transient(503, '{part} did not answer within {limitMs} ms.', 'Try again; see `runlake doctor`.'),
  WAREHOUSE_QUERY_FAILED: terminal(
    500,
    'ClickHouse refused a query of ours.',
    'See the log of the server for the query id.',
  ),
  JOBS_UNAVAILABLE: transient(
    503,
    'The job queue in {store} cannot be reached or did not take the job.',
    'Check that {store} runs at the address in {variable}; see `runlake doctor`.',
  ),
  INVALID_JOB: terminal(
    500,
    'A job {job} was not well formed: {reason}.',
    'Run the same release on every role; see the log of the server.',
  ),
  REPLAY_UNCONFIRMED: transient(
    503,
    'The process that runs the event log did not say within {limitMs} ms that it has the event of {letter}.',
    'See the log of runlake; where none runs, the event is replayed when one starts. `runlake dlq list` shows what was replayed.',
  ),
  LETTER_UNKNOWN: terminal(
    500,
    'There is no dead letter {letter}.',
    'See `runlake dlq list` for those that there are.',
  ),
  JOB_TIMED_OUT: transient(503, 'The job took longer than {timeoutMs} ms.', 'It is tried again by itself.'),
  INSERT_DATA_REFUSED: terminal(
    500,
    'ClickHouse refused the data of an insert into {table}: {reason}.',
    'The sink sets the record that is at fault aside, in the dead letters.',
  ),
  ACCESS_DENIED_BY_STORE: terminal(
    500,
    '{store} refused access: {reason}.',
    'Check user, password, database and rights in the address that is configured for it.',
  ),
  SEAL_KEY_UNKNOWN: terminal(
    500,
    '{what} are sealed under a key that this process does not have (key {keyId}).',
    'Name the key under which they were sealed in RUNLAKE_FORMER_SECRET_KEYS, or give new credentials.',
  ),
  SEAL_BROKEN: terminal(
    500,
    '{what} cannot be unsealed: they were changed, or belong to another row.',
    'Restore the row from a backup, or give new credentials.',
  ),
  DATABASE_QUERY_FAILED: terminal(500, 'Postgres refused a query of ours.', 'See the log of the server.'),
  INTERNAL: terminal(500, 'Internal error.', 'See the log of the server for the request id.'),

  // Start
  INVALID_CONFIG: terminal(
    500,
    'The configuration has {count} fault(s):\n{faults}',
    'Correct the variables and start again.',
  ),
  DATA_FOLDER_IN_USE: terminal(
    500,
    'The data folder {folder} is in use by another runlake (process {pid}).',
    'Stop that process, or give this one another RUNLAKE_DATA_DIR.',
  ),
  LOG_IN_USE: terminal(
    500,
    'Another runlake uses the database {database}; one process at a time runs the in-process event log.',
    'Stop that process, or give this one another RUNLAKE_DATABASE_URL.',
  ),
  DATA_FOLDER_UNUSABLE: terminal(
    500,
    'The data folder {folder} cannot be used: {reason}.',
    'Make it a folder that this user can write to, or set RUNLAKE_DATA_DIR to one.',
  ),
  ENGINE_START_FAILED: terminal(500, '{engine} did not start: {reason}', 'Run `runlake doctor`.'),
  ENGINE_PACKAGE_MISSING: terminal(
    500,
    'The package {package} is not installed for this platform, and {variable} is not set.',
    'Install the optional dependencies, or set {variable}.',
  ),
  STACK_TOOL_MISSING: terminal(500, '{part} needs {program}, which is not on PATH.', 'Install {install}.'),
  STACK_DOWNLOAD_FAILED: terminal(
    500,
    '{part} cannot be brought here: {program} says: {reason}',
    'Check the network and the settings of that program, and try again.',
  ),
  STACK_CHECKSUM_MISMATCH: terminal(
    500,
    '{path} is not the file that {part} was pinned to: its SHA-256 is {found}, not {pinned}.',
    'Delete its folder so that it is downloaded again; if that does not help, its source has changed, which somebody has to look into.',
  ),
  STACK_PORT_TAKEN: terminal(
    500,
    '{part} cannot listen on port {port}: another program does.',
    'Stop that program, or set {variable} to another port; 0 takes a free one.',
  ),
  STACK_START_FAILED: terminal(500, 'The stack did not come up:\n{reasons}', 'See {log}.'),
  STACK_FOLDER_IN_USE: terminal(
    500,
    'A stack on {folder} is just being started or stopped (process {pid}).',
    'Wait for it, or end it with `make stack-down`.',
  ),
  ADDRESS_REQUIRED: terminal(
    500,
    'The role {role} needs {variables}: only `runlake all` does without them.',
    'Set {variables}, or run `runlake all`.',
  ),
  PART_UNFIT: terminal(500, '{reason}.', '{remedy}'),
  TLS_FILE_UNUSABLE: terminal(
    500,
    'The file {file}, named for TLS, cannot be used: {reason}.',
    'Correct RUNLAKE_TLS_CA_FILE, or sslrootcert, sslcert or sslkey in RUNLAKE_DATABASE_URL: a PEM file that this user can read.',
  ),
  NOT_RUNNING: terminal(
    500,
    'No runlake is running on the data folder {folder}.',
    'Start it, or set RUNLAKE_DATA_DIR.',
  ),
  STORE_NEWER: terminal(
    500,
    'The {store} schema is at version {found}, newer than version {known} which this runlake knows.',
    'Run the newer release, or restore a backup from before the upgrade.',
  ),
  STORE_TOO_OLD: terminal(
    500,
    '{store} is release {found}; Runlake needs {needed} or newer.',
    'Upgrade the server that {variable} names, or unset {variable} to use the embedded one.',
  ),
  MIGRATION_CHANGED: terminal(
    500,
    'The {store} migration {name} was applied with other contents than this runlake has.',
    'A migration is never edited after release: restore the original file, or the store from a backup.',
  ),
  MIGRATION_FAILED: terminal(
    500,
    'The {store} migration {name} failed: {reason}',
    'Correct the cause and start again; it resumes there.',
  ),
  HOST_UNUSABLE: terminal(
    500,
    'The server cannot listen on port {port} of {settings}_HOST={host} ({reason}).',
    'Set {settings}_HOST to an address of this machine, and {settings}_PORT to a port that this user may take.',
  ),
  METRICS_PORT_UNUSABLE: terminal(
    500,
    'Metrics and readiness cannot be told on port {port} of {host} ({reason}).',
    'Set RUNLAKE_METRICS_HOST to an address of this machine, and RUNLAKE_METRICS_PORT to a port that is free.',
  ),
  PORT_IN_USE: terminal(500, 'Port {port} on {host} is in use.', 'Stop what listens there, or set {settings}_PORT.'),
  SCHEMA_REFUSED: terminal(
    500,
    'The schema registry refused the schema of {subject}: {reason}.',
    'Run the newest release on every role; set the compatibility of the subject to FULL.',
  ),
  TOPIC_UNFIT: terminal(
    500,
    'The Kafka topic {topic} cannot be used: its {property} is {found}, and {needed} is needed.',
    'Alter the topic, or the setting that asks for it ({variable}): Runlake alters no topic that exists.',
  ),
  SCHEMA_MISMATCH: terminal(
    500,
    'Topic {topic} and table {table} disagree: {reason}',
    'Run `runlake migrate`, and the same release on every role.',
  ),
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof catalogue;
