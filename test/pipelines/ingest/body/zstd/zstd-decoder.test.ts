import { beforeAll, describe, expect, it } from 'vitest';
import { loadZstd, ZstdDecoder } from '../../../../../pipelines/ingest/body/zstd-stream.ts';
import fc from '../../../../house/fast-check.ts';
import { sample, samples } from './samples.fixture.ts';

beforeAll(loadZstd);

function decode(bytes: Buffer, chunkBytes = bytes.length): Buffer {
  const decoder = new ZstdDecoder();
  const steps: Buffer[] = [];
  try {
    for (let at = 0; at < bytes.length; at += chunkBytes) {
      decoder.push(bytes.subarray(at, at + chunkBytes));
      for (let step = decoder.next(); step !== undefined; step = decoder.next()) steps.push(step);
    }
    decoder.finish();
    return Buffer.concat(steps);
  } finally {
    decoder.close();
  }
}

const skippable = Buffer.from([0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);

/** Builds a frame without checksum or content size, with a window of 2^17 bytes. */
function frame(...blocks: Buffer[]): Buffer {
  return Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3]), ...blocks]);
}

function block(type: number, size: number, content: readonly number[], isLast = true): Buffer {
  const header = Buffer.alloc(3);
  header.writeUIntLE((size << 3) | (type << 1) | (isLast ? 1 : 0), 0, 3);
  return Buffer.concat([header, Buffer.from(content)]);
}

const damaged = 'the data is damaged';
const wrongChecksum = sample('json-1');
wrongChecksum[wrongChecksum.length - 1]! ^= 1;

const compressed = (...content: number[]) => frame(block(2, content.length, content));

describe('output of the reference encoder', () => {
  it.each(Object.keys(samples))('decodes %s', (name) => {
    const content = samples[name]!.content();
    expect(decode(sample(name)).equals(content)).toBe(true);
    expect(decode(sample(name), 1_021).equals(content)).toBe(true);
  });

  it('decodes byte by byte', () => {
    expect(decode(sample('json-3'), 1).equals(samples['json-3']!.content())).toBe(true);
  });

  it('decodes consecutive frames, and skips skippable ones', () => {
    const both = Buffer.concat([skippable, sample('single-segment'), skippable, sample('empty'), sample('json-1')]);
    const content = Buffer.concat([samples['single-segment']!.content(), samples['json-1']!.content()]);
    for (const chunkBytes of [1, 7, both.length]) expect(decode(both, chunkBytes).equals(content)).toBe(true);
  });

  it.each([
    ['empty', frame(block(0, 0, []))],
    ['skippable', skippable],
  ])('decodes 4,096 frames that are %s, and refuses a further one', (_, one) => {
    expect(decode(Buffer.concat(Array<Buffer>(4_096).fill(one)))).toHaveLength(0);
    const tooMany = Buffer.concat(Array<Buffer>(4_097).fill(one));
    expect(() => decode(tooMany)).toThrow(
      expect.objectContaining({
        code: 'INVALID_COMPRESSION',
        message: expect.stringContaining('it has more than 4096 frames'),
      }),
    );
  });

  it('decodes a stream of skippable frames as empty', () => {
    expect(decode(skippable)).toHaveLength(0);
  });
});

describe('damage', () => {
  it.each(['json-1', 'json-19', 'single-segment', 'skewed'])('truncation of %s is detected at any position', (name) => {
    const whole = sample(name);
    fc.assert(
      fc.property(fc.integer({ min: 0, max: whole.length - 1 }), (length) => {
        expect(() => decode(whole.subarray(0, length))).toThrow('cannot be decompressed');
      }),
      { numRuns: 50 },
    );
  });

  it('causes a client error or goes undetected, and is always cheap', () => {
    const names = fc.constantFrom('json-1', 'json-19', 'json-small-window', 'single-segment', 'skewed', 'zeros');
    const changes = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(names, changes, (name, replacements) => {
        const bytes = sample(name);
        for (const [position, value] of replacements) bytes[position % bytes.length] = value;
        try {
          decode(bytes);
        } catch (error) {
          expect(error).toMatchObject({ code: 'INVALID_COMPRESSION', status: 422 });
        }
      }),
      { numRuns: 300 },
    );
  });

  it.each<[string, Buffer, string]>([
    ['nothing', Buffer.alloc(0), 'the stream is empty'],
    ['half a magic number', Buffer.from([0x28, 0xb5]), 'the stream ends early'],
    ['no magic number', Buffer.from('{"post":[]}'), 'no frame begins where one is expected'],
    ['text after a frame', Buffer.concat([sample('empty'), Buffer.from('more than eight')]), 'no frame begins'],
    ['a little text after a frame', Buffer.concat([sample('empty'), Buffer.from('x')]), 'the stream ends early'],
    ['a skippable frame cut short', skippable.subarray(0, 10), 'the stream ends early'],
    ['a reserved bit in the header', Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x08, 0x38, 1, 0, 0]), damaged],
    ['a dictionary', Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x01, 0x38, 9, 1, 0, 0]), 'it needs a dictionary'],
    [
      'a window of 2 TB',
      Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 31 << 3, 1, 0, 0]),
      'its window of 2199023255552 bytes',
    ],
    [
      'a single segment of 2^60 bytes',
      Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x10]),
      'its window of 1152921504606847000 bytes is above 8388608',
    ],
    ['a block of an unknown type', frame(block(3, 1, [0])), damaged],
    ['a block above 128 KiB', frame(block(1, 131_073, [0])), damaged],
    [
      'fewer bytes than announced',
      Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x20, 5]), block(1, 4, [0x61])]),
      damaged,
    ],
    [
      'more bytes than announced',
      Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x20, 5]), block(1, 3, [0x61], false), block(1, 3, [0x61])]),
      damaged,
    ],
    ['literals beyond the block', compressed(0x50, 1), damaged],
    ['a missing tree', compressed(0x03, 0, 0, 0), damaged],
    ['no sequences section', compressed(0x08, 0x61), damaged],
    ['bytes after the last section', compressed(0x08, 0x61, 0, 0), damaged],
    ['missing tables', compressed(0x08, 0x61, 1, 0xfc, 1), damaged],
    ['a reserved bit in a block', compressed(0x08, 0x61, 1, 0x01, 1), damaged],
    ['a stream without end mark', compressed(0x08, 0x61, 1, 0x54, 0, 0, 0, 0), damaged],
    ['a match before the start', compressed(0x08, 0x61, 1, 0x54, 1, 3, 0, 0x08), damaged],
    ['sequences without end', compressed(0x08, 0x61, 1, 0x54, 1, 0, 0, 0x02), damaged],
    ['an undefined symbol', compressed(0x08, 0x61, 1, 0x54, 36, 0, 0, 1), damaged],
    ['a wrong checksum', wrongChecksum, 'its checksum is wrong'],
  ])('is reported: %s', (_, bytes, reason) => {
    expect(() => decode(bytes)).toThrow(reason);
  });
});

describe('bombs', () => {
  it('yields no more than 128 KiB a block, however many sequences it claims', () => {
    // 98,047 sequences of zero bits; each of them would repeat 65,539 bytes or more.
    const bits = new Array<number>(20_000).fill(0xff);
    for (const matchCode of [52, 51, 0]) {
      const start = performance.now();
      const content = [0x09, 0x61, 0xff, 0xff, 0xff, 0x54, 0, 0, matchCode, ...bits];
      expect(() => decode(compressed(...content))).toThrow('cannot be decompressed');
      expect(performance.now() - start).toBeLessThan(1_000);
    }
  });

  it('decodes many tiny blocks with a large window at a constant cost', () => {
    const header = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3]);
    const tiny = block(1, 1, [0x61], false);
    const bytes = Buffer.concat([header, ...new Array<Buffer>(200_000).fill(tiny), block(0, 0, [])]);
    const start = performance.now();
    expect(decode(bytes)).toHaveLength(200_000);
    expect(performance.now() - start).toBeLessThan(15_000);
  });
});

describe('memory of the library', () => {
  const largeWindow = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3]);
  const started = Buffer.concat([largeWindow, block(1, 1, [0x61], false)]);

  it('is free again after an error', () => {
    const broken = Buffer.concat([started, block(3, 1, [0])]);
    for (let body = 0; body < 400; body++) expect(() => decode(broken)).toThrow(damaged);
  });

  it('has a limit, beyond which bodies are refused until others are complete', () => {
    const decoders: ZstdDecoder[] = [];
    const open = () => {
      for (let body = 0; body < 400; body++) {
        const decoder = new ZstdDecoder();
        decoders.push(decoder);
        decoder.push(started);
        decoder.next();
      }
    };
    expect(open).toThrow(expect.objectContaining({ code: 'OVERLOADED', status: 503 }));
    expect(decoders.length).toBeGreaterThan(100);
    for (const decoder of decoders) decoder.close();
    expect(decode(sample('json-1')).equals(samples['json-1']!.content())).toBe(true);
  });
});
