import { describe, expect, it } from 'vitest';
import { createTokenSigner } from '../../../infra/signing/token-signer.ts';

const signer = createTokenSigner('secret', 'test');
const text = '["ä.b",".",""]';
const token = signer.sign(text, 1_000);
const [body = '', signature = ''] = token.split('.');

describe('a token', () => {
  it('returns its text until it expires', () => {
    expect(token).toMatch(/^[\w-]+\.[\w-]{43}$/);
    expect(signer.open(token, 999)).toEqual({ kind: 'valid', text });
    expect(signer.open(token, 1_000)).toEqual({ kind: 'expired' });
    expect(signer.open(signer.sign('', 5), 4)).toEqual({ kind: 'valid', text: '' });
  });

  it.each([
    ['an empty text', ''],
    ['a dot', '.'],
    ['no signature', `${body}.`],
    ['no body', `.${signature}`],
    ['another body', `${Buffer.from('2000.x').toString('base64url')}.${signature}`],
    ['a later expiry', `${Buffer.from(`9999.${text}`).toString('base64url')}.${signature}`],
    ['a shorter signature', token.slice(0, -1)],
    ['a longer signature', `${token}A`],
    ['padding', `${token}=`],
    ['a third part', `${token}.x`],
    ['white space', ` ${token}`],
    ['another secret', createTokenSigner('secre7', 'test').sign(text, 1_000)],
    ['another purpose', createTokenSigner('secret', 'other').sign(text, 1_000)],
  ])('with %s is not valid', (_, wrong) => {
    expect(signer.open(wrong, 0)).toEqual({ kind: 'invalid' });
  });

  it('is invalid if any character is changed', () => {
    for (let at = 0; at < token.length; at++) {
      const other = token[at] === 'A' ? 'B' : 'A';
      expect(signer.open(token.slice(0, at) + other + token.slice(at + 1), 0)).toEqual({ kind: 'invalid' });
    }
  });
});
