import { randomBytes } from 'node:crypto';
import { allocateKafkaTopics } from '../engines/own-servers.ts';
import { stackPart } from '../engines/stack.ts';
import { clusterVariable, freshStores, getClusterVariable } from '../engines/stores.ts';
import { startServersByName } from './own-servers.ts';

/** Servers for roles that run as separate processes. */
export interface RoleServers {
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
  /** Variables of Kafka, the registry and the ClickHouse cluster. */
  readonly environment: Readonly<Record<string, string>>;
  release(): Promise<void>;
}

/** Shared servers with separate stores and topics, for tests that do not kill servers. */
export async function sharedServers(): Promise<RoleServers> {
  const stores = await freshStores();
  const { clickhouseUrl, databaseUrl } = stores;
  const kafka = createTopics(stackPart('kafka')?.brokers ?? '');
  const release = async () => void (await Promise.all([kafka.clear(), stores.close()]));
  return { clickhouseUrl, databaseUrl, environment: { ...kafka.environment, ...getClusterVariable(stores) }, release };
}

/** Servers that one test file may kill; the registry is shared and not killed, because it starts slowest. */
export async function serversToKill() {
  const own = await startServersByName(['kafka', 'postgres', 'clickhouse']);
  return {
    ...own,
    clickhouseUrl: own.clickhouse.values.url ?? '',
    databaseUrl: own.postgres.values.url ?? '',
    environment: {
      ...createTopics(own.kafka.values.brokers ?? '').environment,
      ...clusterVariable(own.clickhouse.values.cluster),
    },
    release: own.remove,
  } satisfies RoleServers;
}

/** Topics with a unique prefix on any Kafka; their schemas are in the shared registry. */
function createTopics(kafkaBrokers: string) {
  const schemaRegistryUrl = stackPart('registry')?.url ?? '';
  const name = `crash-${randomBytes(6).toString('hex')}`;
  return allocateKafkaTopics({ clickhouseUrl: '', databaseUrl: '', kafkaBrokers, schemaRegistryUrl }, name);
}
