import { corrupt } from './corrupt.ts';
import { buildFseTable, type FseTable, readFseTable, singleSymbolTable } from './fse-table.ts';

/** Decoding tables for the sequences of a block, which the next block may reuse. */
export interface SequenceTables {
  literalLengths: FseTable | undefined;
  offsets: FseTable | undefined;
  matchLengths: FseTable | undefined;
}

/**
 * For each length code, the number of extra bits and the base that they are added to. Source: RFC 8878, section
 * 3.1.1.3.2.1.1.
 */
export interface LengthCodes {
  readonly bits: Uint8Array;
  readonly bases: Int32Array;
}

const lengthCodes = (plainCodes: number, first: number, rest: readonly number[]): LengthCodes => {
  const bits = Uint8Array.from([...new Array<number>(plainCodes).fill(0), ...rest]);
  const bases = new Int32Array(bits.length);
  for (let code = 0, base = first; code < bits.length; code++) {
    bases[code] = base;
    base += 2 ** bits[code]!;
  }
  return { bits, bases };
};

export const literalLengthCodes = lengthCodes(
  16,
  0,
  [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
);
export const matchLengthCodes = lengthCodes(
  32,
  3,
  [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
);
/** Maximum offset code for a window of 8 MiB; the format allows higher ones. */
export const maxOffsetCode = 24;

const repeated = (value: number, times: number) => new Array<number>(times).fill(value);
const table = (accuracyLog: number, distribution: number[]) =>
  buildFseTable(accuracyLog, distribution, distribution.length);

/** The predefined tables. Source: RFC 8878, section 3.1.1.3.2.2. */
const predefined = {
  literalLengths: table(6, [
    ...[4, 3],
    ...repeated(2, 11),
    ...[1, 1, 1],
    ...repeated(2, 9),
    ...[3, 2],
    ...repeated(1, 5),
    ...repeated(-1, 4),
  ]),
  offsets: table(5, [...repeated(1, 6), ...[2, 2, 2], ...repeated(1, 15), ...repeated(-1, 5)]),
  matchLengths: table(6, [...[1, 4, 3], ...repeated(2, 6), ...repeated(1, 37), ...repeated(-1, 7)]),
};

const limits = {
  literalLengths: { maxAccuracyLog: 9, maxSymbol: 35 },
  offsets: { maxAccuracyLog: 8, maxSymbol: maxOffsetCode },
  matchLengths: { maxAccuracyLog: 9, maxSymbol: 52 },
};

/**
 * Reads the three table descriptions of a block, at `start`, into `tables`; returns the index after them.
 * @throws INVALID_COMPRESSION
 */
export function readSequenceTables(bytes: Buffer, start: number, end: number, tables: SequenceTables): number {
  if (start >= end) throw corrupt('a block ends before its tables');
  const modes = bytes[start]!;
  if ((modes & 3) !== 0) throw corrupt('a reserved bit is set in a block');
  let at = start + 1;
  at = readTable(bytes, at, end, modes >> 6, tables, 'literalLengths');
  at = readTable(bytes, at, end, (modes >> 4) & 3, tables, 'offsets');
  return readTable(bytes, at, end, (modes >> 2) & 3, tables, 'matchLengths');
}

function readTable(
  bytes: Buffer,
  at: number,
  end: number,
  mode: number,
  tables: SequenceTables,
  name: keyof SequenceTables,
): number {
  const { maxAccuracyLog, maxSymbol } = limits[name];
  if (mode === 0) {
    tables[name] = predefined[name];
    return at;
  }
  if (mode === 1) {
    if (at >= end || bytes[at]! > maxSymbol) throw corrupt('a table has an invalid symbol');
    tables[name] = singleSymbolTable(bytes[at]!);
    return at + 1;
  }
  if (mode === 2) {
    const described = readFseTable(bytes, at, end, maxAccuracyLog, maxSymbol);
    tables[name] = described.table;
    return described.end;
  }
  if (tables[name] === undefined) throw corrupt('a block reuses a table, but none precedes it');
  return at;
}
