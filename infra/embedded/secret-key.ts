import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { readFileIfThere, writePrivateFile } from './private-file.ts';

/**
 * Returns the key that encrypts stored credentials if engines are embedded: 32 random bytes as base64url. The first
 * call creates it in `secret.key` (mode 0600). The caller must hold the folder's lock.
 */
export function keepSecretKey(folder: string): string {
  const path = join(folder, 'secret.key');
  const kept = readFileIfThere(path)?.trim();
  if (kept) return kept;
  const made = randomBytes(32).toString('base64url');
  writePrivateFile(path, `${made}\n`);
  return made;
}
