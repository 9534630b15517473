import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { runlakeError } from '../errors/runlake-error.ts';

/**
 * Encrypts (seals) short secrets for storage. A sealed text contains the id of its key. It can be decrypted only for
 * the row that it was encrypted for, and only if it was not changed.
 */
export interface Sealer {
  /** Ids of the keys that this process has: the current key and the former ones. */
  readonly keyIds: readonly string[];
  /** @param row identifies the row that stores the secret, for example its id. */
  seal(text: string, row: string): string;
  /** @throws SEAL_KEY_UNKNOWN, SEAL_BROKEN; the errors never contain any part of the secret. */
  open(sealed: string, row: string): OpenedSecret;
}

export interface OpenedSecret {
  readonly text: string;
  /**
   * True if a former key decrypted the text. The caller should then seal the text again, so that the former key can be
   * retired.
   */
  readonly isUnderFormerKey: boolean;
}

export interface SealerOptions {
  /** Key that encrypts new texts. */
  readonly secretKey: string;
  /** Earlier keys, separated by commas, used only to decrypt texts. */
  readonly formerSecretKeys?: string | undefined;
  /** Input of the key derivation, so that each purpose has its own key. */
  readonly purpose: string;
  /** Name of the encrypted data for messages, as the subject of a sentence. */
  readonly what: string;
}

interface Key {
  readonly id: string;
  readonly bytes: Buffer;
}

const formatVersion = 's1';
const keyBytes = 32;
const keyIdBytes = 6;
const nonceBytes = 12;
const tagBytes = 16;

/**
 * Uses AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce and a key derived by HKDF (RFC 5869). Format of sealed
 * texts: `s1.<key id>.<base64url of nonce, ciphertext and tag>`; format, key id, purpose and row are the associated
 * data. The key id is derived separately and reveals nothing about the key.
 */
export function createSealer({ secretKey, formerSecretKeys = '', purpose, what }: SealerOptions): Sealer {
  const current = deriveKey(secretKey, purpose);
  const formerKeys = formerSecretKeys.split(',').flatMap((key) => key.trim() || []);
  const keys = new Map([...formerKeys.map((key) => deriveKey(key, purpose)), current].map((key) => [key.id, key]));
  const buildAssociatedData = (keyId: string, row: string) =>
    Buffer.from(JSON.stringify([formatVersion, keyId, purpose, row]));
  return {
    keyIds: [...keys.keys()],
    seal(text, row) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv('aes-256-gcm', current.bytes, nonce, { authTagLength: tagBytes });
      cipher.setAAD(buildAssociatedData(current.id, row));
      const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
      return `${formatVersion}.${current.id}.${sealed.toString('base64url')}`;
    },
    open(sealed, row) {
      const [, keyId = '', body = ''] = /^s1\.([\w-]+)\.([\w-]+)$/.exec(sealed) ?? [];
      const content = Buffer.from(body, 'base64url');
      if (content.length < nonceBytes + tagBytes) throw runlakeError('SEAL_BROKEN', { what });
      const key = keys.get(keyId);
      if (key === undefined) throw runlakeError('SEAL_KEY_UNKNOWN', { what, keyId });
      try {
        const nonce = content.subarray(0, nonceBytes);
        const decipher = createDecipheriv('aes-256-gcm', key.bytes, nonce, { authTagLength: tagBytes });
        decipher.setAAD(buildAssociatedData(keyId, row));
        decipher.setAuthTag(content.subarray(-tagBytes));
        const text =
          decipher.update(content.subarray(nonceBytes, -tagBytes), undefined, 'utf8') + decipher.final('utf8');
        return { text, isUnderFormerKey: keyId !== current.id };
      } catch {
        throw runlakeError('SEAL_BROKEN', { what });
      }
    },
  };
}

function deriveKey(secretKey: string, purpose: string): Key {
  const derive = (label: string, bytes: number) =>
    Buffer.from(hkdfSync('sha256', secretKey, '', `runlake sealing ${purpose} ${label} v1`, bytes));
  return { id: derive('key id', keyIdBytes).toString('hex'), bytes: derive('key', keyBytes) };
}
