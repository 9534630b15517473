import type { ConnectionOptions } from 'node:tls';
import { parseCertificates, readTlsFile } from '../tls/trusted-authorities.ts';

/**
 * Connection options for `pg`. They include the TLS options, because `pg` interprets `sslmode` differently from
 * `libpq`.
 */
export interface PostgresAddress {
  readonly connectionString: string;
  readonly ssl?: ConnectionOptions | false;
}

export const sslModes = ['disable', 'require', 'verify-ca', 'verify-full'] as const;

const tlsParameters = ['sslmode', 'ssl', 'sslrootcert', 'sslcert', 'sslkey', 'uselibpqcompat'];

/**
 * Returns the `sslmode` of an address if it is not in {@link sslModes}. `allow` and `prefer` are refused: they may
 * silently skip TLS.
 */
export function findUnknownSslMode(url: string): string | undefined {
  const mode = URL.canParse(url) ? new URL(url).searchParams.get('sslmode') : null;
  return mode === null || (sslModes as readonly string[]).includes(mode) ? undefined : mode;
}

/**
 * Parses the TLS parameters of an address as `libpq` does: without `sslmode` the connection is not encrypted; `require`
 * encrypts, and verifies the server's certificate if CA certificates are given; `verify-ca` always verifies it;
 * `verify-full` also verifies the host name. Without `sslrootcert`, the connection uses the CA certificates in
 * `authorities`. Source: PostgreSQL documentation, "SSL Support" of libpq.
 *
 * @throws TLS_FILE_UNUSABLE
 */
export function parsePostgresAddress(url: string, authorities?: readonly string[]): PostgresAddress {
  const address = new URL(url);
  const getParameter = (name: string) => address.searchParams.get(name) ?? undefined;
  const [mode, ssl, rootFile, certFile, keyFile] = tlsParameters.map(getParameter);
  for (const name of tlsParameters) address.searchParams.delete(name);
  const connectionString = address.href;
  const sslMode = mode ?? (/^(?:true|1)$/.test(ssl ?? '') ? 'verify-full' : undefined);
  if (sslMode === undefined && rootFile === undefined && certFile === undefined) return { connectionString };
  if (sslMode === 'disable') return { connectionString, ssl: false };
  const trustedCertificates = rootFile === undefined ? authorities : parseCertificates(rootFile);
  const checksHostName = sslMode === undefined || sslMode === 'verify-full';
  return {
    connectionString,
    ssl: {
      ...(trustedCertificates && { ca: [...trustedCertificates] }),
      ...(certFile !== undefined && { cert: readTlsFile(certFile) }),
      ...(keyFile !== undefined && { key: readTlsFile(keyFile) }),
      rejectUnauthorized: sslMode !== 'require' || trustedCertificates !== undefined,
      ...(!checksHostName && { checkServerIdentity: () => undefined }),
    },
  };
}
