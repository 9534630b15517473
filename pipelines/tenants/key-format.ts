/** The format of API keys. */
import { createHash, randomBytes } from 'node:crypto';

const keyPrefix = 'rlk_';

/** Generates an API key: the prefix and 256 random bits as 43 characters. */
export function generateKey(): string {
  return keyPrefix + randomBytes(32).toString('base64url');
}

/**
 * Returns the short form of a key that is stored and shown: its first and last characters. A short key shows fewer
 * characters.
 */
export function toShortKey(key: string): string {
  return key.length < 40
    ? `${key.slice(0, 2)}...${key.slice(-2)}`
    : `${key.slice(0, keyPrefix.length + 4)}...${key.slice(-4)}`;
}

/** Returns the hash that is stored instead of the key. */
export function hashKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}
