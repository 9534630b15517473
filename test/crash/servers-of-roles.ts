import { randomBytes } from 'node:crypto';
import { ownKafka } from '../engines/own-servers.ts';
import { stackPart } from '../engines/stack.ts';
import { freshStores } from '../engines/stores.ts';
import { startOwn } from './own-servers.ts';

/** What roles stand on that run apart. */
export interface ServersOfRoles {
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
  /** Variables of Kafka and registry. */
  readonly environment: Readonly<Record<string, string>>;
  release(): Promise<void>;
}

/** Servers that others use too, with stores and topics for these roles alone: for tests that leave servers alone. */
export async function sharedServers(): Promise<ServersOfRoles> {
  const stores = await freshStores();
  const { clickhouseUrl, databaseUrl } = stores;
  const kafka = topicsOn(stackPart('kafka')?.brokers ?? '');
  const release = async () => void (await Promise.all([kafka.clear(), stores.close()]));
  return { clickhouseUrl, databaseUrl, environment: kafka.environment, release };
}

/** Servers for a test file alone, which may kill them; nobody kills the registry, which takes longest to start. */
export async function serversToKill() {
  const own = await startOwn(['kafka', 'postgres', 'clickhouse']);
  return {
    ...own,
    clickhouseUrl: own.clickhouse.values.url ?? '',
    databaseUrl: own.postgres.values.url ?? '',
    environment: topicsOn(own.kafka.values.brokers ?? '').environment,
    release: own.remove,
  } satisfies ServersOfRoles;
}

/** Named by nobody else, whatever Kafka they are on: in the registry they lie beside those of others. */
function topicsOn(kafkaBrokers: string) {
  const schemaRegistryUrl = stackPart('registry')?.url ?? '';
  const name = `crash-${randomBytes(6).toString('hex')}`;
  return ownKafka({ clickhouseUrl: '', databaseUrl: '', kafkaBrokers, schemaRegistryUrl }, name);
}
