import { createHash, randomBytes } from 'node:crypto';

const PREFIX = 'rlk_';

/** Generates an API key: the prefix and 256 random bits as 43 characters. */
export function generateKey(): string {
  return PREFIX + randomBytes(32).toString('base64url');
}

/** The hash that is stored instead of the key. */
export function hashKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

/** The short form that is shown of a stored key: its first and last characters, fewer for a short key. */
export function shortKey(key: string): string {
  return key.length < 40
    ? `${key.slice(0, 2)}...${key.slice(-2)}`
    : `${key.slice(0, PREFIX.length + 4)}...${key.slice(-4)}`;
}
