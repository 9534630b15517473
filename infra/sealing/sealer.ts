import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { fault } from '../errors/runlake-error.ts';

/**
 * Seals short secrets into texts that can be stored. A sealed text names the key it was sealed under and opens only for the
 * row that it was made for: moved to another row, or changed in any bit, it does not open.
 */
export interface Sealer {
  /** @param row What it belongs to, such as the id of its row. */
  seal(text: string, row: string): string;
  /** @throws SEAL_KEY_UNKNOWN, SEAL_BROKEN. Neither holds anything of the text. */
  open(sealed: string, row: string): Opened;
}

export interface Opened {
  readonly text: string;
  /** Sealed under a former key: to be sealed again, so that this key can be retired. */
  readonly isUnderFormerKey: boolean;
}

export interface SealerOptions {
  /** New texts are sealed under it. */
  readonly secretKey: string;
  /** Earlier secret keys, which open what was sealed under them. */
  readonly formerSecretKeys?: readonly string[] | undefined;
  /** Separates keys from those for other purposes. */
  readonly purpose: string;
  /** What is sealed, in words that begin a sentence. */
  readonly what: string;
}

interface Key {
  readonly id: string;
  readonly bytes: Buffer;
}

const format = 's1';
const keyBytes = 32;
const keyIdBytes = 6;
const nonceBytes = 12;
const tagBytes = 16;

/**
 * AES-256-GCM (NIST SP 800-38D) with a random nonce of 96 bits under a key derived by HKDF (RFC 5869). Text:
 * `s1.<key id>.<base64url of nonce, cipher text and tag>`; format, key id, purpose and row are the associated data. The key id
 * is derived beside the key and tells nothing of it.
 */
export function createSealer({ secretKey, formerSecretKeys = [], purpose, what }: SealerOptions): Sealer {
  const current = deriveKey(secretKey, purpose);
  const keys = new Map(
    [...formerSecretKeys.map((former) => deriveKey(former, purpose)), current].map((key) => [key.id, key]),
  );
  const boundTo = (keyId: string, row: string) => Buffer.from(JSON.stringify([format, keyId, purpose, row]));
  return {
    seal(text, row) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv('aes-256-gcm', current.bytes, nonce, { authTagLength: tagBytes });
      cipher.setAAD(boundTo(current.id, row));
      const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
      return `${format}.${current.id}.${sealed.toString('base64url')}`;
    },
    open(sealed, row) {
      const [, keyId = '', body = ''] = /^s1\.([\w-]+)\.([\w-]+)$/.exec(sealed) ?? [];
      const content = Buffer.from(body, 'base64url');
      if (content.length < nonceBytes + tagBytes) throw fault('SEAL_BROKEN', { what });
      const key = keys.get(keyId);
      if (key === undefined) throw fault('SEAL_KEY_UNKNOWN', { what, keyId });
      try {
        const nonce = content.subarray(0, nonceBytes);
        const decipher = createDecipheriv('aes-256-gcm', key.bytes, nonce, { authTagLength: tagBytes });
        decipher.setAAD(boundTo(keyId, row));
        decipher.setAuthTag(content.subarray(-tagBytes));
        const text =
          decipher.update(content.subarray(nonceBytes, -tagBytes), undefined, 'utf8') + decipher.final('utf8');
        return { text, isUnderFormerKey: keyId !== current.id };
      } catch {
        throw fault('SEAL_BROKEN', { what });
      }
    },
  };
}

function deriveKey(secretKey: string, purpose: string): Key {
  const derive = (label: string, bytes: number) =>
    Buffer.from(hkdfSync('sha256', secretKey, '', `runlake sealing ${purpose} ${label} v1`, bytes));
  return { id: derive('key id', keyIdBytes).toString('hex'), bytes: derive('key', keyBytes) };
}
