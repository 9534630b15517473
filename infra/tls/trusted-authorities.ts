import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import type { Config } from '../config/settings.ts';
import { fault } from '../errors/runlake-error.ts';

const certificate = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

const reasons = new Map([
  ['ENOENT', 'there is no such file'],
  ['EACCES', 'this user may not read it'],
  ['EISDIR', 'it is a folder'],
]);

/**
 * The authorities that connections to all servers trust, as PEM texts: those of Node and those of `RUNLAKE_TLS_CA_FILE`.
 * Undefined where no file is set: then a client's own default, Node's list, holds.
 *
 * @throws TLS_FILE_UNUSABLE where the file cannot be read or holds no certificate that can.
 */
export function trustedAuthorities({ tlsCaFile }: Pick<Config, 'tlsCaFile'>): string[] | undefined {
  return tlsCaFile === undefined ? undefined : [...rootCertificates, ...certificatesIn(tlsCaFile)];
}

/** The certificates of a PEM file, each checked. @throws TLS_FILE_UNUSABLE */
export function certificatesIn(file: string): string[] {
  const found = readTlsFile(file).match(certificate) ?? [];
  if (found.length === 0) throw fault('TLS_FILE_UNUSABLE', { file, reason: 'it holds no certificate in PEM' });
  try {
    for (const text of found) new X509Certificate(text);
  } catch (cause) {
    throw fault('TLS_FILE_UNUSABLE', { file, reason: 'a certificate in it is damaged' }, { cause });
  }
  return found;
}

/** @throws TLS_FILE_UNUSABLE */
export function readTlsFile(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw fault('TLS_FILE_UNUSABLE', { file, reason: reasons.get(String(code)) ?? String(code) }, { cause });
  }
}
