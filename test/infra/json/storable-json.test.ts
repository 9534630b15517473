import { expect, test } from 'vitest';
import { requireStorableJson } from '../../../infra/json/json-value.ts';

const backslash = '\\';

test.each([
  ['a NUL character', '\0', false],
  ['a high surrogate alone', '\ud800', false],
  ['a low surrogate alone', 'x\udfff', false],
  ['a NUL character after a backslash', `${backslash}\0`, false],
  ['a NUL character after two backslashes', `${backslash}${backslash}\0`, false],
  ['a high surrogate after a backslash', `${backslash}\ud800`, false],
  ['the escape of NUL as text', `${backslash}u0000`, true],
  ['the escape of NUL as text after a backslash', `${backslash}${backslash}u0000`, true],
  ['the escape of a surrogate as text', `${backslash}ud800`, true],
  ['complete characters', '😀 ü \n \u0001', true],
])('checks %s', (_, text, storable) => {
  for (const value of [text, { [text]: 1 }, [{ deep: text }]]) {
    const check = () => requireStorableJson(value, ['body', 'metadata']);
    if (storable) expect(check).not.toThrow();
    else expect(check).toThrow(expect.objectContaining({ code: 'INVALID_REQUEST' }));
  }
});
