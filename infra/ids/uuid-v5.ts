import { createHash } from 'node:crypto';
import { uuidText } from './uuid-v7.ts';

/** Returns the version 5 UUID of `name` in `namespace`, in lower case. Source: RFC 9562, 5.5. */
export function uuidv5(name: string, namespace: string): string {
  const hash = createHash('sha1')
    .update(Buffer.from(namespace.replaceAll('-', ''), 'hex'))
    .update(name)
    .digest();
  const bytes = hash.subarray(0, 16);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x50;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  return uuidText(bytes);
}
