import { fault } from '../../../infra/errors/runlake-error.ts';

/** A part of a multipart body: where its content lies, and what its headers say. */
export interface Part {
  readonly name: string;
  /** Without parameters, in lower case; empty where the part has none. */
  readonly contentType: string;
  readonly filename: string | undefined;
  readonly start: number;
  readonly end: number;
}

/** RFC 2046: the characters and the length of a boundary. */
const boundaryForm = /^[0-9A-Za-z'()+_,\-./:=? ]{1,70}$/;
const maxHeaderBytes = 8 * 1024;
const maxNameCharacters = 1_024;

const dash = 0x2d;
const carriageReturn = 0x0d;
const lineFeed = 0x0a;

/**
 * Finds the parts of a `multipart/form-data` body, in order, without copying. Source: RFC 7578, RFC 2046.
 *
 * @throws INVALID_MULTIPART with the offset of the fault, also where a name comes twice; TOO_MANY_PARTS before the work
 *   for all of them is done.
 */
export function parseMultipart(body: Buffer, contentType: string, maxParts: number): Part[] {
  const delimiter = Buffer.from(`\r\n--${boundaryOf(contentType)}`, 'latin1');
  const parts: Part[] = [];
  const names = new Set<string>();
  let position = firstDelimiter(body, delimiter);
  for (;;) {
    if (body[position] === dash && body[position + 1] === dash) return parts;
    const headersStart = lineEnd(body, position);
    if (headersStart === undefined) throw broken(position, 'a line end was expected after the boundary');
    if (parts.length >= maxParts) throw fault('TOO_MANY_PARTS', { limitParts: maxParts, limit: 'RUNLAKE_MAX_PARTS' });
    const headersEnd = endOfHeaders(body, headersStart);
    const end = body.indexOf(delimiter, headersEnd - 2);
    if (end < 0) throw broken(body.length, 'the body ends before the closing boundary');
    const part = readPart(body, headersStart, headersEnd, Math.max(end, headersEnd));
    if (names.has(part.name)) throw broken(headersStart, `the part '${part.name}' comes twice`);
    names.add(part.name);
    parts.push(part);
    position = end + delimiter.length;
  }
}

function boundaryOf(contentType: string): string {
  if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) {
    throw fault('UNSUPPORTED_MEDIA_TYPE', { type: contentType, expected: 'multipart/form-data' });
  }
  const boundary = parametersOf(contentType).get('boundary');
  if (boundary === undefined) throw broken(0, 'the Content-Type names no boundary');
  if (!boundaryForm.test(boundary) || boundary.endsWith(' '))
    throw broken(0, 'the boundary of the Content-Type is not one of RFC 2046');
  return boundary;
}

/** The position after the first delimiter; what stands before it is a preamble. */
function firstDelimiter(body: Buffer, delimiter: Buffer): number {
  const bare = delimiter.subarray(2);
  if (body.subarray(0, bare.length).equals(bare)) return bare.length;
  const at = body.indexOf(delimiter);
  if (at < 0) throw broken(0, 'the boundary of the Content-Type does not occur in the body');
  return at + delimiter.length;
}

/** The position after the line end at `at`, which spaces may precede. */
function lineEnd(body: Buffer, at: number): number | undefined {
  let position = at;
  while (body[position] === 0x20 || body[position] === 0x09) position++;
  return body[position] === carriageReturn && body[position + 1] === lineFeed ? position + 2 : undefined;
}

function endOfHeaders(body: Buffer, start: number): number {
  if (body[start] === carriageReturn && body[start + 1] === lineFeed) return start + 2;
  const end = body.subarray(start, start + maxHeaderBytes + 4).indexOf('\r\n\r\n');
  if (end >= 0) return start + end + 4;
  const reason =
    start + maxHeaderBytes < body.length
      ? `the headers of a part are longer than ${maxHeaderBytes} bytes`
      : 'the body ends within the headers of a part';
  throw broken(start, reason);
}

function readPart(body: Buffer, headersStart: number, start: number, end: number): Part {
  const headers = new Map<string, string>();
  const text = body.toString('utf8', headersStart, Math.max(headersStart, start - 4));
  for (const line of text === '' ? [] : text.split('\r\n')) {
    const colon = line.indexOf(':');
    if (colon <= 0) throw broken(headersStart, 'a header of a part has no name');
    headers.set(line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim());
  }
  const disposition = headers.get('content-disposition') ?? '';
  const parameters = parametersOf(disposition);
  const name = parameters.get('name');
  if (!/^form-data\s*(;|$)/i.test(disposition) || name === undefined || name === '') {
    throw broken(headersStart, 'a part has no Content-Disposition: form-data with a name');
  }
  if (name.length > maxNameCharacters)
    throw broken(headersStart, `the name of a part is longer than ${maxNameCharacters} characters`);
  const encoding = headers.get('content-encoding');
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw broken(headersStart, `the part '${name}' has a Content-Encoding of its own; encode the whole body instead`);
  }
  const type = headers.get('content-type') ?? '';
  checkLength(headersStart, name, end - start, headers.get('content-length') ?? parametersOf(type).get('length'));
  const contentType = (type.split(';', 1)[0] as string).trim().toLowerCase();
  return { name, contentType, filename: parameters.get('filename'), start, end };
}

/** Senders give the length of a part as a header or as a parameter of its type; where they do, it has to be right. */
function checkLength(at: number, name: string, bytes: number, said: string | undefined): void {
  if (said === undefined || said === String(bytes)) return;
  throw broken(at, `the part '${name}' has ${bytes} bytes, but its headers say ${said.slice(0, 20)}`);
}

const parameterForm = /;\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))/g;

/** Parameters of a header's value; names in lower case, quotes and their escapes taken off. */
function parametersOf(value: string): Map<string, string> {
  const parameters = new Map<string, string>();
  for (const [, name = '', quoted, bare = ''] of value.matchAll(parameterForm)) {
    parameters.set(name.toLowerCase(), quoted === undefined ? bare.trim() : unescapeQuoted(quoted));
  }
  return parameters;
}

/** Browsers and fetch write `%22`, `%0D` and `%0A` for what must not stand in quotes; others use a backslash. */
function unescapeQuoted(text: string): string {
  return text.replace(/\\(["\\])/g, '$1').replace(/%22|%0D|%0A/gi, (code) => decodeURIComponent(code));
}

function broken(offset: number, reason: string): Error {
  return fault('INVALID_MULTIPART', { offset, reason });
}
