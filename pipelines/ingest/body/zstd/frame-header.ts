import { corrupt } from './corrupt.ts';

export interface FrameHeader {
  /** Size of the header, including the magic number. */
  readonly headerBytes: number;
  /** Maximum distance of a match. */
  readonly windowBytes: number;
  /** Decoded size of the frame; undefined if the encoder did not state it. */
  readonly contentBytes: number | undefined;
  /** Whether a checksum of four bytes follows the last block. */
  readonly hasChecksum: boolean;
}

/** Maximum window that RFC 8878 recommends decoders to support; encoders exceed it only on request. */
export const maxWindowBytes = 8 * 1024 * 1024;

const magic = 0xfd2fb528;
/** Upper 28 bits of the sixteen magic numbers of skippable frames. */
const skippableMagic = 0x184d2a5;

/** Size of the skippable frame that begins with `bytes`, including its header; `undefined` for other frames. */
export function skippableFrameBytes(bytes: Buffer): number | undefined {
  return bytes.readUInt32LE(0) >>> 4 === skippableMagic ? 8 + bytes.readUInt32LE(4) : undefined;
}

/** Maximum size of a frame header. A complete frame may be shorter. */
export const maxHeaderBytes = 18;

/**
 * Reads the header at the start of `bytes`; returns `undefined` if it is incomplete. Source: RFC 8878, section 3.1.1.1.
 * @throws INVALID_COMPRESSION, also for a window larger than {@link maxWindowBytes} and for a dictionary.
 */
export function readFrameHeader(bytes: Buffer): FrameHeader | undefined {
  if (bytes.length < 5) return undefined;
  if (bytes.readUInt32LE(0) !== magic) throw corrupt('no frame begins where one is expected');
  const descriptor = bytes[4]!;
  if ((descriptor & 0x08) !== 0) throw corrupt('a reserved bit is set in a frame header');
  const isSingleSegment = (descriptor & 0x20) !== 0;
  const sizeFlag = descriptor >>> 6;
  const sizeBytes = sizeFlag === 0 ? Number(isSingleSegment) : 1 << sizeFlag;
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3]!;
  const dictionaryAt = isSingleSegment ? 5 : 6;
  const sizeAt = dictionaryAt + dictionaryBytes;
  const headerBytes = sizeAt + sizeBytes;
  if (bytes.length < headerBytes) return undefined;
  if (dictionaryBytes > 0 && bytes.readUIntLE(dictionaryAt, dictionaryBytes) !== 0) {
    throw corrupt('it needs a dictionary');
  }
  const contentBytes = sizeBytes === 0 ? undefined : readSize(bytes, sizeAt, sizeBytes);
  const windowBytes = isSingleSegment ? contentBytes! : readWindow(bytes[5]!);
  if (windowBytes > maxWindowBytes) throw corrupt(`its window of ${windowBytes} bytes is above ${maxWindowBytes}`);
  return { headerBytes, windowBytes, contentBytes, hasChecksum: (descriptor & 0x04) !== 0 };
}

function readWindow(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >>> 3));
  return base + (base / 8) * (descriptor & 7);
}

function readSize(bytes: Buffer, at: number, length: number): number {
  if (length === 8) return Number(bytes.readBigUInt64LE(at));
  return bytes.readUIntLE(at, length) + (length === 2 ? 256 : 0);
}
