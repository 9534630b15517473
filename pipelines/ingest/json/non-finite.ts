import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { skipString } from './find.ts';

/**
 * Calls `read` with the bytes of a JSON text. If they are not JSON, calls it again with null in place of the numbers NaN,
 * Infinity and -Infinity. Python's `json` writes them, and the Python SDK uses it for values that its own encoder refuses,
 * such as integers of more than 64 bits; that encoder writes null.
 *
 * @param reserve Called before memory for a copy of the text is allocated; throws if there is none.
 * @throws the errors of `read` and `reserve`.
 */
export function readWithNonFinite<T>(bytes: Buffer, read: (bytes: Buffer) => T, reserve?: (bytes: number) => void): T {
  try {
    return read(bytes);
  } catch (error) {
    const replaced = replaceNonFinite(bytes, error, reserve);
    if (replaced === undefined) throw error;
    try {
      return read(replaced);
    } catch (later) {
      throw chooseError(error, later);
    }
  }
}

/** Returns the error to throw if the replaced copy cannot be read either: an offset in the copy would mislead the client. */
export const chooseError = (first: unknown, later: unknown) => (isInvalidJson(later) ? first : later);

const isInvalidJson = (error: unknown) => isRunlakeError(error) && error.code === 'INVALID_JSON';

/** The numbers, each at the code of its first character. */
const tokens = new Array<Buffer | undefined>(256).fill(undefined);
for (const name of ['NaN', 'Infinity', '-Infinity']) tokens[name.charCodeAt(0)] = Buffer.from(name);

function startsWith(bytes: Buffer, at: number, token: Buffer): boolean {
  for (let index = 1; index < token.length; index++) if (bytes[at + index] !== token[index]) return false;
  return true;
}

const nullText = Buffer.from('null');
const quote = 0x22;
/** Maximum size of a text that is copied in one step. It exceeds the size of the batches that SDKs send. */
const maxCopiedBytes = 32 * 1024 * 1024;

/** Returns a copy of `bytes` with null in place of these numbers; undefined if the error has another cause. */
export function replaceNonFinite(bytes: Buffer, error: unknown, reserve?: (bytes: number) => void): Buffer | undefined {
  if (!isInvalidJson(error)) return undefined;
  if (bytes.length > maxCopiedBytes) return undefined;
  if (!bytes.includes('NaN') && !bytes.includes('Infinity')) return undefined;
  // A token of three bytes becomes four.
  const maxBytes = Math.ceil((bytes.length * 4) / 3);
  reserve?.(maxBytes);
  const replaced = Buffer.allocUnsafe(maxBytes);
  let position = 0;
  let copied = 0;
  let index = 0;
  while (index < bytes.length) {
    const byte = bytes[index]!;
    if (byte === quote) {
      index = skipString(bytes, index);
      continue;
    }
    const token = tokens[byte];
    if (token === undefined || !startsWith(bytes, index, token)) {
      index++;
      continue;
    }
    position += bytes.copy(replaced, position, copied, index);
    position += nullText.copy(replaced, position);
    index += token.length;
    copied = index;
  }
  position += bytes.copy(replaced, position, copied);
  return replaced.subarray(0, position);
}
