import { describe, expect, it } from 'vitest';
import { createSealer, type SealerOptions } from '../../../infra/sealing/sealer.ts';

const sealer = (more: Partial<SealerOptions> = {}) =>
  createSealer({ secretKey: 'the key of today', purpose: 'tests', what: 'The credentials', ...more });
const secret = '{"secret_access_key":"wJalrXUtnFEMI/K7MDENG"}';

const codeOf = (work: () => unknown) => {
  try {
    work();
    return 'opened';
  } catch (error) {
    expect(JSON.stringify(error) + String(error)).not.toContain('wJalr');
    return (error as { code: string }).code;
  }
};

describe('a sealed text', () => {
  it.each(['', 'a', secret, '\0 ü \u{1f511}', 'x'.repeat(10_000)])('opens to the original text (%#)', (text) => {
    expect(sealer().open(sealer().seal(text, 'row 1'), 'row 1')).toEqual({ text, isUnderFormerKey: false });
  });

  it('differs each time, and contains neither the text nor the key', () => {
    const sealed = [sealer().seal(secret, 'row 1'), sealer().seal(secret, 'row 1')];
    expect(sealed[0]).not.toBe(sealed[1]);
    for (const text of sealed) {
      expect(text).toMatch(/^s1\.[0-9a-f]{12}\.[\w-]+$/);
      expect(text + Buffer.from(text.split('.')[2] ?? '', 'base64url').toString('latin1')).not.toMatch(/wJalr|key of/);
    }
  });

  it('does not open if any character is changed', () => {
    const sealed = sealer().seal(secret, 'row 1');
    for (let index = 0; index < sealed.length; index++) {
      // The last character may have padding bits; a change of only these bits changes no byte.
      const changed = sealed.slice(0, index) + (sealed[index] === 'A' ? 'B' : 'A') + sealed.slice(index + 1);
      const same = Buffer.from(changed.split('.')[2] ?? '', 'base64url').equals(
        Buffer.from(sealed.split('.')[2] ?? '', 'base64url'),
      );
      if (same && changed.split('.')[1] === sealed.split('.')[1] && changed.startsWith('s1.')) continue;
      expect(codeOf(() => sealer().open(changed, 'row 1'))).toMatch(/^SEAL_(BROKEN|KEY_UNKNOWN)$/);
    }
  });

  it.each([
    '',
    's1',
    's1..',
    's1.000000000000.',
    's1.000000000000.AAAA',
    's2.000000000000.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
    'no seal at all',
    'x.'.repeat(1000),
  ])('refuses texts that are not sealed (%#)', (text) => {
    expect(codeOf(() => sealer().open(text, 'row 1'))).toBe('SEAL_BROKEN');
  });

  it('opens only with its row and purpose', () => {
    const sealed = sealer().seal(secret, 'row 1');
    expect(codeOf(() => sealer().open(sealed, 'row 2'))).toBe('SEAL_BROKEN');
    expect(codeOf(() => sealer({ purpose: 'other' }).open(sealed, 'row 1'))).toBe('SEAL_KEY_UNKNOWN');
    // The opening fails even if the id of the other key is written into the sealed value.
    const [, otherId] = sealer({ purpose: 'other' }).seal('', '').split('.');
    const forged = sealed.replace(/\.[0-9a-f]{12}\./, `.${otherId}.`);
    expect(codeOf(() => sealer({ purpose: 'other' }).open(forged, 'row 1'))).toBe('SEAL_BROKEN');
  });

  it('opens with a former key while that is configured, and is marked for sealing again', () => {
    const old = sealer().seal(secret, 'row 1');
    const rotated = sealer({
      secretKey: 'the key of tomorrow',
      formerSecretKeys: 'an older one, the key of today',
    });
    expect(rotated.open(old, 'row 1')).toEqual({ text: secret, isUnderFormerKey: true });
    const fresh = rotated.seal(secret, 'row 1');
    const retired = sealer({ secretKey: 'the key of tomorrow' });
    expect(retired.open(fresh, 'row 1')).toEqual({ text: secret, isUnderFormerKey: false });
    expect(codeOf(() => retired.open(old, 'row 1'))).toBe('SEAL_KEY_UNKNOWN');
    // The current key may also be listed as a former key.
    expect(sealer({ formerSecretKeys: 'the key of today' }).open(old, 'row 1').isUnderFormerKey).toBe(false);
  });
});
