import { ClickHouseError } from '@clickhouse/client';
import type { ErrorCode } from '../errors/catalogue.ts';
import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';

/**
 * The statement that failed. The same error number has different meanings for a query and for an insert of Runlake's
 * rows.
 */
export interface Statement {
  readonly kind: 'query' | 'insert';
  readonly name: string;
  /** Query id in ClickHouse's log (`query_id`). */
  readonly queryId: string;
  /** Table that the rows are inserted into. Set for inserts. */
  readonly table?: string;
}

/** Limits that a statement with fewer rows may keep, by error number. */
const limitsByCode: ReadonlyMap<number | undefined, 'time' | 'memory'> = new Map([
  [159, 'time'], // TIMEOUT_EXCEEDED
  [241, 'memory'], // MEMORY_LIMIT_EXCEEDED
]);

/**
 * ClickHouse error numbers of temporary conditions: a retry may succeed. Source: src/Common/ErrorCodes.cpp of
 * ClickHouse. The meaning of a number never changes.
 */
const transientCodes = new Set([
  159, // TIMEOUT_EXCEEDED
  160, // TOO_SLOW
  198, // DNS_ERROR
  201, // QUOTA_EXCEEDED
  202, // TOO_MANY_SIMULTANEOUS_QUERIES
  203, // NO_FREE_CONNECTION
  209, // SOCKET_TIMEOUT
  210, // NETWORK_ERROR
  225, // NO_ZOOKEEPER
  236, // ABORTED: the server is shutting down
  241, // MEMORY_LIMIT_EXCEEDED
  242, // TABLE_IS_READ_ONLY: a replica without its keeper
  243, // NOT_ENOUGH_SPACE
  252, // TOO_MANY_PARTS; see {@link isTooManyPartitions}
  279, // ALL_CONNECTION_TRIES_FAILED
  285, // TOO_FEW_LIVE_REPLICAS
  286, // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
  289, // REPLICA_IS_NOT_IN_QUORUM
  319, // UNKNOWN_STATUS_OF_INSERT
  394, // QUERY_WAS_CANCELLED
  439, // CANNOT_SCHEDULE_TASK
  473, // DEADLOCK_AVOIDED
  519, // NO_REMOTE_SHARD_AVAILABLE
  692, // TOO_MANY_MUTATIONS
  735, // QUERY_WAS_CANCELLED_BY_CLIENT
  745, // SERVER_OVERLOADED
  999, // KEEPER_EXCEPTION
]);

/**
 * Error numbers for failed authentication, missing permissions and an unknown database. Neither a retry nor other data
 * helps.
 */
const accessCodes = new Set([81, 192, 193, 194, 195, 497, 516]);

/** Error numbers for a statement that does not match the table (columns or their types). Every record would fail. */
const schemaCodes = new Set([
  8, // THERE_IS_NO_COLUMN
  10, // NOT_FOUND_COLUMN_IN_BLOCK
  16, // NO_SUCH_COLUMN_IN_TABLE
  44, // ILLEGAL_COLUMN: the type of a field does not fit its column
  47, // UNKNOWN_IDENTIFIER
  60, // UNKNOWN_TABLE
]);

/** Error numbers for an invalid value or an invalid encoding of a record. */
const dataCodes = new Set([
  6, // CANNOT_PARSE_TEXT
  23, // CANNOT_READ_FROM_ISTREAM
  25, // CANNOT_PARSE_ESCAPE_SEQUENCE
  26, // CANNOT_PARSE_QUOTED_STRING
  27, // CANNOT_PARSE_INPUT_ASSERTION_FAILED
  32, // ATTEMPT_TO_READ_AFTER_EOF
  33, // CANNOT_READ_ALL_DATA
  38, // CANNOT_PARSE_DATE
  41, // CANNOT_PARSE_DATETIME
  53, // TYPE_MISMATCH
  69, // ARGUMENT_OUT_OF_BOUND
  70, // CANNOT_CONVERT_TYPE
  72, // CANNOT_PARSE_NUMBER
  117, // INCORRECT_DATA
  128, // TOO_LARGE_ARRAY_SIZE
  130, // CANNOT_READ_ARRAY_FROM_TEXT
  131, // TOO_LARGE_STRING_SIZE
  321, // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
  349, // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
  376, // CANNOT_PARSE_UUID
  407, // DECIMAL_OVERFLOW
  1001, // STD_EXCEPTION: thrown by the Avro library, or by others; see {@link isServerTrouble}
]);

/**
 * Returns whether an error with a number for invalid data has another cause, which the number does not show: a library
 * other than Avro, such as the file system on a full disk, or the connection to another server of the cluster.
 */
function isServerTrouble(number: number, message: string): boolean {
  return (number === 1_001 && !message.includes('type: avro::')) || message.includes('while receiving packet from');
}

/**
 * Returns whether the rows of one insert lie in too many partitions. Unlike too many parts, which merges reduce, the same
 * insert would fail for ever, and a smaller one succeeds.
 */
function isTooManyPartitions(number: number, message: string): boolean {
  return number === 252 && message.includes('Too many partitions for single INSERT block');
}

/**
 * Converts the error of a statement to an error of the catalogue. The text of the server is available only in the
 * cause, together with the name and the id of the query, which operators can search for in the server's log. Errors
 * without a ClickHouse number are treated as network errors, except programming errors, which are returned unchanged.
 */
export function toClickHouseError(
  raw: unknown,
  statement: Statement,
): RunlakeError | TypeError | RangeError | SyntaxError {
  if (raw instanceof TypeError || raw instanceof RangeError || raw instanceof SyntaxError) return raw;
  const sent = raw instanceof ClickHouseError ? raw : undefined;
  if (sent) sent.message = `${sent.message.trim()} [query ${statement.name}, id ${statement.queryId}]`;
  const code = sent ? toErrorCode(sent, statement.kind) : 'CLICKHOUSE_UNAVAILABLE';
  const type = sent?.type ? ` (${sent.type})` : '';
  return runlakeError(
    code,
    {
      store: 'ClickHouse',
      reason: `ClickHouse code ${sent?.code}${type}`,
      topic: statement.name,
      table: statement.table ?? '',
    },
    { cause: raw, ...(code === 'CLICKHOUSE_UNAVAILABLE' ? { retryAfterSeconds: 1 } : {}) },
  );
}

/**
 * Returns the limit for which a server gave up a statement: it took too long, or needed more memory than there is at the
 * moment. An insert of fewer rows may succeed.
 */
export function findExceededLimit(error: unknown): 'time' | 'memory' | undefined {
  return limitsByCode.get(getClickHouseCode(error));
}

/** Returns the ClickHouse error number in the cause of an error. Returns undefined if there is none. */
export function getClickHouseCode(error: unknown): number | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof ClickHouseError ? Number(cause.code) : undefined;
}

function toErrorCode({ code, message }: ClickHouseError, kind: Statement['kind']): ErrorCode {
  const status = /^HTTP (\d+)$/.exec(code)?.[1];
  if (status !== undefined) return mapStatusToErrorCode(Number(status));
  const number = Number(code);
  if (isTooManyPartitions(number, message))
    return kind === 'insert' ? 'INSERT_DATA_REFUSED' : 'CLICKHOUSE_QUERY_FAILED';
  if (transientCodes.has(number) || isServerTrouble(number, message)) return 'CLICKHOUSE_UNAVAILABLE';
  if (accessCodes.has(number)) return 'ACCESS_DENIED_BY_STORE';
  if (kind === 'insert' && schemaCodes.has(number)) return 'SCHEMA_MISMATCH';
  if (kind === 'insert' && dataCodes.has(number)) return 'INSERT_DATA_REFUSED';
  return 'CLICKHOUSE_QUERY_FAILED';
}

/**
 * Returns the error code for a response without a ClickHouse number. Such a response comes from a proxy, or from
 * ClickHouse before it parsed the statement.
 */
function mapStatusToErrorCode(status: number): ErrorCode {
  if (status === 401 || status === 403) return 'ACCESS_DENIED_BY_STORE';
  return status >= 500 || status === 408 || status === 429 ? 'CLICKHOUSE_UNAVAILABLE' : 'CLICKHOUSE_QUERY_FAILED';
}
