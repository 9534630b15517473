import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { StepwiseWork } from '../in-slices.ts';
import { type PartHeaders, parseParameters, readPartHeaders } from './part-headers.ts';

/** A part of a multipart body: its headers and position. */
export interface FormPart extends PartHeaders {
  readonly headersStart: number;
  /** The content of the part is `body[start, end)`. */
  readonly start: number;
  readonly end: number;
}

/** RFC 2046: the characters and the length of a boundary. */
const boundaryPattern = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;
const maxHeaderBytes = 8 * 1024;
const endOfHeaders = Buffer.from('\r\n\r\n');

const dash = 0x2d;
const carriageReturn = 0x0d;
const lineFeed = 0x0a;

/**
 * Finds the parts of a `multipart/form-data` body, in order, without copying. Ignores text before the first boundary
 * and after the closing boundary. Source: RFC 7578, RFC 2046.
 *
 * @param repeatable Names that several parts may have.
 * @throws INVALID_MULTIPART with the offset of the error, also if another name is repeated; TOO_MANY_PARTS before reading the
 *   parts beyond the limit; UNSUPPORTED_MEDIA_TYPE if `contentType` is not multipart/form-data.
 */
export function* parseMultipart(
  body: Buffer,
  contentType: string,
  maxParts: number,
  repeatable?: ReadonlySet<string>,
): StepwiseWork<FormPart[]> {
  const delimiter = Buffer.from(`\r\n--${parseBoundary(contentType)}`, 'latin1');
  const parts: FormPart[] = [];
  const names = new Set<string>();
  let position = skipFirstDelimiter(body, delimiter);
  for (;;) {
    if (body[position] === dash && body[position + 1] === dash) return parts;
    const headersStart = skipLineEnd(body, position);
    if (parts.length >= maxParts)
      throw runlakeError('TOO_MANY_PARTS', { limitParts: maxParts, limit: 'the limit of one request' });
    const headersEnd = findHeadersEnd(body, headersStart);
    const start = headersEnd === headersStart ? headersStart + 2 : headersEnd + 4;
    // The delimiter after an empty part may begin with the line end of the part's headers.
    const found = body.indexOf(delimiter, start - 2);
    if (found < 0) throw createMultipartError(body.length, 'the body ends before the closing boundary');
    const end = Math.max(start, found);
    const { name, contentType: type, filename } = readPartHeaders(body, headersStart, headersEnd, end - start);
    if (names.has(name) && !repeatable?.has(name)) {
      throw createMultipartError(headersStart, `the part '${name}' is repeated`);
    }
    names.add(name);
    parts.push({ name, contentType: type, filename, headersStart, start, end });
    position = found + delimiter.length;
    yield;
  }
}

function parseBoundary(contentType: string): string {
  if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) {
    throw runlakeError('UNSUPPORTED_MEDIA_TYPE', { type: contentType, expected: 'multipart/form-data' });
  }
  const boundary = parseParameters(contentType).get('boundary');
  if (boundary === undefined) throw createMultipartError(0, 'the Content-Type names no boundary');
  if (!boundaryPattern.test(boundary))
    throw createMultipartError(0, 'the boundary of the Content-Type is not one of RFC 2046');
  return boundary;
}

function skipFirstDelimiter(body: Buffer, delimiter: Buffer): number {
  const bareBytes = delimiter.length - 2;
  if (body.length >= bareBytes && body.compare(delimiter, 2, delimiter.length, 0, bareBytes) === 0) return bareBytes;
  const at = body.indexOf(delimiter);
  if (at < 0) throw createMultipartError(0, 'the boundary of the Content-Type does not occur in the body');
  return at + delimiter.length;
}

/** Returns the position after the line end at `at`; spaces and tabs may precede the line end. */
function skipLineEnd(body: Buffer, at: number): number {
  let position = at;
  while (body[position] === 0x20 || body[position] === 0x09) position++;
  if (body[position] === carriageReturn && body[position + 1] === lineFeed) return position + 2;
  if (position >= body.length - 1) throw createMultipartError(body.length, 'the body ends before the closing boundary');
  throw createMultipartError(position, 'a line end is expected after the boundary');
}

/** Returns the end of the headers that begin at `start`, before the empty line. */
function findHeadersEnd(body: Buffer, start: number): number {
  if (body[start] === carriageReturn && body[start + 1] === lineFeed) return start;
  const head = body.subarray(start, start + maxHeaderBytes + endOfHeaders.length);
  const length = head.indexOf(endOfHeaders);
  if (length >= 0) return start + length;
  const isTooLong = head.length > maxHeaderBytes;
  throw createMultipartError(
    isTooLong ? start : body.length,
    isTooLong
      ? `the headers of a part are longer than ${maxHeaderBytes} bytes`
      : 'the body ends within the headers of a part',
  );
}

function createMultipartError(offset: number, reason: string): Error {
  return runlakeError('INVALID_MULTIPART', { offset, reason });
}
