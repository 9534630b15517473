import { readFileSync } from 'node:fs';

/** Returns a generator of the same bytes on every machine. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return state / 0x8000_0000;
  };
}

function json(size: number): Buffer {
  const next = generator(7);
  const words = 'run trace token chain model prompt answer größe tool input output error retry cache 你好 span'.split(
    ' ',
  );
  let text = '[';
  while (text.length < size) {
    const word = () => words[Math.floor(next() * words.length)];
    text += JSON.stringify({ id: Math.floor(next() * 1e6), name: word(), text: `${word()} ${word()} ${word()}` });
    text += ',';
  }
  return Buffer.from(text);
}

function skewed(size: number): Buffer {
  const next = generator(11);
  return Buffer.from(Array.from({ length: size }, () => (next() < 0.9 ? 0x61 : 0x62 + Math.floor(next() * 6))));
}

/** Returns repeats of 20,000 bytes with occasional changes, so that matches reach far back. */
function repeats(size: number): Buffer {
  const next = generator(13);
  const base = Buffer.from(Array.from({ length: 20_000 }, () => Math.floor(next() * 256)));
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at += base.length) base.copy(bytes, at);
  for (let change = 0; change < 200; change++) bytes[Math.floor(next() * size)] = change;
  return bytes;
}

/**
 * Output of the reference encoder (zstd 1.5.4) for generated content: `zstd <flags> -c -q <input
 * >samples/<name>.zst`. With `--stream-size` the header has the content size.
 */
export const samples: Record<string, { flags: string; content: () => Buffer }> = {
  'json-1': { flags: '-1', content: () => json(60_000) },
  'json-3': { flags: '-3 --no-check', content: () => json(60_000) },
  'json-19': { flags: '-19 --zstd=wlog=23', content: () => json(60_000) },
  'json-small-window': { flags: '-5 --zstd=wlog=10', content: () => json(20_000) },
  'single-segment': { flags: '-9 --stream-size=300', content: () => json(60_000).subarray(0, 300) },
  skewed: { flags: '-1', content: () => skewed(30_000) },
  zeros: { flags: '-3', content: () => Buffer.alloc(20_000_000) },
  repeats: { flags: '-9 --zstd=wlog=17', content: () => repeats(20_000_000) },
  incompressible: { flags: '-3', content: () => repeats(20_000) },
  empty: { flags: '-3', content: () => Buffer.alloc(0) },
};

export function sample(name: string): Buffer {
  return readFileSync(new URL(`./samples/${name}.zst`, import.meta.url));
}
