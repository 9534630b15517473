import { corrupt } from './corrupt.ts';

/**
 * A decoding table for finite state entropy (FSE). Each state gives a symbol, a number of bits to read, and a base:
 * base plus those bits is the next state. Source: RFC 8878, section 4.1.
 */
export interface FseTable {
  /** Number of bits of a state. */
  readonly accuracyLog: number;
  readonly symbols: Uint8Array;
  readonly bits: Uint8Array;
  readonly bases: Uint16Array;
}

/** Builds the table of a distribution; -1 means a probability below one. */
export function buildFseTable(accuracyLog: number, distribution: ArrayLike<number>, symbolCount: number): FseTable {
  const size = 1 << accuracyLog;
  const symbols = new Uint8Array(size);
  const next = new Uint16Array(symbolCount);
  let high = size;
  for (let symbol = 0; symbol < symbolCount; symbol++) {
    const probability = distribution[symbol]!;
    if (probability === -1) symbols[--high] = symbol;
    next[symbol] = probability === -1 ? 1 : probability;
  }
  const step = (size >> 1) + (size >> 3) + 3;
  let position = 0;
  for (let symbol = 0; symbol < symbolCount; symbol++) {
    for (let count = distribution[symbol]!; count > 0; count--) {
      symbols[position] = symbol;
      do position = (position + step) & (size - 1);
      while (position >= high);
    }
  }
  const bits = new Uint8Array(size);
  const bases = new Uint16Array(size);
  for (let state = 0; state < size; state++) {
    const value = next[symbols[state]!]!++;
    const count = accuracyLog - (31 - Math.clz32(value));
    bits[state] = count;
    bases[state] = (value << count) - size;
  }
  return { accuracyLog, symbols, bits, bases };
}

/** A table with a single state, which always gives `symbol`. */
export function singleSymbolTable(symbol: number): FseTable {
  return { accuracyLog: 0, symbols: Uint8Array.of(symbol), bits: new Uint8Array(1), bases: new Uint16Array(1) };
}

/** Shared between calls: decoding a table is synchronous. */
const probabilities = new Int16Array(256);

/**
 * Reads the table description at `start`, which ends before `end`.
 * @throws INVALID_COMPRESSION if it is damaged, its accuracy exceeds `maxAccuracyLog`, or it has a symbol above `maxSymbol`.
 */
export function readFseTable(
  bytes: Buffer,
  start: number,
  end: number,
  maxAccuracyLog: number,
  maxSymbol: number,
): { readonly table: FseTable; readonly end: number } {
  let bit = start * 8;
  const read = (count: number): number => {
    const at = bit >>> 3;
    const value = ((bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16)) >>> (bit & 7)) & ((1 << count) - 1);
    bit += count;
    if (bit > end * 8) throw corrupt('a table ends early');
    return value;
  };
  if (start >= end) throw corrupt('a table is missing');
  const accuracyLog = read(4) + 5;
  if (accuracyLog > maxAccuracyLog) throw corrupt('the accuracy of a table is higher than allowed');
  let remaining = 1 << accuracyLog;
  let symbolCount = 0;
  while (remaining > 0) {
    if (symbolCount > maxSymbol) throw corrupt('a table has more symbols than allowed');
    const count = 32 - Math.clz32(remaining + 1);
    // A width of `count` bits has values that `remaining` rules out; as many small values are encoded with one bit less.
    const lowMask = (1 << (count - 1)) - 1;
    const shortForms = (1 << count) - 2 - remaining;
    let value = read(count - 1);
    if (value >= shortForms) {
      value |= read(1) << (count - 1);
      if (value > lowMask) value -= shortForms;
    }
    const probability = value - 1;
    remaining -= Math.abs(probability);
    probabilities[symbolCount++] = probability;
    if (probability !== 0) continue;
    for (let repeat = 3; repeat === 3; ) {
      repeat = read(2);
      if (symbolCount + repeat > maxSymbol + 1) throw corrupt('a table has more symbols than allowed');
      for (let zero = 0; zero < repeat; zero++) probabilities[symbolCount++] = 0;
    }
  }
  if (remaining < 0) throw corrupt('the probabilities of a table do not add up');
  return { table: buildFseTable(accuracyLog, probabilities, symbolCount), end: (bit + 7) >>> 3 };
}
