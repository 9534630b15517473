import { describe, expect, it } from 'vitest';
import { parseForm, parseMultipart } from '../../../../pipelines/ingest/body/multipart.ts';
import fc from '../../../house/fast-check.ts';
import { runToCompletion } from '../run-to-completion.ts';

const contentType = 'multipart/form-data; boundary=b0und';
const part = (headers: string, content: string) => `--b0und\r\n${headers}\r\n\r\n${content}\r\n`;
const named = (name: string, content = '{}', more = '') =>
  part(`Content-Disposition: form-data; name="${name}"${more}`, content);
const parse = (text: string | Buffer, type = contentType, maxParts = 100) => {
  const body = Buffer.from(text);
  return runToCompletion(parseForm(body, type, maxParts)).map(({ start, end, headersStart, error, ...rest }) => {
    expect(body.toString('latin1', headersStart - 2, headersStart)).toBe('\r\n');
    return { ...rest, content: body.toString('utf8', start, end) };
  });
};

describe('valid bodies', () => {
  it('body of the JavaScript SDK: length beside the type', () => {
    const text = `${part('Content-Disposition: form-data; name="post.1"\r\nContent-Type: application/json; length=7', '{"a":1}')}--b0und--\r\n`;
    expect(parse(text)).toEqual([
      { name: 'post.1', contentType: 'application/json', filename: undefined, content: '{"a":1}' },
    ]);
  });

  it('body of the Python SDK: length as a header', () => {
    const text = `${part('Content-Disposition: form-data; name="post.1.inputs"\r\nContent-Type: application/json\r\nContent-Length: 5', '"é"x')}--b0und--\r\n`;
    expect(parse(text)).toMatchObject([{ name: 'post.1.inputs', contentType: 'application/json', content: '"é"x' }]);
  });

  const end = '--b0und--\r\n';
  it.each<[string, string, string[]]>([
    ['without parts', end, []],
    ['without a line end at the end', `${named('a', 'x')}--b0und--`, ['x']],
    ['with a preamble', `ignored --b0und\r\n${named('a', 'x')}${end}`, ['x']],
    ['with an empty line first', `\r\n${named('a', 'x')}${end}`, ['x']],
    ['with an epilogue', `${named('a', 'x')}${end}${named('b', 'y')}`, ['x']],
    ['with spaces after boundaries', `${named('a', 'x').replace('--b0und', '--b0und \t ')}${end}`, ['x']],
    ['with an empty part', `${named('a', '')}${named('b', 'y')}${end}`, ['', 'y']],
    [
      'with an empty part without its own line end',
      `--b0und\r\nContent-Disposition: form-data; name="a"\r\n\r\n${end}`,
      [''],
    ],
    ['with line ends in the content', `${named('a', '\r\n\r\n--\r\n')}${end}`, ['\r\n\r\n--\r\n']],
    [
      'almost the boundary in the content',
      `${named('a', 'x--b0und\n\r\n--b0un\r\n-b0und')}${end}`,
      ['x--b0und\n\r\n--b0un\r\n-b0und'],
    ],
    [
      'with headers in another order and case',
      `--b0und\r\nCONTENT-TYPE:text/plain\r\ncontent-disposition:\tform-data;name=a \r\n\r\nx\r\n${end}`,
      ['x'],
    ],
    [
      'with more headers',
      `--b0und\r\nX-A: é\r\nContent-Transfer-Encoding: BINARY\r\nContent-Encoding: identity\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n${end}`,
      ['x'],
    ],
  ])('%s', (_, text, contents) => {
    expect(parse(text).map(({ content }) => content)).toEqual(contents);
  });

  it.each<[string, string]>([
    ['name=plain', 'plain'],
    ['name="a b"', 'a b'],
    ['name="with \\"quotes\\" and \\\\"', 'with "quotes" and \\'],
    ['name="per%22cent%0D%0A%41"', 'per"cent\r\n%41'],
    ['name="größe 你好"', 'größe 你好'],
    ['filename="blob"; name="later"', 'later'],
    ['x="; name=wrong"; name="right"', 'right'],
    ['NAME="upper"', 'upper'],
    ['name="a;b=c"', 'a;b=c'],
    ['name="__proto__"', '__proto__'],
    // The JavaScript SDK does not escape the names of attachments.
    ['name="my "x""', 'my "x"'],
    ['name="my "x"; and "y""', 'my "x"; and "y"'],
    ['name="C:\\temp\\"', 'C:\\temp\\'],
    ['name="a"; filename="b"c"', 'a'],
  ])('a part with %s', (parameters, name) => {
    const [only] = parse(`--b0und\r\nContent-Disposition: form-data; ${parameters}\r\n\r\nx\r\n${end}`);
    expect(only?.name).toBe(name);
  });

  it('the file name is returned', () => {
    expect(parse(`${named('a', 'x', '; filename="b l\\"ob"')}${end}`)).toMatchObject([
      { name: 'a', filename: 'b l"ob' },
    ]);
  });

  it.each<[string, string]>([
    ['', ''],
    ['Image/PNG', 'image/png'],
    ['application/json; length=1', 'application/json'],
    ['application/json;length="1"', 'application/json'],
    ['text/plain; charset=utf-8; length=1', 'text/plain; charset=utf-8'],
    ['text/plain; Length=1; Charset=UTF-8', 'text/plain; Charset=UTF-8'],
  ])('a part of type %s', (type, expected) => {
    const headers = `Content-Disposition: form-data; name="a"${type === '' ? '' : `\r\nContent-Type: ${type}`}`;
    expect(parse(`${part(headers, 'x')}${end}`)).toMatchObject([{ contentType: expected }]);
  });

  it.each<[string, string]>([
    ['quoted', 'multipart/form-data; boundary="a b:c?"'],
    ['with other parameters', 'Multipart/Form-Data; charset=utf-8; Boundary=a+b'],
    ['of 70 characters', `multipart/form-data; boundary=${'x'.repeat(70)}`],
    ['of one character', 'multipart/form-data;boundary=x'],
  ])('a boundary %s', (_, type) => {
    const boundary = /boundary="?([^"]*)"?$/i.exec(type)?.[1];
    const text = `--${boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--${boundary}--`;
    expect(parse(text, type)).toMatchObject([{ name: 'a', content: 'x' }]);
  });

  it('any bytes in the parts', () => {
    const contents = fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 8 });
    const noiseArbitrary = fc.array(fc.constantFrom('\r\n', '--', 'b0un', 'd', '\r', '\n', '-'), { maxLength: 30 });
    fc.assert(
      fc.property(contents, noiseArbitrary, (random, noise) => {
        const all = [...random, Buffer.from(noise.join(''))].map((bytes) => Buffer.from(bytes));
        fc.pre(!all.some((bytes) => `\r\n${bytes.toString('latin1')}`.includes('\r\n--b0und')));
        const body = Buffer.concat([
          ...all.flatMap((bytes, index) => [
            Buffer.from(
              `--b0und\r\nContent-Disposition: form-data; name="${index}"\r\nContent-Length: ${bytes.length}\r\n\r\n`,
            ),
            bytes,
            Buffer.from('\r\n'),
          ]),
          Buffer.from('--b0und--'),
        ]);
        const parts = runToCompletion(parseMultipart(body, contentType, 100));
        expect(parts.map(({ start, end: after }) => body.subarray(start, after))).toEqual(all);
      }),
      { numRuns: 300 },
    );
  });
});

describe('invalid bodies', () => {
  const whole = `${named('a', 'x')}${named('b', 'y')}--b0und--\r\n`;

  it.each<[string, string, number, string]>([
    ['nothing', '', 0, 'the boundary of the Content-Type does not occur in the body'],
    [
      'another boundary',
      whole.replaceAll('b0und', 'other'),
      0,
      'the boundary of the Content-Type does not occur in the body',
    ],
    ['line feeds alone', whole.replaceAll('\r\n', '\n'), 7, 'a line end is expected after the boundary'],
    [
      'text after the boundary',
      whole.replace('--b0und\r', '--b0unds\r'),
      7,
      'a line end is expected after the boundary',
    ],
    ['no closing boundary', whole.slice(0, -11), 112, 'the body ends before the closing boundary'],
    [
      'a body truncated in the content',
      named('a', 'xyz').slice(0, -3),
      55,
      'the body ends before the closing boundary',
    ],
    ['a body truncated in the headers', named('a', 'x').slice(0, 40), 40, 'the body ends within the headers of a part'],
    ['a body truncated after the boundary', '--b0und', 7, 'the body ends before the closing boundary'],
    ['a body truncated within the line end', '--b0und\r', 8, 'the body ends before the closing boundary'],
    ['one dash after the last boundary', `${named('a', 'x')}--b0und-`, 64, 'the body ends before the closing boundary'],
    [
      'a part without headers',
      '--b0und\r\n\r\nx\r\n--b0und--',
      9,
      'a part has no Content-Disposition: form-data with a name',
    ],
    [
      'a part without name',
      `${part('Content-Disposition: form-data', 'x')}--b0und--`,
      9,
      'a part has no Content-Disposition: form-data with a name',
    ],
    [
      'a part with an empty name',
      `${named('', 'x')}--b0und--`,
      9,
      'a part has no Content-Disposition: form-data with a name',
    ],
    [
      'an attachment',
      `${part('Content-Disposition: attachment; name="a"', 'x')}--b0und--`,
      9,
      'a part has no Content-Disposition: form-data with a name',
    ],
    ['a name twice', `${named('a')}${named('b')}${named('a')}--b0und--`, 123, "the part 'a' is repeated"],
    ['a header without colon', `${part('Content-Disposition', 'x')}--b0und--`, 9, 'a header of a part is malformed'],
    [
      'a folded header',
      `${part('Content-Disposition: form-data;\r\n name="a"', 'x')}--b0und--`,
      9,
      'a header of a part is malformed',
    ],
    [
      'a line feed in a header',
      `${part('Content-Disposition: form-data; name="a\nb"', 'x')}--b0und--`,
      9,
      'a header of a part is malformed',
    ],
    ['a NUL in a name', `${named('a\0b', 'x')}--b0und--`, 9, 'a header of a part is malformed'],
    [
      'a header twice',
      `${part('Content-Disposition: form-data; name=a\r\ncontent-disposition: form-data; name=b', 'x')}--b0und--`,
      9,
      'a part has the header content-disposition twice',
    ],
    [
      'seventeen headers',
      `${part(Array.from({ length: 17 }, (_, index) => `X-${index}: 1`).join('\r\n'), 'x')}--b0und--`,
      9,
      'a part has more than 16 headers',
    ],
    [
      'headers above 8 KiB',
      `${part(`X: ${'x'.repeat(8_190)}`, 'x')}--b0und--`,
      9,
      'the headers of a part are longer than 8192 bytes',
    ],
    [
      'a name above 1,024 characters',
      `${named('n'.repeat(1_025))}--b0und--`,
      9,
      'the name of a part is longer than 1024 characters',
    ],
    [
      'an SDK part with such a name',
      `${named('n'.repeat(1_025), 'x', '\r\nContent-Type: application/json')}--b0und--`,
      9,
      'the name of a part is longer than 1024 characters',
    ],
    [
      'a compressed part',
      `${part('Content-Disposition: form-data; name="a"\r\nContent-Encoding: gzip', 'x')}--b0und--`,
      9,
      "the part 'a' has a Content-Encoding of its own; encode the whole body instead",
    ],
    [
      'a part in base64',
      `${part('Content-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64', 'eA==')}--b0und--`,
      9,
      "the part 'a' has a Content-Transfer-Encoding; send its bytes as they are",
    ],
    [
      'a length that is too small',
      `${named('a', 'xyz', '\r\nContent-Type: application/json; length=2')}--b0und--`,
      9,
      "the part 'a' has 3 bytes, but its headers state 2",
    ],
    [
      'a length that is too large',
      `${named('a', 'xyz', '\r\nContent-Type: application/json\r\nContent-Length: 4')}--b0und--`,
      9,
      "the part 'a' has 3 bytes, but its headers state 4",
    ],
    [
      'two lengths, one of them wrong',
      `${named('a', 'xyz', '\r\nContent-Type: a/b; length=3\r\nContent-Length: 4')}--b0und--`,
      9,
      "the part 'a' has 3 bytes, but its headers state 4",
    ],
    [
      'a length that is not a number',
      `${named('a', 'xyz', '\r\nContent-Length: 3 bytes')}--b0und--`,
      9,
      "the part 'a' has 3 bytes, but its headers state 3 bytes",
    ],
    [
      'a negative length',
      `${named('a', 'xyz', '\r\nContent-Type: a/b; length=-3')}--b0und--`,
      9,
      "the part 'a' has 3 bytes, but its headers state -3",
    ],
  ])('%s', (_, text, offset, reason) => {
    expect(() => parse(text)).toThrow(`Invalid multipart body at byte ${offset}: ${reason}.`);
  });

  it('headers that are not UTF-8', () => {
    const body = Buffer.from(`${named('a\xff', 'x')}--b0und--`, 'latin1');
    expect(() => parse(body)).toThrow('Invalid multipart body at byte 9: the headers of a part are not UTF-8.');
  });

  it.each<[string, string, string]>([
    ['no boundary', 'multipart/form-data', 'the Content-Type names no boundary'],
    ['an empty boundary', 'multipart/form-data; boundary=', 'is not one of RFC 2046'],
    ['an empty quoted boundary', 'multipart/form-data; boundary=""', 'is not one of RFC 2046'],
    ['a boundary of 71 characters', `multipart/form-data; boundary=${'x'.repeat(71)}`, 'is not one of RFC 2046'],
    ['a boundary that ends with a space', 'multipart/form-data; boundary="a "', 'is not one of RFC 2046'],
    ['a boundary with other characters', 'multipart/form-data; boundary="a\u00e9"', 'is not one of RFC 2046'],
    ['a boundary with a line end', 'multipart/form-data; boundary="a\r\nb"', 'is not one of RFC 2046'],
  ])('a header with %s', (_, type, reason) => {
    expect(() => parse(whole, type)).toThrow(reason);
  });

  it.each(['', 'application/json', 'multipart/mixed; boundary=b0und', 'multipart/form-dataset; boundary=b0und'])(
    'the type "%s"',
    (type) => {
      expect(() => parse(whole, type)).toThrow(
        expect.objectContaining({ code: 'UNSUPPORTED_MEDIA_TYPE', status: 415 }),
      );
    },
  );

  it('too many parts, at the first part above the limit', () => {
    expect(parse(whole, contentType, 2)).toHaveLength(2);
    // Errors after the limit are not detected.
    const tooMany = `${whole.slice(0, -11)}--b0und\r\nbroken`;
    expect(() => parse(tooMany, contentType, 2)).toThrow(
      expect.objectContaining({ code: 'TOO_MANY_PARTS', status: 413, message: expect.stringContaining('2 parts') }),
    );
  });
});

it('parseMultipart keeps repeated and invalid parts for its caller', () => {
  const long = 'n'.repeat(1_025);
  const text = `${named('a')}${named('a')}${named('b\nc')}${named(long)}${named('d', 'xyz', '\r\nContent-Length: 4')}--b0und--`;
  const parts = runToCompletion(parseMultipart(Buffer.from(text), contentType, 100));
  expect(parts.map(({ name, error }) => [name, error])).toEqual([
    ['a', undefined],
    ['a', undefined],
    ['', 'a header of a part is malformed'],
    [long, 'the name of a part is longer than 1024 characters'],
    ['d', "the part 'd' has 3 bytes, but its headers state 4"],
  ]);
});
