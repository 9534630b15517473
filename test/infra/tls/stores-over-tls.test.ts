/** Real stores behind TLS: which setting trusts which authorities, and which connections are refused. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openClickHouse } from '../../../infra/clickhouse/client.ts';
import { openJobs } from '../../../infra/jobs/open-jobs.ts';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { acquireSessionLock } from '../../../infra/postgres/session-lock.ts';
import { readTrustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { authorityFile, otherAuthorityFile } from './certificates.ts';
import { openTlsProxy, type TlsProxy } from './tls-proxy.ts';

const timeoutMs = 10_000;
const own = readTrustedAuthorities({ tlsCaFile: authorityFile });
const other = readTrustedAuthorities({ tlsCaFile: otherAuthorityFile });

const stores = forSuite(() => freshStores({ migrated: false }));
let proxies: Record<'clickhouse' | 'postgres' | 'clickhouseElsewhere' | 'postgresElsewhere', TlsProxy>;
beforeAll(async () => {
  const clickhouse = locationOf(stores.clickhouseUrl);
  const postgres = { ...locationOf(stores.databaseUrl), asPostgres: true };
  proxies = {
    clickhouse: await openTlsProxy(clickhouse),
    clickhouseElsewhere: await openTlsProxy({ ...clickhouse, certificate: 'elsewhere' }),
    postgres: await openTlsProxy(postgres),
    postgresElsewhere: await openTlsProxy({ ...postgres, certificate: 'elsewhere' }),
  };
});
afterAll(async () => {
  await Promise.all(Object.values(proxies ?? {}).map((proxy) => proxy.close()));
});

function locationOf(url: string) {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

function through(proxy: TlsProxy, url: string, change: (address: URL) => void = () => undefined): string {
  const address = new URL(url);
  address.port = String(proxy.port);
  change(address);
  return address.href;
}

describe('ClickHouse over https', () => {
  it.each([
    ['of a trusted authority is accepted', 'clickhouse', own, undefined],
    ['of an authority that is not configured is refused', 'clickhouse', undefined, 'CLICKHOUSE_UNAVAILABLE'],
    ['of another authority is refused', 'clickhouse', other, 'CLICKHOUSE_UNAVAILABLE'],
    ['with another name is refused', 'clickhouseElsewhere', own, 'CLICKHOUSE_UNAVAILABLE'],
  ] as const)('a server %s', async (_case, proxy, authorities, code) => {
    const url = through(proxies[proxy], stores.clickhouseUrl.replace('http:', 'https:'));
    const clickhouse = openClickHouse({ url, authorities, logger, timeoutMs });
    const asked = clickhouse.ping();
    await (code ? expect(asked).rejects.toMatchObject({ code }) : expect(asked).resolves.toBeUndefined());
    await clickhouse.close();
  });
});

describe('Postgres over TLS', () => {
  const refused = 'DATABASE_UNAVAILABLE';
  it.each([
    ['verify-full', 'postgres', own, undefined],
    ['verify-full', 'postgres', undefined, refused],
    ['verify-full', 'postgres', other, refused],
    ['verify-full', 'postgresElsewhere', own, refused],
    ['verify-ca', 'postgresElsewhere', own, undefined],
    ['verify-ca', 'postgresElsewhere', other, refused],
    ['require', 'postgres', undefined, undefined],
    ['require', 'postgresElsewhere', own, undefined],
    ['require', 'postgres', other, refused],
  ] as const)('sslmode=%s with the certificate of %s', async (mode, proxy, authorities, code) => {
    const url = through(proxies[proxy], stores.databaseUrl, (address) => address.searchParams.set('sslmode', mode));
    const database = openDatabase({ url, authorities, logger, timeoutMs });
    const asked = database.ping();
    await (code ? expect(asked).rejects.toMatchObject({ code }) : expect(asked).resolves.toBeUndefined());
    await database.close();
  });

  it('refuses a server without TLS', async () => {
    const database = openDatabase({ url: `${stores.databaseUrl}?sslmode=require`, logger, timeoutMs });
    await expect(database.ping()).rejects.toMatchObject({ code: refused });
    await database.close();
  });

  it('prefers the authority in the address to that of the setting', async () => {
    const url = through(proxies.postgres, stores.databaseUrl, (address) => {
      address.searchParams.set('sslmode', 'verify-full');
      address.searchParams.set('sslrootcert', authorityFile);
    });
    const database = openDatabase({ url, authorities: other, logger, timeoutMs });
    await database.ping();
    await database.close();
  });

  it('is also used for the lock of the in-process log and the job queues', async () => {
    const url = through(proxies.postgres, stores.databaseUrl, (address) =>
      address.searchParams.set('sslmode', 'verify-full'),
    );
    const lock = await acquireSessionLock({ url, authorities: own, key: 77, logger });
    expect(lock).toBeDefined();
    await lock?.release();
    const jobs = await openJobs({ databaseUrl: url, config: { tlsCaFile: authorityFile }, logger });
    await jobs.check();
    await jobs.close();
  });
});
