import { describe, expect, it } from 'vitest';
import {
  getSqlState,
  getViolatedConstraint,
  leavesConnectionUsable,
  toDatabaseError,
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
        retryable: true,
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
