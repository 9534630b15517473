import { describe, expect, it, vi } from 'vitest';
import {
  createOrFind,
  getSqlState,
  getViolatedConstraint,
  leavesConnectionUsable,
  toDatabaseError,
  toStatementError,
} from '../../../infra/postgres/database-error.ts';

const raw = (code: string) => Object.assign(new Error('text of the server'), { severity: 'ERROR', code });

describe('databaseError', () => {
  it.each<[string, string, boolean]>([
    // SQLSTATE, error, whether the connection may be used again
    ['08006', 'DATABASE_UNAVAILABLE', false],
    ['53300', 'DATABASE_UNAVAILABLE', true],
    ['53100', 'DATABASE_UNAVAILABLE', true],
    ['57014', 'DATABASE_UNAVAILABLE', true],
    ['57P01', 'DATABASE_UNAVAILABLE', false],
    ['57P02', 'DATABASE_UNAVAILABLE', false],
    ['57P03', 'DATABASE_UNAVAILABLE', false],
    ['40001', 'DATABASE_UNAVAILABLE', true],
    ['40P01', 'DATABASE_UNAVAILABLE', true],
    ['55P03', 'DATABASE_UNAVAILABLE', true],
    ['25006', 'DATABASE_UNAVAILABLE', false],
    ['28P01', 'ACCESS_DENIED_BY_STORE', true],
    ['3D000', 'ACCESS_DENIED_BY_STORE', true],
    ['42501', 'ACCESS_DENIED_BY_STORE', true],
    ['23505', 'DATABASE_QUERY_FAILED', true],
    ['42P01', 'DATABASE_QUERY_FAILED', true],
    ['22P02', 'DATABASE_QUERY_FAILED', true],
    ['XX000', 'DATABASE_QUERY_FAILED', true],
  ])('SQLSTATE %s', (state, code, isConnectionUsable) => {
    const error = toDatabaseError(raw(state));
    expect(error).toMatchObject({ code });
    expect(error.message).not.toContain('text of the server');
    expect(error.message).not.toMatch(/\{\w+\}/);
    expect(getSqlState(error)).toBe(state);
    expect(leavesConnectionUsable(raw(state))).toBe(isConnectionUsable);
  });

  it.each(['ECONNREFUSED', 'ECONNRESET', 'ENOTFOUND', 'EAI_AGAIN', 'ETIMEDOUT', undefined])(
    'maps connection error %s',
    (code) => {
      const failure = Object.assign(new Error('Connection terminated'), { code });
      expect(toDatabaseError(failure)).toMatchObject({
        code: 'DATABASE_UNAVAILABLE',
        class: 'transient',
        retryAfterSeconds: 1,
      });
      expect(leavesConnectionUsable(failure)).toBe(false);
    },
  );

  it('returns a programming error unchanged', () => {
    const error = new TypeError('x is not a function');
    expect(toDatabaseError(error)).toBe(error);
  });

  it.each([
    ['another database error', toDatabaseError(raw('42P01'))],
    ['an unrelated error', new Error('else')],
    ['nothing', undefined],
  ])('%s is no unique violation', (_, error) => {
    expect(getViolatedConstraint(error)).toBeUndefined();
  });
});

describe('createOrFind', () => {
  const disconnected = new Error('Connection terminated unexpectedly');
  it.each([
    ['the wait for a connection', toDatabaseError(new Error('timeout exceeded when trying to connect'))],
    ['a starting server', toDatabaseError(raw('57P03'))],
    ['the timeout of the statement', toStatementError(raw('57014'))],
    ['a violated constraint', toStatementError(raw('23505'))],
  ])('does not repeat a statement that %s ends', async (_, error) => {
    const create = vi.fn().mockRejectedValue(error);
    const find = vi.fn();
    await expect(createOrFind(create, find)).rejects.toBe(error);
    expect([create.mock.calls.length, find.mock.calls.length]).toEqual([1, 0]);
  });

  it('returns the row that the repeated statement creates or finds, or its error', async () => {
    const find = vi.fn().mockResolvedValue(undefined);
    const fail = () => vi.fn().mockRejectedValueOnce(toStatementError(disconnected));
    const duplicate = toStatementError(raw('23505'));
    expect(await createOrFind(fail().mockResolvedValue('created'), find)).toBe('created');
    await expect(createOrFind(fail().mockRejectedValue(duplicate), find)).rejects.toBe(duplicate);
    find.mockResolvedValue('found');
    expect(await createOrFind(fail().mockRejectedValue(duplicate), find)).toBe('found');
    expect(await createOrFind(fail().mockResolvedValue(undefined), find)).toBe('found');
  });
});
