import fc from '../../../house/fast-check.ts';

/**
 * Generates JSON text in many styles: with white space, escapes, and numbers that our own writers would not produce.
 */
export const jsonText: fc.Arbitrary<string> = fc.letrec<{ value: string }>((tie) => {
  const space = fc.constantFrom('', '', '', ' ', '\n', '\t\r ');
  const string = fc.oneof(
    fc.string({ unit: 'binary' }).map((text) => JSON.stringify(text)),
    fc.constantFrom('"\\ud800"', '"\\u0000\\/"', '"\\\\"', '"__proto__"', `"${'long '.repeat(30)}\\n"`),
  );
  const number = fc.oneof(
    fc.double({ noDefaultInfinity: true, noNaN: true }).map((value) => JSON.stringify(value)),
    fc.bigInt().map(String),
    fc.constantFrom('-0', '1e999', '-1.50E+07', '0.1e-5', '12345678901234567890'),
  );
  const padded = fc.tuple(space, tie('value'), space).map((parts) => parts.join(''));
  const member = fc
    .tuple(space, string, space, padded)
    .map(([before, key, after, value]) => `${before}${key}${after}:${value}`);
  return {
    value: fc.oneof(
      { maxDepth: 5, withCrossShrink: true },
      string,
      number,
      fc.constantFrom('true', 'false', 'null', '{}', '[ ]'),
      fc.array(padded, { maxLength: 5 }).map((items) => `[${items.join(',')}]`),
      fc.array(member, { maxLength: 5 }).map((items) => `{${items.join(',')}}`),
    ),
  };
}).value;

/** Generates the bytes of `text`, of which one to three bytes are changed, inserted, removed or truncated. */
export function mutated(text: string): fc.Arbitrary<Buffer> {
  const byte = fc.oneof(
    fc.constantFrom(...Buffer.from('{}[]",:\\0-+.eEtfn u/ \n\0\x1f\x7f')),
    fc.integer({ min: 0, max: 255 }),
  );
  const change = fc.tuple(fc.constantFrom('set', 'insert', 'delete', 'cut', 'swap'), fc.nat(), byte);
  return fc.array(change, { minLength: 1, maxLength: 3 }).map((changes) => {
    let bytes = [...Buffer.from(text)];
    for (const [kind, position, value] of changes) {
      const at = bytes.length === 0 ? 0 : position % bytes.length;
      if (kind === 'set') bytes[at] = value;
      else if (kind === 'insert') bytes.splice(at, 0, value);
      else if (kind === 'delete') bytes.splice(at, 1);
      else if (kind === 'cut') bytes = bytes.slice(0, at);
      else bytes.push(...bytes.splice(at, 1));
    }
    return Buffer.from(bytes);
  });
}

export function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export function catchError(run: () => unknown): unknown {
  try {
    run();
    return undefined;
  } catch (error) {
    return error;
  }
}
