import { expect, it } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import {
  describeProjectError,
  formatProjectError,
  serializeError,
} from '../../../../pipelines/agents/workers/serialized-error.ts';

const { proxy: revoked, revoke } = Proxy.revocable({}, {});
revoke();
const unreadable = Object.defineProperty(new Error(), 'message', {
  get: () => {
    throw new Error('unreadable');
  },
});
const textless = 'The graph threw a value that has no text.';

it.each<[string, unknown, string, string, string]>([
  ['an error', new TypeError('broke'), 'TypeError', 'broke', 'TypeError: broke'],
  ['a text', 'broke', 'Error', 'broke', 'broke'],
  ['an object without a prototype', Object.create(null), 'Error', textless, textless],
  ['an error whose message cannot be read', unreadable, 'Error', textless, textless],
  ['a revoked proxy', revoked, 'Error', textless, textless],
])('describes %s', (_, thrown, error, message, text) => {
  expect(describeProjectError(thrown)).toEqual({ error, message });
  expect(formatProjectError(thrown)).toBe(text);
  expect(serializeError({ kind: 'embed', texts: [] }, thrown)).toEqual({
    code: 'STORE_EMBEDDER_UNUSABLE',
    params: { reason: text },
  });
});

it('serialises errors of Runlake with their parameters', () => {
  const error = runlakeError('NOT_FOUND', { what: 'Deployment' });
  expect(serializeError({ kind: 'embed', texts: [] }, error)).toEqual({
    code: 'NOT_FOUND',
    params: { what: 'Deployment' },
  });
});
