import { ClickHouseError } from '@clickhouse/client';
import { describe, expect, it } from 'vitest';
import { getClickHouseCode, toClickHouseError } from '../../../infra/clickhouse/clickhouse-error.ts';

const query = { kind: 'query', name: 'q', queryId: 'id' } as const;
const insert = { kind: 'insert', name: 'run-events', queryId: 'id', table: 'runs' } as const;
const raw = (code: string) => new ClickHouseError({ message: 'text of the server', code, type: 'SOME_TYPE' });

describe('clickhouseError', () => {
  it.each([
    // code, error of a query, error of an insert
    ['159', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['202', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['209', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['210', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['236', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['241', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['242', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['243', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['252', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['394', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['519', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['999', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['516', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['81', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['497', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['8', 'CLICKHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['10', 'CLICKHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['16', 'CLICKHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['44', 'CLICKHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['60', 'CLICKHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['6', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['27', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['33', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['53', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['69', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['117', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['131', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['321', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['349', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['376', 'CLICKHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['36', 'CLICKHOUSE_QUERY_FAILED', 'CLICKHOUSE_QUERY_FAILED'],
    ['62', 'CLICKHOUSE_QUERY_FAILED', 'CLICKHOUSE_QUERY_FAILED'],
    ['0', 'CLICKHOUSE_QUERY_FAILED', 'CLICKHOUSE_QUERY_FAILED'],
    ['HTTP 502', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['HTTP 429', 'CLICKHOUSE_UNAVAILABLE', 'CLICKHOUSE_UNAVAILABLE'],
    ['HTTP 403', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['HTTP 404', 'CLICKHOUSE_QUERY_FAILED', 'CLICKHOUSE_QUERY_FAILED'],
  ])('code %s', (code, queryErrorCode, insertErrorCode) => {
    for (const [statement, expected] of [
      [query, queryErrorCode],
      [insert, insertErrorCode],
    ] as const) {
      const error = toClickHouseError(raw(code), statement);
      expect(error).toMatchObject({ code: expected });
      expect(error.message).not.toContain('text of the server');
      expect(error.message).not.toMatch(/\{\w+\}/);
    }
  });

  it.each([
    [
      '252',
      'Too many partitions for single INSERT block (more than 100). The limit is controlled by a setting',
      'INSERT_DATA_REFUSED',
    ],
    ['252', 'Too many parts (3000 with average size of 1.00 KiB) in table', 'CLICKHOUSE_UNAVAILABLE'],
    ['1001', 'std::exception. Code: 1001, type: avro::Exception, e.what() = EOF reached', 'INSERT_DATA_REFUSED'],
    [
      '1001',
      'std::exception. Code: 1001, type: std::__1::__fs::filesystem::filesystem_error, e.what() = filesystem error: in create_directories: No space left on device',
      'CLICKHOUSE_UNAVAILABLE',
    ],
    ['32', 'Attempt to read after eof: while executing AvroRowInputFormat', 'INSERT_DATA_REFUSED'],
    ['32', 'Attempt to read after eof: while receiving packet from 127.0.0.1:9000', 'CLICKHOUSE_UNAVAILABLE'],
  ])('code %s of an insert, with the message %s', (code, message, expected) => {
    const error = new ClickHouseError({ message, code, type: 'SOME_TYPE' });
    expect(toClickHouseError(error, insert)).toMatchObject({ code: expected });
  });

  it.each(['ECONNREFUSED', 'ECONNRESET', 'ENOTFOUND', 'EPIPE', 'ETIMEDOUT', undefined])(
    'maps network error %s',
    (code) => {
      const error = toClickHouseError(Object.assign(new Error('no way'), { code }), insert);
      expect(error).toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE', class: 'transient', retryAfterSeconds: 1 });
    },
  );

  it('maps a timeout of the client', () => {
    expect(toClickHouseError(new DOMException('late', 'TimeoutError'), query)).toMatchObject({
      code: 'CLICKHOUSE_UNAVAILABLE',
    });
  });

  it('returns a programming error unchanged', () => {
    const error = new TypeError('x is not a function');
    expect(toClickHouseError(error, query)).toBe(error);
  });

  it('clickhouseCodeOf returns the error number of the server', () => {
    expect(getClickHouseCode(toClickHouseError(raw('57'), query))).toBe(57);
    expect(getClickHouseCode(new Error('else'))).toBeUndefined();
  });
});
