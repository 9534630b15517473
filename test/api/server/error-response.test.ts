import { describe, expect, it } from 'vitest';
import { buildErrorBody, renderError, retryAfterSeconds, toRunlakeError } from '../../../api/server/error-response.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

const limits = { bodyLimit: { bytes: 1_024, setting: 'RUNLAKE_AGENTS_MAX_BODY_BYTES' } };

describe('errorBody', () => {
  const fields = [{ loc: ['body', 'name'], msg: 'Field required', type: 'missing' }];

  it.each([
    ['detail', runlakeError('NOT_FOUND', { what: 'Session' }), { detail: 'Session not found.', code: 'NOT_FOUND' }],
    ['error', runlakeError('NOT_FOUND', { what: 'Run' }), { error: 'Run not found.', code: 'NOT_FOUND' }],
    ['detail', runlakeError('INVALID_REQUEST', {}, { fields }), { detail: fields }],
    ['error', runlakeError('INVALID_REQUEST', {}, { fields }), { details: fields }],
    [
      'detail',
      runlakeError('INVALID_UTF8', { part: 'body', offset: 3 }),
      {
        detail: [{ loc: ['body'], msg: 'Invalid UTF-8 in body at byte 3.', type: 'invalid_utf8' }],
        message: 'Invalid UTF-8 in body at byte 3.',
      },
    ],
    [
      'detail',
      runlakeError('WORKSPACE_REQUIRED'),
      { error: 'org_scoped_key_requires_workspace', detail: 'org_scoped_key_requires_workspace' },
    ],
    ['error', runlakeError('FORBIDDEN', { permission: 'runs:write' }), { error: 'Forbidden' }],
    ['detail', runlakeError('INTERNAL'), { detail: 'Internal error.', request_id: 'r1' }],
  ] as const)('in the style %s: %s', (style, error, body) => {
    expect(buildErrorBody(error, style, 'r1')).toMatchObject({ ...body, remedy: error.remedy });
  });
});

describe('a problem', () => {
  const render = (error: Parameters<typeof renderError>[0]) => {
    const { body, ...rest } = renderError(error, 'problem', { id: 'r1', path: '/v2/x', contentType: undefined });
    return { ...rest, body: JSON.parse(String(body)) };
  };

  it('has the fields of RFC 9457, and code and remedy', () => {
    const error = runlakeError('NOT_FOUND', { what: 'Run' });
    expect(render(error)).toEqual({
      status: 404,
      contentType: 'application/problem+json; charset=utf-8',
      body: {
        type: 'about:blank',
        title: 'Not Found',
        status: 404,
        detail: 'Run not found.',
        instance: '/v2/x',
        code: 'NOT_FOUND',
        remedy: error.remedy,
      },
    });
  });

  it('lists invalid fields, the text that SDKs search, and the request id of a failure', () => {
    const fields = [{ loc: ['body', 'name'], msg: 'Field required', type: 'missing' }];
    expect(render(runlakeError('INVALID_REQUEST', {}, { fields })).body).toMatchObject({
      detail: 'body.name: Field required',
      errors: fields,
    });
    expect(render(runlakeError('WORKSPACE_REQUIRED')).body.error).toBe('org_scoped_key_requires_workspace');
    expect(render(runlakeError('INTERNAL')).body.request_id).toBe('r1');
  });
});

describe('toRunlakeError', () => {
  it.each([
    [{ code: 'FST_ERR_CTP_BODY_TOO_LARGE' }, 'BODY_TOO_LARGE'],
    [{ code: 'FST_ERR_BAD_URL' }, 'BAD_REQUEST'],
    [{ code: 'FST_ERR_ROUTE_MISSING_CONTENT_TYPE', statusCode: 400 }, 'BAD_REQUEST'],
    [{ code: 'FST_ERR_OF_A_LATER_RELEASE', statusCode: 431 }, 'BAD_REQUEST'],
    [{ code: 'FST_ERR_SEND_UNDEFINED_ERR', statusCode: 500 }, 'INTERNAL'],
    [{ code: 'constructor' }, 'INTERNAL'],
    [{ code: 'ECONNRESET' }, 'BAD_REQUEST'],
    [new TypeError('secret'), 'INTERNAL'],
    ['thrown text', 'INTERNAL'],
    [null, 'INTERNAL'],
  ])('maps %o to %s', (raw, code) => {
    const error = toRunlakeError(raw, limits);
    expect(error.code).toBe(code);
    expect(JSON.stringify(buildErrorBody(error, 'detail', ''))).not.toContain('secret');
  });

  it('returns an error of the catalogue unchanged', () => {
    const error = runlakeError('CONFLICT', { reason: 'x' });
    expect(toRunlakeError(error, limits)).toBe(error);
  });
});

describe('retryAfterSeconds', () => {
  it.each([
    [runlakeError('DRAINING'), 1],
    [runlakeError('OVERLOADED', {}, { retryAfterSeconds: 7 }), 7],
    [runlakeError('NOT_FOUND'), undefined],
    [runlakeError('INTERNAL'), undefined],
  ])('%s: %s', (error, seconds) => {
    expect(retryAfterSeconds(error)).toBe(seconds);
  });
});
