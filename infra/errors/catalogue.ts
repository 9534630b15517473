import { agentErrors } from './agent-errors.ts';
import { deploymentErrors } from './deployment-errors.ts';
import { caller, type ErrorEntry, terminal, transient } from './entry.ts';
import { exportErrors } from './export-errors.ts';
import { oauthErrors } from './oauth-errors.ts';
import { startErrors } from './start-errors.ts';
import { toolErrors } from './tool-errors.ts';

export type { ErrorClass, ErrorEntry } from './entry.ts';

/**
 * Every error that Runlake returns or logs. Only `infra/errors` creates errors.
 *
 * `class` determines which side caused the error and what happens next:
 *   - `caller`: the request is wrong; the same request would fail again;
 *   - `transient`: a server is down or busy; the same request may succeed later;
 *   - `terminal`: the operator has to act.
 *
 * `message` and `remedy` are templates: `{name}` is replaced with the parameter `name`. The meaning of a code never
 * changes. `docs/reference/errors.md` is generated from this table.
 */
export const catalogue = {
  // Form of the request
  INVALID_REQUEST: caller(422, 'The request does not match its schema.', 'Correct the fields that the response lists.'),
  BAD_REQUEST: caller(400, '{reason}', 'Correct the request and send it again.'),
  PARAMETER_NOT_SUPPORTED: caller(
    400,
    "The parameter '{parameter}' is not supported yet.",
    'Leave it out; the API description lists the parameters that are supported.',
  ),
  INVALID_FILTER: caller(
    400,
    'Invalid {parameter} at character {position}: {reason}.',
    'Correct the expression; the guide describes the filter language, and POST /runs/query/validate checks expressions.',
  ),
  INVALID_JSON: caller(422, 'Invalid JSON in {part} at byte {offset}: {reason}.', 'Send well-formed JSON in UTF-8.'),
  INVALID_UTF8: caller(422, 'Invalid UTF-8 in {part} at byte {offset}.', 'Send text as UTF-8.'),
  TEXT_NOT_STORABLE: caller(
    422,
    'A text of the request contains a NUL character or half of a surrogate pair, which the database cannot store.',
    'Remove such characters from ids, names, filters and metadata.',
  ),
  INVALID_MULTIPART: caller(
    422,
    'Invalid multipart body at byte {offset}: {reason}.',
    'Send multipart/form-data as defined by RFC 7578, with the boundary of the Content-Type header.',
  ),
  INVALID_PROTOBUF: caller(
    422,
    'Invalid protobuf at byte {offset}: {reason}.',
    'Send an OTLP ExportTraceServiceRequest.',
  ),
  INVALID_COMPRESSION: caller(
    422,
    'The {encoding} body cannot be decompressed: {reason}.',
    'Send a complete, valid compressed stream.',
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
  URL_TOO_LONG: caller(414, 'The URL is longer than {limitBytes} bytes.', 'Send fewer or shorter parameters.'),
  HEADERS_TOO_LARGE: caller(
    431,
    'The URL and headers together are larger than {limitBytes} bytes.',
    'Send fewer or shorter parameters and headers.',
  ),
  REQUEST_TIMEOUT: caller(408, 'The request did not arrive within {limitMs} ms.', 'Retry, or send smaller batches.'),
  BODY_TOO_SLOW: caller(
    408,
    'Fewer than {bytes} bytes of the body arrived within {seconds} s.',
    'Retry over a faster connection, or send smaller batches.',
  ),
  SEARCH_TOO_SLOW: caller(
    400,
    'The search takes longer than {limitMs} ms.',
    'Add conditions that leave fewer rows, such as `id`, `splits`, `metadata` or a time in `filter`, or search a smaller dataset.',
  ),
  NOT_FOUND: caller(404, '{what} not found.', 'Check the id, and that the API key belongs to the right workspace.'),
  ROUTE_NOT_FOUND: caller(404, 'There is no {method} {path}.', 'See /docs for the routes of this server.'),
  ROUTE_NOT_BUILT: caller(404, 'Runlake has not built {method} {path}.', 'See docs/reference/not-built.md.'),
  METHOD_NOT_ALLOWED: caller(405, '{method} is not allowed on {path}.', 'See /docs for the routes of this server.'),
  ORIGIN_NOT_ALLOWED: caller(403, "The origin '{origin}' may not call this server.", 'Add it to {settings}.'),
  CONFLICT: caller(409, '{reason}', 'Use another name or id, or update the existing one.'),

  // Authentication and authorisation
  API_KEY_MISSING: caller(401, 'No API key was sent.', 'Send the key in the header x-api-key.'),
  API_KEY_INVALID: caller(
    401,
    'The API key is not valid.',
    'Check that the key is complete, and neither revoked nor expired.',
  ),
  SESSION_INVALID: caller(401, 'The session has ended.', 'Sign in again.'),
  SESSION_REQUIRED: caller(401, 'The request has no session.', 'Sign in with POST /session.'),
  SIGN_IN_LINK_INVALID: caller(
    401,
    'The link was already used, or the process that printed it has ended.',
    'Start Runlake again, or sign in with an API key.',
  ),
  CSRF_TOKEN_REQUIRED: caller(
    403,
    'The request has a session but not its CSRF token.',
    'Send `csrf_token` of GET /session in the header X-CSRF-Token, or use an API key.',
  ),
  FORBIDDEN: caller(403, 'Forbidden', "The API key lacks the permission '{permission}'."),
  WORKSPACE_REQUIRED: caller(
    403,
    'org_scoped_key_requires_workspace',
    'The key is scoped to the organisation: send the workspace id in the header X-Tenant-Id.',
  ),
  WORKSPACE_FORBIDDEN: caller(
    403,
    'Forbidden',
    'The workspace {workspace} does not exist, or the API key has no access to it.',
  ),
  ORGANIZATION_FORBIDDEN: caller(
    403,
    'Forbidden',
    'X-Organization-Id is not the organisation that the API key belongs to: leave the header out, or send the id of that organisation.',
  ),
  OPERATOR_ONLY: caller(
    403,
    'Forbidden',
    'Only keys of the first organisation, which belongs to the operator, can manage organisations: use one of them.',
  ),

  // Limits
  LIMIT_REACHED: caller(422, 'The organization has reached its limit of {limit} {what}.', '{hint}.'),
  ORGANIZATION_LIMIT_REACHED: caller(
    422,
    'The limit of {limit} organizations is reached.',
    'Delete organizations that are not needed.',
  ),
  USAGE_LIMIT_REACHED: caller(
    429,
    'Usage limit exceeded: the workspace has {used} traces in {month} (UTC), and its limit is {limit}.',
    'Wait for the next month, or raise or delete the limit with PUT or DELETE /usage-limits.',
  ),

  // Projects
  RETENTION_OUT_OF_RANGE: caller(422, 'Traces of a project cannot be kept for {days} days: {reason}.', '{remedy}.'),
  PROJECT_UNKNOWN: caller(
    422,
    'Project {project} does not exist in this workspace.',
    'Send the id of an existing project, or session_name, which creates the project.',
  ),

  // Runs
  INVALID_RUN: caller(422, 'Run {run}: {reason}.', 'Correct the run and send it again.'),
  ALL_RUNS_INVALID: caller(400, 'All runs of the batch are invalid: {reason}', 'Correct the runs and send them again.'),
  RUN_UNKNOWN: caller(
    404,
    'Run {run} not found.',
    'Send trace_id and dotted_order with the patch, or post the run first.',
  ),

  // Feedback and attachments
  INVALID_FEEDBACK: caller(422, 'Feedback {feedback}: {reason}.', 'Correct the feedback and send it again.'),
  INVALID_ATTACHMENT: caller(422, 'Attachment {attachment}: {reason}.', 'Correct the attachment and send it again.'),
  LINK_EXPIRED: caller(403, 'The link has expired.', 'Read the run or the example again to get a new link.'),

  // Datasets
  INVALID_SCHEMA: caller(
    422,
    'The JSON Schema {field} cannot be used: {reason}.',
    'Correct the schema of the dataset.',
  ),
  INVALID_EXAMPLE: caller(422, 'Example {example}: {reason}.', 'Correct the example and send it again.'),
  INVALID_FILE: caller(422, 'Row {row} of the file: {reason}.', 'Correct the file and send it again.'),
  EXAMPLE_TOO_LARGE: caller(
    413,
    'Example {example} is larger than {limitBytes} bytes ({limit}).',
    'Send smaller inputs, outputs and attachments.',
  ),
  DATASET_FULL: caller(422, 'The dataset would have more than {limit} {what}.', '{remedy}.'),

  // Prompts, agents and skills
  REPO_FULL: caller(
    422,
    'The repo would have more than {limit} {what}.',
    'Use another repo, or delete what is not needed.',
  ),
  COMMIT_CONFLICT: caller(409, '{reason}', 'Read the latest commit and apply the change to it.'),

  // Annotation queues
  QUEUE_FULL: caller(422, 'The queue would have more than {limit} {what}.', 'Use another queue, or remove {what}.'),
  REVIEWER_NOT_ASSIGNED: caller(
    403,
    'Only the reviewers of the queue can review its runs.',
    'Make the user a reviewer of the queue.',
  ),
  RUN_RESERVED: caller(409, 'Other users review the run or have completed it.', 'Review another run, or retry later.'),

  // Bulk exports and their destinations
  ...exportErrors,

  // Agent server
  ...agentErrors,

  // Deployments
  ...deploymentErrors,

  // OAuth providers
  ...oauthErrors,

  // Tool server
  ...toolErrors,

  // Overload and unavailable servers
  DRAINING: transient(
    503,
    'The server is shutting down.',
    'Retry; another process, or this one after its restart, accepts the request.',
  ),
  STARTING: transient(
    503,
    'The server is starting and waits for {what}.',
    'Retry after the time in Retry-After; `/ready` shows which server is unavailable.',
  ),
  RATE_LIMITED: transient(
    429,
    'More than {points} requests per second ({limit}).',
    'Retry after the time in Retry-After.',
  ),
  SIGN_IN_LIMITED: transient(
    429,
    '{points} sign-ins of this address have failed within {seconds} seconds, or are in progress.',
    'Retry after the time in Retry-After.',
  ),
  OVERLOADED: transient(503, 'Too much work is waiting ({what}).', 'Retry after the time in Retry-After.'),
  EVENT_LOG_UNAVAILABLE: transient(
    503,
    'The event log did not acknowledge the batch.',
    'Retry; a retry never stores anything twice.',
  ),
  NOT_STORED_YET: transient(
    503,
    'The request names something that is not stored, and accepted events are still waiting to be stored.',
    'Retry after the time in Retry-After; see `runlake doctor`.',
  ),
  KAFKA_UNAVAILABLE: transient(
    503,
    'Kafka at {brokers} cannot be reached, or did not respond in time: {reason}.',
    'Check RUNLAKE_KAFKA_BROKERS and that the brokers are running; see `runlake doctor`.',
  ),
  REGISTRY_UNAVAILABLE: transient(
    503,
    'The schema registry at {address} cannot be reached, or sent an unexpected response: {reason}.',
    'Check RUNLAKE_SCHEMA_REGISTRY_URL and that the registry is running; see `runlake doctor`.',
  ),
  PARTITION_LOST: transient(
    503,
    'Partition {partition} of {topic} was assigned to another process.',
    'No action is needed: the other process consumes its events.',
  ),
  CLICKHOUSE_UNAVAILABLE: transient(
    503,
    'ClickHouse cannot be reached, or did not respond in time.',
    'Retry; see `runlake doctor`.',
  ),
  DATABASE_UNAVAILABLE: transient(
    503,
    'Postgres cannot be reached, did not respond in time, or all connections of the organisation are in use.',
    'Retry; see `runlake doctor`.',
  ),
  PART_SILENT: transient(503, '{part} did not respond within {limitMs} ms.', 'Retry; see `runlake doctor`.'),
  CLICKHOUSE_QUERY_FAILED: terminal(
    500,
    'ClickHouse rejected a query of Runlake.',
    'See the server log for the query id.',
  ),
  JOBS_UNAVAILABLE: transient(
    503,
    'The job queue in {store} cannot be reached, or did not accept the job.',
    'Check {variable} and that {store} is running; see `runlake doctor`.',
  ),
  INVALID_JOB: terminal(
    500,
    'The payload of a job {job} is invalid: {reason}.',
    'Run the same release in all roles; see the server log.',
  ),
  REPLAY_UNCONFIRMED: transient(
    503,
    'The process that runs the event log did not confirm within {limitMs} ms that it replayed dead-letter record {deadLetter}.',
    'See the log of that process. If none is running, the record is replayed at the next start; `runlake dlq list` shows replayed records.',
  ),
  DEAD_LETTER_UNKNOWN: terminal(
    500,
    'There is no dead-letter record {deadLetter}.',
    'See `runlake dlq list` for the existing records.',
  ),
  JOB_TIMED_OUT: transient(
    503,
    'The job did not finish within {timeoutMs} ms.',
    'Runlake retries the job automatically.',
  ),
  INSERT_DATA_REFUSED: terminal(
    500,
    'ClickHouse rejected the data of an insert into {table}: {reason}.',
    'The sink moves the invalid record to the dead-letter queue.',
  ),
  ACCESS_DENIED_BY_STORE: terminal(
    500,
    '{store} denied access: {reason}.',
    'Check the user, password and database of its configured address, and the permissions of that user.',
  ),
  SEAL_KEY_UNKNOWN: terminal(
    500,
    '{what} are encrypted with a key that this process does not have (key {keyId}).',
    'Add the key to RUNLAKE_FORMER_SECRET_KEYS, or enter the credentials again.',
  ),
  SEAL_BROKEN: terminal(
    500,
    '{what} cannot be decrypted: they were modified, or belong to another row.',
    'Restore the row from a backup, or enter the credentials again.',
  ),
  DATABASE_QUERY_FAILED: terminal(500, 'Postgres rejected a query of Runlake.', 'See the server log.'),
  INTERNAL: terminal(500, 'Internal error.', 'See the server log for the request id.'),

  // Start
  ...startErrors,
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof catalogue;
