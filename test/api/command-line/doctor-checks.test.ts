/** Checks that `explainPart` names the first misconfiguration of each server, against real servers. */
import { randomBytes } from 'node:crypto';
import { Kafka, logLevel } from 'kafkajs';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createServerChecks } from '../../../api/command-line/doctor-checks.ts';
import { explainPart, type ServerName } from '../../../api/command-line/explain-part.ts';
import { openStores } from '../../../api/command-line/open-stores.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { stackPart } from '../../engines/stack.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { authorityFile, otherAuthorityFile } from '../../infra/tls/certificates.ts';
import { openTlsProxy, type TlsProxy } from '../../infra/tls/tls-proxy.ts';
import { logger } from '../../silent-logger.ts';

vi.setConfig({ testTimeout: 90_000, hookTimeout: 120_000 });

const kafka = stackPart('kafka');
const registry = stackPart('registry');
const redis = stackPart('redis');

const stores = forSuite(() => freshStores({ migrated: false }));
const proxies: TlsProxy[] = [];
afterAll(async () => {
  await Promise.all(proxies.map((proxy) => proxy.close()));
});

/** Returns the address with the change applied; if `tlsCertificate` is set, the address leads through a TLS proxy. */
async function changeAddress(
  url: string,
  change: (address: URL) => void,
  tlsCertificate?: 'server' | 'elsewhere',
  isPostgres = false,
) {
  const address = new URL(url);
  if (tlsCertificate !== undefined) {
    const target = { host: address.hostname, port: Number(address.port) };
    const proxy = await openTlsProxy({ ...target, certificate: tlsCertificate, asPostgres: isPostgres });
    proxies.push(proxy);
    address.port = String(proxy.port);
  }
  change(address);
  // The scheme of a special URL cannot be changed to a non-special one.
  return address.href;
}

async function ask(name: ServerName, more: Partial<Config>): Promise<string> {
  const config = { ...loadConfig({}).config, queryTimeoutMs: 5_000, ...more };
  const addresses = {
    clickhouseUrl: config.clickhouseUrl ?? stores.clickhouseUrl,
    databaseUrl: config.databaseUrl ?? stores.databaseUrl,
  };
  const opened = openStores(addresses, config, logger);
  try {
    const server = createServerChecks(config, addresses, opened).find((each) => each.name === name);
    if (server === undefined) throw new Error(`no ${name}`);
    return await server.check().catch((error: unknown) => {
      const why = explainPart(error, server);
      if (why !== undefined) return `${why.words} → ${why.remedy}`;
      if (isRunlakeError(error)) return `${error.message} → ${error.remedy}`;
      throw error;
    });
  } finally {
    await opened.close();
  }
}

const user = (name: string, password: string) => (address: URL) => {
  address.username = name;
  address.password = password;
};

describe('Postgres', () => {
  const mode = (sslmode: string) => (address: URL) => address.searchParams.set('sslmode', sslmode);
  it.each<[string, (address: URL) => void, RegExp, ('server' | 'elsewhere')?, Partial<Config>?]>([
    ['valid settings', () => undefined, /^release \d+/],
    [
      'a wrong host',
      (address) => (address.hostname = 'no-such-host.invalid'),
      /cannot be resolved.*RUNLAKE_DATABASE_URL/,
    ],
    ['a port without a server', (address) => (address.port = '9'), /nothing listens at 127\.0\.0\.1:9 → Start/],
    [
      'a wrong password',
      (address) => (address.password = 'wrong'),
      /refuses the user or the password → .*RUNLAKE_DATABASE_URL/,
    ],
    [
      'a missing database',
      (address) => (address.pathname = '/missing'),
      /does not have a database of that name → Create it with CREATE DATABASE/,
    ],
    ['TLS to a server without TLS', mode('require'), /does not speak TLS → .*no sslmode/],
    [
      'a certificate of an untrusted authority',
      mode('verify-full'),
      /authority that is not trusted → .*RUNLAKE_TLS_CA_FILE/,
      'server',
    ],
    [
      'certificate for another name',
      mode('verify-full'),
      /for another name/,
      'elsewhere',
      { tlsCaFile: authorityFile },
    ],
    ['TLS, valid', mode('verify-full'), /^release/, 'server', { tlsCaFile: authorityFile }],
  ])('%s', async (_case, change, words, behindTls, more = {}) => {
    const databaseUrl = await changeAddress(stores.databaseUrl, change, behindTls, true);
    const reported = await ask('Postgres', { databaseUrl, ...more });
    expect(reported).toMatch(words);
    expect(reported).not.toContain(new URL(stores.databaseUrl).password);
  });

  it('reports a user without privileges', async () => {
    const name = `poor_${randomBytes(4).toString('hex')}`;
    await stores.database.execute(`CREATE ROLE ${name} LOGIN PASSWORD 'poor'`);
    const databaseUrl = await changeAddress(stores.databaseUrl, user(name, 'poor'));
    onTestFinished(async () => {
      await stores.database.execute(`DROP ROLE ${name}`);
    });
    expect(await ask('Postgres', { databaseUrl })).toMatch(
      /lacks the privilege CREATE on .* → Run as its owner: GRANT CREATE/,
    );
  });
});

describe('ClickHouse', () => {
  it('creates a table to check the rights once, however often the checks run', async () => {
    const { config } = loadConfig({});
    const opened = openStores(stores, config, logger);
    const { clickhouse } = opened;
    const created: string[] = [];
    for (const server of clickhouse.servers) {
      const { command } = server;
      vi.spyOn(server, 'command').mockImplementation((statement) => {
        if (statement.sql.startsWith('CREATE TABLE')) created.push(statement.sql);
        return command(statement);
      });
    }
    for (let time = 0; time < 3; time += 1)
      for (const { name, check } of createServerChecks(config, stores, opened))
        if (name === 'ClickHouse') await check();
    await opened.close();
    expect(created).toHaveLength(clickhouse.servers.length);
  });

  const https = (url: string) => url.replace('http:', 'https:');
  it.each<[string, (address: URL) => void, RegExp]>([
    ['valid settings', () => undefined, /^release \d+/],
    ['a wrong host', (address) => (address.hostname = 'no-such-host.invalid'), /cannot be resolved/],
    ['a port without a server', (address) => (address.port = '9'), /nothing listens at 127\.0\.0\.1:9/],
    ['a wrong password', (address) => (address.password = 'wrong'), /refuses the user or the password/],
    [
      'a missing database',
      (address) => (address.pathname = '/missing'),
      /does not have a database of that name → Create it/,
    ],
  ])('%s', async (_case, change, words) => {
    expect(await ask('ClickHouse', { clickhouseUrl: await changeAddress(stores.clickhouseUrl, change) })).toMatch(
      words,
    );
  });

  it.each<[string, boolean, 'server' | 'elsewhere' | undefined, string | undefined, RegExp]>([
    ['https to a plain port', true, undefined, undefined, /does not speak TLS → .*http:/],
    ['http to a TLS port', false, 'server', undefined, /TLS/],
    ['certificate of another authority', true, 'server', otherAuthorityFile, /authority that is not trusted/],
    ['certificate for another name', true, 'elsewhere', authorityFile, /for another name/],
    ['TLS, valid', true, 'server', authorityFile, /^release/],
  ])('%s', async (_case, secure, behindTls, tlsCaFile, words) => {
    const url = await changeAddress(stores.clickhouseUrl, () => undefined, behindTls);
    expect(await ask('ClickHouse', { clickhouseUrl: secure ? https(url) : url, tlsCaFile })).toMatch(words);
  });
});

describe.runIf(redis)('Redis', () => {
  const url = String(redis?.url);
  it.each<[string, (address: URL) => void, boolean, boolean, RegExp]>([
    ['valid settings', () => undefined, false, false, /^release \d+/],
    ['a port without a server', (address) => (address.port = '9'), false, false, /nothing listens/],
    ['a wrong password', user('', 'wrong'), false, false, /refuses the user or the password/],
    ['an unknown user', user('nobody', 'wrong'), false, false, /refuses the user or the password/],
    ['TLS to a plain port', () => undefined, true, false, /TLS|without a response/],
    ['TLS, valid', () => undefined, true, true, /^release/],
  ])('%s', async (_case, change, secure, behindTls, words) => {
    const address = await changeAddress(url, change, behindTls ? 'server' : undefined);
    const redisUrl = secure ? address.replace('redis:', 'rediss:') : address;
    expect(await ask('Redis', { redisUrl, tlsCaFile: authorityFile })).toMatch(words);
  });
});

describe.runIf(kafka)('Kafka', () => {
  const kafkaBrokers = String(kafka?.brokers);
  it.each<[string, Partial<Config>, RegExp]>([
    ['valid settings', { kafkaTopicPrefix: 'none.' }, /broker\(s\) answer; \d+ topics do not exist yet/],
    ['a wrong host', { kafkaBrokers: 'no-such-host.invalid:9092' }, /cannot be resolved/],
    ['a port without a server', { kafkaBrokers: '127.0.0.1:9' }, /nothing listens at 127\.0\.0\.1:9/],
    ['TLS to a plain port', { kafkaTls: true }, /RUNLAKE_KAFKA_TLS|firewalls/],
    [
      'SASL against a broker without SASL',
      { kafkaSaslMechanism: 'plain', kafkaUser: 'a', kafkaPassword: 'b' },
      /RUNLAKE_KAFKA/,
    ],
  ])('%s', async (_case, more, words) => {
    expect(await ask('Kafka', { kafkaBrokers, ...more })).toMatch(words);
  });

  it('reports a topic whose max.message.bytes is too small', async () => {
    const kafkaTopicPrefix = `doctor-${randomBytes(4).toString('hex')}.`;
    const admin = new Kafka({ brokers: [kafkaBrokers], logLevel: logLevel.NOTHING }).admin();
    await admin.connect();
    const topic = `${kafkaTopicPrefix}run-events`;
    const configEntries = [{ name: 'max.message.bytes', value: '1000' }];
    await admin.createTopics({ topics: [{ topic, configEntries }], waitForLeaders: true });
    onTestFinished(async () => {
      await admin.deleteTopics({ topics: [topic] });
      await admin.disconnect();
    });
    const reported = await ask('Kafka', { kafkaBrokers, kafkaTopicPrefix });
    expect(reported).toMatch(
      /topic \S+run-events cannot be used: its max\.message\.bytes is 1000.*RUNLAKE_MAX_RUN_BYTES/,
    );
  });
});

describe.runIf(registry)('Schema registry', () => {
  const url = String(registry?.url);
  it.each<[string, (address: URL) => void, RegExp]>([
    ['valid settings', () => undefined, /answers; \d schemas are not registered yet/],
    ['a port without a server', (address) => (address.port = '9'), /nothing listens/],
    ['a wrong path', (address) => (address.pathname = '/nowhere'), /does not serve this path → Correct the path/],
  ])('%s', async (_case, change, words) => {
    const more = { schemaRegistryUrl: await changeAddress(url, change), kafkaTopicPrefix: 'none.' };
    expect(await ask('Schema registry', more)).toMatch(words);
  });

  it('uses https with user and password, and reports a certificate of an untrusted authority', async () => {
    const schemaRegistryUrl = (await changeAddress(url, () => undefined, 'server')).replace(
      'http://',
      'https://me:secret@',
    );
    const more = { schemaRegistryUrl, kafkaTopicPrefix: 'none.' };
    expect(await ask('Schema registry', { ...more, tlsCaFile: authorityFile })).toMatch(/^answers/);
    expect(await ask('Schema registry', more)).toMatch(/authority that is not trusted/);
  });
});
