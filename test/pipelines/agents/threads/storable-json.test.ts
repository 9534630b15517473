import { expect, test } from 'vitest';
import { requireStorableJson } from '../../../../pipelines/agents/threads/storable-json.ts';

const backslash = '\\';

test.each([
  ['a NUL character', '\0', false],
  ['half of a pair', '\ud800', false],
  ['the other half', 'x\udfff', false],
  ['a NUL character behind a backslash', `${backslash}\0`, false],
  ['a NUL character behind two', `${backslash}${backslash}\0`, false],
  ['half of a pair behind a backslash', `${backslash}\ud800`, false],
  ['the escape of NUL as text', `${backslash}u0000`, true],
  ['behind a further backslash', `${backslash}${backslash}u0000`, true],
  ['the escape of half of a pair as text', `${backslash}ud800`, true],
  ['whole characters', '😀 ü \n \u0001', true],
])('%s', (_, text, storable) => {
  for (const value of [text, { [text]: 1 }, [{ deep: text }]]) {
    const check = () => requireStorableJson(value, ['body', 'metadata']);
    if (storable) expect(check).not.toThrow();
    else expect(check).toThrow(expect.objectContaining({ code: 'INVALID_REQUEST' }));
  }
});
