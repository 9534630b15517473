import type { ConnectionOptions } from 'node:tls';
import { certificatesIn, readTlsFile } from '../tls/trusted-authorities.ts';

/** What `pg` is given for an address: TLS is settled here, because `pg` reads `sslmode` in another way than `libpq` does. */
export interface PostgresAddress {
  readonly connectionString: string;
  readonly ssl?: ConnectionOptions | false;
}

export const sslModes = ['disable', 'require', 'verify-ca', 'verify-full'] as const;

const parameters = ['sslmode', 'ssl', 'sslrootcert', 'sslcert', 'sslkey', 'uselibpqcompat'];

/** The `sslmode` of an address where it is none of {@link sslModes}. `allow` and `prefer` may end without TLS, unseen. */
export function unknownSslMode(url: string): string | undefined {
  const mode = URL.canParse(url) ? new URL(url).searchParams.get('sslmode') : null;
  return mode === null || (sslModes as readonly string[]).includes(mode) ? undefined : mode;
}

/**
 * Reads TLS out of the parameters of an address, as `libpq` does: without `sslmode` there is none; `require` encrypts, and
 * checks the server's certificate where authorities are named; `verify-ca` always checks it; `verify-full` its name too.
 * `authorities` are trusted where the address has no `sslrootcert` of its own.
 * Source: PostgreSQL documentation, "SSL Support" of libpq.
 *
 * @throws TLS_FILE_UNUSABLE
 */
export function postgresAddress(url: string, authorities?: readonly string[]): PostgresAddress {
  const address = new URL(url);
  const given = (name: string) => address.searchParams.get(name) ?? undefined;
  const [mode, ssl, rootFile, certFile, keyFile] = parameters.map(given);
  for (const name of parameters) address.searchParams.delete(name);
  const connectionString = address.href;
  const wanted = mode ?? (/^(?:true|1)$/.test(ssl ?? '') ? 'verify-full' : undefined);
  if (wanted === undefined && rootFile === undefined && certFile === undefined) return { connectionString };
  if (wanted === 'disable') return { connectionString, ssl: false };
  const trusted = rootFile === undefined ? authorities : certificatesIn(rootFile);
  const nameChecked = wanted === undefined || wanted === 'verify-full';
  return {
    connectionString,
    ssl: {
      ...(trusted && { ca: [...trusted] }),
      ...(certFile !== undefined && { cert: readTlsFile(certFile) }),
      ...(keyFile !== undefined && { key: readTlsFile(keyFile) }),
      rejectUnauthorized: wanted !== 'require' || trusted !== undefined,
      ...(!nameChecked && { checkServerIdentity: () => undefined }),
    },
  };
}
