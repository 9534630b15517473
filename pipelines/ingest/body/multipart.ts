import { isUtf8 } from 'node:buffer';
import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { StepwiseWork } from '../../../infra/timeouts/time-slices.ts';

export interface PartHeaders {
  /** Empty if the headers state no readable name. */
  readonly name: string;
  /** The Content-Type in lower case, with all parameters except `length`; empty if the part has no Content-Type. */
  readonly contentType: string;
  readonly filename: string | undefined;
  /** Why the part is invalid; undefined if it is valid. */
  readonly error: string | undefined;
}

const maxHeaders = 16;
const maxNameCharacters = 1_024;

/** Matches name, type and length at once, in the form that stock SDKs write. Nearly every part has this form. */
const stockPattern =
  /^Content-Disposition: form-data; name="([ !#$&-[\]-~]+)"\r\nContent-Type: ([ -:<-~]+)(?:; ?length=(\d{1,15}))?(?:\r\nContent-Length: (\d{1,15}))?$/i;

const linePattern = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t -~\u0080-\uffff]*)$/;
const lengthParameterPattern = /;\s*length\s*=\s*(?:"[^"]*"|[^;"]*)/gi;
const plainTransferEncodings: ReadonlySet<string> = new Set(['binary', '7bit', '8bit']);

/**
 * Reads the part headers in `body[start, end)`, without the empty line that ends them. If the headers state the length
 * of the content, it must equal `contentBytes`. Source: RFC 7578; the `length` parameter is an extension of the SDKs.
 */
function readPartHeaders(body: Buffer, start: number, end: number, contentBytes: number): PartHeaders {
  const stockMatch = stockPattern.exec(body.toString('latin1', start, end));
  if (stockMatch !== null) {
    const [, name = '', type = '', parameter, header] = stockMatch;
    const contentType = type === 'application/json' ? type : type.trim().toLowerCase();
    const error = findNameError(name) ?? findLengthError(name, contentBytes, [parameter, header]);
    return { name, contentType, filename: undefined, error };
  }
  const headers = parseHeaders(body, start, end);
  if (typeof headers === 'string') return { name: '', contentType: '', filename: undefined, error: headers };
  const { name, filename } = parseDisposition(headers.get('content-disposition') ?? '');
  const type = headers.get('content-type') ?? '';
  const lengths = [parseParameters(type).get('length'), headers.get('content-length')];
  const error = findNameError(name) ?? findEncodingError(name, headers) ?? findLengthError(name, contentBytes, lengths);
  const [essence = '', ...rest] = type.replace(lengthParameterPattern, '').split(';');
  const contentType = [essence.toLowerCase(), ...rest].map((part) => part.trim()).join('; ');
  return { name, contentType, filename, error };
}

/** Returns the headers by their names in lower case, or the reason why they cannot be read. */
function parseHeaders(body: Buffer, start: number, end: number): Map<string, string> | string {
  const headers = new Map<string, string>();
  if (!isUtf8(body.subarray(start, end))) return 'the headers of a part are not UTF-8';
  const lines = start < end ? body.toString('utf8', start, end).split('\r\n') : [];
  if (lines.length > maxHeaders) return `a part has more than ${maxHeaders} headers`;
  for (const line of lines) {
    const [, name, value = ''] = linePattern.exec(line) ?? [];
    if (name === undefined) return 'a header of a part is malformed';
    const key = name.toLowerCase();
    if (headers.has(key)) return `a part has the header ${name} twice`;
    headers.set(key, value.trim());
  }
  return headers;
}

function findNameError(name: string): string | undefined {
  if (name === '') return 'a part has no Content-Disposition: form-data with a name';
  return name.length > maxNameCharacters
    ? `the name of a part is longer than ${maxNameCharacters} characters`
    : undefined;
}

function findEncodingError(name: string, headers: ReadonlyMap<string, string>): string | undefined {
  const encoding = headers.get('content-encoding')?.toLowerCase();
  if (encoding !== undefined && encoding !== 'identity')
    return `the part '${name}' has a Content-Encoding of its own; encode the whole body instead`;
  const transferEncoding = headers.get('content-transfer-encoding')?.toLowerCase();
  if (transferEncoding !== undefined && !plainTransferEncodings.has(transferEncoding))
    return `the part '${name}' has a Content-Transfer-Encoding; send its bytes as they are`;
  return undefined;
}

/**
 * Checks the length of a part against the lengths that the sender may state in a header and in a parameter of
 * Content-Type.
 */
function findLengthError(name: string, bytes: number, stated: readonly (string | undefined)[]): string | undefined {
  for (const length of stated) {
    if (length === undefined || (/^\d{1,15}$/.test(length) && Number(length) === bytes)) continue;
    return `the part '${name}' has ${bytes} bytes, but its headers state ${length.slice(0, 20)}`;
  }
  return undefined;
}

export function createMultipartError(offset: number, reason: string): RunlakeError {
  return runlakeError('INVALID_MULTIPART', { offset, reason });
}

/** Matches a disposition whose name contains quotes or backslashes that the client did not escape. */
const unescapedNamePattern = /^form-data; ?name="(.+)"$/i;

/**
 * Parses a Content-Disposition. The JavaScript SDK does not escape the names of attachments, so a name may contain bare
 * quotes: it then extends to the last quote.
 */
function parseDisposition(disposition: string): { name: string; filename: string | undefined } {
  const parameters = parseParameters(disposition);
  const filename = parameters.get('filename');
  const remainder = disposition.replace(parameterPattern, '').trim().toLowerCase();
  if (remainder !== 'form-data' && filename === undefined) {
    const [, name] = unescapedNamePattern.exec(disposition) ?? [];
    if (name !== undefined) return { name, filename };
  }
  const isFormData = /^form-data\s*(;|$)/i.test(disposition);
  return { name: isFormData ? (parameters.get('name') ?? '') : '', filename };
}

const parameterPattern = /;\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))/g;

/**
 * Parses the parameters of a header value. Returns names in lower case, and values without quotes and escapes. Source:
 * RFC 9110, 5.6.6.
 */
function parseParameters(value: string): Map<string, string> {
  const parameters = new Map<string, string>();
  for (const [, name = '', quoted, bare = ''] of value.matchAll(parameterPattern)) {
    parameters.set(name.toLowerCase(), quoted === undefined ? bare.trim() : unescapeQuoted(quoted));
  }
  return parameters;
}

/**
 * Removes the escapes from a quoted value. Browsers and fetch write `%22`, `%0D` and `%0A` for characters that are not
 * allowed in quotes; other clients use a backslash.
 */
function unescapeQuoted(text: string): string {
  return text.replace(/\\(["\\])/g, '$1').replace(/%22|%0D|%0A/gi, (code) => decodeURIComponent(code));
}

/** A part of a multipart body: its headers and position. */
export interface FormPart extends PartHeaders {
  readonly headersStart: number;
  /** The content of the part is `body[start, end)`. */
  readonly start: number;
  readonly end: number;
}

/** Characters and length that RFC 2046 allows in a boundary. */
const boundaryPattern = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;
const maxHeaderBytes = 8 * 1024;
const endOfHeaders = Buffer.from('\r\n\r\n');

const dash = 0x2d;
const carriageReturn = 0x0d;
const lineFeed = 0x0a;

/**
 * Finds the parts of a `multipart/form-data` body, in order, without copying. Ignores text before the first boundary
 * and after the closing boundary. Names may be repeated, and parts may be invalid: the caller rejects them. Source: RFC
 * 7578, RFC 2046.
 *
 * @param countPart Called for each part.
 * @throws INVALID_MULTIPART with the offset if the body cannot be divided into parts; TOO_MANY_PARTS before reading the
 *   parts beyond the limit; UNSUPPORTED_MEDIA_TYPE if `contentType` is not multipart/form-data; the errors of
 *   `countPart`.
 */
export function* parseMultipart(
  body: Buffer,
  contentType: string,
  maxParts: number,
  countPart?: () => void,
): StepwiseWork<FormPart[]> {
  const delimiter = Buffer.from(`\r\n--${parseBoundary(contentType)}`, 'latin1');
  const parts: FormPart[] = [];
  let position = skipFirstDelimiter(body, delimiter);
  for (;;) {
    if (body[position] === dash && body[position + 1] === dash) return parts;
    const headersStart = skipLineEnd(body, position);
    if (parts.length >= maxParts)
      throw runlakeError('TOO_MANY_PARTS', { limitParts: maxParts, limit: 'the limit of one request' });
    countPart?.();
    const headersEnd = findHeadersEnd(body, headersStart);
    const start = headersEnd === headersStart ? headersStart + 2 : headersEnd + 4;
    // The delimiter after an empty part may begin with the line end of the part's headers.
    const found = body.indexOf(delimiter, start - 2);
    if (found < 0) throw createMultipartError(body.length, 'the body ends before the closing boundary');
    const end = Math.max(start, found);
    const { name, contentType: type, filename, error } = readPartHeaders(body, headersStart, headersEnd, end - start);
    parts.push({ name, contentType: type, filename, error, headersStart, start, end });
    position = found + delimiter.length;
    yield;
  }
}

/**
 * Finds the parts of a body that is invalid as a whole if one of its parts is.
 *
 * @param repeatable Names that may occur in several parts.
 * @throws the errors of {@link parseMultipart}; INVALID_MULTIPART for the first part that is invalid or repeats a name.
 */
export function* parseForm(
  body: Buffer,
  contentType: string,
  maxParts: number,
  repeatable?: ReadonlySet<string>,
): StepwiseWork<FormPart[]> {
  const parts = yield* parseMultipart(body, contentType, maxParts);
  const names = new Set<string>();
  for (const { name, error, headersStart } of parts) {
    const isRepeated = names.has(name) && !repeatable?.has(name);
    const reason = error ?? (isRepeated ? `the part '${name}' is repeated` : undefined);
    if (reason !== undefined) throw createMultipartError(headersStart, reason);
    names.add(name);
  }
  return parts;
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
  const bytesWithoutCrlf = delimiter.length - 2;
  if (body.length >= bytesWithoutCrlf && body.compare(delimiter, 2, delimiter.length, 0, bytesWithoutCrlf) === 0)
    return bytesWithoutCrlf;
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

/** Returns the end of the headers that begin at `start`, excluding the empty line. */
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
