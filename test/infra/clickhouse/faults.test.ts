import { ClickHouseError } from '@clickhouse/client';
import { describe, expect, it } from 'vitest';
import { warehouseCodeOf, warehouseFault } from '../../../infra/clickhouse/faults.ts';

const query = { kind: 'query', name: 'q', queryId: 'id' } as const;
const insert = { kind: 'insert', name: 'run-events', queryId: 'id', table: 'runs' } as const;
const raw = (code: string) => new ClickHouseError({ message: 'text of the server', code, type: 'SOME_TYPE' });

describe('warehouseFault', () => {
  it.each([
    // code, of a query, of an insert
    ['159', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['202', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['209', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['210', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['236', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['241', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['242', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['243', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['252', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['394', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['999', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['516', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['81', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['497', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['8', 'WAREHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['10', 'WAREHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['16', 'WAREHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['44', 'WAREHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['60', 'WAREHOUSE_QUERY_FAILED', 'SCHEMA_MISMATCH'],
    ['6', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['27', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['33', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['53', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['69', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['117', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['131', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['321', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['349', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['376', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['1001', 'WAREHOUSE_QUERY_FAILED', 'INSERT_DATA_REFUSED'],
    ['36', 'WAREHOUSE_QUERY_FAILED', 'WAREHOUSE_QUERY_FAILED'],
    ['62', 'WAREHOUSE_QUERY_FAILED', 'WAREHOUSE_QUERY_FAILED'],
    ['0', 'WAREHOUSE_QUERY_FAILED', 'WAREHOUSE_QUERY_FAILED'],
    ['HTTP 502', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['HTTP 429', 'WAREHOUSE_UNAVAILABLE', 'WAREHOUSE_UNAVAILABLE'],
    ['HTTP 403', 'ACCESS_DENIED_BY_STORE', 'ACCESS_DENIED_BY_STORE'],
    ['HTTP 404', 'WAREHOUSE_QUERY_FAILED', 'WAREHOUSE_QUERY_FAILED'],
  ])('code %s', (code, ofQuery, ofInsert) => {
    for (const [statement, expected] of [
      [query, ofQuery],
      [insert, ofInsert],
    ] as const) {
      const error = warehouseFault(raw(code), statement);
      expect(error).toMatchObject({ code: expected });
      expect(error.message).not.toContain('text of the server');
      expect(error.message).not.toMatch(/\{\w+\}/);
    }
  });

  it.each(['ECONNREFUSED', 'ECONNRESET', 'ENOTFOUND', 'EPIPE', 'ETIMEDOUT', undefined])('network fault %s', (code) => {
    const error = warehouseFault(Object.assign(new Error('no way'), { code }), insert);
    expect(error).toMatchObject({ code: 'WAREHOUSE_UNAVAILABLE', retryable: true, retryAfterSeconds: 1 });
  });

  it('a time limit of the client', () => {
    expect(warehouseFault(new DOMException('late', 'TimeoutError'), query)).toMatchObject({
      code: 'WAREHOUSE_UNAVAILABLE',
    });
  });

  it('a programming error stays what it is', () => {
    const error = new TypeError('x is not a function');
    expect(warehouseFault(error, query)).toBe(error);
  });

  it('keeps the number for those who must tell faults apart', () => {
    expect(warehouseCodeOf(warehouseFault(raw('57'), query))).toBe(57);
    expect(warehouseCodeOf(new Error('else'))).toBeUndefined();
  });
});
