import { bitsAt, lastBit } from './bits.ts';
import { corrupt } from './corrupt.ts';
import { readFseTable } from './fse-table.ts';

/**
 * A Huffman decoding table: for each value of the next `maxBits` bits, the symbol in the low byte and its code length
 * above it.
 */
export interface HuffmanTable {
  readonly maxBits: number;
  readonly entries: Uint16Array;
}

const maxCodeBits = 11;
const weights = new Uint8Array(256);

/** Reads the tree description at `start`. Source: RFC 8878, section 4.2.1. @throws INVALID_COMPRESSION */
export function readHuffmanTable(
  bytes: Buffer,
  start: number,
  end: number,
): { readonly table: HuffmanTable; readonly end: number } {
  const header = start < end ? bytes[start]! : 0;
  let count = 0;
  let after = start + 1;
  if (header >= 128) {
    count = header - 127;
    after += (count + 1) >> 1;
    if (after > end) throw corrupt('a Huffman tree ends early');
    for (let index = 0; index < count; index++) {
      const pair = bytes[start + 1 + (index >> 1)]!;
      weights[index] = (index & 1) === 0 ? pair >> 4 : pair & 15;
    }
  } else {
    after += header;
    if (header === 0 || after > end) throw corrupt('a Huffman tree ends early');
    count = readWeights(bytes, start + 1, after);
  }
  return { table: buildTable(count), end: after };
}

/** Reads weights that are FSE-compressed with two alternating states; returns their number. */
function readWeights(bytes: Buffer, start: number, end: number): number {
  const { table, end: streamStart } = readFseTable(bytes, start, end, 6, 255);
  const { accuracyLog, symbols, bits, bases } = table;
  let position = lastBit(bytes, streamStart, end);
  const read = (wanted: number): number => {
    position -= wanted;
    if (position >= 0) return bitsAt(bytes, streamStart, position, wanted);
    // Bits before the start of the stream read as zeros.
    const available = Math.max(0, wanted + position);
    return bitsAt(bytes, streamStart, 0, available) << (wanted - available);
  };
  let state = read(accuracyLog);
  let other = read(accuracyLog);
  if (position < 0) throw corrupt('the weights of a Huffman tree end early');
  for (let count = 0; count < 254; ) {
    weights[count++] = symbols[state]!;
    const next = bases[state]! + read(bits[state]!);
    if (position < 0) {
      weights[count++] = symbols[other]!;
      return count;
    }
    state = other;
    other = next;
  }
  throw corrupt('a Huffman tree has too many weights');
}

/** Builds the table from the first `count` weights and the last one, which follows from them. */
function buildTable(count: number): HuffmanTable {
  let sum = 0;
  for (let index = 0; index < count; index++) {
    const weight = weights[index]!;
    if (weight > maxCodeBits) throw corrupt('a Huffman code is too long');
    if (weight > 0) sum += 1 << (weight - 1);
  }
  if (sum === 0) throw corrupt('a Huffman tree is empty');
  const maxBits = 32 - Math.clz32(sum);
  const rest = (1 << maxBits) - sum;
  if (maxBits > maxCodeBits || (rest & (rest - 1)) !== 0) throw corrupt('a Huffman tree is not complete');
  weights[count] = 32 - Math.clz32(rest);

  // Assign codes from the longest (weight 1) to the shortest; codes of equal length are ordered by symbol.
  const nextEntry = new Uint16Array(maxCodeBits + 2);
  for (let symbol = 0; symbol <= count; symbol++) {
    const weight = weights[symbol]!;
    if (weight > 0) nextEntry[weight + 1]! += 1 << (weight - 1);
  }
  for (let weight = 2; weight <= maxBits; weight++) nextEntry[weight]! += nextEntry[weight - 1]!;
  const entries = new Uint16Array(1 << maxBits);
  for (let symbol = 0; symbol <= count; symbol++) {
    const weight = weights[symbol]!;
    if (weight === 0) continue;
    const first = nextEntry[weight]!;
    const after = first + (1 << (weight - 1));
    entries.fill(symbol | ((maxBits + 1 - weight) << 8), first, after);
    nextEntry[weight] = after;
  }
  return { maxBits, entries };
}

/**
 * Decodes the stream at `start` to `end` into exactly `count` bytes of `out` at `at`.
 * @throws INVALID_COMPRESSION if the stream holds more or fewer.
 */
export function decodeHuffman(
  { maxBits, entries }: HuffmanTable,
  bytes: Buffer,
  start: number,
  end: number,
  out: Buffer,
  at: number,
  count: number,
): void {
  let position = lastBit(bytes, start, end);
  let index = at;
  const last = at + count;
  const mask = (1 << maxBits) - 1;
  // Decode two symbols, at most 22 bits, from one load of 24 bits.
  while (position >= 24 && index + 1 < last) {
    const low = position - 24;
    const byte = start + (low >> 3);
    const four = bytes[byte]! | (bytes[byte + 1]! << 8) | (bytes[byte + 2]! << 16) | (bytes[byte + 3]! << 24);
    const window = four >>> (low & 7);
    const first = entries[(window >>> (24 - maxBits)) & mask]!;
    const used = first >> 8;
    const second = entries[(window >>> (24 - maxBits - used)) & mask]!;
    out[index++] = first;
    out[index++] = second;
    position -= used + (second >> 8);
  }
  while (index < last) {
    const available = Math.min(maxBits, position);
    const code = (bitsAt(bytes, start, position - available, available) << (maxBits - available)) & mask;
    const entry = entries[code]!;
    position -= entry >> 8;
    if (position < 0) break;
    out[index++] = entry;
  }
  if (position !== 0 || index !== last) throw corrupt('a Huffman stream does not fit its size');
}
