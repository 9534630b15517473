import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs';

/** Atomically writes a file that only its owner can read (0600). Readers never see a partially written file. */
export function writePrivateFile(path: string, text: string): void {
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    const file = openSync(draft, 'wx', 0o600);
    try {
      writeSync(file, text);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(draft, path);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/** Returns the text of a file, or `undefined` if the file does not exist. */
export function readFileIfExists(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (isSystemError(error, 'ENOENT') || isSystemError(error, 'ENOTDIR')) return undefined;
    throw error;
  }
}

/** Returns true if `error` has the operating system's error code `code`, for example `ENOENT`. */
export function isSystemError(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

/**
 * Returns the secret in a private file. The first call creates the secret from `bytes` random bytes, encoded as
 * base64url.
 */
export function loadOrCreateSecret(path: string, bytes: number): string {
  const kept = readFileIfExists(path)?.trim();
  if (kept) return kept;
  const made = randomBytes(bytes).toString('base64url');
  writePrivateFile(path, `${made}\n`);
  return made;
}
