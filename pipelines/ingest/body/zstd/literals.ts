import { corrupt } from './corrupt.ts';
import { decodeHuffman, type HuffmanTable, readHuffmanTable } from './huffman.ts';

/** The literals of a block: `bytes` from `start` to `end`. The sequences begin at `sectionEnd`. */
export interface Literals {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  readonly sectionEnd: number;
  /** The Huffman table, which the next block may reuse. */
  readonly table: HuffmanTable | undefined;
}

/**
 * Reads the literals section at `start`. Compressed and run-length literals are decoded into `scratch`; raw literals
 * stay in `bytes`. Source: RFC 8878, section 3.1.1.3.1. @throws INVALID_COMPRESSION
 */
export function readLiterals(
  bytes: Buffer,
  start: number,
  end: number,
  previous: HuffmanTable | undefined,
  scratch: Buffer,
  maxBytes: number,
): Literals {
  const first = bytes[start]!;
  const type = first & 3;
  const format = (first >> 2) & 3;
  if (start >= end) throw corrupt('a block has no literals section');
  if (type < 2) {
    const headerBytes = (format & 1) === 0 ? 1 : format === 1 ? 2 : 3;
    const header = first | (bytes[start + 1]! << 8) | (bytes[start + 2]! << 16);
    const count = headerBytes === 1 ? first >> 3 : headerBytes === 2 ? (header & 0xffff) >> 4 : header >> 4;
    const at = start + headerBytes;
    const sectionEnd = at + (type === 0 ? count : 1);
    if (sectionEnd > end || count > maxBytes) throw corrupt('the literals of a block do not fit it');
    if (type === 0) return { bytes, start: at, end: sectionEnd, sectionEnd, table: previous };
    scratch.fill(bytes[at]!, 0, count);
    return { bytes: scratch, start: 0, end: count, sectionEnd, table: previous };
  }
  const sizeBits = format < 2 ? 10 : format === 2 ? 14 : 18;
  const at = start + (format < 2 ? 3 : format === 2 ? 4 : 5);
  const low = first | (bytes[start + 1]! << 8) | (bytes[start + 2]! << 16) | (bytes[start + 3]! << 24);
  const sizeMask = (1 << sizeBits) - 1;
  const count = (low >>> 4) & sizeMask;
  const encodedBytes = sizeBits === 18 ? (low >>> 22) | (bytes[start + 4]! << 10) : (low >>> (4 + sizeBits)) & sizeMask;
  const sectionEnd = at + encodedBytes;
  if (sectionEnd > end || count > maxBytes) throw corrupt('the literals of a block do not fit it');
  let streams = at;
  let table = previous;
  if (type === 2) {
    const tree = readHuffmanTable(bytes, at, sectionEnd);
    streams = tree.end;
    table = tree.table;
  }
  if (table === undefined) throw corrupt('a block reuses a Huffman tree, but none precedes it');
  if (format === 0) decodeHuffman(table, bytes, streams, sectionEnd, scratch, 0, count);
  else decodeFour(table, bytes, streams, sectionEnd, scratch, count);
  return { bytes: scratch, start: 0, end: count, sectionEnd, table };
}

/** Decodes four streams; a table of the sizes of the first three precedes them. */
function decodeFour(table: HuffmanTable, bytes: Buffer, start: number, end: number, out: Buffer, count: number): void {
  const share = (count + 3) >> 2;
  if (start + 6 > end || share * 3 > count) throw corrupt('the streams of a block do not fit it');
  let from = start + 6;
  for (let stream = 0; stream < 4; stream++) {
    const isLast = stream === 3;
    const to = isLast ? end : from + (bytes[start + stream * 2]! | (bytes[start + stream * 2 + 1]! << 8));
    if (to > end) throw corrupt('the streams of a block do not fit it');
    decodeHuffman(table, bytes, from, to, out, stream * share, isLast ? count - share * 3 : share);
    from = to;
  }
}
