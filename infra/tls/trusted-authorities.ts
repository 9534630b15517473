import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import type { Config } from '../config/settings.ts';
import { fault } from '../errors/runlake-error.ts';

const certificate = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * The authorities that connections to all servers trust, as PEM texts: those of Node and those of `RUNLAKE_TLS_CA_FILE`.
 * Undefined where no file is set: then a client's own default, Node's list, holds.
 *
 * @throws CA_FILE_UNUSABLE where the file cannot be read or holds no certificate that can.
 */
export function trustedAuthorities({ tlsCaFile }: Pick<Config, 'tlsCaFile'>): string[] | undefined {
  return tlsCaFile === undefined ? undefined : [...rootCertificates, ...certificatesIn(tlsCaFile)];
}

/** The certificates of a PEM file, each checked. @throws CA_FILE_UNUSABLE */
export function certificatesIn(file: string): string[] {
  try {
    const found = readFileSync(file, 'utf8').match(certificate) ?? [];
    if (found.length === 0) throw fault('CA_FILE_UNUSABLE', { file, reason: 'it holds no certificate in PEM' });
    for (const text of found) new X509Certificate(text);
    return found;
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'CA_FILE_UNUSABLE') throw cause;
    const reason = code === 'ENOENT' ? 'there is no such file' : code === 'EACCES' ? 'this user may not read it' : code;
    throw fault('CA_FILE_UNUSABLE', { file, reason: reason ?? 'a certificate in it is damaged' }, { cause });
  }
}
