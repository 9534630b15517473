import { createHash, randomBytes } from 'node:crypto';

const PREFIX = 'rlk_';

/** A new API key: the prefix and 256 random bits as 43 characters. */
export function generateKey(): string {
  return PREFIX + randomBytes(32).toString('base64url');
}

/** What is stored instead of the key. */
export function hashKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

/** What is shown of a key, once it is stored: its ends, less of them where the key is short. */
export function shortKey(key: string): string {
  return key.length < 40
    ? `${key.slice(0, 2)}...${key.slice(-2)}`
    : `${key.slice(0, PREFIX.length + 4)}...${key.slice(-4)}`;
}
