import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { readFileIfThere, writePrivateFile } from './private-file.ts';

/**
 * The key that seals stored credentials while engines are embedded: 32 random bytes as base64url, made once, kept in
 * `secret.key` (mode 0600). Call it with the folder's lock held.
 */
export function keepSecretKey(folder: string): string {
  const path = join(folder, 'secret.key');
  const kept = readFileIfThere(path)?.trim();
  if (kept) return kept;
  const made = randomBytes(32).toString('base64url');
  writePrivateFile(path, `${made}\n`);
  return made;
}
