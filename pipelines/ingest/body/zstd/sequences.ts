import { bitsAt, lastBit } from './bits.ts';
import { corrupt } from './corrupt.ts';
import type { History } from './history.ts';
import type { Literals } from './literals.ts';
import {
  literalLengthCodes,
  matchLengthCodes,
  maxOffsetCode,
  readSequenceTables,
  type SequenceTables,
} from './sequence-tables.ts';

/** The three most recent offsets, which have short codes. */
export type RecentOffsets = [number, number, number];

/**
 * Executes the sequences section at `start`: each sequence copies literals, then a match from the history. The
 * remaining literals come last. A block yields at most `maxBytes`, whatever its sequences state, which bounds the work.
 *
 * Source: RFC 8878, sections 3.1.1.3.2, 3.1.1.4 and 3.1.1.5. @throws INVALID_COMPRESSION
 */
export function runSequences(
  bytes: Buffer,
  start: number,
  end: number,
  literals: Literals,
  tables: SequenceTables,
  recent: RecentOffsets,
  history: History,
  maxBytes: number,
): void {
  const limit = history.position + maxBytes;
  const { count, end: headerEnd } = readCount(bytes, start, end);
  let literal = literals.start;
  if (count === 0 && headerEnd !== end) throw corrupt('a block without sequences has data after its literals');
  if (count > 0) {
    const streamStart = readSequenceTables(bytes, headerEnd, end, tables);
    const lengths = tables.literalLengths!;
    const offsets = tables.offsets!;
    const matches = tables.matchLengths!;
    let position = lastBit(bytes, streamStart, end);
    const read = (wanted: number): number => {
      position -= wanted;
      if (position < 0) throw corrupt('the sequences of a block end early');
      return bitsAt(bytes, streamStart, position, wanted);
    };
    let lengthState = read(lengths.accuracyLog);
    let offsetState = read(offsets.accuracyLog);
    let matchState = read(matches.accuracyLog);
    for (let left = count; left > 0; left--) {
      const offsetCode = offsets.symbols[offsetState]!;
      const matchCode = matches.symbols[matchState]!;
      const lengthCode = lengths.symbols[lengthState]!;
      if (offsetCode > maxOffsetCode) throw corrupt('a match reaches back further than the largest window');
      const offsetValue = (1 << offsetCode) + read(offsetCode);
      const matchBytes = matchLengthCodes.bases[matchCode]! + read(matchLengthCodes.bits[matchCode]!);
      const literalBytes = literalLengthCodes.bases[lengthCode]! + read(literalLengthCodes.bits[lengthCode]!);
      if (left > 1) {
        lengthState = lengths.bases[lengthState]! + read(lengths.bits[lengthState]!);
        matchState = matches.bases[matchState]! + read(matches.bits[matchState]!);
        offsetState = offsets.bases[offsetState]! + read(offsets.bits[offsetState]!);
      }
      if (literal + literalBytes > literals.end) throw corrupt('a sequence uses more literals than the block has');
      if (history.position + literalBytes + matchBytes > limit) throw corrupt('a block yields more than allowed');
      history.append(literals.bytes, literal, literal + literalBytes);
      literal += literalBytes;
      history.repeat(resolveOffset(offsetValue, literalBytes, recent), matchBytes);
    }
    if (position !== 0) throw corrupt('the sequences of a block do not fit it');
  }
  if (history.position + literals.end - literal > limit) throw corrupt('a block yields more than allowed');
  history.append(literals.bytes, literal, literals.end);
}

function readCount(bytes: Buffer, start: number, end: number): { count: number; end: number } {
  const first = start < end ? bytes[start]! : 0;
  const length = first < 128 ? 1 : first < 255 ? 2 : 3;
  if (start + length > end) throw corrupt('a block has no sequences section');
  if (length === 1) return { count: first, end: start + 1 };
  if (length === 2) return { count: ((first - 128) << 8) + bytes[start + 1]!, end: start + 2 };
  return { count: bytes[start + 1]! + (bytes[start + 2]! << 8) + 0x7f00, end: start + 3 };
}

/** Resolves an offset value and updates `recent`. Values 1 to 3 refer to recent offsets. */
function resolveOffset(value: number, literalBytes: number, recent: RecentOffsets): number {
  if (value > 3) {
    recent[2] = recent[1];
    recent[1] = recent[0];
    recent[0] = value - 3;
    return recent[0];
  }
  // Directly after a match the most recent offset would be useless, so the values shift by one.
  const index = literalBytes === 0 ? value : value - 1;
  const offset = index === 3 ? recent[0] - 1 : recent[index]!;
  if (index > 1) recent[2] = recent[1];
  if (index > 0) recent[1] = recent[0];
  recent[0] = offset;
  return offset;
}
