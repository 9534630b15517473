import { describe, expect, it } from 'vitest';
import { catalogue, type ErrorCode, type ErrorEntry } from '../../../infra/errors/catalogue.ts';
import { isRunlakeError, isTransient, runlakeError } from '../../../infra/errors/runlake-error.ts';

describe.each(Object.entries<ErrorEntry>(catalogue))('%s', (code, entry) => {
  it('has a status that fits its class, a message and a remedy', () => {
    // The caller chose the store, or sends too much: the status is 4xx, although the error may be temporary.
    const isCallerError = entry.class === 'caller' || /^(?:DESTINATION_.*|(?:RATE|SIGN_IN)_LIMITED)$/.test(code);
    const [from, to] = isCallerError ? [400, 499] : [500, 599];
    expect(entry.status).toBeGreaterThanOrEqual(from);
    expect(entry.status).toBeLessThanOrEqual(to);
    expect(entry.message).not.toBe('');
    expect(entry.remedy).toMatch(/[.}]$/);
    expect(code).toMatch(/^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$/);
  });

  it('creates an error with this code', () => {
    const error = runlakeError(code as ErrorCode);
    expect(error).toMatchObject({ code, status: entry.status, class: entry.class });
    expect(isRunlakeError(error)).toBe(true);
    expect(isTransient(error)).toBe(entry.class === 'transient');
  });
});

describe('runlakeError', () => {
  it('fills placeholders of message and remedy, and leaves unknown ones', () => {
    const error = runlakeError('PORT_IN_USE', { port: 80 });
    expect(error.message).toBe('Port 80 on {host} is in use.');
    expect(runlakeError('FORBIDDEN', { permission: 'runs:read' }).remedy).toBe(
      "The API key lacks the permission 'runs:read'.",
    );
  });

  it('does not fill placeholders with inherited properties', () => {
    expect(runlakeError('BAD_REQUEST', { reason: '{constructor} {toString}' }).message).toBe(
      '{constructor} {toString}',
    );
  });

  it('does not serialise the cause', () => {
    const error = runlakeError('INTERNAL', {}, { cause: new Error('text of a server') });
    expect((error.cause as Error).message).toBe('text of a server');
    expect(JSON.stringify(error)).not.toContain('text of a server');
    expect(Object.keys(error)).not.toContain('cause');
  });

  it('carries fields and the retry delay', () => {
    const fields = [{ loc: ['body'], msg: 'no', type: 'x' }];
    expect(runlakeError('INVALID_REQUEST', {}, { fields }).fields).toBe(fields);
    expect(runlakeError('OVERLOADED', {}, { retryAfterSeconds: 3 }).retryAfterSeconds).toBe(3);
  });
});
