import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import type { Config } from '../config/settings.ts';
import { runlakeError } from '../errors/runlake-error.ts';

const certificatePattern = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

const reasonByErrorCode = new Map([
  ['ENOENT', 'the file does not exist'],
  ['EACCES', 'this user has no read permission'],
  ['EISDIR', 'it is a folder'],
]);

/** The certificates of each file that this process has read. */
const authoritiesByFile = new Map<string, readonly string[]>();

/**
 * Returns the trusted CA certificates for connections to all servers, in PEM: those of Node and those of
 * `RUNLAKE_TLS_CA_FILE`. Returns undefined if that setting is not set; clients then use their default, which is Node's
 * list. Reads the file once, so that all clients of a process trust the same certificates.
 *
 * @throws TLS_FILE_UNUSABLE if the file cannot be read or has no valid certificate.
 */
export function readTrustedAuthorities({
  tlsCaFile,
}: Partial<Pick<Config, 'tlsCaFile'>>): readonly string[] | undefined {
  if (tlsCaFile === undefined) return undefined;
  const known = authoritiesByFile.get(tlsCaFile) ?? [...rootCertificates, ...parseCertificates(tlsCaFile)];
  authoritiesByFile.set(tlsCaFile, known);
  return known;
}

/** Reads and validates the certificates of a PEM file. @throws TLS_FILE_UNUSABLE */
export function parseCertificates(file: string): string[] {
  const found = readTlsFile(file).match(certificatePattern) ?? [];
  if (found.length === 0) throw runlakeError('TLS_FILE_UNUSABLE', { file, reason: 'it contains no PEM certificate' });
  try {
    for (const text of found) new X509Certificate(text);
  } catch (cause) {
    throw runlakeError('TLS_FILE_UNUSABLE', { file, reason: 'it contains an invalid certificate' }, { cause });
  }
  return found;
}

/** @throws TLS_FILE_UNUSABLE */
export function readTlsFile(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw runlakeError(
      'TLS_FILE_UNUSABLE',
      { file, reason: reasonByErrorCode.get(String(code)) ?? String(code) },
      { cause },
    );
  }
}
