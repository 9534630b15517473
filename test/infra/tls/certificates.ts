/**
 * Test certificates, valid until 2126: two authorities, and two certificates of the first authority, one for localhost
 * and one for elsewhere.example. The keys protect nothing else.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const path = (name: string) => fileURLToPath(new URL(`certificates/${name}.pem`, import.meta.url));

export const authorityFile = path('authority');
export const otherAuthorityFile = path('other-authority');

/** Returns certificate and key of a server. */
export function serverCertificate(name: 'server' | 'elsewhere' = 'server'): { cert: Buffer; key: Buffer } {
  return { cert: readFileSync(path(name)), key: readFileSync(path(`${name}-key`)) };
}
