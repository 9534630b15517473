import { clickhouseClockMs, inspectClickHouseRights } from '../../infra/clickhouse/server-queries.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { inspectRedis } from '../../infra/jobs/inspect-redis.ts';
import { databaseClockMs, inspectDatabaseRights } from '../../infra/postgres/inspect-database.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { topics } from '../../schemas/topics.ts';
import type { CheckedServer, ServerName } from './explain-part.ts';
import type { StoreAddresses, Stores } from './open-stores.ts';
import { requireVersion } from './require-store-versions.ts';

/** The check of one server. Resolves with a description if the server is usable; throws its first problem otherwise. */
export interface ServerCheck extends CheckedServer {
  readonly check: () => Promise<string>;
}

/** Maximum clock difference between this host and a server whose times order events. */
const maxClockDifferenceMs = 5_000;

/** Returns a check for every server with a known address, in the order in which a start needs them. */
export function serverChecks(config: Config, addresses: Partial<StoreAddresses>, stores: Stores): ServerCheck[] {
  const { clickhouse, database } = stores;
  const logger = createLogger('silent', 'doctor');
  const { redisUrl, kafkaBrokers, schemaRegistryUrl } = config;
  const { databaseUrl, clickhouseUrl } = addresses;
  const checks: ServerCheck[] = [];
  if (databaseUrl !== undefined) {
    const check = async () => {
      const release = await database.version();
      requireVersion('Postgres', release);
      await inspectDatabaseRights(database);
      await compareClock('Postgres', () => databaseClockMs(database));
      return `release ${release}`;
    };
    checks.push({ name: 'Postgres', address: databaseUrl, check });
  }
  if (clickhouseUrl !== undefined) {
    const check = async () => {
      const release = await clickhouse.version();
      requireVersion('ClickHouse', release);
      await inspectClickHouseRights(clickhouse);
      await compareClock('ClickHouse', () => clickhouseClockMs(clickhouse));
      return `release ${release}`;
    };
    checks.push({ name: 'ClickHouse', address: clickhouseUrl, check });
  }
  if (redisUrl !== undefined) {
    const check = async () => `release ${await inspectRedis(redisUrl, trustedAuthorities(config))}`;
    checks.push({ name: 'Redis', address: redisUrl, check });
  }
  if (kafkaBrokers !== undefined) {
    const check = async () => {
      const { inspectKafka } = await import('../../infra/event-log/kafka/inspect-kafka.ts');
      return inspectKafka({ config, topics, logger });
    };
    checks.push({ name: 'Kafka', address: kafkaBrokers, check });
  }
  if (schemaRegistryUrl !== undefined) {
    const check = async () => {
      const { inspectRegistry } = await import('../../infra/event-log/kafka/inspect-registry.ts');
      return inspectRegistry(config, topics);
    };
    checks.push({ name: 'Schema registry', address: schemaRegistryUrl, check });
  }
  return checks;
}

/** @throws PART_UNUSABLE */
async function compareClock(name: ServerName, ask: () => Promise<number>): Promise<void> {
  const requestedAtMs = Date.now();
  const serverMs = await ask();
  // The server read its clock at some time between request and response.
  const aheadMs = Math.max(requestedAtMs - serverMs, serverMs - Date.now());
  if (aheadMs <= maxClockDifferenceMs) return;
  throw runlakeError('PART_UNUSABLE', {
    reason: `The clock of ${name} differs from the clock of this host by ${Math.round(aheadMs / 1_000)} s`,
    remedy: 'Synchronise the clocks of both hosts, for example with NTP. Usage is counted per hour of these times.',
  });
}
